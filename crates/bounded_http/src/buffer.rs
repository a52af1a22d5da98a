//! Short buffers that are used again, so that most requests and responses need no new memory.

use std::cell::Cell;
use std::thread::LocalKey;

/// Capacity, in bytes, of a new buffer: enough for the fields of most responses, and for the heads
/// of scripts. A thread that gets none back, since others do, needs a new one each time, which
/// would grow step by step.
const NEW_BYTES: usize = 256;

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
    match kept.try_with(Cell::take) {
        Ok(buffer) if buffer.capacity() > 0 => buffer,
        _ => Vec::with_capacity(NEW_BYTES),
    }
}

/// Takes back a buffer that is not needed any more.
pub(super) fn give_back(kept: &'static LocalKey<Cell<Vec<u8>>>, mut buffer: Vec<u8>) {
    if (NEW_BYTES..=KEPT_BYTES_MAX).contains(&buffer.capacity()) {
        buffer.clear();
        // It fails while the thread ends.
        let _ = kept.try_with(|kept| kept.set(buffer));
    }
}
