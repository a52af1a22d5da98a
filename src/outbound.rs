//! Requests to other servers: what the follower and the gateway of etcd have in common. Knows
//! neither what they ask nor what is answered.
//!
//! ureq limits the time of a whole content, which is long, and that of each read, which would limit
//! the wait for the head as well. So a [`StallGuard`] closes connections whose content stalls.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::time;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, NextTimeout, TcpConnector, Transport,
};
use ureq::{Agent, Error, Timeout};

/// Length in bytes of the pieces of content that a server has to send in time.
const PIECE_BYTES: usize = 64 * 1024;

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
    Agent::with_parts(config, connector, AddressResolver(DefaultResolver::default()))
}

/// Whether no host has the name that was asked for.
pub(crate) fn is_unknown_name(error: &io::Error) -> bool {
    // What Rust's standard library makes of getaddrinfo(3).
    error.to_string().starts_with("failed to lookup address")
}

/// Finds hosts by name. ureq starts a thread for that if there is a time-out. An address needs no
/// search, and so no thread.
#[derive(Debug)]
struct AddressResolver(DefaultResolver);

impl Resolver for AddressResolver {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        mut timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        let is_address = |authority: &str| authority.parse::<SocketAddr>().is_ok();
        if uri.authority().is_some_and(|authority| is_address(authority.as_str())) {
            timeout.after = time::Duration::NotHappening;
        }
        self.0.resolve(uri, config, timeout)
    }
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
        let guard = |transport| Guarded { transport, piece: self.piece, begun: None, received: 0 };
        Ok(opened.map(guard))
    }
}

/// A connection.
#[derive(Debug)]
struct Guarded<T> {
    transport: T,
    /// Longest time for a piece of content.
    piece: Duration,
    /// When the current piece of content has begun; `None` before the content.
    begun: Option<Instant>,
    /// Bytes of the current piece.
    received: usize,
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
            return self.transport.await_input(timeout);
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

    #[test]
    fn content_that_stalls_is_given_up_before_the_time_for_all_of_it_is_over() {
        let minute = Duration::from_secs(60);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{").unwrap();
            // until the client closes the connection
            stream.set_read_timeout(Some(minute)).unwrap();
            while stream.read(&mut [0; 512]).is_ok_and(|bytes| bytes > 0) {}
        });
        let request = agent(minute, Duration::from_millis(50)).get(url).config();
        let request = request.timeout_recv_body(Some(60 * minute)).build();
        let mut response = request.call().unwrap();
        let error = response.body_mut().read_to_vec().unwrap_err();
        assert!(matches!(error, Error::Timeout(_)), "{error}");
    }
}
