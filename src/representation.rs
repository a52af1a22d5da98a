//! Bytes with an entity tag. The list and all responses share them, so that nobody copies them.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

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
    /// Whether connections that are still sending it are to be closed. `None` if it cannot be
    /// withdrawn, like the page.
    is_withdrawn: Option<AtomicBool>,
}

impl Representation {
    pub(crate) fn new(bytes: impl Into<Box<[u8]>>) -> Self {
        let bytes = bytes.into();
        let tag =
            if bytes.len() > LATE_TAG_BYTES_MAX { Tag::of(&bytes).into() } else { OnceLock::new() };
        Self { bytes, tag, is_withdrawn: None }
    }

    /// The JSON of a list or of a color, which may be withdrawn.
    pub(crate) fn of_list(bytes: impl Into<Box<[u8]>>) -> Self {
        Self { is_withdrawn: Some(AtomicBool::new(false)), ..Self::new(bytes) }
    }

    pub(crate) fn may_be_withdrawn(&self) -> bool {
        self.is_withdrawn.is_some()
    }

    pub(crate) fn withdraw(&self) {
        self.is_withdrawn.iter().for_each(|is_withdrawn| is_withdrawn.store(true, Relaxed));
    }

    pub(crate) fn is_withdrawn(&self) -> bool {
        self.is_withdrawn.as_ref().is_some_and(|is_withdrawn| is_withdrawn.load(Relaxed))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn tag(&self) -> Tag {
        *self.tag.get_or_init(|| Tag::of(&self.bytes))
    }
}

/// With `Eq`, `==` of two [`Arc`](std::sync::Arc)s compares the pointers first.
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
