//! A response as a value, and how its head is written. Knows neither sockets nor colors.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use serde::Serialize;
use tiny_http::StatusCode;

use super::date;

/// A strong entity tag: a hash of the representation's bytes, shown as 16 hexadecimal digits in quotes (RFC 9110 §8.8.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntityTag(pub(crate) u64);

impl EntityTag {
    /// The tag as it stands in a field.
    fn written(self) -> [u8; 18] {
        let mut written = [b'"'; 18];
        for (position, digit) in written[1..17].iter_mut().enumerate() {
            *digit = b"0123456789abcdef"[(self.0 >> (60 - 4 * position)) as usize & 0xf];
        }
        written
    }
}

impl fmt::Display for EntityTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(str::from_utf8(&self.written()).expect("quotes and digits are ASCII"))
    }
}

/// What a response carries; always JSON, if anything.
#[derive(Clone, Debug, Default)]
pub(crate) enum Content {
    /// None, as in 204 and 304.
    #[default]
    None,
    /// Text that is part of the program.
    Fixed(&'static str),
    /// Rendered for this response.
    Own(Vec<u8>),
    /// Kept by the list, too; cloning it copies no bytes.
    Shared(Arc<Representation>),
}

/// A representation that the list keeps and responses are sent from (RFC 9110 §3.2).
#[derive(Debug)]
pub(crate) struct Representation {
    pub(crate) json: Vec<u8>,
    withdrawn: AtomicBool,
}

impl Representation {
    pub(crate) fn new(json: Vec<u8>) -> Self {
        Self { json, withdrawn: AtomicBool::new(false) }
    }

    /// Has the responses that are still sent from it be cut off: it is an old version, and all of those take too much memory.
    pub(crate) fn withdraw(&self) {
        self.withdrawn.store(true, Relaxed);
    }

    pub(crate) fn is_withdrawn(&self) -> bool {
        self.withdrawn.load(Relaxed)
    }
}

impl Content {
    /// The bytes, without copying them.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::None => &[],
            Self::Fixed(text) => text.as_bytes(),
            Self::Own(bytes) => bytes,
            Self::Shared(representation) => &representation.json,
        }
    }
}

/// An answer; the fields every response has are added when it is written.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    /// How it went.
    pub(crate) status: StatusCode,
    /// The representation or the error.
    pub(crate) content: Content,
    /// ETag, on representations that a client may revalidate.
    pub(crate) tag: Option<EntityTag>,
    /// Location, on a created color (RFC 9110 §10.2.2).
    pub(crate) location: Option<String>,
    /// Allow, on 204 and 405 (RFC 9110 §10.2.1).
    pub(crate) allow: Option<&'static str>,
    /// Access-Control-Allow-Origin and what goes with it, for an origin that the operator allowed.
    pub(crate) cors: Option<Cors>,
    /// Whether the response would be another for another Origin.
    pub(crate) varies_by_origin: bool,
    /// WWW-Authenticate, on a 401.
    pub(crate) challenge: Option<Challenge>,
    /// Whether it is for this client alone, and no shared cache may keep it.
    pub(crate) is_private: bool,
    /// What the operator should know of it; not sent.
    pub(crate) remark: Option<String>,
}

/// Why a request is told that it needs a token (RFC 6750 §3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Challenge {
    /// When it has none, or credentials of another scheme.
    NoToken,
    /// When it has one that does not count.
    InvalidToken,
}

/// The CORS fields of a response (Fetch standard, CORS protocol).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cors {
    /// The allowed origin, echoed.
    pub(crate) origin: String,
    /// Whether this answers a preflight.
    pub(crate) preflight: bool,
}

impl Response {
    /// A response with nothing but status and content.
    pub(crate) fn new(status: StatusCode, content: Content) -> Self {
        Self {
            status,
            content,
            tag: None,
            location: None,
            allow: None,
            cors: None,
            varies_by_origin: false,
            challenge: None,
            is_private: false,
            remark: None,
        }
    }

    /// A response whose content is `value` as JSON.
    pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Self {
        let mut content = Vec::with_capacity(128); // bytes; a color with its field names is under 100
        serde_json::to_writer(&mut content, value).expect("strings and booleans always serialize, and a Vec takes every byte");
        Self::new(status, Content::Own(content))
    }

    /// The Error body of the specification, with a message for whoever wrote the client: lower case, no full stop.
    pub(crate) fn error(status: StatusCode, message: impl Into<Cow<'static, str>>) -> Self {
        #[derive(Serialize)]
        struct ErrorBody {
            error: bool,
            message: Cow<'static, str>,
        }
        Self::json(status, &ErrorBody { error: true, message: message.into() })
    }

    /// The answer when no entry has the requested name: exactly the Error body of the specification (rule 5 of Endpoints).
    pub(crate) fn no_such_color() -> Self {
        Self::new(StatusCode::NOT_FOUND, Content::Fixed(r#"{"error":true}"#))
    }

    /// The head as it is sent now: everything before the content, with the empty line.
    pub(crate) fn write_head_now(&self, out: &mut Vec<u8>, connection: Option<&'static str>) {
        date::now(|date| self.write_head(out, date, connection));
    }

    /// `date` is an IMF-fixdate (RFC 9110 §5.6.7).
    fn write_head(&self, out: &mut Vec<u8>, date: &str, connection: Option<&'static str>) {
        let reason = match self.status {
            StatusCode::PAYLOAD_TOO_LARGE => "Content Too Large", // RFC 9110 §15.5.14; the library has the name before that
            status => status.default_reason_phrase(),
        };
        out.extend_from_slice(b"HTTP/1.1 ");
        out.extend_from_slice(itoa::Buffer::new().format(self.status.0).as_bytes());
        out.push(b' ');
        out.extend_from_slice(reason.as_bytes());
        push_field(out, "Date", date);
        out.extend_from_slice(match (self.challenge, self.is_private) {
            (Some(_), _) => b"\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff",
            (None, true) => b"\r\nCache-Control: private, no-cache\r\nX-Content-Type-Options: nosniff",
            (None, false) => b"\r\nCache-Control: no-cache\r\nX-Content-Type-Options: nosniff".as_slice(),
        });
        // RFC 9110 §8.6 and §15.4.5: no Content-Length on 204, and none needed on 304
        if !matches!(self.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
            out.extend_from_slice(b"\r\nContent-Type: application/json\r\nContent-Length: ");
            out.extend_from_slice(itoa::Buffer::new().format(self.content.bytes().len()).as_bytes());
        }
        if let Some(tag) = self.tag {
            out.extend_from_slice(b"\r\nETag: ");
            out.extend_from_slice(&tag.written());
        }
        if let Some(location) = &self.location {
            push_field(out, "Location", location);
        }
        if let Some(allow) = self.allow {
            push_field(out, "Allow", allow);
        }
        if let Some(challenge) = self.challenge {
            push_field(out, "WWW-Authenticate", challenge.written());
        }
        if self.varies_by_origin {
            push_field(out, "Vary", "Origin");
        }
        if let Some(cors) = &self.cors {
            cors.write(out);
        }
        if let Some(connection) = connection {
            push_field(out, "Connection", connection);
        }
        out.extend_from_slice(b"\r\n\r\n");
    }
}

impl Challenge {
    /// The value of WWW-Authenticate (RFC 9110 §11.6.1).
    fn written(self) -> &'static str {
        match self {
            // RFC 6750 §3.1: no error code where no authentication was tried, or another scheme
            Self::NoToken => r#"Bearer realm="colors""#,
            Self::InvalidToken => r#"Bearer realm="colors", error="invalid_token""#,
        }
    }

    /// What the client is told.
    pub(crate) fn message(self) -> &'static str {
        match self {
            Self::NoToken => "this needs a token, sent as Authorization: Bearer TOKEN",
            Self::InvalidToken => "the token is not valid",
        }
    }
}

impl Cors {
    /// How long a browser may keep the answer to a preflight.
    const PREFLIGHT_SECONDS: &str = "600";

    /// Writes the CORS fields.
    fn write(&self, out: &mut Vec<u8>) {
        push_field(out, "Access-Control-Allow-Origin", &self.origin);
        if self.preflight {
            push_field(out, "Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, DELETE");
            push_field(out, "Access-Control-Allow-Headers", "Accept, Authorization, Content-Type, If-Match, If-None-Match");
            push_field(out, "Access-Control-Max-Age", Self::PREFLIGHT_SECONDS);
        } else {
            push_field(out, "Access-Control-Expose-Headers", "ETag, Location");
        }
    }
}

/// Appends a field line, led by the line break that ends the one before.
fn push_field(out: &mut Vec<u8>, name: &str, value: &str) {
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn written(response: &Response, connection: Option<&'static str>, expected: &str) {
        let mut out = Vec::new();
        response.write_head(&mut out, "Sat, 21 Nov 2026 01:02:03 GMT", connection);
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn a_response_carries_the_common_fields() {
        written(
            &Response::no_such_color(),
            None,
            "HTTP/1.1 404 Not Found\r\nDate: Sat, 21 Nov 2026 01:02:03 GMT\r\nCache-Control: no-cache\r\n\
             X-Content-Type-Options: nosniff\r\nContent-Type: application/json\r\nContent-Length: 14\r\n\r\n",
        );
    }

    #[test]
    fn a_response_without_content_announces_none() {
        let response = Response { allow: Some("GET"), ..Response::new(StatusCode::NO_CONTENT, Content::None) };
        written(
            &response,
            Some("close"),
            "HTTP/1.1 204 No Content\r\nDate: Sat, 21 Nov 2026 01:02:03 GMT\r\nCache-Control: no-cache\r\n\
             X-Content-Type-Options: nosniff\r\nAllow: GET\r\nConnection: close\r\n\r\n",
        );
    }

    #[test]
    fn an_entity_tag_is_16_digits_in_quotes() {
        assert_eq!(EntityTag(0x0123_4567_89ab_cdef).to_string(), "\"0123456789abcdef\"");
        assert_eq!(EntityTag(1).to_string(), "\"0000000000000001\"");
    }

    #[test]
    fn errors_are_the_error_body_with_a_message() {
        let response = Response::error(StatusCode::BAD_REQUEST, "missing field \"name\"");
        assert_eq!(response.content.bytes(), br#"{"error":true,"message":"missing field \"name\""}"#);
        assert_eq!(Response::no_such_color().content.bytes(), br#"{"error":true}"#);
    }
}
