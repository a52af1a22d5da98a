#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| colors::fuzzing::tokens(data));
