//! The connections that a worker attends to by turns: those whose clients have just been answered, and are likely to ask for more.
//!
//! A thread that waits for one client at a time has to be woken for each request, which costs more than the answer. So there are a few
//! circles, about one a processor, each with a thread and an epoll instance of its own while it has members, and one wake-up serves all
//! that can go on. A member that is silent for a moment leaves for the [`crate::waiting::WaitingRoom`]. Nothing done for a member waits for
//! a client or for the disk; the one exception is a member without company, for whom the thread waits in the receiving itself.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use crate::connection::{Connection, Manner, Wait};
use crate::context::Context;
use crate::listen::PATIENCE;

/// Members attended to between two looks at what else has happened.
const TURNS_IN_A_ROW: usize = 64;

/// Turns that a member takes without company before the worker waits for it alone: clients that open many connections at once are given
/// time to do so, and all circles their share of them.
const TURNS_ALONE: usize = 16;

/// All circles.
pub(crate) struct Circles {
    /// Each is idle or has a worker.
    all: Vec<Circle>,
    /// Members of all of them together.
    members: AtomicUsize,
    /// Whether their workers wait for the disk, since there is no other worker to do that.
    may_save: bool,
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
    /// Circles of nobody: one a processor, and two at least, but no more than half as many as there may be workers.
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
        Ok(Self { all: (0..count).map(circle).collect::<io::Result<_>>()?, members: AtomicUsize::new(0), may_save: workers_max == 1 })
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
        let wanted = if connection.waits().0 == Wait::Room { EventFlags::OUT } else { EventFlags::IN };
        // watched while the lock is held: the event finds the connection at the door
        epoll::add(&circle.epoll, &connection, EventData::new_u64(connection.as_fd().as_raw_fd() as u64), wanted)?;
        door.arrivals.push(connection);
        circle.members.fetch_add(1, Relaxed);
        self.members.fetch_add(1, Relaxed);
        Ok((!std::mem::replace(&mut door.is_attended, true)).then_some(Unattended(index)))
    }

    /// The circle to join: the one with the fewest members.
    fn choose(&self) -> (usize, &Circle) {
        let crowd = |(_, circle): &(usize, &Circle)| (circle.is_private.load(Relaxed), circle.members.load(Relaxed));
        self.all.iter().enumerate().min_by_key(crowd).expect("there is a circle")
    }

    /// Attends to a circle until nobody is left in it; has those who go on elsewhere `leave`.
    pub(crate) fn attend(&self, Unattended(index): Unattended, context: &Context, leave: &dyn Fn(Connection)) {
        let round = Round { circles: self, circle: &self.all[index], context, leave };
        // a panic costs the members their connections, and not the circle its worker
        while catch_unwind(AssertUnwindSafe(|| round.run())).is_err() {
            round.recount();
        }
    }
}

impl Circle {
    /// The lock on the door; nothing that can panic is done under it.
    fn door(&self) -> MutexGuard<'_, Door> {
        self.door.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A worker's stay with a circle.
struct Round<'a> {
    /// All circles.
    circles: &'a Circles,
    /// This one.
    circle: &'a Circle,
    /// What requests are answered from.
    context: &'a Context,
    /// Takes those who go on elsewhere.
    leave: &'a dyn Fn(Connection),
}

impl Round<'_> {
    /// Attends to the members until there are none.
    fn run(&self) {
        let mut members: HashMap<RawFd, Connection> = HashMap::new();
        let mut events = Vec::with_capacity(TURNS_IN_A_ROW);
        let mut last_look = Instant::now();
        let mut turns_alone = 0;
        loop {
            turns_alone = if members.len() == 1 && self.may_be_private() { turns_alone + 1 } else { 0 };
            if turns_alone > TURNS_ALONE {
                self.attend_to_one(&mut members);
                turns_alone = 0;
            }
            if members.is_empty() && self.is_over() {
                return;
            }
            events.clear();
            // Interrupted or not: what is ready is seen now or the next time.
            let _ =
                epoll::wait(&self.circle.epoll, rustix::buffer::spare_capacity(&mut events), Timespec::try_from(PATIENCE).ok().as_ref());
            let now = Instant::now();
            self.take_in(&mut members);
            for event in &events {
                self.attend_to(event.data.u64() as RawFd, &mut members, now);
            }
            if now.duration_since(last_look) >= PATIENCE || self.context.is_stopping() {
                last_look = now;
                let silent = members.extract_if(|_, member| self.context.is_stopping() || now.duration_since(member.waits().1) >= PATIENCE);
                silent.for_each(|(_, member)| self.part(member));
            }
        }
    }

    /// Takes in who has come to the door. After an event of somebody there, this finds them.
    fn take_in(&self, members: &mut HashMap<RawFd, Connection>) {
        let arrivals = std::mem::take(&mut self.circle.door().arrivals);
        members.extend(arrivals.into_iter().map(|connection| (connection.as_fd().as_raw_fd(), connection)));
    }

    /// Gives a member its turn.
    fn attend_to(&self, descriptor: RawFd, members: &mut HashMap<RawFd, Connection>, now: Instant) {
        let Some(member) = members.get_mut(&descriptor) else { return };
        let is_watched_for_requests = member.waits().0 != Wait::Room;
        match member.turn(self.context, Manner { may_wait: &|| false, may_save: self.circles.may_save }, Some(now)) {
            Ok(Wait::Request | Wait::Rest) if is_watched_for_requests => {}
            Ok(_) => self.part_with(descriptor, members),
            Err(_) => self.close(descriptor, members),
        }
    }

    /// Attends to the one member there is, until it is silent or has company.
    fn attend_to_one(&self, members: &mut HashMap<RawFd, Connection>) {
        {
            let door = self.circle.door();
            if !door.arrivals.is_empty() {
                return;
            }
            self.circle.is_private.store(true, Relaxed);
        }
        let Some((&descriptor, member)) = members.iter_mut().next() else { return };
        let turn = member.turn(self.context, Manner { may_wait: &|| self.may_be_private(), may_save: self.circles.may_save }, None);
        self.circle.is_private.store(false, Relaxed);
        match turn {
            Ok(Wait::Request) if !self.may_be_private() => {}
            Ok(_) => self.part_with(descriptor, members),
            Err(_) => self.close(descriptor, members),
        }
    }

    /// Whether the worker may wait for its one member alone: others have a circle to go to.
    fn may_be_private(&self) -> bool {
        self.circle.members.load(Relaxed) == 1 && self.circles.members.load(Relaxed) < self.circles.all.len()
    }

    /// Lets a member go on elsewhere.
    fn part_with(&self, descriptor: RawFd, members: &mut HashMap<RawFd, Connection>) {
        if let Some(member) = members.remove(&descriptor) {
            self.part(member);
        }
    }

    /// Lets go on elsewhere who is no member any more.
    fn part(&self, member: Connection) {
        // It is watched, so this does not fail.
        let _ = epoll::delete(&self.circle.epoll, &member);
        self.count_out(1);
        (self.leave)(member);
    }

    /// Closes a member's connection, which is over.
    fn close(&self, descriptor: RawFd, members: &mut HashMap<RawFd, Connection>) {
        self.count_out(members.remove(&descriptor).map_or(0, |_| 1));
    }

    /// Takes some members off the count.
    fn count_out(&self, count: usize) {
        self.circle.members.fetch_sub(count, Relaxed);
        self.circles.members.fetch_sub(count, Relaxed);
    }

    /// Counts again after members were lost: those at the door are all there are.
    fn recount(&self) {
        self.circle.is_private.store(false, Relaxed);
        let door = self.circle.door();
        self.count_out(self.circle.members.load(Relaxed).saturating_sub(door.arrivals.len()));
    }

    /// Ends the worker's stay, unless there is somebody at the door.
    fn is_over(&self) -> bool {
        let mut door = self.circle.door();
        door.is_attended = !door.arrivals.is_empty();
        !door.is_attended
    }
}
