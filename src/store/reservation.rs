//! Memory for lists on their way into the store: a request becomes many times its length, so not
//! all may do so at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// What a list takes, as a multiple of its JSON: 176 bytes for the shortest color, which has 24 in
/// JSON.
const MEMORY_FACTOR: usize = 8;

/// How much is reserved.
#[derive(Debug)]
pub(super) struct Reservations {
    /// Bytes of memory for all of them together.
    bytes_max: usize,
    reserved: Arc<AtomicUsize>,
}

/// Memory for one list, until it is dropped.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reservation(
    #[expect(dead_code, reason = "it is there to be dropped")] Arc<Reserved>,
);

#[derive(Debug, Default)]
struct Reserved {
    all: Arc<AtomicUsize>,
    bytes: usize,
}

impl Reservations {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, reserved: Arc::default() }
    }

    /// Reserves memory for a list with so many bytes of JSON, if there is enough. A single one is
    /// always let through, however long it is.
    pub(super) fn reserve(&self, json: usize) -> Option<Reservation> {
        let bytes = json * MEMORY_FACTOR;
        let enough =
            |used: usize| (used == 0 || used + bytes <= self.bytes_max).then_some(used + bytes);
        self.reserved.fetch_update(Relaxed, Relaxed, enough).ok()?;
        Some(Reservation(Arc::new(Reserved { all: Arc::clone(&self.reserved), bytes })))
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_always_let_through_and_more_as_long_as_there_is_memory() {
        let reservations = Reservations::new(32 * 1024 * 1024);
        let reserve = |bytes| reservations.reserve(bytes);
        let long = reserve(16 * 1024 * 1024).unwrap();
        assert!(reserve(1).is_none());
        let copy = long.clone();
        drop(long);
        assert!(reserve(1).is_none());
        drop(copy);
        let some: Vec<_> = std::iter::from_fn(|| reserve(1024 * 1024)).collect();
        assert_eq!(some.len(), 4);
        drop(some);
        assert!(reserve(16 * 1024 * 1024).is_some());
    }
}
