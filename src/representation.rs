//! Bytes with an entity tag. The list and all responses share them, so that nobody copies them.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use crate::conditions::Tag;

/// Longest representation, in bytes, whose tag is computed at its first use, which takes some
/// microseconds. The tag of a longer one is computed when it is made, so that nobody has to compute
/// it later, perhaps under a lock.
const LATE_TAG_BYTES_MAX: usize = 16 * 1024;

/// Bytes that any number of responses share.
#[derive(Debug)]
pub(crate) struct Representation {
    bytes: Box<[u8]>,
    /// See [`LATE_TAG_BYTES_MAX`].
    tag: OnceLock<Tag>,
    /// How many clients have a part of it.
    readers: AtomicUsize,
}

impl Representation {
    pub(crate) fn new(bytes: impl Into<Box<[u8]>>) -> Self {
        let bytes = bytes.into();
        let tag =
            if bytes.len() > LATE_TAG_BYTES_MAX { Tag::of(&bytes).into() } else { OnceLock::new() };
        Self { bytes, tag, readers: AtomicUsize::new(0) }
    }

    /// Notes that one more client has a part of it. True for the first.
    pub(crate) fn add_reader(&self) -> bool {
        self.readers.fetch_add(1, Relaxed) == 0
    }

    /// Takes back [`Representation::add_reader`]. True for the last.
    pub(crate) fn remove_reader(&self) -> bool {
        self.readers.fetch_sub(1, Relaxed) == 1
    }

    /// Whether it is not in the list any more: only clients that have a part of it refer to it.
    /// `references`: how many references each of them has. True too early, at worst, while another
    /// thread takes or drops a reference.
    pub(crate) fn is_old(self: &Arc<Self>, references: usize) -> bool {
        Arc::strong_count(self) <= references * self.readers.load(Relaxed)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn tag(&self) -> Tag {
        *self.tag.get_or_init(|| Tag::of(&self.bytes))
    }
}

/// With `Eq`, `==` of two [`Arc`]s compares the pointers first.
impl Eq for Representation {}

/// Compares the bytes, or, what is quicker, the tags if both are computed already.
impl PartialEq for Representation {
    fn eq(&self, other: &Self) -> bool {
        match (self.tag.get(), other.tag.get()) {
            (Some(one), Some(other)) => one == other,
            _ => self.bytes == other.bytes,
        }
    }
}
