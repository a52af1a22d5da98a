//! What the fuzz targets see of the crate, in plain types. Only `cargo fuzz` sets `cfg(fuzzing)`:
//! no other build has this module.

use std::borrow::Cow;

pub use crate::serve::stepped::{Access, SteppedConnection};
use crate::store::{Color, JsonError, json};

#[derive(Debug, PartialEq, Eq)]
pub struct ReadColor {
    pub name: String,
    pub value: String,
    pub json: Vec<u8>,
}

/// Why JSON is refused, and at which line and column, counted from 1.
#[derive(Debug)]
pub struct JsonMistake {
    pub reason: String,
    pub place: Option<(usize, usize)>,
}

fn read_color(color: &Color) -> ReadColor {
    let fields = color.fields();
    let json = color.json.bytes().to_vec();
    ReadColor { name: fields.name.into_owned(), value: fields.value.into_owned(), json }
}

fn mistake(JsonError { reason, place }: JsonError) -> JsonMistake {
    JsonMistake { reason, place: place.map(|place| (place.line, place.column)) }
}

pub fn create(content: &[u8]) -> Result<ReadColor, JsonMistake> {
    json::from_create(content).map(|color| read_color(&color)).map_err(mistake)
}

pub fn update(content: &[u8]) -> Result<Option<String>, JsonMistake> {
    let value = json::from_update(content).map_err(mistake)?;
    Ok(value.map(Cow::into_owned))
}

pub fn list(content: &[u8]) -> Result<Vec<ReadColor>, JsonMistake> {
    let colors = json::from_list(content).map_err(mistake)?;
    Ok(colors.iter().map(|(_, color)| read_color(color)).collect())
}
