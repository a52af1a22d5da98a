//! A response as a value, and its fields as bytes. Knows no sockets.

use std::borrow::Cow;
use std::mem::take;

use bounded_http::Content;
use serde_json::json;
use tiny_http::StatusCode;

use crate::conditions::Tag;

/// The value of Content-Type (RFC 9110 §8.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MediaType {
    Json,
    Html,
    JavaScript,
    /// Version 0.0.4 of the text format of Prometheus.
    Metrics,
}

impl MediaType {
    /// Adds the field. Each line by itself, since it is copied faster if its length is known when
    /// this is compiled.
    fn add_to(self, sent: &mut bounded_http::Response) {
        match self {
            Self::Json => sent.add_field_lines(["\r\nContent-Type: application/json"]),
            Self::Html => sent.add_field_lines(["\r\nContent-Type: text/html; charset=utf-8"]),
            Self::JavaScript => {
                sent.add_field_lines(["\r\nContent-Type: text/javascript; charset=utf-8"])
            }
            Self::Metrics => {
                sent.add_field_lines(["\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8"])
            }
        }
    }
}

/// A response without its [`CommonFields`].
#[derive(Clone, Debug)]
pub(crate) struct Response {
    pub(crate) status: StatusCode,
    pub(crate) content: Content,
    pub(crate) tag: Option<Tag>,
    pub(crate) media_type: MediaType,
    /// Further fields: names and values.
    pub(crate) fields: Vec<(&'static str, Cow<'static, str>)>,
    pub(crate) varies_by_accept: bool,
    /// Preference-Applied (RFC 7240 §3): the seconds of the preference `wait`, if the request
    /// waited for a change or could have.
    pub(crate) applied_wait: Option<u16>,
    /// WWW-Authenticate: on a 401, and on OPTIONS if the client would get a 401 for a write.
    pub(crate) challenge: Option<Challenge>,
    /// The connection closes after the response.
    pub(crate) closes: bool,
    /// The request has changed the list.
    pub(crate) is_change: bool,
    /// Only for the log: the reason of an error, or what a change has made.
    pub(crate) log_detail: Cow<'static, str>,
}

/// What decides the fields that do not depend on the answer, but on the request and the options.
#[derive(Default)]
pub(crate) struct CommonFields<'a> {
    /// The Origin of the request, if it is allowed, for the CORS fields (Fetch standard).
    pub(crate) allowed_origin: Option<&'a str>,
    /// The response depends on the Origin of the request.
    pub(crate) varies_by_origin: bool,
    /// No shared cache may keep the response.
    pub(crate) is_private: bool,
}

/// Why a token is asked for (RFC 6750 §3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Challenge {
    /// When the request has no credentials, those of another scheme, or `Bearer` without a token.
    NoToken,
    InvalidToken,
    /// When several words follow `Bearer`, such as a token with its name.
    SeveralWords,
}

/// `nosniff` keeps a browser from guessing a media type. The other two keep a page of another
/// origin from loading a response by `<link>` or `<object>`: the events of these would tell it
/// whether a color exists (Fetch and HTML standards). None of the three affects CORS.
const PROTECTION_FIELDS: &str = "\r\nX-Content-Type-Options: nosniff\
    \r\nCross-Origin-Resource-Policy: same-origin\r\nX-Frame-Options: DENY";

/// What a page of an allowed origin may read besides the CORS-safelisted fields (Fetch standard).
const EXPOSED_FIELDS: &str =
    "\r\nAccess-Control-Expose-Headers: ETag, Location, Preference-Applied";

impl Response {
    pub(crate) fn new(status: StatusCode, content: Content) -> Self {
        Self {
            status,
            content,
            tag: None,
            media_type: MediaType::Json,
            fields: Vec::new(),
            varies_by_accept: false,
            applied_wait: None,
            challenge: None,
            closes: false,
            is_change: false,
            log_detail: Cow::Borrowed(""),
        }
    }

    /// A response with the Error body (docs/http.md, Errors). `message` is for the author of the
    /// client. It begins in lower case, and has no full stop at its end.
    pub(crate) fn error(status: StatusCode, message: impl Into<Cow<'static, str>>) -> Self {
        let message = message.into();
        let body = format!("{}\n", json!({"error": true, "message": message}));
        Self { log_detail: message, ..Self::new(status, Content::Own(body.into_bytes())) }
    }

    /// The 304 in place of a 200 (RFC 9110 §15.4.5).
    pub(crate) fn into_not_modified(self) -> Self {
        Self { status: StatusCode(304), content: Content::None, ..self }
    }

    /// What the server sends.
    pub(crate) fn into_sent(mut self, common: &CommonFields<'_>) -> bounded_http::Response {
        let content = take(&mut self.content);
        let has_content = !matches!(self.status, StatusCode(204 | 304));
        let mut sent = bounded_http::Response::new(self.status, content);
        match (self.challenge, common.is_private) {
            (Some(_), _) => sent.add_field_lines(["\r\nCache-Control: no-store"]),
            (None, true) => sent.add_field_lines(["\r\nCache-Control: private, no-cache"]),
            (None, false) => sent.add_field_lines(["\r\nCache-Control: no-cache"]),
        }
        sent.add_field_lines([PROTECTION_FIELDS]);
        if has_content {
            self.media_type.add_to(&mut sent);
        }
        if let Some(tag) = self.tag {
            sent.add_field_lines(["\r\nETag: \""]);
            sent.add_field_lines([tag.digits()]);
            sent.add_field_lines(["\""]);
        }
        let varies_by_prefer = self.applied_wait.is_some();
        if self.varies_by_accept || common.varies_by_origin || varies_by_prefer {
            let all = [
                (self.varies_by_accept, "Accept"),
                (common.varies_by_origin, "Origin"),
                (varies_by_prefer, "Prefer"),
            ];
            let names = all.iter().filter(|(varies, _)| *varies).map(|(_, name)| *name);
            sent.add_field_lines(["\r\nVary: ", &names.collect::<Vec<_>>().join(", ")]);
        }
        if let Some(seconds) = self.applied_wait {
            let mut digits = itoa::Buffer::new();
            sent.add_field_lines(["\r\nPreference-Applied: wait=", digits.format(seconds)]);
        }
        if let Some(challenge) = self.challenge {
            sent.add_field_lines(["\r\nWWW-Authenticate: ", challenge.field_value()]);
        }
        for (name, value) in &self.fields {
            sent.add_field_lines(["\r\n", name, ": ", value]);
        }
        if let Some(origin) = common.allowed_origin {
            sent.add_field_lines(["\r\nAccess-Control-Allow-Origin: ", origin, EXPOSED_FIELDS]);
        }
        if self.closes { sent.closing() } else { sent }
    }
}

impl Challenge {
    /// The value of WWW-Authenticate (RFC 9110 §11.6.1).
    fn field_value(self) -> &'static str {
        match self {
            // RFC 6750 §3.1: no error code when the request has no token.
            Self::NoToken => r#"Bearer realm="colors""#,
            Self::InvalidToken | Self::SeveralWords => {
                r#"Bearer realm="colors", error="invalid_token""#
            }
        }
    }

    pub(crate) fn message(self) -> &'static str {
        match self {
            Self::NoToken => "this needs a token, sent as Authorization: Bearer TOKEN",
            Self::InvalidToken => "the token is not valid",
            Self::SeveralWords => "a token has no white space, send it without its name",
        }
    }
}

#[cfg(test)]
impl Response {
    /// One of [`Response::fields`].
    pub(crate) fn field(&self, wanted: &str) -> Option<&str> {
        self.fields.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(response: Response, expected: &str) {
        let sent = response.into_sent(&CommonFields::default());
        assert_eq!(str::from_utf8(sent.field_lines()).unwrap(), expected);
    }

    #[test]
    fn a_response_carries_the_common_fields() {
        check(
            Response::new(StatusCode(404), Content::Own(b"{\"error\":true}\n".to_vec())),
            "\r\nCache-Control: no-cache\r\nX-Content-Type-Options: nosniff\r\n\
             Cross-Origin-Resource-Policy: same-origin\r\nX-Frame-Options: DENY\r\n\
             Content-Type: application/json",
        );
        check(
            Response {
                fields: vec![("Allow", "GET".into())],
                ..Response::new(StatusCode(204), Content::None)
            },
            "\r\nCache-Control: no-cache\r\nX-Content-Type-Options: nosniff\r\n\
             Cross-Origin-Resource-Policy: same-origin\r\nX-Frame-Options: DENY\r\n\
             Allow: GET",
        );
    }

    #[test]
    fn errors_are_the_error_body_with_a_message() {
        let response = Response::error(StatusCode(400), "missing field \"name\"");
        assert_eq!(
            response.content.bytes(),
            b"{\"error\":true,\"message\":\"missing field \\\"name\\\"\"}\n"
        );
    }
}
