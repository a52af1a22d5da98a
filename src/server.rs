//! Sockets and threads: the accept loop, on the main thread, and the workers, to which it passes
//! connections.
//!
//! # Threads
//!
//! - **main** reads the tokens and opens the list. Then it accepts connections, takes signals,
//!   reads tokens again and sends heartbeats. It waits in poll(2), at the start for FILE, etcd or
//!   the service that is followed, and at the stop for connections and the writer.
//! - **The workers** receive, answer and send. Their number is `--workers`, or one for each
//!   processor but one, from 1 to 256. They wait in epoll_wait(2). The processor that is left is
//!   for the kernel's network, the writer, long answers, and the other programs of the host: a
//!   worker never sleeps under full load, so one that shares its processor is set aside for some
//!   milliseconds at a time, and all its connections wait.
//! - **One more** makes the answers that take long, one after the other. It is the one that no
//!   heartbeat depends on: many long answers are no fault.
//! - **The writer**, with `--data`, saves changes and closes the storage. It waits for the disk,
//!   for locks of other programs or for etcd, and for its channel.
//! - **The watch**, with a list in etcd, wakes the writer when another service has changed the
//!   list. It waits for etcd.
//! - **The follower**, with `--follow`, asks the other service, and submits its list. It waits for
//!   that service and for the writer.
//! - **names**, once a host has to be found by its name, looks up names one after the other. It
//!   waits for DNS; who asks waits no longer than for any other step (`names`).
//! - **log** writes log lines. It waits for its channel and for standard error.
//!
//! All but main, names and log are threads of one pool. Those that run for good have names of their
//! own, such as worker-0. A stop has one more, for a tenth of a second.
//!
//! A worker waits for no client, no disk, and no other thread, except for the moment that a lock is
//! held. So whatever one client does, the others of its worker are served. These answers take long:
//! the first read of a long list after a change, a change of the whole list, a change with more
//! than 16 KiB of content, and, without `--data`, a change with a condition on a long list. However
//! many clients there are, a pass of an event loop ends after some milliseconds ([`worker`]), and
//! the next pass asks epoll who else is ready. Contents of 64 KiB and more are sent from the run
//! queue, after all that is short.
//!
//! # Who wakes whom
//!
//! - The accept loop posts each connection to the `Inbox` of a worker, whose eventfd wakes the
//!   worker. After a change of the `Phase` it wakes all workers.
//! - A change goes to the writer through a channel. The outcome comes back as `Mail::Outcome`, and
//!   what the pool has answered as `Mail::FromPool`.
//! - The thread that publishes a new version of the list calls `Watches::mark` of each worker with
//!   the step to it. A worker is woken if one of its connections may wait for what that changes.
//! - The watch wakes the writer by `Store::poll`.
//! - Signals write to streams that the accept loop polls.
//!
//! # Locks
//!
//! Each lock is held for a moment: nothing is sent, saved or logged under it, and no whole list is
//! made, hashed or freed. The exceptions are these. [`Shared::making_room`] is held while
//! connections are answered and closed, but no thread waits for it. The locks of
//! `ColorList::envelope` and `Representation::tag`, and `SharedList::latest`, are held while a list
//! is made or hashed. The crates have locks of their own: around the queue of the pool, and around
//! the log, whose lines go to a channel.
//!
//! - [`Shared::making_room`]: only one worker at a time closes connections to make room; the others
//!   go on without it. The locks marked with * may be taken inside it.
//! - `Watches::entries` *: which connections of a worker wait for a change, and what has changed.
//! - `SharedList::current` *: the current version of the list; locked to clone it, or to edit it in
//!   memory.
//! - `SharedList::latest`: the envelope that was made last. Held while one is made, on the thread
//!   for answers that take long alone.
//! - `Tokens::accepted` *: the hashes and the names of the tokens.
//! - `Limiter::rate` *: how many lines of one kind were logged in this second.
//! - `ColorList::envelope` * and `Representation::tag` *: each is made once. A worker makes only
//!   those of short lists (`SharedList::ready_envelope`).
//! - `Inbox::mail`: what other threads have posted.
//! - `Names::thread`: the channel to names.
//! - `StorageStatus::current`: whether saving works.
//! - `FollowStatus::answers` *: how the service that is followed answers.
//!
//! # Deadlines
//!
//! `Connection::deadline` says when a connection is overdue. Its worker looks at all deadlines when
//! the first one has passed, but mostly not within 100 ms of its last look. So a deadline may be
//! missed by 100 ms, and by 250 ms more while the worker is overloaded. A connection that is
//! overdue gets `Event::Overdue`. What a connection waits for, for how long, and what happens then:
//!
//! - Its first request: `--request-timeout`, at most 1 s during a stop. Closed.
//! - The rest of a request: `--request-timeout` since its first byte, or since the response before
//!   it was sent. 408.
//! - Another request: `--keep-alive` and 1 s, at most 1 s during a stop. Closed.
//! - A change: what the request prefers, at most 300 s; ends at once in a stop. 304 without one.
//! - The client to read: `--request-timeout` since the socket last took bytes. Closed.
//! - The client to close: 2 s since it last sent something, and at most `--request-timeout`; 2 s in
//!   all during a stop. Closed.
//! - An answer of the writer or the pool: no deadline (`State::AwaitingAnswer`).
//!
//! The deadlines of the follower are the constants of `follower`.
//!
//! Above the connection limit (`Phase::AboveLimit`), workers look every 20 ms. The connections that
//! have stalled longest, at least for half a second, get `Event::Evicted`. The more memory old
//! lists and colors take, the less time has a client to read one (`Reading::deadline`); workers
//! look every 20 ms then, too.

mod accept;
mod connection;
mod inbox;
mod limits;
mod listen;
mod loop_context;
mod output;
mod policy;
mod response;
#[cfg(fuzzing)]
#[path = "../fuzz/seam/stepped.rs"]
pub(crate) mod stepped;
mod worker;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};

use threadpool::ThreadPool;

pub(crate) use accept::Acceptor;
use inbox::Inbox;
use limits::spare_connections;
pub(crate) use limits::{
    Limits, buffers_max, connections_max, control_group_limit, raise_descriptor_limit,
};
pub(crate) use listen::{Listener, check_endpoint, inherited, listen};
pub(crate) use policy::{Arrival, Closing, Policy};
pub(crate) use response::{ServerContent, ServerResponse, SharedContent, push};
use worker::Worker;

use crate::pool;
use crate::service::Service;

/// What the server is doing, as far as clients notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Serving,
    /// There are more connections than [`Limits::connections_max`]: each response closes its
    /// connection, and connections that have stalled are closed to make room.
    AboveLimit,
    /// Each response closes its connection.
    Stopping,
}

struct Shared {
    limits: Limits,
    service: OnceLock<Arc<Service>>,
    phase: AtomicU8,
    /// The acceptor has ended, and so do the workers.
    is_over: AtomicBool,
    /// By the number of the worker.
    workers: Box<[WorkerShared]>,
    /// Bytes counted against [`Limits::buffers_max`].
    memory: AtomicUsize,
    /// Bytes of the shared contents of which clients have a part, each counted once.
    read_bytes: AtomicUsize,
    /// Held by the worker that closes connections to make room, so that no two close one each for
    /// the same client.
    making_room: Mutex<()>,
}

/// One worker's part, on cache lines of its own: processors fetch these in pairs of 64 bytes.
#[repr(align(128))]
struct WorkerShared {
    /// Open connections, those in the inbox included. The acceptor adds them, and the worker
    /// subtracts them.
    open: AtomicUsize,
    inbox: Inbox,
}

impl Shared {
    fn service(&self) -> &Arc<Service> {
        self.service.get().expect("it is set before there are workers")
    }

    fn policy(&self) -> &dyn Policy {
        &**self.service()
    }

    fn phase(&self) -> Phase {
        match self.phase.load(Relaxed) {
            0 => Phase::Serving,
            1 => Phase::AboveLimit,
            _ => Phase::Stopping,
        }
    }

    /// Wakes the workers, too: the deadlines depend on the phase.
    fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Relaxed);
        self.wake_all();
    }

    fn wake_all(&self) {
        self.workers.iter().for_each(|worker| worker.inbox.wake());
    }

    fn connections(&self) -> usize {
        self.workers.iter().map(|worker| worker.open.load(Relaxed)).sum()
    }

    /// How many connections there are above the limit: clients who wait until as many others are
    /// closed.
    fn excess(&self) -> usize {
        self.connections().saturating_sub(self.limits.connections_max)
    }

    /// Whether no further connection is accepted.
    fn accepts_none(&self) -> bool {
        self.excess() >= spare_connections(self.limits.connections_max)
    }

    /// The worker for the next connection: the one that has the fewest.
    fn next_worker(&self) -> usize {
        let connections = self.workers.iter().map(|worker| worker.open.load(Relaxed)).enumerate();
        connections.min_by_key(|(_, connections)| *connections).expect("there is a worker").0
    }
}

/// How the rest of the program reaches the server. A clone leads to the same.
#[derive(Clone)]
pub(crate) struct Handle(Arc<Shared>);

impl Handle {
    /// A server that has not started. Fails if the system refuses an eventfd for each worker.
    pub(crate) fn new(workers: usize, limits: Limits) -> io::Result<Self> {
        let worker = |_| Ok(WorkerShared { open: AtomicUsize::new(0), inbox: Inbox::new()? });
        Ok(Self(Arc::new(Shared {
            limits,
            service: OnceLock::new(),
            phase: AtomicU8::new(Phase::Serving as u8),
            is_over: AtomicBool::new(false),
            workers: (0..workers).map(worker).collect::<io::Result<_>>()?,
            memory: AtomicUsize::new(0),
            read_bytes: AtomicUsize::new(0),
            making_room: Mutex::default(),
        })))
    }

    /// Starts the workers on threads of the pool, and gives the acceptor for these listening sockets.
    pub(crate) fn start(
        &self,
        service: Service,
        listeners: Vec<Listener>,
        pool: &ThreadPool,
    ) -> io::Result<Acceptor> {
        let shared = self.with(service);
        for number in 0..shared.workers.len() {
            let worker = Worker::new(Arc::clone(&shared), number, pool.clone())?;
            pool::run_named(pool, &format!("worker-{number}"), || worker.run());
        }
        Ok(Acceptor::new(shared, listeners))
    }

    /// Has this service answer the requests.
    fn with(&self, service: Service) -> Arc<Shared> {
        assert!(self.0.service.set(Arc::new(service)).is_ok(), "it has started already");
        Arc::clone(&self.0)
    }

    pub(crate) fn service(&self) -> &Service {
        self.0.service()
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.0.limits
    }

    pub(crate) fn phase(&self) -> Phase {
        self.0.phase()
    }

    /// How many connections are open.
    pub(crate) fn connections(&self) -> usize {
        self.0.connections()
    }

    #[cfg(test)]
    /// Has each response close its connection from now on. [`Acceptor::stop`] begins with this.
    pub(crate) fn stop(&self) {
        self.0.set_phase(Phase::Stopping);
    }

    /// Has [`Worker::wait`] of this worker return, now or at its next call.
    pub(crate) fn notify(&self, worker: usize) {
        self.0.workers[worker].inbox.wake();
    }
}
