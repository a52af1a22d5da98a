//! Reads the head of one request (RFC 9112 §3 and §5): what it asks for, and where its content ends. Sees whole heads only.

use std::mem::MaybeUninit;

use crate::accept;
use crate::chunks::Chunks;
use crate::message::Fields;
use crate::refusal::{FIELD_LINES_MAX, Refusal};
use crate::resource;

/// What is said of a request line that does not parse.
const REQUEST_LINE: &str = "the request line has to be method, target and HTTP/1.1, with one space between";

/// One request, whole.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Call {
    /// The head that tiny_http is to read: method and target. What version and fields mean is decided here.
    pub(crate) head: Vec<u8>,
    /// The fields that anything looks at.
    pub(crate) fields: Fields,
    /// The content, decoded from its transfer coding.
    pub(crate) content: Vec<u8>,
    /// Whether the client can be answered on this connection again (RFC 9112 §9.3).
    pub(crate) keep_alive: bool,
    /// Whether the client has to be told that the connection stays: HTTP/1.0 that asked for it.
    pub(crate) says_keep_alive: bool,
}

impl Call {
    /// Whether its method is one of those that a resource here allows and that change nothing (RFC 9110 §9.2.1).
    pub(crate) fn is_safe(&self) -> bool {
        self.is_head() || self.head.starts_with(b"GET ") || self.head.starts_with(b"OPTIONS ")
    }

    /// Whether its method is HEAD.
    pub(crate) fn is_head(&self) -> bool {
        self.head.starts_with(b"HEAD ")
    }

    /// Bytes of memory that it holds on to.
    pub(crate) fn held(&self) -> usize {
        let Fields { host, if_match, if_none_match, origin, sec_fetch_site, preflight_method, asks_for_html: _ } = &self.fields;
        let fields = [host, if_match, if_none_match, origin, sec_fetch_site, preflight_method];
        self.head.capacity() + self.content.capacity() + fields.into_iter().flatten().map(String::capacity).sum::<usize>()
    }
}

/// A request whose content is on its way.
#[derive(Debug)]
pub(crate) struct Arriving {
    /// The request without its content, or with as much of it as is decoded.
    pub(crate) call: Call,
    /// What tells where the content ends.
    pub(crate) framing: Framing,
    /// Whether the client waits to hear `100 Continue`.
    pub(crate) expects_continue: bool,
}

/// What tells where a content ends (RFC 9112 §6).
#[derive(Debug)]
pub(crate) enum Framing {
    /// The content has this many bytes.
    Length(usize),
    /// The content comes in chunks.
    Chunks(Chunks),
}

/// Reads a head that ends with its empty line.
///
/// # Errors
/// When it is malformed, demands what the service does not have, or announces more than `content_max` bytes of content.
pub(crate) fn read(head: &[u8], content_max: usize) -> Result<Arriving, Refusal> {
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
    let lines = Lines(request.headers);

    let keep_alive = !lines.lists("connection", "close") && (http_1_1 || lines.lists("connection", "keep-alive"));
    let call = Call {
        head: [method, " ", target, " HTTP/1.1\r\n\r\n"].concat().into_bytes(),
        fields: Fields {
            host: host(target, http_1_1, &lines)?,
            if_match: lines.joined("if-match"),
            if_none_match: lines.joined("if-none-match"),
            origin: lines.joined("origin"),
            sec_fetch_site: lines.joined("sec-fetch-site"),
            preflight_method: lines.joined("access-control-request-method"),
            asks_for_html: accept::asks_for_html(lines.all("accept")),
        },
        content: Vec::new(),
        keep_alive,
        says_keep_alive: keep_alive && !http_1_1,
    };
    let expects_continue = expects_continue(&lines, http_1_1)?;
    let framing = if lines.all("transfer-encoding").next().is_some() {
        check_chunked(&lines, http_1_1)?;
        Framing::Chunks(Chunks::default())
    } else {
        match usize::try_from(content_length(&lines)?) {
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

    /// The value of a field; repeated lines mean the same as one with their values joined by commas (RFC 9110 §5.3).
    fn joined(&self, name: &'static str) -> Option<String> {
        let mut values = self.all(name).map(String::from_utf8_lossy);
        let first = values.next()?.into_owned();
        Some(values.fold(first, |joined, value| joined + ", " + &value))
    }

    /// Whether a comma-separated field has this member, in any case.
    fn lists(&self, name: &'static str, member: &str) -> bool {
        self.all(name).flat_map(|value| value.split(|byte| *byte == b',')).any(|m| m.trim_ascii().eq_ignore_ascii_case(member.as_bytes()))
    }
}

/// The host that the request is for, after checking that there is one (RFC 9112 §3.2).
fn host(target: &str, http_1_1: bool, lines: &Lines<'_, '_>) -> Result<Option<String>, Refusal> {
    let mut hosts = lines.all("host");
    let host = match (hosts.next(), hosts.next()) {
        (Some(host), None) => Some(str::from_utf8(host).ok().filter(|host| is_host(host)).ok_or(Refusal::Host)?),
        (None, None) if !http_1_1 => None,
        _ => return Err(Refusal::Host),
    };
    match resource::authority(target) {
        // RFC 9112 §3.2.2: the authority of an absolute-form target is what counts
        Some(authority) if is_host(authority) => Ok(Some(authority.to_owned())),
        Some(_) => Err(Refusal::Malformed("the authority of the request target is not of the form host[:port]")),
        None => Ok(host.map(str::to_owned)),
    }
}

/// Whether this is `uri-host [":" port]` with a host that is not empty (RFC 9110 §7.2, RFC 3986 §3.2.2).
fn is_host(value: &str) -> bool {
    let digits = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    if let Some(rest) = value.strip_prefix('[') {
        let Some((address, port)) = rest.split_once(']') else { return false };
        return address.parse::<std::net::Ipv6Addr>().is_ok() && port.strip_prefix(':').map_or(port.is_empty(), digits);
    }
    let (name, port) = value.split_once(':').unwrap_or((value, ""));
    let is_mark = |byte| {
        matches!(byte, b'-' | b'.' | b'_' | b'~' | b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=' | b'%')
    };
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || is_mark(byte);
    !name.is_empty() && name.bytes().all(allowed) && digits(port)
}

/// Whether the client waits for `100 Continue`; HTTP/1.0 cannot (RFC 9110 §10.1.1).
fn expects_continue(lines: &Lines<'_, '_>, http_1_1: bool) -> Result<bool, Refusal> {
    let mut expectations = lines.all("expect").filter(|_| http_1_1).flat_map(|value| value.split(|byte| *byte == b',')).peekable();
    let expects_any = expectations.peek().is_some();
    let all_known = expectations.all(|expectation| expectation.trim_ascii().eq_ignore_ascii_case(b"100-continue"));
    if all_known { Ok(expects_any) } else { Err(Refusal::Expectation) }
}

/// Checks that chunked is the one and only transfer coding.
fn check_chunked(lines: &Lines<'_, '_>, http_1_1: bool) -> Result<(), Refusal> {
    if lines.all("content-length").next().is_some() {
        return Err(Refusal::TwoLengths);
    }
    let codings = || lines.all("transfer-encoding").flat_map(|value| value.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    let is_chunked = |coding: &[u8]| coding.eq_ignore_ascii_case(b"chunked");
    let times = codings().filter(|coding| is_chunked(coding)).count();
    match (codings().count(), codings().last()) {
        (1, Some(last)) if http_1_1 && is_chunked(last) => Ok(()),
        (_, Some(last)) if http_1_1 && is_chunked(last) && times == 1 => Err(Refusal::UnknownCoding),
        _ => Err(Refusal::TransferEncoding),
    }
}

/// The announced length of the content in bytes; 0 without the field (RFC 9112 §6.3).
fn content_length(lines: &Lines<'_, '_>) -> Result<u64, Refusal> {
    let mut lengths = lines.all("content-length");
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
