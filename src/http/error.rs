//! The errors that end a connection, with their statuses and messages, and the limits of a
//! request's head.

use std::fmt;

use tiny_http::StatusCode;

/// Bytes of request line and fields together; Apache allows 8 KiB a line, browsers' cookies stay
/// below 16 KiB in all.
pub(super) const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Field lines in one request; Apache's limit, several times what browsers behind proxies send.
pub(super) const FIELD_LINES_MAX: usize = 100;

/// Why the service does not answer a request, or takes what it receives for none. After the
/// response it closes the connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ProtocolError {
    /// When the bytes do not begin like a request, or a line of the head does not parse: 400. The
    /// text is the message.
    Malformed(&'static str),
    /// When a line of the head ends in LF alone, where a proxy may see no end: 400.
    BareLineFeed,
    /// When the major version is not 1: 505 (RFC 9110 §15.6.6).
    Version,
    /// When the head is longer than 64 KiB or has more than 100 field lines: 431.
    HeadTooLarge,
    /// When HTTP/1.1 comes without Host, or any version with several or with one that is not
    /// `host[:port]`: 400 (RFC 9112 §3.2).
    Host,
    /// When Content-Length is given more than once, is not digits alone, or does not fit 64 bits:
    /// 400 (RFC 9112 §6.3).
    ContentLength,
    /// When Authorization is given more than once: 400.
    Authorization,
    /// When both Content-Length and Transfer-Encoding are given: 400 (RFC 9112 §6.1).
    TwoLengths,
    /// When Transfer-Encoding comes with HTTP/1.0, or chunked is not its one last coding: 400 (RFC
    /// 9112 §6.1).
    TransferEncoding,
    /// When there is a transfer coding besides chunked: 501 (RFC 9112 §6.1).
    UnknownCoding,
    /// When a chunk, its size line or the trailer section does not parse: 400 (RFC 9112 §7.1).
    Chunk,
    /// When the content is longer than this limit in bytes, or announced to be: 413.
    ContentTooLarge(usize),
    /// When Expect asks for anything but 100-continue: 417 (RFC 9110 §10.1.1).
    Expectation,
    /// When the client ends its side of the connection in the middle of a request: 400 (RFC 9112
    /// §8).
    UnexpectedEof,
    /// When the rest of a request does not arrive in time: 408.
    Timeout,
    /// When the memory for all connections is used up, or the connection limit is reached: 503.
    Overloaded,
    /// When the service panicked on the request: 500.
    Panicked,
}

impl ProtocolError {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Version => StatusCode::HTTPVERSION_NOT_SUPPORTED,
            Self::HeadTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::UnknownCoding => StatusCode::NOT_IMPLEMENTED,
            Self::ContentTooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Expectation => StatusCode::EXPECTATION_FAILED,
            Self::Timeout => StatusCode::REQUEST_TIMEOUT,
            Self::Overloaded => StatusCode::SERVICE_UNAVAILABLE,
            Self::Panicked => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::BAD_REQUEST,
        }
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed(what) => what,
            Self::BareLineFeed => "a line of the request ends in LF alone, it has to end in CR LF",
            Self::Version => "the protocol version is not supported, use HTTP/1.1",
            Self::HeadTooLarge => {
                return write!(
                    f,
                    "request line and fields are longer than {HEAD_BYTES_MAX} bytes, or there are more than {FIELD_LINES_MAX} fields"
                );
            }
            Self::Host => "a request needs exactly one Host field of the form host[:port]",
            Self::ContentLength => "Content-Length has to be given once, as a decimal number",
            Self::Authorization => "the field Authorization may be given only once",
            Self::TwoLengths => "Content-Length and Transfer-Encoding exclude each other",
            Self::TransferEncoding => "Transfer-Encoding has to be \"chunked\" alone, and only on HTTP/1.1",
            Self::UnknownCoding => "the only transfer coding supported is \"chunked\"",
            Self::Chunk => "the chunked content does not decode, or its extensions and trailers are too long",
            Self::ContentTooLarge(limit) => {
                return write!(f, "the content is longer than the limit of {limit} bytes; --max-body sets it");
            }
            Self::Expectation => "the only expectation supported is \"100-continue\"",
            Self::UnexpectedEof => "the connection ended in the middle of the request",
            Self::Timeout => "the request did not arrive in time",
            Self::Overloaded => "the service is overloaded, try again later",
            Self::Panicked => "the service failed on this request, its log says where",
        })
    }
}
