//! Requests to other servers: what the follower and the gateway of etcd have in common.
//!
//! ureq limits the time of a whole content, which is long, and that of each read, which would limit
//! the wait for the head as well. So a [`StallGuard`] closes connections whose content stalls. And
//! ureq looks up each name on a thread of its own, in place of which there is a [`HostResolver`].

use std::io::{self, ErrorKind};
use std::mem::replace;
use std::time::{Duration, Instant};

use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, NextTimeout, TcpConnector, Transport,
};
use ureq::{Agent, Error, Timeout};

use crate::host_resolver::HostResolver;

/// Length in bytes of the pieces of content that a server has to send in time.
const PIECE_BYTES: usize = 64 * 1024;

/// The kind of the error if a server closes a new connection without a byte of an answer: etcd does
/// so at a port where it wants TLS. read(2) gives no error of this kind.
pub(crate) const UNANSWERED: ErrorKind = ErrorKind::ConnectionAborted;

/// Makes an agent, which keeps connections. A request overrides times of the agent if it has its
/// own.
///
/// `step`: the longest time for each of these: to find the host, to connect, to send the head, to
/// send the content, and to get the head of the answer. `piece`: the longest time for each
/// [`PIECE_BYTES`] of the answer's content, and for a content that is shorter.
pub(crate) fn agent(step: Duration, piece: Duration) -> Agent {
    let config = Agent::config_builder()
        // Ignores the variables of the environment for proxies.
        .proxy(None)
        .http_status_as_error(false)
        // Follows no redirect: it is an answer like any other.
        .max_redirects(0)
        .max_redirects_will_error(false)
        .user_agent(concat!("colors/", env!("CARGO_PKG_VERSION")))
        .accept("application/json")
        .timeout_resolve(Some(step))
        .timeout_connect(Some(step))
        .timeout_send_request(Some(step))
        .timeout_send_body(Some(step))
        .timeout_recv_response(Some(step))
        .build();
    let connector = TcpConnector::default().chain(StallGuard { piece });
    Agent::with_parts(config, connector, HostResolver)
}

/// Whether no host has the name that was asked for.
pub(crate) fn is_unknown_name(error: &io::Error) -> bool {
    // What Rust's standard library makes of getaddrinfo(3).
    error.to_string().starts_with("failed to lookup address")
}

/// Comes after the connector that opens connections, and closes those that stall.
#[derive(Debug)]
struct StallGuard {
    piece: Duration,
}

impl<T: Transport> Connector<T> for StallGuard {
    type Out = Guarded<T>;

    fn connect(
        &self,
        _: &ConnectionDetails<'_>,
        opened: Option<T>,
    ) -> Result<Option<Self::Out>, Error> {
        let guard = |transport| Guarded {
            transport,
            piece: self.piece,
            is_new: true,
            begun: None,
            received: 0,
        };
        Ok(opened.map(guard))
    }
}

/// A connection.
#[derive(Debug)]
struct Guarded<T> {
    transport: T,
    /// Longest time for a piece of content.
    piece: Duration,
    /// Whether no answer was awaited yet.
    is_new: bool,
    /// When the current piece of content has begun; `None` before the content.
    begun: Option<Instant>,
    /// Bytes of the current piece.
    received: usize,
}

impl<T: Transport> Guarded<T> {
    /// Tells a server that wants TLS by what comes first.
    fn await_head(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        let result = self.transport.await_input(timeout);
        if !replace(&mut self.is_new, false) {
            return result;
        }
        // RFC 8446 §5.1: type alert, then a version of which the first byte is always 3.
        if self.transport.buffers().input().starts_with(&[21, 3]) {
            return Err(Error::TlsRequired);
        }
        let is_closed = match &result {
            Ok(has_input) => !has_input,
            Err(Error::Io(error)) => error.kind() == ErrorKind::ConnectionReset,
            Err(_) => false,
        };
        if is_closed {
            let text = "it closes the connection without an answer";
            return Err(io::Error::new(UNANSWERED, text).into());
        }
        result
    }
}

impl<T: Transport> Transport for Guarded<T> {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self.transport.buffers()
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.transport.transmit_output(amount, timeout)
    }

    fn await_input(&mut self, mut timeout: NextTimeout) -> Result<bool, Error> {
        if timeout.reason != Timeout::RecvBody {
            self.begun = None;
            return self.await_head(timeout);
        }
        if self.begun.is_none() || self.received >= PIECE_BYTES {
            self.begun = Some(Instant::now());
            self.received = 0;
        }
        let time = self.begun.map_or(Duration::ZERO, |begun| begun.elapsed());
        let left = self.piece.checked_sub(time).ok_or(Error::Timeout(Timeout::PerRead))?;
        timeout.per_read = Some(left.into());
        let before = self.transport.buffers().input().len();
        let result = self.transport.await_input(timeout);
        self.received += self.transport.buffers().input().len() - before;
        result
    }

    fn is_open(&mut self) -> bool {
        self.transport.is_open()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn content_that_stalls_is_given_up_before_the_time_for_all_of_it_is_over() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{").unwrap();
            // until the client closes the connection
            stream.set_read_timeout(Some(MINUTE)).unwrap();
            while stream.read(&mut [0; 512]).is_ok_and(|bytes| bytes > 0) {}
        });
        let request = agent(MINUTE, Duration::from_millis(50)).get(url).config();
        let request = request.timeout_recv_body(Some(60 * MINUTE)).build();
        let mut response = request.call().unwrap();
        let error = response.body_mut().read_to_vec().unwrap_err();
        assert!(matches!(error, Error::Timeout(_)), "{error}");
    }
}
