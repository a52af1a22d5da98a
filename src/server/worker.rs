//! A worker: one thread with one epoll instance. A connection stays with its worker until it is
//! closed.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::mem::{replace, take};
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
use super::policy::Closing;
use super::{Phase, Shared};
use crate::http::Date;
use crate::service::Watches;
use crate::store::Deliver;

/// Time between two looks at all deadlines, unless an event brings the next look forward. So a
/// deadline may be missed by this time, and by [`CATCH_UP_TIME`] more while all batches are full.
const TICK: Duration = Duration::from_millis(100);

/// Time between two looks while there are more connections than the limit, or what clients read
/// takes much memory, and room has to be made.
const SHORTAGE_TICK: Duration = Duration::from_millis(20);

/// A connection whose client has made no progress for this long has stalled. Above the connection
/// limit it may be closed: the time is short, so that new clients soon find room. A request that
/// arrives slowly is no progress, since anybody can send a byte now and then.
const STALL_TIME: Duration = Duration::from_millis(500);

/// Most sockets, and most pieces of mail, that a pass of the event loop serves, so that it ends
/// after some milliseconds. However many sockets are ready, each has its turn: epoll first reports
/// those that it has not reported the last time (ep_send_events in the kernel's fs/eventpoll.c).
const EVENTS_PER_PASS: usize = 64;

/// Longest time for which no deadline passes because all batches are full, and sockets may not have
/// had their turn.
const CATCH_UP_TIME: Duration = Duration::from_millis(250);

/// How long a pass goes on to serve the run queue, whose connections may have much to send.
const QUEUE_TIME: Duration = Duration::from_millis(1);

/// Most bytes received at a time: of a long content, or of what is dropped after the last response.
const RECEIVE_BYTES_MAX: usize = 64 * 1024;

/// The epoll data of the inbox. The epoll data of a connection is its id, from 1 on.
const INBOX: u64 = 0;

struct Entry {
    connection: Connection,
    /// What epoll watches the socket for. If empty, the socket is not in epoll.
    watched: EventFlags,
    /// Whether it is in the run queue, once. Until its turn, it gets no other event. Whoever is
    /// overdue or evicted is found again.
    queued: bool,
}

pub(super) struct Worker {
    shared: Arc<Shared>,
    /// From 0 on.
    number: usize,
    /// Each worker, the writer, the watch and the follower keep one thread of the pool for good. The
    /// thread that is left makes the answers that take long, one after the other.
    pool: ThreadPool,
    epoll: OwnedFd,
    /// By id; ids are not reused.
    connections: BTreeMap<u64, Entry>,
    last_id: u64,
    /// Mail from the inbox that is not served yet.
    mail: VecDeque<Mail>,
    /// Connections that go on when the others have been served: those with more requests in their
    /// buffers or much to send, those whose wait may be over, and those that are overdue.
    run_queue: VecDeque<(u64, Event)>,
    /// When to look at the deadlines of all connections; `None` if no connection has one.
    next_check: Option<Instant>,
}

/// Puts a connection into the run queue, unless it is in it already. Mail does not go through the
/// queue, so a connection that awaits mail must not be in it.
fn enqueue(queue: &mut VecDeque<(u64, Event)>, id: u64, entry: &mut Entry, event: Event) {
    debug_assert!(!entry.connection.awaits_mail(), "{event:?} for a connection that awaits mail");
    if !replace(&mut entry.queued, true) {
        queue.push_back((id, event));
    }
}

impl Worker {
    pub(super) fn new(shared: Arc<Shared>, number: usize, pool: ThreadPool) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(
            &epoll,
            &shared.workers[number].inbox.eventfd,
            EventData::new_u64(INBOX),
            EventFlags::IN,
        )?;
        Ok(Self {
            shared,
            number,
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
        // If a panic outside of a connection ended the thread, the accept loop would go on choosing
        // this worker, as the one with the fewest connections.
        while catch_unwind(AssertUnwindSafe(|| self.serve_all())).is_err() {
            self.connections.clear();
            // A change wakes the worker only if there are no marks yet, so remove these.
            self.watches().take_affected();
        }
    }

    fn serve_all(&mut self) {
        let (of_deliver, number) = (Arc::clone(&self.shared), self.number);
        let deliver: Arc<Deliver> = Arc::new(move |outcomes| {
            let inbox = &of_deliver.workers[number].inbox;
            inbox.post_all(outcomes.into_iter().map(|(id, outcome)| Mail::Outcome(id, outcome)));
        });
        let shared = Arc::clone(&self.shared);
        let pool = self.pool.clone();
        let mut scratch = vec![0; RECEIVE_BYTES_MAX];
        let mut events = Vec::with_capacity(EVENTS_PER_PASS);
        let mut last_pass_end = Instant::now();
        let mut caught_up = last_pass_end;
        let mut date = Date::default();
        let mut phase = Phase::Serving;
        loop {
            self.wait(&mut events, last_pass_end);
            shared.service().heard(number);
            let now = Instant::now();
            let date = date.at(now);
            let mut context = LoopContext::new(&shared, number, &pool, now, date, &mut scratch);
            self.serve_pass(&events, &mut context);
            // Deadlines are compared with the end of the previous pass, not with now. What had
            // arrived by then has been served or is queued, so a slow worker times out no client
            // that did send. A full batch may leave sockets to the next pass: then the time stays.
            if events.len() < EVENTS_PER_PASS
                || last_pass_end.duration_since(caught_up) > CATCH_UP_TIME
            {
                caught_up = last_pass_end;
            }
            // The deadlines depend on the phase: look at them now.
            if phase != context.phase {
                self.next_check = Some(caught_up);
            }
            phase = context.phase;
            if self.next_check.is_some_and(|check| check <= caught_up) {
                self.end_overdue(caught_up, &mut context);
            }
            if !context.changes.is_empty() {
                shared.service().store.submit(take(&mut context.changes), &deliver);
            }
            let end = Instant::now();
            context.counters().immediate.observe_each(context.answered, end - now);
            last_pass_end = end;
        }
    }

    /// Waits until a socket is ready, there is mail, or it is time to look at the deadlines. Fills
    /// `events` with what is ready.
    fn wait(&mut self, events: &mut Vec<epoll::Event>, last_pass_end: Instant) {
        let has_work = !(self.mail.is_empty() && self.run_queue.is_empty());
        let time = match self.next_check {
            _ if has_work => Some(Duration::ZERO),
            check => check.map(|check| check.saturating_duration_since(last_pass_end)),
        };
        let time = time.and_then(|time| Timespec::try_from(time).ok());
        events.clear();
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), time.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => panic!("epoll_wait(2) fails: {error}"),
        }
    }

    /// Serves the sockets that epoll has reported, then some mail, then a part of the run queue.
    fn serve_pass(&mut self, events: &[epoll::Event], context: &mut LoopContext<'_>) {
        for event in events {
            match event.data.u64() {
                INBOX => self.open_inbox(),
                id => self.serve(id, Event::Socket, context),
            }
        }
        for _ in 0..EVENTS_PER_PASS.min(self.mail.len()) {
            let mail = self.mail.pop_front().expect("it is not empty");
            self.serve_mail(mail, context);
        }
        self.serve_queued(context);
    }

    fn watches(&self) -> &Watches {
        &self.shared.service().watches[self.number]
    }

    fn open_inbox(&mut self) {
        self.mail.extend(self.shared.workers[self.number].inbox.take());
        self.queue_all(self.watches().take_affected(), Event::Turn);
    }

    fn serve_mail(&mut self, mail: Mail, context: &mut LoopContext<'_>) {
        match mail {
            // If the connection is closed by now, an answer or an outcome is dropped. The change
            // that was made stands.
            Mail::FromPool(id, decision) => {
                self.with_connection(id, context, |connection, context| {
                    connection.handle_decision(decision, context)
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
                // Most clients have sent a request by now, so receive first. A connection that ends
                // with the response then needs no epoll.
                self.serve(self.last_id, Event::Socket, context);
            }
        }
    }

    /// Serves the run queue until [`QUEUE_TIME`] is over, and each connection in it at most once.
    fn serve_queued(&mut self, context: &mut LoopContext<'_>) {
        let mut begun = None;
        for _ in 0..self.run_queue.len() {
            let (id, event) = self.run_queue.pop_front().expect("it is not empty");
            self.connections.entry(id).and_modify(|entry| entry.queued = false);
            self.serve(id, event, context);
            // With only one connection in the queue, the clock is not read.
            if self.run_queue.is_empty()
                || begun.get_or_insert_with(Instant::now).elapsed() > QUEUE_TIME
            {
                break;
            }
        }
    }

    /// Puts connections into the run queue, each with this event, unless they are in it already. A
    /// connection with a watch that awaits mail asks the service again after that.
    fn queue_all(&mut self, ids: Vec<u64>, event: Event) {
        for id in ids {
            match self.connections.get_mut(&id) {
                Some(entry) if !entry.connection.awaits_mail() => {
                    enqueue(&mut self.run_queue, id, entry, event);
                }
                _ => {}
            }
        }
    }

    fn serve(&mut self, id: u64, event: Event, context: &mut LoopContext<'_>) {
        match self.connections.get_mut(&id) {
            // In the run queue, a connection waits for its turn. Until then epoll would report the
            // socket in every pass.
            Some(entry) if entry.queued => {
                if event == Event::Socket {
                    // If it fails, epoll goes on to report it.
                    let _ = epoll::delete(&self.epoll, &entry.connection.socket);
                    entry.watched = EventFlags::empty();
                }
            }
            _ => self.with_connection(id, context, |connection, context| {
                connection.handle_event(event, context)
            }),
        }
    }

    /// Does this work with a connection, if it is not closed yet, and then what [`Next`] says.
    fn with_connection(
        &mut self,
        id: u64,
        context: &mut LoopContext<'_>,
        work: impl FnOnce(&mut Connection, &mut LoopContext<'_>) -> Next,
    ) {
        let Some(entry) = self.connections.get_mut(&id) else { return };
        context.id = id;
        // After a panic, the connection may be in any state, so close it.
        let next = catch_unwind(AssertUnwindSafe(|| work(&mut entry.connection, context)))
            .unwrap_or(Next::Close);
        if let Some(check) = entry.connection.next_check(context) {
            self.next_check = Some(self.next_check.map_or(check, |earlier| earlier.min(check)));
        }
        let wanted = match next {
            Next::Epoll(flags) => flags,
            Next::Queue => {
                enqueue(&mut self.run_queue, id, entry, Event::Turn);
                entry.watched
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
            entry.connection.note(Closing::NoRoom, context);
            self.connections.remove(&id);
            context.shared.policy().trouble(format_args!(
                "closed a connection: epoll does not take its socket: {error}"
            ));
        }
    }

    /// Queues [`Event::Overdue`] for the connections whose deadline has passed by then, makes room
    /// above the connection limit, and finds out when to look again.
    fn end_overdue(&mut self, until: Instant, context: &mut LoopContext<'_>) {
        let limits = &context.shared.limits;
        let is_overdue = |entry: &Entry| {
            let deadline = entry.connection.deadline(context.phase, limits);
            deadline.is_some_and(|deadline| deadline <= until)
        };
        let overdue = self.connections.iter().filter(|(_, entry)| is_overdue(entry));
        let overdue: Vec<u64> = overdue.map(|(id, _)| *id).collect();
        self.queue_all(overdue, Event::Overdue);
        if context.phase == Phase::AboveLimit {
            self.make_room(until, context);
        }
        let deadlines =
            self.connections.values().filter_map(|entry| entry.connection.next_check(context));
        let first = deadlines.min().map(|first| first.max(until + TICK));
        let is_shortage = context.phase == Phase::AboveLimit || context.shared.is_reading_much();
        self.next_check = if is_shortage { Some(until + SHORTAGE_TICK) } else { first };
    }

    /// Sends [`Event::Evicted`] to the connections that have stalled longest: to this worker's
    /// share of as many as there are above the limit. Does nothing while another worker does that.
    fn make_room(&mut self, now: Instant, context: &mut LoopContext<'_>) {
        let guard = context.shared.making_room.try_lock();
        if matches!(guard, Err(TryLockError::WouldBlock)) {
            return;
        }
        let share = context.shared.excess().div_ceil(context.shared.workers.len());
        let connections = self.connections.iter();
        let mut stalled: Vec<(Instant, u64)> = connections
            // One in the run queue gets no event before its turn.
            .filter(|(_, entry)| !entry.queued)
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
