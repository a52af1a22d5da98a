//! Where connections wait without a worker: for a request, for the rest of one, for room to send, for what is to be thrown away, or for
//! nothing but a worker. One look at all of them tells who has waited too long. Knows when, and nothing of what is sent.

use std::collections::HashMap;
use std::io;
use std::mem::take;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};

use crate::connection::{Connection, DRAIN_TIME};
use crate::context::Limits;
use crate::wait::{Wait, Waits};

/// Bytes of half-received requests, and of half-sent responses, kept for all waiting connections together; above it the ones that hold most
/// are hung up.
///
/// It is 250 of the largest requests, or 8,000 of the usual ones.
const HELD_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Bytes of all versions of the list that responses under way are sent from, however often the list changes meanwhile.
const PINNED_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Versions of a list that may be under way however long it is: what readers are just taking, and what is read next.
const VERSIONS_AT_LEAST: usize = 4;

/// When there is no room for another connection, one that has sent no request yet, or not all of it, or has not taken its response, may be
/// hung up after this long.
const GRACE_WHEN_CROWDED: Duration = Duration::from_secs(2);

/// A client that sends one request after the other is not silent for longer; it is told of the service's end with its next response.
const PAUSE_OF_BUSY_CLIENTS: Duration = Duration::from_secs(1);

/// The waiting connections, each with its descriptor armed in one epoll instance.
pub(crate) struct WaitingRoom {
    /// Tells the accept loop which of them can go on.
    epoll: OwnedFd,
    /// Who waits, by descriptor.
    places: Mutex<HashMap<RawFd, Connection>>,
    /// Who waits for nothing but a worker, in the order they came.
    queue: Mutex<Vec<Connection>>,
    /// Becomes readable when somebody queues.
    queued: OwnedFd,
}

impl WaitingRoom {
    /// An empty room.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub(crate) fn new() -> io::Result<Self> {
        let queued = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { epoll: epoll::create(CreateFlags::CLOEXEC)?, places: Mutex::default(), queue: Mutex::default(), queued })
    }

    /// Readable when somebody waits for nothing but a worker, who is to be had from [`WaitingRoom::take_queue`].
    pub(crate) fn queued(&self) -> BorrowedFd<'_> {
        self.queued.as_fd()
    }

    /// Takes out those that wait for nothing but a worker.
    pub(crate) fn take_queue(&self) -> Vec<Connection> {
        // Nothing to read means that it has been noted already.
        let _ = rustix::io::read(&self.queued, &mut [0; 8]);
        take(&mut *self.queue.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Lets a connection wait for nothing but a worker.
    fn queue(&self, connection: Connection) -> io::Result<()> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        // The event's counter would have to stand at 2^64 - 2 to fail.
        Ok(rustix::io::write(&self.queued, &1_u64.to_ne_bytes()).map(drop)?)
    }

    /// The epoll instance; connections' events carry their descriptor as data.
    pub(crate) fn epoll(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Lets a connection wait; it leaves by [`WaitingRoom::take`], once, or by a sweep. `is_new` before its first wait.
    ///
    /// # Errors
    /// When the kernel has no memory to watch another descriptor; the connection is closed then.
    pub(crate) fn admit(&self, connection: Connection, is_new: bool) -> io::Result<()> {
        let wanted = match connection.waits().what {
            Wait::First | Wait::Request | Wait::Rest | Wait::Drain => EventFlags::IN,
            Wait::Room => EventFlags::OUT,
            // its end is told in any case
            Wait::Delivery => EventFlags::empty(),
            Wait::Turn | Wait::Saver => return self.queue(connection),
        };
        let descriptor = connection.as_fd().as_raw_fd();
        let data = EventData::new_u64(descriptor as u64);
        // armed while the lock is held: until then nobody else can take the connection, and so close its descriptor
        let mut places = self.places();
        let place = places.entry(descriptor).insert_entry(connection);
        let watched = place.get().as_fd();
        let flags = wanted | EventFlags::ONESHOT;
        let armed = if is_new { epoll::add(&self.epoll, watched, data, flags) } else { epoll::modify(&self.epoll, watched, data, flags) };
        if armed.is_err() {
            drop(place.remove());
        }
        Ok(armed?)
    }

    /// Takes out the connection with this descriptor, if it still waits.
    pub(crate) fn take(&self, descriptor: RawFd) -> Option<Connection> {
        self.places().remove(&descriptor)
    }

    /// Takes out those that have waited too long.
    pub(crate) fn overdue(&self, now: Instant, limits: &Limits) -> Vec<Connection> {
        let is_overdue = |connection: &mut Connection| {
            let Waits { what, since, .. } = *connection.waits();
            let waited = now.duration_since(since);
            match what {
                Wait::First => waited >= limits.request_timeout && !has_request(connection),
                Wait::Request => waited >= limits.keep_alive && !has_request(connection),
                Wait::Rest => waited >= limits.request_timeout,
                Wait::Room => waited >= limits.request_timeout && !connection.has_taken_some(now),
                Wait::Drain => waited >= DRAIN_TIME && (waited >= limits.request_timeout || connection.is_delivered()),
                Wait::Delivery => waited >= limits.request_timeout || connection.is_delivered(),
                // these are in the queue, and the client does not keep them there
                Wait::Turn | Wait::Saver => false,
            }
        };
        self.places().extract_if(|_, connection| is_overdue(connection)).map(|(_, connection)| connection).collect()
    }

    /// Takes out those that hold most, as long as all together hold more than [`HELD_BYTES_MAX`].
    pub(crate) fn heaviest(&self) -> Vec<Connection> {
        let mut places = self.places();
        let mut holders: Vec<(usize, RawFd)> = places.iter().map(|(descriptor, connection)| (connection.held(), *descriptor)).collect();
        let mut held: usize = holders.iter().map(|(bytes, _)| bytes).sum();
        let mut out = Vec::new();
        if held > HELD_BYTES_MAX {
            holders.sort_unstable();
        }
        while held > HELD_BYTES_MAX
            && let Some((bytes, descriptor)) = holders.pop()
        {
            held -= bytes;
            out.extend(places.remove(&descriptor));
        }
        out
    }

    /// Takes out those whose responses keep old versions of the list in memory, the longest waiting first, as long as all versions together
    /// take more than [`PINNED_BYTES_MAX`], and more than a few of the longest.
    pub(crate) fn pinning(&self) -> Vec<Connection> {
        let mut places = self.places();
        let mut versions: HashMap<usize, (Instant, usize)> = HashMap::new();
        for (connection, (address, bytes)) in places.values().filter_map(|connection| Some((connection, connection.pinned()?))) {
            let (since, _) = versions.entry(address).or_insert((connection.waits().since, bytes));
            *since = (*since).min(connection.waits().since);
        }
        let mut pinned: usize = versions.values().map(|(_, bytes)| bytes).sum();
        let longest = versions.values().map(|(_, bytes)| *bytes).max().unwrap_or_default();
        let allowed = PINNED_BYTES_MAX.max(VERSIONS_AT_LEAST * longest);
        let mut by_age: Vec<(Instant, usize, usize)> =
            versions.iter().map(|(address, (since, bytes))| (*since, *address, *bytes)).collect();
        by_age.sort_unstable();
        let mut out = Vec::new();
        for (_, address, bytes) in by_age {
            if pinned <= allowed {
                break;
            }
            pinned -= bytes;
            out.extend(places.extract_if(|_, connection| connection.pinned().is_some_and(|(pinned, _)| pinned == address)));
        }
        out.into_iter().map(|(_, connection)| connection).collect()
    }

    /// Takes out up to `count` connections to make room for others: those to which nothing is owed, and which owe nothing, the longest waiting
    /// first, and after them those that have owed a request, or the taking of a response, for some seconds, however little they got on.
    pub(crate) fn make_room(&self, now: Instant, count: usize) -> Vec<Connection> {
        let mut places = self.places();
        let mut may_go: Vec<(bool, Instant, RawFd)> = places
            .iter()
            .map(|(descriptor, connection)| (connection.waits().what, connection.waits().in_debt_since, *descriptor))
            .filter(|(wait, since, _)| *wait == Wait::Request || now.duration_since(*since) >= GRACE_WHEN_CROWDED)
            .map(|(wait, since, descriptor)| (matches!(wait, Wait::First | Wait::Rest | Wait::Room), since, descriptor))
            .collect();
        may_go.sort_unstable();
        let silent = may_go.iter().map(|(_, _, descriptor)| descriptor).filter(|descriptor| !has_request(&places[descriptor]));
        let going: Vec<RawFd> = silent.copied().take(count).collect();
        going.iter().filter_map(|descriptor| places.remove(descriptor)).collect()
    }

    /// Takes out those that have sent nothing for a moment: nothing is owed to them. The others may just be sending another request.
    pub(crate) fn dismiss_idle(&self, now: Instant) -> Vec<Connection> {
        let is_idle =
            |waits: &Waits| matches!(waits.what, Wait::First | Wait::Request) && now.duration_since(waits.since) >= PAUSE_OF_BUSY_CLIENTS;
        let is_silent = |connection: &Connection| is_idle(connection.waits()) && !has_request(connection);
        self.places().extract_if(|_, connection| is_silent(connection)).map(|(_, connection)| connection).collect()
    }

    /// The lock on the places; nothing that is done under it can leave them half changed.
    fn places(&self) -> MutexGuard<'_, HashMap<RawFd, Connection>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a connection that waits for a request has one, of which the accept loop has yet to hear: that one is not idle.
fn has_request(connection: &Connection) -> bool {
    let waits_for_one = matches!(connection.waits().what, Wait::First | Wait::Request);
    waits_for_one && rustix::io::ioctl_fionread(connection).is_ok_and(|bytes| bytes > 0)
}
