//! Parses If-Match and If-None-Match (RFC 9110 §13.1).

use std::fmt;

use crate::tag::{Conditions, Tag, TagCondition};

/// If-Match and If-None-Match of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ParsedConditions {
    /// A malformed one is left out.
    conditions: Conditions,
    malformed: Option<MalformedTags>,
    /// How many entity tags there are in both, those included that cannot equal a current one.
    pub(crate) tags: usize,
}

/// When the field of this name is neither `*` nor a list of entity tags: 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MalformedTags(&'static str);

impl fmt::Display for MalformedTags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(field) = self;
        write!(f, "the field {field} has to be \"*\" or entity tags in quotes, separated by commas")
    }
}

impl ParsedConditions {
    /// Parses the values of the two fields. A malformed If-None-Match of a safe method is ignored:
    /// a full response is never wrong.
    pub(crate) fn parse(
        is_safe: bool,
        if_match: Option<&str>,
        if_none_match: Option<&str>,
    ) -> Self {
        let strong = if_match.map(|value| parse(value, Comparison::Strong));
        let weak = if_none_match.map(|value| parse(value, Comparison::Weak));
        let malformed = match (&strong, &weak) {
            (Some(None), _) => Some(MalformedTags("If-Match")),
            (_, Some(None)) if !is_safe => Some(MalformedTags("If-None-Match")),
            _ => None,
        };
        // Each tag is in two quotes, and has none.
        let count = |value: &str| value.matches('"').count() / 2;
        Self {
            conditions: Conditions { if_match: strong.flatten(), if_none_match: weak.flatten() },
            malformed,
            tags: if_match.map_or(0, count) + if_none_match.map_or(0, count),
        }
    }

    /// The conditions. Fails if one is malformed.
    pub(crate) fn get(&self) -> Result<&Conditions, MalformedTags> {
        self.malformed.map_or(Ok(&self.conditions), Err)
    }

    /// Whether a PUT of a color creates it: `If-None-Match: *` fails if the color is there.
    pub(crate) fn need_absence(&self) -> bool {
        self.conditions.if_none_match == Some(TagCondition::Any)
    }
}

/// How the tags of a field are compared with the current one, which is strong (RFC 9110 §8.8.3.2).
/// By the strong comparison, a weak tag never equals it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Strong,
    Weak,
}

/// `None` if the value is malformed.
fn parse(value: &str, comparison: Comparison) -> Option<TagCondition> {
    if value == "*" { Some(TagCondition::Any) } else { parse_list(value, comparison) }
}

/// Those of a list of tags that can equal the current one: they have the form of the service's own.
/// `None` if the list is malformed (RFC 9110 §8.8.3 and §5.6.1).
fn parse_list(list: &str, comparison: Comparison) -> Option<TagCondition> {
    let mut rest = list;
    let mut tags = Vec::new();
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        if rest.is_empty() {
            return Some(TagCondition::OneOf(tags.into()));
        }
        let (tag, is_weak) = rest.strip_prefix("W/").map_or((rest, false), |tag| (tag, true));
        let end = 1 + tag.strip_prefix('"')?.find(|c: char| c == '"' || c <= ' ' || c == '\x7f')?;
        let (tag, after) = tag.split_at_checked(end + 1).filter(|(tag, _)| tag.ends_with('"'))?;
        tags.extend(Tag::parse(tag).filter(|_| !is_weak || comparison == Comparison::Weak));
        rest = after.trim_start_matches([' ', '\t']);
        if !rest.is_empty() && !rest.starts_with(',') {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn current() -> Tag {
        Tag::of(b"representation")
    }

    fn conditions(
        is_safe: bool,
        if_match: Option<&str>,
        if_none_match: Option<&str>,
    ) -> Result<Conditions, String> {
        let owned = |tags: Option<&str>| tags.map(|tags| tags.replace('T', &current().to_string()));
        let (if_match, if_none_match) = (owned(if_match), owned(if_none_match));
        let parsed =
            ParsedConditions::parse(is_safe, if_match.as_deref(), if_none_match.as_deref());
        parsed.get().cloned().map_err(|error| error.to_string())
    }

    fn malformed(field: &str) -> Result<Conditions, String> {
        Err(format!(
            "the field {field} has to be \"*\" or entity tags in quotes, separated by commas"
        ))
    }

    /// Checks whether `tags`, where `T` stands for the current tag, has that tag by each
    /// comparison; `None` if it is malformed.
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
        for tags in ["T", "\"x\", W/\"y\" ,T", "T,\"x\"", "\"x,\",,\tT", ",T ,", "*"] {
            check(tags, Some((true, true)));
        }
        for tags in ["W/T", "\"x\",W/T"] {
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
            assert_eq!(ParsedConditions::parse(true, if_match, if_none_match).tags, expected);
        }
    }

    #[test]
    fn a_tag_is_computed_only_for_a_list_with_one_of_that_form() {
        let unneeded = || -> Tag { panic!("not needed") };
        let foreign = format!("\"x\", \"{}\", W/\"{}\"", "0".repeat(31), "A".repeat(32));
        let others = conditions(false, Some(&foreign), Some(&foreign)).unwrap();
        assert!(!others.if_match_holds(unneeded) && others.if_none_match_holds(unneeded));
        assert!(!others.need_tag() && conditions(false, None, Some("T")).unwrap().need_tag());
        let any = conditions(false, Some("*"), Some("*")).unwrap();
        assert!(any.if_match_holds(unneeded) && !any.if_none_match_holds(unneeded));
        let none = Conditions::default();
        assert!(none.if_match_holds(unneeded) && none.if_none_match_holds(unneeded));
    }
}
