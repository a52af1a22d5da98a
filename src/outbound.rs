//! Requests to other servers: what the follower and the gateway of etcd have in common. Knows
//! neither what they ask nor what is answered.
//!
//! ureq limits the time of a whole content, which is long, and that of each read, which would limit
//! the wait for the head as well. So a [`StallGuard`] closes connections whose content stalls. And
//! ureq looks up each name on a thread of its own, in place of which there are [`Names`].

use std::io::{self, ErrorKind};
use std::mem::replace;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, NextTimeout, TcpConnector, Transport,
};
use ureq::{Agent, Error, Timeout};

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

/// The thread that looks up names, once one was asked for.
static NAMES: Names = Names::new(|name| Ok(name.to_socket_addrs()?.collect()));

/// Most addresses of a name that are tried: [`ResolvedSocketAddrs`] has room for no more.
const ADDRESSES_MAX: usize = 16;

/// Most questions that wait while a name is looked up. A start asks for all members of etcd at
/// once; otherwise the writer and the watch ask, or the follower.
const QUESTIONS_MAX: usize = 16;

type Addresses = io::Result<Vec<SocketAddr>>;

/// Looks up names on a thread, since getaddrinfo(3) takes no deadline: without a DNS that answers,
/// it takes longer than anybody waits here. It is one thread, whatever is asked: a thread for each
/// question, as ureq has it, would not end for as long, and ureq panics if the system refuses one.
#[derive(Debug)]
struct Names {
    thread: Mutex<Option<SyncSender<Question>>>,
    look_up: fn(&str) -> Addresses,
}

struct Question {
    /// HOST:PORT.
    name: String,
    asked: Instant,
    /// How long the answer is waited for.
    time: Duration,
    answer: SyncSender<Addresses>,
}

impl Names {
    const fn new(look_up: fn(&str) -> Addresses) -> Self {
        Self { thread: Mutex::new(None), look_up }
    }

    fn ask(&self, name: String, timeout: NextTimeout) -> Result<Vec<SocketAddr>, Error> {
        let (answer, answered) = sync_channel(1);
        let time = *timeout.after;
        let question = Question { name, asked: Instant::now(), time, answer };
        // Fails if the thread still looks up what was asked long ago, and others wait for that.
        let asked = self.thread()?.try_send(question);
        asked.map_err(|_| Error::Timeout(timeout.reason))?;
        let addresses = answered.recv_timeout(time).map_err(|_| Error::Timeout(timeout.reason))?;
        Ok(addresses?)
    }

    /// Starts the thread if there is none. Fails if the system refuses it.
    fn thread(&self) -> Result<SyncSender<Question>, Error> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = &*thread {
            return Ok(thread.clone());
        }
        let (sender, questions) = sync_channel::<Question>(QUESTIONS_MAX);
        let look_up = self.look_up;
        let run = move || {
            // Who has asked long ago waits no more.
            for question in questions.iter().filter(|it| it.asked.elapsed() < it.time) {
                // Fails if the time has passed meanwhile.
                let _ = question.answer.try_send(look_up(&question.name));
            }
        };
        let started = thread::Builder::new().name("names".to_owned()).spawn(run);
        started.map_err(|_| {
            let reason = "the system refuses a thread (raise the limit of processes: ulimit -u, \
                          TasksMax=)";
            Error::Other(reason.into())
        })?;
        Ok(thread.insert(sender).clone())
    }
}

/// Finds hosts. An address needs no search, and so no thread.
#[derive(Debug)]
struct HostResolver;

impl Resolver for HostResolver {
    fn resolve(
        &self,
        uri: &Uri,
        _: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        let name = uri.scheme().zip(uri.authority());
        let name = name.and_then(|(scheme, host)| DefaultResolver::host_and_port(scheme, host));
        let name = name.ok_or(Error::HostNotFound)?;
        let found = match name.parse() {
            Ok(address) => vec![address],
            Err(_) => NAMES.ask(name, timeout)?,
        };
        let mut addresses = self.empty();
        found.into_iter().take(ADDRESSES_MAX).for_each(|address| addresses.push(address));
        if addresses.is_empty() { Err(Error::HostNotFound) } else { Ok(addresses) }
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
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use ureq::Timeout::Resolve;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn wait(after: Duration) -> NextTimeout {
        NextTimeout { after: after.into(), reason: Resolve, ..NextTimeout::default() }
    }

    #[test]
    fn while_a_look_up_takes_long_others_fail_in_time_and_leave_nothing_behind() {
        static DNS: Mutex<()> = Mutex::new(());
        static LOOK_UPS: AtomicUsize = AtomicUsize::new(0);
        static NAMES: Names = Names::new(|name| {
            LOOK_UPS.fetch_add(1, SeqCst);
            drop(DNS.lock());
            Ok(vec![name.replace("host", "192.0.2.1").parse().unwrap()])
        });
        let dead = DNS.lock().unwrap();
        let ask_in_vain = || {
            let result = NAMES.ask("host:1".to_owned(), wait(Duration::from_millis(1)));
            assert!(matches!(result, Err(Error::Timeout(Resolve))), "{result:?}");
        };
        while LOOK_UPS.load(SeqCst) == 0 {
            ask_in_vain();
        }
        (0..100).for_each(|_| ask_in_vain());
        drop(dead);
        // There is room for a question once the thread has dropped the old ones.
        let begun = Instant::now();
        let addresses = loop {
            match NAMES.ask("host:2".to_owned(), wait(MINUTE)) {
                Ok(addresses) => break addresses,
                Err(_) => assert!(begun.elapsed() < MINUTE),
            }
        };
        assert_eq!(addresses, ["192.0.2.1:2".parse().unwrap()]);
        assert_eq!(LOOK_UPS.load(SeqCst), 2);
    }

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
