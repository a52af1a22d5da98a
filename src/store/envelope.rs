//! The collection envelope of the specification, `{"data":[...]}`, joined from parts that are kept between changes: after a change only the
//! part with that color is made again.

use std::sync::Arc;

use super::color::Color;
use super::colors::Edit;

/// Colors in one part; making one takes some 50 us.
const PART_COLORS: usize = 1024;

/// The JSON of the list, in parts.
#[derive(Debug, Default)]
pub(super) struct Parts(Vec<Part>);

/// Neighboring colors.
#[derive(Debug)]
struct Part {
    colors: usize,
    /// Their JSON with commas between; `None` when one of them has changed.
    json: Option<Arc<[u8]>>,
}

impl Parts {
    /// The parts of a list of this length, none of which is made yet.
    pub(super) fn new(colors: usize) -> Self {
        let starts = (0..colors).step_by(PART_COLORS);
        Self(starts.map(|start| Part { colors: PART_COLORS.min(colors - start), json: None }).collect())
    }

    /// Follows an edit of the list.
    pub(super) fn follow(&mut self, edit: &Edit) {
        let (position, change) = match edit {
            Edit::Insert(position, _) => (*position, 1),
            Edit::Replace(position, _) => (*position, 0),
            Edit::Remove(position, _) => (*position, -1),
        };
        let index = self.index_of(position);
        let part = &mut self.0[index];
        (part.colors, part.json) = (part.colors.wrapping_add_signed(change), None);
        if part.colors == 0 {
            self.0.remove(index);
        }
    }

    /// The index of the part with this position; for the end of the list, the last part, or a new one if that is full.
    fn index_of(&mut self, position: usize) -> usize {
        let mut end = 0;
        let found = self.0.iter().position(|part| {
            end += part.colors;
            position < end
        });
        found.unwrap_or_else(|| {
            if self.0.last().is_none_or(|last| last.colors >= PART_COLORS) {
                self.0.push(Part { colors: 0, json: None });
            }
            self.0.len() - 1
        })
    }

    /// Makes at most `limit` of the missing parts. Returns all parts, or `None` if some are still missing. `colors` is the whole list.
    pub(super) fn make_missing(&mut self, colors: &[Color], limit: usize) -> Option<Vec<Arc<[u8]>>> {
        let (mut start, mut made) = (0, 0);
        for part in &mut self.0 {
            let colors = &colors[start..start + part.colors];
            start += part.colors;
            if part.json.is_none() {
                if made == limit {
                    return None;
                }
                made += 1;
                let texts: Vec<&[u8]> = colors.iter().map(|color| color.json.bytes()).collect();
                part.json = Some(texts.join(&b","[..]).into());
            }
        }
        Some(self.0.iter().filter_map(|part| part.json.clone()).collect())
    }
}

/// The envelope around these parts.
pub(super) fn join(parts: &[Arc<[u8]>]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len() + 1).sum();
    let mut json = Vec::with_capacity(length + 16); // bytes; 11 of them are the envelope's own
    json.extend_from_slice(br#"{"data":["#);
    for (index, part) in parts.iter().enumerate() {
        json.extend_from_slice(if index == 0 { b"" } else { b"," });
        json.extend_from_slice(part);
    }
    json.extend_from_slice(b"]}");
    json
}

/// The envelope of a list that keeps no parts.
pub(crate) fn of(colors: &[Color]) -> Vec<u8> {
    let parts = Parts::new(colors.len()).make_missing(colors, usize::MAX).unwrap_or_default();
    join(&parts)
}

#[cfg(test)]
mod tests {
    use super::super::colors::Colors;
    use super::*;

    #[test]
    fn the_envelope_follows_every_edit() {
        let color = |number: usize| Color::new(number.to_string(), "v");
        let (mut colors, mut parts) = (Colors::new((0..3000).map(color).collect()), Parts::new(3000));
        let mut random = fastrand::Rng::with_seed(1);
        for step in 0..5000 {
            let position = random.usize(..colors.len());
            let edit = match random.u8(..4) {
                0 => Edit::Insert(colors.len(), color(3000 + step)),
                1 => Edit::Replace(position, Color::new(colors.as_slice()[position].name.clone(), "w")),
                _ => Edit::Remove(position / 100, color(0)), // near the start, where parts run empty
            };
            parts.follow(&edit);
            colors.apply(edit);
            if step % 100 == 0 {
                let texts: Vec<String> =
                    colors.as_slice().iter().map(|color| str::from_utf8(color.json.bytes()).unwrap().to_owned()).collect();
                let made = join(&parts.make_missing(colors.as_slice(), usize::MAX).unwrap());
                assert_eq!(str::from_utf8(&made).unwrap(), format!(r#"{{"data":[{}]}}"#, texts.join(",")), "step {step}");
            }
        }
        assert!(colors.len() < 3000 - PART_COLORS, "a part has run empty");
    }

    #[test]
    fn a_few_parts_are_made_at_a_time() {
        let colors: Vec<Color> = (0..5 * PART_COLORS).map(|number| Color::new(number.to_string(), "")).collect();
        let mut parts = Parts::new(colors.len());
        assert!(parts.make_missing(&colors, 2).is_none());
        assert!(parts.make_missing(&colors, 2).is_none());
        assert_eq!(parts.make_missing(&colors, 2).map(|parts| parts.len()), Some(5));
        parts.follow(&Edit::Replace(0, Color::new("0", "1")));
        assert!(parts.make_missing(&colors, 0).is_none());
        assert!(parts.make_missing(&colors, 1).is_some());
    }

    #[test]
    fn an_empty_list_has_an_empty_array() {
        assert_eq!(of(&[]), br#"{"data":[]}"#);
        let mut parts = Parts::new(0);
        parts.follow(&Edit::Insert(0, Color::new("a", "1")));
        parts.follow(&Edit::Remove(0, Color::new("a", "1")));
        assert_eq!(join(&parts.make_missing(&[], 1).unwrap()), br#"{"data":[]}"#);
    }
}
