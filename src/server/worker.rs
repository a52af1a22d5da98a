//! A worker: one thread with one epoll instance. A connection stays with its worker until it is closed. The only lock is that of the inbox.

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
use crate::logging::{self, Topic};
use crate::metrics::WorkerMetrics;
use crate::store::{DatabaseError, Outcome};

/// How often deadlines are checked while there are connections.
const TICK: Duration = Duration::from_millis(100);

/// Connections of the run queue that are served in one pass.
const RESUMED_PER_PASS: usize = 64;

/// Most bytes received at a time, when that many of a content are missing.
const RECEIVE_BYTES_MAX: usize = 64 * 1024;

/// The epoll data of the inbox; that of a connection is its id, from 1 on.
const INBOX: u64 = 0;

/// How the accept loop and the writer reach a worker.
pub(super) struct Inbox {
    mail: Mutex<Mail>,
    /// Readable while there is mail.
    eventfd: OwnedFd,
    metrics: Arc<WorkerMetrics>,
    has_ponged: AtomicBool,
}

#[derive(Default)]
struct Mail {
    connections: Vec<Connection>,
    /// Outcomes of changes, with the ids of the connections that wait for them.
    outcomes: Vec<(u64, Result<Outcome, DatabaseError>)>,
}

impl Inbox {
    pub(super) fn new(metrics: Arc<WorkerMetrics>) -> io::Result<Self> {
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { mail: Mutex::default(), eventfd, metrics, has_ponged: AtomicBool::new(true) })
    }

    /// Passes a new connection to the worker.
    pub(super) fn add(&self, socket: OwnedFd, peer: Option<SocketAddr>, checks_host: bool, shared: &Arc<Shared>) {
        let quota = Quota::new(Arc::clone(shared), Arc::clone(&self.metrics));
        let connection = Connection::new(socket, peer, checks_host, quota, Instant::now());
        self.post(|mail| mail.connections.push(connection));
    }

    /// The number of connections, those that the worker has not taken yet included.
    pub(super) fn load(&self) -> usize {
        self.metrics.connections.load(Relaxed)
    }

    /// The worker has made a pass since the last [`Inbox::ping`].
    pub(super) fn has_ponged(&self) -> bool {
        self.has_ponged.load(Relaxed)
    }

    pub(super) fn ping(&self) {
        self.has_ponged.store(false, Relaxed);
        self.wake();
    }

    pub(super) fn wake(&self) {
        // It fails only when the counter is at 2^64 - 2, and then the worker wakes anyway.
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
        // It fails when an earlier read has reset the counter.
        let _ = rustix::io::read(&self.eventfd, &mut [0; 8]);
        take(&mut *self.mail.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

struct Entry {
    connection: Connection,
    /// What epoll watches the socket for; `None` before the first event, and after [`Next::Unwatch`].
    watched: Option<EventFlags>,
    /// It is in the run queue.
    queued: bool,
}

pub(super) struct Worker {
    shared: Arc<Shared>,
    inbox: Arc<Inbox>,
    epoll: OwnedFd,
    /// By id; ids are not reused.
    connections: HashMap<u64, Entry>,
    last_id: u64,
    /// The ids of connections that have more requests in their buffers.
    run_queue: VecDeque<u64>,
    /// The receive buffer of all connections.
    scratch: Vec<u8>,
    /// `store.list.withdrawn()` when connections were last closed because of it.
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

    /// Serves connections until the process ends.
    pub(super) fn run(mut self) {
        // If a panic outside of a connection ended the thread, the accept loop would go on to choose this worker, as the one with the least load.
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
            self.inbox.has_ponged.store(true, Relaxed);
            let mut has_mail = false;
            for epoll::Event { data, flags } in events.drain(..) {
                match data.u64() {
                    INBOX => has_mail = true,
                    id if { flags }.contains(EventFlags::OUT) => self.serve(id, Event::Writable, now),
                    // EPOLLHUP and EPOLLERR as well: receiving says which
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
            if self.inbox.metrics.counters.untimed.read() > 0 {
                self.shared.service.store.note_requests(now);
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

    /// Waits until a connection is ready, there is mail, or it is time for the next tick. False if epoll fails, as when a signal arrives.
    fn wait(&self, events: &mut Vec<epoll::Event>, until_tick: Duration) -> bool {
        // room for all connections, so that one call reports all that are ready
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
            // if the connection is closed by now, nobody is told; the change stands
            self.serve(id, Event::Outcome(outcome), now);
        }
        for connection in connections {
            self.last_id += 1;
            self.connections.insert(self.last_id, Entry { connection, watched: None, queued: false });
            // Most clients have sent a request by now, so receive first; a connection that ends with the response never needs epoll.
            self.serve(self.last_id, Event::Readable, now);
        }
    }

    fn serve(&mut self, id: u64, event: Event, now: Instant) {
        // a connection in the run queue waits for its turn there
        let Some(entry) = self.connections.get_mut(&id).filter(|entry| !entry.queued) else { return };
        let (shared, scratch) = (&self.shared, &mut self.scratch);
        let mut advance = |event| catch_unwind(AssertUnwindSafe(|| entry.connection.advance(event, shared, now, scratch)));
        // after a panic the list is consistent: a change is made as a whole or not at all
        let next = advance(event).or_else(|_| advance(Event::Panicked)).unwrap_or(Next::Close);
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
            (Some(_), Some(wanted)) => epoll::modify(&self.epoll, &entry.connection.socket, data, wanted),
            (None, Some(wanted)) => epoll::add(&self.epoll, &entry.connection.socket, data, wanted),
            (_, None) => epoll::delete(&self.epoll, &entry.connection.socket),
        };
        entry.watched = wanted;
        if let Err(error) = watched {
            self.connections.remove(&id);
            self.inbox.metrics.counters.refused.add(1);
            logging::client_warning(Topic::Connections, format_args!("closed a connection: epoll does not take its socket: {error}"));
        }
        if let Next::Commit(change) = next {
            let inbox = Arc::clone(&self.inbox);
            self.shared.service.store.submit(change, move |outcome| inbox.post(|mail| mail.outcomes.push((id, outcome))));
        }
    }

    /// Closes the connections whose deadline has passed, and some when the connection limit is reached. `now` is a time before the last
    /// `epoll_wait`: a client that had sent something by then has been served in this pass, so none is late only because the worker was.
    fn tick(&mut self, now: Instant) {
        let shared = &self.shared;
        let is_over = |entry: &Entry| entry.connection.deadline(shared).is_some_and(|deadline| deadline <= now);
        let over: Vec<u64> = self.connections.iter().filter(|(_, entry)| is_over(entry)).map(|(id, _)| *id).collect();
        over.into_iter().for_each(|id| self.serve(id, Event::Deadline, now));
        if self.shared.limit_reached() {
            self.evict(now);
        }
    }

    /// Closes the connections that still send a representation that was withdrawn.
    fn close_withdrawn(&mut self) {
        let list = &self.shared.service.store.list;
        self.withdrawn = list.withdrawn();
        let is_withdrawn = |entry: &Entry| entry.connection.output.shared_content().is_some_and(|content| list.is_withdrawn(content));
        let count = self.connections.extract_if(|_, entry| is_withdrawn(entry)).count();
        if count > 0 {
            logging::client_warning(
                Topic::Connections,
                format_args!("connections closed: {count}; old representations that they were still reading took too much memory"),
            );
        }
    }

    /// Closes up to an eighth of the connections, in the order of [`Connection::eviction_rank`].
    fn evict(&mut self, now: Instant) {
        let connections = self.connections.len();
        let ranks = self.connections.iter().filter_map(|(id, entry)| Some((entry.connection.eviction_rank(now)?, *id)));
        let mut candidates: Vec<_> = ranks.collect();
        candidates.sort_unstable();
        candidates.truncate(connections.div_ceil(8));
        candidates.into_iter().for_each(|(_, id)| self.serve(id, Event::LimitReached, now));
        self.inbox.metrics.counters.refused.add((connections - self.connections.len()) as u64);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::metrics::Metrics;
    use crate::server::Limits;
    use crate::service::{Allowlist, BasePath, Service, openapi};
    use crate::store::{Color, Colors, Store};

    /// A worker without a thread, of a service with one color.
    fn worker(value: &str, metrics: Metrics) -> Worker {
        let service = Service {
            store: Store::in_memory(Colors::from_iter([Color::new("red", value)])),
            base: BasePath::default(),
            openapi: openapi(&BasePath::default()),
            read_only: false,
            access_log: false,
            is_stopping: AtomicBool::new(false),
            allowlist: Allowlist::default(),
            tokens: None,
            metrics,
        };
        let time = Duration::from_secs(10);
        let limits = Limits { content_max: 100, request_timeout: time, keep_alive: time, connections_max: 10, memory_max: 10_000 };
        let shared = Arc::new(Shared::new(service, limits));
        let inbox = Arc::new(Inbox::new(Arc::clone(&shared.service.metrics.workers[0])).unwrap());
        Worker::new(shared, inbox).unwrap()
    }

    /// Sends requests on a connection of their own, and reads until it ends.
    fn talk(worker: &mut Worker, requests: &str) -> String {
        let (mut client, socket) = UnixStream::pair().unwrap();
        client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        client.write_all(requests.as_bytes()).unwrap();
        worker.inbox.add(socket.into(), None, false, &worker.shared);
        worker.take_mail(Instant::now());
        let mut responses = String::new();
        client.read_to_string(&mut responses).unwrap();
        responses
    }

    #[test]
    #[cfg_attr(not(debug_assertions), ignore = "nothing panics without checks for overflow")]
    fn a_panic_is_answered_with_500_and_ends_its_connection_alone() {
        let metrics = Metrics::new(2, 1);
        // the page has the sum, which overflows
        metrics.workers.iter().for_each(|worker| worker.counters.refused.add(u64::MAX));
        let mut worker = worker("#f00", metrics);
        let red = "GET /colors/red HTTP/1.1\r\nHost: a\r\n\r\n";
        for (method, expected) in
            [("GET", "{\"error\":true,\"message\":\"the service failed on this request, its log says where\"}\n"), ("HEAD", "")]
        {
            let responses = talk(&mut worker, &format!("{red}{method} /metrics HTTP/1.1\r\nHost: a\r\n\r\n{red}"));
            let (first, failed) = responses.split_once("{\"name\":\"red\",\"value\":\"#f00\"}\n").unwrap();
            assert!(first.starts_with("HTTP/1.1 200 OK\r\n") && !first.contains("Connection: close"), "{first}");
            let (head, content) = failed.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with("HTTP/1.1 500 Internal Server Error\r\n") && head.ends_with("\r\nConnection: close"), "{head}");
            assert_eq!(content, expected, "{method}");
        }
        assert_eq!(worker.connections.len(), 2, "they linger, and no other is there");
    }

    #[test]
    fn connections_are_refused_more_memory_than_all_may_use_together() {
        let worker = worker("#f00", Metrics::new(1, 1));
        let quota = || Quota::new(Arc::clone(&worker.shared), Arc::clone(&worker.inbox.metrics));
        let (mut one, other) = (quota(), quota());
        assert!(other.is_refused(10_001) && !other.is_refused(10_000));
        one.set_memory(5_000);
        assert!(other.is_refused(5_001) && !other.is_refused(5_000) && !one.is_refused(10_000));
        drop(one);
        assert!(!other.is_refused(10_000));
    }

    #[test]
    fn at_the_connection_limit_a_client_that_goes_on_reading_is_not_closed() {
        let mut worker = worker(&"x".repeat(4_000_000), Metrics::new(1, 1));
        let (mut client, socket) = UnixStream::pair().unwrap();
        client.write_all(b"GET /colors/red HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        worker.inbox.add(socket.into(), None, false, &worker.shared);
        worker.take_mail(Instant::now());
        let mut received = vec![0; 100_000];
        for step in 1..=3 {
            client.read_exact(&mut received).unwrap();
            worker.evict(Instant::now() + step * Duration::from_secs(60));
            assert_eq!(worker.connections.len(), 1, "step {step}");
        }
        worker.evict(Instant::now() + Duration::from_secs(600));
        assert_eq!((worker.connections.len(), worker.inbox.metrics.counters.refused.read()), (0, 1));
    }
}
