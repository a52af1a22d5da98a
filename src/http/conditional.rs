//! Parses If-Match and If-None-Match (RFC 9110 §13.1).

use std::fmt;

use super::request::Request;
use crate::tag::{Conditions, Tag, TagCondition};

/// When the field of this name is neither `*` nor a list of entity tags: 400.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MalformedTags(&'static str);

impl fmt::Display for MalformedTags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(field) = self;
        write!(f, "the field {field} has to be \"*\" or entity tags in quotes, separated by commas")
    }
}

/// The conditions of a request. A malformed If-None-Match on a safe method is ignored: a full
/// response is never wrong.
pub(crate) fn conditions(request: &Request) -> Result<Conditions, MalformedTags> {
    let fields = request.fields();
    let if_match = parse("If-Match", &fields.if_match, Comparison::Strong)?;
    let if_none_match = match parse("If-None-Match", &fields.if_none_match, Comparison::Weak) {
        Err(_) if request.is_safe() => None,
        parsed => parsed?,
    };
    Ok(Conditions { if_match, if_none_match })
}

/// How the tags of a field are compared with the current one, which is strong (RFC 9110 §8.8.3.2).
/// By the strong comparison, a weak tag never equals it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Strong,
    Weak,
}

fn parse(
    field: &'static str,
    value: &Option<String>,
    comparison: Comparison,
) -> Result<Option<TagCondition>, MalformedTags> {
    let Some(value) = value else { return Ok(None) };
    let tags = if value == "*" { Some(TagCondition::Any) } else { parse_list(value, comparison) };
    tags.map(Some).ok_or(MalformedTags(field))
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
    use tiny_http::Method;

    use super::*;
    use crate::http::Fields;

    fn current() -> Tag {
        Tag::of(b"representation")
    }

    fn conditions(
        method: Method,
        if_match: Option<&str>,
        if_none_match: Option<&str>,
    ) -> Result<Conditions, String> {
        let owned = |tags: Option<&str>| tags.map(|tags| tags.replace('T', &current().to_string()));
        let fields = Fields {
            if_match: owned(if_match),
            if_none_match: owned(if_none_match),
            ..Fields::default()
        };
        super::conditions(&Request::plain(method, fields)).map_err(|error| error.to_string())
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
        let if_match = conditions(Method::Put, Some(tags), None);
        let if_none_match = conditions(Method::Put, None, Some(tags));
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
        for method in [Method::Get, Method::Head] {
            assert_eq!(conditions(method.clone(), None, Some("x")), Ok(Conditions::default()));
            assert_eq!(conditions(method, Some("x"), None), malformed("If-Match"));
        }
    }

    #[test]
    fn a_tag_is_computed_only_for_a_list_with_one_of_that_form() {
        let unneeded = || -> Tag { panic!("not needed") };
        let foreign = format!("\"x\", \"{}\", W/\"{}\"", "0".repeat(31), "A".repeat(32));
        let others = conditions(Method::Post, Some(&foreign), Some(&foreign)).unwrap();
        assert!(!others.if_match_holds(unneeded) && others.if_none_match_holds(unneeded));
        assert!(
            !others.need_tag() && conditions(Method::Post, None, Some("T")).unwrap().need_tag()
        );
        let any = conditions(Method::Post, Some("*"), Some("*")).unwrap();
        assert!(any.if_match_holds(unneeded) && !any.if_none_match_holds(unneeded));
        let none = Conditions::default();
        assert!(none.if_match_holds(unneeded) && none.if_none_match_holds(unneeded));
    }
}
