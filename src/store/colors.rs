//! One version of the list. A clone shares everything with the list that it was made from, and
//! takes the same time however long that is: a change is tried out on a clone, and readers keep the
//! version that they have begun with. Knows no files and no mutex.

use std::hash::{BuildHasher as _, RandomState};
use std::mem::replace;
use std::sync::{Arc, OnceLock};

use imbl::{OrdMap, OrdSet, Vector};

use super::color::{self, Color};
use crate::http::Representation;

/// All colors in stored order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Colors {
    /// Duplicates of a name are entries like any other (spec, Color, rule 3). Ids rise along the
    /// list, so an id finds its position.
    colors: Vector<Color>,
    /// The ids of the colors whose names have this hash: most often a single one. No name is in it,
    /// only in the JSON.
    index: OrdMap<u64, Ids>,
    /// With keys of its own, so that no client can choose names that have the same hash.
    hasher: RandomState,
    /// Bytes of all colors as JSON.
    bytes: usize,
    /// Shared by the clones of this version, and made by the first that needs it.
    envelope: Arc<OnceLock<Arc<Representation>>>,
}

/// At least one id.
#[derive(Clone, Debug)]
enum Ids {
    One(i64),
    Several(Arc<OrdSet<i64>>),
}

/// One step from a version to the next.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Edit {
    /// Behind the last one; with [`Colors::next_id`].
    Append(Color),
    /// The JSON of the color with this id.
    Replace(i64, Arc<Representation>),
    /// The color with this id.
    Remove(i64),
    /// The whole list.
    ReplaceAll(Colors),
}

/// What an edit took out of the list. Freeing a whole list takes long, so it is not done under a
/// lock.
#[derive(Debug)]
pub(super) enum Removed {
    Nothing,
    Color(Arc<Representation>),
    List(Colors),
}

impl Colors {
    /// A list of colors whose ids rise. Hashes are sorted first: in random order, most steps would
    /// wait for memory.
    pub(super) fn with_ids(colors: Vector<Color>) -> Self {
        let hasher = RandomState::new();
        let bytes = colors.iter().map(Color::json_len).sum();
        let mut hashes: Vec<_> =
            colors.iter().map(|color| (hasher.hash_one(&*color.fields().name), color.id)).collect();
        hashes.sort_unstable();
        let same = hashes.chunk_by(|(one, _), (next, _)| one == next);
        let index =
            same.map(|same| (same[0].0, same.iter().map(|(_, id)| *id).collect())).collect();
        Self { colors, index, hasher, bytes, envelope: Arc::default() }
    }

    /// Appends a color, whose id has to be higher than all others.
    fn push(&mut self, color: Color) {
        self.bytes += color.json_len();
        let hash = self.hasher.hash_one(&*color.fields().name);
        match self.index.get_mut(&hash) {
            Some(ids) => ids.insert(color.id),
            None => drop(self.index.insert(hash, Ids::One(color.id))),
        }
        self.colors.push_back(color);
    }

    /// Duplicates included.
    pub(crate) fn len(&self) -> usize {
        self.colors.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Color> {
        self.colors.iter()
    }

    pub(super) fn representations(&self) -> impl Iterator<Item = &Arc<Representation>> {
        self.iter().map(|color| &color.json)
    }

    /// The highest id, 0 without colors.
    pub(super) fn last_id(&self) -> i64 {
        self.colors.last().map_or(0, |last| last.id)
    }

    /// The id of a color that is appended.
    pub(super) fn next_id(&self) -> i64 {
        self.last_id() + 1
    }

    /// The first color whose name equals `name` exactly: its id and its JSON.
    pub(super) fn find(&self, name: &str) -> Option<(i64, &Arc<Representation>)> {
        let ids = self.index.get(&self.hasher.hash_one(name))?;
        let named = |id: i64| {
            let color = self.colors.get(self.position(id))?;
            color::is_named(&color.json, name).then_some((id, &color.json))
        };
        match ids {
            Ids::One(id) => named(*id),
            Ids::Several(ids) => ids.iter().copied().find_map(named),
        }
    }

    /// The position of the color with this id, which is in the list.
    fn position(&self, id: i64) -> usize {
        // ids rise by one or more, so this is the last position that it can have
        let last = self.colors.front().map_or(0, |front| id.wrapping_sub(front.id) as usize);
        if self.colors.get(last).is_some_and(|color| color.id == id) {
            return last;
        }
        self.colors
            .binary_search_by_key(&id, |color| color.id)
            .expect("an id that is looked up is in the list")
    }

    /// Makes an edit that was decided for this version.
    pub(super) fn apply(&mut self, edit: Edit) -> Removed {
        self.envelope = Arc::default();
        match edit {
            Edit::Append(color) => {
                self.push(color);
                Removed::Nothing
            }
            Edit::Replace(id, json) => {
                let color = self.colors.get_mut(self.position(id)).expect("a position in the list");
                let before = replace(color, Color { id, json });
                self.bytes += color.json_len();
                self.bytes -= before.json_len();
                Removed::Color(before.json)
            }
            Edit::Remove(id) => {
                let color = self.colors.remove(self.position(id));
                self.bytes -= color.json_len();
                let hash = self.hasher.hash_one(&*color.fields().name);
                if self.index.get_mut(&hash).is_none_or(|ids| ids.remove(id)) {
                    self.index.remove(&hash);
                }
                Removed::Color(color.json)
            }
            Edit::ReplaceAll(colors) => Removed::List(replace(self, colors)),
        }
    }

    /// The length of the envelope in bytes, without making it.
    pub(super) fn envelope_len(&self) -> usize {
        // a comma is between two colors
        ENVELOPE[0].len() + self.bytes + self.len().saturating_sub(1) + ENVELOPE[1].len()
    }

    /// The collection envelope of the specification, if it is made.
    pub(super) fn made_envelope(&self) -> Option<&Arc<Representation>> {
        self.envelope.get()
    }

    /// The collection envelope of the specification; made at its first use, which takes longer the
    /// longer the list is.
    pub(crate) fn envelope(&self) -> &Arc<Representation> {
        self.envelope.get_or_init(|| {
            let mut json = Vec::with_capacity(self.envelope_len());
            json.extend_from_slice(ENVELOPE[0]);
            for (index, color) in self.colors.iter().enumerate() {
                json.extend_from_slice(if index == 0 { b"" } else { b"," });
                json.extend_from_slice(color.json_in_list());
            }
            json.extend_from_slice(ENVELOPE[1]);
            Arc::new(Representation::new(json))
        })
    }

    /// Whether the ids are the same as those of a list with the same colors.
    pub(super) fn has_ids_of(&self, other: &Self) -> bool {
        self.iter().map(|color| color.id).eq(other.iter().map(|color| color.id))
    }

    /// Whether both are clones of the same version, and not only equal.
    pub(super) fn is_same_version(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.envelope, &other.envelope)
    }
}

/// What is before and behind the colors: `{"data":[...]}` and the line feed at the end of all
/// contents.
const ENVELOPE: [&[u8]; 2] = [br#"{"data":["#, b"]}\n"];

impl FromIterator<Color> for Colors {
    /// These colors with new ids, from 1 on.
    fn from_iter<I: IntoIterator<Item = Color>>(colors: I) -> Self {
        Self::with_ids((1..).zip(colors).map(|(id, color)| Color { id, ..color }).collect())
    }
}

/// Lists are equal when their colors are, whatever their ids.
impl PartialEq for Colors {
    fn eq(&self, other: &Self) -> bool {
        self.colors == other.colors
    }
}

impl FromIterator<i64> for Ids {
    fn from_iter<I: IntoIterator<Item = i64>>(ids: I) -> Self {
        let mut ids = ids.into_iter();
        let first = Self::One(ids.next().expect("there is at least one"));
        ids.fold(first, |mut all, id| {
            all.insert(id);
            all
        })
    }
}

impl Ids {
    fn insert(&mut self, id: i64) {
        match self {
            Self::One(first) => *self = Self::Several(Arc::new(OrdSet::from_iter([*first, id]))),
            Self::Several(ids) => drop(Arc::make_mut(ids).insert(id)),
        }
    }

    /// Removes an id. True if it was the only one.
    fn remove(&mut self, id: i64) -> bool {
        match self {
            Self::One(_) => true,
            Self::Several(ids) => {
                Arc::make_mut(ids).remove(&id);
                ids.is_empty()
            }
        }
    }
}

impl Removed {
    /// The JSON of the colors that were removed.
    pub(super) fn representations(&self) -> impl Iterator<Item = &Arc<Representation>> {
        let (color, list) = match self {
            Self::Nothing => (None, None),
            Self::Color(json) => (Some(json), None),
            Self::List(list) => (None, Some(list)),
        };
        color.into_iter().chain(list.into_iter().flat_map(Colors::representations))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn color(name: &str, value: &str) -> Color {
        Color::new(name, value)
    }

    /// The first color of this name, as the index and as the list have it.
    fn found(colors: &Colors, name: &str) -> Option<Color> {
        let (id, json) = colors.find(name)?;
        let color = colors.colors.get(colors.position(id)).unwrap();
        assert!(Arc::ptr_eq(json, &color.json));
        Some(color.clone())
    }

    fn json(colors: &Colors) -> &str {
        str::from_utf8(colors.envelope().bytes()).unwrap()
    }

    #[test]
    fn the_first_of_several_with_one_name_is_the_one_that_counts() {
        let mut colors = Colors::from_iter([
            color("x", "0"),
            color("a", "1"),
            color("a", "2"),
            color("b", "3"),
            color("a", "4"),
        ]);
        colors.apply(Edit::Replace(2, color("a", "9").json));
        for (name, removed, next) in
            [("a", "9", Some("2")), ("x", "0", None), ("a", "2", Some("4")), ("a", "4", None)]
        {
            let (id, json) = colors.find(name).unwrap();
            assert_eq!(json.bytes(), color(name, removed).json.bytes());
            colors.apply(Edit::Remove(id));
            assert_eq!(found(&colors, name), next.map(|next| color(name, next)));
        }
        assert_eq!(colors, Colors::from_iter([color("b", "3")]));
    }

    #[test]
    fn names_match_exactly() {
        let colors = Colors::from_iter([color("Red", "1"), color("", "2"), color("\u{e9}", "3")]);
        assert_eq!(found(&colors, ""), Some(color("", "2")));
        for name in ["red", "Red ", "R", "e\u{301}"] {
            assert_eq!(found(&colors, name), None, "{name:?}");
        }
    }

    #[test]
    fn names_with_the_same_hash_are_told_apart() {
        let mut colors = Colors::from_iter([color("a", "1"), color("b", "2"), color("a", "3")]);
        let mut both = Ids::One(1);
        (2..=3).for_each(|id| both.insert(id));
        for (name, ids) in [("a", both.clone()), ("b", both), ("c", Ids::One(1))] {
            let hash = colors.hasher.hash_one(name);
            colors.index.insert(hash, ids);
        }
        for (name, value) in [("a", Some("1")), ("b", Some("2")), ("c", None)] {
            assert_eq!(found(&colors, name), value.map(|value| color(name, value)));
        }
    }

    #[test]
    fn the_envelope_has_all_colors_and_a_line_feed() {
        let mut colors = Colors::default();
        assert_eq!(json(&colors), "{\"data\":[]}\n");
        colors.apply(Edit::Append(Color { id: 1, ..color("a", "1") }));
        colors.apply(Edit::Append(Color { id: 2, ..color("b", "2") }));
        assert_eq!(
            json(&colors),
            "{\"data\":[{\"name\":\"a\",\"value\":\"1\"},{\"name\":\"b\",\"value\":\"2\"}]}\n"
        );
        assert_eq!(colors.envelope_len(), json(&colors).len());
    }

    /// Random edits agree with a `Vec`, and versions that are kept do not change.
    #[test]
    fn every_version_is_what_a_vector_was_then() {
        let names: Vec<String> = (0..40).map(|number| number.to_string()).collect();
        let mut random = fastrand::Rng::with_seed(1);
        let (mut colors, mut model) = (Colors::default(), Vec::<(String, u32)>::new());
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
                    colors.apply(Edit::Append(Color {
                        id: colors.next_id(),
                        ..color(name, &step.to_string())
                    }));
                }
                (2, Some(place), Some(id)) => {
                    model[place].1 = step;
                    colors.apply(Edit::Replace(id, color(name, &step.to_string()).json));
                }
                (_, Some(place), Some(id)) => {
                    model.remove(place);
                    colors.apply(Edit::Remove(id));
                }
                _ if step % 500 == 0 => {
                    model.truncate(random.usize(..=model.len()));
                    let all = model.iter().map(|(name, value)| color(name, &value.to_string()));
                    colors.apply(Edit::ReplaceAll(Colors::from_iter(all)));
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
