//! What a server has acknowledged, and what of it is left after its end. Starts and asks nothing.

use std::collections::HashMap;

use crate::colors::Color;

/// The list that a server answers for.
#[derive(Debug)]
pub(crate) struct Ledger {
    /// As it was when the server last started on it.
    list: Vec<Color>,
}

/// What came of a list; nothing is wrong by default.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Audit {
    /// Colors that were there before, or were acknowledged since, and are not there as they were written.
    pub(crate) lost: usize,
    /// Whether some of those that are there do not follow on each other as they did before, or as they were acknowledged.
    pub(crate) is_disordered: bool,
}

impl Ledger {
    /// A ledger of a list with every name once.
    pub(crate) fn new(list: Vec<Color>) -> Self {
        Self { list }
    }

    /// The list when the server last started on it.
    pub(crate) fn list(&self) -> &[Color] {
        &self.list
    }

    /// Compares what was found at a start with the list before and with what has been acknowledged since, writer by writer in order.
    ///
    /// What was under way may be found or not. What was found is the list from now on.
    pub(crate) fn audit(&mut self, acknowledged: &[Vec<Color>], found: Vec<Color>) -> Audit {
        let places: HashMap<&str, (usize, &str)> =
            found.iter().enumerate().map(|(place, color)| (&*color.name, (place, &*color.value))).collect();
        let place = |color: &Color| places.get(&*color.name).filter(|(_, value)| *value == color.value).map(|(place, _)| *place);
        let expected = self.list.iter().chain(acknowledged.iter().flatten());
        let audit = Audit {
            lost: expected.filter(|color| place(color).is_none()).count(),
            is_disordered: !acknowledged.iter().all(|writer| self.list.iter().chain(writer).filter_map(place).is_sorted()),
        };
        self.list = found;
        audit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Colors with these names.
    fn colors(names: &str) -> Vec<Color> {
        names.chars().map(|name| Color { name: name.into(), value: "1".to_owned() }).collect()
    }

    /// Audits a list `ab` to which two writers have added `xy` and `z`.
    fn audit(found: &str) -> Audit {
        Ledger::new(colors("ab")).audit(&[colors("xy"), colors("z")], colors(found))
    }

    #[test]
    fn all_is_there_in_whatever_order_the_writers_took_turns() {
        for found in ["abxyz", "abzxy", "abxzyu"] {
            assert_eq!(audit(found), Audit::default(), "{found}");
        }
    }

    #[test]
    fn what_is_not_there_is_lost() {
        for (found, lost) in [("abxz", 1), ("ab", 3), ("bxyz", 1), ("", 5)] {
            assert_eq!(audit(found), Audit { lost, is_disordered: false }, "{found}");
        }
        let mut changed = colors("abxyz");
        changed[2].value = "2".to_owned();
        let acknowledged = [colors("xy"), colors("z")];
        assert_eq!(Ledger::new(colors("ab")).audit(&acknowledged, changed), Audit { lost: 1, is_disordered: false });
    }

    #[test]
    fn order_is_that_of_the_list_and_of_each_writer() {
        for found in ["baxyz", "abyxz", "axyzb"] {
            assert_eq!(audit(found), Audit { lost: 0, is_disordered: true }, "{found}");
        }
    }

    #[test]
    fn what_was_found_is_expected_next_time() {
        let mut ledger = Ledger::new(colors("ab"));
        assert_eq!(ledger.audit(&[colors("x")], colors("abxu")), Audit::default());
        assert_eq!(ledger.list(), colors("abxu"));
        assert_eq!(ledger.audit(&[colors("y")], colors("abxy")).lost, 1);
    }
}
