//! Which web pages and hosts are allowed: tables of what browsers send.

use tiny_http::{Method, StatusCode};

use super::*;
use crate::http::TestRequest;

/// Checks a request with this host and these fields.
fn check(
    method: &Method,
    host: Option<&str>,
    fields: RequestFields,
    checks_host: bool,
) -> Result<(), Response> {
    let request = TestRequest::with_fields(method, "/colors", host, fields);
    super::check(&options(), &request.head, request.request().fields, checks_host)
}

const HOST: &str = "own.example:8080";

fn options() -> Options {
    Options {
        allow_origin: vec!["https://friend.example".to_owned()],
        allow_host: vec!["Friend.example".to_owned()],
        ..Options::default()
    }
}

fn owned(text: Option<&str>) -> Option<String> {
    text.map(str::to_owned)
}

fn fields(origin: Option<&str>) -> RequestFields {
    RequestFields { origin: owned(origin), ..RequestFields::default() }
}

/// What client and log are told of a refusal; nothing of a request that is answered.
fn told(checked: Result<(), Response>) -> Option<(String, String)> {
    let refusal = checked.err()?;
    assert_eq!(refusal.status, StatusCode(403));
    let content = String::from_utf8(refusal.content.bytes().to_vec()).unwrap();
    Some((content, refusal.log_detail.into_owned()))
}

/// Whether a change with these two fields is allowed, by each method that makes one. Checks what a
/// refusal says, and that methods that change nothing are allowed.
#[track_caller]
fn may_change(sec_fetch_site: Option<&str>, origin: Option<&str>) -> bool {
    let fields = &RequestFields { sec_fetch_site: owned(sec_fetch_site), ..fields(origin) };
    let ask = |method| {
        let refusal = told(check(&method, Some(HOST), fields.clone(), false));
        assert!(refusal.is_none() || refusal == told(Err(cross_origin(fields))), "{fields:?}");
        refusal.is_none()
    };
    assert_eq!([Method::Get, Method::Head, Method::Options].map(ask), [true; 3]);
    let [post, others @ ..] = [Method::Post, Method::Put, Method::Delete, Method::Patch].map(ask);
    assert_eq!(others, [post; 3]);
    post
}

#[test]
fn what_the_browser_says_of_the_site_decides() {
    for site in ["same-origin", "none"] {
        assert!(may_change(Some(site), None));
        assert!(may_change(Some(site), Some("http://evil.example")));
    }
    for site in ["cross-site", "same-site", "Same-Origin", "none, none", "unheard-of"] {
        assert!(!may_change(Some(site), None));
        assert!(!may_change(Some(site), Some("http://own.example:8080")));
        assert!(may_change(Some(site), Some("https://friend.example")));
    }
}

#[test]
fn without_that_the_origin_has_to_be_the_host() {
    for nothing in [None, Some("")] {
        assert!(may_change(nothing, None));
        assert!(may_change(None, nothing));
        assert!(may_change(nothing, Some("http://own.example:8080")));
        assert!(!may_change(nothing, Some("http://evil.example")));
        assert!(!may_change(Some("cross-site"), nothing));
    }
    for origin in ["http://own.example:8080", "https://own.example:8080", "https://friend.example"]
    {
        assert!(may_change(None, Some(origin)));
    }
    for origin in [
        "null",
        "own.example:8080",
        "http://own.example",
        "http://own.example:80",
        "http://own.example:8080/",
        "http://own.example:8080@evil.example",
        "http://evil.example@own.example:8080",
        "http://evil.example",
        "http://own.example:8080.evil.example",
        "HTTP://own.example:8080",
        "http://OWN.example:8080",
        "ftp://own.example:8080",
        "http://own.example:8080, http://own.example:8080",
        "https://friend.example, http://evil.example",
        "http://friend.example",
        "https://friend.example.evil.example",
    ] {
        assert!(!may_change(None, Some(origin)), "{origin}");
    }
}

#[test]
fn an_origin_needs_a_host_to_equal() {
    assert!(check(&Method::Post, None, fields(Some("http://")), true).is_err());
}

#[test]
fn where_the_host_is_checked_foreign_names_are_refused() {
    let ask = |host, checks_host| check(&Method::Get, host, RequestFields::default(), checks_host);
    for host in [
        "127.0.0.1",
        "127.0.0.1:8080",
        "[::1]",
        "[::1]:8080",
        "10.1.2.3:80",
        "localhost",
        "LOCALHOST:1",
        "a.localhost:8080",
        "localhost.",
        "LOCALHOST.:80",
        "a.localhost.",
        "127.0.0.1.",
        "friend.example.",
        "friend.EXAMPLE:8",
    ] {
        assert!(ask(Some(host), true).is_ok(), "{host}");
    }
    for host in [
        "evil.example",
        "localhost.evil.example",
        "xlocalhost",
        "127.0.0.1.evil.example",
        "127.1",
        "0x7f000001",
        "localhost..",
        ".",
        "friend.example..",
    ] {
        assert_eq!(told(ask(Some(host), true)), told(Err(foreign_host(host))));
        assert!(ask(Some(host), false).is_ok(), "{host}");
    }
    assert!(ask(None, true).is_ok());
}

#[test]
fn only_an_origin_on_the_list_is_allowed() {
    for (origin, is_allowed) in [
        (None, false),
        (Some("https://friend.example"), true),
        (Some("http://evil.example"), false),
        (Some("https://friend.example:443"), false),
    ] {
        let fields = fields(origin);
        assert_eq!(super::allowed_origin(&options(), &fields), origin.filter(|_| is_allowed));
    }
}

#[test]
fn client_and_operator_are_told_which_option_would_allow_a_request() {
    let origin = "a page of another origin may not change the list; --allow-origin would allow \
                  that origin; behind a proxy, have it keep Host";
    let host = "the service does not have this host name; --allow-host would allow it";
    let change = fields(Some("http://a\n"));
    let unknown =
        RequestFields { sec_fetch_site: owned(Some("cross-site")), ..RequestFields::default() };
    for (refused, message, detail) in [
        (cross_origin(&change), origin, r#"; the origin is "http://a\n""#),
        (cross_origin(&unknown), origin, "; the origin is not given"),
        (foreign_host("a.example"), host, r#"; the host is "a.example""#),
    ] {
        let content = format!("{{\"error\":true,\"message\":\"{message}\"}}\n");
        assert_eq!(told(Err(refused)), Some((content, format!("{message}{detail}"))));
    }
}
