//! The shape of tiny_http's `Server`.

use std::error::Error;
use std::io;
use std::net::{TcpListener, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use socket2::SockRef;

use crate::limits::Limits;
use crate::request::Request;
use crate::shared::Handle;
use crate::worker::Worker;

/// A server whose requests any thread may take. It has one [`Worker`], behind a mutex, and a thread
/// that accepts connections. Whoever wants a worker for each thread begins with [`Handle::new`].
pub struct Server {
    handle: Handle,
    worker: Mutex<Worker>,
}

impl Server {
    /// Listens on an address. Fails if the system refuses that.
    pub fn http(address: impl ToSocketAddrs) -> Result<Self, Box<dyn Error + Send + Sync>> {
        Self::from_listener(TcpListener::bind(address)?, None)
    }

    /// The server of a socket that listens already. `limits`: `None` for the default ones. Fails if
    /// the system refuses a thread, a descriptor or an option of the socket.
    pub fn from_listener(
        listener: impl Into<TcpListener>,
        limits: Option<Limits>,
    ) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let listener = listener.into();
        let limits = limits.unwrap_or_default();
        listener.set_nonblocking(true)?;
        // Connections inherit these. Without the first, the second segment of a response may wait
        // 40 ms for an acknowledgement; without the second, the kernel waits for many minutes.
        let socket = SockRef::from(&listener);
        socket.set_tcp_nodelay(true)?;
        socket.set_tcp_user_timeout(Some(limits.request_timeout))?;
        let handle = Handle::new(1, limits)?;
        let (acceptor, mut workers) = handle.start(Arc::new(()), vec![listener])?;
        let worker = Mutex::new(workers.pop().expect("there is one"));
        thread::Builder::new()
            .name("accept".to_owned())
            .spawn(move || while acceptor.accept(&[], None).is_ok() {})?;
        Ok(Self { handle, worker })
    }

    /// The next request. Waits for one.
    pub fn recv(&self) -> io::Result<Request> {
        let mut worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner);
        worker.recv().ok_or_else(|| io::Error::other("the server has stopped"))
    }

    /// How many connections are open.
    pub fn num_connections(&self) -> usize {
        self.handle.connections()
    }
}
