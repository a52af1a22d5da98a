//! The border to tiny_http: how connections come out of it and how bytes get into it. With [`crate::memory`] the only file with `unsafe`.
//!
//! tiny_http accepts connections and reads requests from them by itself, and has no way to give either a limit: it hides the socket, reads
//! for as long as the client sends, and waits forever on some requests (see [`crate::framing`]). What it does go through is the standard
//! library, and that calls the C functions `accept4` and `recv`. This program supplies those two. `accept4` does what it always does and
//! takes note of the descriptor. `recv` does what it always does as well, unless a worker has put a request before tiny_http to read: then
//! tiny_http gets those bytes and nothing else, at once, and never touches the socket.

#![allow(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};

use crate::message::Method;

/// The requests that tiny_http reads off one connection; its own type for that has no public name.
type Requests = Box<dyn Iterator<Item = Option<tiny_http::Request>> + Send>;

thread_local! {
    /// The descriptor that this thread's last `accept4` returned; negative when it failed.
    static ACCEPTED: Cell<RawFd> = const { Cell::new(-1) };
    /// What tiny_http reads on this thread instead of a socket.
    static SERVED: RefCell<Option<io::Cursor<Vec<u8>>>> = const { RefCell::new(None) };
}

/// A connection as tiny_http holds it, with the descriptor that tiny_http keeps to itself.
pub(crate) struct Inlet {
    /// Owns the socket, twice: tiny_http keeps one descriptor to read from and one to write to.
    requests: Requests,
    /// The one to write to; both are the same socket.
    descriptor: RawFd,
}

impl Inlet {
    /// Takes the next connection off a listener.
    ///
    /// # Errors
    /// When there is none (`WouldBlock`), when it is gone again, or when the process has no descriptor or memory left for it.
    pub(crate) fn accept(listener: &tiny_http::Listener) -> io::Result<Self> {
        let no_tls = tiny_http::SslContextWrap::build_ssl_capabilities(None).map_err(io::Error::other)?;
        ACCEPTED.set(-1);
        let accepted = tiny_http::Server::accept_connection(listener, &no_tls)?;
        let descriptor = ACCEPTED.get();
        match accepted {
            Some(requests) if descriptor >= 0 => Ok(Self { requests: Box::new(requests.map(|request| request.ok())), descriptor }),
            _ => Err(io::Error::other("the accepted connection cannot be found")),
        }
    }

    /// Has tiny_http read one request out of `head`; `None` when it takes it for no request.
    pub(crate) fn request(&mut self, head: Vec<u8>) -> Option<tiny_http::Request> {
        SERVED.set(Some(io::Cursor::new(head)));
        let request = self.requests.next();
        SERVED.set(None);
        request.flatten()
    }

    /// Bytes that were sent and that the other end has yet to take: of TCP, to acknowledge.
    pub(crate) fn undelivered(&self) -> usize {
        let mut bytes: libc::c_int = 0;
        // SAFETY: TIOCOUTQ writes one int, where it is told to, and nothing else (tcp(7), SIOCOUTQ).
        let failed = unsafe { libc::ioctl(self.descriptor, libc::TIOCOUTQ, &raw mut bytes) } != 0;
        // of a socket that cannot say, there is nothing to wait for
        if failed { 0 } else { usize::try_from(bytes).unwrap_or_default() }
    }
}

impl AsFd for Inlet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: `requests` owns the descriptor and closes it when it is dropped, which the borrow of `self` keeps from happening.
        unsafe { BorrowedFd::borrow_raw(self.descriptor) }
    }
}

/// A request's method in our terms.
pub(crate) fn method(request: &tiny_http::Request) -> Method {
    match request.method() {
        tiny_http::Method::Get => Method::Get,
        tiny_http::Method::Head => Method::Head,
        tiny_http::Method::Post => Method::Post,
        tiny_http::Method::Put => Method::Put,
        tiny_http::Method::Delete => Method::Delete,
        tiny_http::Method::Options => Method::Options,
        _ => Method::Other,
    }
}

/// Makes sure that the standard library calls the two functions below; without them nothing could be served.
///
/// # Errors
/// When it does not, which is a fault of how the program was built, or when the process may not create a socket.
pub(crate) fn check() -> io::Result<()> {
    let (mut near, mut far) = UnixStream::pair()?;
    far.write_all(b"socket")?;
    let mut read = [0; 6];
    SERVED.set(Some(io::Cursor::new(b"served".to_vec())));
    let first = near.read(&mut read).map(|length| read[..length] == *b"served");
    SERVED.set(None);
    let unsupported = || io::Error::other("this build's standard library does not read sockets through the C functions accept4 and recv");
    if !first? {
        return Err(unsupported());
    }
    near.read_exact(&mut read)?;

    // no address at all: the kernel gives the listener an abstract one (unix(7), autobind)
    let listener = UnixListener::from(rustix::net::socket(rustix::net::AddressFamily::UNIX, rustix::net::SocketType::STREAM, None)?);
    listener.set_nonblocking(true)?;
    ACCEPTED.set(RawFd::MAX);
    let refused = listener.accept();
    if read == *b"socket" && refused.is_err() && ACCEPTED.get() == -1 { Ok(()) } else { Err(unsupported()) }
}

/// Replaces the C library's function of this name (accept4(2)).
///
/// # Safety
/// As for the system call: `address` and `length` are null, or point to a buffer and its length.
#[unsafe(no_mangle)]
unsafe extern "C" fn accept4(
    socket: libc::c_int,
    address: *mut libc::sockaddr,
    length: *mut libc::socklen_t,
    flags: libc::c_int,
) -> libc::c_int {
    // SAFETY: passes on the arguments, for which the caller vouches; it returns and reports errors just as the function replaced does.
    let accepted = unsafe { libc::syscall(libc::SYS_accept4, socket, address, length, flags) } as libc::c_int;
    ACCEPTED.set(accepted);
    accepted
}

/// Replaces the C library's function of this name (recv(2)).
///
/// # Safety
/// As for the system call: `buffer` has room for `length` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn recv(socket: libc::c_int, buffer: *mut libc::c_void, length: libc::size_t, flags: libc::c_int) -> libc::ssize_t {
    let served = SERVED.try_with(|served| {
        let mut served = served.try_borrow_mut().ok()?;
        let served = served.as_mut()?;
        let rest = &served.get_ref()[served.position() as usize..];
        let count = rest.len().min(length);
        // SAFETY: the caller vouches for `length` bytes of room and `count` is at most that; the two cannot overlap.
        unsafe { std::ptr::copy_nonoverlapping(rest.as_ptr(), buffer.cast::<u8>(), count) };
        served.set_position(served.position() + count as u64);
        Some(count as libc::ssize_t)
    });
    match served {
        Ok(Some(count)) => count,
        // SAFETY: passes on the arguments, for which the caller vouches, and no address to fill in, which makes recvfrom(2) recv(2).
        _ => unsafe { libc::syscall(libc::SYS_recvfrom, socket, buffer, length, flags, 0, 0) as libc::ssize_t },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_standard_library_reads_through_here() {
        check().unwrap();
    }

    #[test]
    fn tiny_http_reads_what_it_is_served_and_not_the_socket() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.write_all(b"GET /socket HTTP/2.0\r\n\r\n").unwrap();
        let mut inlet = Inlet::accept(&tiny_http::Listener::Tcp(listener)).unwrap();
        for target in ["/first", "/second"] {
            let request = inlet.request(format!("PUT {target} HTTP/1.1\r\nhost: h\r\n\r\n").into_bytes()).unwrap();
            assert_eq!((request.method().as_str(), request.url()), ("PUT", target));
            let mut content = Vec::new();
            let mut request = request;
            request.as_reader().read_to_end(&mut content).unwrap();
            assert!(content.is_empty());
            drop(request.into_writer());
        }
        let mut left = [0; 64];
        let count = rustix::net::recv(&inlet, &mut left[..], rustix::net::RecvFlags::empty()).unwrap().0;
        assert_eq!(&left[..count], b"GET /socket HTTP/2.0\r\n\r\n");
    }
}
