//! Requests and responses as plain values in the words of RFC 9110, and how a response is spelled on the wire.
//! Knows neither sockets nor colors.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;

/// Request methods the service tells apart (RFC 9110 §9); case-sensitive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// Read.
    Get,
    /// Read, without the content.
    Head,
    /// Create.
    Post,
    /// Update.
    Put,
    /// Delete.
    Delete,
    /// Ask for the methods of a resource.
    Options,
    /// Any other token; no resource allows it.
    Other,
}

/// The fields of a request that anything in the service looks at; repeated ones come joined by commas (RFC 9110 §5.3).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fields {
    /// Host, or the authority of an absolute-form target; `None` only from HTTP/1.0.
    pub(crate) host: Option<String>,
    /// If-Match (RFC 9110 §13.1.1).
    pub(crate) if_match: Option<String>,
    /// If-None-Match (RFC 9110 §13.1.2).
    pub(crate) if_none_match: Option<String>,
    /// Origin (RFC 6454 §7).
    pub(crate) origin: Option<String>,
    /// Sec-Fetch-Site (Fetch Metadata, W3C).
    pub(crate) sec_fetch_site: Option<String>,
    /// Access-Control-Request-Method: marks a preflight (Fetch standard, CORS protocol).
    pub(crate) preflight_method: Option<String>,
    /// Whether Accept names `text/html`: a browser that opens a page.
    pub(crate) asks_for_html: bool,
}

/// A whole, well-framed request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    /// What to do.
    pub(crate) method: Method,
    /// The request target as received: origin-form, absolute-form or `*`.
    pub(crate) target: &'a str,
    /// The fields that matter here.
    pub(crate) fields: &'a Fields,
    /// All of the content, decoded from its transfer coding.
    pub(crate) content: &'a [u8],
    /// Whether it came in on a listener whose own address is a loopback one.
    pub(crate) is_on_loopback: bool,
}

/// Status codes the service answers with (RFC 9110 §15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Status {
    /// A read, an update or a delete succeeded.
    Ok = 200,
    /// A create succeeded.
    Created = 201,
    /// Answer to OPTIONS.
    NoContent = 204,
    /// The client's copy is current.
    NotModified = 304,
    /// The request is malformed.
    BadRequest = 400,
    /// The request may not come from where it comes from.
    Forbidden = 403,
    /// No such color or no such resource.
    NotFound = 404,
    /// The resource does not allow the method.
    MethodNotAllowed = 405,
    /// The request did not arrive in time.
    RequestTimeout = 408,
    /// If-Match or If-None-Match does not hold.
    PreconditionFailed = 412,
    /// The content is over the limit.
    ContentTooLarge = 413,
    /// An expectation other than 100-continue.
    ExpectationFailed = 417,
    /// Request line and fields are over the limit (RFC 6585 §5).
    FieldsTooLarge = 431,
    /// The change could not be saved, or a handler failed.
    InternalServerError = 500,
    /// A transfer coding other than chunked.
    NotImplemented = 501,
    /// Stopping, or no room.
    ServiceUnavailable = 503,
    /// Neither HTTP/1.0 nor HTTP/1.1.
    VersionNotSupported = 505,
}

impl Status {
    /// The code as a number, 200 to 505.
    pub(crate) fn code(self) -> u16 {
        self as u16
    }

    /// The status line, with the reason phrase of RFC 9110 §15.
    fn line(self) -> &'static str {
        match self {
            Self::Ok => "HTTP/1.1 200 OK",
            Self::Created => "HTTP/1.1 201 Created",
            Self::NoContent => "HTTP/1.1 204 No Content",
            Self::NotModified => "HTTP/1.1 304 Not Modified",
            Self::BadRequest => "HTTP/1.1 400 Bad Request",
            Self::Forbidden => "HTTP/1.1 403 Forbidden",
            Self::NotFound => "HTTP/1.1 404 Not Found",
            Self::MethodNotAllowed => "HTTP/1.1 405 Method Not Allowed",
            Self::RequestTimeout => "HTTP/1.1 408 Request Timeout",
            Self::PreconditionFailed => "HTTP/1.1 412 Precondition Failed",
            Self::ContentTooLarge => "HTTP/1.1 413 Content Too Large",
            Self::ExpectationFailed => "HTTP/1.1 417 Expectation Failed",
            Self::FieldsTooLarge => "HTTP/1.1 431 Request Header Fields Too Large",
            Self::InternalServerError => "HTTP/1.1 500 Internal Server Error",
            Self::NotImplemented => "HTTP/1.1 501 Not Implemented",
            Self::ServiceUnavailable => "HTTP/1.1 503 Service Unavailable",
            Self::VersionNotSupported => "HTTP/1.1 505 HTTP Version Not Supported",
        }
    }
}

/// A strong entity tag: a hash of the representation's bytes, shown as 16 hexadecimal digits in quotes (RFC 9110 §8.8.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntityTag(pub(crate) u64);

impl EntityTag {
    /// The tag as it stands in a field.
    fn spelled(self) -> [u8; 18] {
        let mut spelled = [b'"'; 18];
        for (position, digit) in spelled[1..17].iter_mut().enumerate() {
            *digit = b"0123456789abcdef"[(self.0 >> (60 - 4 * position)) as usize & 0xf];
        }
        spelled
    }
}

impl fmt::Display for EntityTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(str::from_utf8(&self.spelled()).expect("quotes and digits are ASCII"))
    }
}

/// What a response carries; always JSON, if anything, but for the page.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// None, as in 204 and 304.
    None,
    /// Text that is part of the program.
    Fixed(&'static str),
    /// The page: HTML that is part of the program.
    Page(&'static str),
    /// Rendered for this response.
    Own(Vec<u8>),
    /// A kept representation; cloning it copies no bytes.
    Shared(Arc<Vec<u8>>),
}

impl Content {
    /// The bytes, without copying them.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::None => &[],
            Self::Fixed(text) | Self::Page(text) => text.as_bytes(),
            Self::Own(bytes) => bytes,
            Self::Shared(bytes) => bytes,
        }
    }
}

/// An answer; the fields every response has are added when it is spelled.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    /// How it went.
    pub(crate) status: Status,
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
    /// Whether the response would be another for another Accept.
    pub(crate) varies_by_accept: bool,
    /// Further field lines, each led by a line break.
    pub(crate) further: &'static str,
    /// What the operator should know of it; not sent.
    pub(crate) remark: Option<String>,
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
    pub(crate) fn new(status: Status, content: Content) -> Self {
        Self {
            status,
            content,
            tag: None,
            location: None,
            allow: None,
            cors: None,
            varies_by_origin: false,
            varies_by_accept: false,
            further: "",
            remark: None,
        }
    }

    /// A response whose content is `value` as JSON.
    pub(crate) fn json(status: Status, value: &impl Serialize) -> Self {
        let mut content = Vec::with_capacity(128); // bytes; a color with its field names is under 100
        serde_json::to_writer(&mut content, value).expect("strings and booleans always serialize, and a Vec takes every byte");
        Self::new(status, Content::Own(content))
    }

    /// The Error body of the specification, with a message for whoever wrote the client: lower case, no full stop.
    pub(crate) fn error(status: Status, message: impl Into<Cow<'static, str>>) -> Self {
        /// The Error body, extended by a message.
        #[derive(Serialize)]
        struct ErrorBody {
            /// Always true (spec, Error body).
            error: bool,
            /// What to mend.
            message: Cow<'static, str>,
        }
        Self::json(status, &ErrorBody { error: true, message: message.into() })
    }

    /// The answer when no entry has the requested name: exactly the Error body of the specification (rule 5 of Endpoints).
    pub(crate) fn no_such_color() -> Self {
        Self::new(Status::NotFound, Content::Fixed(r#"{"error":true}"#))
    }

    /// Spells everything before the content into `out`, up to and with the empty line.
    ///
    /// `date` is an IMF-fixdate (RFC 9110 §5.6.7).
    pub(crate) fn spell_head(&self, out: &mut Vec<u8>, date: &str, connection: Option<&'static str>) {
        out.extend_from_slice(self.status.line().as_bytes());
        push_field(out, "Date", date);
        out.extend_from_slice(b"\r\nCache-Control: no-cache\r\nX-Content-Type-Options: nosniff");
        // RFC 9110 §8.6 and §15.4.5: no Content-Length on 204, and none needed on 304
        if !matches!(self.status, Status::NoContent | Status::NotModified) {
            let media_type = if matches!(self.content, Content::Page(_)) { "text/html; charset=utf-8" } else { "application/json" };
            push_field(out, "Content-Type", media_type);
            out.extend_from_slice(b"\r\nContent-Length: ");
            out.extend_from_slice(itoa::Buffer::new().format(self.content.bytes().len()).as_bytes());
        }
        if let Some(tag) = self.tag {
            out.extend_from_slice(b"\r\nETag: ");
            out.extend_from_slice(&tag.spelled());
        }
        if let Some(location) = &self.location {
            push_field(out, "Location", location);
        }
        if let Some(allow) = self.allow {
            push_field(out, "Allow", allow);
        }
        match (self.varies_by_accept, self.varies_by_origin) {
            (true, true) => push_field(out, "Vary", "Accept, Origin"),
            (true, false) => push_field(out, "Vary", "Accept"),
            (false, true) => push_field(out, "Vary", "Origin"),
            (false, false) => {}
        }
        out.extend_from_slice(self.further.as_bytes());
        if let Some(cors) = &self.cors {
            cors.spell(out);
        }
        if let Some(connection) = connection {
            push_field(out, "Connection", connection);
        }
        out.extend_from_slice(b"\r\n\r\n");
    }
}

impl Cors {
    /// How long a browser may keep the answer to a preflight.
    const PREFLIGHT_SECONDS: &str = "600";

    /// Spells the CORS fields.
    fn spell(&self, out: &mut Vec<u8>) {
        push_field(out, "Access-Control-Allow-Origin", &self.origin);
        if self.preflight {
            push_field(out, "Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, DELETE");
            push_field(out, "Access-Control-Allow-Headers", "Accept, Content-Type, If-Match, If-None-Match");
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
    fn spelled(response: &Response, connection: Option<&'static str>, expected: &str) {
        let mut out = Vec::new();
        response.spell_head(&mut out, "Sat, 21 Nov 2026 01:02:03 GMT", connection);
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn a_response_carries_the_common_fields() {
        spelled(
            &Response::no_such_color(),
            None,
            "HTTP/1.1 404 Not Found\r\nDate: Sat, 21 Nov 2026 01:02:03 GMT\r\nCache-Control: no-cache\r\n\
             X-Content-Type-Options: nosniff\r\nContent-Type: application/json\r\nContent-Length: 14\r\n\r\n",
        );
    }

    #[test]
    fn a_response_without_content_announces_none() {
        let response = Response { allow: Some("GET"), ..Response::new(Status::NoContent, Content::None) };
        spelled(
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
        let response = Response::error(Status::BadRequest, "missing field \"name\"");
        assert_eq!(response.content.bytes(), br#"{"error":true,"message":"missing field \"name\""}"#);
        assert_eq!(Response::no_such_color().content.bytes(), br#"{"error":true}"#);
    }
}
