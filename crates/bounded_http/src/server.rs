//! The shape of tiny_http's `Server`.

use std::error::Error;
use std::io;
use std::net::{TcpListener, ToSocketAddrs};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use socket2::SockRef;

use crate::limits::{Limits, connections_within, control_group_limit, raise_descriptor_limit};
use crate::request::Request;
use crate::shared::Handle;
use crate::worker::Worker;

/// A server whose requests any thread may take. It has one [`Worker`], behind a mutex, and a thread
/// that accepts connections. For a worker in each thread, or a [`Policy`](crate::Policy), begin
/// with [`Handle::new`]. When the server is dropped, it closes its listener and all connections.
pub struct Server {
    handle: Handle,
    worker: Mutex<Worker>,
    /// Tells the thread that accepts connections when this is dropped.
    _is_open: UnixStream,
}

impl Server {
    /// Listens on an address. Fails if the system refuses that.
    pub fn http(address: impl ToSocketAddrs) -> Result<Self, Box<dyn Error + Send + Sync>> {
        Self::from_listener(TcpListener::bind(address)?, None)
    }

    /// The server of a socket that listens already. `limits`: `None` for the defaults. Raises the
    /// limit of descriptors of the process, and lowers [`Limits::connections_max`] to what the
    /// process may have ([`connections_within`]). Fails if the system refuses a thread, a
    /// descriptor or an option of the socket.
    pub fn from_listener(
        listener: impl Into<TcpListener>,
        limits: Option<Limits>,
    ) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let listener = listener.into();
        let mut limits = limits.unwrap_or_default();
        let most = connections_within(raise_descriptor_limit(), control_group_limit(), 1, 1)?;
        limits.connections_max = limits.connections_max.min(most);
        let handle = Handle::new(1, limits)?;
        listener.set_nonblocking(true)?;
        // Connections inherit these. Without the first, the second segment of a response may wait
        // 40 ms for an acknowledgement; without the second, the kernel waits for many minutes.
        let socket = SockRef::from(&listener);
        socket.set_tcp_nodelay(true)?;
        socket.set_tcp_user_timeout(Some(handle.limits().request_timeout))?;
        let (acceptor, mut workers) = handle.start(Arc::new(()), vec![listener])?;
        let worker = Mutex::new(workers.pop().expect("there is one"));
        let (is_open, is_closed) = UnixStream::pair()?;
        let accept = move || acceptor.accept(&[is_closed.as_fd()], None);
        thread::Builder::new()
            .name("accept".to_owned())
            .spawn(move || while accept().is_ok_and(|is_closed| !is_closed[0]) {})?;
        Ok(Self { handle, worker, _is_open: is_open })
    }

    /// The next request. Waits for one. Does not fail: the result is that of tiny_http.
    ///
    /// Responses are sent while a thread is in this call: see [`Request::respond`].
    pub fn recv(&self) -> io::Result<Request> {
        let mut worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner);
        worker.recv().ok_or_else(|| io::Error::other("the server has stopped"))
    }

    /// How many connections are open.
    pub fn num_connections(&self) -> usize {
        self.handle.connections()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::TcpStream;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::test_application::get;

    #[test]
    fn a_server_that_is_dropped_does_not_listen_any_more() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = Server::from_listener(listener, None).unwrap();
        let shared = Arc::downgrade(&server.handle.0);
        drop(server);
        let begun = Instant::now();
        while shared.strong_count() > 0 {
            assert!(begun.elapsed() < Duration::from_secs(60));
            thread::yield_now();
        }
        assert!(TcpStream::connect(address).is_err());
    }

    #[test]
    fn a_server_takes_requests_and_sends_responses_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let same = listener.try_clone().unwrap();
        let server = Server::from_listener(listener, None).unwrap();
        // connections inherit both
        let socket = SockRef::from(&same);
        assert!(socket.tcp_nodelay().unwrap());
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(Duration::from_secs(30)));
        let mut client = TcpStream::connect(same.local_addr().unwrap()).unwrap();
        client.write_all(get("/a").as_bytes()).unwrap();
        assert_eq!(server.recv().unwrap().url(), "/a");
    }

    #[test]
    fn no_more_connections_are_accepted_than_the_process_may_have() {
        let limits = Limits { connections_max: usize::MAX, ..Limits::default() };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Server::from_listener(listener, Some(limits)).unwrap();
        assert!(server.handle.limits().connections_max < usize::MAX);
    }
}
