//! What the fuzz targets see of the crate, in plain types. Only `cargo fuzz` sets `cfg(fuzzing)`:
//! no other build has this module.

use crate::http::{Head, Parser};
pub use crate::server::stepped::{Access, Step, SteppedConnection};
use crate::store::{Color, JsonError, json};

#[derive(Debug, PartialEq, Eq)]
pub struct ParsedRequest {
    head: Head,
    content: Vec<u8>,
}

impl ParsedRequest {
    /// One of which no content is known.
    fn refused(head: Head) -> Self {
        Self { head, content: Vec::new() }
    }

    pub fn method(&self) -> &str {
        self.head.method().as_str()
    }

    pub fn target(&self) -> &str {
        self.head.target()
    }

    pub fn content(&self) -> &[u8] {
        &self.content
    }

    pub fn keep_alive(&self) -> bool {
        self.head.keep_alive()
    }

    /// Names and values.
    pub fn fields(&self) -> Vec<(&[u8], &[u8])> {
        self.head.fields().collect()
    }
}

/// How the bytes of a connection end.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    Idle,
    Closed,
    /// With what can be told of the request.
    CutShort(Option<ParsedRequest>),
    /// The same, and why.
    Refused(String, Option<ParsedRequest>),
}

/// The requests in these bytes, which arrive one piece after the other.
pub fn parse<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
    content_max: usize,
) -> (Vec<ParsedRequest>, End) {
    let mut parser = Parser::new(true);
    let mut requests = Vec::new();
    for piece in pieces {
        parser.append(piece);
        loop {
            match parser.next_request(content_max) {
                Ok(Some((head, content))) => requests.push(ParsedRequest { head, content }),
                Ok(None) => break,
                Err(error) => {
                    let refused = parser.abandon().map(ParsedRequest::refused);
                    return (requests, End::Refused(error.to_string(), refused));
                }
            }
            if requests.last().is_some_and(|request| !request.keep_alive()) {
                return (requests, End::Closed);
            }
        }
        assert!(parser.missing() <= content_max);
    }
    let is_idle = parser.is_idle();
    if is_idle {
        return (requests, End::Idle);
    }
    let cut_short = parser.abandon().map(ParsedRequest::refused);
    (requests, End::CutShort(cut_short))
}

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
    json::from_update(content).map_err(mistake)
}

pub fn list(content: &[u8]) -> Result<Vec<ReadColor>, JsonMistake> {
    let colors = json::from_list(content).map_err(mistake)?;
    Ok(colors.iter().map(|(_, color)| read_color(color)).collect())
}
