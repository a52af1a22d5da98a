//! Why the server refuses what it reads, or does not get in time: statuses and messages.

use std::fmt;

use tiny_http::StatusCode;

/// Longest head in bytes: request line, fields and the empty line. By default, nginx takes 32 KiB,
/// and Apache 8 KiB in each line.
pub(super) const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Longest method in bytes. The longest that is registered has 17 (UPDATEREDIRECTREF, RFC 4437).
pub(super) const METHOD_BYTES_MAX: usize = 32;

/// Most field lines in one request: Apache's default, and several times what browsers send.
pub(super) const FIELD_LINES_MAX: usize = 100;

/// Why a request is refused, or bytes are not taken for a request. After the response the server
/// closes the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    /// A status, and the message for the author of the client.
    Refused(StatusCode, &'static str),
    /// When the content is longer than this limit in bytes, or announced to be: 413.
    ContentTooLarge(usize),
}

impl ProtocolError {
    /// When a line of the head ends in LF alone. A proxy may not take that for the end of a line.
    pub(super) const BARE_LINE_FEED: Self =
        Self::malformed("a line of the request ends in LF alone, it has to end in CR LF");
    /// When a request of HTTP/1.1 has no Host, or a request of any version has several, or one that
    /// is not `host[:port]` (RFC 9112 §3.2).
    pub(super) const HOST: Self =
        Self::malformed("a request needs exactly one Host field of the form host[:port]");
    /// When Content-Length is given more than once, is not digits alone, or does not fit 64 bits
    /// (RFC 9112 §6.3).
    pub(super) const CONTENT_LENGTH: Self =
        Self::malformed("Content-Length has to be given once, as a decimal number");
    /// When both Content-Length and Transfer-Encoding are given (RFC 9112 §6.1).
    pub(super) const TWO_LENGTHS: Self =
        Self::malformed("Content-Length and Transfer-Encoding exclude each other");
    /// When Transfer-Encoding comes with HTTP/1.0, when its last coding is not `chunked`, or when
    /// `chunked` is given twice (RFC 9112 §6.1).
    pub(super) const TRANSFER_ENCODING: Self =
        Self::malformed("Transfer-Encoding has to be \"chunked\" alone, and only on HTTP/1.1");
    /// When a chunk, its size line or a trailer field does not parse, or when one of these lines,
    /// or extensions, trailer fields and leading zeros together, are too long (RFC 9112 §7.1).
    pub(super) const CHUNK: Self = Self::malformed(
        "the chunked content does not decode, or its extensions, trailers and zeros are too long",
    );
    /// When the client ends its side of the connection in the middle of a request (RFC 9112 §8).
    pub(super) const UNEXPECTED_EOF: Self =
        Self::malformed("the connection ended in the middle of the request");
    /// When the rest of a request does not arrive in time.
    pub(super) const TIMED_OUT: Self =
        Self::Refused(StatusCode(408), "the request did not arrive in time");
    /// When memory is used up, or when a request stalls above the connection limit.
    pub(super) const OVERLOADED: Self =
        Self::Refused(StatusCode(503), "the server is overloaded, try again later");
    /// When Expect asks for anything but 100-continue, with HTTP/1.1 (RFC 9110 §10.1.1).
    pub(super) const EXPECTATION: Self =
        Self::Refused(StatusCode(417), "the only expectation supported is \"100-continue\"");
    /// When the request line alone is longer than [`HEAD_BYTES_MAX`] (RFC 9112 §3).
    pub(super) const TARGET_TOO_LONG: Self =
        Self::Refused(StatusCode(414), "the request line is longer than 65536 bytes");
    /// When the head has more than [`HEAD_BYTES_MAX`] bytes or [`FIELD_LINES_MAX`] field lines.
    pub(super) const HEAD_TOO_LARGE: Self = Self::Refused(
        StatusCode(431),
        "request line and fields are longer than 65536 bytes, or there are more than 100 fields",
    );
    /// When the method is longer than [`METHOD_BYTES_MAX`] (RFC 9112 §3).
    pub(super) const METHOD_TOO_LONG: Self =
        Self::Refused(StatusCode(501), "no method is longer than 32 bytes");
    /// When another transfer coding comes before `chunked` (RFC 9112 §6.1).
    pub(super) const UNKNOWN_CODING: Self =
        Self::Refused(StatusCode(501), "the only transfer coding supported is \"chunked\"");
    /// When the version of HTTP is neither 1.0 nor 1.1 (RFC 9110 §15.6.6). RFC 9110 §2.5 would have
    /// 1.2 to 1.9 read as 1.1. The server refuses them, since there are no such versions.
    pub(super) const VERSION: Self =
        Self::Refused(StatusCode(505), "the protocol version is not supported, use HTTP/1.1");

    /// A 400: the bytes do not begin like a request, or a part of the request does not parse.
    pub(super) const fn malformed(message: &'static str) -> Self {
        Self::Refused(StatusCode(400), message)
    }

    /// The status of the response that refuses it.
    pub(super) fn status(self) -> StatusCode {
        match self {
            Self::Refused(status, _) => status,
            Self::ContentTooLarge(_) => StatusCode(413),
        }
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(_, message) => f.write_str(message),
            Self::ContentTooLarge(limit) => {
                write!(f, "the content is longer than the limit of {limit} bytes")
            }
        }
    }
}
