//! The list of colors: order, first match by name, and its kept representation. Knows nothing of HTTP, files or locks.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use hashbrown::HashTable;
use serde::Serialize;

use crate::color::Color;
use crate::message::EntityTag;

/// All colors in stored order, with an index that finds the first of a name without looking at the others.
///
/// Finding, updating and appending take the same time however long the list is; removing moves what comes after.
#[derive(Clone, Debug)]
pub(crate) struct Palette {
    /// The colors; duplicates of a name are entries like any other.
    colors: Vec<Color>,
    /// Where the first color of each name is; compares names in `colors`, holds none itself.
    index: HashTable<Named>,
    /// Seeded at random, so that names cannot be chosen to collide.
    hasher: RandomState,
    /// The list as JSON, until the next change.
    listing: Option<Listing>,
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
    pub(crate) json: Arc<Vec<u8>>,
    /// The tag of these bytes.
    pub(crate) tag: EntityTag,
}

impl Palette {
    /// A list of these colors, in this order.
    pub(crate) fn new(colors: Vec<Color>) -> Self {
        let mut palette =
            Self { index: HashTable::with_capacity(colors.len()), colors: Vec::new(), hasher: RandomState::new(), listing: None };
        palette.colors.reserve(colors.len());
        for color in colors {
            palette.append(color);
        }
        palette
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
        self.listing = None;
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
        self.listing = None;
        let color = &mut self.colors[position];
        color.value = value;
        Some(color)
    }

    /// Takes the first color of this name out of the list; the next of that name, if any, becomes its first.
    pub(crate) fn remove_first(&mut self, name: &str) -> Option<Color> {
        let (hash, colors) = (self.hasher.hash_one(name), &self.colors);
        let mut entry = self.index.find_entry(hash, |named| *colors[named.first].name == *name).ok()?;
        self.listing = None;
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
        Self { tag: tag_of(&json), json: Arc::new(json) }
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

    fn listed(palette: &mut Palette) -> String {
        String::from_utf8(palette.listing().json.to_vec()).unwrap()
    }

    #[test]
    fn the_listing_is_the_envelope_and_follows_every_change() {
        let mut palette = Palette::new(vec![]);
        assert_eq!(listed(&mut palette), r#"{"data":[]}"#);
        palette.append(color("a", "1"));
        palette.append(color("b", "2"));
        assert_eq!(listed(&mut palette), r#"{"data":[{"name":"a","value":"1"},{"name":"b","value":"2"}]}"#);
        palette.update_first("a", "3".into());
        assert_eq!(listed(&mut palette), r#"{"data":[{"name":"a","value":"3"},{"name":"b","value":"2"}]}"#);
        palette.remove_first("a");
        assert_eq!(listed(&mut palette), r#"{"data":[{"name":"b","value":"2"}]}"#);
    }

    #[test]
    fn the_listing_is_kept_between_changes() {
        let mut palette = Palette::new(vec![color("a", "1")]);
        let kept = Arc::clone(&palette.listing().json);
        assert!(palette.update_first("b", "2".into()).is_none() && palette.remove_first("b").is_none());
        assert!(Arc::ptr_eq(&kept, &palette.listing().json));
    }

    #[test]
    fn the_first_of_several_with_one_name_is_the_one_that_counts() {
        let mut palette = Palette::new(vec![color("x", "0"), color("a", "1"), color("a", "2"), color("b", "3"), color("a", "4")]);
        assert_eq!(palette.update_first("a", "9".into()), Some(&color("a", "9")));
        assert_eq!(palette.remove_first("a"), Some(color("a", "9")));
        assert_eq!(palette.first("a"), Some(&color("a", "2")));
        assert_eq!(palette.remove_first("x"), Some(color("x", "0")));
        assert_eq!(palette.remove_first("a"), Some(color("a", "2")));
        assert_eq!(palette.first("a"), Some(&color("a", "4")));
        assert_eq!(palette.first("b"), Some(&color("b", "3")));
        assert_eq!(palette.remove_first("a"), Some(color("a", "4")));
        assert_eq!(palette.first("a"), None);
        assert_eq!(palette.colors(), [color("b", "3")]);
    }

    #[test]
    fn removing_anywhere_leaves_every_name_where_it_is() {
        const COUNT: usize = 200;
        for removed in 0..COUNT {
            let names: Vec<String> = (0..COUNT).map(|number| (number % 150).to_string()).collect();
            let mut palette = Palette::new(names.iter().map(|name| color(name, "")).collect());
            let name = &names[removed];
            palette.remove_first(name);
            for name in &names {
                let expected = palette.colors.iter().position(|color| *color.name == **name);
                assert_eq!(palette.position(name), expected, "{name} after the first {removed}");
            }
        }
    }

    #[test]
    fn names_match_exactly() {
        let palette = Palette::new(vec![color("Red", "1"), color("", "2"), color("\u{e9}", "3")]);
        assert_eq!(palette.first(""), Some(&color("", "2")));
        for name in ["red", "Red ", "R", "e\u{301}"] {
            assert_eq!(palette.first(name), None, "{name:?}");
        }
    }

    #[test]
    fn a_tag_is_that_of_the_bytes() {
        let tag = |colors: Vec<Color>| Palette::new(colors).listing().tag;
        assert_eq!(tag(vec![color("a", "1")]), tag(vec![color("a", "1")]));
        assert_ne!(tag(vec![color("a", "1")]), tag(vec![color("a", "2")]));
        // the first 16 bytes of the official test vector for no input
        assert_eq!(tag_of(b"").to_string(), "\"af1349b9f5f9a1a6a0404dea36dcc949\"");
    }
}
