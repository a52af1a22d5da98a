//! The statuses that the service answers with (RFC 9110 §15), by their names there.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum StatusCode {
    Ok = 200,
    Created = 201,
    NoContent = 204,
    NotModified = 304,
    BadRequest = 400,
    Unauthorized = 401,
    Forbidden = 403,
    NotFound = 404,
    MethodNotAllowed = 405,
    RequestTimeout = 408,
    PreconditionFailed = 412,
    ContentTooLarge = 413,
    UnsupportedMediaType = 415,
    ExpectationFailed = 417,
    RequestHeaderFieldsTooLarge = 431,
    InternalServerError = 500,
    NotImplemented = 501,
    ServiceUnavailable = 503,
    HttpVersionNotSupported = 505,
}

impl StatusCode {
    pub(crate) fn code(self) -> u16 {
        self as u16
    }

    /// The reason phrase of the status line (RFC 9112 §4).
    pub(super) fn reason(self) -> &'static str {
        match self {
            // tiny_http has the phrase of RFC 7231.
            Self::ContentTooLarge => "Content Too Large",
            _ => tiny_http::StatusCode(self.code()).default_reason_phrase(),
        }
    }
}
