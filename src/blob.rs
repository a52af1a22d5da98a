//! Bytes with a tag, shared by the list and by all who send them.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::tag::Tag;

/// Bytes of the shortest blob of the list that is counted. A connection that holds a shorter one
/// takes more memory itself.
const COUNTED_BYTES_MIN: usize = 4096;

/// Bytes of all blobs that are counted, those that only a slow client holds included.
static COUNTED_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Bytes that any number of responses share.
#[derive(Debug)]
pub(crate) struct Blob {
    bytes: Box<[u8]>,
    /// Computed at its first use.
    tag: OnceLock<Tag>,
    /// How many of its bytes are in [`COUNTED_BYTES`].
    counted: usize,
}

impl Blob {
    pub(crate) fn new(bytes: impl Into<Box<[u8]>>) -> Self {
        Self { bytes: bytes.into(), tag: OnceLock::new(), counted: 0 }
    }

    /// The JSON of the list or of a color. Its memory counts as long as anybody holds it.
    pub(crate) fn of_list(bytes: impl Into<Box<[u8]>>) -> Self {
        let mut new = Self::new(bytes);
        if new.bytes.len() >= COUNTED_BYTES_MIN {
            new.counted = new.bytes.len();
            COUNTED_BYTES.fetch_add(new.counted, Relaxed);
        }
        new
    }

    /// Bytes of this one that count; 0 if it is short, or no part of a list.
    pub(crate) fn counted(&self) -> usize {
        self.counted
    }

    /// Bytes of all that count.
    pub(crate) fn counted_bytes() -> usize {
        COUNTED_BYTES.load(Relaxed)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn tag(&self) -> Tag {
        *self.tag.get_or_init(|| Tag::of(&self.bytes))
    }

    /// Whether the tag is computed already.
    pub(crate) fn has_tag(&self) -> bool {
        self.tag.get().is_some()
    }
}

impl Drop for Blob {
    fn drop(&mut self) {
        if self.counted > 0 {
            COUNTED_BYTES.fetch_sub(self.counted, Relaxed);
        }
    }
}

/// With this, `==` of two [`Arc`](std::sync::Arc)s compares the pointers first.
impl Eq for Blob {}

/// Blobs are equal when their bytes are.
impl PartialEq for Blob {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}
