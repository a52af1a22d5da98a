//! The colors in their order, with an index that finds the first of a name. Knows no JSON, no files and no locks.

use std::hash::{BuildHasher, RandomState};
use std::mem::replace;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::color::Color;

/// All colors in stored order.
///
/// Finding, replacing and appending take the same time however long the list is; removing moves what comes after.
#[derive(Debug)]
pub(crate) struct Colors {
    /// The colors; duplicates of a name are entries like any other.
    colors: Vec<Color>,
    /// Bytes of all of them as JSON.
    bytes: usize,
    /// Where the first color of each name is; compares names in `colors`, holds none itself.
    index: HashTable<IndexEntry>,
    /// Seeded at random, so that names cannot be chosen to collide.
    hasher: RandomState,
}

/// What the index knows of one name.
#[derive(Clone, Debug)]
struct IndexEntry {
    /// Position of its first color.
    first: usize,
    /// How many colors have it, at least 1.
    copies: usize,
}

/// One step from a list to the next, by position, so that every copy of the list can take it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Edit {
    /// At this position: the end for a create; where it was when a delete is undone.
    Insert(usize, Color),
    /// In the place of the first color of the same name.
    Replace(usize, Color),
    /// This color.
    Remove(usize, Color),
}

impl Colors {
    pub(crate) fn new(colors: Vec<Color>) -> Self {
        let (index, hasher) = (HashTable::with_capacity(colors.len()), RandomState::new());
        let mut all = Self { index, bytes: 0, colors: Vec::with_capacity(colors.len()), hasher };
        colors.into_iter().for_each(|color| all.insert(all.len(), color));
        all
    }

    /// Duplicates included.
    pub(crate) fn len(&self) -> usize {
        self.colors.len()
    }

    /// Bytes of all colors as JSON.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The id of a color that is appended.
    pub(super) fn next_id(&self) -> i64 {
        self.colors.last().map_or(1, |last| last.id.saturating_add(1))
    }

    /// All colors in stored order.
    pub(crate) fn as_slice(&self) -> &[Color] {
        &self.colors
    }

    /// The first color whose name equals `name` exactly, and its position.
    pub(super) fn find(&self, name: &str) -> Option<(usize, &Color)> {
        let hash = self.hasher.hash_one(name);
        let entry = self.index.find(hash, |entry| *self.colors[entry.first].name == *name)?;
        Some((entry.first, &self.colors[entry.first]))
    }

    /// Makes an edit that was decided for this list; returns the edit that takes it back.
    pub(super) fn apply(&mut self, edit: Edit) -> Edit {
        match edit {
            Edit::Insert(position, color) => {
                self.insert(position, color.clone());
                Edit::Remove(position, color)
            }
            Edit::Replace(position, color) => {
                self.bytes += color.json.bytes().len();
                let before = replace(&mut self.colors[position], color);
                self.bytes -= before.json.bytes().len();
                Edit::Replace(position, before)
            }
            Edit::Remove(position, _) => Edit::Insert(position, self.remove(position)),
        }
    }

    /// The index entry for the name of the color at this position. All other entries must be up to date.
    fn index_entry(&mut self, position: usize) -> Entry<'_, IndexEntry> {
        let (hasher, colors) = (&self.hasher, &self.colors);
        let name = &*colors[position].name;
        let hash = |entry: &IndexEntry| hasher.hash_one(&*colors[entry.first].name);
        self.index.entry(hasher.hash_one(name), |entry| *colors[entry.first].name == *name, hash)
    }

    /// Removes a color. If it is the first of its name, the next of that name becomes the first.
    fn remove(&mut self, position: usize) -> Color {
        let Entry::Occupied(mut entry) = self.index_entry(position) else { unreachable!("every name is in the index") };
        let IndexEntry { first, copies } = entry.get().clone();
        if copies == 1 {
            entry.remove();
        } else {
            entry.get_mut().copies -= 1;
            if first == position {
                let (name, rest) = (&self.colors[position].name, &self.colors[position + 1..]);
                let next = rest.iter().position(|color| color.name == *name).expect("a name with copies left has a color behind its first");
                self.index_entry(position).and_modify(|entry| entry.first += 1 + next);
            }
        }
        let color = self.colors.remove(position);
        self.bytes -= color.json.bytes().len();
        self.move_up(position);
        color
    }

    /// Updates the index for the colors from `start` on, which have moved up by one position.
    fn move_up(&mut self, start: usize) {
        // looking up one name takes as long as walking over about this many
        const WALKED_PER_LOOKUP: usize = 16;
        let tail = &self.colors[start..];
        if tail.len() * WALKED_PER_LOOKUP > self.index.len() {
            for entry in self.index.iter_mut() {
                entry.first -= usize::from(entry.first > start);
            }
            return;
        }
        for (place, color) in (start..).zip(tail) {
            let hash = self.hasher.hash_one(&*color.name);
            // the entry still has the place before the move, by which it is found: no names need comparing
            if let Some(entry) = self.index.find_mut(hash, |entry| entry.first == place + 1) {
                entry.first = place;
            }
        }
    }

    /// Inserts a color; duplicate names are allowed (spec, Color, rule 3). `position` is the end, or before the first color of its name.
    fn insert(&mut self, position: usize, color: Color) {
        if position < self.colors.len() {
            self.index.iter_mut().for_each(|entry| entry.first += usize::from(entry.first >= position));
        }
        self.bytes += color.json.bytes().len();
        self.colors.insert(position, color);
        match self.index_entry(position) {
            Entry::Occupied(mut entry) => {
                let entry = entry.get_mut();
                (entry.first, entry.copies) = (entry.first.min(position), entry.copies + 1);
            }
            Entry::Vacant(entry) => drop(entry.insert(IndexEntry { first: position, copies: 1 })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn color(name: &str, value: &str) -> Color {
        Color::new(name, value)
    }

    /// Removes the first color of this name.
    fn remove_first(colors: &mut Colors, name: &str) -> Edit {
        let (position, _) = colors.find(name).unwrap();
        let color = colors.colors[position].clone();
        colors.apply(Edit::Remove(position, color))
    }

    fn first<'a>(colors: &'a Colors, name: &str) -> Option<&'a Color> {
        colors.find(name).map(|(_, color)| color)
    }

    #[test]
    fn the_first_of_several_with_one_name_is_the_one_that_counts() {
        let mut colors = Colors::new(vec![color("x", "0"), color("a", "1"), color("a", "2"), color("b", "3"), color("a", "4")]);
        assert_eq!(colors.apply(Edit::Replace(1, color("a", "9"))), Edit::Replace(1, color("a", "1")));
        assert_eq!(remove_first(&mut colors, "a"), Edit::Insert(1, color("a", "9")));
        assert_eq!(first(&colors, "a"), Some(&color("a", "2")));
        assert_eq!(remove_first(&mut colors, "x"), Edit::Insert(0, color("x", "0")));
        assert_eq!(remove_first(&mut colors, "a"), Edit::Insert(0, color("a", "2")));
        assert_eq!(first(&colors, "a"), Some(&color("a", "4")));
        assert_eq!(first(&colors, "b"), Some(&color("b", "3")));
        assert_eq!(remove_first(&mut colors, "a"), Edit::Insert(1, color("a", "4")));
        assert_eq!(first(&colors, "a"), None);
        assert_eq!(colors.as_slice(), [color("b", "3")]);
    }

    /// Checks that the index finds what a search from the start of the list finds.
    #[track_caller]
    fn check_index(colors: &Colors, names: &[String]) {
        for name in names {
            let expected = colors.colors.iter().position(|color| *color.name == **name);
            assert_eq!(colors.find(name).map(|(position, _)| position), expected, "{name}");
            let copies = colors.index.iter().filter(|entry| *colors.colors[entry.first].name == **name).map(|entry| entry.copies);
            assert_eq!(copies.sum::<usize>(), colors.colors.iter().filter(|color| *color.name == **name).count(), "{name}");
        }
    }

    #[test]
    fn removing_anywhere_leaves_every_name_where_it_is() {
        const COUNT: usize = 200;
        for removed in 0..COUNT {
            let names: Vec<String> = (0..COUNT).map(|number| (number % 150).to_string()).collect();
            let mut colors = Colors::new(names.iter().map(|name| color(name, "")).collect());
            remove_first(&mut colors, &names[removed]);
            check_index(&colors, &names);
        }
    }

    #[test]
    fn edits_that_are_taken_back_leave_the_list_as_it_was() {
        let names: Vec<String> = (0..12).map(|number| number.to_string()).collect();
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let some_color = |random: &mut fastrand::Rng| color(&names[random.usize(..names.len())], &random.u8(..).to_string());
            let before: Vec<Color> = (0..20).map(|_| some_color(&mut random)).collect();
            let mut colors = Colors::new(before.clone());
            let mut undo = Vec::new();
            for _ in 0..15 {
                let (position, found) = colors.find(&names[random.usize(..names.len())]).unwrap_or((0, &colors.colors[0]));
                let edit = match random.u8(..3) {
                    0 => Edit::Insert(colors.len(), some_color(&mut random)),
                    1 => Edit::Replace(position, color(&found.name, "new")),
                    _ => Edit::Remove(position, found.clone()),
                };
                undo.push(colors.apply(edit));
                check_index(&colors, &names);
            }
            undo.into_iter().rev().for_each(|edit| drop(colors.apply(edit)));
            assert_eq!(colors.as_slice(), before);
            check_index(&colors, &names);
        }
    }

    #[test]
    fn names_match_exactly() {
        let colors = Colors::new(vec![color("Red", "1"), color("", "2"), color("\u{e9}", "3")]);
        assert_eq!(first(&colors, ""), Some(&color("", "2")));
        for name in ["red", "Red ", "R", "e\u{301}"] {
            assert_eq!(first(&colors, name), None, "{name:?}");
        }
    }
}
