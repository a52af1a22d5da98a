//! A color, and the three forms in which one is read: content of a create, content of an update, a file of colors.
//! Knows JSON and nothing of HTTP or of the list.

use std::fmt;
use std::sync::Arc;

use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

/// One entry of the list; serializes to exactly the two fields of the specification, in its order.
///
/// Both strings are shared, so that a copy of a color, or of the whole list, copies no text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Color {
    /// What paths identify the color by; any string, the empty one too; need not be unique.
    pub(crate) name: Arc<str>,
    /// The color's representation, for example `#663399`; any string.
    pub(crate) value: Arc<str>,
}

impl Color {
    /// The color as JSON, as every response shows it.
    pub(crate) fn to_json(&self) -> Vec<u8> {
        let mut json = Vec::with_capacity(32 + self.name.len() + self.value.len()); // bytes; 22 of them are the field names
        serde_json::to_writer(&mut json, self).expect("strings always serialize, and a Vec takes every byte");
        json
    }
}

/// Why some JSON is not what it was read as.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct JsonError {
    /// What is wrong: lower case, no full stop.
    pub(crate) reason: String,
    /// Counted from 1; 0 when the JSON is empty.
    pub(crate) line: usize,
    /// Counted from 1 in bytes; 0 when the line is empty.
    pub(crate) column: usize,
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at line {} column {}", self.reason, self.line, self.column)
    }
}

impl From<serde_json::Error> for JsonError {
    fn from(error: serde_json::Error) -> Self {
        let (line, column) = (error.line(), error.column());
        let text = error.to_string();
        let reason = text.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&text);
        let reason = match error.classify() {
            serde_json::error::Category::Data => reason.to_owned(),
            _ => format!("not valid JSON: {reason}"),
        };
        Self { reason, line, column }
    }
}

/// Content as text: JSON is UTF-8 (RFC 8259 §8.1), also in fields that are read over.
fn text(content: &[u8]) -> Result<&str, JsonError> {
    str::from_utf8(content).map_err(|error| {
        let before = &content[..error.valid_up_to()];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        let column = 1 + before.iter().rev().take_while(|byte| **byte != b'\n').count();
        JsonError { reason: "not valid JSON: it is not UTF-8".to_owned(), line, column }
    })
}

/// Reads the content of a create: an object with the strings `name` and `value`; further fields are ignored (spec, Color, rule 2).
///
/// # Errors
/// When the content is not JSON, not an object, or a field is missing, not a string or given twice.
pub(crate) fn from_create(content: &[u8]) -> Result<Color, JsonError> {
    serde_json::from_str(text(content)?).map_err(JsonError::from)
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
    let Update(value) = serde_json::from_str(text(content)?).map_err(JsonError::from)?;
    Ok(value)
}

/// Reads a file of colors: an array of them, or the envelope `{"data":[...]}` that `GET /colors` answers.
///
/// # Errors
/// When the file is not JSON, is neither of the two forms, or an entry is not a color.
pub(crate) fn from_file(content: &[u8]) -> Result<Vec<Color>, JsonError> {
    let File(colors) = serde_json::from_str(text(content)?).map_err(JsonError::from)?;
    Ok(colors)
}

impl<'de> Deserialize<'de> for Color {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let what = "an object with the strings \"name\" and \"value\"";
        let visitor = FieldsVisitor { wanted: &["name", "value"], are_required: true, what };
        let [Some(name), Some(value)] = deserializer.deserialize_map(visitor)? else {
            unreachable!("the visitor gives every field that is required");
        };
        Ok(Self { name, value })
    }
}

/// What an update asks for.
struct Update(Option<Arc<str>>);

impl<'de> Deserialize<'de> for Update {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let what = "an object with an optional string \"value\"";
        let [value] = deserializer.deserialize_map(FieldsVisitor { wanted: &["value"], are_required: false, what })?;
        Ok(Self(value))
    }
}

/// Takes the wanted string fields out of an object, each at most once, and nothing else: an array is not an object.
struct FieldsVisitor<const N: usize> {
    /// Names of the fields to take.
    wanted: &'static [&'static str; N],
    /// Whether each of them has to be there.
    are_required: bool,
    /// Names the expected form in an error.
    what: &'static str,
}

impl<'de, const N: usize> Visitor<'de> for FieldsVisitor<N> {
    type Value = [Option<Arc<str>>; N];

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = [const { None }; N];
        while let Some(Key(position)) = map.next_key_seed(KeySeed(self.wanted))? {
            let Some(position) = position else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let field = self.wanted[position];
            if found[position].is_some() {
                return Err(A::Error::custom(format_args!("field {field:?} is given twice")));
            }
            found[position] = Some(map.next_value_seed(StringSeed(field))?);
        }
        match found.iter().position(Option::is_none) {
            Some(missing) if self.are_required => Err(A::Error::custom(format_args!("missing field {:?}", self.wanted[missing]))),
            _ => Ok(found),
        }
    }
}

/// Position of an object's key among the wanted ones, if it is one of them.
struct Key(Option<usize>);

/// Compares a key with the wanted ones without keeping it.
struct KeySeed(&'static [&'static str]);

impl<'de> serde::de::DeserializeSeed<'de> for KeySeed {
    type Value = Key;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Key, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KeySeed {
    type Value = Key;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field name")
    }

    fn visit_str<E: serde::de::Error>(self, key: &str) -> Result<Key, E> {
        Ok(Key(self.0.iter().position(|wanted| *wanted == key)))
    }
}

/// Reads a string straight into shared text; the error names the field.
struct StringSeed(&'static str);

impl<'de> serde::de::DeserializeSeed<'de> for StringSeed {
    type Value = Arc<str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Arc<str>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for StringSeed {
    type Value = Arc<str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a string in field {:?}", self.0)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Arc<str>, E> {
        Ok(Arc::from(text))
    }
}

/// The colors of a file.
struct File(Vec<Color>);

impl<'de> Deserialize<'de> for File {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FileVisitor)
    }
}

/// Takes either form of a file of colors.
struct FileVisitor;

impl<'de> Visitor<'de> for FileVisitor {
    type Value = File;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of colors or an object with such an array in \"data\"")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<File, A::Error> {
        let mut colors = Vec::new();
        while let Some(color) = seq.next_element()? {
            colors.push(color);
        }
        Ok(File(colors))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<File, A::Error> {
        let mut data: Option<Vec<Color>> = None;
        while let Some(Key(position)) = map.next_key_seed(KeySeed(&["data"]))? {
            match position {
                None => drop(map.next_value::<IgnoredAny>()?),
                Some(_) if data.is_some() => return Err(A::Error::custom("field \"data\" is given twice")),
                Some(_) => data = Some(map.next_value()?),
            }
        }
        data.map(File).ok_or_else(|| A::Error::custom("missing field \"data\""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn color(name: &str, value: &str) -> Color {
        Color { name: name.into(), value: value.into() }
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
        create("", Err("not valid JSON: EOF while parsing a value at line 1 column 0"));
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
    fn a_color_serializes_to_exactly_name_and_value() {
        assert_eq!(serde_json::to_string(&color("a\"b", "#1")).unwrap(), r##"{"name":"a\"b","value":"#1"}"##);
    }
}
