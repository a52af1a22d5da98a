//! The program `colors`; everything is in the library, so that fuzzers reach it.

use std::process::ExitCode;

#[cfg(target_env = "gnu")]
use nix::libc;

/// Blocks of at least so many bytes, such as the JSON of long lists, go back to the system as soon
/// as they are freed. By itself, glibc raises this to the longest block so far, up to 32 MiB, and
/// keeps what is shorter.
const MAPPED_BYTES_MIN: i32 = 1024 * 1024;

fn main() -> ExitCode {
    // SAFETY: it sets a number of the allocator, before there is another thread
    #[cfg(target_env = "gnu")]
    #[expect(unsafe_code, reason = "nothing safe sets it")]
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES_MIN);
    }
    colors::main()
}
