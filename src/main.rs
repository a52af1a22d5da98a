//! The program `colors`; everything is in the library, so that fuzzers reach it.

use std::process::ExitCode;

fn main() -> ExitCode {
    colors::main()
}
