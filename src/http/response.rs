//! A response as a value, and its head as bytes. Knows no sockets.

use std::borrow::Cow;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use serde_json::json;
use time::OffsetDateTime;
use time::macros::format_description;
use tiny_http::StatusCode;

/// A strong entity tag (RFC 9110 §8.8.3), which is in quotes in a field: 128 bits of a hash of the
/// representation, in lower-case hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntityTag([u8; 32]);

impl EntityTag {
    /// Whether `tag`, with its quotes, has the form of a tag of this service.
    pub(crate) fn may_be(tag: &str) -> bool {
        let digits = tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"'));
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        digits.is_some_and(|digits| digits.len() == 32 && digits.bytes().all(is_digit))
    }

    /// The tag of these bytes, the same in every process. The hash is cryptographic: no two
    /// contents with the same tag can be found.
    pub(crate) fn of(representation: &[u8]) -> Self {
        let digits = blake3::hash(representation).to_hex();
        Self(*digits.as_bytes().first_chunk().expect("it has 64 digits"))
    }

    /// The tag without its quotes.
    pub(super) fn digits(&self) -> &[u8] {
        &self.0
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) enum Content {
    #[default]
    None,
    Own(Vec<u8>),
    /// Shared, most often with the list; sent without a copy if it is long.
    Shared(Arc<Representation>),
}

/// Bytes from which on a representation of the list, or of a color, is counted. Each connection may
/// hold a shorter one.
const COUNTED_BYTES_MIN: usize = 4096;

/// Bytes of all representations that are counted, those that only a slow client holds included.
static COUNTED_BYTES: AtomicUsize = AtomicUsize::new(0);

/// A representation (RFC 9110 §3.2) that any number of responses share.
#[derive(Debug)]
pub(crate) struct Representation {
    bytes: Box<[u8]>,
    /// Computed at its first use.
    tag: OnceLock<EntityTag>,
    /// Bytes of it in [`COUNTED_BYTES`].
    counted: usize,
}

impl Drop for Representation {
    fn drop(&mut self) {
        if self.counted > 0 {
            COUNTED_BYTES.fetch_sub(self.counted, Relaxed);
        }
    }
}

/// Representations are equal when their bytes are.
impl PartialEq for Representation {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Representation {
    pub(crate) fn new(bytes: impl Into<Box<[u8]>>) -> Self {
        Self { bytes: bytes.into(), tag: OnceLock::new(), counted: 0 }
    }

    /// A representation of the list or of a color. Its memory counts as long as anybody holds it.
    pub(crate) fn of_list(bytes: impl Into<Box<[u8]>>) -> Self {
        let mut new = Self::new(bytes);
        if new.bytes.len() >= COUNTED_BYTES_MIN {
            new.counted = new.bytes.len();
            COUNTED_BYTES.fetch_add(new.counted, Relaxed);
        }
        new
    }

    /// Bytes of this one that count; 0 if it is short, or no part of a list.
    pub(crate) fn counted(&self) -> usize {
        self.counted
    }

    /// Bytes of all that count.
    pub(crate) fn counted_bytes() -> usize {
        COUNTED_BYTES.load(Relaxed)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn tag(&self) -> EntityTag {
        *self.tag.get_or_init(|| EntityTag::of(&self.bytes))
    }

    /// Whether the tag is computed already.
    pub(crate) fn has_tag(&self) -> bool {
        self.tag.get().is_some()
    }
}

impl Content {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::None => &[],
            Self::Own(bytes) => bytes,
            Self::Shared(representation) => representation.bytes(),
        }
    }
}

/// A response without its [`CommonFields`].
#[derive(Clone, Debug)]
pub(crate) struct Response {
    pub(crate) status: StatusCode,
    pub(crate) content: Content,
    pub(crate) tag: Option<EntityTag>,
    pub(crate) media_type: &'static str,
    /// Further fields: names and values.
    pub(crate) fields: Vec<(&'static str, Cow<'static, str>)>,
    pub(crate) varies_by_accept: bool,
    /// WWW-Authenticate: on a 401, and on OPTIONS if the client would get a 401 for a write.
    pub(crate) challenge: Option<Challenge>,
    /// The request has changed the list.
    pub(crate) is_change: bool,
    /// For the log: the reason of an error, or what a change has made.
    pub(crate) detail: Cow<'static, str>,
}

/// What decides those fields of a response that do not depend on its content.
pub(crate) struct CommonFields<'a> {
    /// An IMF-fixdate (RFC 9110 §5.6.7).
    pub(crate) date: &'a str,
    /// [`CLOSES`], or what [`keep_alive_fields`] returned.
    pub(crate) connection: &'a str,
    /// The Origin of the request, if it is allowed, for the CORS fields (Fetch standard).
    pub(crate) allowed_origin: Option<&'a str>,
    /// The request asks what a page of that origin may send.
    pub(crate) is_preflight: bool,
    /// The response depends on the Origin of the request.
    pub(crate) varies_by_origin: bool,
    /// No shared cache may keep the response.
    pub(crate) is_private: bool,
}

/// Why a token is asked for (RFC 6750 §3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Challenge {
    /// When the request has no credentials, or those of another scheme than Bearer.
    NoToken,
    InvalidToken,
}

/// The connection fields of a response after which the connection closes, with CR LF before each.
pub(crate) const CLOSES: &str = "\r\nConnection: close";

/// The connection fields of a response after which the connection stays open, and may be idle for
/// `seconds` (RFC 2068 §19.7.1.1). RFC 9110 §7.6.1: Connection MUST list Keep-Alive; that also
/// tells HTTP/1.0 clients that the connection stays open (RFC 9112 §9.3).
pub(crate) fn keep_alive_fields(seconds: u64) -> String {
    format!("\r\nConnection: keep-alive\r\nKeep-Alive: timeout={seconds}")
}

/// Keep a browser from guessing a media type, and from loading a response into a page of another
/// origin, which would learn by an event whether a color exists: the second field does so for what
/// `<link>` fetches, the third for `<object>` (Fetch and HTML standards). None affects CORS.
const PROTECTION_FIELDS: &str = "\r\nX-Content-Type-Options: nosniff\
    \r\nCross-Origin-Resource-Policy: same-origin\r\nX-Frame-Options: DENY";

/// The methods and further fields that a page of an allowed origin may send.
const PREFLIGHT_FIELDS: &str = "\r\nAccess-Control-Allow-Methods: GET, HEAD, POST, PUT, DELETE\
    \r\nAccess-Control-Allow-Headers: Accept, Authorization, Content-Type, If-Match, If-None-Match\
    \r\nAccess-Control-Max-Age: 600"; // seconds

/// What a page of an allowed origin may read besides the fields that every page may read.
const EXPOSED_FIELDS: &str = "\r\nAccess-Control-Expose-Headers: ETag, Location";

impl Response {
    pub(crate) fn new(status: StatusCode, content: Content) -> Self {
        Self {
            status,
            content,
            tag: None,
            media_type: "application/json",
            fields: Vec::new(),
            varies_by_accept: false,
            challenge: None,
            is_change: false,
            detail: Cow::Borrowed(""),
        }
    }

    /// A response with the Error body (docs/http.md, Errors). `message` is for the author of the
    /// client, in lower case and without a full stop.
    pub(crate) fn error(status: StatusCode, message: impl Into<Cow<'static, str>>) -> Self {
        let detail = message.into();
        let body = format!("{}\n", json!({"error": true, "message": detail}));
        Self { detail, ..Self::new(status, Content::Own(body.into_bytes())) }
    }

    /// Appends status line and fields.
    pub(crate) fn write_head(&self, out: &mut Vec<u8>, common: &CommonFields<'_>) {
        let reason = match self.status {
            // RFC 9110 §15.5.14; tiny_http has the older name
            StatusCode::PAYLOAD_TOO_LARGE => "Content Too Large",
            status => status.default_reason_phrase(),
        };
        let cache_control = match (self.challenge, common.is_private) {
            (Some(_), _) => "no-store",
            (None, true) => "private, no-cache",
            (None, false) => "no-cache",
        };
        push(out, ["HTTP/1.1 ", itoa::Buffer::new().format(self.status.0), " ", reason]);
        push(out, ["\r\nDate: ", common.date, "\r\nCache-Control: ", cache_control]);
        push(out, [PROTECTION_FIELDS]);
        // RFC 9110 §8.6 and §15.4.5: no Content-Length on 204, and none needed on 304
        if !matches!(self.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
            let mut digits = itoa::Buffer::new();
            let length = digits.format(self.content.bytes().len());
            push(out, ["\r\nContent-Type: ", self.media_type, "\r\nContent-Length: ", length]);
        }
        if let Some(tag) = self.tag {
            push(out, ["\r\nETag: \""]);
            out.extend_from_slice(tag.digits());
            push(out, ["\""]);
        }
        match (self.varies_by_accept, common.varies_by_origin) {
            (true, true) => push(out, ["\r\nVary: Accept, Origin"]),
            (true, false) => push(out, ["\r\nVary: Accept"]),
            (false, true) => push(out, ["\r\nVary: Origin"]),
            (false, false) => {}
        }
        if let Some(challenge) = self.challenge {
            push(out, ["\r\nWWW-Authenticate: ", challenge.field_value()]);
        }
        for (name, value) in &self.fields {
            push(out, ["\r\n", name, ": ", value]);
        }
        push(out, [common.connection]);
        if let Some(origin) = common.allowed_origin {
            let further = if common.is_preflight { PREFLIGHT_FIELDS } else { EXPOSED_FIELDS };
            push(out, ["\r\nAccess-Control-Allow-Origin: ", origin, further]);
        }
        push(out, ["\r\n\r\n"]);
    }
}

impl Challenge {
    /// The value of WWW-Authenticate (RFC 9110 §11.6.1).
    fn field_value(self) -> &'static str {
        match self {
            // RFC 6750 §3.1: no error code when the request has no credentials, or those of another
            // scheme
            Self::NoToken => r#"Bearer realm="colors""#,
            Self::InvalidToken => r#"Bearer realm="colors", error="invalid_token""#,
        }
    }

    pub(crate) fn message(self) -> &'static str {
        match self {
            Self::NoToken => "this needs a token, sent as Authorization: Bearer TOKEN",
            Self::InvalidToken => "the token is not valid",
        }
    }
}

fn push<const COUNT: usize>(out: &mut Vec<u8>, parts: [&str; COUNT]) {
    parts.iter().for_each(|part| out.extend_from_slice(part.as_bytes()));
}

/// The current time as an IMF-fixdate (RFC 9110 §5.6.7). The clock is read, and the text made, once
/// per second.
#[derive(Debug, Default)]
pub(crate) struct Date {
    text: String,
    /// When the current second is over.
    end: Option<Instant>,
}

impl Date {
    pub(crate) fn at(&mut self, now: Instant) -> &str {
        if self.end.is_none_or(|end| now >= end) {
            let time = OffsetDateTime::now_utc();
            let imf_fixdate = format_description!(
                "[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT"
            );
            self.text = time.format(imf_fixdate).expect("it has all that the format names");
            // the rest of the second
            self.end = Some(now + Duration::new(0, 1_000_000_000 - time.nanosecond()));
        }
        &self.text
    }
}

#[cfg(test)]
impl std::fmt::Display for EntityTag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\"{}\"", str::from_utf8(&self.0).unwrap())
    }
}

#[cfg(test)]
impl Response {
    /// One of [`Response::fields`].
    pub(crate) fn field(&self, wanted: &str) -> Option<&str> {
        self.fields.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use super::*;

    #[track_caller]
    fn written(response: &Response, connection: &str, expected: &str) {
        let mut out = Vec::new();
        let date = "Sat, 21 Nov 2026 01:02:03 GMT";
        response.write_head(
            &mut out,
            &CommonFields {
                date,
                connection,
                allowed_origin: None,
                is_preflight: false,
                varies_by_origin: false,
                is_private: false,
            },
        );
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn a_response_carries_the_common_fields() {
        written(
            &Response::new(StatusCode::NOT_FOUND, Content::Own(b"{\"error\":true}\n".to_vec())),
            &keep_alive_fields(75),
            "HTTP/1.1 404 Not Found\r\nDate: Sat, 21 Nov 2026 01:02:03 GMT\r\nCache-Control: no-cache\r\n\
             X-Content-Type-Options: nosniff\r\nCross-Origin-Resource-Policy: same-origin\r\n\
             X-Frame-Options: DENY\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\
             Connection: keep-alive\r\nKeep-Alive: timeout=75\r\n\r\n",
        );
    }

    #[test]
    fn a_response_without_content_announces_none() {
        let response = Response {
            fields: vec![("Allow", "GET".into())],
            ..Response::new(StatusCode::NO_CONTENT, Content::None)
        };
        written(
            &response,
            CLOSES,
            "HTTP/1.1 204 No Content\r\nDate: Sat, 21 Nov 2026 01:02:03 GMT\r\nCache-Control: no-cache\r\n\
             X-Content-Type-Options: nosniff\r\nCross-Origin-Resource-Policy: same-origin\r\n\
             X-Frame-Options: DENY\r\nAllow: GET\r\nConnection: close\r\n\r\n",
        );
    }

    #[test]
    fn an_entity_tag_is_half_of_the_hash_in_quotes() {
        // the official test vector for no input
        assert_eq!(EntityTag::of(b"").to_string(), "\"af1349b9f5f9a1a6a0404dea36dcc949\"");
    }

    #[test]
    fn errors_are_the_error_body_with_a_message() {
        let response = Response::error(StatusCode::BAD_REQUEST, "missing field \"name\"");
        assert_eq!(
            response.content.bytes(),
            b"{\"error\":true,\"message\":\"missing field \\\"name\\\"\"}\n"
        );
    }

    #[test]
    fn a_date_is_of_the_second_until_that_is_over() {
        let mut date = Date::default();
        let (before, now) = (SystemTime::now(), Instant::now());
        let told = httpdate::parse_http_date(date.at(now)).unwrap();
        let since = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap().as_secs();
        assert!((since(before)..=since(SystemTime::now())).contains(&since(told)));
        let end = date.end.unwrap();
        assert!(now < end && end <= now + Duration::from_secs(1));
        date.text = "a text of this second".to_owned();
        assert_eq!(date.at(end - Duration::from_nanos(1)), "a text of this second");
        assert_eq!(date.at(end).len(), "Sun, 06 Nov 1994 08:49:37 GMT".len());
    }
}
