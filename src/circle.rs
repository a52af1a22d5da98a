//! The connections that a worker attends to by turns: all that can go on, until they are silent for a moment.
//!
//! A thread that waits for one client at a time has to be woken for each request, which costs more than the answer. So there are a few
//! circles, about one a processor, each with a thread and an epoll instance of its own while it has members, and one wake-up serves all
//! that can go on. A member that is silent leaves for the [`crate::waiting::WaitingRoom`]. Nothing done for a member waits for the disk, nor
//! for a client. A member without company is the exception: the thread waits for its client, in the receiving itself, which saves one system
//! call of three and a third of the time that a lone client waits for its answer.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::mem::{replace, take};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use crate::connection::{Connection, Manner};
use crate::context::Context;
use crate::listen::PATIENCE;
use crate::wait::{Wait, Waits};

/// Members that give way, each attended to once, between two looks at who else can go on.
const LATER_TURNS: usize = 64;

/// Turns that a member takes without company before the worker waits for it alone: clients that open many connections at once are given
/// time to do so, and all circles their share of them.
const TURNS_ALONE: usize = 16;

/// Bytes of received requests that a member keeps between two of them: more than most requests have, and all members may.
const KEPT_BYTES_MAX: usize = 16 * 1024;

/// All circles.
pub(crate) struct Circles {
    /// Each is idle or has a worker.
    all: Vec<Circle>,
    /// Members of all of them together.
    members: AtomicUsize,
}

/// One worker's connections.
struct Circle {
    /// Tells which members can go on; events carry their descriptor as data.
    epoll: OwnedFd,
    /// Who has come and was not seen by the worker yet.
    door: Mutex<Door>,
    /// How many there are, with those at the door.
    members: AtomicUsize,
    /// Whether the worker waits for its one member alone: somebody new would have to wait for that one's silence.
    is_private: AtomicBool,
}

/// Where connections come into a circle.
#[derive(Default)]
struct Door {
    /// Who has come.
    arrivals: Vec<Connection>,
    /// Whether the circle has a worker.
    is_attended: bool,
}

/// A circle that needs a worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unattended(usize);

impl Circles {
    /// Circles of nobody: one a processor, and two at least, but no more than half as many as there may be workers, and one in any case.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub(crate) fn new(workers_max: usize) -> io::Result<Self> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let count = processors.max(2).min(workers_max / 2).max(1);
        let circle = |_| {
            let epoll = epoll::create(CreateFlags::CLOEXEC)?;
            Ok(Circle { epoll, door: Mutex::default(), members: AtomicUsize::new(0), is_private: AtomicBool::new(false) })
        };
        Ok(Self { all: (0..count).map(circle).collect::<io::Result<_>>()?, members: AtomicUsize::new(0) })
    }

    /// How many circles there are.
    pub(crate) fn count(&self) -> usize {
        self.all.len()
    }

    /// Has a connection that can go on join a circle; says if a worker has to be sent there with [`Circles::attend`].
    ///
    /// # Errors
    /// When the kernel has no memory to watch another descriptor; the connection is closed then.
    pub(crate) fn join(&self, connection: Connection) -> io::Result<Option<Unattended>> {
        let (mut index, mut circle) = self.choose();
        let mut door = circle.door();
        if circle.is_private.load(Relaxed) {
            // it has become so just now, and then there is another
            drop(door);
            (index, circle) = self.choose();
            door = circle.door();
        }
        let wanted = if connection.waits().what == Wait::Room { EventFlags::OUT } else { EventFlags::IN };
        // watched while the lock is held: the event finds the connection at the door
        epoll::add(&circle.epoll, &connection, EventData::new_u64(connection.as_fd().as_raw_fd() as u64), wanted)?;
        door.arrivals.push(connection);
        circle.members.fetch_add(1, Relaxed);
        self.members.fetch_add(1, Relaxed);
        Ok((!replace(&mut door.is_attended, true)).then_some(Unattended(index)))
    }

    /// The circle to join: the one with the fewest members.
    fn choose(&self) -> (usize, &Circle) {
        let crowd = |(_, circle): &(usize, &Circle)| (circle.is_private.load(Relaxed), circle.members.load(Relaxed));
        self.all.iter().enumerate().min_by_key(crowd).expect("there is a circle")
    }

    /// Attends to a circle until nobody is left in it; has those who go on elsewhere `leave`.
    pub(crate) fn attend(&self, Unattended(index): Unattended, context: &Context, leave: &dyn Fn(Connection)) {
        let circle = &self.all[index];
        let begin = || Stay { circles: self, circle, context, leave, members: HashMap::new(), giving_way: VecDeque::new(), looks: 0 };
        // nothing is known to panic here; if something does, it costs the members their connections, and not the circle its worker
        while catch_unwind(AssertUnwindSafe(|| begin().run())).is_err() {
            circle.is_private.store(false, Relaxed);
            let door = circle.door();
            self.count_out(circle, circle.members.load(Relaxed).saturating_sub(door.arrivals.len()));
        }
    }

    /// Whether the worker of a circle may wait for its one member alone: others have a circle to go to.
    fn may_be_private(&self, circle: &Circle) -> bool {
        circle.members.load(Relaxed) == 1 && self.members.load(Relaxed) < self.all.len()
    }

    /// Takes some members of a circle off the count.
    fn count_out(&self, circle: &Circle, count: usize) {
        circle.members.fetch_sub(count, Relaxed);
        self.members.fetch_sub(count, Relaxed);
    }
}

impl Circle {
    /// The lock on the door; nothing that can panic is done under it.
    fn door(&self) -> MutexGuard<'_, Door> {
        self.door.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection in a circle.
struct Member {
    /// The connection.
    connection: Connection,
    /// When it came in or last had its turn.
    heard_at: Instant,
    /// After which look that was.
    heard_in: usize,
    /// Whether it has requests to be answered, and gave way to others.
    gives_way: bool,
    /// Whether it came for room to send, and is watched for that instead of for requests.
    wants_room: bool,
}

/// A worker's stay with a circle.
struct Stay<'a> {
    /// All circles.
    circles: &'a Circles,
    /// This one.
    circle: &'a Circle,
    /// What requests are answered from.
    context: &'a Context,
    /// Takes those who go on elsewhere.
    leave: &'a dyn Fn(Connection),
    /// Who is in it, by descriptor.
    members: HashMap<RawFd, Member>,
    /// Those of them that gave way to others, each once, in the order they did.
    giving_way: VecDeque<RawFd>,
    /// How often it was looked who can go on.
    looks: usize,
}

impl Stay<'_> {
    /// Attends to the members until there are none.
    fn run(&mut self) {
        let mut events = Vec::new();
        let mut last_sweep = Instant::now();
        let mut turns_alone = 0;
        loop {
            turns_alone = if self.members.len() == 1 && self.circles.may_be_private(self.circle) { turns_alone + 1 } else { 0 };
            if turns_alone > TURNS_ALONE {
                self.attend_to_one();
                turns_alone = 0;
            }
            if self.members.is_empty() && self.is_over() {
                return;
            }
            let now = self.look(&mut events);
            // those who ask for less come first
            for descriptor in events.iter().map(|event: &epoll::Event| event.data.u64() as RawFd) {
                if self.members.get(&descriptor).is_some_and(|member| !member.gives_way) {
                    self.attend_to(descriptor, now);
                }
            }
            for _ in 0..self.giving_way.len().min(LATER_TURNS) {
                if let Some(descriptor) = self.giving_way.pop_front() {
                    self.attend_to(descriptor, now);
                }
            }
            if now.duration_since(last_sweep) >= PATIENCE || self.context.is_stopping() {
                last_sweep = now;
                self.part_with_silent(now);
            }
        }
    }

    /// Waits until somebody can go on, and tells all who can; says what time it is then.
    fn look(&mut self, events: &mut Vec<epoll::Event>) -> Instant {
        events.clear();
        // room for all, so that none is kept from being heard by others that always have something to say
        events.reserve(self.circle.members.load(Relaxed).max(1));
        let patience = if self.giving_way.is_empty() { PATIENCE } else { Duration::ZERO };
        // Interrupted or not: what is ready is seen now or the next time.
        let _ = epoll::wait(&self.circle.epoll, rustix::buffer::spare_capacity(events), Timespec::try_from(patience).ok().as_ref());
        self.looks += 1;
        let now = Instant::now();
        self.take_in(now);
        now
    }

    /// Takes in who has come to the door. After an event of somebody there, this finds them.
    fn take_in(&mut self, now: Instant) {
        let arrivals = take(&mut self.circle.door().arrivals);
        for connection in arrivals {
            let descriptor = connection.as_fd().as_raw_fd();
            let wants_room = connection.waits().what == Wait::Room;
            self.members.insert(descriptor, Member { connection, heard_at: now, heard_in: self.looks, gives_way: false, wants_room });
        }
    }

    /// Gives a member its turn.
    fn attend_to(&mut self, descriptor: RawFd, now: Instant) {
        let Some(member) = self.members.get_mut(&descriptor) else { return };
        let Waits { what: before, since, .. } = *member.connection.waits();
        let turn = member.connection.turn(self.context, Manner { may_wait: &|| false, may_save: false }, Some(now));
        let stays = match turn {
            Ok(Wait::Rest) => before != Wait::Rest || now.duration_since(since) < PATIENCE,
            Ok(Wait::Request | Wait::Turn) => true,
            _ => false,
        };
        self.settle(descriptor, turn, stays, now);
    }

    /// Attends to the one member there is, until it is silent or has company.
    fn attend_to_one(&mut self) {
        let Some((&descriptor, member)) = self.members.iter_mut().next() else { return };
        {
            let door = self.circle.door();
            if member.gives_way || !door.arrivals.is_empty() {
                return;
            }
            self.circle.is_private.store(true, Relaxed);
        }
        let (circles, circle) = (self.circles, self.circle);
        let may_wait = || circles.may_be_private(circle);
        let turn = member.connection.turn(self.context, Manner { may_wait: &may_wait, may_save: false }, None);
        circle.is_private.store(false, Relaxed);
        // if it was not company that ended the wait, it was silence
        let stays = matches!(turn, Ok(Wait::Request) if !may_wait()) || matches!(turn, Ok(Wait::Turn));
        self.settle(descriptor, turn, stays, Instant::now());
    }

    /// Sees that a member is where its turn leaves it.
    fn settle(&mut self, descriptor: RawFd, turn: io::Result<Wait>, stays: bool, now: Instant) {
        match (turn, self.members.get_mut(&descriptor)) {
            (Ok(wait), Some(member)) if stays => {
                if replace(&mut member.wants_room, false) {
                    let data = EventData::new_u64(descriptor as u64);
                    // It is watched, so this does not fail.
                    let _ = epoll::modify(&self.circle.epoll, &member.connection, data, EventFlags::IN);
                }
                (member.heard_at, member.heard_in, member.gives_way) = (now, self.looks, wait == Wait::Turn);
                if member.gives_way {
                    self.giving_way.push_back(descriptor);
                } else if member.connection.held() > KEPT_BYTES_MAX {
                    member.connection.shrink();
                }
            }
            (Ok(_), _) => self.part_with(descriptor),
            (Err(_), _) => self.close(descriptor),
        }
    }

    /// Lets go on elsewhere who had nothing to say for a while; when the service is ending, who has nothing to say.
    fn part_with_silent(&mut self, now: Instant) {
        let is_silent = |member: &Member| {
            let is_patient = now.duration_since(member.heard_at) < PATIENCE && !self.context.is_stopping();
            // one that came in after the last look was not looked at yet
            !(member.gives_way || is_patient || self.looks == member.heard_in)
        };
        let silent: Vec<RawFd> = self.members.iter().filter(|(_, member)| is_silent(member)).map(|(descriptor, _)| *descriptor).collect();
        silent.into_iter().for_each(|descriptor| self.part_with(descriptor));
    }

    /// Lets a member go on elsewhere.
    fn part_with(&mut self, descriptor: RawFd) {
        let Some(Member { connection, .. }) = self.members.remove(&descriptor) else { return };
        // It is watched, so this does not fail.
        let _ = epoll::delete(&self.circle.epoll, &connection);
        self.circles.count_out(self.circle, 1);
        (self.leave)(connection);
    }

    /// Closes a member's connection, which is over.
    fn close(&mut self, descriptor: RawFd) {
        self.circles.count_out(self.circle, self.members.remove(&descriptor).map_or(0, |_| 1));
    }

    /// Ends the worker's stay, unless there is somebody at the door.
    fn is_over(&self) -> bool {
        let mut door = self.circle.door();
        door.is_attended = !door.arrivals.is_empty();
        !door.is_attended
    }
}

#[cfg(test)]
#[path = "circle_tests.rs"]
mod tests;
