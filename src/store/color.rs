//! A color, and the three forms in which colors are read: content of a create, content of an update, a file of colors.
//! Knows JSON, and nothing of the list.

use std::fmt;
use std::sync::Arc;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

use crate::http::Representation;

/// Bytes of UTF-8. Percent-encoded it is at most three times as long, which fits into the head of a request, 64 KiB.
pub(super) const NAME_BYTES_MAX: usize = 4096;

/// Characters of a wrong value that an error message quotes.
const QUOTED_CHARS_MAX: usize = 100;

/// One entry of the list. Both parts are shared: a copy of a color, or of the whole list, copies no text.
#[derive(Clone, Debug)]
pub(crate) struct Color {
    /// Its row in the database; rises along the list. Nothing but the database uses it.
    pub(super) id: i64,
    /// At most 4,096 bytes, may be empty, need not be unique.
    pub(crate) name: Arc<str>,
    /// Exactly the fields `name` and `value`, in this order (spec, Color, rule 1).
    pub(crate) json: Arc<Representation>,
}

/// The two fields of a color in JSON.
#[derive(Deserialize, Serialize)]
struct ColorFields<N, V> {
    name: N,
    value: V,
}

impl Color {
    pub(crate) fn new(name: impl Into<Arc<str>>, value: &str) -> Self {
        let name = name.into();
        let mut json = Vec::with_capacity(24 + name.len() + value.len()); // bytes; 22 of them are not the name or the value
        let fields = ColorFields { name: &*name, value };
        serde_json::to_writer(&mut json, &fields).expect("strings always serialize, and a Vec takes every byte");
        Self { id: 0, name, json: Arc::new(Representation::new(json)) }
    }

    /// The value, parsed from the JSON: only the database needs it by itself.
    pub(super) fn value(&self) -> String {
        let fields: ColorFields<serde::de::IgnoredAny, String> =
            serde_json::from_slice(self.json.bytes()).expect("it was made of a name and a value");
        fields.value
    }
}

/// Colors are equal when they have the same name and value.
impl PartialEq for Color {
    fn eq(&self, other: &Self) -> bool {
        self.json.bytes() == other.json.bytes()
    }
}

/// Why content, or a file, is not what it should be.
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

/// Cuts the value that `invalid type: string "...", expected ...` quotes; keeps the closing quote.
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
pub(crate) fn from_update(content: &[u8]) -> Result<Option<Arc<str>>, JsonError> {
    #[derive(Deserialize)]
    struct Update {
        // a null is not a missing value
        #[serde(default, deserialize_with = "some_value")]
        value: Option<Arc<str>>,
    }
    if content.is_empty() {
        return Ok(None);
    }
    let Object::<Update>(update) = serde_json::from_str(text(content)?)?;
    Ok(update.value)
}

/// Reads a file of colors: an array of them, or the envelope `{"data":[...]}` that `GET /colors` answers.
pub(crate) fn from_file(content: &[u8]) -> Result<Vec<Color>, JsonError> {
    #[derive(Deserialize)]
    struct Envelope {
        data: Vec<Color>,
    }
    let text = text(content)?;
    if text.trim_ascii_start().starts_with('{') {
        let Object::<Envelope>(envelope) = serde_json::from_str(text)?;
        return Ok(envelope.data);
    }
    Ok(serde_json::from_str(text)?)
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

/// A color as it is read.
#[derive(Deserialize)]
struct NewColor {
    #[serde(deserialize_with = "name")]
    name: Arc<str>,
    #[serde(deserialize_with = "value")]
    value: Arc<str>,
}

impl<'de> Deserialize<'de> for Color {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Object::deserialize(deserializer).map(|Object(NewColor { name, value })| Self::new(name, &value))
    }
}

fn name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<str>, D::Error> {
    let name = deserializer.deserialize_any(StringField("name"))?;
    match name.len() {
        0..=NAME_BYTES_MAX => Ok(name),
        length => Err(D::Error::custom(format_args!("field \"name\" has {length} bytes, at most {NAME_BYTES_MAX} are allowed"))),
    }
}

fn value<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<str>, D::Error> {
    deserializer.deserialize_any(StringField("value"))
}

fn some_value<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Arc<str>>, D::Error> {
    value(deserializer).map(Some)
}

/// Reads a string; the error for anything else has the name of the field.
struct StringField(&'static str);

impl Visitor<'_> for StringField {
    type Value = Arc<str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a string in field {:?}", self.0)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Arc<str>, E> {
        Ok(text.into())
    }
}

/// Reads a struct from a JSON object alone; what serde derives would take an array of the fields as well.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MapVisitor<T>(std::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for MapVisitor<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }
        deserializer.deserialize_map(MapVisitor(std::marker::PhantomData))
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
        create("{}", Err("missing field `name` at line 1 column 2"));
        create(r#"{"name":"a"}"#, Err("missing field `value` at line 1 column 12"));
        create(r#"{"value":"a"}"#, Err("missing field `name` at line 1 column 13"));
        create(r#"{"name":1,"value":"a"}"#, Err("invalid type: integer `1`, expected a string in field \"name\" at line 1 column 9"));
        create(r#"{"name":"a","value":null}"#, Err("invalid type: null, expected a string in field \"value\" at line 1 column 24"));
        create(r#"{"name":"a","name":"a","value":"b"}"#, Err("duplicate field `name` at line 1 column 18"));
        create(r#"["a","b"]"#, Err("invalid type: sequence, expected an object at line 1 column 0"));
        create(r#""a""#, Err("invalid type: string \"a\", expected an object at line 1 column 3"));
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
        update(r#"{"value":"a","value":"a"}"#, Err("duplicate field `value` at line 1 column 20"));
        update("[]", Err("invalid type: sequence, expected an object at line 1 column 0"));
        update(" ", Err("not valid JSON: EOF while parsing a value at line 1 column 1"));
    }

    #[test]
    fn a_file_is_an_array_or_an_envelope() {
        let two = || Ok(vec![color("a", "1"), color("a", "2")]);
        let read = |text: &str| from_file(text.as_bytes()).map_err(|e| (e.line, e.column, e.reason));
        assert_eq!(read(r#"[{"name":"a","value":"1"},{"name":"a","value":"2","x":0}]"#), two());
        assert_eq!(read(r#"{"x":[],"data":[{"name":"a","value":"1"},{"name":"a","value":"2"}]}"#), two());
        assert_eq!(read("[]"), Ok(vec![]));
        assert_eq!(read("{}"), Err((1, 2, "missing field `data`".to_owned())));
        assert_eq!(read(r#"{"data":[],"data":[]}"#), Err((1, 17, "duplicate field `data`".to_owned())));
        assert_eq!(read("[\n {\"name\":\"a\"}\n]"), Err((2, 13, "missing field `value`".to_owned())));
        assert_eq!(read("7"), Err((1, 1, "invalid type: integer `7`, expected a sequence".to_owned())));
    }

    #[test]
    fn a_name_has_at_most_4096_bytes() {
        let content = |name: &str| format!(r#"{{"value":"1","name":"{name}"}}"#);
        for name in ["a".repeat(4096), "é".repeat(2048)] {
            create(&content(&name), Ok(color(&name, "1")));
        }
        let error = "field \"name\" has 4097 bytes, at most 4096 are allowed at line 1 column 4120";
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
        let expected = "expected an object";
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
