//! A worker: one thread, one epoll instance, and the connections that were given to it, each for life. No lock but the inbox.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::mem::take;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};

use super::connection::{Connection, Event, Next};
use super::shared::{Quota, Shared};
use crate::logging;
use crate::metrics::WorkerMetrics;
use crate::store::{Change, DatabaseError, Outcome};

/// How often deadlines are looked at, while there are connections.
const TICK: Duration = Duration::from_millis(100);

/// Connections of the run queue that are served between two looks at who else is ready.
const RESUMED_PER_PASS: usize = 64;

/// When the connection limit is reached, how long a client may owe a request, or the taking of a response.
const PATIENCE_AT_LIMIT: Duration = Duration::from_secs(2);

/// Bytes received at a time at most, of a content whose length is known.
const RECEIVE_BYTES_MAX: usize = 64 * 1024;

/// Event data of the inbox; connections have their ids, from 1 on.
const INBOX: u64 = 0;

/// What reaches a worker from other threads.
pub(super) struct Inbox {
    mail: Mutex<Mail>,
    /// Readable while there is mail.
    eventfd: OwnedFd,
    metrics: Arc<WorkerMetrics>,
    /// The worker has made a pass since it was last asked.
    has_answered: AtomicBool,
}

#[derive(Default)]
struct Mail {
    connections: Vec<Connection>,
    /// What came of changes, by the id of the connection that waits for it.
    outcomes: Vec<(u64, Result<Outcome, DatabaseError>)>,
}

impl Inbox {
    pub(super) fn new(metrics: Arc<WorkerMetrics>) -> io::Result<Self> {
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { mail: Mutex::default(), eventfd, metrics, has_answered: AtomicBool::new(true) })
    }

    /// Gives the worker a new connection.
    pub(super) fn add(&self, socket: OwnedFd, peer: Option<SocketAddr>, on_loopback: bool, shared: &Arc<Shared>) {
        let quota = Quota::new(Arc::clone(shared), Arc::clone(&self.metrics));
        let connection = Connection::new(socket, peer, on_loopback, quota, Instant::now());
        self.post(|mail| mail.connections.push(connection));
    }

    /// How many connections the worker has.
    pub(super) fn load(&self) -> usize {
        self.metrics.connections.load(Relaxed)
    }

    /// Whether the worker has made a pass since [`Inbox::ask`].
    pub(super) fn has_answered(&self) -> bool {
        self.has_answered.load(Relaxed)
    }

    /// Asks the worker to show that it goes on.
    pub(super) fn ask(&self) {
        self.has_answered.store(false, Relaxed);
        self.wake();
    }

    /// Wakes the worker up.
    pub(super) fn wake(&self) {
        // The event's counter would have to stand at 2^64 - 2 to fail.
        let _ = rustix::io::write(&self.eventfd, &1_u64.to_ne_bytes());
    }

    fn post(&self, put: impl FnOnce(&mut Mail)) {
        let was_empty = {
            let mut mail = self.mail.lock().unwrap_or_else(PoisonError::into_inner);
            let was_empty = mail.connections.is_empty() && mail.outcomes.is_empty();
            put(&mut mail);
            was_empty
        };
        if was_empty {
            self.wake();
        }
    }

    fn take(&self) -> Mail {
        // Nothing to read means that it was read before.
        let _ = rustix::io::read(&self.eventfd, &mut [0; 8]);
        take(&mut *self.mail.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A connection as its worker has it.
struct Entry {
    connection: Connection,
    /// The events that epoll watches it for; `None` once one has come while its change is saved.
    watched: Option<EventFlags>,
    /// It is in the run queue, and has requests in its buffer.
    queued: bool,
}

pub(super) struct Worker {
    shared: Arc<Shared>,
    inbox: Arc<Inbox>,
    epoll: OwnedFd,
    /// By ids that are never used again.
    connections: HashMap<u64, Entry>,
    last_id: u64,
    /// Connections that have more requests in their buffers, in the order they are served.
    run_queue: VecDeque<u64>,
    /// Where all connections receive to.
    scratch: Vec<u8>,
    /// How many representations were withdrawn when connections were last closed for it.
    withdrawn: usize,
}

impl Worker {
    pub(super) fn new(shared: Arc<Shared>, inbox: Arc<Inbox>) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &inbox.eventfd, EventData::new_u64(INBOX), EventFlags::IN)?;
        Ok(Self {
            shared,
            inbox,
            epoll,
            connections: HashMap::new(),
            last_id: INBOX,
            run_queue: VecDeque::new(),
            scratch: vec![0; RECEIVE_BYTES_MAX],
            withdrawn: 0,
        })
    }

    /// Serves connections for as long as the process lives.
    pub(super) fn run(mut self) {
        // nothing is known to panic outside of a connection; if something does, it costs the connections and not the worker
        while catch_unwind(AssertUnwindSafe(|| self.serve_all())).is_err() {
            self.connections.clear();
        }
    }

    fn serve_all(&mut self) {
        let mut events = Vec::new();
        let mut now = Instant::now();
        let mut next_tick = now + TICK;
        loop {
            let before = Instant::now();
            self.inbox.metrics.counters.time_answers(0, before - now);
            let is_complete = self.wait(&mut events, next_tick.saturating_duration_since(before));
            now = Instant::now();
            self.inbox.has_answered.store(true, Relaxed);
            let mut has_mail = false;
            for epoll::Event { data, flags } in events.drain(..) {
                match data.u64() {
                    INBOX => has_mail = true,
                    id if { flags }.contains(EventFlags::OUT) => self.serve(id, Event::Writable, now),
                    // also when the connection has ended (EPOLLHUP, EPOLLERR): receiving tells
                    id => self.serve(id, Event::Readable, now),
                }
            }
            if has_mail {
                self.take_mail(now);
            }
            for _ in 0..self.run_queue.len().min(RESUMED_PER_PASS) {
                if let Some(id) = self.run_queue.pop_front() {
                    self.connections.entry(id).and_modify(|entry| entry.queued = false);
                    self.serve(id, Event::Resume, now);
                }
            }
            if self.shared.service.store.list.withdrawn() != self.withdrawn {
                self.close_withdrawn();
            }
            if is_complete && now >= next_tick {
                next_tick = now + TICK;
                self.tick(before);
            }
        }
    }

    /// Waits until a connection is ready, there is mail, or it is time for the next tick. False if it is not known who is ready.
    fn wait(&self, events: &mut Vec<epoll::Event>, until_tick: Duration) -> bool {
        // room for all, so that one pass is complete
        events.reserve(self.connections.len() + 1);
        let time = match (self.run_queue.is_empty(), self.connections.is_empty()) {
            (false, _) => Some(Duration::ZERO),
            (true, true) => None,
            (true, false) => Some(until_tick),
        };
        let time = time.and_then(|time| Timespec::try_from(time).ok());
        epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), time.as_ref()).is_ok()
    }

    fn take_mail(&mut self, now: Instant) {
        let Mail { connections, outcomes } = self.inbox.take();
        for (id, outcome) in outcomes {
            // one whose connection is closed is dropped; its change stands
            self.serve(id, Event::Outcome(outcome), now);
        }
        for connection in connections {
            self.last_id += 1;
            let id = self.last_id;
            match epoll::add(&self.epoll, &connection, EventData::new_u64(id), EventFlags::IN) {
                Ok(()) => {
                    self.connections.insert(id, Entry { connection, watched: Some(EventFlags::IN), queued: false });
                    // most clients have sent their request by now
                    self.serve(id, Event::Readable, now);
                }
                Err(error) => self.refuse_unwatched(&error),
            }
        }
    }

    fn serve(&mut self, id: u64, event: Event, now: Instant) {
        // one in the run queue is served from there
        let Some(entry) = self.connections.get_mut(&id).filter(|entry| !entry.queued) else { return };
        let next =
            catch_unwind(AssertUnwindSafe(|| entry.connection.advance(event, &self.shared, now, &mut self.scratch))).unwrap_or(Next::Close);
        let wanted = match next {
            Next::Wait(flags) => Some(flags),
            Next::Queue => {
                entry.queued = true;
                self.run_queue.push_back(id);
                Some(EventFlags::IN)
            }
            Next::Commit(_) => entry.watched,
            Next::Unwatch => None,
            Next::Close => return drop(self.connections.remove(&id)),
        };
        let data = EventData::new_u64(id);
        let watched = match (entry.watched, wanted) {
            (before, wanted) if before == wanted => Ok(()),
            (Some(_), Some(wanted)) => epoll::modify(&self.epoll, &entry.connection, data, wanted),
            (None, Some(wanted)) => epoll::add(&self.epoll, &entry.connection, data, wanted),
            (_, None) => epoll::delete(&self.epoll, &entry.connection),
        };
        entry.watched = wanted;
        if let Err(error) = watched {
            self.connections.remove(&id);
            self.refuse_unwatched(&error);
        }
        if let Next::Commit(change) = next {
            self.commit(id, change);
        }
    }

    fn refuse_unwatched(&self, error: &rustix::io::Errno) {
        self.inbox.metrics.counters.refused.add(1);
        logging::client_warning(format_args!("closed a connection that cannot be watched: {error}"));
    }

    /// Has a change saved; its outcome comes back by the inbox.
    fn commit(&self, id: u64, change: Change) {
        let inbox = Arc::clone(&self.inbox);
        self.shared.service.store.submit(change, move |outcome| inbox.post(|mail| mail.outcomes.push((id, outcome))));
    }

    /// Closes the connections whose deadline has passed, and some when the connection limit is reached. `now` is from before the last `epoll_wait`:
    /// a connection that this pass did not serve had sent nothing until then.
    fn tick(&mut self, now: Instant) {
        let shared = &self.shared;
        let is_over = |entry: &Entry| entry.connection.deadline(shared).is_some_and(|deadline| deadline <= now);
        let over: Vec<u64> = self.connections.iter().filter(|(_, entry)| is_over(entry)).map(|(id, _)| *id).collect();
        over.into_iter().for_each(|id| self.serve(id, Event::Deadline, now));
        if self.shared.limit_reached() {
            self.make_room(now);
        }
    }

    /// Closes the connections whose output is sent from an old representation that has to be freed.
    fn close_withdrawn(&mut self) {
        self.withdrawn = self.shared.service.store.list.withdrawn();
        let connections = self.connections.len();
        self.connections.retain(|_, entry| !entry.connection.is_withdrawn());
        if self.connections.len() < connections {
            let count = connections - self.connections.len();
            logging::client_warning(format_args!(
                "connections closed: {count}; old representations that they were still reading took too much memory"
            ));
        }
    }

    /// Closes an eighth of the connections, those that have been idle for longest first.
    fn make_room(&mut self, now: Instant) {
        let may_close = |(id, entry): (&u64, &Entry)| {
            let (owes, since) = entry.connection.may_make_room(now, PATIENCE_AT_LIMIT)?;
            Some((owes, since, *id))
        };
        let mut candidates: Vec<_> = self.connections.iter().filter_map(may_close).collect();
        candidates.sort_unstable();
        candidates.truncate(self.connections.len().div_ceil(8));
        self.inbox.metrics.counters.refused.add(candidates.len() as u64);
        for (_, _, id) in candidates {
            self.serve(id, Event::LimitReached, now);
        }
    }
}
