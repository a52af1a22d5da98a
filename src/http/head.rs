//! Parses the head of a request (RFC 9112 §3 and §5) when all of it has arrived.

use std::mem::MaybeUninit;
use std::sync::Arc;

use memchr::memchr;

use super::accept::asks_for_html;
use super::chunked::ChunkedDecoder;
use super::error::{FIELD_LINES_MAX, ProtocolError};
use super::host::Host;
use super::request::{Credentials, Fields, Request};
use super::syntax::split_absolute_form;

const REQUEST_LINE: ProtocolError = ProtocolError::Malformed(
    "the request line has to be method, target and HTTP/1.1, with one space between",
);

/// Longest host that is kept for the next request; a DNS name has at most 253 bytes.
const KEPT_HOST_BYTES_MAX: usize = 260;

/// A request whose head has arrived.
#[derive(Debug)]
pub(super) struct Incoming {
    /// Its content is what has been decoded so far.
    pub(super) request: Request,
    pub(super) framing: Framing,
    /// The client waits for `100 Continue`.
    pub(super) expects_continue: bool,
}

/// What determines the length of the content (RFC 9112 §6.3).
#[derive(Debug)]
pub(super) enum Framing {
    Length(usize),
    Chunked(ChunkedDecoder),
}

/// The fields that are evaluated here, and not kept in the request.
#[derive(Default)]
struct FramingFields<'a> {
    host: Option<&'a [u8]>,
    content_length: Option<&'a [u8]>,
    transfer_encoding: Option<String>,
    close: bool,
    keep_alive: bool,
    expects_continue: bool,
    /// The first error in a field line.
    error: Option<ProtocolError>,
}

/// Parses a head that ends with its empty line. `last_host` is that of the request before on the
/// connection, and most often of this one.
pub(super) fn parse(
    head: &[u8],
    content_max: usize,
    last_host: &mut Option<Arc<Host>>,
) -> Result<Incoming, ProtocolError> {
    let mut headers = [MaybeUninit::uninit(); FIELD_LINES_MAX];
    let mut parsed = httparse::Request::new(&mut []);
    match parsed.parse_with_uninit_headers(head, &mut headers) {
        Ok(httparse::Status::Complete(length)) if length == head.len() => {}
        Ok(_) => return Err(REQUEST_LINE),
        Err(httparse::Error::Version) => return parse_as_1_1(head, content_max, last_host),
        Err(httparse::Error::TooManyHeaders) => return Err(ProtocolError::HeadTooLarge),
        Err(httparse::Error::HeaderName) => {
            return Err(ProtocolError::Malformed(
                "a field name is malformed or followed by white space",
            ));
        }
        Err(httparse::Error::HeaderValue) => {
            return Err(ProtocolError::Malformed("a field value has a control character"));
        }
        Err(_) => return Err(REQUEST_LINE),
    }
    let (Some(method), Some(target), Some(minor)) = (parsed.method, parsed.path, parsed.version)
    else {
        return Err(REQUEST_LINE);
    };
    // httparse refuses control characters
    if !target.is_ascii() || memchr(b'#', target.as_bytes()).is_some() {
        return Err(ProtocolError::Malformed(
            "the request target has a character that belongs percent-encoded",
        ));
    }
    let is_1_1 = minor == 1;
    let (mut lines, rare_fields) = FramingFields::sort(parsed.headers, is_1_1);
    if let Some(error) = lines.error.take() {
        return Err(error);
    }
    let host = lines.host(target, is_1_1, last_host)?;
    let framing = lines.framing(is_1_1, content_max)?;
    let request = Request {
        method: method.parse().map_err(|()| REQUEST_LINE)?,
        target: target.to_owned(),
        host,
        rare_fields,
        content: Vec::new(),
        keep_alive: !lines.close && (is_1_1 || lines.keep_alive),
    };
    Ok(Incoming { request, framing, expects_continue: lines.expects_continue })
}

/// Parses a head that is malformed or incomplete as far as possible, for the response and the log:
/// the method, and the target and the fields before the error. `None` if there is no method.
pub(super) fn parse_in_part(head: &[u8]) -> Option<Request> {
    let mut headers = [httparse::EMPTY_HEADER; FIELD_LINES_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    // The result does not matter: whatever was parsed is in `parsed`.
    let _ = parsed.parse(head);
    Some(Request {
        method: parsed.method?.parse().ok()?,
        target: parsed.path.unwrap_or_default().to_owned(),
        host: None,
        rare_fields: FramingFields::sort(parsed.headers, true).1,
        content: Vec::new(),
        keep_alive: false,
    })
}

/// Parses a head with a version that httparse does not know. A later minor version of 1 is served
/// as 1.1 (RFC 9110 §2.5).
fn parse_as_1_1(
    head: &[u8],
    content_max: usize,
    last_host: &mut Option<Arc<Host>>,
) -> Result<Incoming, ProtocolError> {
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let version = line.rsplit(|byte| *byte == b' ').next().unwrap_or_default();
    match version.strip_prefix(b"HTTP/") {
        Some([b'1', b'.', b'2'..=b'9']) => {
            let mut head = head.to_vec();
            head[line.len() - 1] = b'1';
            parse(&head, content_max, last_host)
        }
        Some([b'0' | b'2'..=b'9', b'.', b'0'..=b'9']) => Err(ProtocolError::Version),
        _ => Err(REQUEST_LINE),
    }
}

impl<'a> FramingFields<'a> {
    fn sort(headers: &[httparse::Header<'a>], is_1_1: bool) -> (Self, Option<Box<Fields>>) {
        let (mut lines, mut rare) = (Self::default(), None::<Box<Fields>>);
        for &httparse::Header { name, value } in headers {
            let is = |known: &str| name.eq_ignore_ascii_case(known);
            if is("host") {
                if lines.host.replace(value).is_some() {
                    lines.error.get_or_insert(ProtocolError::Host);
                }
            } else if is("content-length") {
                if lines.content_length.replace(value).is_some() {
                    lines.error.get_or_insert(ProtocolError::ContentLength);
                }
            } else if is("transfer-encoding") {
                join(&mut lines.transfer_encoding, value);
            } else if is("connection") {
                lines.close |= members(value).any(|option| option.eq_ignore_ascii_case(b"close"));
                lines.keep_alive |=
                    members(value).any(|option| option.eq_ignore_ascii_case(b"keep-alive"));
            } else if is("expect") {
                // RFC 9110 §10.1.1: HTTP/1.0 has no expectations
                if is_1_1
                    && !members(value)
                        .all(|expectation| expectation.eq_ignore_ascii_case(b"100-continue"))
                {
                    lines.error.get_or_insert(ProtocolError::Expectation);
                }
                lines.expects_continue |= is_1_1 && members(value).next().is_some();
            } else if is("if-match") {
                join(&mut rare.get_or_insert_default().if_match, value);
            } else if is("if-none-match") {
                join(&mut rare.get_or_insert_default().if_none_match, value);
            } else if is("origin") {
                join(&mut rare.get_or_insert_default().origin, value);
            } else if is("sec-fetch-site") {
                join(&mut rare.get_or_insert_default().sec_fetch_site, value);
            } else if is("authorization") {
                // RFC 9110 §11.6.2: it is not a list, and of two, a proxy might check the other one
                if rare
                    .get_or_insert_default()
                    .authorization
                    .replace(Credentials(value.into()))
                    .is_some()
                {
                    lines.error.get_or_insert(ProtocolError::Authorization);
                }
            } else if is("x-forwarded-for") {
                // each proxy appends the address of its client; the client may have sent the ones
                // before
                let last = value
                    .rsplit(|byte| *byte == b',')
                    .next()
                    .and_then(|last| str::from_utf8(last).ok());
                rare.get_or_insert_default().forwarded_for =
                    last.and_then(|last| last.trim().parse().ok());
            } else if is("accept") {
                if asks_for_html(value) {
                    rare.get_or_insert_default().asks_for_html = true;
                }
            } else if is("content-encoding") {
                if members(value).any(|coding| !coding.eq_ignore_ascii_case(b"identity")) {
                    join(&mut rare.get_or_insert_default().content_coding, value);
                }
            } else if is("access-control-request-method") {
                join(&mut rare.get_or_insert_default().preflight_method, value);
            }
        }
        (lines, rare)
    }

    /// The host that the request is for (RFC 9112 §3.2).
    fn host(
        &self,
        target: &str,
        is_1_1: bool,
        last: &mut Option<Arc<Host>>,
    ) -> Result<Option<Arc<Host>>, ProtocolError> {
        let mut parse = |value: &[u8]| match last {
            Some(last) if last.as_str().as_bytes() == value => Some(Arc::clone(last)),
            _ => {
                let host = Arc::new(Host::parse(str::from_utf8(value).ok()?)?);
                *last = (value.len() <= KEPT_HOST_BYTES_MAX).then(|| Arc::clone(&host));
                Some(host)
            }
        };
        let host = match self.host {
            Some(host) => Some(parse(host).ok_or(ProtocolError::Host)?),
            None if is_1_1 => return Err(ProtocolError::Host),
            None => None,
        };
        match split_absolute_form(target) {
            // RFC 9112 §3.2.2: the authority of an absolute-form target replaces Host
            Some((authority, _)) => {
                let malformed = ProtocolError::Malformed(
                    "the authority of the request target is not of the form host[:port]",
                );
                parse(authority.as_bytes()).map(Some).ok_or(malformed)
            }
            None => Ok(host),
        }
    }

    fn framing(&self, is_1_1: bool, content_max: usize) -> Result<Framing, ProtocolError> {
        let is_chunked = |coding: &str| coding.trim_ascii().eq_ignore_ascii_case("chunked");
        match (self.content_length, self.transfer_encoding.as_deref()) {
            (None, None) => Ok(Framing::Length(0)),
            (Some(length), None) => {
                let digits = str::from_utf8(length)
                    .ok()
                    .filter(|length| length.bytes().all(|byte| byte.is_ascii_digit()));
                let length = digits
                    .and_then(|digits| digits.parse::<u64>().ok())
                    .ok_or(ProtocolError::ContentLength)?;
                let length = usize::try_from(length).ok().filter(|length| *length <= content_max);
                length.map(Framing::Length).ok_or(ProtocolError::ContentTooLarge(content_max))
            }
            (Some(_), Some(_)) => Err(ProtocolError::TwoLengths),
            (None, Some(coding)) if is_1_1 && is_chunked(coding) => {
                Ok(Framing::Chunked(ChunkedDecoder::default()))
            }
            (None, Some(codings)) => match codings.rsplit_once(',') {
                Some((before, last))
                    if is_1_1 && is_chunked(last) && !before.split(',').any(is_chunked) =>
                {
                    Err(ProtocolError::UnknownCoding)
                }
                _ => Err(ProtocolError::TransferEncoding),
            },
        }
    }
}

/// Appends the value of a repeated field line, after a comma (RFC 9110 §5.3).
fn join(field: &mut Option<String>, value: &[u8]) {
    let value = String::from_utf8_lossy(value);
    match field {
        Some(joined) => joined.extend([", ", &value]),
        None => *field = Some(value.into_owned()),
    }
}

/// The members of a comma-separated list without the empty ones (RFC 9110 §5.6.1).
fn members(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|member| !member.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(lines: &str) -> Result<Fields, ProtocolError> {
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
        parse(head.as_bytes(), 0, &mut None).map(|incoming| incoming.request.fields().clone())
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
    fn credentials_are_given_once_and_not_shown_for_debugging() {
        let given = fields("authorization: Bearer x\r\n").unwrap().authorization.unwrap();
        assert_eq!(
            (&given.0[..], format!("{given:?}").as_str()),
            (&b"Bearer x"[..], "Credentials(..)")
        );
        let twice = "Authorization: Bearer x\r\nAuthorization: Bearer x\r\n";
        assert_eq!(
            fields(twice).unwrap_err().to_string(),
            "the field Authorization may be given only once"
        );
    }
}
