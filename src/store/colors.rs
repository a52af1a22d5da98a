//! The list of colors: order, first match by name, and its kept representation. Knows nothing of HTTP, files or locks.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Weak};

use hashbrown::HashTable;
use serde::Serialize;

use super::color::Color;
use crate::http::{EntityTag, Representation};

/// Bytes of old versions of the list that responses may be sent from, however often the list changes meanwhile; see [`Representation`].
const OLD_VERSIONS_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Old versions that are kept however long they are.
const OLD_VERSIONS_AT_LEAST: usize = 4;

/// All colors in stored order, with an index that finds the first of a name without looking at the others.
///
/// Finding, updating and appending take the same time however long the list is; removing moves what comes after.
#[derive(Clone, Debug)]
pub(crate) struct Colors {
    /// The colors; duplicates of a name are entries like any other.
    colors: Vec<Color>,
    /// Where the first color of each name is; compares names in `colors`, holds none itself.
    index: HashTable<Named>,
    /// Seeded at random, so that names cannot be chosen to collide.
    hasher: RandomState,
    /// The list as JSON, until the next change.
    listing: Option<Listing>,
    /// Old versions of the list that are still being sent, the oldest first.
    old_versions: Vec<Weak<Representation>>,
}

/// What the index knows of one name.
#[derive(Clone, Debug)]
struct Named {
    /// Position of its first color.
    first: usize,
    /// How many colors have it, at least 1.
    copies: usize,
}

/// The collection envelope of the specification, as JSON, with its entity tag.
#[derive(Clone, Debug)]
pub(crate) struct Listing {
    /// `{"data":[...]}`; shared with the responses that are being sent.
    pub(crate) json: Arc<Representation>,
    /// The tag of these bytes.
    pub(crate) tag: EntityTag,
}

impl Colors {
    /// A list of these colors, in this order.
    pub(crate) fn new(colors: Vec<Color>) -> Self {
        let index = HashTable::with_capacity(colors.len());
        let mut all =
            Self { index, colors: Vec::with_capacity(colors.len()), hasher: RandomState::new(), listing: None, old_versions: Vec::new() };
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
        self.retire_listing();
        let first = self.colors.len();
        let (hasher, colors) = (&self.hasher, &self.colors);
        let hash = hasher.hash_one(&*color.name);
        let rehash = |named: &Named| hasher.hash_one(&*colors[named.first].name);
        match self.index.entry(hash, |named| colors[named.first].name == color.name, rehash) {
            hashbrown::hash_table::Entry::Occupied(mut entry) => entry.get_mut().copies += 1,
            hashbrown::hash_table::Entry::Vacant(entry) => drop(entry.insert(Named { first, copies: 1 })),
        }
        self.colors.push(color);
    }

    /// Gives the first color of this name another value; its place and name stay (spec, Endpoints, rule 3).
    pub(crate) fn update_first(&mut self, name: &str, value: Arc<str>) -> Option<&Color> {
        let position = self.position(name)?;
        self.retire_listing();
        let color = &mut self.colors[position];
        color.value = value;
        Some(color)
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
        self.retire_listing();
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

    /// The list as JSON; made anew only by the first reader after a change.
    pub(crate) fn listing(&mut self) -> &Listing {
        let colors = &self.colors;
        self.listing.get_or_insert_with(|| Listing::of(colors))
    }

    /// Lets go of the listing, which is about to be an old one. The oldest ones are withdrawn when all that are still being sent take too much.
    fn retire_listing(&mut self) {
        let Some(Listing { json, .. }) = self.listing.take() else { return };
        self.old_versions.push(Arc::downgrade(&json));
        drop(json);
        self.old_versions.retain(|version| version.strong_count() > 0);
        let versions: Vec<Arc<Representation>> = self.old_versions.iter().filter_map(Weak::upgrade).collect();
        let longest = versions.iter().map(|version| version.json.len()).max().unwrap_or_default();
        let mut bytes: usize = versions.iter().map(|version| version.json.len()).sum();
        for version in versions {
            if bytes <= OLD_VERSIONS_BYTES_MAX.max(OLD_VERSIONS_AT_LEAST * longest) {
                return;
            }
            bytes -= version.json.len();
            version.withdraw();
            self.old_versions.remove(0);
        }
    }

    /// Where the first color of this name is.
    fn position(&self, name: &str) -> Option<usize> {
        let hash = self.hasher.hash_one(name);
        self.index.find(hash, |named| *self.colors[named.first].name == *name).map(|named| named.first)
    }
}

impl Listing {
    /// Renders the envelope.
    fn of(colors: &[Color]) -> Self {
        /// The collection envelope of the specification.
        #[derive(Serialize)]
        struct Envelope<'a> {
            /// All colors in stored order.
            data: &'a [Color],
        }
        let mut json = Vec::with_capacity(16 + 48 * colors.len()); // bytes; a color of the seed takes 47 on average
        serde_json::to_writer(&mut json, &Envelope { data: colors }).expect("strings always serialize, and a Vec takes every byte");
        Self { tag: tag_of(&json), json: Arc::new(Representation::new(json)) }
    }
}

/// The strong entity tag of a representation: half of its BLAKE3 hash, so that nobody can make two with the same tag. It depends on
/// nothing but the bytes, so that a tag is good after a restart.
pub(crate) fn tag_of(representation: &[u8]) -> EntityTag {
    let mut tag = [0; 16];
    tag.copy_from_slice(&blake3::hash(representation).as_bytes()[..16]);
    EntityTag(tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn color(name: &str, value: &str) -> Color {
        Color { name: name.into(), value: value.into() }
    }

    fn listed(colors: &mut Colors) -> String {
        String::from_utf8(colors.listing().json.json.clone()).unwrap()
    }

    #[test]
    fn the_listing_is_the_envelope_and_follows_every_change() {
        let mut colors = Colors::new(vec![]);
        assert_eq!(listed(&mut colors), r#"{"data":[]}"#);
        colors.append(color("a", "1"));
        colors.append(color("b", "2"));
        assert_eq!(listed(&mut colors), r#"{"data":[{"name":"a","value":"1"},{"name":"b","value":"2"}]}"#);
        colors.update_first("a", "3".into());
        assert_eq!(listed(&mut colors), r#"{"data":[{"name":"a","value":"3"},{"name":"b","value":"2"}]}"#);
        colors.remove_first("a");
        assert_eq!(listed(&mut colors), r#"{"data":[{"name":"b","value":"2"}]}"#);
    }

    #[test]
    fn the_listing_is_kept_between_changes() {
        let mut colors = Colors::new(vec![color("a", "1")]);
        let kept = Arc::clone(&colors.listing().json);
        assert!(colors.update_first("b", "2".into()).is_none() && colors.remove_first("b").is_none());
        assert!(Arc::ptr_eq(&kept, &colors.listing().json));
    }

    #[test]
    fn the_oldest_versions_are_withdrawn_when_all_take_too_much() {
        let mut colors = Colors::new(vec![color("a", &"x".repeat(OLD_VERSIONS_BYTES_MAX / 5))]);
        let versions: Vec<_> = (0..8)
            .map(|number| {
                let version = Arc::clone(&colors.listing().json);
                colors.append(color(&number.to_string(), ""));
                version
            })
            .collect();
        let withdrawn: Vec<bool> = versions.iter().map(|version| version.is_withdrawn()).collect();
        assert_eq!(withdrawn, [true, true, true, true, false, false, false, false]);
    }

    #[test]
    fn the_first_of_several_with_one_name_is_the_one_that_counts() {
        let mut colors = Colors::new(vec![color("x", "0"), color("a", "1"), color("a", "2"), color("b", "3"), color("a", "4")]);
        assert_eq!(colors.update_first("a", "9".into()), Some(&color("a", "9")));
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

    #[test]
    fn a_tag_is_that_of_the_bytes() {
        let tag = |colors: Vec<Color>| Colors::new(colors).listing().tag;
        assert_eq!(tag(vec![color("a", "1")]), tag(vec![color("a", "1")]));
        assert_ne!(tag(vec![color("a", "1")]), tag(vec![color("a", "2")]));
        // the first 16 bytes of the official test vector for no input
        assert_eq!(tag_of(b"").to_string(), "\"af1349b9f5f9a1a6a0404dea36dcc949\"");
    }
}
