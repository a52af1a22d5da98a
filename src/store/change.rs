//! Decides what a change does to a list: the outcome, and the edits to make. Knows no locks and no
//! files.

use super::color::Color;
use super::color_list::{ColorList, Edit};
use super::difference::edits_between;
use crate::conditions::Conditions;

/// A change of the list that a client asked for.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    action: Action,
    /// Evaluated when the change is made: for an update and a delete on the color, for a create and
    /// a new list on the list. See [`Change::decide`] for [`Action::CreateAbsent`].
    conditions: Conditions,
}

/// The operations that change the list (docs/http.md, Colors).
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Append this color.
    Create(Color),
    /// Append this color, unless there is one of its name: a PUT with `If-None-Match: *`.
    CreateAbsent(Color),
    /// Replace the first color of the same name by this color.
    Update(Color),
    /// Leave the first color of this name as it is.
    Keep(String),
    /// Remove the first color of this name.
    Delete(String),
    /// Replace the whole list by this one.
    ReplaceAll(ColorList),
}

/// What came of a change.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    /// The color was appended. `is_first`: it is the first of its name, and so the one at its path.
    Created { color: Color, is_first: bool },
    /// The color has a new value. This is the color as it is now.
    Updated(Color),
    /// The color stays as it is: it has that value already.
    Unchanged(Color),
    /// The color stays as it is: the update has no value.
    NoValue(Color),
    /// The color is removed. This is the color as it was.
    Deleted(Color),
    /// The list has these colors now. `before`: how many it had; `None` if nothing changed.
    ReplacedAll { list: ColorList, before: Option<usize> },
    /// No color has the name.
    NotFound,
    /// A condition does not hold; nothing was changed.
    ConditionFailed,
    /// The list would become longer than the storage takes. Nothing was changed.
    TooLong,
    /// The storage takes other changes, but not this one. Has the reason. Nothing was changed.
    Refused(String),
    /// Each of several tries was in vain, since other changes came meanwhile: to evaluate a
    /// condition on the tag of a list in memory, or to commit to etcd. Nothing was changed.
    Contended,
}

impl Outcome {
    /// Puts the new version in place of the list that a client has sent, which has the same colors.
    /// So the response and later reads share one envelope.
    pub(super) fn set_list(&mut self, version: &ColorList) {
        if let Self::ReplacedAll { list, .. } = self {
            list.clone_from(version);
        }
    }
}

impl Change {
    pub(crate) fn new(action: Action, conditions: Conditions) -> Self {
        Self { action, conditions }
    }

    /// Whether a condition depends on the tag of the list, which may take long to compute.
    pub(super) fn needs_tag_of_list(&self) -> bool {
        // The conditions of the other actions are on one color.
        let is_of_list = matches!(self.action, Action::Create(_) | Action::ReplaceAll(_));
        is_of_list && self.conditions.needs_tag()
    }

    /// The list that is to replace the current one.
    pub(super) fn new_list(&self) -> Option<&ColorList> {
        if let Action::ReplaceAll(list) = &self.action { Some(list) } else { None }
    }

    /// Returns the outcome, and the edits to make: none if nothing changes.
    pub(super) fn decide(&self, colors: &ColorList) -> (Outcome, Vec<Edit>) {
        let found = match &self.action {
            Action::Keep(name) | Action::Delete(name) => colors.find(name),
            Action::CreateAbsent(color) | Action::Update(color) => colors.find(&color.name()),
            Action::Create(_) | Action::ReplaceAll(_) => None,
        };
        match (&self.action, found) {
            // RFC 9110 §13.2.1: the 404 of a missing color comes before a failed condition.
            (Action::Update(_) | Action::Keep(_) | Action::Delete(_), None) => {
                (Outcome::NotFound, vec![])
            }
            (Action::CreateAbsent(_), Some(_)) => (Outcome::ConditionFailed, vec![]),
            // RFC 9110 §13.1.1: without a color, no If-Match holds.
            (Action::CreateAbsent(_), None) if self.conditions.if_match.is_some() => {
                (Outcome::ConditionFailed, vec![])
            }
            (Action::CreateAbsent(color), None) => create(color, colors),
            _ if !self.conditions_hold(found.map(|(_, color)| color), colors) => {
                (Outcome::ConditionFailed, vec![])
            }
            (Action::Keep(_), Some((_, color))) => (Outcome::NoValue(color.clone()), vec![]),
            (Action::Update(updated), Some((id, color))) if updated != color => {
                (Outcome::Updated(updated.clone()), vec![Edit::Update(id, updated.clone())])
            }
            (Action::Update(_), Some((_, color))) => (Outcome::Unchanged(color.clone()), vec![]),
            (Action::Delete(_), Some((id, color))) => {
                (Outcome::Deleted(color.clone()), vec![Edit::Remove(id, color.clone())])
            }
            (Action::Create(color), _) => create(color, colors),
            (Action::ReplaceAll(list), _) => {
                let edits = edits_between(colors, list);
                let edits = edits.unwrap_or_else(|| vec![Edit::ReplaceAll(list.clone())]);
                let before = (!edits.is_empty()).then(|| colors.len());
                (Outcome::ReplacedAll { list: list.clone(), before }, edits)
            }
        }
    }

    /// Whether the conditions hold on this color, or on the list if `color` is `None`.
    fn conditions_hold(&self, color: Option<&Color>, colors: &ColorList) -> bool {
        let current = || color.map_or_else(|| colors.envelope().tag(), |color| color.json.tag());
        self.conditions.if_match_holds(current) && self.conditions.if_none_match_holds(current)
    }
}

fn create(color: &Color, colors: &ColorList) -> (Outcome, Vec<Edit>) {
    let is_first = colors.find(&color.name()).is_none();
    let edit = match colors.next_id() {
        Some(id) => Edit::Append(id, color.clone()),
        // Another program has used the highest possible id. All colors get new ids.
        None => Edit::ReplaceAll(
            colors.iter().map(|(_, color)| color).chain([color]).cloned().collect(),
        ),
    };
    (Outcome::Created { color: color.clone(), is_first }, vec![edit])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn color(name: &str, value: &str) -> Color {
        Color::new(name, value)
    }

    fn list() -> ColorList {
        ColorList::from_iter([color("a", "1"), color("a", "2")])
    }

    fn replace(list: &ColorList) -> Action {
        Action::ReplaceAll(list.clone())
    }

    /// Decides on an action under an If-Match: `*` or a tag.
    fn decide(action: Action, if_match: Option<&str>) -> (Outcome, Vec<Edit>) {
        Change::new(action, Conditions::parse(false, if_match, None)).decide(&list())
    }

    #[test]
    fn a_create_appends_and_says_whether_its_path_names_it() {
        for (name, is_first) in [("a", false), ("b", true)] {
            let color = color(name, "3");
            let (outcome, edits) = decide(Action::Create(color.clone()), None);
            assert_eq!(outcome, Outcome::Created { color: color.clone(), is_first });
            assert_eq!(edits, vec![Edit::Append(3, color)]);
        }
    }

    /// Other programs may use any id.
    #[test]
    fn a_color_follows_the_last_whatever_id_that_has() {
        let new = color("b", "2");
        for (last, expected) in [
            (i64::MAX - 1, Edit::Append(i64::MAX, new.clone())),
            (i64::MAX, Edit::ReplaceAll(ColorList::from_iter([color("a", "1"), new.clone()]))),
        ] {
            let colors = ColorList::from_iter([(last, color("a", "1"))]);
            assert_eq!(create(&new, &colors).1, [expected]);
        }
    }

    #[test]
    fn a_create_of_what_is_absent_is_refused_where_it_is_not() {
        let create = |name: &str| Action::CreateAbsent(color(name, "3"));
        let created = Outcome::Created { color: color("b", "3"), is_first: true };
        assert_eq!(decide(create("b"), None), (created, vec![Edit::Append(3, color("b", "3"))]));
        for (name, if_match) in [("a", None), ("a", Some("*")), ("b", Some("*"))] {
            assert_eq!(
                decide(create(name), if_match),
                (Outcome::ConditionFailed, vec![]),
                "{name}"
            );
        }
    }

    #[test]
    fn an_update_changes_the_value_of_the_first_or_nothing() {
        let update = |value: &str| decide(Action::Update(color("a", value)), None);
        let keep = decide(Action::Keep("a".into()), None);
        assert_eq!(
            update("3"),
            (Outcome::Updated(color("a", "3")), vec![Edit::Update(1, color("a", "3"))])
        );
        assert_eq!(keep, (Outcome::NoValue(color("a", "1")), vec![]));
        assert_eq!(update("1"), (Outcome::Unchanged(color("a", "1")), vec![]));
    }

    #[test]
    fn a_delete_removes_the_first() {
        assert_eq!(
            decide(Action::Delete("a".into()), None),
            (Outcome::Deleted(color("a", "1")), vec![Edit::Remove(1, color("a", "1"))])
        );
    }

    #[test]
    fn a_list_takes_the_place_of_another() {
        let other = ColorList::from_iter([color("b", "1")]);
        assert_eq!(
            decide(replace(&other), None),
            (
                Outcome::ReplacedAll { list: other.clone(), before: Some(2) },
                vec![Edit::ReplaceAll(other)]
            )
        );
        let outcome = Outcome::ReplacedAll { list: list(), before: None };
        assert_eq!(decide(replace(&list()), None), (outcome, vec![]), "nothing changes");
    }

    #[test]
    fn a_condition_that_fails_changes_nothing() {
        let (create, replace) = (Action::Create(color("b", "3")), replace(&ColorList::default()));
        let update = |name: &str| Action::Update(color(name, "3"));
        let of_a_color = [update("a"), Action::Delete("a".into())];
        for action in of_a_color.iter().chain([&create, &replace]) {
            assert_eq!(decide(action.clone(), Some("\"x\"")), (Outcome::ConditionFailed, vec![]));
            assert!(decide(action.clone(), Some("*")).1.len() == 1);
        }
        for action in [update("b"), Action::Delete("b".into())] {
            assert_eq!(decide(action, Some("\"x\"")), (Outcome::NotFound, vec![]));
        }
        let tag = color("a", "1").json.tag().to_string();
        assert_eq!(
            decide(Action::Delete("a".into()), Some(&tag)).0,
            Outcome::Deleted(color("a", "1"))
        );
        for action in [create, replace] {
            assert!(
                decide(action.clone(), Some(&list().envelope().tag().to_string())).1.len() == 1
            );
            assert_eq!(decide(action, Some(&tag)), (Outcome::ConditionFailed, vec![]));
        }
    }
}
