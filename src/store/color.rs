//! A color: one entry of the list. Knows nothing of where colors come from.

use std::sync::Arc;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::http::Representation;

/// Bytes of UTF-8. Percent-encoded it is at most three times as long, which fits into the head of a request, 64 KiB.
pub(super) const NAME_BYTES_MAX: usize = 4096;

/// One entry of the list. Both parts are shared: a copy of a color, or of the whole list, copies no text.
#[derive(Clone, Debug)]
pub(crate) struct Color {
    /// Rises along the list; the id of its row in the database. 0 before it is in a list.
    pub(super) id: i64,
    /// At most 4,096 bytes, may be empty, need not be unique.
    pub(crate) name: Arc<str>,
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
        let json = Arc::new(json(&name, value));
        Self { id: 0, name, json }
    }

    /// Bytes of [`Color::json_in_list`].
    pub(super) fn json_len(&self) -> usize {
        self.json.bytes().len() - 1
    }

    /// The JSON without its line feed.
    pub(super) fn json_in_list(&self) -> &[u8] {
        &self.json.bytes()[..self.json_len()]
    }
}

/// The JSON of a color: exactly the fields `name` and `value`, in this order (spec, Color, rule 1), and a line feed.
pub(super) fn json(name: &str, value: &str) -> Representation {
    let mut json = Vec::with_capacity(24 + name.len() + value.len()); // bytes; 23 of them are not the name or the value
    serde_json::to_writer(&mut json, &ColorFields { name, value }).expect("strings always serialize, and a Vec takes every byte");
    json.push(b'\n');
    Representation::new(json)
}

/// The value in the JSON of a color: only the database needs it by itself.
pub(super) fn value(json: &Representation) -> String {
    let fields: ColorFields<IgnoredAny, String> = serde_json::from_slice(json.bytes()).expect("it was made of a name and a value");
    fields.value
}

/// Colors are equal when they have the same name and value.
impl PartialEq for Color {
    fn eq(&self, other: &Self) -> bool {
        self.json == other.json
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_color_serializes_to_exactly_name_and_value() {
        assert_eq!(str::from_utf8(Color::new("a\"b", "#1").json.bytes()).unwrap(), "{\"name\":\"a\\\"b\",\"value\":\"#1\"}\n");
    }
}
