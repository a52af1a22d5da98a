//! A response as the server sends it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tiny_http::{Header, StatusCode};

use super::buffer;
use super::date::ImfFixdate;
use super::syntax::{is_field, is_token};

/// What the server adds itself, or decides.
const SERVER_FIELDS: [&str; 5] =
    ["Date", "Content-Length", "Connection", "Keep-Alive", "Transfer-Encoding"];

/// A response as the application makes it. The server adds Date, Content-Length, Connection and
/// Keep-Alive.
#[derive(Clone, Debug)]
pub struct Response {
    status: StatusCode,
    /// Field lines, each after the CR LF that ends the line before.
    lines: Vec<u8>,
    content: Content,
    /// Nothing that has arrived after the request is read.
    is_last: bool,
}

/// The content of a response.
#[derive(Clone, Debug, Default)]
pub enum Content {
    #[default]
    /// No content, or an empty one.
    None,
    /// Bytes of this response alone. They count against
    /// [`Limits::buffers_max`](super::Limits::buffers_max) until the client has them.
    Own(Vec<u8>),
    /// For a long content that many clients get: it is in memory once, and sent without a copy.
    Shared(SharedContent),
    /// For a short content that the application keeps: it is copied when it is sent. A content of
    /// more than 1 KiB is sent without a copy, and counts against no limit.
    Copied(Arc<[u8]>),
}

impl Content {
    /// The bytes of the content.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::None => &[],
            Self::Own(bytes) => bytes,
            Self::Shared(shared) => shared.bytes(),
            Self::Copied(bytes) => bytes,
        }
    }
}

/// Bytes that any number of responses share, with each other and with the application. A clone
/// shares them, too.
///
/// Slow clients keep them in memory after the application has dropped its own clone. When such
/// contents together take more than [`Limits::buffers_max`](super::Limits::buffers_max), those
/// clients get less time to read, and are then disconnected
/// ([`Closing::OrphanedContent`](super::Closing::OrphanedContent)).
#[derive(Clone, Debug)]
pub struct SharedContent(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    bytes: Box<[u8]>,
    /// How many clients have a part of it, and not all.
    readers: AtomicUsize,
}

impl SharedContent {
    /// Takes bytes to share.
    pub fn new(bytes: impl Into<Box<[u8]>>) -> Self {
        Self(Arc::new(Inner { bytes: bytes.into(), readers: AtomicUsize::new(0) }))
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0.bytes
    }

    /// Notes that one more client has a part of it. True for the first.
    pub(super) fn add_reader(&self) -> bool {
        self.0.readers.fetch_add(1, Relaxed) == 0
    }

    /// Takes back [`SharedContent::add_reader`]. True for the last.
    pub(super) fn remove_reader(&self) -> bool {
        self.0.readers.fetch_sub(1, Relaxed) == 1
    }

    /// Whether nobody refers to it but clients that have a part of it. `references`: how many
    /// references each of them has. May be wrong for a moment while another thread takes or drops
    /// one.
    pub(super) fn is_orphaned(&self, references: usize) -> bool {
        Arc::strong_count(&self.0) <= references * self.0.readers.load(Relaxed)
    }
}

/// The same, as in tiny_http, where responses have several types.
pub type ResponseBox = Response;

impl Response {
    /// A response with this content and no fields. No content is sent in answer to HEAD, nor with
    /// 1xx, 204 and 304 (RFC 9110 §6.4.1).
    pub fn new(status: StatusCode, content: Content) -> Self {
        Self { status, lines: buffer::take(&buffer::LINES), content, is_last: false }
    }

    /// A 200 with these bytes, without Content-Type, as in tiny_http.
    pub fn from_data(data: impl Into<Vec<u8>>) -> Self {
        Self::new(StatusCode(200), Content::Own(data.into()))
    }

    /// A 200 with this text and `Content-Type: text/plain; charset=UTF-8`, as in tiny_http.
    pub fn from_string(text: impl Into<String>) -> Self {
        let mut response = Self::from_data(text.into());
        response.add_field_lines(["\r\nContent-Type: text/plain; charset=UTF-8"]);
        response
    }

    /// A response without content, as in tiny_http.
    pub fn empty(status: impl Into<StatusCode>) -> Self {
        Self::new(status.into(), Content::None)
    }

    /// The same with another status, as in tiny_http.
    #[must_use]
    pub fn with_status_code(mut self, status: impl Into<StatusCode>) -> Self {
        self.status = status.into();
        self
    }

    /// The same with one more field, as in tiny_http: a Content-Type replaces the one before, and
    /// what the server adds itself is left out. So is a field whose name is no token, or whose
    /// value has a control character: it would be read as another one (RFC 9110 §5.1 and §5.5).
    #[must_use]
    pub fn with_header(mut self, header: Header) -> Self {
        let (name, value) = (header.field.as_str().as_str(), header.value.as_str());
        let is = |known: &str| is_field(name.as_bytes(), known);
        let is_malformed =
            !is_token(name) || value.contains(|it: char| it.is_ascii_control() && it != '\t');
        if is_malformed || SERVER_FIELDS.into_iter().any(is) {
            return self;
        }
        if is("Content-Type") {
            let lines = self.lines.split(|byte| *byte == b'\r');
            let others = lines.filter(|line| !is_line_of(line, "Content-Type"));
            self.lines = others.collect::<Vec<_>>().join(&b'\r');
        }
        self.add_field_lines(["\r\n", name, ": ", value]);
        self
    }

    /// Does nothing, as every response has the same type. For programs that were written for
    /// tiny_http.
    #[must_use]
    pub fn boxed(self) -> ResponseBox {
        self
    }

    /// Has the connection close after this response. What the client sends meanwhile is dropped.
    #[must_use]
    pub fn closing(mut self) -> Self {
        self.is_last = true;
        self
    }

    /// Whether content follows the head, if there is any. `is_head`: it answers a HEAD request.
    pub(super) fn has_content(&self, is_head: bool) -> bool {
        // RFC 9110 §6.4.1, §9.3.2
        !is_head && !matches!(self.status.0, 100..200 | 204 | 304)
    }

    pub(super) fn is_last(&self) -> bool {
        self.is_last
    }

    /// Adds field lines as they are sent, in parts: each line begins with CR LF, and has none at
    /// its end. Nothing is checked. For fields whose lines are known when the program is compiled;
    /// others are for [`Response::with_header`].
    #[inline(always)]
    pub fn add_field_lines<const COUNT: usize>(&mut self, parts: [impl AsRef<[u8]>; COUNT]) {
        parts.iter().for_each(|part| self.lines.extend_from_slice(part.as_ref()));
    }

    /// The field lines so far, each after the CR LF that ends the line before.
    pub fn field_lines(&self) -> &[u8] {
        &self.lines
    }

    /// The content, once the head is written.
    pub(super) fn into_content(self) -> Content {
        buffer::give_back(&buffer::LINES, self.lines);
        self.content
    }

    /// Appends status line, fields and the empty line. `date`: an IMF-fixdate (RFC 9110 §5.6.7).
    /// `end`: [`CLOSE`], or [`keep_alive`].
    pub(super) fn write_head(&self, out: &mut Vec<u8>, date: &ImfFixdate, end: &str) {
        match self.status {
            // A shortcut for the most frequent one.
            StatusCode(200) => push(out, ["HTTP/1.1 200 OK\r\nDate: "]),
            // RFC 9110 §15.5.14; tiny_http has the phrase of RFC 7231.
            StatusCode(413) => push(out, ["HTTP/1.1 413 Content Too Large\r\nDate: "]),
            status => {
                let mut digits = itoa::Buffer::new();
                let code = digits.format(status.0);
                let reason = status.default_reason_phrase();
                push(out, ["HTTP/1.1 ", code, " ", reason, "\r\nDate: "]);
            }
        }
        out.extend_from_slice(date);
        out.extend_from_slice(&self.lines);
        // RFC 9110 §8.6 and §15.4.5: no Content-Length on 1xx and 204, and none needed on 304.
        if self.has_content(false) {
            let mut digits = itoa::Buffer::new();
            push(out, ["\r\nContent-Length: ", digits.format(self.content.bytes().len())]);
        }
        out.extend_from_slice(end.as_bytes());
    }
}

/// Whether a field line has this name. `line`: with the LF before it.
fn is_line_of(line: &[u8], name: &str) -> bool {
    let end = line.iter().position(|byte| *byte == b':');
    end.is_some_and(|end| is_field(&line[1..end], name))
}

/// The end of the head of the last response (RFC 9112 §9.6).
pub(super) const CLOSE: &str = "\r\nConnection: close\r\n\r\n";

/// The end of the head of a response after which the connection may be idle for so many seconds.
/// Keep-Alive is from RFC 2068 §19.7.1.1. Connection MUST list it (RFC 9110 §7.6.1). That also
/// tells HTTP/1.0 clients that the connection stays open (RFC 9112 §9.3).
pub(super) fn keep_alive(seconds: u64) -> String {
    format!("\r\nConnection: keep-alive\r\nKeep-Alive: timeout={seconds}\r\n\r\n")
}

/// Appends texts. Inlined, so that a literal is copied without a call.
#[inline(always)]
fn push<const COUNT: usize>(out: &mut Vec<u8>, parts: [&str; COUNT]) {
    for part in parts {
        out.extend_from_slice(part.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATE: &str = "Sat, 21 Nov 2026 01:02:03 GMT";

    #[test]
    fn a_field_is_given_once_and_none_contradicts_the_server() {
        let field = |name: &str, value: &str| Header::from_bytes(name, value).unwrap();
        let mut response = Response::from_string("<p>")
            .with_header(field("Content-Length", "9"))
            .with_header(field("connection", "upgrade"))
            .with_header(field("Link", "<a>\r\nContent-Length: 9"))
            .with_header(field("A\r\nContent-Length: 1\r\nB", "1"))
            .with_header(field("Content-Length ", "9"))
            .with_header(field("", "1"))
            .with_header(field("Allow", "GET"))
            .with_header(field("Content-Type-Not", "text/plain"))
            .with_header(field("content-type", "text/html"));
        response.add_field_lines(["\r\nVary: Accept", "\r\nA: b"]);
        let stays = "Connection: keep-alive\r\nKeep-Alive: timeout=75";
        for (status, line, end, expected_end) in [
            (200, "200 OK", CLOSE, "Connection: close"),
            (404, "404 Not Found", &keep_alive(75), stays),
            (413, "413 Content Too Large", CLOSE, "Connection: close"),
        ] {
            let mut out = Vec::new();
            let date = DATE.as_bytes().try_into().unwrap();
            response.clone().with_status_code(status).write_head(&mut out, date, end);
            let expected = format!(
                "HTTP/1.1 {line}\r\nDate: {DATE}\r\nAllow: GET\r\n\
                 Content-Type-Not: text/plain\r\ncontent-type: text/html\r\nVary: Accept\r\n\
                 A: b\r\nContent-Length: 3\r\n{expected_end}\r\n\r\n"
            );
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }
}
