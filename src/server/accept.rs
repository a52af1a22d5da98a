//! tiny_http's place: it accepts connections and owns them. The one file with `unsafe`.
//!
//! The library hides the socket of a connection. It accepts by way of the standard library, which calls the C function `accept4`; the program
//! supplies that function, which does what it always does and notes the descriptor. The right place for this is an `AsFd` in the library.

#![allow(unsafe_code)]

use std::any::Any;
use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::panic::catch_unwind;

thread_local! {
    /// What this thread's last `accept4` returned.
    static ACCEPTED: Cell<RawFd> = const { Cell::new(-1) };
}

/// A connection as tiny_http holds it, with its descriptor.
pub(super) struct Socket {
    /// Closes the descriptor when it is dropped; its type has no public name.
    _owner: Box<dyn Any + Send>,
    descriptor: RawFd,
}

/// Takes the next connection off a listener.
///
/// # Errors
/// When there is none (`WouldBlock`), when it is gone again, or when the process has no descriptor or memory left for it.
pub(super) fn accept(listener: &tiny_http::Listener) -> io::Result<Socket> {
    let no_tls = tiny_http::SslContextWrap::build_ssl_capabilities(None).map_err(io::Error::other)?;
    ACCEPTED.set(-1);
    // tiny_http duplicates the descriptor and panics when it cannot
    let accepted = catch_unwind(|| tiny_http::Server::accept_connection(listener, &no_tls))
        .unwrap_or_else(|_| Err(io::Error::other("no descriptor left for a connection")))?;
    match (accepted, ACCEPTED.get()) {
        (Some(owner), descriptor) if descriptor >= 0 => Ok(Socket { _owner: Box::new(owner), descriptor }),
        _ => Err(io::Error::other("this build's standard library does not accept through the C function accept4")),
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: `_owner` owns the descriptor and closes it when it is dropped, which the borrow of `self` rules out.
        unsafe { BorrowedFd::borrow_raw(self.descriptor) }
    }
}

/// Replaces the C library's function of this name (accept4(2)).
///
/// # Safety
/// As for the system call: `address` and `length` are null, or point to a buffer and its length.
#[unsafe(no_mangle)]
unsafe extern "C" fn accept4(
    listener: libc::c_int,
    address: *mut libc::sockaddr,
    length: *mut libc::socklen_t,
    flags: libc::c_int,
) -> libc::c_int {
    // SAFETY: passes on the arguments, for which the caller vouches; it returns and sets errno just as the function replaced does.
    let accepted = unsafe { libc::syscall(libc::SYS_accept4, listener, address, length, flags) } as libc::c_int;
    ACCEPTED.set(accepted);
    accepted
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn the_descriptor_is_that_of_the_connection() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let socket = accept(&tiny_http::Listener::Tcp(listener)).unwrap();
        client.write_all(b"hello").unwrap();
        let mut received = [0; 8];
        assert_eq!(rustix::net::recv(&socket, &mut received[..], rustix::net::RecvFlags::empty()).unwrap().0, 5);
        drop(socket);
        assert_eq!(std::io::Read::read(&mut client, &mut received).unwrap(), 0);
    }
}
