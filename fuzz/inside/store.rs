//! What the fuzz target `json` checks.

use std::fmt;

use serde::Deserialize;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use super::Colors;
use super::color::Color;
use super::json::{JsonError, from_create, from_list, from_update};

/// Bytes of UTF-8 of a name.
const NAME_MAX: usize = 4096;

/// The members of an object in order, those of one name included.
struct Members(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(Members(members))
    }
}

/// A list in either form.
#[derive(Deserialize)]
#[serde(untagged)]
enum List {
    Array(Vec<Entry>),
    Envelope { data: Vec<Entry> },
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Entry {
    Object(Members),
    Other(IgnoredAny),
}

impl Members {
    /// The string of a field that is given once. `None` if there is another value, or more than
    /// one.
    fn string(&self, field: &str) -> Option<&str> {
        let [value] = self.values(field)[..] else { return None };
        value.as_str()
    }

    fn values(&self, field: &str) -> Vec<&Value> {
        self.0.iter().filter(|(name, _)| name == field).map(|(_, value)| value).collect()
    }
}

/// Content and files are read as serde_json's own types read them, and a color is written as it was
/// read.
pub fn json(content: &[u8]) {
    let (create, update, file) = (from_create(content), from_update(content), from_list(content));
    for error in
        [create.as_ref().err(), update.as_ref().err(), file.as_ref().err()].into_iter().flatten()
    {
        check_error(error, content);
    }
    let listed = file.iter().flat_map(Colors::iter).map(|(_, color)| color);
    create.iter().chain(listed).for_each(check_color);
    // Fields that are ignored may have what these types do not take: numbers that are too large,
    // deep nesting.
    if let Ok(members) = serde_json::from_slice::<Members>(content) {
        let name = members.string("name").filter(|name| name.len() <= NAME_MAX);
        let expected = name.and_then(|name| Some(Color::new(name, members.string("value")?)));
        assert_eq!(create.ok(), expected);
        let expected = match members.values("value")[..] {
            [] => Some(None),
            _ => members.string("value").map(Some),
        };
        assert_eq!(update.as_ref().ok().map(Option::as_deref), expected);
    } else if let Ok(value) = serde_json::from_slice::<Value>(content) {
        assert!(!value.is_object() && create.is_err() && update.is_err());
    }
    if serde_json::from_slice::<Value>(content).is_ok() {
        check_file(file, serde_json::from_slice(content).ok());
    }
}

fn check_file(read: Result<Colors, JsonError>, list: Option<List>) {
    let Some(List::Array(entries) | List::Envelope { data: entries }) = list else {
        return assert!(read.is_err());
    };
    let color = |entry: &Entry| {
        let Entry::Object(members) = entry else { return None };
        Some(Color::new(
            members.string("name").filter(|name| name.len() <= NAME_MAX)?,
            members.string("value")?,
        ))
    };
    match read {
        Ok(colors) => assert_eq!(Some(colors), entries.iter().map(color).collect()),
        // it is refused at its first entry that is no color
        Err(error) => {
            let wrong =
                entries.iter().position(|entry| color(entry).is_none()).map(|index| index + 1);
            let said = error
                .reason
                .strip_prefix("color ")
                .and_then(|rest| rest.split_once(": ")?.0.parse().ok());
            assert!(wrong.is_some() && said == wrong, "{error}");
        }
    }
}

/// A color is written as JSON that means the same, and reads as the same color.
fn check_color(color: &Color) {
    assert_eq!(from_create(color.json.bytes()).as_ref(), Ok(color));
    let value: Value =
        serde_json::from_slice(color.json.bytes()).expect("a color is written as JSON");
    assert_eq!(
        (value.as_object().map(serde_json::Map::len), value["name"].as_str()),
        (Some(2), Some(&*color.fields().name))
    );
}

/// An error is short, and names a place in the content.
fn check_error(error: &JsonError, content: &[u8]) {
    let lines: Vec<&[u8]> = content.split(|byte| *byte == b'\n').collect();
    assert!(error.reason.len() < 1000 && !error.reason.contains(char::is_control), "{error}");
    assert!(error.line <= lines.len(), "{error}");
    let line = error.line.checked_sub(1).map_or(0, |index| lines[index].len());
    assert!(error.column <= line + 1, "{error}");
}
