//! What a write does to the list: one change with its conditions, checked and applied in one step. No HTTP, no locks, no files.

use std::sync::Arc;

use super::color::Color;
use super::colors::Colors;
use crate::http::Conditions;

/// A change that a client asked for.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    /// What to do.
    pub(crate) action: Action,
    /// What must hold of the list (for a create) or of the color (for the others) at the moment of the change.
    pub(crate) conditions: Conditions,
}

/// The three writing operations of the specification.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Append this color.
    Create(Color),
    /// Give the first color of this name the value, or keep its own.
    Update(String, Option<Arc<str>>),
    /// Remove the first color of this name.
    Delete(String),
}

/// What came of a change.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    /// When the color was appended; says whether it is the first of its name, the one its path names.
    Created(Color, bool),
    /// When the color exists: as it is now.
    Updated(Color),
    /// When the color existed: as it was.
    Deleted(Color),
    /// When no color has the name.
    NotFound,
    /// When a condition does not hold; nothing was changed.
    ConditionFailed,
}

impl Change {
    /// Applies the change, or finds why not; says what came of it and whether the list is another now.
    pub(crate) fn apply(&self, colors: &mut Colors) -> (Outcome, bool) {
        if let Some(refusal) = self.refusal(colors) {
            return (refusal, false);
        }
        match &self.action {
            Action::Create(color) => {
                let is_first = colors.first(&color.name).is_none();
                colors.append(color.clone());
                (Outcome::Created(color.clone(), is_first), true)
            }
            Action::Update(name, value) => {
                let changes = value.is_some();
                let updated = match value {
                    Some(value) => colors.update_first(name, value),
                    None => colors.first(name),
                };
                updated.map_or((Outcome::NotFound, false), |color| (Outcome::Updated(color.clone()), changes))
            }
            Action::Delete(name) => colors.remove_first(name).map_or((Outcome::NotFound, false), |color| (Outcome::Deleted(color), true)),
        }
    }

    /// What keeps the change from being made. A missing color comes before a failed condition (RFC 9110 §13.2.1).
    fn refusal(&self, colors: &mut Colors) -> Option<Outcome> {
        if self.conditions.is_empty() {
            return None;
        }
        let holds = match &self.action {
            Action::Create(_) => {
                self.conditions.if_match_holds(|| colors.envelope().tag())
                    && self.conditions.if_none_match_holds(|| colors.envelope().tag())
            }
            Action::Update(name, _) | Action::Delete(name) => {
                let Some(color) = colors.first(name) else { return Some(Outcome::NotFound) };
                let current = || color.json.tag();
                self.conditions.if_match_holds(current) && self.conditions.if_none_match_holds(current)
            }
        };
        (!holds).then_some(Outcome::ConditionFailed)
    }
}

#[cfg(test)]
mod tests {
    use tiny_http::{HTTPVersion, Method};

    use super::*;
    use crate::http::{Fields, Request};

    fn color(name: &str, value: &str) -> Color {
        Color::new(name, value)
    }

    /// Applies an action under an If-Match to the list `a=1, a=2`; gives the outcome, whether it says so, and the list after.
    fn apply(action: Action, if_match: Option<&str>) -> (Outcome, bool, Vec<Color>) {
        let mut colors = Colors::new(vec![color("a", "1"), color("a", "2")]);
        let fields = Fields { if_match: if_match.map(str::to_owned), ..Fields::default() };
        let (method, target, version) = (Method::Put, String::new(), HTTPVersion(1, 1));
        let conditions = Conditions::of(&Request { method, target, version, fields, content: Vec::new(), keep_alive: true }).unwrap();
        let (outcome, changed) = Change { action, conditions }.apply(&mut colors);
        (outcome, changed, colors.colors().to_vec())
    }

    #[test]
    fn a_create_appends_and_tells_whether_its_path_names_it() {
        let all = |last| vec![color("a", "1"), color("a", "2"), last];
        assert_eq!(apply(Action::Create(color("a", "3")), None), (Outcome::Created(color("a", "3"), false), true, all(color("a", "3"))));
        assert_eq!(apply(Action::Create(color("b", "3")), None), (Outcome::Created(color("b", "3"), true), true, all(color("b", "3"))));
    }

    #[test]
    fn an_update_changes_the_value_of_the_first_or_nothing() {
        let (one, two) = (color("a", "1"), color("a", "2"));
        let update = |value: Option<&str>| Action::Update("a".into(), value.map(Arc::from));
        assert_eq!(apply(update(Some("3")), None), (Outcome::Updated(color("a", "3")), true, vec![color("a", "3"), two.clone()]));
        assert_eq!(apply(update(None), None), (Outcome::Updated(one.clone()), false, vec![one, two]));
    }

    #[test]
    fn a_condition_that_fails_changes_nothing() {
        let before = vec![color("a", "1"), color("a", "2")];
        for action in [Action::Create(color("b", "3")), Action::Update("a".into(), Some("3".into())), Action::Delete("a".into())] {
            assert_eq!(apply(action.clone(), Some("\"x\"")), (Outcome::ConditionFailed, false, before.clone()));
            assert_ne!(apply(action, Some("*")).0, Outcome::ConditionFailed);
        }
        for action in [Action::Update("b".into(), Some("3".into())), Action::Delete("b".into())] {
            assert_eq!(apply(action, Some("\"x\"")), (Outcome::NotFound, false, before.clone()));
        }
        let tag = color("a", "1").json.tag().to_string();
        assert_eq!(apply(Action::Delete("a".into()), Some(&tag)).0, Outcome::Deleted(color("a", "1")));
    }
}
