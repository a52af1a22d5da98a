//! The accept loop: takes connections in, lets them wait, and hands a worker each one that can go on. Answers no request itself.
//!
//! A connection is with a worker only while there is something to do for it, so that one which sends slowly, or nothing, or takes no
//! response, costs a place in the [`WaitingRoom`] and no thread. The loop looks at all places several times a second and ends what has
//! waited too long. How many places there are follows from the descriptors that the process may have.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec};
use threadpool::ThreadPool;

use crate::circle::{Circles, Unattended};
use crate::connection::{Connection, Manner};
use crate::context::Context;
use crate::inlet::Inlet;
use crate::listen::Listening;
use crate::memory;
use crate::refusal::Refusal;
use crate::savers::{self, Savers};
use crate::seats::{self, Seats};
use crate::supervisor::Supervisor;
use crate::wait::Wait;
use crate::waiting::WaitingRoom;

/// How often the waiting connections are looked at, while there are any, or threads to let go.
const TICK: Duration = Duration::from_millis(100);

/// How long the end may take: what is not answered by then is cut off.
const STOP_TIME: Duration = Duration::from_secs(4);

/// How long, at the end, those are still taken in whose connection the kernel has accepted.
const LAST_ACCEPTS: Duration = Duration::from_secs(2);

/// How long the listeners are left alone when the system has no descriptor or memory for a connection.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Connections accepted in a row before those that can go on get their turn.
const ACCEPTS_IN_A_ROW: usize = 64;

/// Connections that leave so much memory behind that it is given back to the system when three quarters of them have gone.
const CROWD: usize = 64;

/// How long memory is kept at least after some was given back.
const GIVE_BACK_AGAIN: Duration = Duration::from_secs(2);

/// Event data of a connection's end; descriptors are below, listeners above.
const FREED: u64 = 1 << 32;

/// Event data of the descriptor that becomes readable when the service has to stop.
const STOP: u64 = FREED + 1;

/// Event data of the descriptor that becomes readable when a connection waits for nothing but a worker.
const QUEUED: u64 = FREED + 2;

/// Event data of the first listener.
const LISTENERS: u64 = FREED + 3;

/// Whether connections are taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    /// They are.
    Open,
    /// Somebody waits in the kernel until there is room.
    Full,
    /// Not before this time: the system had no descriptor or memory for one.
    Failed(Instant),
}

/// The accept loop's own state.
pub(crate) struct Server {
    /// Shared with the workers.
    shared: Arc<Shared>,
    /// The threads that attend to circles, one each.
    attendants: ThreadPool,
    /// Most connections there were since memory was given back.
    crowd: usize,
    /// When that was.
    gave_back: Instant,
    /// The threads that wait for the disk, if there is something to wait for.
    savers: Option<Savers>,
    /// Where connections come from.
    listening: Vec<Listening>,
    /// Most connections at a time.
    connections_max: usize,
    /// Whether the listeners are looked after.
    gate: Gate,
    /// Whom to tell how things go.
    supervisor: Supervisor,
}

/// What workers need to give a connection back.
struct Shared {
    /// What they answer from.
    context: Arc<Context>,
    /// Where connections wait.
    waiting: WaitingRoom,
    /// Where those are that are attended to.
    circles: Circles,
    /// Counts the connections accepted and not closed yet.
    seats: Arc<Seats>,
    /// Connections that wait for a worker of their own.
    queued: AtomicUsize,
    /// Connections that have one.
    saving: AtomicUsize,
    /// Most there may be.
    savers_max: usize,
}

impl Server {
    /// A server for these listeners; ready to run.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub(crate) fn new(context: Arc<Context>, listening: Vec<Listening>, stop: BorrowedFd<'_>) -> io::Result<Self> {
        let waiting = WaitingRoom::new()?;
        let seats = Seats::new()?;
        epoll::add(waiting.epoll(), seats.freed(), EventData::new_u64(FREED), EventFlags::IN)?;
        epoll::add(waiting.epoll(), waiting.queued(), EventData::new_u64(QUEUED), EventFlags::IN)?;
        // told once: what is to be read there stays unread
        epoll::add(waiting.epoll(), stop, EventData::new_u64(STOP), EventFlags::IN | EventFlags::ONESHOT)?;
        for (data, listening) in (LISTENERS..).zip(&listening) {
            epoll::add(waiting.epoll(), &listening.listener, EventData::new_u64(data), EventFlags::IN)?;
        }
        let circles = Circles::new(context.limits.workers_max)?;
        let attendants = savers::pool_of(circles.count(), "circle")?;
        let savers_max = (context.limits.workers_max - circles.count()).max(1);
        let savers = context.service.store.is_durable().then(|| Savers::new(savers_max)).transpose()?;
        let connections_max = seats::at_most(listening.len() + circles.count());
        let shared =
            Arc::new(Shared { context, waiting, circles, seats, queued: AtomicUsize::new(0), saving: AtomicUsize::new(0), savers_max });
        Ok(Self {
            shared,
            attendants,
            savers,
            crowd: 0,
            gave_back: Instant::now(),
            listening,
            connections_max,
            gate: Gate::Open,
            supervisor: Supervisor::from_env(),
        })
    }

    /// Serves until told to stop, then finishes what is under way.
    ///
    /// # Errors
    /// When the kernel fails to tell what happens on the sockets.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut last_tick = Instant::now();
        self.supervisor.ready(self.shared.context.service.store.len());
        while !self.turn(&mut last_tick)? {}
        self.stop(&mut last_tick)
    }

    /// Waits for something to happen and deals with it; says whether the service has to stop.
    fn turn(&mut self, last_tick: &mut Instant) -> io::Result<bool> {
        let mut events = Vec::with_capacity(256); // events taken at once; the rest come with the next turn
        let patience = self.patience();
        match epoll::wait(self.shared.waiting.epoll(), rustix::buffer::spare_capacity(&mut events), patience.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let (mut stop, mut listeners) = (false, Vec::new());
        for event in &events {
            match event.data.u64() {
                STOP => stop = true,
                FREED => self.shared.seats.note_freed(),
                QUEUED => self.shared.waiting.take_queue().into_iter().for_each(|connection| self.dispatch(connection)),
                data if data >= LISTENERS => listeners.push((data - LISTENERS) as usize),
                // below FREED, so it is a descriptor
                descriptor => {
                    if let Some(connection) = self.shared.waiting.take(descriptor as i32) {
                        self.dispatch(connection);
                    }
                }
            }
        }
        // after all who can go on: a newcomer may get the descriptor of one who is hung up for it
        for listener in listeners {
            self.accept(listener);
        }
        let now = Instant::now();
        if now.duration_since(*last_tick) >= TICK {
            *last_tick = now;
            self.tick(now);
        }
        let may_open = match self.gate {
            Gate::Open => false,
            Gate::Full => !self.is_full(),
            Gate::Failed(until) => until <= now,
        };
        if may_open {
            self.open();
        }
        self.supervisor.turn(now, self.shared.context.service.store.try_len());
        Ok(stop)
    }

    /// How long to wait for something to happen: a tick while there are connections to look after, or threads or memory to let go, else as
    /// the supervisor has it.
    fn patience(&self) -> Option<Timespec> {
        let may_give_back = self.crowd >= CROWD || self.savers.as_ref().is_some_and(Savers::are_many);
        let has_to_tick = self.shared.seats.taken() > 0 || self.gate != Gate::Open || may_give_back;
        let supervisor = || self.supervisor.patience(Instant::now(), self.shared.context.service.store.try_len());
        let time_out = if has_to_tick { Some(TICK) } else { supervisor() };
        // what is too long for the system is as good as forever
        time_out.and_then(|time| Timespec::try_from(time).ok())
    }

    /// Takes in connections that a listener has, some at a time.
    fn accept(&mut self, listener: usize) {
        for _ in 0..ACCEPTS_IN_A_ROW {
            let Some(listening) = self.listening.get(listener) else { return };
            if self.is_full() {
                // nobody's trouble before there is somebody at the door
                if has_newcomer(listening) {
                    self.shut(Gate::Full);
                    self.make_room(Instant::now());
                }
                return;
            }
            // the standard library's reader for tiny_http may fail to get its second descriptor, which tiny_http does not expect
            let accepted = std::panic::catch_unwind(|| {
                let inlet = Inlet::accept(&listening.listener)?;
                listening.prepare_accepted(&inlet).map(|()| inlet)
            });
            match accepted.unwrap_or_else(|_| Err(io::Error::other("no descriptor left for a connection"))) {
                Ok(inlet) => {
                    let seat = self.shared.seats.take();
                    self.shared.wait(Connection::new(inlet, listening.endpoint.is_loopback(), seat), true);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // the client has gone before its turn came
                Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted) => {}
                Err(error) => {
                    log::warn!("cannot accept connections for the moment: {error}");
                    return self.shut(Gate::Failed(Instant::now() + ACCEPT_AGAIN));
                }
            }
        }
    }

    /// Whether there is no room for another connection.
    fn is_full(&self) -> bool {
        self.shared.seats.taken() >= self.connections_max
    }

    /// Hangs up some connections in favor of those that the kernel holds. They are told why, and not waited for: their seats are wanted.
    fn make_room(&self, now: Instant) {
        // an eighth at a time, so that a burst of newcomers does not wait a turn each
        for connection in self.shared.waiting.make_room(now, self.connections_max.div_ceil(8)) {
            drop(connection.end(&Refusal::NoRoom, &self.shared.context));
        }
    }

    /// Leaves the listeners alone; the kernel holds their connections.
    fn shut(&mut self, gate: Gate) {
        self.watch_listeners(EventFlags::empty());
        self.set_gate(gate);
        self.shared.seats.await_free();
    }

    /// Takes connections in again.
    fn open(&mut self) {
        self.watch_listeners(EventFlags::IN);
        self.set_gate(Gate::Open);
    }

    /// Notes whether connections are taken in, also for the workers.
    fn set_gate(&mut self, gate: Gate) {
        self.gate = gate;
        self.shared.context.signs.crowded.store(gate == Gate::Full, Relaxed);
    }

    /// Sets what is wanted to know of the listeners.
    fn watch_listeners(&self, flags: EventFlags) {
        for (data, listening) in (LISTENERS..).zip(&self.listening) {
            epoll::modify(self.shared.waiting.epoll(), &listening.listener, EventData::new_u64(data), flags)
                .expect("a watched listener stays watched until it is closed");
        }
    }

    /// Hands a connection to a worker: one that attends to others as well, unless it needs one of its own.
    fn dispatch(&mut self, connection: Connection) {
        let shared = Arc::clone(&self.shared);
        let savers = match &mut self.savers {
            Some(savers) if matches!(connection.waits().what, Wait::Turn | Wait::Saver) => savers,
            _ => {
                return match shared.circles.join(connection) {
                    Ok(Some(unattended)) => self.attendants.execute(move || shared.attend(unattended)),
                    Ok(None) => {}
                    Err(error) => log::warn!("closed a connection that cannot be watched: {error}"),
                };
            }
        };
        let bytes = connection.held();
        shared.context.signs.queued_bytes.fetch_add(bytes, Relaxed);
        shared.queued.fetch_add(1, Relaxed);
        savers.execute(move || {
            shared.context.signs.queued_bytes.fetch_sub(bytes, Relaxed);
            shared.queued.fetch_sub(1, Relaxed);
            shared.serve(connection);
        });
    }

    /// Ends what has waited too long or holds too much, and sees how things stand.
    fn tick(&mut self, now: Instant) {
        let shared = Arc::clone(&self.shared);
        shared.end(shared.waiting.overdue(now, &shared.context.limits), &Refusal::Timeout);
        shared.end(shared.waiting.heaviest(), &Refusal::NoRoom);
        shared.end(shared.waiting.pinning(), &Refusal::NoRoom);
        if self.gate == Gate::Full {
            if self.listening.iter().any(has_newcomer) { self.make_room(now) } else { self.open() }
        }
        let crowd = shared.seats.taken();
        let is_crowd_gone = self.crowd >= CROWD && 4 * crowd < self.crowd && now.duration_since(self.gave_back) >= GIVE_BACK_AGAIN;
        if self.savers.as_mut().is_some_and(|savers| savers.shrink(now)) || is_crowd_gone {
            memory::give_back();
            (self.crowd, self.gave_back) = (crowd, now);
        }
        self.crowd = self.crowd.max(crowd);
    }

    /// Finishes what is under way, for [`STOP_TIME`] at most.
    fn stop(mut self, last_tick: &mut Instant) -> io::Result<()> {
        let begun = Instant::now();
        self.shared.context.service.is_stopping.store(true, Relaxed);
        self.supervisor.stopping();
        self.listening.iter_mut().for_each(Listening::unlink);
        // those whose connection the kernel has accepted already are clients like the others, also if there is no room for them yet
        while begun.elapsed() < LAST_ACCEPTS && self.listening.iter().any(has_newcomer) {
            drop(self.shared.waiting.dismiss_idle(Instant::now()));
            self.turn(last_tick)?;
        }
        for listening in self.listening.drain(..) {
            // a listener that another process holds as well would be watched on, and tell of clients who are that one's
            epoll::delete(self.shared.waiting.epoll(), &listening.listener)?;
        }
        self.set_gate(Gate::Open);
        loop {
            self.shared.seats.await_free();
            drop(self.shared.waiting.dismiss_idle(Instant::now()));
            if self.shared.seats.taken() == 0 || begun.elapsed() >= STOP_TIME {
                break;
            }
            self.turn(last_tick)?;
        }
        let cut_off = self.shared.seats.taken();
        if cut_off > 0 {
            log::warn!("cut off {cut_off} connections that were not done {} s after the signal", STOP_TIME.as_secs());
        }
        Ok(())
    }
}

/// Whether the kernel holds a connection of this listener that was not taken in yet.
fn has_newcomer(listening: &Listening) -> bool {
    let mut polled = [PollFd::new(&listening.listener, PollFlags::IN)];
    rustix::event::poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

impl Shared {
    /// Serves one connection until it waits for something, or ends.
    fn serve(&self, mut connection: Connection) {
        self.saving.fetch_add(1, Relaxed);
        // a client that makes one change after the other keeps its worker, as long as others find one at once
        let may_wait = || self.queued.load(Relaxed) == 0 && 2 * self.saving.load(Relaxed) <= self.savers_max;
        let turn = connection.turn(&self.context, Manner { may_wait: &may_wait, may_save: true }, None);
        self.saving.fetch_sub(1, Relaxed);
        if turn.is_ok() {
            self.wait(connection, false);
        }
    }

    /// Serves the connections of a circle for as long as it has any.
    fn attend(&self, unattended: Unattended) {
        self.circles.attend(unattended, &self.context, &|connection| self.wait(connection, false));
    }

    /// Ends connections, and says why to those that have begun a request.
    fn end(&self, connections: Vec<Connection>, why: &Refusal) {
        for connection in connections {
            if let Some(drains) = connection.end(why, &self.context) {
                self.wait(drains, false);
            }
        }
    }

    /// Lets a connection wait.
    fn wait(&self, mut connection: Connection, is_new: bool) {
        connection.shrink();
        if let Err(error) = self.waiting.admit(connection, is_new) {
            log::warn!("closed a connection that cannot be watched: {error}");
        }
    }
}
