//! A color: one entry of the list.

use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::Arc;

use serde::Deserialize;

use crate::conditions::Tag;
use crate::representation::Representation;

/// Longest name in bytes of UTF-8. Percent-encoded, a name is at most three times as long, which
/// fits into the head of a request of at most 64 KiB.
pub(super) const NAME_BYTES_MAX: usize = 4096;

/// What comes before the name in the JSON of a color.
const NAME_BEGIN: &[u8] = br#"{"name":"#;

/// What comes between name and value.
const VALUE_BEGIN: &[u8] = br#","value":"#;

/// What comes after the value.
const END: &[u8] = b"}\n";

/// Longest JSON of a color, in bytes, that is kept without its tag.
const SHORT_BYTES_MAX: usize = 128;

/// How many tags of short colors a thread keeps, with their JSON: at most 48 KiB. To compute a tag
/// takes a quarter of a microsecond.
const KEPT_TAGS: usize = 256;

/// The tag of a short color. As long as it is kept, no other JSON has the address of this one.
struct KeptTag {
    json: Arc<[u8]>,
    tag: Tag,
}

thread_local! {
    /// Those that were used last. The address of the JSON decides the place.
    static TAGS: RefCell<[Option<KeptTag>; KEPT_TAGS]> =
        const { RefCell::new([const { None }; KEPT_TAGS]) };
}

/// A pointer to JSON, so that copies are cheap: a change of the list copies whole nodes of its
/// tree, with all colors in them. Colors are equal if they have the same name and value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Color {
    /// Name and value as JSON, with a line feed at the end.
    pub(crate) json: ColorJson,
}

/// The JSON of a color. Most of the memory of a long list is its short colors: a
/// [`Representation`] would double what each of them takes.
#[derive(Clone, Debug)]
pub(crate) enum ColorJson {
    /// At most [`SHORT_BYTES_MAX`].
    Short(Arc<[u8]>),
    Long(Arc<Representation>),
}

impl ColorJson {
    fn new(json: &[u8]) -> Self {
        match json.len() {
            0..=SHORT_BYTES_MAX => Self::Short(json.into()),
            _ => Self::Long(Arc::new(Representation::new(json))),
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Short(json) => json,
            Self::Long(json) => json.bytes(),
        }
    }

    pub(crate) fn tag(&self) -> Tag {
        match self {
            Self::Short(json) => short_tag(json),
            Self::Long(json) => json.tag(),
        }
    }
}

fn short_tag(json: &Arc<[u8]>) -> Tag {
    // What malloc returns is a multiple of 16.
    let place = json.as_ptr().addr() / 16 % KEPT_TAGS;
    TAGS.with_borrow_mut(|tags| match &tags[place] {
        Some(kept) if Arc::ptr_eq(&kept.json, json) => kept.tag,
        _ => tags[place].insert(KeptTag { json: Arc::clone(json), tag: Tag::of(json) }).tag,
    })
}

impl PartialEq for ColorJson {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Short(one), Self::Short(other)) => Arc::ptr_eq(one, other) || one == other,
            (Self::Long(one), Self::Long(other)) => one == other,
            _ => false,
        }
    }
}

/// A string in JSON. Has its own memory only if it has escapes there.
#[derive(Deserialize)]
pub(super) struct JsonString<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

/// The fields of a color, in any order. Further fields are ignored (docs/http.md, Colors).
#[derive(Deserialize)]
pub(crate) struct ColorFields<'a> {
    /// At most 4,096 bytes, may be empty, need not be unique.
    #[serde(borrow)]
    pub(crate) name: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) value: Cow<'a, str>,
}

impl Color {
    pub(crate) fn new(name: &str, value: &str) -> Self {
        // The JSON has 23 bytes besides name and value. Escapes would add more.
        let mut json = Vec::with_capacity(23 + name.len() + value.len());
        for (before, text) in [(NAME_BEGIN, name), (VALUE_BEGIN, value)] {
            json.extend_from_slice(before);
            serde_json::to_writer(&mut json, text)
                .expect("strings always serialize, and a Vec takes every byte");
        }
        json.extend_from_slice(END);
        Self { json: ColorJson::new(&json) }
    }

    /// The name, without parsing the value.
    pub(crate) fn name(&self) -> Cow<'_, str> {
        if let Some(plain) = self.plain_name() {
            return str::from_utf8(plain).expect("JSON is UTF-8").into();
        }
        let json = &self.json.bytes()[NAME_BEGIN.len()..];
        let name = JsonString::deserialize(&mut serde_json::Deserializer::from_slice(json));
        name.expect("it begins with a name").0
    }

    /// The name, if the JSON has it without escapes, as nearly always.
    fn plain_name(&self) -> Option<&[u8]> {
        let text = &self.json.bytes()[NAME_BEGIN.len() + 1..];
        let end = text.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
        (text[end] == b'"').then(|| &text[..end])
    }

    pub(super) fn is_named(&self, name: &str) -> bool {
        match self.plain_name() {
            Some(plain) => plain == name.as_bytes(),
            None => self.name() == name,
        }
    }

    /// Name and value, parsed from the JSON.
    pub(crate) fn fields(&self) -> ColorFields<'_> {
        serde_json::from_slice(self.json.bytes()).expect("it was made of a name and a value")
    }

    /// The length of [`Color::json_in_list`] in bytes.
    pub(super) fn json_len(&self) -> usize {
        self.json.bytes().len() - 1
    }

    /// The JSON without its line feed.
    pub(super) fn json_in_list(&self) -> &[u8] {
        &self.json.bytes()[..self.json_len()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_color_serializes_to_exactly_name_and_value() {
        assert_eq!(
            str::from_utf8(Color::new("a\"b", "#1").json.bytes()).unwrap(),
            "{\"name\":\"a\\\"b\",\"value\":\"#1\"}\n"
        );
    }

    #[test]
    fn a_name_is_read_from_the_json_whatever_it_has() {
        let names = ["", "a", "a\"", "a\\", "a\\\\", "\u{e9}\n", "\u{e9}\\n", "a\",\"value\":\""];
        for name in names {
            let color = Color::new(name, "");
            assert_eq!(color.name(), name);
            assert_eq!(names.map(|other| color.is_named(other)), names.map(|other| other == name));
        }
    }

    #[test]
    fn a_tag_that_is_kept_is_no_other_colors() {
        let colors: Vec<_> = (0..2 * KEPT_TAGS).map(|i| Color::new("a", &i.to_string())).collect();
        for color in colors.iter().chain(&colors) {
            assert_eq!(color.json.tag(), Tag::of(color.json.bytes()));
        }
        drop(colors);
        // These have addresses that others had.
        for i in 0..2 * KEPT_TAGS {
            let color = Color::new("b", &i.to_string());
            assert_eq!(color.json.tag(), Tag::of(color.json.bytes()));
        }
    }
}
