//! A request as a value, in the terms of RFC 9110.

use std::net::IpAddr;
use std::sync::LazyLock;

use tiny_http::Method;

use crate::conditions::Conditions;

/// Most entity tags in a request that may wait. A client needs one: the tag of what it has.
const WAIT_TAGS_MAX: usize = 4;

/// Most bytes that are kept of the head of a request that may wait: the target, and the fields
/// other than conditions.
const WAIT_BYTES_MAX: usize = 2048;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) method: Method,
    /// The request target as received. Only some characters are checked: `matcher` parses it (RFC
    /// 9112 §3.2).
    pub(crate) target: String,
    /// `None` if none of these fields came and the host needs no DNS: this saves memory. Read it by
    /// [`Request::fields`].
    pub(crate) fields: Option<Box<RequestFields>>,
    /// The content, without its transfer coding. Empty if [`Request::ignores_content`].
    pub(crate) content: Vec<u8>,
    /// The head announces content. If that is chunked, it may turn out to be empty.
    pub(crate) has_content: bool,
    /// The client may send another request on this connection (RFC 9112 §9.3).
    pub(crate) keep_alive: bool,
    /// The length of the head in bytes. It stands for the memory of what is kept of the head, which
    /// may take some hundred bytes more.
    pub(crate) head_bytes: usize,
}

/// What is kept of fields that many requests lack. If several lines have a field that is kept as a
/// text, their values are joined by commas (RFC 9110 §5.3).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestFields {
    pub(crate) authorization: Option<Credentials>,
    pub(crate) conditions: Conditions,
    /// The values of Content-Encoding that name another coding than `identity`.
    pub(crate) content_coding: Option<String>,
    /// The last address of X-Forwarded-For; `None` if what is last is no IP address. Every client
    /// can send this field, so believe it only when a trusted proxy has sent it.
    pub(crate) forwarded_for: Option<IpAddr>,
    /// The host that the request is for, with its port if it has one: the authority of an
    /// absolute-form target, or else Host (RFC 9112 §3.2). A host that needs no DNS is kept only if
    /// there is an Origin to compare with it.
    pub(crate) host: Option<String>,
    /// See [`Host::needs_dns`](super::syntax::Host::needs_dns).
    pub(crate) needs_dns: bool,
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

impl Request {
    pub(crate) fn fields(&self) -> &RequestFields {
        self.fields.as_deref().unwrap_or(&NO_FIELDS)
    }

    /// Whether the response has no content (RFC 9110 §9.3.2).
    pub(crate) fn is_head(&self) -> bool {
        self.method == Method::Head
    }

    pub(crate) fn is_safe(&self) -> bool {
        is_safe(&self.method)
    }

    /// Whether content is received and dropped (RFC 9110 §9.3.1, §9.3.2, §9.3.5, §9.3.7: it has no
    /// meaning).
    pub(crate) fn ignores_content(&self) -> bool {
        self.is_safe() || self.method == Method::Delete
    }

    /// Whether this is a CORS preflight, by which a browser asks what a page of another origin may
    /// send (Fetch standard, CORS protocol).
    pub(crate) fn is_preflight(&self) -> bool {
        self.method == Method::Options && self.fields().preflight_method.is_some()
    }

    /// Whether the request is short enough to wait for a change. Many may wait: their tags are
    /// compared when what they name changes, and no other limit counts their memory.
    pub(crate) fn is_short(&self) -> bool {
        self.fields().conditions.tags <= WAIT_TAGS_MAX && self.fields_bytes() <= WAIT_BYTES_MAX
    }

    /// Bytes that are kept of the head, without the entity tags.
    fn fields_bytes(&self) -> usize {
        let Some(fields) = &self.fields else { return self.target.len() };
        let texts = [
            &fields.content_coding,
            &fields.host,
            &fields.origin,
            &fields.sec_fetch_site,
            &fields.preflight_method,
            &fields.preflight_fields,
        ];
        let texts = texts.into_iter().flatten().map(String::len).sum::<usize>();
        self.target.len() + size_of::<RequestFields>() + texts
    }

    /// Bytes of memory that the request counts for: its head and its content.
    pub(crate) fn memory(&self) -> usize {
        self.head_bytes + self.content.capacity()
    }
}

#[cfg(test)]
impl Request {
    /// A request with these fields and nothing else.
    pub(crate) fn plain(method: Method, fields: RequestFields) -> Self {
        Self {
            method,
            target: String::new(),
            fields: Some(fields.into()),
            content: Vec::new(),
            has_content: false,
            keep_alive: true,
            head_bytes: 0,
        }
    }
}
