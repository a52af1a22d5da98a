//! The contract, row by row, without a socket.

use std::time::{Duration, UNIX_EPOCH};

use super::*;
use crate::connection_counts::ConnectionCounts;
use crate::http::{Fields, Host, Parser};
use crate::store::{Color, Colors};

impl Service {
    /// A service of these colors in memory that nothing is set for; it has one worker.
    pub(crate) fn plain(colors: Colors) -> Self {
        let base = BasePath::default();
        Self {
            store: Store::in_memory(colors, 32 << 20),
            openapi: openapi(&base),
            base,
            read_only: false,
            access_log: AccessLog::None,
            allowlist: Allowlist::default(),
            tokens: None,
            metrics: Metrics::new(Arc::new(ConnectionCounts::new(1, 10))),
        }
    }
}

/// A service with the colors `red`, `blue` and a second `red`.
pub(super) fn service() -> Service {
    let color = |name: &str, value: &str| Color::new(name, value);
    let colors =
        Colors::from_iter([color("red", "#f00"), color("blue", "#00f"), color("red", "#e00")]);
    Service::plain(colors)
}

pub(super) const LIST: &str = r##"{"data":[{"name":"red","value":"#f00"},{"name":"blue","value":"#00f"},{"name":"red","value":"#e00"}]}"##;

pub(super) fn request(method: Method, target: &str, fields: Fields, content: &str) -> Request {
    Request {
        target: target.to_owned(),
        content: content.as_bytes().to_vec(),
        ..Request::plain(method, fields)
    }
}

pub(super) fn respond(service: &Service, request: &Request) -> Response {
    match service.respond(request, Arrival { checks_host: true, ..Arrival::default() }) {
        Answer::Now(response) => response,
        Answer::Change(..) | Answer::Deferred => {
            panic!("the list is in memory, and there is enough of that")
        }
    }
}

pub(super) fn ask(service: &Service, method: Method, target: &str, content: &str) -> Response {
    respond(service, &request(method, target, Fields::default(), content))
}

/// The content without the line feed at its end.
#[track_caller]
pub(super) fn json(response: &Response) -> &str {
    let content = str::from_utf8(response.content.bytes()).unwrap();
    if content.is_empty() {
        ""
    } else {
        content.strip_suffix('\n').expect("every JSON content ends with a line feed")
    }
}

/// Asks a fresh service; checks status and content.
#[track_caller]
fn check(
    method: Method,
    target: &str,
    content: &str,
    status: StatusCode,
    expected: &str,
) -> Response {
    let response = ask(&service(), method.clone(), target, content);
    assert_eq!(
        (response.status, json(&response)),
        (status, expected),
        "{method:?} {target} {content}"
    );
    response
}

#[test]
fn reads_answer_the_list_or_the_first_color() {
    check(Method::Get, "/colors", "", StatusCode::OK, LIST);
    check(Method::Get, "/colors?sort=name", "ignored", StatusCode::OK, LIST);
    check(Method::Head, "/colors", "", StatusCode::OK, LIST);
    check(Method::Get, "/colors/red", "", StatusCode::OK, r##"{"name":"red","value":"#f00"}"##);
    check(Method::Get, "/colors/r%65d", "", StatusCode::OK, r##"{"name":"red","value":"#f00"}"##);
    check(Method::Get, "/colors/Red", "", StatusCode::NOT_FOUND, r#"{"error":true}"#);
    check(Method::Get, "/colors/", "", StatusCode::NOT_FOUND, r#"{"error":true}"#);
    for method in [Method::Get, Method::Head] {
        let response = ask(&service(), method, "/openapi.json", "");
        let read = |json: &str| serde_json::from_str::<serde_json::Value>(json).unwrap();
        assert_eq!(
            (response.status, read(json(&response))),
            (StatusCode::OK, read(include_str!("openapi.json")))
        );
        assert!(!json(&response).contains('\n'));
    }
}

#[test]
fn a_create_answers_201_and_where_the_color_is() {
    let made = r##"{"name":"a/b","value":"#1"}"##;
    assert_eq!(
        check(Method::Post, "/colors", made, StatusCode::CREATED, made).field("Location"),
        Some("/colors/a%2Fb")
    );
    for made in [r##"{"name":"red","value":"#1"}"##, r##"{"name":"..","value":"#1"}"##] {
        let response = check(Method::Post, "/colors", made, StatusCode::CREATED, made);
        assert_eq!(response.field("Location"), None);
    }
}

#[test]
fn an_update_answers_the_color_as_it_is_now() {
    let made = r##"{"name":"red","value":"#1"}"##;
    let sent = made.replace("red", "x");
    check(Method::Put, "/colors/red", &sent, StatusCode::OK, made);
    check(Method::Put, "/colors/red", "{}", StatusCode::OK, r##"{"name":"red","value":"#f00"}"##);
    check(Method::Put, "/colors/red", "", StatusCode::OK, r##"{"name":"red","value":"#f00"}"##);
    check(Method::Put, "/colors/no", "not JSON", StatusCode::NOT_FOUND, r#"{"error":true}"#);
    check(
        Method::Put,
        "/colors/red",
        r#"{"value":1}"#,
        StatusCode::BAD_REQUEST,
        r#"{"error":true,"message":"invalid type: integer `1`, expected a string at line 1 column 10"}"#,
    );
}

#[test]
fn refused_content_changes_nothing() {
    let service = service();
    for content in [
        "",
        "nonsense",
        "[]",
        "{}",
        r#"{"name":"a"}"#,
        r#"{"name":"a","value":1}"#,
        r#"{"name":"a","name":"a","value":"b"}"#,
    ] {
        assert_eq!(
            ask(&service, Method::Post, "/colors", content).status,
            StatusCode::BAD_REQUEST,
            "{content:?}"
        );
    }
    assert_eq!(json(&ask(&service, Method::Get, "/colors", "")), LIST);
}

#[test]
fn a_resource_says_which_methods_it_allows() {
    let (list, one, fixed) =
        ("GET, HEAD, POST, PUT, OPTIONS", "GET, HEAD, PUT, DELETE, OPTIONS", "GET, HEAD, OPTIONS");
    for (target, allow, refused) in [
        ("/colors", list, &[Method::Delete, Method::Patch][..]),
        ("/colors/x", one, &[Method::Post, Method::Patch]),
        ("/health", fixed, &[Method::Post, Method::Put, Method::Delete, Method::Patch]),
        ("/openapi.json", fixed, &[Method::Post, Method::Put, Method::Delete, Method::Patch]),
    ] {
        let options = check(Method::Options, target, "", StatusCode::NO_CONTENT, "");
        assert_eq!(allowed(&options), allow);
        for method in refused {
            let message = format!(
                r#"{{"error":true,"message":"the method is not allowed here, only {allow}"}}"#
            );
            let response =
                check(method.clone(), target, "", StatusCode::METHOD_NOT_ALLOWED, &message);
            assert_eq!(allowed(&response), allow);
        }
    }
    let options = check(Method::Options, "*", "", StatusCode::NO_CONTENT, "");
    assert_eq!(allowed(&options), "GET, HEAD, POST, PUT, DELETE, OPTIONS");
}

/// The methods that a response lists.
fn allowed(response: &Response) -> String {
    response.field("Allow").unwrap_or_default().to_owned()
}

#[test]
fn read_only_allows_only_reads() {
    let service = Service { read_only: true, ..service() };
    for (method, target) in [
        (Method::Post, "/colors"),
        (Method::Put, "/colors"),
        (Method::Put, "/colors/red"),
        (Method::Delete, "/colors/red"),
    ] {
        let response = ask(&service, method, target, r#"{"name":"a","value":"b"}"#);
        assert_eq!(
            (response.status, allowed(&response).as_str()),
            (StatusCode::METHOD_NOT_ALLOWED, "GET, HEAD, OPTIONS")
        );
    }
    assert_eq!(json(&ask(&service, Method::Get, "/colors", "")), LIST);
    assert_eq!(allowed(&ask(&service, Method::Options, "/colors", "")), "GET, HEAD, OPTIONS");
}

#[test]
fn health_is_ok_until_the_end() {
    let service = service();
    assert_eq!(
        json(&ask(&service, Method::Get, "/health", "")),
        concat!(r#"{"colors":3,"status":"ok","version":""#, env!("BUILD_VERSION"), r#""}"#)
    );
    let arrival = Arrival { is_stopping: true, ..Arrival::default() };
    let Answer::Now(response) =
        service.respond(&request(Method::Get, "/health", Fields::default(), ""), arrival)
    else {
        panic!()
    };
    assert_eq!(response.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(str::from_utf8(response.content.bytes()).unwrap().contains(r#""status":"stopping""#));
}

#[test]
fn a_time_of_json_is_utc_in_seconds() {
    assert_eq!(
        rfc3339(UNIX_EPOCH + Duration::from_millis(784_111_777_900)),
        "1994-11-06T08:49:37Z"
    );
}

#[test]
fn targets_that_name_nothing_say_why() {
    let unknown = r#"{"error":true,"message":"no such resource, the list is at /colors"}"#;
    check(Method::Get, "/", "", StatusCode::NOT_FOUND, unknown);
    check(Method::Delete, "/colors/red/", "", StatusCode::NOT_FOUND, unknown);
    let escape = r#"{"error":true,"message":"the path has a bad percent escape, or one that does not decode to UTF-8"}"#;
    check(Method::Get, "/colors/%ff", "", StatusCode::BAD_REQUEST, escape);
    let form = r#"{"error":true,"message":"the request target has to be a path, as in /colors"}"#;
    check(Method::Get, "*", "", StatusCode::BAD_REQUEST, form);
}

#[test]
fn a_forbidden_request_is_refused_before_anything_else_and_logged() {
    let service = service();
    let ask = |method, target, origin: Option<&str>, host: Option<&str>| {
        let fields = Fields { origin: origin.map(str::to_owned), ..Fields::default() };
        let host = host.map(|host| Host::parse(host).unwrap().into());
        respond(&service, &Request { host, ..request(method, target, fields, "") })
    };
    for target in ["/colors/red", "/nowhere", "/%"] {
        let refused = ask(Method::Delete, target, Some("http://evil.example"), None);
        assert_eq!(
            json(&refused),
            r#"{"error":true,"message":"a page of another origin may not change the list; behind a proxy, have it keep Host (Apache: ProxyPreserveHost On); otherwise --allow-origin with it would allow that"}"#
        );
        assert_eq!(
            (refused.status, refused.detail.split(';').next()),
            (
                StatusCode::FORBIDDEN,
                Some(r#"refused a change from the origin "http://evil.example""#)
            )
        );
        assert_eq!(
            ask(Method::Get, target, None, Some("evil.example")).status,
            StatusCode::FORBIDDEN
        );
    }
    assert_eq!(json(&ask(Method::Get, "/colors", None, None)), LIST);
}

#[test]
fn an_allowed_origin_is_answered_with_cors_fields() {
    let origin = "https://friend.example";
    let service = Service {
        allowlist: Allowlist { origins: vec![origin.to_owned()], hosts: vec![] },
        ..service()
    };
    let fields = Fields {
        origin: Some(origin.to_owned()),
        preflight_method: Some("DELETE".to_owned()),
        ..Fields::default()
    };
    for (method, status, is_preflight) in
        [(Method::Options, StatusCode::NO_CONTENT, true), (Method::Delete, StatusCode::OK, false)]
    {
        let request = request(method, "/colors/red", fields.clone(), "");
        let common = service.common_fields(Some(&request), "", "");
        assert_eq!(
            (respond(&service, &request).status, common.allowed_origin, common.is_preflight),
            (status, Some(origin), is_preflight)
        );
    }
    let common = service.common_fields(None, "", "");
    assert!(common.allowed_origin.is_none() && common.varies_by_origin);
}

#[test]
fn nothing_that_arrives_makes_parser_or_service_panic() {
    const REQUESTS: [&str; 4] = [
        "GET http://localhost:80/colors/%72ed?x HTTP/1.1\r\nHost: localhost.:80\r\nIf-None-Match: W/\"a\", *\r\nIf-Match: *\r\n\r\n",
        "POST /colors HTTP/1.1\r\nHost: [::1]\r\nTransfer-Encoding: chunked\r\n\r\n18;a=b\r\n{\"name\":\"a\",\"value\":\"b\"}\r\n0\r\nA: b\r\n\r\n",
        "PUT /colors/red HTTP/1.2\r\nHost: a%20b\r\nContent-Length: 15\r\nExpect: 100-continue\r\nOrigin: http://\u{e9}\r\n\r\n{\"value\":\"\\ud8\"}",
        "OPTIONS * HTTP/1.0\r\nConnection: close, keep-alive\r\nSec-Fetch-Site: none\r\nAccess-Control-Request-Method: PUT\r\n\r\n",
    ];
    const PIECES: [&[u8]; 12] = [
        b"",
        b"\r\n",
        b"\n",
        b":",
        b"%",
        b"\"",
        b"]",
        b"/",
        b" ",
        b"\xff",
        b"\0",
        b"9999999999999999",
    ];
    let service = service();
    let mut random = fastrand::Rng::with_seed(1);
    for _ in 0..20_000 {
        let mut bytes = random.choice(REQUESTS).unwrap().as_bytes().to_vec();
        for _ in 0..random.usize(..4) {
            let start = random.usize(..bytes.len());
            let end = bytes.len().min(start + random.usize(..3));
            bytes.splice(start..end, random.choice(PIECES).unwrap().iter().copied());
        }
        let mut parser = Parser::default();
        for piece in bytes.chunks(random.usize(1..200)) {
            parser.append(piece);
            while let Ok(Some(request)) = parser.next_request(100) {
                assert_ne!(
                    respond(&service, &request).status,
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "{:?}",
                    String::from_utf8_lossy(&bytes)
                );
            }
        }
        service.common_fields(parser.refuse().as_ref(), "", "");
    }
}

mod token {
    use std::path::Path;

    use std::sync::atomic::Ordering::Relaxed;

    use super::*;
    use crate::http::{Challenge, Credentials};
    use crate::service::Tokens;

    /// The service with the token in a file of its own.
    fn with_token(private: bool, read_only: bool) -> Service {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let name = format!("colors-token-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
        let file = std::env::temp_dir().join(name);
        std::fs::write(&file, "abcdefgh01234567").unwrap();
        let tokens = Tokens::new(Path::new(&file), private);
        tokens.load().unwrap();
        std::fs::remove_file(&file).unwrap();
        Service { tokens: Some(tokens), read_only, ..service() }
    }

    fn ask_with(service: &Service, method: Method, target: &str, token: &str) -> Response {
        let fields = Fields {
            authorization: (!token.is_empty())
                .then(|| Credentials(format!("Bearer {token}").into_bytes().into())),
            if_match: (!matches!(method, Method::Get | Method::Head)).then(|| "\"x\"".to_owned()),
            ..Fields::default()
        };
        respond(service, &request(method, target, fields, "not JSON"))
    }

    #[test]
    fn every_write_needs_one_before_anything_is_said_of_the_colors() {
        let service = with_token(false, false);
        for (method, target) in [
            (Method::Post, "/colors"),
            (Method::Put, "/colors"),
            (Method::Put, "/colors/red"),
            (Method::Put, "/colors/no"),
            (Method::Delete, "/colors/red"),
            (Method::Delete, "/colors/no"),
        ] {
            for (token, challenge) in
                [("", Challenge::NoToken), ("abcdefgh01234568", Challenge::InvalidToken)]
            {
                let refused = ask_with(&service, method.clone(), target, token);
                assert_eq!(
                    (refused.status, refused.challenge),
                    (StatusCode::UNAUTHORIZED, Some(challenge)),
                    "{method:?} {target}"
                );
                let expected = format!(r#"{{"error":true,"message":"{}"}}"#, challenge.message());
                assert_eq!(json(&refused), expected);
            }
        }
        assert_eq!(json(&ask(&service, Method::Get, "/colors", "")), LIST);
        let token = "abcdefgh01234567";
        assert_eq!(
            ask_with(&service, Method::Post, "/colors", token).status,
            StatusCode::BAD_REQUEST
        );
        assert_eq!(
            ask_with(&service, Method::Delete, "/colors/no", token).status,
            StatusCode::NOT_FOUND
        );
        assert_eq!(
            ask_with(&service, Method::Delete, "/colors/red", token).status,
            StatusCode::PRECONDITION_FAILED
        );
    }

    #[test]
    fn what_is_no_resource_or_has_no_such_method_needs_none() {
        for private in [false, true] {
            let service = with_token(private, false);
            for (method, target, status) in [
                (Method::Delete, "/colors", StatusCode::METHOD_NOT_ALLOWED),
                (Method::Post, "/colors/red", StatusCode::METHOD_NOT_ALLOWED),
                (Method::Patch, "/colors/red", StatusCode::METHOD_NOT_ALLOWED),
                (Method::Put, "/health", StatusCode::METHOD_NOT_ALLOWED),
                (Method::Post, "/nowhere", StatusCode::NOT_FOUND),
                (Method::Post, "/colors/%", StatusCode::BAD_REQUEST),
                (Method::Options, "/colors/red", StatusCode::NO_CONTENT),
                (Method::Options, "/colors", StatusCode::NO_CONTENT),
                (Method::Get, "/health", StatusCode::OK),
                (Method::Head, "/openapi.json", StatusCode::OK),
            ] {
                assert_eq!(
                    ask_with(&service, method.clone(), target, "").status,
                    status,
                    "{method:?} {target}"
                );
            }
            let read_only = with_token(private, true);
            assert_eq!(
                ask_with(&read_only, Method::Delete, "/colors/red", "").status,
                StatusCode::METHOD_NOT_ALLOWED
            );
        }
    }

    #[test]
    fn reads_of_colors_need_one_when_they_are_private() {
        for private in [false, true] {
            let service = with_token(private, false);
            for (target, is_there) in
                [("/colors", true), ("/colors/red", true), ("/colors/no", false)]
            {
                for method in [Method::Get, Method::Head] {
                    let found = if is_there { StatusCode::OK } else { StatusCode::NOT_FOUND };
                    let expected = if private { StatusCode::UNAUTHORIZED } else { found };
                    assert_eq!(
                        ask_with(&service, method.clone(), target, "").status,
                        expected,
                        "{method:?} {target}"
                    );
                    let response = ask_with(&service, method, target, "abcdefgh01234567");
                    assert_eq!(
                        (response.status, service.common_fields(None, "", "").is_private),
                        (found, private)
                    );
                }
            }
        }
    }

    #[test]
    fn an_intrusion_is_refused_first() {
        let service = with_token(true, false);
        let fields = Fields { origin: Some("http://evil.example".to_owned()), ..Fields::default() };
        assert_eq!(
            respond(&service, &request(Method::Delete, "/colors/red", fields, "")).status,
            StatusCode::FORBIDDEN
        );
    }
    #[test]
    fn options_say_with_a_challenge_that_a_write_needs_one() {
        let (writable, read_only) = (with_token(false, false), with_token(false, true));
        for (token, challenge) in [
            ("", Some(Challenge::NoToken)),
            ("abcdefgh01234568", Some(Challenge::InvalidToken)),
            ("abcdefgh01234567", None),
        ] {
            let asked = |service, target| ask_with(service, Method::Options, target, token);
            for target in ["/colors", "/colors/red"] {
                assert_eq!(asked(&writable, target).challenge, challenge, "{target} {token}");
                assert_eq!(asked(&read_only, target).challenge, None, "{target} {token}");
            }
            assert_eq!(asked(&writable, "/health").challenge, None, "{token}");
        }
    }
}
