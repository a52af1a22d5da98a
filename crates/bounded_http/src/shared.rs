//! What the acceptor, the workers and the requests share.
//!
//! These are all the locks. Nothing is sent, and nothing of the application is dropped, under the
//! first two.
//!
//! - `Inbox::mail`: what other threads have posted.
//! - `Slot::state`: what became of the request of a connection.
//! - [`Shared::making_room`]: one worker at a time closes connections to make room. It is held
//!   while connections are refused and closed, and so while the [`Policy`] is asked; the other
//!   workers go on without it.
//! - `Server::worker`: held by the thread that receives. A program with its own [`Worker`]s has
//!   none.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use socket2::SockRef;

use super::accept::Acceptor;
use super::inbox::{Inbox, Mail};
use super::limits::{Limits, Quota, TIME_MAX, spare_connections};
use super::policy::Policy;
use super::response::keep_alive;
use super::slot::Slot;
use super::worker::Worker;

/// What the server is doing, as far as clients notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nothing is special.
    Serving,
    /// There are more connections than [`Limits::connections_max`]. Each response closes its
    /// connection, and connections that have stalled are closed to make room.
    AboveLimit,
    /// [`Handle::stop`] or [`Acceptor::stop`] was called. Each response closes its connection.
    /// There is no way back.
    Stopping,
}

pub(super) struct Shared {
    pub(super) limits: Limits,
    /// See [`keep_alive`].
    pub(super) keep_alive: String,
    /// The workers and the acceptor own it. Here it is weak, since it may itself own a [`Handle`].
    policy: OnceLock<Weak<dyn Policy>>,
    phase: AtomicU8,
    /// [`Acceptor::stop`] is over: a worker ends once it has no connection.
    pub(super) is_over: AtomicBool,
    /// Of the next connection, from 1 on.
    pub(super) next_id: AtomicU64,
    /// By the number of the worker.
    pub(super) workers: Box<[WorkerShared]>,
    /// Bytes counted against [`Limits::buffers_max`].
    pub(super) memory: AtomicUsize,
    /// Bytes of the shared contents of which some client has a part ([`Reading`]), each counted
    /// once.
    ///
    /// [`Reading`]: super::limits::Reading
    pub(super) read_bytes: AtomicUsize,
    /// Held by the worker that closes connections to make room, so that no two close one each for
    /// the same client.
    pub(super) making_room: Mutex<()>,
}

/// One worker's part, on cache lines of its own: processors fetch these in pairs of 64 bytes.
#[repr(align(128))]
pub(super) struct WorkerShared {
    /// Open connections, those in the inbox included, and closed ones whose request somebody still
    /// has: one for each [`Quota`].
    pub(super) open: AtomicUsize,
    pub(super) inbox: Inbox,
}

impl Shared {
    /// `None` before the start, and once workers and acceptor are gone.
    pub(super) fn policy(&self) -> Option<Arc<dyn Policy>> {
        self.policy.get()?.upgrade()
    }

    pub(super) fn phase(&self) -> Phase {
        match self.phase.load(Relaxed) {
            0 => Phase::Serving,
            1 => Phase::AboveLimit,
            _ => Phase::Stopping,
        }
    }

    /// Notes whether there are more connections than the limit. Nothing follows a stop.
    pub(super) fn note_excess(&self, is_above_limit: bool) {
        let (serving, above_limit) = (Phase::Serving as u8, Phase::AboveLimit as u8);
        let (before, after) =
            if is_above_limit { (serving, above_limit) } else { (above_limit, serving) };
        if self.phase.compare_exchange(before, after, Relaxed, Relaxed).is_ok() {
            self.wake_all();
        }
    }

    /// Wakes the workers, too: the deadlines depend on the phase.
    pub(super) fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Relaxed);
        self.wake_all();
    }

    pub(super) fn wake_all(&self) {
        self.workers.iter().for_each(|worker| worker.inbox.wake());
    }

    pub(super) fn connections(&self) -> usize {
        self.workers.iter().map(|worker| worker.open.load(Relaxed)).sum()
    }

    /// How many connections there are above the limit: clients who wait until as many others are
    /// closed.
    pub(super) fn excess(&self) -> usize {
        self.connections().saturating_sub(self.limits.connections_max)
    }

    /// Whether no further connection is accepted.
    pub(super) fn accepts_none(&self) -> bool {
        self.excess() >= spare_connections(self.limits.connections_max)
    }

    /// The worker for the next connection: the one that has the fewest. `None` if all are gone.
    pub(super) fn next_worker(&self) -> Option<usize> {
        let workers = self.workers.iter().enumerate();
        let workers = workers.filter(|(_, worker)| !worker.inbox.is_closed());
        let next = workers.min_by_key(|(_, worker)| worker.open.load(Relaxed))?;
        Some(next.0)
    }

    /// Passes a new connection to a worker. If all are gone, it is closed. `listener`: the number
    /// of the one that has accepted it.
    pub(super) fn pass_on(
        self: &Arc<Self>,
        socket: OwnedFd,
        peer: Option<SocketAddr>,
        listener: usize,
    ) {
        let Some(worker) = self.next_worker() else { return };
        let slot = Slot::new(Quota::new(Arc::clone(self), worker), peer, listener);
        self.workers[worker].inbox.post_all([Mail::NewConnection(socket, slot)]);
    }
}

/// A server of several threads, and how the rest of the program reaches it. A clone is a handle of
/// the same server.
#[derive(Clone)]
pub struct Handle(pub(super) Arc<Shared>);

impl Handle {
    /// A server with this number of workers, which has not started. Fails if the system refuses an
    /// eventfd for each worker.
    pub fn new(workers: usize, mut limits: Limits) -> io::Result<Self> {
        limits.request_timeout = limits.request_timeout.min(TIME_MAX);
        limits.keep_alive = limits.keep_alive.min(TIME_MAX);
        let worker = |_| Ok(WorkerShared { open: AtomicUsize::new(0), inbox: Inbox::new()? });
        Ok(Self(Arc::new(Shared {
            // Keep-Alive has whole seconds. Some clients take 0 for no limit.
            keep_alive: keep_alive(limits.keep_alive.as_secs().max(1)),
            limits,
            policy: OnceLock::new(),
            phase: AtomicU8::new(Phase::Serving as u8),
            is_over: AtomicBool::new(false),
            next_id: AtomicU64::new(1),
            workers: (0..workers).map(worker).collect::<io::Result<_>>()?,
            memory: AtomicUsize::new(0),
            read_bytes: AtomicUsize::new(0),
            making_room: Mutex::default(),
        })))
    }

    /// Starts the server: gives the acceptor for these listening sockets, and the workers, of which
    /// each is for a thread of its own. `policy`: `Arc::new(())` has all defaults.
    ///
    /// The sockets are of TCP or unix sockets, in any number, and have to be nonblocking.
    /// Connections inherit their options, so set `TCP_NODELAY` before: without it, a response may
    /// wait 40 ms for an acknowledgement. `TCP_USER_TIMEOUT`, as long as
    /// [`Limits::request_timeout`], has the kernel give up clients that vanish while it sends to
    /// them; by default it waits for many minutes. [`Server`](super::Server) sets both.
    ///
    /// # Errors
    ///
    /// If the system refuses an epoll instance for each worker. The handle is of no use then.
    ///
    /// # Panics
    ///
    /// If it is called again, also after an error.
    pub fn start<L: AsFd>(
        &self,
        policy: Arc<dyn Policy>,
        listeners: Vec<L>,
    ) -> io::Result<(Acceptor<L>, Vec<Worker>)> {
        let is_first = self.0.policy.set(Arc::downgrade(&policy)).is_ok();
        assert!(is_first, "the server has started already");
        let worker = |number| Worker::new(Arc::clone(&self.0), Arc::clone(&policy), number);
        let workers = (0..self.0.workers.len()).map(worker).collect::<io::Result<_>>()?;
        Ok((Acceptor::new(Arc::clone(&self.0), policy, listeners), workers))
    }

    /// What clients may use, as given to [`Handle::new`].
    pub fn limits(&self) -> &Limits {
        &self.0.limits
    }

    /// What the server is doing.
    pub fn phase(&self) -> Phase {
        self.0.phase()
    }

    /// How many connections are open, or have a request that somebody still has.
    pub fn connections(&self) -> usize {
        self.0.connections()
    }

    /// Serves a connection that was accepted elsewhere, also above [`Limits::connections_max`]. It
    /// counts as one of the first listener. Once all workers are dropped, it is closed.
    pub fn adopt(&self, socket: OwnedFd) {
        let peer = SockRef::from(&socket).peer_addr().ok().and_then(|peer| peer.as_socket());
        self.0.pass_on(socket, peer, 0);
    }

    /// Begins a stop: from now on, each response closes its connection, and idle ones are closed
    /// after 1 s. Connections are still accepted, and workers go on until [`Acceptor::stop`].
    pub fn stop(&self) {
        self.0.set_phase(Phase::Stopping);
    }

    /// Has [`Worker::wait`] of this worker return, now or at its next call: to tell its thread
    /// something, such as to call [`Worker::wake`].
    ///
    /// # Panics
    ///
    /// If there is no worker of this number.
    pub fn notify(&self, worker: usize) {
        self.0.workers[worker].inbox.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::test_application::{LIMITS, get};

    #[test]
    fn the_worker_with_the_fewest_connections_is_next() {
        let shared = &Handle::new(2, LIMITS).unwrap().0;
        let mut open = Vec::new();
        for expected in [0, 1, 0, 1, 0, 1, 0, 1, 0, 1] {
            assert_eq!((shared.excess(), shared.accepts_none()), (0, false));
            assert_eq!(shared.next_worker(), Some(expected));
            open.push(Quota::new(Arc::clone(shared), expected));
        }
        // an eighth of the limit, and at least one, may be above it
        open.push(Quota::new(Arc::clone(shared), 0));
        assert_eq!((shared.excess(), shared.accepts_none()), (1, true));
        open.remove(1);
        assert_eq!((shared.next_worker(), shared.excess()), (Some(1), 0));
        assert!(!shared.accepts_none());
    }

    #[test]
    fn a_connection_that_is_adopted_has_the_address_of_its_peer() {
        let server = Handle::new(1, LIMITS).unwrap();
        let (_, mut workers) = server.start(Arc::new(()), Vec::<TcpListener>::new()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.write_all(get("/away").as_bytes()).unwrap();
        server.adopt(listener.accept().unwrap().0.into());
        let request = workers[0].recv().unwrap();
        assert_eq!(request.remote_addr(), Some(&client.local_addr().unwrap()));
    }
}
