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
mod watches;
mod worker;

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

pub(crate) use accept::AcceptLoop;
use inbox::Inbox;
use limits::spare_connections;
pub(crate) use limits::{
    Limits, buffers_max, connections_max, control_group_limit, raise_descriptor_limit,
};
pub(crate) use listen::{Listener, check_endpoint, inherited, listen};
pub(crate) use policy::{Arrival, Closing, Policy};
pub(crate) use response::{ServerContent, ServerResponse, SharedContent, push};
use watches::Watches;

use crate::service::{ServerState, Service};
use crate::store::ChangeListener;

/// What the accept loop and all workers share.
pub(crate) struct Shared {
    service: Arc<Service>,
    /// The same.
    policy: Arc<dyn Policy>,
    limits: Limits,
    /// Bytes counted against [`Limits::buffers_max`].
    memory: AtomicUsize,
    /// Bytes of the shared contents of which clients have a part, each counted once.
    read_bytes: AtomicUsize,
    /// Held by the worker that closes connections to make room, so that no two close one each for
    /// the same client.
    making_room: Mutex<()>,
}

impl Shared {
    pub(crate) fn new(service: Service, limits: Limits) -> Self {
        let service = Arc::new(service);
        Self {
            policy: Arc::clone(&service) as Arc<dyn Policy>,
            service,
            limits,
            memory: AtomicUsize::new(0),
            read_bytes: AtomicUsize::new(0),
            making_room: Mutex::default(),
        }
    }

    /// How many connections there are above the limit: clients who wait until as many others are
    /// closed.
    fn excess(&self) -> usize {
        self.service.state.connections().saturating_sub(self.limits.connections_max)
    }

    /// Whether no further connection is accepted.
    fn accepts_none(&self) -> bool {
        self.excess() >= spare_connections(self.limits.connections_max)
    }

    /// The worker for the next connection: the one that has the fewest.
    fn next_worker(&self) -> usize {
        let workers = self.service.state.workers.iter();
        let connections = workers.map(|worker| worker.open.load(Relaxed)).enumerate();
        connections.min_by_key(|(_, connections)| *connections).expect("there is a worker").0
    }
}

/// How other threads reach a worker.
#[derive(Clone)]
pub(crate) struct WorkerHandle {
    number: usize,
    inbox: Arc<Inbox>,
    watches: Arc<Watches>,
}

impl WorkerHandle {
    /// One handle for each worker.
    pub(crate) fn all(state: &Arc<ServerState>) -> io::Result<Vec<Self>> {
        let new = |number| {
            let watches = Arc::new(Watches::new(Arc::clone(state), number));
            Ok(Self { number, inbox: Arc::new(Inbox::new()?), watches })
        };
        (0..state.workers.len()).map(new).collect()
    }
}

/// A listener that marks what has changed for each worker, and wakes those for which that is news.
pub(crate) fn change_listener(workers: &[WorkerHandle]) -> ChangeListener {
    let workers = workers.to_vec();
    Box::new(move |step| {
        for worker in &workers {
            if worker.watches.mark(step) {
                worker.inbox.wake();
            }
        }
    })
}
