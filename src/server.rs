//! Sockets and threads: the accept loop, on the main thread, and the workers, to which it passes
//! connections.
//!
//! # Threads
//!
//! | thread | does | may wait for |
//! |---|---|---|
//! | main | accepts connections, takes signals, reads tokens, sends heartbeats | poll(2); at the start for FILE, at the stop for connections and the writer |
//! | workers, `--workers`: if not given, one for each processor and at least two | receive, answer and send | epoll_wait(2) |
//! | one more of their pool | answers that take long, one after the other; frees long lists | a writer that makes the same JSON |
//! | writer | all that `store` does on disk | the disk, locks of other programs, its channel |
//! | follower, with `--follow` | asks the other service, and submits its list | that service, the writer |
//! | log | writes log lines | standard error |
//!
//! A worker never waits for a client, a disk or another thread, but for the moment that a lock is
//! held. So whatever one client does, the others of its worker are served. Three answers take long:
//! the first read of a long list after a change, a change with a condition on such a list, and a
//! change of the whole list or with more than 16 KiB of content.
//!
//! # Who wakes whom
//!
//! - The accept loop hands each connection, and all workers a change of the [`Phase`], to an
//!   [`Inbox`]; its eventfd wakes the worker.
//! - A change goes to the writer through a channel. The outcome comes back by [`Ticket`] as
//!   [`Mail::Event`], and so does what the pool has answered.
//! - Whoever publishes a new version of the list says what it has changed: [`Watches::mark`] of each
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
//! | lock | guards | taken inside |
//! |---|---|---|
//! | [`Shared::making_room`] | that only one worker at a time closes connections to make room; the others go on without it | |
//! | `Watches::entries` | which connections of a worker wait for a change, and what has changed | `making_room` |
//! | `SharedList::current` | the current version of the list; locked to clone it, or to edit it in memory | `making_room` |
//! | `Inbox::mail` | what other threads have posted | |
//! | `Tokens::accepted` | the hashes of the tokens | `making_room` |
//! | `DatabaseStatus::current` | whether saving works | |
//! | `Followed::answers` | how the service that is followed answers | |
//! | `Limiter::rate` | how many warnings were logged in this second | `making_room` |
//!
//! # Deadlines
//!
//! [`Connection::deadline`] says when a connection is overdue. Its worker looks at all deadlines
//! when the first one has passed, but mostly not within 100 ms of the look before: a deadline may
//! be missed by as much. A connection that is overdue gets [`Event::Overdue`].
//!
//! | waits for | for | then |
//! |---|---|---|
//! | its first request | `--request-timeout`; 1 s during a stop | closed |
//! | the rest of a request | `--request-timeout` since its first byte | 408 |
//! | another request | `--keep-alive` and 1 s; 1 s during a stop | closed |
//! | a change | what the request prefers, at most 300 s; ends at once in a stop | 304 |
//! | the client to read | `--request-timeout` since it last read | closed |
//! | the client to close | 2 s | closed |
//! | an answer that is made | no limit: the writer has its own | |
//!
//! The deadlines of the follower are the constants of `follower`.
//!
//! Above the connection limit ([`Phase::AboveLimit`]), workers look every 20 ms, and the
//! connections that have stalled longest, for half a second at least, get [`Event::Evicted`]. Old
//! lists that take too much memory end the connections that read them within 100 ms
//! (`Worker::close_old`).

mod access_log;
mod connection;
mod inbox;
mod limits;
mod listen;
mod output;
#[cfg(fuzzing)]
pub(crate) mod stepped;
mod watches;
mod worker;
mod yielding;

use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use threadpool::ThreadPool;

use connection::{Connection, Event};
use inbox::{Inbox, Mail};
use limits::{Quota, spare_connections};
pub(crate) use limits::{connections_max, control_group_limit, memory_max, raise_descriptor_limit};
pub(crate) use listen::{Endpoint, Listener, check, clash, inherited, listen};
use worker::Worker;

use crate::http::keep_alive_fields;
use crate::logging;
use crate::server_state::{Phase, ServerState};
use crate::service::Service;
use crate::service_manager::{self, Watchdog};
use crate::signals::Signals;
use crate::store::{DatabaseStatus, Edit, Store, Ticket};

/// How long after the signal connections are still accepted from the kernel's queue.
const LAST_ACCEPTS: Duration = Duration::from_secs(2);

/// How long to wait before another try when no further connection is accepted, or the system lacks
/// a descriptor or memory.
const RETRY_TIME: Duration = Duration::from_millis(20);

/// Connections accepted from one listener in a row.
const ACCEPTS_IN_A_ROW: usize = 64;

/// What the accept loop and all workers share.
pub(crate) struct Shared {
    pub(crate) server: Arc<ServerState>,
    pub(crate) service: Service,
    /// Most bytes of requests and responses in the buffers of all connections together.
    pub(crate) memory_max: usize,
    /// The fields about the connection of responses after which it stays open.
    pub(super) keep_alive_fields: String,
    /// Bytes counted against [`Shared::memory_max`].
    memory: AtomicUsize,
    /// Held by the worker that closes connections to make room, so that no two close one each for
    /// the same client.
    pub(super) making_room: Mutex<()>,
}

impl Shared {
    pub(crate) fn new(service: Service, memory_max: usize) -> Self {
        // Keep-Alive has whole seconds. Some clients take 0 for no limit.
        let keep_alive_fields = keep_alive_fields(service.options.keep_alive.as_secs().max(1));
        let memory = AtomicUsize::new(0);
        let server = Arc::clone(&service.server);
        let making_room = Mutex::default();
        Self { server, service, memory_max, keep_alive_fields, memory, making_room }
    }

    /// How many connections there are above the limit: clients who wait until as many others are
    /// closed.
    pub(super) fn excess(&self) -> usize {
        self.server.connections().saturating_sub(self.server.connections_max)
    }

    /// Whether no further connection is accepted.
    pub(super) fn is_full(&self) -> bool {
        self.excess() >= spare_connections(self.server.connections_max)
    }

    /// The worker for the next connection: the one that has the fewest.
    pub(super) fn next_worker(&self) -> usize {
        let workers = self.server.workers.iter();
        let connections = workers.map(|worker| worker.open.load(Relaxed)).enumerate();
        connections.min_by_key(|(_, connections)| *connections).expect("there is a worker").0
    }
}

pub(crate) struct AcceptLoop {
    shared: Arc<Shared>,
    inboxes: Vec<Arc<Inbox>>,
    listeners: Vec<Listener>,
    watchdog: Watchdog,
}

impl AcceptLoop {
    /// Starts workers on the threads of the pool, of which one is left for answers that take long.
    pub(crate) fn new(
        shared: Arc<Shared>,
        listeners: Vec<Listener>,
        pool: &ThreadPool,
    ) -> io::Result<Self> {
        let mut inboxes = Vec::new();
        for worker in 0..shared.server.workers.len() {
            let inbox = Arc::new(Inbox::new(worker, Arc::clone(&shared), pool.clone())?);
            let worker = Worker::new(Arc::clone(&inbox))?;
            pool.execute(|| worker.run());
            inboxes.push(inbox);
        }
        connect(&shared.service.store, &inboxes);
        Ok(Self { shared, inboxes, listeners, watchdog: Watchdog::from_env(Instant::now()) })
    }

    /// Serves until a signal says stop. When one says reload, reads the tokens again.
    pub(crate) fn run(&mut self, signals: &Signals) -> io::Result<()> {
        service_manager::ready();
        while !self.accept_ready(signals)? {
            let status = self.shared.service.store.status();
            let save_time = status.map(DatabaseStatus::elapsed).unwrap_or_default();
            self.watchdog.tick(Instant::now(), save_time, |ping| {
                self.inboxes.iter().for_each(|inbox| inbox.post(Mail::Ping(Arc::clone(ping))));
            });
        }
        Ok(())
    }

    /// Waits for connections and accepts them. True if the service has to stop.
    fn accept_ready(&mut self, signals: &Signals) -> io::Result<bool> {
        let is_above_limit = self.shared.excess() > 0;
        let phase = if is_above_limit { Phase::AboveLimit } else { Phase::Serving };
        if phase != self.shared.server.phase() {
            self.set_phase(phase);
        }
        let time = if is_above_limit {
            Some(RETRY_TIME)
        } else {
            self.watchdog.poll_timeout(Instant::now())
        };
        let time = time.and_then(|time| Timespec::try_from(time).ok());
        let poll_for = |socket| PollFd::from_borrowed_fd(socket, PollFlags::IN);
        let is_full = self.shared.is_full();
        let listeners = self.listeners.iter().filter(|_| !is_full);
        let mut polled = vec![poll_for(signals.stop.as_fd())];
        polled.extend(signals.reload.iter().map(|reload| poll_for(reload.as_fd())));
        polled.extend(listeners.map(|listener| poll_for(listener.as_fd())));
        match rustix::event::poll(&mut polled, time.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut ready = polled.iter().map(|polled| !polled.revents().is_empty());
        let must_stop = ready.next() == Some(true);
        if let Some(reload) = &signals.reload
            && ready.next() == Some(true)
        {
            self.reload_tokens(reload);
        }
        for (listener, _) in self.listeners.iter().zip(ready).filter(|(_, is_ready)| *is_ready) {
            self.accept_from(listener);
        }
        Ok(must_stop)
    }

    /// Sets the phase, and wakes the workers, which have other deadlines in it.
    fn set_phase(&self, phase: Phase) {
        self.shared.server.set_phase(phase);
        self.inboxes.iter().for_each(|inbox| inbox.wake());
    }

    fn reload_tokens(&self, reload: &UnixStream) {
        // One reload is enough for several signals; it fails when there is nothing to read.
        let _ = rustix::io::read(reload, &mut [0; 64]);
        let Some(tokens) = &self.shared.service.tokens else { return };
        match tokens.load() {
            Ok(loaded) => {
                loaded.log();
                self.inboxes.iter().for_each(|inbox| inbox.post(Mail::TokensChanged));
            }
            Err(error) => log::error!(
                "cannot use the token file {}: {error}; the previous tokens stay",
                tokens.file().display()
            ),
        }
    }

    /// Accepts up to [`ACCEPTS_IN_A_ROW`] connections from a listener.
    fn accept_from(&self, listener: &Listener) {
        // A container may publish the port of an open address on a loopback address of the host,
        // where DNS rebinding reaches it. --allow-host asks for the check.
        let checks_host = listener.endpoint.is_loopback()
            || (listener.endpoint.is_open() && !self.shared.service.options.allow_host.is_empty());
        for _ in 0..ACCEPTS_IN_A_ROW {
            if self.shared.is_full() {
                return;
            }
            match listener.accept() {
                Ok((socket, peer)) => {
                    let inbox = &self.inboxes[self.shared.next_worker()];
                    let quota = Quota::new(Arc::clone(&self.shared), inbox.worker);
                    let connection =
                        Connection::new(socket, peer, checks_host, quota, Instant::now());
                    inbox.post(Mail::Connection(Box::new(connection)));
                }
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return,
                    // The client closed the connection before it was accepted.
                    ErrorKind::ConnectionAborted | ErrorKind::Interrupted => {}
                    _ => return pause(&error),
                },
            }
        }
    }

    /// Answers what has begun. Connections that are still open at the deadline are closed, answered
    /// or not.
    pub(crate) fn stop(mut self, deadline: Instant) {
        let begun = Instant::now();
        service_manager::stopping();
        self.listeners.iter_mut().for_each(Listener::unlink);
        self.set_phase(Phase::Stopping);
        // For clients, connections in the kernel's queue are established.
        while self.listeners.iter().any(has_pending) && begun.elapsed() < LAST_ACCEPTS {
            if self.shared.is_full() {
                sleep(RETRY_TIME);
            }
            self.listeners.iter().for_each(|listener| self.accept_from(listener));
        }
        self.listeners.clear();
        while self.shared.server.connections() > 0 && Instant::now() < deadline {
            sleep(RETRY_TIME);
        }
        let connections = self.shared.server.connections();
        if connections > 0 {
            let seconds = begun.elapsed().as_secs_f32();
            log::warn!(
                "connections closed because they were still open {seconds:.0} s after the signal: \
                 {connections}"
            );
        }
    }
}

/// Connects the store to the workers, which get its outcomes and hear of new versions.
fn connect(store: &Store, inboxes: &[Arc<Inbox>]) {
    let askers = inboxes.to_vec();
    let deliver = move |ticket: Ticket, outcome| {
        askers[ticket.worker].post(Mail::Event(ticket.connection, Event::Outcome(outcome)));
    };
    let watchers = inboxes.to_vec();
    let notify = move |edits: &[Edit]| {
        for inbox in &watchers {
            if inbox.watches.mark(edits) {
                inbox.wake();
            }
        }
    };
    store.connect(Box::new(deliver), Box::new(notify));
}

/// Waits after the system has refused a connection, most likely for lack of a descriptor or memory.
fn pause(error: &io::Error) {
    logging::CONNECTIONS.log(format_args!("cannot accept connections for the moment: {error}"));
    sleep(RETRY_TIME);
}

/// Whether a connection waits in the kernel's queue.
fn has_pending(listener: &Listener) -> bool {
    let mut polled = [PollFd::new(&listener, PollFlags::IN)];
    rustix::event::poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}
