//! The statuses that the service answers with (RFC 9110 §15), by their names there.

/// A status code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StatusCode(pub(crate) u16);

impl StatusCode {
    pub(crate) const OK: Self = Self(200);
    pub(crate) const CREATED: Self = Self(201);
    pub(crate) const NO_CONTENT: Self = Self(204);
    pub(crate) const NOT_MODIFIED: Self = Self(304);
    pub(crate) const BAD_REQUEST: Self = Self(400);
    pub(crate) const UNAUTHORIZED: Self = Self(401);
    pub(crate) const FORBIDDEN: Self = Self(403);
    pub(crate) const NOT_FOUND: Self = Self(404);
    pub(crate) const METHOD_NOT_ALLOWED: Self = Self(405);
    pub(crate) const REQUEST_TIMEOUT: Self = Self(408);
    pub(crate) const PRECONDITION_FAILED: Self = Self(412);
    pub(crate) const CONTENT_TOO_LARGE: Self = Self(413);
    pub(crate) const UNSUPPORTED_MEDIA_TYPE: Self = Self(415);
    pub(crate) const EXPECTATION_FAILED: Self = Self(417);
    pub(crate) const REQUEST_HEADER_FIELDS_TOO_LARGE: Self = Self(431);
    pub(crate) const INTERNAL_SERVER_ERROR: Self = Self(500);
    pub(crate) const NOT_IMPLEMENTED: Self = Self(501);
    pub(crate) const SERVICE_UNAVAILABLE: Self = Self(503);
    pub(crate) const HTTP_VERSION_NOT_SUPPORTED: Self = Self(505);

    pub(super) fn reason_phrase(self) -> &'static str {
        match self {
            // RFC 9110 §15.5.14; tiny_http has the older name
            Self::CONTENT_TOO_LARGE => "Content Too Large",
            Self(code) => tiny_http::StatusCode(code).default_reason_phrase(),
        }
    }
}
