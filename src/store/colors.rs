//! The list of colors: order, first match by name, and its kept representation. Knows no files and no locks.

use std::hash::{BuildHasher, RandomState};
use std::mem::replace;
use std::sync::{Arc, Weak};

use hashbrown::HashTable;

use super::color::Color;
use crate::http::Representation;

/// Bytes of representations that are not current any more and still being sent, however often the list changes meanwhile.
const RETIRED_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Representations that are not withdrawn however long they are.
const RETIRED_AT_LEAST: usize = 4;

/// Bytes of a representation that counts: of shorter ones, every connection may have one.
const LONG: usize = 4096;

/// All colors in stored order, with an index that finds the first of a name without looking at the others.
///
/// Finding, updating and appending take the same time however long the list is; removing moves what comes after.
#[derive(Clone, Debug)]
pub(crate) struct Colors {
    /// The colors; duplicates of a name are entries like any other.
    colors: Vec<Color>,
    /// Where the first color of each name is; compares names in `colors`, holds none itself.
    index: HashTable<IndexEntry>,
    /// Seeded at random, so that names cannot be chosen to collide.
    hasher: RandomState,
    /// The collection envelope of the specification, until the next change.
    envelope: Option<Arc<Representation>>,
    /// Long representations that are not current any more and may still be being sent, the oldest first.
    retired: Vec<Weak<Representation>>,
}

/// What the index knows of one name.
#[derive(Clone, Debug)]
struct IndexEntry {
    /// Position of its first color.
    first: usize,
    /// How many colors have it, at least 1.
    copies: usize,
}

impl Colors {
    /// A list of these colors, in this order.
    pub(crate) fn new(colors: Vec<Color>) -> Self {
        let index = HashTable::with_capacity(colors.len());
        let mut all =
            Self { index, colors: Vec::with_capacity(colors.len()), hasher: RandomState::new(), envelope: None, retired: Vec::new() };
        colors.into_iter().for_each(|color| all.append(color));
        all
    }

    /// How many colors there are, duplicates included.
    pub(crate) fn len(&self) -> usize {
        self.colors.len()
    }

    /// All colors in stored order.
    pub(crate) fn colors(&self) -> &[Color] {
        &self.colors
    }

    /// The first color whose name equals `name` exactly.
    pub(crate) fn first(&self, name: &str) -> Option<&Color> {
        self.position(name).map(|position| &self.colors[position])
    }

    /// Adds a color at the end, whatever names there are (spec, Color, rule 3).
    pub(crate) fn append(&mut self, color: Color) {
        self.retire_envelope();
        let first = self.colors.len();
        let (hasher, colors) = (&self.hasher, &self.colors);
        let hash = hasher.hash_one(&*color.name);
        let rehash = |named: &IndexEntry| hasher.hash_one(&*colors[named.first].name);
        match self.index.entry(hash, |named| colors[named.first].name == color.name, rehash) {
            hashbrown::hash_table::Entry::Occupied(mut entry) => entry.get_mut().copies += 1,
            hashbrown::hash_table::Entry::Vacant(entry) => drop(entry.insert(IndexEntry { first, copies: 1 })),
        }
        self.colors.push(color);
    }

    /// Gives the first color of this name another value; its place and name stay (spec, Endpoints, rule 3).
    pub(crate) fn update_first(&mut self, name: &str, value: &str) -> Option<&Color> {
        let position = self.position(name)?;
        let name = Arc::clone(&self.colors[position].name);
        let before = replace(&mut self.colors[position], Color::new(name, value));
        self.retire_envelope();
        self.retire(&before.json);
        Some(&self.colors[position])
    }

    /// Takes the first color of this name out of the list; the next of that name, if any, becomes its first.
    pub(crate) fn remove_first(&mut self, name: &str) -> Option<Color> {
        let (hash, colors) = (self.hasher.hash_one(name), &self.colors);
        let mut entry = self.index.find_entry(hash, |named| *colors[named.first].name == *name).ok()?;
        let removed = entry.get().first;
        if entry.get().copies == 1 {
            entry.remove();
        } else {
            let next = colors[removed + 1..].iter().position(|color| *color.name == *name);
            let named = entry.get_mut();
            named.first += 1 + next.expect("a name with copies left has a color behind its first");
            named.copies -= 1;
        }
        let color = self.colors.remove(removed);
        self.retire_envelope();
        self.retire(&color.json);
        self.move_up(removed);
        Some(color)
    }

    /// Has the index follow the colors from `start` on, which have moved up by one place.
    fn move_up(&mut self, start: usize) {
        // looking up one name takes as long as walking over about this many
        const WALKED_PER_LOOKUP: usize = 16;
        let tail = &self.colors[start..];
        if tail.len() * WALKED_PER_LOOKUP > self.index.len() {
            for named in self.index.iter_mut() {
                named.first -= usize::from(named.first > start);
            }
            return;
        }
        for (place, color) in (start..).zip(tail) {
            let hash = self.hasher.hash_one(&*color.name);
            // the entry still has the place before the move, by which it is found: no names need comparing
            if let Some(named) = self.index.find_mut(hash, |named| named.first == place + 1) {
                named.first = place;
            }
        }
    }

    /// The collection envelope of the specification: `{"data":[...]}`. Made anew by the first reader after a change.
    pub(super) fn envelope(&mut self) -> &Arc<Representation> {
        let colors = &self.colors;
        self.envelope.get_or_insert_with(|| {
            let length: usize = colors.iter().map(|color| color.json.bytes().len() + 1).sum();
            let mut json = Vec::with_capacity(length + 16); // bytes; 11 of them are the envelope's own
            json.extend_from_slice(br#"{"data":["#);
            push_joined(&mut json, colors, b",");
            json.extend_from_slice(b"]}");
            Arc::new(Representation::new(json))
        })
    }

    fn retire_envelope(&mut self) {
        if let Some(envelope) = self.envelope.take() {
            self.retire(&envelope);
        }
    }

    /// Notes that a representation is not current any more.
    fn retire(&mut self, old: &Arc<Representation>) {
        if old.bytes().len() >= LONG {
            self.retired.push(Arc::downgrade(old));
        }
    }

    /// Withdraws the oldest of the representations that are not current any more, if those that are still being sent take too much. Says
    /// whether it did. For a list that everybody sees.
    pub(super) fn withdraw_oldest(&mut self) -> bool {
        self.retired.retain(|retired| retired.strong_count() > 0);
        let kept: Vec<Arc<Representation>> = self.retired.iter().filter_map(Weak::upgrade).collect();
        let lengths = || kept.iter().map(|retired| retired.bytes().len());
        let most = RETIRED_BYTES_MAX.max(RETIRED_AT_LEAST * lengths().max().unwrap_or_default());
        let mut bytes: usize = lengths().sum();
        let withdrawn = kept.iter().take_while(|retired| {
            let is_too_much = bytes > most;
            bytes -= retired.bytes().len();
            is_too_much
        });
        let count = withdrawn.inspect(|retired| retired.withdraw()).count();
        self.retired.drain(..count);
        count > 0
    }

    /// Where the first color of this name is.
    fn position(&self, name: &str) -> Option<usize> {
        let hash = self.hasher.hash_one(name);
        self.index.find(hash, |named| *self.colors[named.first].name == *name).map(|named| named.first)
    }
}

/// Appends colors as JSON with `separator` between two.
pub(super) fn push_joined(out: &mut Vec<u8>, colors: &[Color], separator: &[u8]) {
    for (position, color) in colors.iter().enumerate() {
        out.extend_from_slice(if position == 0 { b"" } else { separator });
        out.extend_from_slice(color.json.bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn color(name: &str, value: &str) -> Color {
        Color::new(name, value)
    }

    fn listed(colors: &mut Colors) -> String {
        String::from_utf8(colors.envelope().bytes().to_vec()).unwrap()
    }

    #[test]
    fn the_envelope_is_the_envelope_and_follows_every_change() {
        let mut colors = Colors::new(vec![]);
        assert_eq!(listed(&mut colors), r#"{"data":[]}"#);
        colors.append(color("a", "1"));
        colors.append(color("b", "2"));
        assert_eq!(listed(&mut colors), r#"{"data":[{"name":"a","value":"1"},{"name":"b","value":"2"}]}"#);
        colors.update_first("a", "3");
        assert_eq!(listed(&mut colors), r#"{"data":[{"name":"a","value":"3"},{"name":"b","value":"2"}]}"#);
        colors.remove_first("a");
        assert_eq!(listed(&mut colors), r#"{"data":[{"name":"b","value":"2"}]}"#);
    }

    #[test]
    fn the_envelope_is_kept_between_changes() {
        let mut colors = Colors::new(vec![color("a", "1")]);
        let kept = Arc::clone(colors.envelope());
        assert!(colors.update_first("b", "2").is_none() && colors.remove_first("b").is_none());
        assert!(Arc::ptr_eq(&kept, colors.envelope()));
    }

    #[test]
    fn the_oldest_versions_are_withdrawn_when_all_take_too_much() {
        let mut colors = Colors::new(vec![color("a", &"x".repeat(RETIRED_BYTES_MAX / 5))]);
        let versions: Vec<_> = (0..8)
            .map(|number| {
                let version = Arc::clone(colors.envelope());
                colors.append(color(&number.to_string(), ""));
                colors.withdraw_oldest();
                version
            })
            .collect();
        let withdrawn: Vec<bool> = versions.iter().map(|version| version.is_withdrawn()).collect();
        assert_eq!(withdrawn, [true, true, true, true, false, false, false, false]);
    }

    #[test]
    fn a_change_of_a_copy_withdraws_nothing_of_the_list() {
        let long = "x".repeat(RETIRED_BYTES_MAX / 5);
        let mut colors = Colors::new((0..8).map(|number| color(&number.to_string(), &long)).collect());
        let mut copy = colors.clone();
        for number in 0..8 {
            copy.update_first(&number.to_string(), "");
        }
        assert!(!colors.withdraw_oldest() && colors.colors().iter().all(|color| !color.json.is_withdrawn()));
        assert!(copy.withdraw_oldest() && colors.colors()[0].json.is_withdrawn());
    }

    #[test]
    fn the_first_of_several_with_one_name_is_the_one_that_counts() {
        let mut colors = Colors::new(vec![color("x", "0"), color("a", "1"), color("a", "2"), color("b", "3"), color("a", "4")]);
        assert_eq!(colors.update_first("a", "9"), Some(&color("a", "9")));
        assert_eq!(colors.remove_first("a"), Some(color("a", "9")));
        assert_eq!(colors.first("a"), Some(&color("a", "2")));
        assert_eq!(colors.remove_first("x"), Some(color("x", "0")));
        assert_eq!(colors.remove_first("a"), Some(color("a", "2")));
        assert_eq!(colors.first("a"), Some(&color("a", "4")));
        assert_eq!(colors.first("b"), Some(&color("b", "3")));
        assert_eq!(colors.remove_first("a"), Some(color("a", "4")));
        assert_eq!(colors.first("a"), None);
        assert_eq!(colors.colors(), [color("b", "3")]);
    }

    #[test]
    fn removing_anywhere_leaves_every_name_where_it_is() {
        const COUNT: usize = 200;
        for removed in 0..COUNT {
            let names: Vec<String> = (0..COUNT).map(|number| (number % 150).to_string()).collect();
            let mut colors = Colors::new(names.iter().map(|name| color(name, "")).collect());
            let name = &names[removed];
            colors.remove_first(name);
            for name in &names {
                let expected = colors.colors.iter().position(|color| *color.name == **name);
                assert_eq!(colors.position(name), expected, "{name} after the first {removed}");
            }
        }
    }

    #[test]
    fn names_match_exactly() {
        let colors = Colors::new(vec![color("Red", "1"), color("", "2"), color("\u{e9}", "3")]);
        assert_eq!(colors.first(""), Some(&color("", "2")));
        for name in ["red", "Red ", "R", "e\u{301}"] {
            assert_eq!(colors.first(name), None, "{name:?}");
        }
    }
}
