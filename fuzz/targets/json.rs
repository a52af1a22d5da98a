#![no_main]

use std::fmt;

use colors::fuzzing::{JsonMistake, ReadColor, create, list, update};
use serde::Deserialize;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check(data));

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

impl Entry {
    fn color(&self) -> Option<(&str, &str)> {
        if let Self::Object(members) = self { members.color() } else { None }
    }
}

impl Members {
    /// Name and value, if it is a color.
    fn color(&self) -> Option<(&str, &str)> {
        let name = self.string("name").filter(|name| name.len() <= NAME_MAX)?;
        Some((name, self.string("value")?))
    }

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
fn check(content: &[u8]) {
    let (created, updated, listed) = (create(content), update(content), list(content));
    let mistakes = [created.as_ref().err(), updated.as_ref().err(), listed.as_ref().err()];
    mistakes.into_iter().flatten().for_each(|mistake| check_mistake(mistake, content));
    created.iter().chain(listed.iter().flatten()).for_each(check_color);
    // Fields that are ignored may have what these types do not take: numbers that are too large,
    // deep nesting.
    if let Ok(members) = serde_json::from_slice::<Members>(content) {
        assert_eq!(created.ok().as_ref().map(fields), members.color());
        let expected = match members.values("value")[..] {
            [] => Some(None),
            _ => members.string("value").map(Some),
        };
        assert_eq!(updated.as_ref().ok().map(Option::as_deref), expected);
    } else if let Ok(value) = serde_json::from_slice::<Value>(content) {
        assert!(!value.is_object() && created.is_err() && updated.is_err());
    }
    if serde_json::from_slice::<Value>(content).is_ok() {
        check_list(listed, serde_json::from_slice(content).ok());
    }
}

fn fields(color: &ReadColor) -> (&str, &str) {
    (&color.name, &color.value)
}

fn check_list(read: Result<Vec<ReadColor>, JsonMistake>, list: Option<List>) {
    let Some(List::Array(entries) | List::Envelope { data: entries }) = list else {
        return assert!(read.is_err());
    };
    match read {
        Ok(colors) => {
            let colors: Vec<_> = colors.iter().map(fields).collect();
            assert_eq!(Some(colors), entries.iter().map(Entry::color).collect());
        }
        // it is refused at its first entry that is no color
        Err(mistake) => {
            let wrong = entries.iter().position(|entry| entry.color().is_none());
            let said = mistake.reason.strip_prefix("color ").and_then(|rest| rest.split_once(": "));
            let said = said.and_then(|(number, _)| number.parse().ok());
            assert!(wrong.is_some() && said == wrong.map(|index| index + 1), "{mistake:?}");
        }
    }
}

/// A color is written as JSON that means the same, and reads as the same color.
fn check_color(color: &ReadColor) {
    assert_eq!(create(&color.json).as_ref().ok(), Some(color));
    let members: Members = serde_json::from_slice(&color.json).expect("a color is written as JSON");
    assert_eq!((members.0.len(), members.color()), (2, Some(fields(color))));
}

/// A mistake is told in few words, and with a place in the content.
fn check_mistake(mistake: &JsonMistake, content: &[u8]) {
    let lines: Vec<&[u8]> = content.split(|byte| *byte == b'\n').collect();
    let reason = &mistake.reason;
    assert!(reason.len() < 1000 && !reason.contains(char::is_control), "{mistake:?}");
    if let Some((line, column)) = mistake.place {
        assert!((1..=lines.len()).contains(&line), "{mistake:?}");
        assert!(column <= lines[line - 1].len() + 1, "{mistake:?}");
    }
}
