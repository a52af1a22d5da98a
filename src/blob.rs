//! Bytes with a tag. The list and all connections that send them share them.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::conditions::Tag;

/// Longest bytes whose tag is computed at its first use, in some microseconds. A longer blob has
/// its tag from the start, so that no reader computes it later, perhaps under a lock.
const SHORT_BYTES: usize = 16 * 1024;

/// Bytes of all tracked blobs in memory, those that only slow clients hold included.
static TRACKED_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Bytes that any number of responses share.
#[derive(Debug)]
pub(crate) struct Blob {
    bytes: Box<[u8]>,
    /// See [`SHORT_BYTES`].
    tag: OnceLock<Tag>,
    /// Its bytes are in [`TRACKED_BYTES`].
    is_tracked: bool,
}

impl Blob {
    pub(crate) fn new(bytes: impl Into<Box<[u8]>>) -> Self {
        let bytes = bytes.into();
        let tag = if bytes.len() > SHORT_BYTES { Tag::of(&bytes).into() } else { OnceLock::new() };
        Self { bytes, tag, is_tracked: false }
    }

    /// The JSON of a list or of a color. It is tracked until nobody holds it any more.
    pub(crate) fn tracked(bytes: impl Into<Box<[u8]>>) -> Self {
        let mut new = Self::new(bytes);
        new.is_tracked = true;
        TRACKED_BYTES.fetch_add(new.bytes.len(), Relaxed);
        new
    }

    /// Its length if it is tracked, or 0.
    pub(crate) fn tracked_bytes(&self) -> usize {
        if self.is_tracked { self.bytes.len() } else { 0 }
    }

    /// The sum of [`Blob::tracked_bytes`] of all blobs in memory.
    pub(crate) fn all_tracked_bytes() -> usize {
        TRACKED_BYTES.load(Relaxed)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn tag(&self) -> Tag {
        *self.tag.get_or_init(|| Tag::of(&self.bytes))
    }
}

impl Drop for Blob {
    fn drop(&mut self) {
        if self.is_tracked {
            TRACKED_BYTES.fetch_sub(self.bytes.len(), Relaxed);
        }
    }
}

/// If its content is `Eq`, `==` of two [`Arc`](std::sync::Arc)s compares the pointers first.
impl Eq for Blob {}

/// Blobs are equal when their bytes are. If both have tags already, these are compared.
impl PartialEq for Blob {
    fn eq(&self, other: &Self) -> bool {
        match (self.tag.get(), other.tag.get()) {
            (Some(one), Some(other)) => one == other,
            _ => self.bytes == other.bytes,
        }
    }
}
