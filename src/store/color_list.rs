//! One version of the list. A clone shares its memory with the original, so that cloning takes the
//! same time for a list of any length. The writer makes changes on a clone, and readers keep the
//! version with which they have begun.

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::mem::{replace, take};
use std::sync::{Arc, OnceLock};

use imbl::{OrdMap, OrdSet};

use super::color::Color;
use crate::representation::Representation;

/// Longest envelope, in bytes, that a worker makes itself, in a fifth of a millisecond with the
/// tag. Longer ones are left to the pool.
const MADE_AT_ONCE_BYTES_MAX: usize = 64 * 1024;

/// How many items a leaf of imbl's trees has at most. If that changes, lists take more memory, and
/// nothing else happens.
const NODE_ITEMS: usize = 16;

/// What comes before and after the colors in the envelope.
const ENVELOPE: [&[u8]; 2] = [br#"{"data":["#, b"]}\n"];

/// All colors in stored order.
#[derive(Clone, Debug, Default)]
pub(crate) struct ColorList {
    /// By id, in the order of the list. In a database, the id is that of the row. Duplicates of a
    /// name are entries like any other (docs/http.md, Colors).
    colors: OrdMap<i64, Color>,
    /// The hash of each name, with the id of the first color whose name has that hash. The names
    /// themselves are only in the JSON.
    index: OrdMap<u64, i64>,
    /// The hash of the name and the id of every color that is not in `index`, because a name with
    /// the same hash, mostly the same name, comes earlier in the list.
    duplicates: OrdSet<(u64, i64)>,
    /// Has random keys, so that no client can find names with the same hash.
    hasher: RandomState,
    /// The sum of [`Color::json_len`] of all colors.
    bytes: usize,
    /// See [`ColorList::envelope`]. All clones of this version share it.
    envelope: Arc<OnceLock<Arc<Representation>>>,
}

/// One of the edits that lead from a version to the next.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Edit {
    /// Adds this color at the end of the list, with an id above all others.
    Append(i64, Color),
    /// Puts this color in place of the one with this id, which has the same name.
    Update(i64, Color),
    /// Removes this color, which has this id.
    Remove(i64, Color),
    /// Puts this list in place of the whole one.
    ReplaceAll(ColorList),
}

impl Edit {
    /// A color with the name that the edit concerns; `None` if it replaces the whole list.
    pub(crate) fn color(&self) -> Option<&Color> {
        match self {
            Self::Append(_, color) | Self::Update(_, color) | Self::Remove(_, color) => Some(color),
            Self::ReplaceAll(_) => None,
        }
    }

    /// Whether the edit changes which color of this list is the first of this name, or its value.
    pub(crate) fn changes(&self, list: &ColorList, name: &str) -> bool {
        let first = list.find(name);
        match self {
            Self::Append(_, color) => first.is_none() && color.is_named(name),
            Self::Update(id, _) | Self::Remove(id, _) => {
                first.is_some_and(|(first, _)| first == *id)
            }
            Self::ReplaceAll(new) => {
                first.map(|(_, color)| color) != new.find(name).map(|(_, color)| color)
            }
        }
    }
}

impl ColorList {
    /// The number of colors, duplicates included.
    pub(crate) fn len(&self) -> usize {
        self.colors.len()
    }

    /// All colors in order, with their ids.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (i64, &Color)> {
        self.colors.iter().map(|(id, color)| (*id, color))
    }

    /// The color with this id.
    pub(super) fn get(&self, id: i64) -> Option<&Color> {
        self.colors.get(&id)
    }

    /// The id for a color to append; `None` if another program has used the highest possible id.
    pub(super) fn next_id(&self) -> Option<i64> {
        self.colors.get_max().map_or(Some(1), |(id, _)| id.checked_add(1))
    }

    /// The first color whose name equals `name` exactly, and its id.
    pub(super) fn find(&self, name: &str) -> Option<(i64, &Color)> {
        let id = *self.index.get(&hash_of(&self.hasher, name))?;
        // The first color with the hash of a name nearly always has that name. `named` would make a
        // cursor on the heap (imbl's `range`), which takes as long as the whole search here.
        let first = self.get(id).filter(|color| color.is_named(name));
        first.map(|color| (id, color)).or_else(|| self.named(name).next())
    }

    /// All colors with this name, in the order of the list, each with its id.
    pub(super) fn named<'a>(&'a self, name: &str) -> impl Iterator<Item = (i64, &'a Color)> {
        let hash = hash_of(&self.hasher, name);
        let duplicates = self.duplicates.range((hash, i64::MIN)..=(hash, i64::MAX));
        let ids = self.index.get(&hash).into_iter().chain(duplicates.map(|(_, id)| id));
        let colors = ids.filter_map(|id| Some((*id, self.get(*id)?)));
        colors.filter(move |(_, color)| color.is_named(name))
    }

    /// Applies an edit that was decided for this version, and panics if its color is missing.
    /// Returns what this version had and lost, the envelope included: it may take long to free.
    pub(super) fn apply(&mut self, edit: &Edit) -> impl Sized + use<> {
        let envelope = match Arc::get_mut(&mut self.envelope) {
            // No clone shares it, so it can be that of the next version.
            Some(envelope) => (envelope.take(), None),
            None => (None, Some(take(&mut self.envelope))),
        };
        let mut color_before = None;
        let mut list_before = None;
        match edit {
            Edit::Append(id, color) => {
                self.bytes += color.json_len();
                self.add_to_index(*id, color);
                self.colors.insert(*id, color.clone());
            }
            Edit::Update(id, color) => {
                self.bytes += color.json_len();
                let before =
                    self.colors.insert(*id, color.clone()).expect("it was found in the list");
                self.bytes -= before.json_len();
                color_before = Some(before);
            }
            Edit::Remove(id, _) => {
                let color = self.colors.remove(id).expect("it was found in the list");
                self.bytes -= color.json_len();
                self.remove_from_index(*id, &color);
                color_before = Some(color);
            }
            Edit::ReplaceAll(colors) => list_before = Some(replace(self, colors.clone())),
        }
        (envelope, color_before, list_before)
    }

    /// Adds a color to the index. Its id has to be the highest.
    fn add_to_index(&mut self, id: i64, color: &Color) {
        let hash = hash_of(&self.hasher, &color.name());
        if self.index.contains_key(&hash) {
            self.duplicates.insert((hash, id));
        } else {
            self.index.insert(hash, id);
        }
    }

    fn remove_from_index(&mut self, id: i64, color: &Color) {
        let hash = hash_of(&self.hasher, &color.name());
        if self.duplicates.remove(&(hash, id)).is_none() {
            self.index.remove(&hash);
            let next = self.duplicates.get_next(&(hash, id)).filter(|next| next.0 == hash).copied();
            if let Some(next) = next.and_then(|next| self.duplicates.remove(&next)) {
                self.index.insert(hash, next.1);
            }
        }
    }

    /// The length of the envelope in bytes, without making it.
    pub(crate) fn envelope_len(&self) -> usize {
        // There is a comma between two neighbors.
        ENVELOPE[0].len() + self.bytes + self.len().saturating_sub(1) + ENVELOPE[1].len()
    }

    /// Whether a worker may make the envelope: see [`MADE_AT_ONCE_BYTES_MAX`].
    pub(super) fn is_short(&self) -> bool {
        self.envelope_len() <= MADE_AT_ONCE_BYTES_MAX
    }

    /// The envelope, if it was made already.
    pub(super) fn ready_envelope(&self) -> Option<&Arc<Representation>> {
        self.envelope.get()
    }

    /// The envelope: the object `{"data":[...]}` with all colors, which `GET /colors` answers. The
    /// first call makes it, which takes long for a long list.
    pub(crate) fn envelope(&self) -> &Arc<Representation> {
        self.envelope.get_or_init(|| {
            let mut json = Vec::with_capacity(self.envelope_len());
            json.extend_from_slice(ENVELOPE[0]);
            for (place, color) in self.colors.values().enumerate() {
                json.extend_from_slice(if place == 0 { b"" } else { b"," });
                json.extend_from_slice(color.json_in_list());
            }
            json.extend_from_slice(ENVELOPE[1]);
            Arc::new(Representation::new(json))
        })
    }
}

impl FromIterator<Color> for ColorList {
    /// Gives the colors new ids, from 1 on.
    fn from_iter<I: IntoIterator<Item = Color>>(colors: I) -> Self {
        (1..).zip(colors).collect()
    }
}

impl FromIterator<(i64, Color)> for ColorList {
    /// The list of these colors, by their ids.
    fn from_iter<I: IntoIterator<Item = (i64, Color)>>(with_ids: I) -> Self {
        let mut colors = OrdMap::new();
        fill(with_ids.into_iter(), |(id, color)| colors.insert(id, color));
        let hasher = RandomState::new();
        let bytes = colors.values().map(Color::json_len).sum();
        let hash = |color: &Color| hash_of(&hasher, &color.name());
        let mut index = OrdMap::new();
        let mut duplicates = OrdSet::new();
        // A quarter of the hashes at a time, by their highest two bits: less memory to sort them
        // in.
        for part in 0..4 {
            let ids = colors.iter().map(|(id, color)| (hash(color), *id));
            let mut ids: Vec<_> = ids.filter(|(hash, _)| hash >> 62 == part).collect();
            // Sorted, since insertions in random order miss the caches of the processor.
            ids.sort_unstable();
            let same = ids.chunk_by(|(one, _), (next, _)| one == next);
            fill(same.clone().map(|same| same[0]), |(hash, id)| index.insert(hash, id));
            fill(same.flat_map(|same| &same[1..]).copied(), |id| duplicates.insert(id));
        }
        Self { colors, index, duplicates, hasher, bytes, envelope: Arc::default() }
    }
}

/// The hash of a name. `hash_one` would hash a byte that ends the name, too, which for a short name
/// takes a third more time.
fn hash_of(hasher: &RandomState, name: &str) -> u64 {
    let mut hasher = hasher.build_hasher();
    hasher.write(name.as_bytes());
    hasher.finish()
}

/// Inserts items in ascending order into a tree of imbl, and leaves its nodes full. In ascending
/// order alone, they would be half full: a node with [`NODE_ITEMS`] is split in halves, and nothing
/// comes to the first half any more. So the second half of each [`NODE_ITEMS`] is inserted once the
/// node of the first half was split off.
fn fill<T, R>(items: impl Iterator<Item = T>, mut insert: impl FnMut(T) -> R) {
    const HALF: usize = NODE_ITEMS / 2;
    let mut late = VecDeque::with_capacity(NODE_ITEMS);
    for (place, item) in items.enumerate() {
        if place % NODE_ITEMS >= HALF {
            late.push_back(item);
            continue;
        }
        insert(item);
        if late.len() == NODE_ITEMS {
            late.drain(..HALF).for_each(|item| drop(insert(item)));
        }
    }
    late.into_iter().for_each(|item| drop(insert(item)));
}

/// Lists are equal if their colors are, whatever the ids.
impl PartialEq for ColorList {
    fn eq(&self, other: &Self) -> bool {
        self.colors.values().eq(other.colors.values())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn color(name: &str, value: &str) -> Color {
        Color::new(name, value)
    }

    /// The first color of this name, as the index and as the list have it.
    fn found(colors: &ColorList, name: &str) -> Option<Color> {
        let (id, found) = colors.find(name)?;
        let color = colors.get(id).unwrap();
        assert_eq!(found.json.bytes().as_ptr(), color.json.bytes().as_ptr());
        Some(color.clone())
    }

    fn json(colors: &ColorList) -> &str {
        str::from_utf8(colors.envelope().bytes()).unwrap()
    }

    #[test]
    fn the_first_of_several_with_one_name_is_the_one_that_is_found() {
        let mut colors = ColorList::from_iter([
            color("x", "0"),
            color("a", "1"),
            color("a", "2"),
            color("b", "3"),
            color("a", "4"),
        ]);
        colors.apply(&Edit::Update(2, color("a", "9")));
        for (name, removed, next) in
            [("a", "9", Some("2")), ("x", "0", None), ("a", "2", Some("4")), ("a", "4", None)]
        {
            let (id, color_found) = colors.find(name).unwrap();
            assert_eq!(color_found, &color(name, removed));
            colors.apply(&Edit::Remove(id, color(name, "")));
            assert_eq!(found(&colors, name), next.map(|next| color(name, next)));
        }
        assert_eq!(colors, ColorList::from_iter([color("b", "3")]));
    }

    #[test]
    fn names_match_exactly() {
        let colors =
            ColorList::from_iter([color("Red", "1"), color("", "2"), color("\u{e9}", "3")]);
        assert_eq!(found(&colors, ""), Some(color("", "2")));
        for name in ["red", "Red ", "R", "e\u{301}"] {
            assert_eq!(found(&colors, name), None, "{name:?}");
        }
    }

    #[test]
    fn names_with_the_same_hash_are_told_apart() {
        let mut colors = ColorList::from_iter([color("a", "1"), color("b", "2"), color("a", "3")]);
        for name in ["a", "b", "c"] {
            let hash = hash_of(&colors.hasher, name);
            colors.index.insert(hash, 1);
            colors.duplicates.extend((2..=3).map(|id| (hash, id)));
        }
        for (name, value) in [("a", Some("1")), ("b", Some("2")), ("c", None)] {
            assert_eq!(found(&colors, name), value.map(|value| color(name, value)));
        }
    }

    #[test]
    fn the_envelope_has_all_colors_and_a_line_feed() {
        let mut colors = ColorList::default();
        assert_eq!(json(&colors), "{\"data\":[]}\n");
        colors.apply(&Edit::Append(1, color("a", "1")));
        colors.apply(&Edit::Append(2, color("b", "2")));
        assert_eq!(
            json(&colors),
            "{\"data\":[{\"name\":\"a\",\"value\":\"1\"},{\"name\":\"b\",\"value\":\"2\"}]}\n"
        );
        assert_eq!(colors.envelope_len(), json(&colors).len());
    }

    #[test]
    fn an_edit_changes_a_name_if_that_leads_to_another_color_then() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut colors = ColorList::default();
        for step in 0..20_000 {
            let color =
                color(random.choice(["a", "b", "c"]).unwrap(), random.choice(["1", "2"]).unwrap());
            let any = colors.iter().nth(random.usize(..=colors.len()));
            let edit = match (random.u8(..10), any) {
                (0, _) => Edit::ReplaceAll(
                    colors.iter().map(|(_, color)| color.clone()).skip(1).collect(),
                ),
                (1..4, Some((id, known))) => Edit::Remove(id, known.clone()),
                (4..7, Some((id, known))) => {
                    Edit::Update(id, Color::new(&known.name(), &step.to_string()))
                }
                _ => Edit::Append(colors.next_id().unwrap(), color),
            };
            let mut edited = colors.clone();
            edited.apply(&edit);
            for name in ["a", "b", "c"] {
                let first = |colors: &ColorList| colors.find(name).map(|(_, color)| color.clone());
                let is_concerned = edit.color().is_none_or(|color| color.is_named(name));
                // a duplicate behind the first may be equal
                let may_be_equal = matches!(edit, Edit::Remove(..));
                let is_other = first(&colors) != first(&edited);
                let said = is_concerned && edit.changes(&colors, name);
                assert!(said == is_other || (said && may_be_equal), "{edit:?} {name}");
            }
            colors = if edited.len() > 20 { ColorList::default() } else { edited };
        }
    }

    /// Random edits agree with a `Vec`, and versions that are kept do not change.
    #[test]
    fn every_version_is_what_a_vector_was_then() {
        let names: Vec<String> = (0..40).map(|number| number.to_string()).collect();
        let mut random = fastrand::Rng::with_seed(1);
        let (mut colors, mut model) = (ColorList::default(), Vec::<(String, u32)>::new());
        let mut kept = Vec::new();
        for step in 0..20_000 {
            let name = &names[random.usize(..names.len())];
            let place = model.iter().position(|(other, _)| other == name);
            assert_eq!(
                found(&colors, name),
                place.map(|place| color(name, &model[place].1.to_string())),
                "step {step}"
            );
            match (random.u8(..5), place, colors.find(name).map(|(id, _)| id)) {
                (0 | 1, ..) => {
                    model.push((name.clone(), step));
                    let id = colors.next_id().unwrap();
                    colors.apply(&Edit::Append(id, color(name, &step.to_string())));
                }
                (2, Some(place), Some(id)) => {
                    model[place].1 = step;
                    colors.apply(&Edit::Update(id, color(name, &step.to_string())));
                }
                (_, Some(place), Some(id)) => {
                    model.remove(place);
                    colors.apply(&Edit::Remove(id, color(name, "")));
                }
                _ if step % 500 == 0 => {
                    model.truncate(random.usize(..=model.len()));
                    let all = model.iter().map(|(name, value)| color(name, &value.to_string()));
                    colors.apply(&Edit::ReplaceAll(ColorList::from_iter(all)));
                }
                _ => {}
            }
            if step % 100 == 0 {
                kept.push((colors.clone(), model.clone()));
            }
        }
        for (colors, model) in kept {
            let texts: Vec<String> = model
                .iter()
                .map(|(name, value)| format!(r#"{{"name":"{name}","value":"{value}"}}"#))
                .collect();
            assert_eq!(json(&colors), format!("{{\"data\":[{}]}}\n", texts.join(",")));
            assert_eq!((colors.len(), colors.envelope_len()), (model.len(), json(&colors).len()));
        }
    }
}
