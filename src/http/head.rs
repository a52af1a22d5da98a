//! Parses the head of a request (RFC 9112 §3 and §5), or as much as there is of a refused one.

use std::mem::MaybeUninit;

use memchr::memchr;
use tiny_http::Method;

use super::chunked::ChunkedDecoder;
use super::protocol_error::{FIELD_LINES_MAX, ProtocolError};
use super::request::{Credentials, Request, RequestFields, is_safe};
use super::syntax::{Host, parse_digits, split_absolute_form};
use crate::conditions::Conditions;

const REQUEST_LINE: ProtocolError = ProtocolError::malformed(
    "the request line has to be method, target and HTTP/1.1, with one space between; a space in a \
     name is %20",
);

const NOT_UTF_8: ProtocolError = ProtocolError::malformed(
    "the request line has bytes that are not UTF-8, as in Latin-1: percent-encode the UTF-8",
);

const AUTHORITY: ProtocolError =
    ProtocolError::malformed("the authority of the request target is not of the form host[:port]");

/// Longest wait for a change, in seconds. A client that asks for more gets its answer after this
/// time, and can ask again.
const WAIT_SECONDS_MAX: u16 = 300;

/// A request whose head has arrived.
pub(super) struct Incoming {
    /// The request. Chunked content is in it as far as decoded, other content once it is whole.
    /// Content that is ignored never is.
    pub(super) request: Request,
    pub(super) framing: Framing,
    /// Nobody has looked at the head yet: [`Parser::new_head`](super::Parser::new_head).
    pub(super) is_new: bool,
    /// The client waits for `100 Continue`.
    pub(super) expects_continue: bool,
}

/// What determines the length of the content (RFC 9112 §6.3).
pub(super) enum Framing {
    /// Bytes of the content, less those that are dropped already.
    Length(usize),
    Chunked(ChunkedDecoder),
}

/// What the field lines of a head say.
#[derive(Default)]
struct FieldLines<'a> {
    /// The version is HTTP/1.1, not 1.0.
    is_1_1: bool,
    /// Host may be empty.
    is_unix: bool,
    host: Option<&'a [u8]>,
    content_length: Option<&'a [u8]>,
    transfer_encoding: Option<String>,
    if_match: Option<String>,
    if_none_match: Option<String>,
    close: bool,
    keep_alive: bool,
    expects_continue: bool,
    /// The fields for [`Request::fields`], if there are any.
    found: Option<Box<RequestFields>>,
}

/// Parses a whole head, its empty line included. `content_max`: the longest content in bytes.
/// `is_unix`: it came by a unix socket.
pub(super) fn parse(
    head: &[u8],
    content_max: usize,
    is_unix: bool,
) -> Result<Incoming, ProtocolError> {
    let malformed = |what| Err(ProtocolError::malformed(what));
    let mut headers = [MaybeUninit::uninit(); FIELD_LINES_MAX];
    let mut parsed = httparse::Request::new(&mut []);
    match parsed.parse_with_uninit_headers(head, &mut headers) {
        Ok(httparse::Status::Complete(length)) if length == head.len() => {}
        Err(httparse::Error::Version) => return Err(version_error(head)),
        Err(httparse::Error::TooManyHeaders) => return Err(ProtocolError::HEAD_TOO_LARGE),
        Err(httparse::Error::HeaderName) => {
            return malformed("a field name is malformed or followed by white space");
        }
        Err(httparse::Error::HeaderValue) => {
            return malformed("a field value has a control character");
        }
        Err(_) if !is_utf8_line(head) => return Err(NOT_UTF_8),
        Ok(_) | Err(_) => return Err(REQUEST_LINE),
    }
    let (Some(method), Some(target), Some(minor)) = (parsed.method, parsed.path, parsed.version)
    else {
        return Err(REQUEST_LINE);
    };
    // httparse has already refused control characters, and what is not UTF-8. Characters outside
    // ASCII belong percent-encoded. Many clients send them as they are, and mean the same.
    if target.contains('#') {
        return malformed("the request target has a #, which belongs percent-encoded, as %23");
    }
    let mut lines = FieldLines { is_1_1: minor == 1, is_unix, ..FieldLines::default() };
    for line in parsed.headers {
        lines.add(line.name, line.value)?;
    }
    let method: Method = method.parse().map_err(|()| REQUEST_LINE)?;
    lines.parse_conditions(&method);
    let host = lines.host(target)?;
    let framing = lines.framing(content_max)?;
    let has_origin = lines.found.as_ref().is_some_and(|fields| fields.origin.is_some());
    if let Some(host) = host.filter(|host| host.needs_dns || has_origin) {
        let fields = lines.fields();
        fields.host = Some(host.as_str().to_owned());
        fields.needs_dns = host.needs_dns;
    }
    // RFC 9110 §9.3.6: what follows CONNECT is for the tunnel, which is refused.
    let is_connect = method.as_str() == "CONNECT";
    let request = Request {
        method,
        target: target.to_owned(),
        fields: lines.found,
        content: Vec::new(),
        has_content: !matches!(framing, Framing::Length(0)),
        keep_alive: !lines.close && !is_connect && (lines.is_1_1 || lines.keep_alive),
        head_bytes: head.len(),
    };
    Ok(Incoming { request, framing, is_new: true, expects_continue: lines.expects_continue })
}

/// Parses what there is of a malformed or incomplete head, for the response and the log: method,
/// target and fields up to the error, but no conditions and no host. `None` without a method.
pub(super) fn parse_in_part(head: &[u8]) -> Option<Request> {
    let mut headers = [httparse::EMPTY_HEADER; FIELD_LINES_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    // The result does not matter: whatever was parsed is in `parsed`.
    let _ = parsed.parse(head);
    let mut lines = FieldLines::default();
    for line in parsed.headers {
        // The request is refused anyway, so an error of a single line does not matter.
        let _ = lines.add(line.name, line.value);
    }
    Some(Request {
        method: parsed.method?.parse().ok()?,
        target: parsed.path.unwrap_or_default().to_owned(),
        fields: lines.found,
        content: Vec::new(),
        has_content: false,
        keep_alive: false,
        head_bytes: head.len(),
    })
}

/// Whether the first line is UTF-8.
fn is_utf8_line(head: &[u8]) -> bool {
    let end = memchr(b'\r', head).unwrap_or(head.len());
    str::from_utf8(&head[..end]).is_ok()
}

/// The error of a request line in which httparse finds no version that it knows: the line ends in
/// another version, or is malformed.
fn version_error(head: &[u8]) -> ProtocolError {
    let line_end = memchr(b'\r', head).unwrap_or(head.len());
    let version = head[..line_end].rsplit(|byte| *byte == b' ').next().unwrap_or_default();
    match version.strip_prefix(b"HTTP/") {
        // The version is a known one, so the mistake is an extra space before it.
        Some(b"1.0" | b"1.1") => REQUEST_LINE,
        Some([b'0'..=b'9', b'.', b'0'..=b'9']) => ProtocolError::VERSION,
        _ => REQUEST_LINE,
    }
}

impl<'a> FieldLines<'a> {
    /// Adds one field line. Fails if it repeats a field that may be given only once, or expects
    /// what the service does not do.
    fn add(&mut self, name: &str, value: &'a [u8]) -> Result<(), ProtocolError> {
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        let has = |wanted: &[u8]| members(value).any(|member| member.eq_ignore_ascii_case(wanted));
        let has_other =
            |known: &[u8]| members(value).any(|member| !member.eq_ignore_ascii_case(known));
        match name {
            _ if is("host") => once(&mut self.host, value, ProtocolError::HOST)?,
            _ if is("content-length") => {
                once(&mut self.content_length, value, ProtocolError::CONTENT_LENGTH)?
            }
            _ if is("transfer-encoding") => join(&mut self.transfer_encoding, value),
            _ if is("connection") => {
                self.close |= has(b"close");
                self.keep_alive |= has(b"keep-alive");
            }
            // RFC 9110 §10.1.1: an expectation in HTTP/1.0 is ignored.
            _ if is("expect") && self.is_1_1 => {
                if has_other(b"100-continue") {
                    return Err(ProtocolError::EXPECTATION);
                }
                self.expects_continue |= has(b"100-continue");
            }
            _ if is("if-match") => join(&mut self.if_match, value),
            _ if is("if-none-match") => join(&mut self.if_none_match, value),
            _ if is("origin") => join(&mut self.fields().origin, value),
            _ if is("sec-fetch-site") => join(&mut self.fields().sec_fetch_site, value),
            _ if is("access-control-request-method") => {
                join(&mut self.fields().preflight_method, value)
            }
            _ if is("access-control-request-headers") => {
                join(&mut self.fields().preflight_fields, value)
            }
            _ if is("content-encoding") && has_other(b"identity") => {
                join(&mut self.fields().content_coding, value);
            }
            // A shortcut: nearly all clients but browsers send `*/*`.
            _ if is("accept") && value != b"*/*" && asks_for_html(value) => {
                self.fields().asks_for_html = true
            }
            // RFC 7240 §2: if `wait` is given several times, the first counts that is well-formed.
            _ if is("prefer") => {
                let fields = self.fields();
                fields.prefer_wait =
                    fields.prefer_wait.or_else(|| members(value).find_map(wait_seconds));
            }
            // RFC 9110 §11.6.2: the field is no list. If the service took one of two, a proxy might
            // have checked the other.
            _ if is("authorization") => {
                let field = &mut self.fields().authorization;
                once(field, Credentials::parse(value), ProtocolError::AUTHORIZATION)?;
            }
            // Each proxy appends the address of its client. That client may have sent the addresses
            // before it. So the last address of the last line counts.
            _ if is("x-forwarded-for") => {
                let last = value.rsplit(|byte| *byte == b',').next().unwrap_or_default();
                let address = str::from_utf8(last).ok().and_then(|last| last.trim().parse().ok());
                self.fields().forwarded_for = address;
            }
            _ => {}
        }
        Ok(())
    }

    fn parse_conditions(&mut self, method: &Method) {
        let (if_match, if_none_match) = (self.if_match.take(), self.if_none_match.take());
        if if_match.is_some() || if_none_match.is_some() {
            self.fields().conditions =
                Conditions::parse(is_safe(method), if_match.as_deref(), if_none_match.as_deref());
        }
    }

    fn fields(&mut self) -> &mut RequestFields {
        self.found.get_or_insert_default()
    }

    /// The host that the request is for (RFC 9112 §3.2). `None` with HTTP/1.0, and if an empty Host
    /// came by a unix socket: a URL of that may have no authority.
    fn host(&self, target: &'a str) -> Result<Option<Host<'a>>, ProtocolError> {
        let host = match self.host {
            Some(b"") if self.is_unix => None,
            Some(value) => Some(Host::parse(value).ok_or(ProtocolError::HOST)?),
            None if self.is_1_1 => return Err(ProtocolError::HOST),
            None => None,
        };
        // RFC 9112 §3.2.2: the authority of an absolute-form target replaces Host.
        match split_absolute_form(target) {
            Some((authority, _)) => Host::parse(authority.as_bytes()).map(Some).ok_or(AUTHORITY),
            None => Ok(host),
        }
    }

    fn framing(&self, content_max: usize) -> Result<Framing, ProtocolError> {
        let is_chunked = |coding: &str| coding.trim_ascii().eq_ignore_ascii_case("chunked");
        match (self.content_length, self.transfer_encoding.as_deref()) {
            (None, None) => Ok(Framing::Length(0)),
            (Some(_), Some(_)) => Err(ProtocolError::TWO_LENGTHS),
            (Some(length), None) => match parse_digits(length, 10) {
                Some(length) if length <= content_max as u64 => {
                    Ok(Framing::Length(length as usize))
                }
                Some(_) => Err(ProtocolError::ContentTooLarge(content_max)),
                None => Err(ProtocolError::CONTENT_LENGTH),
            },
            (None, Some(coding)) if self.is_1_1 && is_chunked(coding) => {
                Ok(Framing::Chunked(ChunkedDecoder::default()))
            }
            (None, Some(codings)) => match codings.rsplit_once(',') {
                Some((before, last))
                    if self.is_1_1 && is_chunked(last) && !before.split(',').any(is_chunked) =>
                {
                    Err(ProtocolError::UNKNOWN_CODING)
                }
                _ => Err(ProtocolError::TRANSFER_ENCODING),
            },
        }
    }
}

/// Sets a field that may be given only once; fails with `error` the second time.
fn once<T>(field: &mut Option<T>, value: T, error: ProtocolError) -> Result<(), ProtocolError> {
    if field.is_some() {
        return Err(error);
    }
    *field = Some(value);
    Ok(())
}

/// Sets a field, or appends the value of a further line after a comma (RFC 9110 §5.3). Each byte
/// outside ASCII becomes a question mark, so that the text is no longer than the line: no value
/// that the service knows has such bytes.
fn join(field: &mut Option<String>, value: &[u8]) {
    let ascii = value.iter().map(|byte| if byte.is_ascii() { char::from(*byte) } else { '?' });
    match field {
        Some(joined) => {
            joined.push_str(", ");
            joined.extend(ascii);
        }
        None => *field = Some(ascii.collect()),
    }
}

/// The members of a comma-separated list (RFC 9110 §5.6.1), but for empty ones. Ignores quotes.
fn members(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|member| !member.is_empty())
}

/// The seconds of a preference, if it is `wait` (RFC 7240 §4.3). `wait` with quotes or parameters
/// is ignored.
fn wait_seconds(preference: &[u8]) -> Option<u16> {
    let (name, digits) = str::from_utf8(preference).ok()?.split_once('=')?;
    let digits = digits.trim_ascii();
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let is_wait = is_number && name.trim_ascii().eq_ignore_ascii_case("wait");
    // Digits that do not fit into a u16 are a number above the limit.
    is_wait.then(|| digits.parse().unwrap_or(WAIT_SECONDS_MAX).min(WAIT_SECONDS_MAX))
}

/// Whether the value of Accept (RFC 9110 §12.5.1) names `text/html` itself, with any weight.
/// Browsers send it when they open a page. `*/*`, which curl and `fetch` send, and `text/*` do not
/// count. A comma or semicolon within a quoted string separates as well: no browser sends one.
fn asks_for_html(value: &[u8]) -> bool {
    value.split(|byte| *byte == b',').any(|range| {
        let name = range.split(|byte| *byte == b';').next().unwrap_or_default();
        name.trim_ascii().eq_ignore_ascii_case(b"text/html")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(lines: &str) -> Result<RequestFields, ProtocolError> {
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
        parse(head.as_bytes(), 0, false).map(|incoming| incoming.request.fields().clone())
    }

    #[test]
    fn the_last_address_of_the_last_line_is_where_a_request_was_forwarded_from() {
        for (lines, expected) in [
            ("", None),
            ("X-Forwarded-For: 203.0.113.9\r\n", Some("203.0.113.9")),
            ("x-forwarded-for: 10.0.0.1, evil,2001:db8::1 \r\n", Some("2001:db8::1")),
            ("X-Forwarded-For: 10.0.0.1\r\nX-Forwarded-For: 10.0.0.2\r\n", Some("10.0.0.2")),
            ("X-Forwarded-For: 10.0.0.1, unix:\r\n", None),
            ("X-Forwarded-For: 10.0.0.1\\n\r\n", None),
            ("X-Forwarded-For: 10.0.0.1:80\r\n", None),
            ("X-Forwarded-For:\r\n", None),
        ] {
            assert_eq!(
                fields(lines).unwrap().forwarded_for,
                expected.map(|address| address.parse().unwrap()),
                "{lines:?}"
            );
        }
    }

    #[test]
    fn identity_is_no_content_coding() {
        for (lines, expected) in [
            ("", None),
            ("Content-Encoding: identity, Identity\r\n", None),
            ("Content-Encoding:\r\n", None),
            ("content-encoding: GZIP\r\n", Some("GZIP")),
            ("Content-Encoding: identity\r\nContent-Encoding: br\r\n", Some("br")),
            ("Content-Encoding: gzip, br\r\n", Some("gzip, br")),
        ] {
            assert_eq!(fields(lines).unwrap().content_coding.as_deref(), expected, "{lines:?}");
        }
    }

    #[test]
    fn a_field_takes_no_more_memory_than_its_line() {
        let mut field = None;
        join(&mut field, &[0xff; 1000]);
        join(&mut field, "\u{e9}".as_bytes());
        assert_eq!(field, Some("?".repeat(1000) + ", ??"));
    }

    #[test]
    fn credentials_are_given_once() {
        let once = fields("authorization: Bearer x\r\n").unwrap();
        assert_eq!(once.authorization, Some(Credentials::Bearer(blake3::hash(b"x"))));
        let twice = "Authorization: Bearer x\r\nAuthorization: Bearer x\r\n";
        assert_eq!(
            fields(twice).unwrap_err().to_string(),
            "the field Authorization may be given only once"
        );
    }

    #[test]
    fn the_first_well_formed_wait_counts() {
        for (value, expected) in [
            ("wait=60", Some(60)),
            ("Wait=060", Some(60)),
            ("wait = \t60", Some(60)),
            ("wait=0", Some(0)),
            ("wait=1, wait=2", Some(1)),
            ("wait=x, wait=2", Some(2)),
            (",respond-async ,\twait=7 , wait=8", Some(7)),
            ("a b, @, =1, a=, \u{e9}, wait=2", Some(2)),
            ("a=\"b\", c;d=\"\\\"\", wait=2", Some(2)),
            ("wait=300", Some(300)),
            ("wait=301", Some(300)),
            ("wait=65537", Some(300)),
            ("wait=18446744073709551617", Some(300)),
            ("", None),
            ("wait", None),
            ("wait=", None),
            ("wait=+1", None),
            ("wait=-1", None),
            ("wait=1.5", None),
            ("wait=1s", None),
            ("wait=1 2", None),
            ("wait==1", None),
            ("wait=\"1\"", None),
            ("await=1", None),
            ("wait 1", None),
            ("a;wait=1", None),
        ] {
            let parsed = fields(&format!("Prefer: {value}\r\n")).unwrap();
            assert_eq!(parsed.prefer_wait, expected, "{value}");
        }
    }

    #[test]
    fn only_a_client_that_names_html_asks_for_it() {
        for (values, expected) in [
            (
                &["text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"][..],
                true,
            ),
            (&["text/html"], true),
            (&["application/json, Text/HTML;level=1;q=0.1"], true),
            (&["application/json", "text/html"], true),
            (&["text/html;q=0.001"], true),
            (&["TEXT/HTML"], true),
            (&["text/html ; q=0"], true),
            (&[], false),
            (&[""], false),
            (&["*/*"], false),
            (&["text/*"], false),
            (&["application/json"], false),
            (&["text/htmlx"], false),
            (&["application/xhtml+xml"], false),
        ] {
            assert_eq!(
                values.iter().any(|value| asks_for_html(value.as_bytes())),
                expected,
                "{values:?}"
            );
        }
    }
}
