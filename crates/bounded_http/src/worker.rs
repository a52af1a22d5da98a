//! A worker: one thread with one epoll instance, which works in passes.
//!
//! A pass begins when [`Worker::wait`] returns. It serves the sockets that epoll has reported, then
//! mail, then connections of the run queue, and looks at the deadlines if the first one has passed.
//! When a connection has a whole request, [`Worker::try_recv`] returns it; the next call goes on
//! with its answer and the rest of the pass. If the answers are quick, a pass ends after some
//! milliseconds. The run queue has what may hold up others: many requests of one client, long
//! contents, and connections that are woken, overdue or evicted.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::mem::{MaybeUninit, replace};
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, TryLockError};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;

use super::busy_poll::BusyPoll;
use super::connection::{Connection, Event, Next};
use super::inbox::Mail;
use super::pass::Pass;
use super::policy::{Closing, Policy, tell};
use super::request::Request;
use super::shared::{Phase, Shared};

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

/// Longest time for which no deadline passes because all batches are full and sockets may wait.
const CATCH_UP_TIME: Duration = Duration::from_millis(250);

/// How long a pass goes on to serve the run queue, whose connections may have much to send.
pub(super) const QUEUE_TIME: Duration = Duration::from_millis(1);

/// The epoll data of the inbox. The epoll data of a connection is its id, from 1 on.
const INBOX: u64 = 0;

struct Entry {
    connection: Connection,
    /// What epoll(7) waits for on the socket. If empty, the socket is not in its interest list.
    interest: EventFlags,
    /// Whether it is in the run queue, once. Until its turn, it gets no other event: if it is
    /// overdue or to be evicted, the next look finds it again.
    queued: bool,
}

/// Gives a thread requests. A connection stays with its worker until it is closed.
pub struct Worker {
    pass: Pass,
    epoll: OwnedFd,
    busy_poll: Option<BusyPoll>,
    /// By id; ids are not reused.
    connections: BTreeMap<u64, Entry>,
    /// Mail from the inbox that is not served yet.
    mail: VecDeque<Mail>,
    /// Connections that go on when the others have been served.
    run_queue: VecDeque<(u64, Event)>,
    /// When to look at the deadlines of all connections; `None` if no connection has one.
    next_check: Option<Instant>,
    /// What epoll has reported in this pass and is not served yet, by id, the last first.
    ready: Vec<u64>,
    /// Epoll has reported as many as it could, and there may be more.
    is_full: bool,
    agenda: Agenda,
    /// The connection whose request was handed out last, if the caller is not back yet.
    handed_out: Option<u64>,
    /// When the pass before this one ended, or this one if it is over.
    last_pass_end: Instant,
    /// Deadlines until then have passed.
    caught_up: Instant,
    /// The phase in the pass before this one.
    last_phase: Phase,
}

/// What a pass has still to serve, in this order.
#[derive(Default)]
struct Agenda {
    /// How many pieces of mail are left.
    mail: usize,
    /// How many connections in the run queue are left, at most; `None` before their turn.
    queued: Option<usize>,
    /// When the first of several of these was served.
    begun: Option<Instant>,
    is_over: bool,
}

/// Puts a connection into the run queue, unless it is in it already. What somebody else has comes
/// back by mail, and not through the queue, so such a connection must not be in it.
fn enqueue(queue: &mut VecDeque<(u64, Event)>, id: u64, entry: &mut Entry, event: Event) {
    debug_assert!(!entry.connection.is_away(), "{event:?} while somebody else has the request");
    if !replace(&mut entry.queued, true) {
        queue.push_back((id, event));
    }
}

impl Worker {
    pub(super) fn new(
        shared: Arc<Shared>,
        policy: Arc<dyn Policy>,
        number: usize,
    ) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let inbox = &shared.workers[number].inbox;
        epoll::add(&epoll, &inbox.eventfd, EventData::new_u64(INBOX), EventFlags::IN)?;
        let now = Instant::now();
        let processors = available_parallelism().map_or(1, usize::from);
        let busy_poll = BusyPoll::new(processors, shared.workers.len());
        Ok(Self {
            pass: Pass::new(shared, policy, number, now),
            epoll,
            busy_poll,
            connections: BTreeMap::new(),
            mail: VecDeque::new(),
            run_queue: VecDeque::new(),
            next_check: None,
            ready: Vec::with_capacity(EVENTS_PER_PASS),
            is_full: false,
            agenda: Agenda { is_over: true, ..Agenda::default() },
            handed_out: None,
            last_pass_end: now,
            caught_up: now,
            last_phase: Phase::Serving,
        })
    }

    /// Its place among the workers of [`Handle::start`](super::Handle::start), from 0 on.
    pub fn number(&self) -> usize {
        self.pass.worker
    }

    /// The next request. Waits for one, by [`Worker::wait`]. `None` once that returns false.
    pub fn recv(&mut self) -> Option<Request> {
        // To answer the request before may have taken long.
        self.pass.begin(Instant::now());
        loop {
            if let Some(request) = self.try_recv() {
                return Some(request);
            }
            if !self.wait() {
                return None;
            }
        }
    }

    /// The next request of this pass over the connections that have something to do. Waits for
    /// nothing. First sends the response to the request before. `None` at the end of the pass: do
    /// what its requests have in common, and call [`Worker::wait`]. All that a pass does has the
    /// time of its begin, so what takes some milliseconds is for [`Worker::recv`] or other threads.
    pub fn try_recv(&mut self) -> Option<Request> {
        if let Some(id) = self.handed_out.take() {
            self.with_entry(id, |entry, pass| entry.connection.take_back(pass));
        }
        while self.pass.received.is_none() && self.serve_next() {}
        self.pass.received.take()
    }

    /// Waits until some connection has something to do, or for
    /// [`Handle::notify`](super::Handle::notify), and begins the next pass, in which there may be
    /// no request. Returns at once if [`Worker::try_recv`] has not returned `None` yet. False once
    /// [`Acceptor::stop`](super::Acceptor::stop) is over and all requests are answered.
    ///
    /// While requests come closely one after the other, and the process has more processors than
    /// workers, looks for events for up to 20 µs before it sleeps, where that has paid off.
    pub fn wait(&mut self) -> bool {
        if !self.agenda.is_over {
            return true;
        }
        if self.pass.shared.is_over.load(Relaxed) {
            // Who has not read all by now would keep the worker as long as it likes.
            self.connections.retain(|_, entry| entry.connection.is_away());
            if self.connections.is_empty() {
                return false;
            }
        }
        let has_work = !(self.mail.is_empty() && self.run_queue.is_empty());
        let time = match self.next_check {
            _ if has_work => Some(Duration::ZERO),
            check => check.map(|check| check.saturating_duration_since(self.last_pass_end)),
        };
        let time = time.and_then(|time| Timespec::try_from(time).ok());
        let mut events = [MaybeUninit::uninit(); EVENTS_PER_PASS];
        let busy_poll = self.busy_poll.as_mut().filter(|_| !has_work);
        let mut idle = busy_poll.map(|busy_poll| (busy_poll, Instant::now()));
        loop {
            let looks =
                idle.as_mut().is_some_and(|(busy_poll, since)| busy_poll.looks(|| since.elapsed()));
            let time = if looks { Some(&Timespec::default()) } else { time.as_ref() };
            let events = match epoll::wait(&self.epoll, &mut events, time) {
                Ok((events, _)) => &*events,
                Err(Errno::INTR) => &[],
                Err(error) => panic!("epoll_wait(2) fails: {error}"),
            };
            if looks && events.is_empty() {
                continue;
            }
            let now = Instant::now();
            if let Some((busy_poll, since)) = idle {
                busy_poll.note_end(now - since);
            }
            self.begin_pass(events, now);
            return true;
        }
    }

    /// How long the last pass took, if its requests were taken by [`Worker::try_recv`]: from the
    /// return of [`Worker::wait`] to the `None`. No request that was answered in it took longer.
    pub fn pass_time(&self) -> Duration {
        self.last_pass_end.saturating_duration_since(self.pass.now)
    }

    /// Has the parked request of the connection with this [id](Request::id) received again; one
    /// that is not parked yet, once it is. A call that comes after the answer wakes the next
    /// request of the connection: look again whether what a woken request waits for has happened.
    pub fn wake(&mut self, id: u64) {
        if let Some(entry) = self.connections.get_mut(&id)
            && entry.connection.wake()
        {
            enqueue(&mut self.run_queue, id, entry, Event::Turn);
        }
    }

    /// Closes all connections of this worker, and ends the pass. For a thread that has caught a
    /// panic of its own, and goes on: what the panic has interrupted is not known.
    pub fn close_all(&mut self) {
        self.connections.clear();
        self.run_queue.clear();
        self.handed_out = None;
        self.pass.received = None;
        self.agenda.is_over = true;
    }

    /// Takes the mail at once: a notification that came before has this pass, and one that comes
    /// later makes the inbox ready again, for the next.
    fn begin_pass(&mut self, events: &[epoll::Event], now: Instant) {
        self.pass.begin(now);
        self.is_full = events.len() == EVENTS_PER_PASS;
        // An event is not `Send`, as a worker is.
        self.ready.clear();
        self.ready.extend(events.iter().rev().map(|event| event.data.u64()));
        if let Some(place) = self.ready.iter().position(|id| *id == INBOX) {
            self.ready.remove(place);
            self.mail.extend(self.pass.shared.workers[self.pass.worker].inbox.take());
        }
        let mail = EVENTS_PER_PASS.min(self.mail.len());
        self.agenda = Agenda { mail, ..Agenda::default() };
    }

    /// Serves the next of the [`Agenda`]. False at the end of the pass.
    fn serve_next(&mut self) -> bool {
        if self.agenda.is_over {
            return false;
        }
        if let Some(id) = self.ready.pop() {
            self.serve(id, Event::Socket);
        } else if self.agenda.mail > 0 {
            self.agenda.mail -= 1;
            let mail = self.mail.pop_front().expect("it is not empty");
            self.serve_mail(mail);
        } else if let Some((id, event)) = self.next_queued() {
            self.connections.entry(id).and_modify(|entry| entry.queued = false);
            self.serve(id, event);
        } else {
            self.agenda.is_over = true;
            self.end_pass(Instant::now());
        }
        !self.agenda.is_over
    }

    /// The next connection of the run queue: each that was there when its turn began, at most once,
    /// and none once [`QUEUE_TIME`] is over. With only one, the clock is not read.
    fn next_queued(&mut self) -> Option<(u64, Event)> {
        if self.run_queue.is_empty() {
            return None;
        }
        let left = self.agenda.queued.unwrap_or(self.run_queue.len());
        let is_late = self.agenda.begun.is_some_and(|begun| begun.elapsed() > QUEUE_TIME);
        if left == 0 || is_late {
            return None;
        }
        self.agenda.queued = Some(left - 1);
        if left > 1 && self.agenda.begun.is_none() {
            self.agenda.begun = Some(Instant::now());
        }
        self.run_queue.pop_front()
    }

    fn serve_mail(&mut self, mail: Mail) {
        match mail {
            // If the connection is closed by now, an answer is dropped, and so is a parked request.
            Mail::Settled(id, settled) => {
                self.with_entry(id, |entry, pass| entry.connection.handle_settled(settled, pass));
            }
            Mail::NewConnection(socket, slot) => {
                let id = slot.id;
                let connection = Connection::new(socket, slot, self.pass.now);
                let entry = Entry { connection, interest: EventFlags::empty(), queued: false };
                self.connections.insert(id, entry);
                // Most clients have sent a request by now, so receive first. A connection that ends
                // with the response then needs no epoll.
                self.serve(id, Event::Socket);
            }
        }
    }

    fn end_pass(&mut self, now: Instant) {
        // Deadlines are compared with the end of the previous pass, not with now. What had arrived
        // by then has been served or is queued, so a slow worker times out no client that did send.
        // A full batch may leave sockets to the next pass: then the time stays.
        let last_pass_end = replace(&mut self.last_pass_end, now);
        if !self.is_full || last_pass_end.duration_since(self.caught_up) > CATCH_UP_TIME {
            self.caught_up = last_pass_end;
        }
        // The deadlines depend on the phase: look at them now.
        if replace(&mut self.last_phase, self.pass.phase) != self.pass.phase {
            self.next_check = Some(self.caught_up);
        }
        if self.next_check.is_some_and(|check| check <= self.caught_up) {
            self.end_overdue(self.caught_up);
        }
    }

    fn serve(&mut self, id: u64, event: Event) {
        self.with_entry(id, |entry, pass| match entry.queued {
            // In the run queue, a connection waits for its turn. Until then epoll would report the
            // socket in every pass.
            true => Next::Epoll(EventFlags::empty()),
            false => entry.connection.handle_event(event, pass),
        });
    }

    /// Does this work with a connection, if it is not closed yet, and then what [`Next`] says.
    fn with_entry(&mut self, id: u64, work: impl FnOnce(&mut Entry, &mut Pass) -> Next) {
        let Some(entry) = self.connections.get_mut(&id) else { return };
        let pass = &mut self.pass;
        // After a panic, the connection may be in any state, so close it.
        let next = catch_unwind(AssertUnwindSafe(|| work(entry, pass))).unwrap_or(Next::Close);
        let wanted = match next {
            Next::Epoll(flags) => flags,
            Next::HandOut => return self.handed_out = Some(id),
            Next::Queue => {
                enqueue(&mut self.run_queue, id, entry, Event::Turn);
                entry.interest
            }
            Next::Close => return drop(self.connections.remove(&id)),
        };
        if let Some(check) = entry.connection.next_check(pass) {
            self.next_check = Some(self.next_check.map_or(check, |earlier| earlier.min(check)));
        }
        let data = EventData::new_u64(id);
        let socket = &entry.connection.socket;
        let changed = match (entry.interest.is_empty(), wanted.is_empty()) {
            _ if entry.interest == wanted => Ok(()),
            (true, _) => epoll::add(&self.epoll, socket, data, wanted),
            (_, true) => epoll::delete(&self.epoll, socket),
            _ => epoll::modify(&self.epoll, socket, data, wanted),
        };
        entry.interest = wanted;
        if let Err(error) = changed {
            entry.connection.note(Closing::NoRoom, pass);
            self.connections.remove(&id);
            let what = "closed a connection: epoll does not take its socket";
            tell(|| self.pass.policy.warn(format_args!("{what}: {error}")));
        }
    }

    /// Queues [`Event::Overdue`] for the connections whose deadline has passed by then, makes room
    /// above the connection limit, and finds out when to look again.
    fn end_overdue(&mut self, until: Instant) {
        let phase = self.pass.phase;
        for (id, entry) in &mut self.connections {
            let deadline = entry.connection.deadline(phase, &self.pass.shared.limits);
            if deadline.is_some_and(|deadline| deadline <= until) {
                enqueue(&mut self.run_queue, *id, entry, Event::Overdue);
            }
        }
        if phase == Phase::AboveLimit {
            self.make_room(until);
        }
        let entries = self.connections.values();
        let checks = entries.filter_map(|entry| entry.connection.next_check(&self.pass));
        let first = checks.min().map(|first| first.max(until + TICK));
        let is_shortage = phase == Phase::AboveLimit || self.pass.shared.is_reading_much();
        self.next_check = if is_shortage { Some(until + SHORTAGE_TICK) } else { first };
    }

    /// Sends [`Event::Evicted`] to the connections that have stalled longest: to this worker's
    /// share of as many as there are above the limit. Does nothing while another worker does that.
    fn make_room(&mut self, now: Instant) {
        let shared = Arc::clone(&self.pass.shared);
        let guard = shared.making_room.try_lock();
        if matches!(guard, Err(TryLockError::WouldBlock)) {
            return;
        }
        let share = shared.excess().div_ceil(shared.workers.len());
        let connections = self.connections.iter();
        let mut stalled: Vec<(Instant, u64)> = connections
            // One in the run queue gets no event before its turn.
            .filter(|(_, entry)| !entry.queued)
            .filter_map(|(id, entry)| Some((entry.connection.stalled_since()?, *id)))
            .filter(|(since, _)| *since + STALL_TIME <= now)
            .collect();
        stalled.sort_unstable();
        for (_, id) in stalled.into_iter().take(share) {
            // The application has to answer a parked request first: in the next pass, which comes
            // at once.
            match self.connections.get_mut(&id) {
                Some(entry) if entry.connection.is_parked() => {
                    enqueue(&mut self.run_queue, id, entry, Event::Evicted);
                }
                _ => self.serve(id, Event::Evicted),
            }
        }
    }
}

impl Drop for Worker {
    /// Sends the answer to the last request, such as the 500 of one that a panic has dropped.
    fn drop(&mut self) {
        if let Some(id) = self.handed_out.take() {
            self.with_entry(id, |entry, pass| entry.connection.take_back(pass));
        }
        self.pass.shared.workers[self.pass.worker].inbox.close();
    }
}

#[cfg(test)]
#[path = "worker_tests.rs"]
mod tests;
