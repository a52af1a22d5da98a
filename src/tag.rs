//! Entity tags, and conditions on them (RFC 9110 §8.8.3 and §13.1).

use std::fmt;

/// 128 bits of a hash of some bytes, as the 32 lower-case hexadecimal digits that a field has.
/// Equal tags mean equal bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag([u8; 32]);

impl Tag {
    /// The tag of these bytes, the same in every process. The hash is cryptographic: no two
    /// contents with the same tag can be found.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let digits = blake3::hash(bytes).to_hex();
        Self(*digits.as_bytes().first_chunk().expect("it has 64 digits"))
    }

    pub(crate) fn digits(&self) -> &[u8] {
        &self.0
    }

    /// The tag with these digits in quotes; `None` for any other text.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix('"')?.strip_suffix('"')?;
        let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let digits: [u8; 32] = digits.as_bytes().try_into().ok()?;
        digits.iter().all(is_digit).then_some(Self(digits))
    }
}

/// The tags that a condition names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TagCondition {
    /// `*`: any tag.
    Any,
    /// One of these.
    OneOf(Box<[Tag]>),
}

impl TagCondition {
    /// Whether the current tag is among them. `current`, which may take long, is called only where
    /// the answer depends on that tag.
    fn have(&self, current: impl FnOnce() -> Tag) -> bool {
        match self {
            Self::Any => true,
            Self::OneOf(tags) => !tags.is_empty() && tags.contains(&current()),
        }
    }
}

/// The conditions of a request, by the fields of the same names (RFC 9110 §13.1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Conditions {
    pub(crate) if_match: Option<TagCondition>,
    pub(crate) if_none_match: Option<TagCondition>,
}

impl Conditions {
    /// Whether the conditions depend on the current tag.
    pub(crate) fn need_tag(&self) -> bool {
        let has_tags =
            |tags: &TagCondition| matches!(tags, TagCondition::OneOf(tags) if !tags.is_empty());
        [&self.if_match, &self.if_none_match].into_iter().flatten().any(has_tags)
    }

    /// RFC 9110 §13.1.1. `current` is called only if a tag is needed.
    pub(crate) fn if_match_holds(&self, current: impl FnOnce() -> Tag) -> bool {
        self.if_match.as_ref().is_none_or(|tags| tags.have(current))
    }

    /// RFC 9110 §13.1.2. `current` is called only if a tag is needed.
    pub(crate) fn if_none_match_holds(&self, current: impl FnOnce() -> Tag) -> bool {
        self.if_none_match.as_ref().is_none_or(|tags| !tags.have(current))
    }
}

/// As a field has it: in quotes.
impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", str::from_utf8(&self.0).expect("they are digits"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_half_of_the_hash_in_quotes_and_nothing_else_parses_as_one() {
        // The official test vector for no input.
        let text = "\"af1349b9f5f9a1a6a0404dea36dcc949\"";
        assert_eq!(Tag::of(b"").to_string(), text);
        assert_eq!(Tag::parse(text), Some(Tag::of(b"")));
        for other in [&text[1..], &text[..33], &text.to_uppercase(), "\"\"", "\"+f1349b9\"", ""] {
            assert_eq!(Tag::parse(other), None, "{other}");
        }
    }
}
