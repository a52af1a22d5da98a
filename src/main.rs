//! The program `colors`. Everything else is in the library, where fuzz targets can call it.

use std::process::ExitCode;

/// From this many bytes on, a block, such as the JSON of a long list, returns to the system as soon
/// as it is freed. By default, glibc raises this limit to the longest block freed so far, up to 32
/// MiB, and keeps shorter blocks (mallopt(3)).
const MAPPED_BYTES_MIN: i32 = 1024 * 1024;

fn main() -> ExitCode {
    // SAFETY: this sets a parameter of the allocator before there is another thread.
    #[cfg(target_env = "gnu")]
    #[expect(unsafe_code, reason = "nothing safe sets it")]
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES_MIN);
    }
    colors::main()
}
