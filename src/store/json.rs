//! Reads colors from JSON: the content of a create, the content of an update, and a list.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::color::{Color, ColorFields, JsonString, NAME_BYTES_MAX};
use super::color_list::ColorList;

/// The form of a color, and of an update of one, for messages.
const COLOR_FORM: &str = r##"an object, as in {"name":"red","value":"#f00"}"##;

/// The forms of a list, for messages.
const LIST_FORMS: &str = "an array of colors, as in [{\"name\":\"red\",\"value\":\"#f00\"}], \
                          or an object with it as \"data\"";

/// What makes a list of two other forms that are common, by jq, for messages; also in docs/http.md.
/// Without double quotes, which would be escaped in a response.
const FROM_HEX: &str = "map({name, value: .hex})";
const FROM_MAP: &str = "jq 'to_entries | map({name: .key, value})' makes one of a map";

/// The verb in messages about the content of a request.
const SEND: &str = "send";

/// Most characters of an error message before `, expected`; a longer quoted value is cut.
const QUOTED_CHARS_MAX: usize = 100;

/// Why content, or a file, is not what it should be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct JsonError {
    /// Part of a sentence, without a full stop.
    pub(crate) reason: String,
    /// `None` if the error is at no one place, as when there is no content.
    pub(crate) place: Option<LineColumn>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LineColumn {
    /// Counted from 1.
    pub(crate) line: usize,
    /// Counted from 1 in bytes; 0 if the error was found before the first byte of the line.
    pub(crate) column: usize,
}

impl JsonError {
    fn without_place(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), place: None }
    }
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)?;
        match &self.place {
            Some(LineColumn { line, column }) => write!(f, " at line {line} column {column}"),
            None => Ok(()),
        }
    }
}

impl From<serde_json::Error> for JsonError {
    fn from(error: serde_json::Error) -> Self {
        let (line, column) = (error.line(), error.column());
        let text = error.to_string();
        let reason =
            text.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&text);
        let reason =
            if error.is_data() { shorten(reason) } else { format!("not valid JSON: {reason}") };
        Self { reason, place: Some(LineColumn { line, column }) }
    }
}

/// Cuts a long value in `invalid type: string "...", expected ...`, and keeps the closing quote.
fn shorten(reason: &str) -> String {
    if let Some((quoted, expected)) = reason.rsplit_once(", expected ")
        && let Some((cut, _)) = quoted.char_indices().nth(QUOTED_CHARS_MAX)
    {
        let quote = quoted.chars().next_back().unwrap_or('"');
        return format!("{}…{quote}, expected {expected}", &quoted[..cut]);
    }
    reason.to_owned()
}

/// Reads the content of a create: an object with the strings `name` and `value`; further fields are
/// ignored (docs/http.md, Colors).
pub(crate) fn from_create(content: &[u8]) -> Result<Color, JsonError> {
    if content.is_empty() {
        return Err(JsonError::without_place(
            "there is no content, send an object with the strings \"name\" and \"value\"",
        ));
    }
    parse(content, SEND, COLOR_FORM).map(|Object(color)| color)
}

/// Reads the content of an update: an object whose optional string `value` is the new value; `name`
/// and the rest are ignored.
///
/// No content at all means the same as `{}`: keep the value (docs/http.md, Colors).
pub(crate) fn from_update(content: &[u8]) -> Result<Option<Cow<'_, str>>, JsonError> {
    #[derive(Deserialize)]
    struct Update<'a> {
        #[serde(borrow, default, deserialize_with = "not_null")]
        value: Option<Cow<'a, str>>,
    }
    let content = if content.is_empty() { b"{}" } else { content };
    parse(content, SEND, COLOR_FORM).map(|Object(Update { value })| value)
}

/// Reads the content of an update with `If-None-Match: *`, which creates a color: `value` is
/// required.
pub(crate) fn from_create_named(name: &str, content: &[u8]) -> Result<Color, JsonError> {
    check_length(name, "the name in the path").map_err(JsonError::without_place)?;
    match from_update(content)? {
        Some(value) => Ok(Color::new(name, &value)),
        None => Err(JsonError::without_place("missing field `value`, which a new color needs")),
    }
}

fn check_length(name: &str, what: &str) -> Result<(), String> {
    match name.len() {
        0..=NAME_BYTES_MAX => Ok(()),
        length => Err(format!("{what} has {length} bytes, at most {NAME_BYTES_MAX} are allowed")),
    }
}

/// Refuses null, which serde would read as a missing value.
fn not_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Cow<'de, str>>, D::Error> {
    JsonString::deserialize(deserializer).map(|JsonString(value)| Some(value))
}

/// Reads a list: an array of colors, or the envelope `{"data":[...]}` that `GET /colors` answers.
pub(crate) fn from_list(content: &[u8]) -> Result<ColorList, JsonError> {
    list(content, SEND)
}

/// Reads a file with a list.
pub(crate) fn from_file(content: &[u8]) -> Result<ColorList, JsonError> {
    match first_byte(content) {
        Some(_) => list(content, "the file needs"),
        None => Err(JsonError::without_place(format!("the file is empty; it needs {LIST_FORMS}"))),
    }
}

fn list(content: &[u8], needs: &str) -> Result<ColorList, JsonError> {
    #[derive(Deserialize)]
    struct Envelope {
        data: Option<ColorList>,
    }
    let list = match first_byte(content) {
        Some(b'{') => {
            parse::<Envelope>(content, needs, LIST_FORMS)
                .map_err(|error| with_hex(error, content, ".data | "))?
                .data
        }
        _ => Some(parse(content, needs, LIST_FORMS).map_err(|error| with_hex(error, content, ""))?),
    };
    list.ok_or_else(|| {
        let reason = format!("this is no list of colors; {needs} {LIST_FORMS}; {FROM_MAP}");
        JsonError::without_place(reason)
    })
}

/// The error of an array, with what to do if its colors have the value as `hex`. `way` leads to the
/// array in jq.
fn with_hex(error: JsonError, content: &[u8], way: &str) -> JsonError {
    let has_hex = content.windows(5).any(|key| key == b"\"hex\"");
    if !has_hex || !error.reason.ends_with(": missing field `value`") {
        return error;
    }
    JsonError::without_place(format!("{}; jq '{way}{FROM_HEX}' makes it of \"hex\"", error.reason))
}

/// Parses JSON. For content that is no JSON at all, such as CSV, the message of the parser does not
/// help. `needs` and `form` are parts of the message that is given instead.
fn parse<'a, T: Deserialize<'a>>(
    content: &'a [u8],
    needs: &str,
    form: &str,
) -> Result<T, JsonError> {
    if is_utf16(content) {
        let reason = format!("this is UTF-16; {needs} JSON in UTF-8: {form}");
        return Err(JsonError::without_place(reason));
    }
    let text = text(content)?;
    serde_json::from_str(text).map_err(|error| match first_byte(content) {
        Some(b'{' | b'[') => syntax_error(error, text),
        // It is JSON, but neither an object nor an array.
        _ if serde_json::from_str::<IgnoredAny>(text).is_ok() => error.into(),
        _ => JsonError::without_place(format!(
            "this is not JSON; {needs} JSON, with double quotes and without a byte order mark: \
             {form}"
        )),
    })
}

/// Whether this begins as UTF-16 does: with its byte order mark, or with a character of ASCII. What
/// PowerShell writes to a file is UTF-16.
fn is_utf16(content: &[u8]) -> bool {
    matches!(content, [0xFF, 0xFE, ..] | [0xFE, 0xFF, ..] | [0, 1..=0xFF, ..] | [1..=0xFF, 0, ..])
}

/// The error of the parser, with a hint if it stands at a single quote.
fn syntax_error(error: serde_json::Error, text: &str) -> JsonError {
    let mut error = JsonError::from(error);
    let byte = error.place.as_ref().and_then(|LineColumn { line, column }| {
        let line = text.as_bytes().split(|byte| *byte == b'\n').nth(line.checked_sub(1)?)?;
        line.get(column.checked_sub(1)?)
    });
    if byte == Some(&b'\'') {
        error.reason += ", use double quotes";
    }
    error
}

fn first_byte(content: &[u8]) -> Option<u8> {
    content.trim_ascii_start().first().copied()
}

/// The content as text. JSON is UTF-8 (RFC 8259 §8.1), also in fields that are ignored.
fn text(content: &[u8]) -> Result<&str, JsonError> {
    str::from_utf8(content).map_err(|error| {
        let before = &content[..error.valid_up_to()];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        let column = 1 + before.iter().rev().take_while(|byte| **byte != b'\n').count();
        let reason = "not valid JSON: it is not UTF-8".to_owned();
        JsonError { reason, place: Some(LineColumn { line, column }) }
    })
}

/// A color, or an update of one, that is read only from a JSON object. What serde derives would
/// also accept an array of the fields.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Object(PhantomData))
    }
}

/// The visitor by which an `Object<T>` is read.
impl<'de, T: Deserialize<'de>> Visitor<'de> for Object<PhantomData<T>> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(COLOR_FORM)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Object)
    }
}

/// Read a color as `Object<Color>`: this implementation alone would also accept an array.
impl<'de> Deserialize<'de> for Color {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let ColorFields { name, value } = ColorFields::deserialize(deserializer)?;
        check_length(&name, "field \"name\"").map_err(D::Error::custom)?;
        Ok(Color::new(&name, &value))
    }
}

/// Reads an array of colors. An error says which color is wrong.
impl<'de> Deserialize<'de> for ColorList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ListVisitor;
        impl<'de> Visitor<'de> for ListVisitor {
            type Value = ColorList;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(LIST_FORMS)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<ColorList, A::Error> {
                let colors = (1..).map_while(|number| {
                    // serde_json takes line and column from the end of this text.
                    let wrong = |error| A::Error::custom(format_args!("color {number}: {error}"));
                    let color = array.next_element().map_err(wrong).transpose()?;
                    Some(color.map(|Object::<Color>(color)| color))
                });
                colors.collect()
            }
        }
        deserializer.deserialize_seq(ListVisitor)
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
        assert_eq!(
            from_create(content.as_bytes()).map_err(|e| e.to_string()),
            expected.map_err(str::to_owned),
            "{content:?}"
        );
    }

    #[track_caller]
    fn update(content: &str, expected: Result<Option<&str>, &str>) {
        let read = from_update(content.as_bytes()).map_err(|e| e.to_string());
        assert_eq!(
            read.as_ref().map(Option::as_deref),
            expected.map_err(str::to_owned).as_ref().map(|v| *v),
            "{content:?}"
        );
    }

    #[test]
    fn a_create_takes_name_and_value_and_ignores_the_rest() {
        let red = || Ok(color("red", "#f00"));
        create(r##"{"name":"red","value":"#f00"}"##, red());
        create(r##" { "value" : "#f00" , "name" : "red" } "##, red());
        create(r##"{"id":7,"name":"red","tags":[{"a":[1e999]}],"value":"#f00","id":8}"##, red());
        create(r#"{"name":"","value":""}"#, Ok(color("", "")));
        create(r#"{"name":"\ud83c\udfa8\u0000","value":"\"\\"}"#, Ok(color("\u{1f3a8}\0", "\"\\")));
        let deep = format!(
            r##"{{"x":{}{},"name":"red","value":"#f00"}}"##,
            "[".repeat(9000),
            "]".repeat(9000)
        );
        create(&deep, red());
    }

    #[test]
    fn a_create_names_what_is_wrong() {
        create(
            "",
            Err("there is no content, send an object with the strings \"name\" and \"value\""),
        );
        create("{}", Err("missing field `name` at line 1 column 2"));
        create(r#"{"name":"a"}"#, Err("missing field `value` at line 1 column 12"));
        create(r#"{"value":"a"}"#, Err("missing field `name` at line 1 column 13"));
        create(
            r#"{"name":1,"value":"a"}"#,
            Err("invalid type: integer `1`, expected a string at line 1 column 9"),
        );
        create(
            r#"{"name":"a","value":null}"#,
            Err("invalid type: null, expected a string at line 1 column 24"),
        );
        create(
            r#"{"name":"a","name":"a","value":"b"}"#,
            Err("duplicate field `name` at line 1 column 18"),
        );
        create(
            r#"{"name":"a","value":"b"} x"#,
            Err("not valid JSON: trailing characters at line 1 column 26"),
        );
        create(
            "{\"name\":\"\\ud800\",\"value\":\"b\"}",
            Err("not valid JSON: unexpected end of hex escape at line 1 column 16"),
        );
        let not_text = |content: &[u8]| from_create(content).unwrap_err().to_string();
        assert_eq!(
            not_text(b"{\"name\":\"\xff\",\"value\":\"b\"}"),
            "not valid JSON: it is not UTF-8 at line 1 column 10"
        );
        assert_eq!(
            not_text(b"{\"name\":\"a\",\"value\":\"b\",\n\"x\":\"\xc0\xaf\"}"),
            "not valid JSON: it is not UTF-8 at line 2 column 6"
        );
    }

    #[test]
    fn an_error_knows_what_others_write_for_json() {
        for (content, expected) in [
            (
                "{'name':\"a\"}",
                "not valid JSON: key must be a string, use double quotes at line 1 column 2",
            ),
            (
                "{\n\"name\":'a'}",
                "not valid JSON: expected value, use double quotes at line 2 column 8",
            ),
            ("{\"name\":\"'\",a}", "not valid JSON: key must be a string at line 1 column 13"),
            ("{\"name\":\"'\"}", "missing field `value` at line 1 column 12"),
        ] {
            create(content, Err(expected));
        }
        let list = from_list(b"[{'name':1}]").unwrap_err().to_string();
        assert_eq!(list, "color 1: key must be a string, use double quotes at line 1 column 3");
        let [little, big] = [u16::to_le_bytes, u16::to_be_bytes]
            .map(|encode| "{}".encode_utf16().flat_map(encode).collect::<Vec<_>>());
        for mark in [&b"\xff\xfe"[..], b"\xfe\xff", b""] {
            for content in [&little, &big] {
                let error = from_create(&[mark, content].concat()).unwrap_err().to_string();
                assert_eq!(error, format!("this is UTF-16; send JSON in UTF-8: {COLOR_FORM}"));
            }
        }
    }

    #[test]
    fn an_update_takes_at_most_a_value() {
        update("", Ok(None));
        update("{}", Ok(None));
        update(r##"{"value":"#111"}"##, Ok(Some("#111")));
        update(r##"{"name":5,"name":6,"value":"#111","other":null}"##, Ok(Some("#111")));
        update(
            r#"{"value":1}"#,
            Err("invalid type: integer `1`, expected a string at line 1 column 10"),
        );
        update(r#"{"value":"a","value":"a"}"#, Err("duplicate field `value` at line 1 column 20"));
    }

    #[test]
    fn a_list_is_an_array_or_an_envelope() {
        let two = || Ok(ColorList::from_iter([color("a", "1"), color("a", "2")]));
        let read = |text: &str| from_list(text.as_bytes()).map_err(|e| e.to_string());
        assert_eq!(read(r#"[{"name":"a","value":"1"},{"name":"a","value":"2","x":0}]"#), two());
        assert_eq!(
            read(r#" {"x":[],"data":[{"name":"a","value":"1"},{"name":"a","value":"2"}],"y":{}} "#),
            two()
        );
        for empty in ["[]", r#"{"data":[]}"#] {
            assert_eq!(read(empty), Ok(ColorList::default()));
        }
    }

    #[test]
    fn the_error_of_a_list_says_which_color_is_wrong() {
        let no_json = format!(
            "this is not JSON; send JSON, with double quotes and without a byte order mark: {LIST_FORMS}"
        );
        for (text, expected) in [
            ("[\n {\"name\":\"a\"}\n]", "color 1: missing field `value` at line 2 column 13"),
            (
                r#"{"data":[{"name":"a","value":"1"},{"name":"a","value":2}]}"#,
                "color 2: invalid type: integer `2`, expected a string at line 1 column 55",
            ),
            (
                r#"[{"name":"a","value":"1"},7]"#,
                &format!(
                    "color 2: invalid type: integer `7`, expected {COLOR_FORM} at line 1 column 27"
                ),
            ),
            ("name,value", &no_json),
            ("\u{feff}[]", &no_json),
            (r#"[{"name":"a","value":"1"},]"#, "color 2: trailing comma at line 1 column 27"),
            (
                r#"[{"name":"a","value":"1"}"#,
                "color 2: EOF while parsing a list at line 1 column 25",
            ),
            (
                r#"[{"name":"a","value":"1"}] x"#,
                "not valid JSON: trailing characters at line 1 column 28",
            ),
            (r#"{"data":[],"data":[]}"#, "duplicate field `data` at line 1 column 17"),
            (
                r#"{"data":{}}"#,
                &format!("invalid type: map, expected {LIST_FORMS} at line 1 column 8"),
            ),
            (r#"{"data":[],"x":}"#, "not valid JSON: expected value at line 1 column 16"),
            (
                r##"[{"name":"a","value":"1"},{"name":"red","hex":"#f00"}]"##,
                &format!("color 2: missing field `value`; jq '{FROM_HEX}' makes it of \"hex\""),
            ),
            (
                r##"{"data":[{"name":"red","hex":"#f00"}]}"##,
                &format!(
                    "color 1: missing field `value`; jq '.data | {FROM_HEX}' makes it of \"hex\""
                ),
            ),
            (r##"[{"hex":"#f00"}]"##, "color 1: missing field `name` at line 1 column 15"),
            (
                r##"[["red","#f00"]]"##,
                &format!(
                    "color 1: invalid type: sequence, expected {COLOR_FORM} at line 1 column 2"
                ),
            ),
            (
                r#"[{"name":"a","value":"1","value":"2"}]"#,
                "color 1: duplicate field `value` at line 1 column 32",
            ),
            ("", &no_json),
        ] {
            assert_eq!(
                from_list(text.as_bytes()).map_err(|e| e.to_string()),
                Err(expected.to_owned()),
                "{text}"
            );
        }
        for text in [r##"{"red":"#f00"}"##, r#"{"name":"a","value":"1"}"#, "{}"] {
            let error = from_list(text.as_bytes()).unwrap_err().reason;
            assert_eq!(error, format!("this is no list of colors; send {LIST_FORMS}; {FROM_MAP}"));
        }
        for (text, what) in [
            ("7", "invalid type: integer `7`, expected"),
            ("null", "invalid type: null, expected"),
            (r#""red""#, "invalid type: string \"red\", expected"),
        ] {
            let error = from_list(text.as_bytes()).unwrap_err().reason;
            assert_eq!(error, format!("{what} {LIST_FORMS}"));
        }
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
        let list = format!("[{}]", content(&"a".repeat(4097)));
        assert!(from_list(list.as_bytes()).unwrap_err().reason.contains("has 4097 bytes"));
        create(&content(&"\\u0061".repeat(4096)), Ok(color(&"a".repeat(4096), "1")));
        create(
            &format!(r#"{{"name":"a","value":"{}"}}"#, "a".repeat(4097)),
            Ok(color("a", &"a".repeat(4097))),
        );
        update(&format!(r#"{{"name":"{}"}}"#, "a".repeat(4097)), Ok(None));
    }

    #[test]
    fn a_key_may_be_written_with_escapes() {
        create(r#"{"n\u0061me":"a","value":"1","\u0076":0}"#, Ok(color("a", "1")));
    }

    #[test]
    fn an_error_quotes_100_characters_at_most() {
        let expected = format!("expected {COLOR_FORM}");
        let long = |character: char, count: usize| {
            String::from_iter(std::iter::repeat_n(character, count))
        };
        let quoted =
            |text: &str| format!("invalid type: string \"{text}\", {expected} at line 1 column ");
        create("\", expected x\"", Err(&(quoted(", expected x") + "14")));
        create(&format!("\"{}\"", long('a', 60)), Err(&(quoted(&long('a', 60)) + "62")));
        create(
            &format!("\"{}\"", long('a', 60_000)),
            Err(&(quoted(&format!("{}…", long('a', 78))) + "60002")),
        );
        create(
            &format!("\"{}\"", long('é', 60_000)),
            Err(&(quoted(&format!("{}…", long('é', 78))) + "120002")),
        );
    }
}
