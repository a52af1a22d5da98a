//! A worker: one thread with one epoll instance. A connection stays with its worker until it is
//! closed.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::mem::replace;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, TryLockError};
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use threadpool::ThreadPool;

use super::connection::{Connection, Event, Next};
use super::inbox::Mail;
use super::loop_context::LoopContext;
use super::{Shared, WorkerHandle};
use crate::http::Date;
use crate::logging;
use crate::metrics::Closing;
use crate::server_state::Phase;

/// Least time between two looks at all deadlines. So a deadline may be missed by as much, and by
/// [`BATCHES_TIME`] more while all batches are full. An event may bring the next look forward.
const TICK: Duration = Duration::from_millis(100);

/// The same while there are more connections than the limit, and room has to be made.
const ABOVE_LIMIT_TICK: Duration = Duration::from_millis(20);

/// At the connection limit, a connection whose client has made no progress for this long has
/// stalled and may be closed: a new client is answered within a second. A request that arrives
/// slowly is no progress, since anybody can send a byte now and then.
const STALL_TIME: Duration = Duration::from_millis(500);

/// Most sockets, and most pieces of mail, that a pass of the event loop serves. Epoll reports first
/// what it has not reported the last time (ep_send_events in the kernel's fs/eventpoll.c). So
/// however many connections have work, each has its turn, and a pass ends after some milliseconds.
const BATCH: usize = 64;

/// Longest time of full batches, one after the other, until all sockets have had their turn.
const BATCHES_TIME: Duration = Duration::from_millis(250);

/// How long a pass serves the run queue, whose connections may have much to send.
const QUEUE_TIME: Duration = Duration::from_millis(1);

/// Most bytes received at a time, when that many of a content are missing.
const RECEIVE_BYTES_MAX: usize = 64 * 1024;

/// The epoll data of the inbox; that of a connection is its id, from 1 on.
const INBOX: u64 = 0;

struct Entry {
    connection: Connection,
    /// What epoll watches the socket for; without any, it is not in epoll.
    watched: EventFlags,
    /// Whether it is in the run queue. To search the queue would take long.
    queued: bool,
}

pub(super) struct Worker {
    shared: Arc<Shared>,
    handle: WorkerHandle,
    /// Each worker has one of its threads for good. The one that is left makes the answers that
    /// take long, one after the other, so that they delay only the clients who asked for them.
    pool: ThreadPool,
    epoll: OwnedFd,
    /// By id; ids are not reused.
    connections: BTreeMap<u64, Entry>,
    last_id: u64,
    /// Mail from the inbox that is not served yet.
    mail: VecDeque<Mail>,
    /// What goes on when the others have been served: connections with more requests in their
    /// buffers or much to send, those whose wait may be over, and those that are overdue.
    run_queue: VecDeque<(u64, Event)>,
    /// When to look at all connections; `None` when none needs it.
    next_check: Option<Instant>,
}

impl Worker {
    pub(super) fn new(
        shared: Arc<Shared>,
        handle: WorkerHandle,
        pool: ThreadPool,
    ) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &handle.inbox.eventfd, EventData::new_u64(INBOX), EventFlags::IN)?;
        Ok(Self {
            shared,
            handle,
            pool,
            epoll,
            connections: BTreeMap::new(),
            last_id: INBOX,
            mail: VecDeque::new(),
            run_queue: VecDeque::new(),
            next_check: None,
        })
    }

    /// Serves connections until the process ends.
    pub(super) fn run(mut self) {
        // If a panic outside of a connection ended the thread, the accept loop would go on to
        // choose this worker, as the one with the least load.
        while catch_unwind(AssertUnwindSafe(|| self.serve_all())).is_err() {
            self.connections.clear();
            // Otherwise the next change might not wake the worker.
            self.handle.watches.take_affected();
        }
    }

    fn serve_all(&mut self) {
        let shared = Arc::clone(&self.shared);
        let handle = self.handle.clone();
        let pool = self.pool.clone();
        let mut scratch = vec![0; RECEIVE_BYTES_MAX];
        let mut events = Vec::with_capacity(BATCH);
        let mut before = Instant::now();
        let mut all_served = before;
        let mut date = Date::default();
        let mut phase = Phase::Serving;
        let mut withdrawn = 0;
        loop {
            self.wait(&mut events, before);
            let now = Instant::now();
            let date = date.at(now);
            let mut context = LoopContext::new(&shared, &handle, &pool, now, date, &mut scratch);
            self.serve_pass(&events, &mut context);
            // What had arrived by then has been served, or is in a queue. So whoever is overdue
            // then was too slow itself, however slow this worker is. After a full batch, the next
            // ones bring the rest.
            if events.len() < BATCH || before.duration_since(all_served) > BATCHES_TIME {
                all_served = before;
            }
            // Another phase has other deadlines, and so has what was withdrawn.
            let now_withdrawn = shared.service.store.list.withdrawn();
            if (phase, withdrawn) != (context.phase, now_withdrawn) {
                self.next_check = Some(all_served);
            }
            (phase, withdrawn) = (context.phase, now_withdrawn);
            if self.next_check.is_some_and(|check| check <= all_served) {
                self.end_overdue(all_served, &mut context);
            }
            let end = Instant::now();
            context.counters().immediate.observe_each(context.answered, end - now);
            before = end;
        }
    }

    /// Waits until a socket is ready, there is mail, or it is time to look at the deadlines. Puts
    /// what is ready in place of the events of the last pass, which ended at `before`.
    fn wait(&mut self, events: &mut Vec<epoll::Event>, before: Instant) {
        let has_work = !(self.mail.is_empty() && self.run_queue.is_empty());
        let time = match self.next_check {
            _ if has_work => Some(Duration::ZERO),
            check => check.map(|check| check.saturating_duration_since(before)),
        };
        let time = time.and_then(|time| Timespec::try_from(time).ok());
        events.clear();
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), time.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => panic!("epoll_wait(2) fails: {error}"),
        }
    }

    /// Serves what there is to do, a part of each kind of work.
    fn serve_pass(&mut self, events: &[epoll::Event], context: &mut LoopContext<'_>) {
        for event in events {
            match event.data.u64() {
                INBOX => self.open_inbox(),
                id => self.serve(id, Event::Socket, context),
            }
        }
        for _ in 0..BATCH.min(self.mail.len()) {
            let mail = self.mail.pop_front().expect("it is not empty");
            self.serve_mail(mail, context);
        }
        self.serve_queued(context);
    }

    fn open_inbox(&mut self) {
        self.mail.extend(self.handle.inbox.take());
        let affected = self.handle.watches.take_affected();
        self.queue_all(affected, Event::Turn);
    }

    fn serve_mail(&mut self, mail: Mail, context: &mut LoopContext<'_>) {
        match mail {
            Mail::Ping(ping) => drop(ping),
            Mail::TokensChanged => self.queue_all(self.handle.watches.all(), Event::Turn),
            // Nothing comes of this and the next one if the connection is closed by now. A change
            // stands all the same.
            Mail::Answer(id, answer) => {
                self.with_connection(id, context, |connection, context| {
                    connection.handle_answer(answer, context)
                });
            }
            Mail::Outcome(id, outcome) => {
                self.with_connection(id, context, |connection, context| {
                    connection.handle_outcome(outcome, context)
                });
            }
            Mail::NewConnection(accepted) => {
                self.last_id += 1;
                let connection = Connection::new(accepted, context.now);
                let entry = Entry { connection, watched: EventFlags::empty(), queued: false };
                self.connections.insert(self.last_id, entry);
                // Most clients have sent a request by now, so receive first; a connection that ends
                // with the response never needs epoll.
                self.serve(self.last_id, Event::Socket, context);
            }
        }
    }

    /// Serves the run queue for [`QUEUE_TIME`], and each connection in it once at most.
    fn serve_queued(&mut self, context: &mut LoopContext<'_>) {
        let mut begun = None;
        for _ in 0..self.run_queue.len() {
            let (id, event) = self.run_queue.pop_front().expect("it is not empty");
            self.connections.entry(id).and_modify(|entry| entry.queued = false);
            self.serve(id, event, context);
            // One connection alone does not have the clock read.
            if self.run_queue.is_empty()
                || begun.get_or_insert_with(Instant::now).elapsed() > QUEUE_TIME
            {
                break;
            }
        }
    }

    /// Puts connections into the run queue.
    fn queue_all(&mut self, ids: Vec<u64>, event: Event) {
        for id in ids {
            if let Some(entry) = self.connections.get_mut(&id)
                && !replace(&mut entry.queued, true)
            {
                self.run_queue.push_back((id, event));
            }
        }
    }

    fn serve(&mut self, id: u64, event: Event, context: &mut LoopContext<'_>) {
        // One in the run queue is served when its turn comes. Epoll reports its socket again.
        if self.connections.get(&id).is_some_and(|entry| !entry.queued) {
            self.with_connection(id, context, |connection, context| {
                connection.handle_event(event, context)
            });
        }
    }

    /// Does this with a connection, if it is not closed yet, and then what the connection needs.
    fn with_connection(
        &mut self,
        id: u64,
        context: &mut LoopContext<'_>,
        work: impl FnOnce(&mut Connection, &mut LoopContext<'_>) -> Next,
    ) {
        let Some(entry) = self.connections.get_mut(&id) else { return };
        context.id = id;
        // A connection that has panicked may be in any state.
        let next = catch_unwind(AssertUnwindSafe(|| work(&mut entry.connection, context)))
            .unwrap_or(Next::Close);
        if let Some(check) = entry.connection.next_check(context) {
            self.next_check = Some(self.next_check.map_or(check, |earlier| earlier.min(check)));
        }
        let wanted = match next {
            Next::Epoll(flags) => flags,
            Next::Queue => {
                if !replace(&mut entry.queued, true) {
                    self.run_queue.push_back((id, Event::Turn));
                }
                EventFlags::IN
            }
            Next::Close => return drop(self.connections.remove(&id)),
        };
        let data = EventData::new_u64(id);
        let socket = &entry.connection.socket;
        let watched = match (entry.watched.is_empty(), wanted.is_empty()) {
            _ if entry.watched == wanted => Ok(()),
            (true, _) => epoll::add(&self.epoll, socket, data, wanted),
            (_, true) => epoll::delete(&self.epoll, socket),
            _ => epoll::modify(&self.epoll, socket, data, wanted),
        };
        entry.watched = wanted;
        if let Err(error) = watched {
            self.connections.remove(&id);
            context.counters().closed(Closing::NoRoom).inc();
            logging::CONNECTIONS
                .log(format_args!("closed a connection: epoll does not take its socket: {error}"));
        }
    }

    /// Ends what has passed its deadline by `now`, makes room at the connection limit, and finds
    /// out when to look again.
    fn end_overdue(&mut self, now: Instant, context: &mut LoopContext<'_>) {
        let options = &context.shared.service.options;
        let is_overdue = |entry: &Entry| {
            let deadline = entry.connection.deadline(context.phase, options);
            deadline.is_some_and(|deadline| deadline <= now)
        };
        let overdue = self.connections.iter().filter(|(_, entry)| is_overdue(entry));
        let overdue: Vec<u64> = overdue.map(|(id, _)| *id).collect();
        self.queue_all(overdue, Event::Overdue);
        if context.phase == Phase::AboveLimit {
            self.make_room(now, context);
        }
        let deadlines =
            self.connections.values().filter_map(|entry| entry.connection.next_check(context));
        let first = deadlines.min().map(|first| first.max(now + TICK));
        self.next_check =
            if context.phase == Phase::AboveLimit { Some(now + ABOVE_LIMIT_TICK) } else { first };
    }

    /// At the connection limit, closes as many stalled connections as there are clients above it,
    /// those that have stalled longest first. Each worker closes its share of them.
    fn make_room(&mut self, now: Instant, context: &mut LoopContext<'_>) {
        let guard = context.shared.making_room.try_lock();
        if matches!(guard, Err(TryLockError::WouldBlock)) {
            return;
        }
        let share = context.shared.excess().div_ceil(context.shared.service.state.workers.len());
        let connections = self.connections.iter();
        let mut stalled: Vec<(Instant, u64)> = connections
            .filter_map(|(id, entry)| Some((entry.connection.stalled_since()?, *id)))
            .filter(|(since, _)| *since + STALL_TIME <= now)
            .collect();
        stalled.sort_unstable();
        for (_, id) in stalled.into_iter().take(share) {
            if context.shared.excess() == 0 {
                break;
            }
            self.serve(id, Event::Evicted, context);
        }
    }
}

#[cfg(test)]
#[path = "worker_tests.rs"]
mod tests;
