//! Reads the head of one request (RFC 9112 §3 and §5): what it asks for, and where its content ends. Sees whole heads only.

use std::mem::MaybeUninit;
use std::net::IpAddr;

use tiny_http::HTTPVersion;

use super::chunked::Chunks;
use super::error::{FIELD_LINES_MAX, ProtocolError};
use super::request::{Credentials, Fields, Request};

/// What is said of a request line that does not parse.
const REQUEST_LINE: &str = "the request line has to be method, target and HTTP/1.1, with one space between";

/// A request whose content is on its way.
#[derive(Debug)]
pub(super) struct Incoming {
    /// The request without its content, or with as much of it as is decoded.
    pub(super) request: Request,
    pub(super) framing: Framing,
    /// Whether the client waits for `100 Continue`.
    pub(super) expects_continue: bool,
}

/// What tells where a content ends (RFC 9112 §6).
#[derive(Debug)]
pub(super) enum Framing {
    /// The content has this many bytes.
    Length(usize),
    /// The content comes in chunks.
    Chunks(Chunks),
}

/// Reads a head that ends with its empty line.
///
/// # Errors
/// When it is malformed, demands what the service does not have, or announces more than `content_max` bytes of content.
pub(super) fn read(head: &[u8], content_max: usize) -> Result<Incoming, ProtocolError> {
    let mut lines = [MaybeUninit::uninit(); FIELD_LINES_MAX];
    let mut parsed = httparse::Request::new(&mut []);
    match parsed.parse_with_uninit_headers(head, &mut lines) {
        Ok(httparse::Status::Complete(length)) if length == head.len() => {}
        Ok(_) => return Err(ProtocolError::Malformed(REQUEST_LINE)),
        Err(error) => return Err(explain(error, head)),
    }
    let (Some(method), Some(target), Some(minor)) = (parsed.method, parsed.path, parsed.version) else {
        return Err(ProtocolError::Malformed(REQUEST_LINE));
    };
    if !target.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#') {
        return Err(ProtocolError::Malformed("the request target has a character that belongs percent-encoded"));
    }
    let http_1_1 = minor == 1;
    let lines = Lines(parsed.headers);

    let request = Request {
        method: method.parse().map_err(|()| ProtocolError::Malformed(REQUEST_LINE))?,
        target: target.to_owned(),
        version: HTTPVersion(1, minor),
        fields: Fields {
            authorization: authorization(&lines)?,
            forwarded_for: forwarded_for(&lines),
            host: host(target, http_1_1, &lines)?,
            if_match: lines.joined("if-match"),
            if_none_match: lines.joined("if-none-match"),
            origin: lines.joined("origin"),
            sec_fetch_site: lines.joined("sec-fetch-site"),
            preflight_method: lines.joined("access-control-request-method"),
        },
        content: Vec::new(),
        keep_alive: !lines.lists("connection", "close") && (http_1_1 || lines.lists("connection", "keep-alive")),
    };
    let expects_continue = expects_continue(&lines, http_1_1)?;
    let framing = if lines.all("transfer-encoding").next().is_some() {
        check_chunked(&lines, http_1_1)?;
        Framing::Chunks(Chunks::default())
    } else {
        match usize::try_from(content_length(&lines)?) {
            Ok(length) if length <= content_max => Framing::Length(length),
            _ => return Err(ProtocolError::ContentTooLarge(content_max)),
        }
    };
    Ok(Incoming { request, framing, expects_continue })
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

/// The credentials of the request. Authorization is no list (RFC 9110 §11.6.2): of two, this service and a proxy might believe different ones.
fn authorization(lines: &Lines<'_, '_>) -> Result<Option<Credentials>, ProtocolError> {
    let mut credentials = lines.all("authorization");
    match (credentials.next(), credentials.next()) {
        (Some(value), None) => Ok(Some(Credentials(value.into()))),
        (None, _) => Ok(None),
        _ => Err(ProtocolError::Authorization),
    }
}

/// The address that the last proxy put at the end of X-Forwarded-For; what stands before it, the client may have made up.
fn forwarded_for(lines: &Lines<'_, '_>) -> Option<IpAddr> {
    let last = lines.all("x-forwarded-for").last()?.rsplit(|byte| *byte == b',').next()?;
    str::from_utf8(last).ok()?.trim().parse().ok()
}

/// The host that the request is for, after checking that there is one (RFC 9112 §3.2).
fn host(target: &str, http_1_1: bool, lines: &Lines<'_, '_>) -> Result<Option<String>, ProtocolError> {
    let mut hosts = lines.all("host");
    let host = match (hosts.next(), hosts.next()) {
        (Some(host), None) => Some(str::from_utf8(host).ok().filter(|host| is_host(host)).ok_or(ProtocolError::Host)?),
        (None, None) if !http_1_1 => None,
        _ => return Err(ProtocolError::Host),
    };
    match split_absolute_form(target) {
        // RFC 9112 §3.2.2: the authority of an absolute-form target is what counts
        Some((authority, _)) if is_host(authority) => Ok(Some(authority.to_owned())),
        Some(_) => Err(ProtocolError::Malformed("the authority of the request target is not of the form host[:port]")),
        None => Ok(host.map(str::to_owned)),
    }
}

/// The authority of an absolute-form target, and what follows it: path and query (RFC 9112 §3.2.2). The scheme is `http` or `https`, in any
/// case (RFC 3986 §3.1).
pub(crate) fn split_absolute_form(target: &str) -> Option<(&str, &str)> {
    let rest = ["http://", "https://"].into_iter().find_map(|scheme| {
        let (start, rest) = target.split_at_checked(scheme.len())?;
        start.eq_ignore_ascii_case(scheme).then_some(rest)
    })?;
    Some(rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len())))
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
fn expects_continue(lines: &Lines<'_, '_>, http_1_1: bool) -> Result<bool, ProtocolError> {
    let mut expectations = lines.all("expect").filter(|_| http_1_1).flat_map(|value| value.split(|byte| *byte == b',')).peekable();
    let expects_any = expectations.peek().is_some();
    let all_known = expectations.all(|expectation| expectation.trim_ascii().eq_ignore_ascii_case(b"100-continue"));
    if all_known { Ok(expects_any) } else { Err(ProtocolError::Expectation) }
}

/// Checks that chunked is the one and only transfer coding.
fn check_chunked(lines: &Lines<'_, '_>, http_1_1: bool) -> Result<(), ProtocolError> {
    if lines.all("content-length").next().is_some() {
        return Err(ProtocolError::TwoLengths);
    }
    let codings = || lines.all("transfer-encoding").flat_map(|value| value.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    let is_chunked = |coding: &[u8]| coding.eq_ignore_ascii_case(b"chunked");
    let times = codings().filter(|coding| is_chunked(coding)).count();
    match (codings().count(), codings().last()) {
        (1, Some(last)) if http_1_1 && is_chunked(last) => Ok(()),
        (_, Some(last)) if http_1_1 && is_chunked(last) && times == 1 => Err(ProtocolError::UnknownCoding),
        _ => Err(ProtocolError::TransferEncoding),
    }
}

/// The announced length of the content in bytes; 0 without the field (RFC 9112 §6.3).
fn content_length(lines: &Lines<'_, '_>) -> Result<u64, ProtocolError> {
    let mut lengths = lines.all("content-length");
    match (lengths.next(), lengths.next()) {
        (None, _) => Ok(0),
        (Some(length), None) if length.iter().all(u8::is_ascii_digit) => {
            str::from_utf8(length).ok().and_then(|digits| digits.parse().ok()).ok_or(ProtocolError::ContentLength)
        }
        _ => Err(ProtocolError::ContentLength),
    }
}

fn explain(error: httparse::Error, head: &[u8]) -> ProtocolError {
    match error {
        httparse::Error::TooManyHeaders => ProtocolError::HeadTooLarge,
        httparse::Error::Version => {
            let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
            let version = line.rsplit(|byte| *byte == b' ').next().unwrap_or_default();
            match version.strip_prefix(b"HTTP/") {
                Some(b"1.0" | b"1.1") => ProtocolError::Malformed(REQUEST_LINE),
                Some([major, b'.', minor]) if major.is_ascii_digit() && minor.is_ascii_digit() => ProtocolError::Version,
                _ => ProtocolError::Malformed(REQUEST_LINE),
            }
        }
        httparse::Error::HeaderName => ProtocolError::Malformed("a field name is malformed or followed by white space"),
        httparse::Error::HeaderValue => ProtocolError::Malformed("a field value has a control character"),
        _ => ProtocolError::Malformed(REQUEST_LINE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absolute_form_has_an_authority() {
        assert_eq!(split_absolute_form("http://example.org:80/colors"), Some(("example.org:80", "/colors")));
        assert_eq!(split_absolute_form("HTTPS://example.org?x"), Some(("example.org", "?x")));
        assert_eq!(split_absolute_form("/colors"), None);
    }

    fn fields(lines: &str) -> Result<Fields, ProtocolError> {
        read(format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n").as_bytes(), 0).map(|incoming| incoming.request.fields)
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
            assert_eq!(fields(lines).unwrap().forwarded_for, expected.map(|address| address.parse().unwrap()), "{lines:?}");
        }
    }

    #[test]
    fn credentials_are_given_once_and_not_shown_for_debugging() {
        let given = fields("authorization: Bearer x\r\n").unwrap().authorization.unwrap();
        assert_eq!((&given.0[..], format!("{given:?}").as_str()), (&b"Bearer x"[..], "Credentials(..)"));
        let twice = "Authorization: Bearer x\r\nAuthorization: Bearer x\r\n";
        assert_eq!(fields(twice).unwrap_err().to_string(), "the field Authorization may be given only once");
    }
}
