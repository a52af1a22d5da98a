//! If-Match and If-None-Match (RFC 9110 §13.1): whether a request's conditions hold for an entity tag. Nothing else.

use super::request::Fields;
use super::response::EntityTag;

/// The conditions of one request, as received; made to outlive it, since a change may wait for others to be saved with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Conditions {
    /// Tags of which one must be current.
    if_match: Option<String>,
    /// Tags of which none may be current.
    if_none_match: Option<String>,
}

impl Conditions {
    /// The conditions among a request's fields.
    pub(crate) fn of(fields: &Fields) -> Self {
        Self { if_match: fields.if_match.clone(), if_none_match: fields.if_none_match.clone() }
    }

    /// Whether nothing is demanded, so that no tag needs to be known.
    pub(crate) fn is_empty(&self) -> bool {
        self.if_match.is_none() && self.if_none_match.is_none()
    }

    /// Whether a change may go ahead where `current` is the tag of what exists (RFC 9110 §13.2.2, steps 1 and 3).
    pub(crate) fn allow_change_of(&self, current: EntityTag) -> bool {
        self.if_match.as_deref().is_none_or(|tags| lists(tags, current, Comparison::Strong))
            && self.if_none_match.as_deref().is_none_or(|tags| !lists(tags, current, Comparison::Weak))
    }
}

/// Whether the client of a GET or HEAD has `current` already, which is a 304 (RFC 9110 §13.1.2).
pub(crate) fn is_current(fields: &Fields, current: EntityTag) -> bool {
    fields.if_none_match.as_deref().is_some_and(|tags| lists(tags, current, Comparison::Weak))
}

/// How two entity tags are compared (RFC 9110 §8.8.3.2); the service's own tags are all strong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Comparison {
    /// A weak tag equals nothing.
    Strong,
    /// The `W/` is read over.
    Weak,
}

/// Whether `tags` is `*` or a list of entity tags that has `current` (RFC 9110 §8.8.3 and §5.6.1); what is no such list has nothing.
fn lists(tags: &str, current: EntityTag, comparison: Comparison) -> bool {
    const BLANKS: [char; 2] = [' ', '\t'];
    if tags.trim_matches(BLANKS) == "*" {
        return true;
    }
    let current = current.to_string();
    let (mut rest, mut has_current) = (tags, false);
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        if rest.is_empty() {
            return has_current;
        }
        let (weak, tag) = rest.strip_prefix("W/").map_or((false, rest), |tag| (true, tag));
        let Some(end) = tag.strip_prefix('"').and_then(|opaque| opaque.find('"')) else { return false };
        let (tag, after) = tag.split_at(end + 2);
        has_current |= tag == current && !(weak && comparison == Comparison::Strong);
        rest = after.trim_start_matches(BLANKS);
        if !rest.is_empty() && !rest.starts_with(',') {
            return false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CURRENT: EntityTag = EntityTag(0xabc_u128.to_be_bytes());

    #[track_caller]
    fn check(tags: &str, weakly: bool, strongly: bool) {
        assert_eq!(lists(tags, CURRENT, Comparison::Weak), weakly, "weakly: {tags:?}");
        assert_eq!(lists(tags, CURRENT, Comparison::Strong), strongly, "strongly: {tags:?}");
    }

    #[test]
    fn a_list_of_tags_has_the_current_one_or_not() {
        assert_eq!(CURRENT.to_string(), "\"00000000000000000000000000000abc\"");
        check("\"00000000000000000000000000000abc\"", true, true);
        check("W/\"00000000000000000000000000000abc\"", true, false);
        check("\"x\", W/\"y\" ,\"00000000000000000000000000000abc\"", true, true);
        check("\"x,\",,\t\"00000000000000000000000000000abc\"", true, true);
        check("*", true, true);
        check(" * ", true, true);
        check("\"00000000000000000000000000000ABC\"", false, false);
        check("00000000000000000000000000000abc", false, false);
        check("\"00000000000000000000000000000abc", false, false);
        check("\"x\", *", false, false);
        for behind in ["x", " x", " \"y\"", ", *", ", \"y", "\"y\""] {
            check(&format!("\"00000000000000000000000000000abc\"{behind}"), false, false);
        }
        check("w/\"00000000000000000000000000000abc\"", false, false);
        check("\"x 00000000000000000000000000000abc\"", false, false);
        check("", false, false);
    }

    #[test]
    fn a_change_needs_every_condition_to_hold() {
        let (same, other) = (Some("\"00000000000000000000000000000abc\""), Some("\"x\""));
        let owned = |tags: Option<&str>| tags.map(str::to_owned);
        let allowed = |if_match: Option<&str>, if_none_match: Option<&str>| {
            let fields = Fields { if_match: owned(if_match), if_none_match: owned(if_none_match), ..Fields::default() };
            Conditions::of(&fields).allow_change_of(CURRENT)
        };
        assert!(allowed(None, None) && allowed(same, None) && allowed(None, other) && allowed(same, other) && allowed(Some("*"), other));
        assert!(!allowed(other, None) && !allowed(None, same) && !allowed(same, same) && !allowed(None, Some("*")));
    }
}
