//! What attacks are made of, and the check that follows every one: the service lives, answers, has
//! its list unchanged, and keeps neither connections nor threads nor memory.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::common::client::assert_same_list;
use crate::common::harness::{DEADLINE, SEED, Server, figures, wait_until};

/// A whole request that changes nothing.
pub(crate) const REQUEST: &str = "GET /colors/red HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// The start of a request whose last field line goes on and on.
pub(crate) const FIELDS: &str = "GET /colors/red HTTP/1.1\r\nHost: localhost\r\nX-Slow: ";

/// The start of a request with content.
pub(crate) const CONTENT: &str =
    "POST /colors HTTP/1.1\r\nHost: localhost\r\nContent-Length: 24\r\n\r\n{";

/// Longest that a client waits who is not kept waiting: what a machine that is busy with other
/// things takes, and far less than the attacks would hold one up.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// Threads that may be there after an attack and were not before it.
const MORE_THREADS_MAX: usize = 2;

/// Most resident memory of a service that has nothing to do, in KiB: it starts with 6 MiB, and the
/// C library's allocator keeps some of what thousands of connections had for the next ones.
const RESIDENT_AT_REST: usize = 64 * 1024;

/// Most resident memory while an attack goes on that is not about the number of connections, in
/// KiB.
pub(crate) const RESIDENT_MAX: usize = 64 * 1024;

/// Most bytes that are taken of a request without end: 16 MiB are received and dropped, and the
/// kernel has buffers on both sides.
const TAKEN_BYTES_MAX: usize = 32 * 1024 * 1024;

/// A service under attack.
pub(crate) struct Target {
    pub(crate) server: Server,
    /// The list before the attack.
    list: String,
    /// How many threads there were before the attack.
    threads: usize,
    /// Keeps tests that assert short times, or take most descriptors of this process, apart from
    /// other attacks.
    access: Access,
}

/// A test's right to attack.
enum Access {
    BesideOthers { _lock: RwLockReadGuard<'static, ()> },
    Alone { _lock: RwLockWriteGuard<'static, ()> },
    Over,
}

static ATTACKS: RwLock<()> = RwLock::new(());

impl Target {
    /// A service with its own seed, ready to be attacked beside others.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::of(|| Server::durable(SEED, arguments))
    }

    /// The same, of a service that `start` starts.
    pub(crate) fn of(start: impl FnOnce() -> Server) -> Self {
        let lock = ATTACKS.read().unwrap_or_else(PoisonError::into_inner);
        Self::new(Access::BesideOthers { _lock: lock }, start)
    }

    /// The same without another attack at the time.
    pub(crate) fn alone(start: impl FnOnce() -> Server) -> Self {
        let lock = ATTACKS.write().unwrap_or_else(PoisonError::into_inner);
        Self::new(Access::Alone { _lock: lock }, start)
    }

    fn new(access: Access, start: impl FnOnce() -> Server) -> Self {
        let server = start();
        let list = server.list();
        let threads = server.proc_status("Threads");
        Self { server, list, threads, access }
    }

    /// Waits until the service has closed all connections by itself: call it while the attackers
    /// still hold theirs.
    #[track_caller]
    pub(crate) fn wait_until_all_are_closed(&self) {
        wait_until("all connections are closed", || self.server.connections() == 0);
    }

    /// Checks how much memory was resident at the most.
    #[track_caller]
    pub(crate) fn check_peak(&self) {
        let peak = self.server.proc_status("VmHWM");
        assert!(peak < RESIDENT_MAX, "{peak} KiB");
    }

    /// Waits until there are about as many threads as before the attack.
    #[track_caller]
    pub(crate) fn wait_for_few_threads(&self) {
        let has_few = || self.server.proc_status("Threads") <= self.threads + MORE_THREADS_MAX;
        wait_until("threads end", has_few);
    }

    /// Checks that the service is as it was before; the attack's connections must have been closed,
    /// or be about to be.
    #[track_caller]
    pub(crate) fn check_recovery(mut self) {
        let (peak, threads) =
            (self.server.proc_status("VmHWM") / 1024, self.server.proc_status("Threads"));
        figures(&format!("peak {peak} MiB, {threads} threads at the end"));
        let begun = Instant::now();
        assert_same_list(&self.server.list(), &self.list);
        assert!(begun.elapsed() < SOON, "GET /colors took {:?}", begun.elapsed());
        self.wait_until_all_are_closed();
        // all that is left is to wait
        self.access = Access::Over;
        self.wait_for_few_threads();
        wait_until("memory is freed", || self.server.proc_status("VmRSS") <= RESIDENT_AT_REST);
        let log = self.server.log();
        assert!(!log.contains("ERROR") && !log.contains("panicked"), "{log}");
    }

    /// Sends requests, each on a connection of its own, one after the other; every one is answered.
    #[track_caller]
    pub(crate) fn time(&self, requests: usize) -> Times {
        Times::of((0..requests).map(|_| time_one(&self.server)).collect())
    }

    /// Connections, as many as asked for if there are descriptors for them.
    pub(crate) fn connections(&self, count: usize) -> Vec<TcpStream> {
        (0..affordable(count))
            .map(|_| TcpStream::connect(self.server.address).expect("the service listens"))
            .collect()
    }
}

/// A new connection with small buffers, so that the service soon waits for this side to read.
pub(crate) fn narrow(address: SocketAddr) -> TcpStream {
    connect_with_buffers(address, 4096)
}

/// A new connection with buffers of about so many bytes on this side.
pub(crate) fn connect_with_buffers(address: SocketAddr, bytes: usize) -> TcpStream {
    // not for the services that other tests start meanwhile
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
    set_socket_recv_buffer_size(&socket, bytes).unwrap();
    set_socket_send_buffer_size(&socket, bytes).unwrap();
    rustix::net::connect(&socket, &address).expect("the service listens");
    socket.into()
}

/// How long one request takes, from connecting to the last byte.
#[track_caller]
fn time_one(server: &Server) -> Duration {
    let begun = Instant::now();
    server.ask("GET", "/colors/red", "").expect_content(r##"{"name":"red","value":"#ff0000"}"##);
    begun.elapsed()
}

/// How long requests took, in ascending order.
pub(crate) struct Times(Vec<Duration>);

impl Times {
    fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let times = Self(times);
        let (count, worst) = (times.0.len(), times.worst());
        figures(&format!("{count} requests, worst {worst:?}"));
        times
    }

    pub(crate) fn worst(&self) -> Duration {
        *self.0.last().expect("there was a request")
    }
}

/// So many connections, or fewer if this process may not have the descriptors; raises its limit as
/// far as it goes.
pub(crate) fn affordable(count: usize) -> usize {
    let hard = getrlimit(Resource::Nofile).maximum;
    let _ = setrlimit(Resource::Nofile, Rlimit { current: hard, maximum: hard });
    let descriptors = getrlimit(Resource::Nofile)
        .current
        .map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    // half of them are for the tests that run beside this one
    count.min(descriptors / 2)
}

/// An attack that goes on in a thread of its own until this is dropped.
pub(crate) struct Attack {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Attack {
    pub(crate) fn repeat(mut step: impl FnMut() + Send + 'static) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let over = Arc::clone(&over);
            move || {
                while !over.load(Relaxed) {
                    step();
                }
            }
        });
        Self { over, thread: Some(thread) }
    }

    /// Connections that send a byte each at every beat; one that is closed is replaced. All have
    /// begun a request when this returns.
    pub(crate) fn drip(address: SocketAddr, count: usize, beat: Duration) -> Self {
        let connect = move || {
            let mut stream = TcpStream::connect(address).expect("the service listens");
            stream.write_all(FIELDS.as_bytes()).expect("a new connection has room");
            stream.set_nonblocking(true).expect("sockets can be set not to block");
            stream
        };
        let mut streams: Vec<TcpStream> = (0..affordable(count)).map(|_| connect()).collect();
        Self::repeat(move || {
            thread::park_timeout(beat);
            for stream in &mut streams {
                if stream.write(b"x").is_err() {
                    *stream = connect();
                }
            }
        })
    }
}

impl Drop for Attack {
    fn drop(&mut self) {
        self.over.store(true, Relaxed);
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) && !thread::panicking() {
            panic!("a connection was refused");
        }
    }
}

/// Sends `start`, then a byte of `drip` at every beat until there are none or the service answers
/// or closes; gives its answer, and when it came.
pub(crate) fn drip(
    address: SocketAddr,
    start: &str,
    drip: &[u8],
    beat: Duration,
) -> (String, Duration) {
    let begun = Instant::now();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(beat)).unwrap();
    stream.write_all(start.as_bytes()).unwrap();
    let mut drip = drip.iter();
    let mut received = Vec::new();
    while begun.elapsed() < DEADLINE {
        match stream.read_to_end(&mut received) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if let Some(byte) = drip.next().filter(|_| received.is_empty()) {
                    // What came of it shows when reading.
                    let _ = stream.write(&[*byte]);
                }
            }
            _ => return (String::from_utf8(received).unwrap(), begun.elapsed()),
        }
    }
    panic!("neither answered nor closed");
}

/// Sends `start` and then `again` over and over as fast as it goes, until the connection is gone.
pub(crate) fn pour(address: SocketAddr, start: &str, again: &str) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_write_timeout(Some(DEADLINE)).unwrap();
    stream.write_all(start.as_bytes()).unwrap();
    let block = again.repeat(64 * 1024 / again.len());
    let mut taken = start.len();
    while taken < TAKEN_BYTES_MAX {
        match stream.write(block.as_bytes()) {
            Ok(written) => taken += written,
            Err(error)
                if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) =>
            {
                return;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => panic!("the service neither reads nor closes: {error}"),
        }
    }
    panic!("the service still reads after {taken} bytes of {again:?}");
}
