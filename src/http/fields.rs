//! Reads the fields that the service knows from the head of a request.

use bounded_http::Head;
use tiny_http::Method;

use super::request::{Credentials, RequestFields, is_safe};
use crate::conditions::Conditions;
use bounded_http::syntax::{append_value, is_field, members};

/// Longest wait for a change, in seconds. A client that asks for more gets its answer after this
/// time, and can ask again.
const WAIT_SECONDS_MAX: u16 = 300;

impl RequestFields {
    /// `None` if the head has none of these fields: this saves memory.
    pub(crate) fn read(head: &Head) -> Option<Box<Self>> {
        // A shortcut: many programs send no more than Host.
        if !head.has_other_fields() {
            return None;
        }
        let mut known = KnownLines::default();
        for (name, value) in head.fields() {
            known.add(name, value);
        }
        known.parse_conditions(head.method());
        known.found
    }
}

/// What the field lines up to some line say.
#[derive(Default)]
struct KnownLines {
    found: Option<Box<RequestFields>>,
    if_match: Option<String>,
    if_none_match: Option<String>,
}

impl KnownLines {
    fn add(&mut self, name: &[u8], value: &[u8]) {
        let is = |known: &str| is_field(name, known);
        let has_other =
            |known: &[u8]| members(value).any(|member| !member.eq_ignore_ascii_case(known));
        match name {
            _ if is("If-Match") => append_value(&mut self.if_match, value),
            _ if is("If-None-Match") => append_value(&mut self.if_none_match, value),
            _ if is("Origin") => append_value(&mut self.found().origin, value),
            _ if is("Sec-Fetch-Site") => append_value(&mut self.found().sec_fetch_site, value),
            _ if is("Access-Control-Request-Method") => {
                append_value(&mut self.found().preflight_method, value)
            }
            _ if is("Access-Control-Request-Headers") => {
                append_value(&mut self.found().preflight_fields, value)
            }
            _ if is("Content-Encoding") && has_other(b"identity") => {
                append_value(&mut self.found().content_coding, value);
            }
            // A shortcut: nearly all clients but browsers send `*/*`.
            _ if is("Accept") && value != b"*/*" && asks_for_html(value) => {
                self.found().asks_for_html = true
            }
            // RFC 7240 §2: if `wait` is given several times, the first counts that is well-formed.
            _ if is("Prefer") => {
                let fields = self.found();
                fields.prefer_wait =
                    fields.prefer_wait.or_else(|| members(value).find_map(wait_seconds));
            }
            _ if is("Authorization") => {
                let fields = self.found();
                match fields.authorization {
                    None => fields.authorization = Some(Credentials::parse(value)),
                    Some(_) => fields.repeats_authorization = true,
                }
            }
            // Each proxy appends the address of its client. That client may have sent the addresses
            // before it. So the last address of the last line counts.
            _ if is("X-Forwarded-For") => {
                let last = value.rsplit(|byte| *byte == b',').next().unwrap_or_default();
                let address = str::from_utf8(last).ok().and_then(|last| last.trim().parse().ok());
                self.found().forwarded_for = address;
            }
            _ => {}
        }
    }

    fn parse_conditions(&mut self, method: &Method) {
        let (if_match, if_none_match) = (self.if_match.take(), self.if_none_match.take());
        if if_match.is_some() || if_none_match.is_some() {
            self.found().conditions =
                Conditions::parse(is_safe(method), if_match.as_deref(), if_none_match.as_deref());
        }
    }

    fn found(&mut self) -> &mut RequestFields {
        self.found.get_or_insert_default()
    }
}

/// The seconds of a preference, if it is `wait` (RFC 7240 §4.3). `wait` with quotes or parameters
/// is ignored.
fn wait_seconds(preference: &[u8]) -> Option<u16> {
    let (name, digits) = str::from_utf8(preference).ok()?.split_once('=')?;
    let digits = digits.trim_ascii();
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let is_wait = is_number && name.trim_ascii().eq_ignore_ascii_case("wait");
    // Digits that do not fit into a u16 are a number above the limit.
    is_wait.then(|| digits.parse().unwrap_or(WAIT_SECONDS_MAX).min(WAIT_SECONDS_MAX))
}

/// Whether the value of Accept (RFC 9110 §12.5.1) names `text/html` itself, with any weight.
/// Browsers send it when they open a page. `*/*`, which curl and `fetch` send, and `text/*` do not
/// count. A comma or semicolon within a quoted string separates as well: no browser sends one.
fn asks_for_html(value: &[u8]) -> bool {
    value.split(|byte| *byte == b',').any(|range| {
        let name = range.split(|byte| *byte == b';').next().unwrap_or_default();
        name.trim_ascii().eq_ignore_ascii_case(b"text/html")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bounded_http::Parser;

    fn fields_of(head: &str) -> RequestFields {
        let mut parser = Parser::default();
        parser.append(head.as_bytes());
        let Ok(Some((head, _))) = parser.next_request(16) else { panic!("{head:?}") };
        RequestFields::read(&head).map(|fields| *fields).unwrap_or_default()
    }

    fn fields(lines: &str) -> RequestFields {
        fields_of(&format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n"))
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
                fields(lines).forwarded_for,
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
            assert_eq!(fields(lines).content_coding.as_deref(), expected, "{lines:?}");
        }
    }

    #[test]
    fn credentials_that_are_repeated_are_told() {
        for (lines, repeats_authorization) in [
            ("authorization: Bearer x\r\n", false),
            ("Authorization: Bearer x\r\nAuthorization: Bearer x\r\n", true),
            ("Authorization: Bearer x\r\nAuthorization:\r\n", true),
        ] {
            let authorization = Some(Credentials::Bearer(blake3::hash(b"x")));
            let expected =
                RequestFields { authorization, repeats_authorization, ..RequestFields::default() };
            assert_eq!(fields(lines), expected, "{lines}");
        }
    }

    #[test]
    fn the_first_well_formed_wait_counts() {
        for (value, expected) in [
            ("wait=60", Some(60)),
            ("Wait=060", Some(60)),
            ("wait = \t60", Some(60)),
            ("wait=0", Some(0)),
            ("wait=1, wait=2", Some(1)),
            ("wait=x, wait=2", Some(2)),
            (",respond-async ,\twait=7 , wait=8", Some(7)),
            ("a b, @, =1, a=, \u{e9}, wait=2", Some(2)),
            ("a=\"b\", c;d=\"\\\"\", wait=2", Some(2)),
            ("wait=300", Some(300)),
            ("wait=301", Some(300)),
            ("wait=65537", Some(300)),
            ("wait=18446744073709551617", Some(300)),
            ("", None),
            ("wait", None),
            ("wait=", None),
            ("wait=+1", None),
            ("wait=-1", None),
            ("wait=1.5", None),
            ("wait=1s", None),
            ("wait=1 2", None),
            ("wait==1", None),
            ("wait=\"1\"", None),
            ("await=1", None),
            ("wait 1", None),
            ("a;wait=1", None),
        ] {
            let parsed = fields(&format!("Prefer: {value}\r\n"));
            assert_eq!(parsed.prefer_wait, expected, "{value}");
        }
    }

    #[test]
    fn only_a_client_that_names_html_asks_for_it() {
        for (values, expected) in [
            (
                &["text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"][..],
                true,
            ),
            (&["text/html"], true),
            (&["application/json, Text/HTML;level=1;q=0.1"], true),
            (&["application/json", "text/html"], true),
            (&["text/html;q=0.001"], true),
            (&["TEXT/HTML"], true),
            (&["text/html ; q=0"], true),
            (&[], false),
            (&[""], false),
            (&["*/*"], false),
            (&["text/*"], false),
            (&["application/json"], false),
            (&["text/htmlx"], false),
            (&["application/xhtml+xml"], false),
        ] {
            assert_eq!(
                values.iter().any(|value| asks_for_html(value.as_bytes())),
                expected,
                "{values:?}"
            );
        }
    }

    #[test]
    fn the_fields_that_matter_are_joined_and_the_rest_dropped() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(
            fields_of(
                "GET /a HTTP/1.1\r\nHOST: \ta:1 \r\nIf-Match: \"a\"\r\nCookie: x\r\n\
                 if-match:\t\"\u{e9}\"\r\nOrigin:\r\n\r\n"
            ),
            RequestFields {
                conditions: Conditions::parse(true, Some("\"a\", \"??\""), None),
                origin: some(""),
                ..RequestFields::default()
            }
        );
        assert_eq!(
            fields_of(
                "OPTIONS http://b/a HTTP/1.1\r\nHost: a\r\nIf-None-Match: *\r\nOrigin: x\r\n\
                 Origin: y\r\nSec-Fetch-Site: none\r\nAccept: a/b, text/html\r\n\
                 Prefer: a=\"b\r\nPrefer: wait=x, wait=9\r\nPrefer: wait=8\r\n\
                 Access-Control-Request-Method: PUT\r\nAccess-Control-Request-Headers: a\r\n\
                 access-control-request-headers: b\r\nContent-Encoding: gzip\r\n\
                 \r\n"
            ),
            RequestFields {
                authorization: None,
                repeats_authorization: false,
                content_coding: some("gzip"),
                forwarded_for: None,
                conditions: Conditions::parse(true, None, Some("*")),
                origin: some("x, y"),
                prefer_wait: Some(9),
                sec_fetch_site: some("none"),
                preflight_method: some("PUT"),
                preflight_fields: some("a, b"),
                asks_for_html: true,
            }
        );
        assert_eq!(fields_of("GET /a HTTP/1.0\r\n\r\n"), RequestFields::default());
    }
}
