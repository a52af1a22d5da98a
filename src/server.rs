//! Sockets and threads: the accept loop, on the main thread, and the workers, to which it passes
//! connections.
//!
//! # Threads
//!
//! - **main** opens the list. Then it accepts connections, takes signals, reads tokens and sends
//!   heartbeats. It waits in poll(2); at the start for FILE, at the stop for connections and the
//!   writer.
//! - **The workers**, `--workers`, or one for each processor and at least two, receive, answer and
//!   send. They wait in epoll_wait(2).
//! - **One more** makes the answers that take long, one after the other.
//! - **The writer**, with `--data`, does all that `store` does on disk. It waits for the disk, for
//!   locks of other programs, and for its channel.
//! - **The follower**, with `--follow`, asks the other service, and submits its list. It waits for
//!   that service and for the writer.
//! - **log** writes log lines. It waits for standard error.
//!
//! All but the first and the last are threads of one pool, and so have its name: worker.
//!
//! A worker never waits for a client, a disk or another thread, but for the moment that a lock is
//! held. So whatever one client does, the others of its worker are served. These answers take long:
//! the first read of a long list after a change, a change with a condition on such a list, and a
//! change of the whole list or with more than 16 KiB of content. However many clients there are, a
//! pass of an event loop ends after some milliseconds ([`worker`]), and the next one asks epoll who
//! else is ready. Contents of 64 KiB and more are sent from the run queue, after all that is short.
//!
//! # Who wakes whom
//!
//! - The accept loop hands each connection, and all workers a change of the `Phase`, to an
//!   `Inbox`; its eventfd wakes the worker.
//! - A change goes to the writer through a channel. The outcome comes back as
//!   `Mail::Outcome`, and what the pool has answered as `Mail::Answer`.
//! - Whoever publishes a new version of the list says what it has changed: `Watches::mark` of each
//!   worker. A worker is woken only if one of its connections waits for that.
//! - Signals write to a stream that the accept loop polls.
//!
//! # Locks
//!
//! Each is held for a moment: nothing is sent, saved or logged under it, and no whole list is made,
//! hashed or freed. [`Shared::making_room`] is held longer, while connections are answered and
//! closed, but no thread waits for it. The crates have locks of their own: around the queue of the
//! pool, and around the log, whose lines go to a channel.
//!
//! - [`Shared::making_room`]: only one worker at a time closes connections to make room; the others
//!   go on without it. Five locks are taken inside it: those marked with *.
//! - `Watches::entries` *: which connections of a worker wait for a change, and what has changed.
//! - `SharedList::current` *: the current version of the list; locked to clone it, or to edit it in
//!   memory.
//! - `SharedList::partly_sent` *: representations of which clients have received a part.
//! - `Tokens::accepted` *: the hashes of the tokens.
//! - `Limiter::rate` *: how many warnings were logged in this second.
//! - `Inbox::mail`: what other threads have posted.
//! - `Colors::envelope` and `Representation::tag` are made once, under locks of their own, and that
//!   may take long. A worker makes those of short lists alone (`SharedList::ready_envelope`).
//! - `DatabaseStatus::current`: whether saving works.
//! - `FollowStatus::answers`: how the service that is followed answers.
//!
//! # Deadlines
//!
//! `Connection::deadline` says when a connection is overdue. Its worker looks at all deadlines when
//! the first one has passed, but mostly not within 100 ms of the look before: a deadline may be
//! missed by as much, and by 250 ms more while the worker has more to do than it can. A connection
//! that is overdue gets `Event::Overdue`. What one waits for, for how long, and what happens then:
//!
//! - Its first request: `--request-timeout`, 1 s during a stop. Closed.
//! - The rest of a request: `--request-timeout` since its first byte, or since the response before
//!   it was read. 408.
//! - Another request: `--keep-alive` and 1 s, or 1 s during a stop. Closed.
//! - A change: what the request prefers, at most 300 s; ends at once in a stop. 304.
//! - The client to read: `--request-timeout` since it last read. Closed.
//! - The client to close: 2 s. Closed.
//! - An answer that is made: no limit, since the writer has its own.
//!
//! The deadlines of the follower are the constants of `follower`.
//!
//! Above the connection limit (`Phase::AboveLimit`), workers look every 20 ms, and the
//! connections that have stalled longest, for half a second at least, get `Event::Evicted`. Old
//! lists that take too much memory are withdrawn (`SharedList::withdraw_old`), which ends the
//! connections that read them within 100 ms.

mod accept;
mod access_log;
mod connection;
mod inbox;
mod limits;
mod listen;
mod loop_context;
mod output;
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
pub(crate) use limits::{connections_max, control_group_limit, memory_max, raise_descriptor_limit};
pub(crate) use listen::{Listener, check_endpoint, inherited, listen};
use watches::Watches;

use crate::server_state::ServerState;
use crate::service::Service;
use crate::store::ChangeListener;

/// What the accept loop and all workers share.
pub(crate) struct Shared {
    service: Service,
    /// Most bytes of requests and responses in the buffers of all connections together.
    memory_max: usize,
    /// Bytes counted against [`Shared::memory_max`].
    memory: AtomicUsize,
    /// Held by the worker that closes connections to make room, so that no two close one each for
    /// the same client.
    making_room: Mutex<()>,
}

impl Shared {
    pub(crate) fn new(service: Service, memory_max: usize) -> Self {
        Self { service, memory_max, memory: AtomicUsize::new(0), making_room: Mutex::default() }
    }

    /// How many connections there are above the limit: clients who wait until as many others are
    /// closed.
    fn excess(&self) -> usize {
        self.service.state.connections().saturating_sub(self.service.state.connections_max)
    }

    /// Whether no further connection is accepted.
    fn accepts_none(&self) -> bool {
        self.excess() >= spare_connections(self.service.state.connections_max)
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

/// Wakes each worker that has connections which wait for what has changed.
pub(crate) fn change_listener(workers: &[WorkerHandle]) -> ChangeListener {
    let workers = workers.to_vec();
    Box::new(move |edits| {
        for worker in &workers {
            if worker.watches.mark(edits) {
                worker.inbox.wake();
            }
        }
    })
}
