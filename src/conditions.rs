//! Entity tags (RFC 9110 §8.8.3), and If-Match and If-None-Match on them (§13.1).

use std::fmt;

/// 128 bits of a hash of some bytes, as 32 lower-case hexadecimal digits. Equal tags are taken to
/// mean equal bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag([u8; 32]);

impl Tag {
    /// The tag of these bytes, the same in every process. The hash is cryptographic: to find two
    /// contents with the same tag takes some 2^64 hashes.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let hash = blake3::hash(bytes);
        let mut digits = [0; 32];
        let (pairs, _) = digits.as_chunks_mut::<2>();
        let digit = |value| value + if value < 10 { b'0' } else { b'a' - 10 };
        for (pair, byte) in pairs.iter_mut().zip(hash.as_bytes()) {
            *pair = [digit(byte >> 4), digit(byte & 0xf)];
        }
        Self(digits)
    }

    pub(crate) fn digits(&self) -> &[u8] {
        &self.0
    }

    /// Parses a tag of this form in quotes; `None` for any other text. Takes a tag to which a proxy
    /// that compresses has added the name of the coding, as Apache does (`-gzip`), for what it was:
    /// it names the same content.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let opaque = text.strip_prefix('"')?.strip_suffix('"')?;
        let (digits, suffix) = opaque.as_bytes().split_first_chunk::<32>()?;
        let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        (digits.iter().all(is_digit) && (suffix.is_empty() || is_coding(suffix)))
            .then_some(Self(*digits))
    }
}

/// Whether these bytes may name a content coding behind a tag: a hyphen, and 1 to 16 of a-z and
/// 0-9.
fn is_coding(suffix: &[u8]) -> bool {
    let is_letter_or_digit = |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9');
    match suffix {
        [b'-', name @ ..] => (1..=16).contains(&name.len()) && name.iter().all(is_letter_or_digit),
        _ => false,
    }
}

/// In quotes, as in a field.
impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", str::from_utf8(&self.0).expect("they are digits"))
    }
}

/// If-Match and If-None-Match of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Conditions {
    pub(crate) if_match: Option<TagCondition>,
    if_none_match: Option<TagCondition>,
    /// The name of a malformed field for which the request has to be refused.
    malformed: Option<&'static str>,
    /// How many entity tags both fields have, those included that cannot equal the current one.
    pub(crate) tags: usize,
}

/// The tags that a condition names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TagCondition {
    /// `*`: any tag.
    Any,
    /// One of these. Tags that cannot equal the current one, such as weak ones in If-Match, are
    /// omitted.
    OneOf(Box<[Tag]>),
}

impl Conditions {
    /// Parses the values of the two fields. In a request with a safe method, a malformed
    /// If-None-Match is ignored: a full response is never wrong.
    pub(crate) fn parse(
        is_safe: bool,
        if_match: Option<&str>,
        if_none_match: Option<&str>,
    ) -> Self {
        // RFC 9110 §8.8.3.2: a weak tag equals the current one, which is strong, only by the weak
        // comparison.
        let read_weakly = |tag: &str| Tag::parse(tag.strip_prefix("W/").unwrap_or(tag));
        let strong = if_match.map(|value| TagCondition::parse(value, Tag::parse));
        let weak = if_none_match.map(|value| TagCondition::parse(value, read_weakly));
        let malformed = match (&strong, &weak) {
            (Some(None), _) => Some("If-Match"),
            (_, Some(None)) if !is_safe => Some("If-None-Match"),
            _ => None,
        };
        // A tag stands between two quotes, and contains none.
        let count = |value: &str| value.matches('"').count() / 2;
        Self {
            if_match: strong.flatten(),
            if_none_match: weak.flatten(),
            malformed,
            tags: if_match.map_or(0, count) + if_none_match.map_or(0, count),
        }
    }

    /// Fails with the message of a 400 if a field is malformed.
    pub(crate) fn checked(&self) -> Result<&Self, String> {
        let Some(field) = self.malformed else { return Ok(self) };
        Err(format!(
            "the field {field} has to be \"*\" or entity tags in quotes, separated by commas"
        ))
    }

    /// Whether there is `If-None-Match: *`, with which a PUT of a color creates it or fails.
    pub(crate) fn requires_absence(&self) -> bool {
        self.if_none_match == Some(TagCondition::Any)
    }

    /// Whether the conditions depend on the current tag.
    pub(crate) fn needs_tag(&self) -> bool {
        let has_tags =
            |tags: &TagCondition| matches!(tags, TagCondition::OneOf(tags) if !tags.is_empty());
        [&self.if_match, &self.if_none_match].into_iter().flatten().any(has_tags)
    }

    /// RFC 9110 §13.1.1. `current` is called only if a tag is needed.
    pub(crate) fn if_match_holds(&self, current: impl FnOnce() -> Tag) -> bool {
        self.if_match.as_ref().is_none_or(|tags| tags.matches(current))
    }

    /// RFC 9110 §13.1.2. `current` is called only if a tag is needed.
    pub(crate) fn if_none_match_holds(&self, current: impl FnOnce() -> Tag) -> bool {
        self.if_none_match.as_ref().is_none_or(|tags| !tags.matches(current))
    }
}

impl TagCondition {
    /// `None` if the value is malformed (RFC 9110 §8.8.3 and §5.6.1). `read` parses one entity tag,
    /// and returns `None` for a tag that cannot equal the current one.
    fn parse(value: &str, read: impl Fn(&str) -> Option<Tag>) -> Option<Self> {
        if value == "*" {
            return Some(Self::Any);
        }
        let mut rest = value;
        let mut tags = Vec::new();
        loop {
            rest = rest.trim_start_matches([' ', '\t', ',']);
            if rest.is_empty() {
                return Some(Self::OneOf(tags.into()));
            }
            let quoted = rest.strip_prefix("W/").unwrap_or(rest).strip_prefix('"')?;
            let (opaque, after) = quoted.split_once('"')?;
            if opaque.contains(|c: char| c <= ' ' || c == '\x7f') {
                return None;
            }
            tags.extend(read(&rest[..rest.len() - after.len()]));
            rest = after.trim_start_matches([' ', '\t']);
            if !rest.is_empty() && !rest.starts_with(',') {
                return None;
            }
        }
    }

    /// Whether the current tag is one of these. Calls `current`, which may take long, only if the
    /// answer depends on the current tag.
    fn matches(&self, current: impl FnOnce() -> Tag) -> bool {
        match self {
            Self::Any => true,
            Self::OneOf(tags) => !tags.is_empty() && tags.contains(&current()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_half_of_the_hash_in_quotes_and_nothing_else_parses_as_one() {
        // The official test vector of BLAKE3 for no input.
        let text = "\"af1349b9f5f9a1a6a0404dea36dcc949\"";
        assert_eq!(Tag::of(b"").to_string(), text);
        assert_eq!(Tag::parse(text), Some(Tag::of(b"")));
        for other in [&text[1..], &text[..33], &text.to_uppercase(), "\"\"", "\"+f1349b9\"", ""] {
            assert_eq!(Tag::parse(other), None, "{other}");
        }
        let with = |suffix: &str| Tag::parse(&format!("{}{suffix}\"", &text[..33]));
        for suffix in ["-gzip", "-br", "-0", "-abcdefghijklm789"] {
            assert_eq!(with(suffix), Some(Tag::of(b"")), "{suffix}");
        }
        for other in
            ["-", "gzip", ";gzip", "--gzip", "-gzip-gzip", "-Gzip", "-é", "-abcdefghijklm7890"]
        {
            assert_eq!(with(other), None, "{other}");
        }
    }

    fn current() -> Tag {
        Tag::of(b"representation")
    }

    fn conditions(
        is_safe: bool,
        if_match: Option<&str>,
        if_none_match: Option<&str>,
    ) -> Result<Conditions, String> {
        let tag = current().to_string();
        let coded = tag.replace("\"", "") + "-gzip";
        let owned = |tags: &str| tags.replace('T', &tag).replace('S', &format!("\"{coded}\""));
        let (if_match, if_none_match) = (if_match.map(owned), if_none_match.map(owned));
        let parsed = Conditions::parse(is_safe, if_match.as_deref(), if_none_match.as_deref());
        parsed.checked().cloned()
    }

    fn malformed(field: &str) -> Result<Conditions, String> {
        Err(format!(
            "the field {field} has to be \"*\" or entity tags in quotes, separated by commas"
        ))
    }

    /// Checks whether the list `tags` has the current tag, for which `T` stands, and `S` with the
    /// suffix of a coding, by the strong and by the weak comparison. `None`: `tags` is malformed.
    #[track_caller]
    fn check(tags: &str, strongly_and_weakly: Option<(bool, bool)>) {
        let if_match = conditions(false, Some(tags), None);
        let if_none_match = conditions(false, None, Some(tags));
        let Some((strongly, weakly)) = strongly_and_weakly else {
            assert_eq!(if_match, malformed("If-Match"), "{tags:?}");
            assert_eq!(if_none_match, malformed("If-None-Match"), "{tags:?}");
            return;
        };
        assert_eq!(if_match.unwrap().if_match_holds(current), strongly, "If-Match: {tags:?}");
        assert_eq!(
            if_none_match.unwrap().if_none_match_holds(current),
            !weakly,
            "If-None-Match: {tags:?}"
        );
    }

    #[test]
    fn a_list_of_tags_has_the_current_one_or_not() {
        for tags in ["T", "S", "\"x\", W/\"y\" ,T", "T,\"x\"", "\"x,\",,\tT", ",T ,", "*"] {
            check(tags, Some((true, true)));
        }
        for tags in ["W/T", "W/S", "\"x\",W/T"] {
            check(tags, Some((false, true)));
        }
        for tags in ["", ",", "\"x\"", "\"\"", "\"\u{e9}\"", "W/\"x\""] {
            check(tags, Some((false, false)));
        }
        check(&current().to_string().to_uppercase(), Some((false, false)));
    }

    #[test]
    fn any_list_that_is_put_together_by_the_grammar_has_what_was_put_in() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..20_000 {
            let mut list = String::new();
            let mut strongly = false;
            let mut weakly = false;
            for _ in 0..random.usize(1..5) {
                let tag =
                    *random.choice(&["T", "W/T", "\"x,\"", "W/\"\"", "\"\u{e9}\"", ""]).unwrap();
                strongly |= tag == "T";
                weakly |= tag.ends_with('T');
                let space = *random.choice(&["", " ", "\t "]).unwrap();
                list += &format!("{space}{tag}{space},");
            }
            check(list.strip_suffix(',').unwrap(), Some((strongly, weakly)));
            list.insert(random.usize(..2) * list.len(), 'x');
            check(&list, None);
        }
    }

    #[test]
    fn what_is_no_list_of_tags_is_malformed() {
        for tags in [
            "x", "\"x", "x\"", "\"", "W/", "W/x", "w/T", "W/ T", "T, *", "*, T", "*, *", "T x",
            "T \"y\"", "T, y", "T, \"y", "T\"y\"",
        ] {
            check(tags, None);
        }
        for tags in ["\"a b\"", "\"a\tb\"", "\"a\x7f\"", "\"a\x01"] {
            check(tags, None);
        }
    }

    #[test]
    fn reads_ignore_a_malformed_if_none_match() {
        assert_eq!(conditions(true, None, Some("x")), Ok(Conditions::default()));
        assert_eq!(conditions(true, Some("x"), None), malformed("If-Match"));
    }

    #[test]
    fn all_tags_are_counted() {
        for (if_match, if_none_match, expected) in
            [(None, None, 0), (Some("*"), Some(""), 0), (Some("\"\""), Some("W/\"a,\", \"b\""), 3)]
        {
            assert_eq!(Conditions::parse(true, if_match, if_none_match).tags, expected);
        }
    }

    #[test]
    fn a_tag_is_computed_only_for_a_list_with_one_of_that_form() {
        let unneeded = || -> Tag { panic!("not needed") };
        let foreign = format!("\"x\", \"{}\", W/\"{}\"", "0".repeat(31), "A".repeat(32));
        let others = conditions(false, Some(&foreign), Some(&foreign)).unwrap();
        assert!(!others.if_match_holds(unneeded) && others.if_none_match_holds(unneeded));
        assert!(!others.needs_tag() && conditions(false, None, Some("T")).unwrap().needs_tag());
        let any = conditions(false, Some("*"), Some("*")).unwrap();
        assert!(any.if_match_holds(unneeded) && !any.if_none_match_holds(unneeded));
        let none = Conditions::default();
        assert!(none.if_match_holds(unneeded) && none.if_none_match_holds(unneeded));
    }
}
