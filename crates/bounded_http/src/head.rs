//! Parses the head of a request (RFC 9112 §3 and §5), or as much as there is of a refused one.
//! Of the fields, it knows those that frame the message or say what becomes of the connection.

use std::iter;
use std::mem::{MaybeUninit, take};
use std::ops::Range;

use memchr::memchr;
use tiny_http::Method;

use super::buffer;
use super::chunked::ChunkedDecoder;
use super::protocol_error::{FIELD_LINES_MAX, METHOD_BYTES_MAX, ProtocolError};
use super::syntax::{Host, append_value, is_field, members, parse_digits, split_absolute_form};

const REQUEST_LINE: ProtocolError = ProtocolError::malformed(
    "the request line has to be method, target and HTTP/1.1, with one space between; a space in the \
     target is %20",
);

const NOT_UTF_8: ProtocolError = ProtocolError::malformed(
    "the request line has bytes that are not UTF-8, as in Latin-1: percent-encode the UTF-8",
);

const AUTHORITY: ProtocolError =
    ProtocolError::malformed("the authority of the request target is not of the form host[:port]");

/// What follows the target, before the field lines.
const AFTER_TARGET: &[u8] = b" HTTP/1.1\r\n";

/// What ends a head.
const EMPTY_LINE: &[u8] = b"\r\n";

/// The head of a request: method, target and fields (RFC 9112 §3 and §5). All are as received, in
/// one buffer.
#[derive(Debug, PartialEq, Eq)]
pub struct Head {
    /// Request line and field lines as received; of a refused head, those that parse. After
    /// [`Head::drop_fields`], host and target alone.
    bytes: Vec<u8>,
    method: Method,
    target: Range<usize>,
    host: Option<Range<usize>>,
    needs_dns: bool,
    has_content: bool,
    keep_alive: bool,
    has_other_fields: bool,
}

impl Head {
    /// The method, which may be any token (RFC 9110 §9.1).
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// The request target as received (RFC 9112 §3.2), in any of its forms: of CONNECT, it is
    /// an authority. It has no `#`, and of ASCII no white space and no control characters. Percent
    /// escapes are not decoded, and may be malformed; other characters than those of ASCII may be
    /// there as they are.
    pub fn target(&self) -> &str {
        str::from_utf8(self.target_bytes()).expect("it was UTF-8 when it was parsed")
    }

    /// The bytes of [`Head::target`], without the time to check again that they are UTF-8.
    pub fn target_bytes(&self) -> &[u8] {
        &self.bytes[self.target.clone()]
    }

    /// The host that the request is for, with its port if it has one: the authority of an
    /// absolute-form target, or else Host (RFC 9112 §3.2). `None` if HTTP/1.0 or a client of a unix
    /// socket gives none, and for a refused head.
    pub fn host(&self) -> Option<&str> {
        let host = &self.bytes[self.host.clone()?];
        Some(str::from_utf8(host).expect("it was ASCII when it was parsed"))
    }

    /// Whether clients find the host by DNS: not if it is an IP address, `localhost` or a name
    /// below `localhost` (RFC 6761 §6.3), or if there is no host. By DNS rebinding, a page of any
    /// site can send requests to a server on a loopback address; it refuses them by this and a list
    /// of the names that it has.
    pub fn needs_dns(&self) -> bool {
        self.needs_dns
    }

    /// The names and values of the field lines in their order. Names are in any case: compare them
    /// by [`is_field`]. Values have no white space around them, and may have bytes outside ASCII.
    /// None after [`Request::drop_fields`](super::Request::drop_fields).
    pub fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = self.bytes.get(self.target.end + AFTER_TARGET.len()..).unwrap_or_default();
        iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let end = memchr(b'\n', rest).unwrap_or(rest.len());
            let line = &rest[..end];
            rest = rest.get(end + 1..).unwrap_or_default();
            // Every line was parsed before, so it has a colon after its name.
            let colon = line.iter().position(|byte| *byte == b':')?;
            Some((&line[..colon], line[colon + 1..].trim_ascii()))
        })
    }

    /// Whether [`Head::fields`] has others than those that the server itself uses: Host,
    /// Content-Length, Transfer-Encoding, Connection and Expect.
    pub fn has_other_fields(&self) -> bool {
        self.has_other_fields
    }

    /// Whether the head announces content. If that is chunked, it may turn out to be empty.
    pub fn has_content(&self) -> bool {
        self.has_content
    }

    /// Whether content is received and dropped, since it has no meaning: for GET, HEAD, DELETE and
    /// OPTIONS (RFC 9110 §9.3).
    pub fn ignores_content(&self) -> bool {
        matches!(self.method, Method::Get | Method::Head | Method::Options | Method::Delete)
    }

    /// Whether the method is HEAD, so that no content is sent (RFC 9110 §9.3.2).
    pub fn is_head(&self) -> bool {
        matches!(self.method, Method::Head)
    }

    /// Whether the client may send another request on this connection (RFC 9112 §9.3).
    pub fn keep_alive(&self) -> bool {
        self.keep_alive
    }

    /// Bytes of memory that the head counts for.
    pub(super) fn memory(&self) -> usize {
        self.bytes.len()
    }

    /// Frees the memory of the field lines, which [`Head::fields`] then no longer has.
    pub(super) fn drop_fields(&mut self) {
        let host = self.host().unwrap_or_default();
        let kept = [host, self.target()].concat();
        self.target = host.len()..kept.len();
        self.host = self.host.as_ref().map(|_| 0..self.target.start);
        self.bytes = kept.into_bytes();
        self.has_other_fields = false;
    }
}

impl Drop for Head {
    fn drop(&mut self) {
        buffer::give_back(&buffer::HEAD, take(&mut self.bytes));
    }
}

/// A request whose head has arrived.
pub(super) struct Incoming {
    pub(super) head: Head,
    /// Chunked content as far as decoded, other content once it is whole. Content that is ignored
    /// never is here.
    pub(super) content: Vec<u8>,
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

/// What the field lines of a head say of the message itself.
#[derive(Default)]
struct FieldLines<'a> {
    /// The version is HTTP/1.1, not 1.0.
    is_1_1: bool,
    /// Host may be empty.
    is_unix: bool,
    host: Option<&'a [u8]>,
    content_length: Option<&'a [u8]>,
    transfer_encoding: Option<String>,
    close: bool,
    keep_alive: bool,
    expects_continue: bool,
    /// See [`Head::has_other_fields`].
    has_others: bool,
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
    // The parser looks at the method only where there is an error, or not all has arrived.
    if method.len() > METHOD_BYTES_MAX {
        return Err(ProtocolError::METHOD_TOO_LONG);
    }
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
    let host = lines.host(target.as_bytes())?;
    let framing = lines.framing(content_max)?;
    // RFC 9110 §9.3.6: what follows CONNECT is for a tunnel, and there is none.
    let is_connect = matches!(method, Method::Connect);
    let head = Head {
        bytes: copy(&head[..head.len() - EMPTY_LINE.len()]),
        method,
        target: place(head, target.as_bytes()),
        needs_dns: host.is_some_and(|host| host.needs_dns),
        host: host.map(|host| place(head, host.text)),
        has_content: !matches!(framing, Framing::Length(0)),
        keep_alive: !lines.close && !is_connect && (lines.is_1_1 || lines.keep_alive),
        has_other_fields: lines.has_others,
    };
    let expects_continue = lines.expects_continue;
    Ok(Incoming { head, content: Vec::new(), framing, is_new: true, expects_continue })
}

/// Parses what there is of a malformed or incomplete head, for the response and the log: method,
/// target and fields up to the error, but no host. `None` without a method, or if that is too long.
pub(super) fn parse_in_part(head: &[u8]) -> Option<Head> {
    let mut headers = [httparse::EMPTY_HEADER; FIELD_LINES_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    // The result does not matter: whatever was parsed is in `parsed`.
    let _ = parsed.parse(head);
    let target = parsed.path.map_or(0..0, |target| place(head, target.as_bytes()));
    // The headers after the parsed ones have no names.
    let end = match parsed.headers.iter().rfind(|line| !line.name.is_empty()) {
        Some(line) => {
            let name_end = place(head, line.name.as_bytes()).end;
            memchr(b'\n', &head[name_end..]).map_or(head.len(), |end| name_end + end)
        }
        None => target.end,
    };
    let method = parsed.method.filter(|method| method.len() <= METHOD_BYTES_MAX)?;
    Some(Head {
        bytes: copy(&head[..end]),
        method: method.parse().ok()?,
        target,
        host: None,
        needs_dns: false,
        has_content: false,
        keep_alive: false,
        has_other_fields: true,
    })
}

fn copy(head: &[u8]) -> Vec<u8> {
    let mut bytes = buffer::take(&buffer::HEAD);
    bytes.extend_from_slice(head);
    bytes
}

/// Where a part of the head is in it.
fn place(head: &[u8], part: &[u8]) -> Range<usize> {
    let start = part.as_ptr().addr() - head.as_ptr().addr();
    start..start + part.len()
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
    /// what the server does not do.
    fn add(&mut self, name: &str, value: &'a [u8]) -> Result<(), ProtocolError> {
        let is = |known: &str| is_field(name.as_bytes(), known);
        let has = |wanted: &[u8]| members(value).any(|member| member.eq_ignore_ascii_case(wanted));
        let has_other =
            |known: &[u8]| members(value).any(|member| !member.eq_ignore_ascii_case(known));
        match name {
            _ if is("Host") => once(&mut self.host, value, ProtocolError::HOST)?,
            _ if is("Content-Length") => {
                once(&mut self.content_length, value, ProtocolError::CONTENT_LENGTH)?
            }
            _ if is("Transfer-Encoding") => append_value(&mut self.transfer_encoding, value),
            _ if is("Connection") => {
                self.close |= has(b"close");
                self.keep_alive |= has(b"keep-alive");
            }
            // RFC 9110 §10.1.1: an expectation in HTTP/1.0 is ignored.
            _ if is("Expect") && self.is_1_1 => {
                if has_other(b"100-continue") {
                    return Err(ProtocolError::EXPECTATION);
                }
                self.expects_continue |= has(b"100-continue");
            }
            _ => self.has_others = true,
        }
        Ok(())
    }

    /// The host that the request is for (RFC 9112 §3.2). `None` with HTTP/1.0, and if an empty Host
    /// came by a unix socket: a URL of that may have no authority.
    fn host(&self, target: &'a [u8]) -> Result<Option<Host<'a>>, ProtocolError> {
        let host = match self.host {
            Some(b"") if self.is_unix => None,
            Some(value) => Some(Host::parse(value).ok_or(ProtocolError::HOST)?),
            None if self.is_1_1 => return Err(ProtocolError::HOST),
            None => None,
        };
        // RFC 9112 §3.2.2: the authority of an absolute-form target replaces Host.
        match split_absolute_form(target) {
            Some((authority, _)) => Host::parse(authority).map(Some).ok_or(AUTHORITY),
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

#[cfg(test)]
#[path = "head_tests.rs"]
mod tests;
