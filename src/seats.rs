//! How many connections there are, and may be: each holds a seat for as long as it lives, however it ends. Knows nothing of what they do.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use rustix::event::{EventfdFlags, eventfd};

/// Most connections at a time: several times what a small host serves; idle ones take about 4 KiB each in the process.
const CONNECTIONS_MAX: usize = 8192;

/// Descriptors that are no connection's: standard streams, the accept loop's epoll instance, events, signals, files being saved.
const DESCRIPTORS_RESERVED: usize = 32;

/// All seats.
#[derive(Debug)]
pub(crate) struct Seats {
    /// How many are taken.
    taken: AtomicUsize,
    /// Whether somebody wants to hear of the next one that becomes free.
    is_awaited: AtomicBool,
    /// Becomes readable then.
    freed: OwnedFd,
}

/// One seat; free again when dropped.
#[derive(Debug)]
pub(crate) struct Seat(Arc<Seats>);

impl Seats {
    /// No seat taken.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub(crate) fn new() -> io::Result<Arc<Self>> {
        let freed = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Arc::new(Self { taken: AtomicUsize::new(0), is_awaited: AtomicBool::new(false), freed }))
    }

    /// Takes a seat.
    pub(crate) fn take(self: &Arc<Self>) -> Seat {
        self.taken.fetch_add(1, SeqCst);
        Seat(Arc::clone(self))
    }

    /// How many are taken.
    pub(crate) fn taken(&self) -> usize {
        self.taken.load(SeqCst)
    }

    /// Asks for word of the next seat that becomes free: [`Seats::freed`] becomes readable. Ask first, count then.
    pub(crate) fn await_free(&self) {
        self.is_awaited.store(true, SeqCst);
    }

    /// Readable when a seat became free since it was last asked for.
    pub(crate) fn freed(&self) -> BorrowedFd<'_> {
        self.freed.as_fd()
    }

    /// Takes note that a seat became free.
    pub(crate) fn note_freed(&self) {
        // Nothing to read means that it has been noted already.
        let _ = rustix::io::read(self.freed(), &mut [0; 8]);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, SeqCst);
        if self.0.is_awaited.swap(false, SeqCst) {
            // The event's counter would have to stand at 2^64 - 2 to fail.
            let _ = rustix::io::write(self.0.freed(), &1_u64.to_ne_bytes());
        }
    }
}

/// The number of connections for which the process may have descriptors beside those of its listeners and circles, at most
/// [`CONNECTIONS_MAX`]; raises the limit as far as it goes.
pub(crate) fn at_most(others: usize) -> usize {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // A process that may not raise its limit makes do with what it has.
    let _ = setrlimit(Resource::Nofile, rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum });
    let descriptors = getrlimit(Resource::Nofile).current.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
    // tiny_http keeps two descriptors for each
    (descriptors.saturating_sub(DESCRIPTORS_RESERVED + others) / 2).clamp(1, CONNECTIONS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_readable(seats: &Seats) -> bool {
        rustix::io::read(seats.freed(), &mut [0; 8]).is_ok()
    }

    #[test]
    fn a_seat_is_taken_until_it_is_dropped() {
        let seats = Seats::new().unwrap();
        let (first, second) = (seats.take(), seats.take());
        assert_eq!(seats.taken(), 2);
        drop(first);
        assert_eq!(seats.taken(), 1);
        assert!(!is_readable(&seats));
        seats.await_free();
        drop(second);
        assert!(is_readable(&seats));
        assert_eq!(seats.taken(), 0);
    }
}
