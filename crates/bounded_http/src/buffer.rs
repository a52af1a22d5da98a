//! Short buffers that are used again, so that most requests and responses need no new memory.

use std::cell::Cell;
use std::thread::LocalKey;

/// Largest capacity, in bytes, of a buffer that is kept.
const KEPT_BYTES_MAX: usize = 1024;

thread_local! {
    /// For a head.
    pub(super) static HEAD: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    /// For the field lines of a response.
    pub(super) static LINES: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A buffer, which is empty.
pub(super) fn take(kept: &'static LocalKey<Cell<Vec<u8>>>) -> Vec<u8> {
    // It fails while the thread ends.
    kept.try_with(Cell::take).unwrap_or_default()
}

/// Takes back a buffer that is not needed any more.
pub(super) fn give_back(kept: &'static LocalKey<Cell<Vec<u8>>>, mut buffer: Vec<u8>) {
    if buffer.capacity() <= KEPT_BYTES_MAX {
        buffer.clear();
        // It fails while the thread ends.
        let _ = kept.try_with(|kept| kept.set(buffer));
    }
}
