//! A color, and the three forms in which colors are read: content of a create, content of an update, a file of colors.
//! Knows JSON, and nothing of the list.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

use crate::http::Representation;

/// So that the path of every color fits into a request: three times as much percent-encoded, where 64 KiB are the limit.
const NAME_BYTES_MAX: usize = 4096; // of UTF-8

/// A long string in the place of an object must not come back whole in the message.
const QUOTED_CHARS_MAX: usize = 100;

/// One entry of the list. Both parts are shared: a copy of a color, or of the whole list, copies no text.
#[derive(Clone, Debug)]
pub(crate) struct Color {
    /// At most 4,096 bytes, may be empty, need not be unique.
    pub(crate) name: Arc<str>,
    /// Exactly the fields `name` and `value`, in this order (spec, Color, rule 1). Nothing ever needs the value alone.
    pub(crate) json: Arc<Representation>,
}

impl Color {
    pub(crate) fn new(name: impl Into<Arc<str>>, value: &str) -> Self {
        #[derive(Serialize)]
        struct Fields<'a> {
            name: &'a str,
            value: &'a str,
        }
        let name = name.into();
        let mut json = Vec::with_capacity(24 + name.len() + value.len()); // bytes; 22 of them are not the name or the value
        serde_json::to_writer(&mut json, &Fields { name: &name, value }).expect("strings always serialize, and a Vec takes every byte");
        Self { name, json: Arc::new(Representation::new(json)) }
    }
}

impl PartialEq for Color {
    fn eq(&self, other: &Self) -> bool {
        self.json.bytes() == other.json.bytes()
    }
}

/// Why content is not what it was read as.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct JsonError {
    /// Lower case, no full stop.
    pub(crate) reason: String,
    /// Counted from 1; 0 when there is nothing to point at.
    pub(crate) line: usize,
    /// Counted from 1 in bytes; 0 when the line is empty.
    pub(crate) column: usize,
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.reason),
            line => write!(f, "{} at line {line} column {}", self.reason, self.column),
        }
    }
}

impl From<serde_json::Error> for JsonError {
    fn from(error: serde_json::Error) -> Self {
        let (line, column) = (error.line(), error.column());
        let text = error.to_string();
        let reason = text.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&text);
        let reason = if error.is_data() { shorten(reason) } else { format!("not valid JSON: {reason}") };
        Self { reason, line, column }
    }
}

/// Cuts what `invalid type: string "...", expected ...` quotes of the content; keeps the closing quote.
fn shorten(reason: &str) -> String {
    if let Some((quoted, expected)) = reason.rsplit_once(", expected ")
        && let Some((cut, _)) = quoted.char_indices().nth(QUOTED_CHARS_MAX)
    {
        let quote = quoted.chars().next_back().unwrap_or('"');
        return format!("{}…{quote}, expected {expected}", &quoted[..cut]);
    }
    reason.to_owned()
}

/// Reads the content of a create: an object with the strings `name` and `value`; further fields are ignored (spec, Color, rule 2).
///
/// # Errors
/// When the content is not JSON or not an object, a field is missing, not a string or given twice, or the name is too long.
pub(crate) fn from_create(content: &[u8]) -> Result<Color, JsonError> {
    if content.is_empty() {
        let reason = "there is no content, send an object with the strings \"name\" and \"value\"".to_owned();
        return Err(JsonError { reason, line: 0, column: 0 });
    }
    Ok(serde_json::from_str(text(content)?)?)
}

/// Reads the content of an update: an object whose optional string `value` is the new value; `name` and the rest are ignored.
///
/// No content at all means the same as `{}`: keep the value (spec, Endpoints, rule 3).
///
/// # Errors
/// When there is content that is not JSON or not an object, or `value` is not a string or given twice.
pub(crate) fn from_update(content: &[u8]) -> Result<Option<Arc<str>>, JsonError> {
    if content.is_empty() {
        return Ok(None);
    }
    let mut json = serde_json::Deserializer::from_str(text(content)?);
    let expected = "an object with an optional string \"value\"";
    let [value] = json.deserialize_map(Fields { names: ["value"], are_required: false, expected })?;
    json.end()?;
    Ok(value)
}

/// Reads a file of colors: an array of them, or the envelope `{"data":[...]}` that `GET /colors` answers.
///
/// # Errors
/// When the file is not JSON, is neither of the two forms, or an entry is not a color.
pub(crate) fn from_file(content: &[u8]) -> Result<Vec<Color>, JsonError> {
    let mut json = serde_json::Deserializer::from_str(text(content)?);
    let colors = json.deserialize_any(ArrayOrEnvelope)?;
    json.end()?;
    Ok(colors)
}

/// JSON is UTF-8 (RFC 8259 §8.1), also in fields that are ignored.
fn text(content: &[u8]) -> Result<&str, JsonError> {
    str::from_utf8(content).map_err(|error| {
        let before = &content[..error.valid_up_to()];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        let column = 1 + before.iter().rev().take_while(|byte| **byte != b'\n').count();
        JsonError { reason: "not valid JSON: it is not UTF-8".to_owned(), line, column }
    })
}

// Not derived: that would take an array for an object too, and not name the field that has a wrong type.

impl<'de> Deserialize<'de> for Color {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "an object with the strings \"name\" and \"value\"";
        let [Some(name), Some(value)] = deserializer.deserialize_map(Fields { names: ["name", "value"], are_required: true, expected })?
        else {
            unreachable!("required fields are there or an error");
        };
        Ok(Self::new(name, &value))
    }
}

/// Takes string fields out of an object, each at most once, and ignores the others.
struct Fields<const N: usize> {
    names: [&'static str; N],
    are_required: bool,
    /// The form of the object, for errors.
    expected: &'static str,
}

impl<'de, const N: usize> Visitor<'de> for Fields<N> {
    type Value = [Option<Arc<str>>; N];

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = [const { None }; N];
        while let Some(Key(key)) = map.next_key()? {
            match self.names.iter().position(|name| *name == key) {
                None => drop(map.next_value::<IgnoredAny>()?),
                Some(field) if found[field].is_some() => return Err(given_twice(&key)),
                Some(field) => found[field] = Some(map.next_value_seed(Field(self.names[field]))?),
            }
        }
        match found.iter().position(Option::is_none) {
            Some(missing) if self.are_required => Err(A::Error::custom(format_args!("missing field {:?}", self.names[missing]))),
            _ => Ok(found),
        }
    }
}

/// Copied only if it has escapes.
#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

fn given_twice<E: Error>(field: &str) -> E {
    E::custom(format_args!("field {field:?} is given twice"))
}

/// Reads the string of the field with this name straight into shared text.
struct Field(&'static str);

impl<'de> DeserializeSeed<'de> for Field {
    type Value = Arc<str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Arc<str>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Visitor<'_> for Field {
    type Value = Arc<str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a string in field {:?}", self.0)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Arc<str>, E> {
        if self.0 == "name" && text.len() > NAME_BYTES_MAX {
            return Err(E::custom(format_args!("field \"name\" has {} bytes, at most {NAME_BYTES_MAX} are allowed", text.len())));
        }
        Ok(Arc::from(text))
    }
}

struct ArrayOrEnvelope;

impl<'de> Visitor<'de> for ArrayOrEnvelope {
    type Value = Vec<Color>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of colors or an object with such an array in \"data\"")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<Color>, A::Error> {
        let mut colors = Vec::new();
        while let Some(color) = seq.next_element()? {
            colors.push(color);
        }
        Ok(colors)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vec<Color>, A::Error> {
        let mut data = None;
        while let Some(Key(key)) = map.next_key()? {
            match &*key {
                "data" if data.is_some() => return Err(given_twice("data")),
                "data" => data = Some(map.next_value()?),
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        data.ok_or_else(|| A::Error::custom("missing field \"data\""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn color(name: &str, value: &str) -> Color {
        Color::new(name, value)
    }

    #[track_caller]
    fn create(content: &str, expected: Result<Color, &str>) {
        assert_eq!(from_create(content.as_bytes()).map_err(|e| e.to_string()), expected.map_err(str::to_owned), "{content:?}");
    }

    #[track_caller]
    fn update(content: &str, expected: Result<Option<&str>, &str>) {
        let read = from_update(content.as_bytes()).map_err(|e| e.to_string());
        assert_eq!(read.as_ref().map(Option::as_deref), expected.map_err(str::to_owned).as_ref().map(|v| *v), "{content:?}");
    }

    #[test]
    fn a_create_takes_name_and_value_and_ignores_the_rest() {
        let red = || Ok(color("red", "#f00"));
        create(r##"{"name":"red","value":"#f00"}"##, red());
        create(r##" { "value" : "#f00" , "name" : "red" } "##, red());
        create(r##"{"id":7,"name":"red","tags":[{"a":[1e999]}],"value":"#f00","id":8}"##, red());
        create(r#"{"name":"","value":""}"#, Ok(color("", "")));
        create(r#"{"name":"\ud83c\udfa8\u0000","value":"\"\\"}"#, Ok(color("\u{1f3a8}\0", "\"\\")));
        let deep = format!(r##"{{"x":{}{},"name":"red","value":"#f00"}}"##, "[".repeat(9000), "]".repeat(9000));
        create(&deep, red());
    }

    #[test]
    fn a_create_names_what_is_wrong() {
        create("", Err("there is no content, send an object with the strings \"name\" and \"value\""));
        create(" ", Err("not valid JSON: EOF while parsing a value at line 1 column 1"));
        create("{}", Err("missing field \"name\" at line 1 column 2"));
        create(r#"{"name":"a"}"#, Err("missing field \"value\" at line 1 column 12"));
        create(r#"{"value":"a"}"#, Err("missing field \"name\" at line 1 column 13"));
        create(r#"{"name":1,"value":"a"}"#, Err("invalid type: integer `1`, expected a string in field \"name\" at line 1 column 9"));
        create(r#"{"name":"a","value":null}"#, Err("invalid type: null, expected a string in field \"value\" at line 1 column 24"));
        create(r#"{"name":"a","name":"a","value":"b"}"#, Err("field \"name\" is given twice at line 1 column 18"));
        create(
            r#"["a","b"]"#,
            Err("invalid type: sequence, expected an object with the strings \"name\" and \"value\" at line 1 column 0"),
        );
        create(r#""a""#, Err("invalid type: string \"a\", expected an object with the strings \"name\" and \"value\" at line 1 column 3"));
        create(r#"{"name":"a","value":"b"} x"#, Err("not valid JSON: trailing characters at line 1 column 26"));
        create("{\"name\":\"\\ud800\",\"value\":\"b\"}", Err("not valid JSON: unexpected end of hex escape at line 1 column 16"));
        let not_text = |content: &[u8]| from_create(content).unwrap_err().to_string();
        assert_eq!(not_text(b"{\"name\":\"\xff\",\"value\":\"b\"}"), "not valid JSON: it is not UTF-8 at line 1 column 10");
        assert_eq!(
            not_text(b"{\"name\":\"a\",\"value\":\"b\",\n\"x\":\"\xc0\xaf\"}"),
            "not valid JSON: it is not UTF-8 at line 2 column 6"
        );
        assert!(from_create(b"\xef\xbb\xbf{\"name\":\"a\",\"value\":\"b\"}").is_err());
    }

    #[test]
    fn an_update_takes_at_most_a_value() {
        update("", Ok(None));
        update("{}", Ok(None));
        update(r##"{"value":"#111"}"##, Ok(Some("#111")));
        update(r##"{"name":5,"name":6,"value":"#111","other":null}"##, Ok(Some("#111")));
        update(r#"{"value":1}"#, Err("invalid type: integer `1`, expected a string in field \"value\" at line 1 column 10"));
        update(r#"{"value":"a","value":"a"}"#, Err("field \"value\" is given twice at line 1 column 20"));
        update("[]", Err("invalid type: sequence, expected an object with an optional string \"value\" at line 1 column 0"));
        update(" ", Err("not valid JSON: EOF while parsing a value at line 1 column 1"));
    }

    #[test]
    fn a_file_is_an_array_or_an_envelope() {
        let two = || Ok(vec![color("a", "1"), color("a", "2")]);
        let read = |text: &str| from_file(text.as_bytes()).map_err(|e| (e.line, e.column, e.reason));
        assert_eq!(read(r#"[{"name":"a","value":"1"},{"name":"a","value":"2","x":0}]"#), two());
        assert_eq!(read(r#"{"x":[],"data":[{"name":"a","value":"1"},{"name":"a","value":"2"}]}"#), two());
        assert_eq!(read("[]"), Ok(vec![]));
        assert_eq!(read("{}"), Err((1, 2, "missing field \"data\"".to_owned())));
        assert_eq!(read(r#"{"data":[],"data":[]}"#), Err((1, 17, "field \"data\" is given twice".to_owned())));
        assert_eq!(read("[\n {\"name\":\"a\"}\n]"), Err((2, 13, "missing field \"value\"".to_owned())));
        assert_eq!(
            read("7"),
            Err((1, 1, "invalid type: integer `7`, expected an array of colors or an object with such an array in \"data\"".to_owned()))
        );
    }

    #[test]
    fn a_name_has_at_most_4096_bytes() {
        let content = |name: &str| format!(r#"{{"value":"1","name":"{name}"}}"#);
        for name in ["a".repeat(4096), "é".repeat(2048)] {
            create(&content(&name), Ok(color(&name, "1")));
        }
        let error = "field \"name\" has 4097 bytes, at most 4096 are allowed at line 1 column 4119";
        create(&content(&"a".repeat(4097)), Err(error));
        create(&content(&format!("{}é", "a".repeat(4095))), Err(error));
        create(&content(&"\\u0061".repeat(4096)), Ok(color(&"a".repeat(4096), "1")));
        create(&format!(r#"{{"name":"a","value":"{}"}}"#, "a".repeat(4097)), Ok(color("a", &"a".repeat(4097))));
        update(&format!(r#"{{"name":"{}"}}"#, "a".repeat(4097)), Ok(None));
    }

    #[test]
    fn a_key_may_be_written_with_escapes() {
        create(r#"{"n\u0061me":"a","value":"1","\u0076":0}"#, Ok(color("a", "1")));
    }

    #[test]
    fn an_error_quotes_100_characters_at_most() {
        let expected = "expected an object with the strings \"name\" and \"value\"";
        let long = |character: char, count: usize| String::from_iter(std::iter::repeat_n(character, count));
        let quoted = |text: &str| format!("invalid type: string \"{text}\", {expected} at line 1 column ");
        create(&format!("\"{}\"", long('a', 60)), Err(&(quoted(&long('a', 60)) + "62")));
        create(&format!("\"{}\"", long('a', 60_000)), Err(&(quoted(&format!("{}…", long('a', 78))) + "60002")));
        create(&format!("\"{}\"", long('é', 60_000)), Err(&(quoted(&format!("{}…", long('é', 78))) + "120002")));
        create("[\", expected x\"]", Err(&format!("invalid type: sequence, {expected} at line 1 column 0")));
    }

    #[test]
    fn a_color_serializes_to_exactly_name_and_value() {
        assert_eq!(str::from_utf8(color("a\"b", "#1").json.bytes()).unwrap(), r##"{"name":"a\"b","value":"#1"}"##);
    }
}
