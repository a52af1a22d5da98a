//! Finds the requests in a connection's bytes (RFC 9112), and refuses what cannot be read safely. Knows no socket, no clock and no color.
//!
//! A request leaves here whole, its head rewritten in the plainest words: only the fields that the service looks at, repeated ones joined,
//! no content, nothing that two readers could take for different things. That is what tiny_http gets to read. Given the bytes of clients
//! themselves it waits forever on `HTTP/2.0` (a worker lost for good), buffers a field line without end, takes `3, 4` for no
//! Content-Length, and refuses tabs and UTF-8 in fields nobody asks for.

use std::fmt;
use std::mem::{MaybeUninit, take};

use crate::chunks::Chunks;
use crate::message::Status;
use crate::resource;

/// Bytes of request line and fields together; Apache allows 8 KiB a line, browsers' cookies stay below 16 KiB in all.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Field lines in one request; Apache's limit, several times what browsers behind proxies send.
const FIELD_LINES_MAX: usize = 100;

/// What is said of a request line that does not parse.
const REQUEST_LINE: &str = "the request line has to be method, target and HTTP/1.1, with one space between";

/// The fields handed on, in lower case; all others are dropped here.
const FIELDS_HANDED_ON: [&str; 6] = ["host", "if-match", "if-none-match", "origin", "sec-fetch-site", "access-control-request-method"];

/// Why a connection's bytes are not answered as a request; the connection is closed after saying so.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// When the bytes do not begin like a request, or a line of the head does not parse: 400. Says what is wrong.
    Malformed(&'static str),
    /// When a line of the head ends in LF alone, which others may read as part of the line: 400.
    BareLineFeed,
    /// When the version is neither HTTP/1.0 nor HTTP/1.1: 505.
    Version,
    /// When the head is longer than 64 KiB or has more than 100 field lines: 431.
    HeadTooLarge,
    /// When HTTP/1.1 comes without Host, or any version with several or with one that is not `host[:port]`: 400 (RFC 9112 §3.2).
    Host,
    /// When Content-Length is given more than once, is not digits alone, or does not fit 64 bits: 400 (RFC 9112 §6.3).
    ContentLength,
    /// When both Content-Length and Transfer-Encoding are given: 400 (RFC 9112 §6.1).
    TwoLengths,
    /// When Transfer-Encoding comes with HTTP/1.0, or chunked is not its one last coding: 400 (RFC 9112 §6.1).
    TransferEncoding,
    /// When there is a transfer coding besides chunked: 501 (RFC 9112 §6.1).
    UnknownCoding,
    /// When a chunk, its size line or the trailer section does not parse: 400 (RFC 9112 §7.1).
    Chunk,
    /// When the content is longer than the limit, in bytes: 413. Known from the announced length before any of it is read.
    ContentTooLarge(usize),
    /// When Expect asks for anything but 100-continue: 417 (RFC 9110 §10.1.1).
    Expectation,
    /// When a request has begun and did not arrive whole in time: 408.
    Timeout,
}

impl Refusal {
    /// The status that says it.
    pub(crate) fn status(&self) -> Status {
        match self {
            Self::Version => Status::VersionNotSupported,
            Self::HeadTooLarge => Status::FieldsTooLarge,
            Self::UnknownCoding => Status::NotImplemented,
            Self::ContentTooLarge(_) => Status::ContentTooLarge,
            Self::Expectation => Status::ExpectationFailed,
            Self::Timeout => Status::RequestTimeout,
            _ => Status::BadRequest,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(what) => f.write_str(what),
            Self::BareLineFeed => f.write_str("a line of the request ends in LF alone, it has to end in CR LF"),
            Self::Version => f.write_str("the protocol version is not supported, use HTTP/1.1"),
            Self::HeadTooLarge => {
                write!(f, "request line and fields are longer than {HEAD_BYTES_MAX} bytes or more than {FIELD_LINES_MAX} lines")
            }
            Self::Host => f.write_str("a request needs exactly one Host field of the form host[:port]"),
            Self::ContentLength => f.write_str("Content-Length has to be given once, as a decimal number"),
            Self::TwoLengths => f.write_str("Content-Length and Transfer-Encoding exclude each other"),
            Self::TransferEncoding => f.write_str("Transfer-Encoding has to be \"chunked\" alone, and only on HTTP/1.1"),
            Self::UnknownCoding => f.write_str("the only transfer coding supported is \"chunked\""),
            Self::Chunk => f.write_str("the chunked content does not decode"),
            Self::ContentTooLarge(limit) => write!(f, "the content is longer than the limit of {limit} bytes"),
            Self::Expectation => f.write_str("the only expectation supported is \"100-continue\""),
            Self::Timeout => f.write_str("the request did not arrive in time"),
        }
    }
}

/// One request, whole.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Call {
    /// Request line and fields as tiny_http is to read them.
    pub(crate) head: Vec<u8>,
    /// The content, decoded from its transfer coding.
    pub(crate) content: Vec<u8>,
    /// Whether the client can be answered on this connection again (RFC 9112 §9.3).
    pub(crate) keep_alive: bool,
    /// Whether the client has to be told that the connection stays: HTTP/1.0 that asked for it.
    pub(crate) says_keep_alive: bool,
}

/// What the bytes received so far amount to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Not yet a whole request.
    More,
    /// Not yet a whole request, and the client waits to hear `100 Continue` before it sends the rest. Said once a request.
    Continue,
    /// A request; its bytes are gone from the intake.
    Whole(Call),
}

/// A connection's bytes that no request was made of yet.
#[derive(Debug, Default)]
pub(crate) struct Intake {
    /// Received bytes; those before `start` are used up.
    received: Vec<u8>,
    /// Where the unused bytes begin.
    start: usize,
    /// How far the next request is understood.
    stage: Stage,
}

/// How far a request is understood.
#[derive(Debug)]
enum Stage {
    /// Its head is not complete.
    Head(Search),
    /// Its head is read, its content is on its way.
    Content(Arriving),
}

/// The search for the end of a head.
#[derive(Debug, Default)]
struct Search {
    /// How many of the unused bytes have been looked at: no line break among them ends the head.
    scanned: usize,
    /// Whether the one empty line that may come before a request came.
    skipped_empty_line: bool,
}

/// A request whose content is on its way.
#[derive(Debug)]
struct Arriving {
    /// The request without its content, or with as much of it as is decoded.
    call: Call,
    /// What tells where the content ends.
    framing: Framing,
    /// Whether the client waits to hear `100 Continue`.
    expects_continue: bool,
}

/// What tells where a content ends (RFC 9112 §6).
#[derive(Debug)]
enum Framing {
    /// The content has this many bytes.
    Length(usize),
    /// The content comes in chunks.
    Chunks(Chunks),
}

impl Default for Stage {
    fn default() -> Self {
        Self::Head(Search::default())
    }
}

impl Intake {
    /// Where to append what the socket delivers, with room for at least `bytes` more.
    pub(crate) fn room(&mut self, bytes: usize) -> &mut Vec<u8> {
        if self.start > 0 {
            self.received.drain(..self.start);
            self.start = 0;
        }
        self.received.reserve(bytes);
        &mut self.received
    }

    /// Whether no byte of a next request has arrived.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.stage, Stage::Head(_)) && self.start == self.received.len()
    }

    /// Bytes of memory this holds on to.
    pub(crate) fn held(&self) -> usize {
        self.received.capacity()
            + match &self.stage {
                Stage::Head(_) => 0,
                Stage::Content(Arriving { call, .. }) => call.head.capacity() + call.content.capacity(),
            }
    }

    /// Gives back the memory that a waiting connection does not need.
    pub(crate) fn shrink(&mut self) {
        self.room(0).shrink_to_fit();
    }

    /// Makes the most of the bytes received so far.
    ///
    /// # Errors
    /// When they are no request that can be answered; nothing after them may be read as one.
    pub(crate) fn step(&mut self, content_max: usize) -> Result<Step, Refusal> {
        if let Stage::Head(search) = &mut self.stage {
            let Some(length) = search.find_end(&self.received, &mut self.start)? else { return Ok(Step::More) };
            let head = &self.received[self.start..self.start + length];
            self.stage = Stage::Content(read_head(head, content_max)?);
            self.start += length;
        }
        let Stage::Content(arriving) = &mut self.stage else { return Ok(Step::More) };
        if arriving.take(&self.received, &mut self.start, content_max)? {
            let call = take(&mut arriving.call);
            self.stage = Stage::default();
            return Ok(Step::Whole(call));
        }
        // RFC 9110 §10.1.1: no 100 when some of the content has arrived already
        let says_continue = take(&mut arriving.expects_continue) && self.start == self.received.len();
        Ok(if says_continue { Step::Continue } else { Step::More })
    }
}

impl Arriving {
    /// Takes what there is of the content, moving `start` past it; says whether that was all of it.
    fn take(&mut self, received: &[u8], start: &mut usize, content_max: usize) -> Result<bool, Refusal> {
        match &mut self.framing {
            Framing::Chunks(chunks) => chunks.take(received, start, &mut self.call.content, content_max),
            Framing::Length(length) => {
                let Some(content) = received[*start..].get(..*length) else { return Ok(false) };
                self.call.content = content.to_vec();
                *start += *length;
                Ok(true)
            }
        }
    }
}

impl Search {
    /// The length of the head that begins at `start`, once all of it is there; skips one empty line before it (RFC 9112 §2.2).
    fn find_end(&mut self, received: &[u8], start: &mut usize) -> Result<Option<usize>, Refusal> {
        if !self.skipped_empty_line && received[*start..].starts_with(b"\r\n") {
            *start += 2;
            *self = Self { scanned: 0, skipped_empty_line: true };
        }
        let bytes = &received[*start..];
        if bytes.first().is_some_and(|first| !first.is_ascii_alphanumeric() && !b"!#$%&'*+-.^_`|~\r".contains(first)) {
            return Err(Refusal::Malformed("this is not an HTTP request"));
        }
        while let Some(at) = bytes[self.scanned..].iter().position(|byte| *byte == b'\n').map(|at| self.scanned + at) {
            self.scanned = at + 1;
            if at == 0 || bytes[at - 1] != b'\r' {
                return Err(Refusal::BareLineFeed);
            }
            if at + 1 > HEAD_BYTES_MAX {
                return Err(Refusal::HeadTooLarge);
            }
            if bytes[..at - 1].ends_with(b"\r\n") || at == 1 {
                return Ok(Some(at + 1));
            }
        }
        self.scanned = bytes.len();
        if bytes.len() > HEAD_BYTES_MAX { Err(Refusal::HeadTooLarge) } else { Ok(None) }
    }
}

/// Reads a complete head: what it says of the connection and of the content, and the rest rewritten for tiny_http.
fn read_head(head: &[u8], content_max: usize) -> Result<Arriving, Refusal> {
    let mut lines = [MaybeUninit::uninit(); FIELD_LINES_MAX];
    let mut request = httparse::Request::new(&mut []);
    match request.parse_with_uninit_headers(head, &mut lines) {
        Ok(httparse::Status::Complete(length)) if length == head.len() => {}
        Ok(_) => return Err(Refusal::Malformed(REQUEST_LINE)),
        Err(error) => return Err(refusal(error, head)),
    }
    let (Some(method), Some(target), Some(minor)) = (request.method, request.path, request.version) else {
        return Err(Refusal::Malformed(REQUEST_LINE));
    };
    if !target.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#') {
        return Err(Refusal::Malformed("the request target has a character that belongs percent-encoded"));
    }
    let http_1_1 = minor == 1;
    let fields = Lines(request.headers);

    let keep_alive = !fields.lists("connection", "close") && (http_1_1 || fields.lists("connection", "keep-alive"));
    let head = rewrite(method, target, http_1_1, &fields)?;
    let call = Call { head, content: Vec::new(), keep_alive, says_keep_alive: keep_alive && !http_1_1 };
    let expects_continue = expects_continue(&fields, http_1_1)?;
    let framing = if fields.all("transfer-encoding").next().is_some() {
        check_chunked(&fields, http_1_1)?;
        Framing::Chunks(Chunks::default())
    } else {
        match usize::try_from(content_length(&fields)?) {
            Ok(length) if length <= content_max => Framing::Length(length),
            _ => return Err(Refusal::ContentTooLarge(content_max)),
        }
    };
    Ok(Arriving { call, framing, expects_continue })
}

/// The field lines of one request.
struct Lines<'a, 'b>(&'b [httparse::Header<'a>]);

impl<'a> Lines<'a, '_> {
    /// The values of all lines with this name, given in lower case.
    fn all(&self, name: &'static str) -> impl Iterator<Item = &'a [u8]> {
        self.0.iter().filter(move |line| line.name.eq_ignore_ascii_case(name)).map(|line| line.value)
    }

    /// Whether a comma-separated field has this member, in any case.
    fn lists(&self, name: &'static str, member: &str) -> bool {
        self.all(name).flat_map(|value| value.split(|byte| *byte == b',')).any(|m| m.trim_ascii().eq_ignore_ascii_case(member.as_bytes()))
    }
}

/// Spells the head for tiny_http, after checking Host.
fn rewrite(method: &str, target: &str, http_1_1: bool, fields: &Lines<'_, '_>) -> Result<Vec<u8>, Refusal> {
    let mut hosts = fields.all("host");
    match (hosts.next(), hosts.next()) {
        (Some(host), None) if is_host(host) => {}
        (None, None) if !http_1_1 => {}
        _ => return Err(Refusal::Host),
    }
    // RFC 9112 §3.2.2: the authority of an absolute-form target is what counts, and is as well-formed as Host
    if resource::authority(target).is_some_and(|authority| !is_host(authority.as_bytes())) {
        return Err(Refusal::Malformed("the authority of the request target is not of the form host[:port]"));
    }
    let mut head = Vec::with_capacity(128); // bytes; a request of curl rewritten is under 100
    for part in [method, " ", target, if http_1_1 { " HTTP/1.1\r\n" } else { " HTTP/1.0\r\nconnection: keep-alive\r\n" }] {
        head.extend_from_slice(part.as_bytes());
    }
    for name in FIELDS_HANDED_ON {
        // RFC 9110 §5.3: repeated lines of a field mean the same as one with their values joined by commas
        for (position, value) in fields.all(name).enumerate() {
            head.extend_from_slice(if position == 0 { name.as_bytes() } else { b"," });
            head.extend_from_slice(if position == 0 { b": " } else { b" " });
            // tiny_http takes neither tabs nor bytes beyond US-ASCII; nothing the service compares a value with has either
            head.extend(value.iter().map(|byte| if byte.is_ascii_graphic() { *byte } else { b' ' }));
        }
        if !head.ends_with(b"\n") {
            head.extend_from_slice(b"\r\n");
        }
    }
    head.extend_from_slice(b"\r\n");
    Ok(head)
}

/// Whether this is `uri-host [":" port]` with a host that is not empty (RFC 9110 §7.2, RFC 3986 §3.2.2).
fn is_host(value: &[u8]) -> bool {
    let Ok(value) = str::from_utf8(value) else { return false };
    let digits = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    if let Some(rest) = value.strip_prefix('[') {
        let Some((address, port)) = rest.split_once(']') else { return false };
        return address.parse::<std::net::Ipv6Addr>().is_ok() && port.strip_prefix(':').map_or(port.is_empty(), digits);
    }
    let (name, port) = value.split_once(':').unwrap_or((value, ""));
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=%".contains(&byte);
    !name.is_empty() && name.bytes().all(allowed) && digits(port)
}

/// Whether the client waits for `100 Continue`; HTTP/1.0 cannot (RFC 9110 §10.1.1).
fn expects_continue(fields: &Lines<'_, '_>, http_1_1: bool) -> Result<bool, Refusal> {
    let mut expectations = fields.all("expect").filter(|_| http_1_1).flat_map(|value| value.split(|byte| *byte == b',')).peekable();
    let expects_any = expectations.peek().is_some();
    let all_known = expectations.all(|expectation| expectation.trim_ascii().eq_ignore_ascii_case(b"100-continue"));
    if all_known { Ok(expects_any) } else { Err(Refusal::Expectation) }
}

/// Checks that chunked is the one and only transfer coding.
fn check_chunked(fields: &Lines<'_, '_>, http_1_1: bool) -> Result<(), Refusal> {
    if fields.all("content-length").next().is_some() {
        return Err(Refusal::TwoLengths);
    }
    let codings = || fields.all("transfer-encoding").flat_map(|value| value.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    let is_chunked = |coding: &[u8]| coding.eq_ignore_ascii_case(b"chunked");
    let times = codings().filter(|coding| is_chunked(coding)).count();
    match (codings().count(), codings().last()) {
        (1, Some(last)) if http_1_1 && is_chunked(last) => Ok(()),
        (_, Some(last)) if http_1_1 && is_chunked(last) && times == 1 => Err(Refusal::UnknownCoding),
        _ => Err(Refusal::TransferEncoding),
    }
}

/// The announced length of the content in bytes; 0 without the field (RFC 9112 §6.3).
fn content_length(fields: &Lines<'_, '_>) -> Result<u64, Refusal> {
    let mut lengths = fields.all("content-length");
    match (lengths.next(), lengths.next()) {
        (None, _) => Ok(0),
        (Some(length), None) if length.iter().all(u8::is_ascii_digit) => {
            str::from_utf8(length).ok().and_then(|digits| digits.parse().ok()).ok_or(Refusal::ContentLength)
        }
        _ => Err(Refusal::ContentLength),
    }
}

/// Says in our words what the parser found wrong.
fn refusal(error: httparse::Error, head: &[u8]) -> Refusal {
    match error {
        httparse::Error::TooManyHeaders => Refusal::HeadTooLarge,
        httparse::Error::Version => {
            let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
            let version = line.rsplit(|byte| *byte == b' ').next().unwrap_or_default();
            match version.strip_prefix(b"HTTP/") {
                Some(b"1.0" | b"1.1") => Refusal::Malformed(REQUEST_LINE),
                Some([major, b'.', minor]) if major.is_ascii_digit() && minor.is_ascii_digit() => Refusal::Version,
                _ => Refusal::Malformed(REQUEST_LINE),
            }
        }
        httparse::Error::HeaderName => Refusal::Malformed("a field name is malformed or followed by white space"),
        httparse::Error::HeaderValue => Refusal::Malformed("a field value has a control character"),
        _ => Refusal::Malformed(REQUEST_LINE),
    }
}

#[cfg(test)]
#[path = "framing_tests.rs"]
mod tests;
