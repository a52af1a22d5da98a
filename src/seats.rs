//! Counts the open connections: each holds a seat for as long as it lives, however it ends. Knows nothing of what they do.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use rustix::event::{EventfdFlags, eventfd};

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
