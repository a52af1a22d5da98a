//! Short buffers that are used again, so that most requests and responses need no new memory.

use std::cell::RefCell;

/// Most buffers that a thread keeps: one for a head, and one for the response to it.
const KEPT_MAX: usize = 2;

/// Largest capacity, in bytes, of a buffer that is kept.
const KEPT_BYTES_MAX: usize = 1024;

thread_local! {
    static KEPT: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// An empty buffer.
pub(super) fn take() -> Vec<u8> {
    KEPT.with_borrow_mut(Vec::pop).unwrap_or_default()
}

/// Takes back a buffer that is not needed any more.
pub(super) fn give_back(mut buffer: Vec<u8>) {
    if buffer.capacity() > KEPT_BYTES_MAX {
        return;
    }
    buffer.clear();
    // It fails while the thread ends.
    let _ = KEPT.try_with(|kept| {
        let mut kept = kept.borrow_mut();
        if kept.len() < KEPT_MAX {
            kept.push(buffer);
        }
    });
}
