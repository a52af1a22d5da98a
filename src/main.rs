//! The program `colors`. Everything else is in the library, where fuzz targets can call it.

use std::process::ExitCode;

/// From this many bytes on, a block, such as the JSON of a long list, returns to the system as soon
/// as it is freed. By default, glibc raises this limit to the longest block freed so far, up to 32
/// MiB, and keeps shorter blocks (mallopt(3)).
#[cfg(target_env = "gnu")]
const MAPPED_BYTES_MIN: i32 = 1024 * 1024;

#[cfg(all(target_env = "gnu", target_feature = "crt-static"))]
#[expect(unsafe_code, reason = "nothing safe sets it")]
unsafe extern "C" {
    /// Sets where names of a database come from, in place of nsswitch.conf(5). From glibc's nss.h;
    /// the libc crate does not have it.
    fn __nss_configure_lookup(
        database: *const libc::c_char,
        sources: *const libc::c_char,
    ) -> libc::c_int;
}

fn main() -> ExitCode {
    // SAFETY: these set parameters of the allocator and of the resolver before there is another
    // thread.
    #[cfg(target_env = "gnu")]
    #[expect(unsafe_code, reason = "nothing safe sets them")]
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES_MIN);
        // All other sources (mdns4_minimal, myhostname, resolve) are libraries of the host, which
        // bring its glibc. Beside another glibc that is linked in, they crash the process. The call
        // cannot fail but for want of memory.
        #[cfg(target_feature = "crt-static")]
        __nss_configure_lookup(c"hosts".as_ptr(), c"files dns".as_ptr());
    }
    colors::main()
}
