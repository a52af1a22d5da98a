//! A request as a value, in the terms of RFC 9110.

use std::net::IpAddr;
use std::sync::LazyLock;

use bounded_http::Head;
use tiny_http::Method;

use crate::conditions::Conditions;

/// Most entity tags in a request that may wait. A client needs one: the tag of what it has.
const WAIT_TAGS_MAX: usize = 4;

/// Most bytes that are kept of the head of a request that may wait: target, host, and the fields
/// that the service knows, other than conditions.
const WAIT_BYTES_MAX: usize = 2048;

/// A request as the service sees it: its head and its content are where they were received.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) head: &'a Head,
    pub(crate) fields: &'a RequestFields,
    /// The content, without its transfer coding. Empty if [`Head::ignores_content`].
    pub(crate) content: &'a [u8],
    /// The number of the listener that has accepted its connection.
    pub(crate) listener: usize,
}

/// What is kept of fields that many requests lack. If several lines have a field that is kept as a
/// text, their values are joined by commas (RFC 9110 §5.3).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestFields {
    /// The first Authorization.
    pub(crate) authorization: Option<Credentials>,
    /// Authorization came more than once.
    pub(crate) repeats_authorization: bool,
    pub(crate) conditions: Conditions,
    /// The values of Content-Encoding that name another coding than `identity`.
    pub(crate) content_coding: Option<String>,
    /// The last address of X-Forwarded-For; `None` if what is last is no IP address. Every client
    /// can send this field, so believe it only when a trusted proxy has sent it.
    pub(crate) forwarded_for: Option<IpAddr>,
    pub(crate) origin: Option<String>,
    /// Seconds of the preference `wait` (RFC 7240 §4.3), at most 300.
    pub(crate) prefer_wait: Option<u16>,
    pub(crate) sec_fetch_site: Option<String>,
    /// Access-Control-Request-Method, which makes an OPTIONS request a preflight (Fetch standard,
    /// CORS protocol).
    pub(crate) preflight_method: Option<String>,
    /// Access-Control-Request-Headers: the fields that the page wants to send.
    pub(crate) preflight_fields: Option<String>,
    /// Accept names `text/html`, as when a browser opens the page.
    pub(crate) asks_for_html: bool,
}

static NO_FIELDS: LazyLock<RequestFields> = LazyLock::new(RequestFields::default);

/// The value of Authorization (RFC 9110 §11.6.2). Only the hash of a token is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Credentials {
    /// The hash of a token (RFC 6750 §2.1).
    Bearer(blake3::Hash),
    /// Several words after `Bearer`. A token has no white space.
    SeveralWords,
    /// No token, or another scheme than Bearer.
    Other,
}

impl Credentials {
    /// The scheme may be in any case (RFC 9110 §11.1).
    pub(crate) fn parse(value: &[u8]) -> Self {
        match value.split_at_checked(b"Bearer ".len()) {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case(b"Bearer ") => {
                match token.trim_ascii() {
                    b"" => Self::Other,
                    token if token.contains(&b' ') || token.contains(&b'\t') => Self::SeveralWords,
                    token => Self::Bearer(blake3::hash(token)),
                }
            }
            _ => Self::Other,
        }
    }
}

/// The methods that some resource has, in the order in which Allow lists them.
pub(crate) const METHODS: [Method; 6] =
    [Method::Get, Method::Head, Method::Post, Method::Put, Method::Delete, Method::Options];

/// Whether this is a safe method of [`METHODS`]: it changes nothing (RFC 9110 §9.2.1).
pub(crate) fn is_safe(method: &Method) -> bool {
    matches!(method, Method::Get | Method::Head | Method::Options)
}

impl<'a> Request<'a> {
    /// `fields`: `None` if the head has none that the service knows.
    pub(crate) fn new(
        head: &'a Head,
        fields: Option<&'a RequestFields>,
        content: &'a [u8],
        listener: usize,
    ) -> Self {
        Self { head, fields: fields.unwrap_or(&NO_FIELDS), content, listener }
    }

    /// Whether the request is short enough to wait for a change. Many may wait: their tags are
    /// compared when what they name changes, and no other limit counts their memory.
    pub(crate) fn is_short(&self) -> bool {
        self.fields.conditions.tags <= WAIT_TAGS_MAX && self.fields_bytes() <= WAIT_BYTES_MAX
    }

    /// Bytes that are kept of the head, without the entity tags.
    fn fields_bytes(&self) -> usize {
        let names = self.head.target().len() + self.head.host().map_or(0, str::len);
        let fields = self.fields;
        let texts = [
            &fields.content_coding,
            &fields.origin,
            &fields.sec_fetch_site,
            &fields.preflight_method,
            &fields.preflight_fields,
        ];
        let texts = texts.into_iter().flatten().map(String::len).sum::<usize>();
        names + size_of::<RequestFields>() + texts
    }
}

/// A request of a test.
#[cfg(test)]
pub(crate) struct TestRequest {
    pub(crate) head: Head,
    fields: Option<Box<RequestFields>>,
    pub(crate) content: Vec<u8>,
}

#[cfg(test)]
impl TestRequest {
    pub(crate) fn new(head: Head, content: Vec<u8>) -> Self {
        Self { fields: RequestFields::read(&head), head, content }
    }

    /// A request with these fields in place of those that its head has.
    pub(crate) fn with_fields(
        method: &Method,
        target: &str,
        host: Option<&str>,
        fields: RequestFields,
    ) -> Self {
        let host = host.map(|host| format!("Host: {host}\r\n")).unwrap_or_default();
        let head = format!("{method} {target} HTTP/1.0\r\nConnection: keep-alive\r\n{host}\r\n");
        let mut parser = bounded_http::Parser::default();
        parser.append(head.as_bytes());
        let (head, content) = parser.next_request(0).unwrap().expect("it is whole");
        Self { head, fields: Some(fields.into()), content }
    }

    pub(crate) fn request(&self) -> Request<'_> {
        Request::new(&self.head, self.fields.as_deref(), &self.content, 0)
    }
}
