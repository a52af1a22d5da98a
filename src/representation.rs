//! Bytes with an entity tag, which the list and responses share. Of a short color, responses have a
//! copy instead (`store::color`).

use std::sync::OnceLock;

use bounded_http::{Content, SharedContent};

use crate::conditions::Tag;

/// Longest representation, in bytes, whose tag is computed at its first use, which takes some
/// microseconds. The tag of a longer one is computed when it is made, so that nobody has to compute
/// it later, perhaps under a lock.
const LATE_TAG_BYTES_MAX: usize = 16 * 1024;

/// Bytes that any number of responses share.
#[derive(Debug)]
pub(crate) struct Representation {
    content: SharedContent,
    /// See [`LATE_TAG_BYTES_MAX`].
    tag: OnceLock<Tag>,
}

impl Representation {
    pub(crate) fn new(bytes: impl Into<Box<[u8]>>) -> Self {
        let content = SharedContent::new(bytes);
        let bytes = content.bytes();
        let tag =
            if bytes.len() > LATE_TAG_BYTES_MAX { Tag::of(bytes).into() } else { OnceLock::new() };
        Self { content, tag }
    }

    /// The bytes as responses share them.
    pub(crate) fn content(&self) -> Content {
        Content::Shared(self.content.clone())
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.content.bytes()
    }

    pub(crate) fn tag(&self) -> Tag {
        *self.tag.get_or_init(|| Tag::of(self.bytes()))
    }
}

/// With `Eq`, `==` of two `Arc`s compares the pointers first.
impl Eq for Representation {}

/// Compares the bytes, or, what is quicker, the tags if both are computed already.
impl PartialEq for Representation {
    fn eq(&self, other: &Self) -> bool {
        match (self.tag.get(), other.tag.get()) {
            (Some(one), Some(other)) => one == other,
            _ => self.bytes() == other.bytes(),
        }
    }
}
