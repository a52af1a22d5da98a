//! The contract, row by row, without a socket.

#[path = "access_tests.rs"]
mod access;
#[path = "conditional_tests.rs"]
mod conditional;

use bounded_http::Handle;
use tiny_http::{Method, StatusCode};

use super::*;
use crate::http::{Request, RequestFields, TestRequest};
use crate::store::{Color, ColorList};
use bounded_http::Parser;

impl Service {
    /// A service of these colors in memory with one worker.
    fn of(colors: ColorList, options: Options, tokens: Option<Tokens>) -> Self {
        let list = SharedList::new(colors, Box::new(|_| ()));
        let server = Handle::new(1, limits(&options, 10, 10_000)).unwrap();
        let waits = Waits::new(server.clone(), 1);
        Self {
            checks_host: vec![false, true],
            ..Self::in_memory(list.into(), options, tokens, waits, server)
        }
    }
}

/// A service with the colors `red`, `blue` and a second `red`.
fn service() -> Service {
    service_with(Options::default(), None)
}

fn service_with(options: Options, tokens: Option<Tokens>) -> Service {
    let color = |name: &str, value: &str| Color::new(name, value);
    let colors =
        ColorList::from_iter([color("red", "#f00"), color("blue", "#00f"), color("red", "#e00")]);
    Service::of(colors, options, tokens)
}

const LIST: &str = concat!(
    r##"{"data":[{"name":"red","value":"#f00"},{"name":"blue","value":"#00f"},"##,
    r##"{"name":"red","value":"#e00"}]}"##
);

fn request(method: Method, target: &str, fields: RequestFields, content: &str) -> TestRequest {
    request_for(None, method, target, fields, content)
}

/// The same for a host.
fn request_for(
    host: Option<&str>,
    method: Method,
    target: &str,
    fields: RequestFields,
    content: &str,
) -> TestRequest {
    let mut request = TestRequest::with_fields(&method, target, host, fields);
    request.content = content.into();
    request
}

fn respond(service: &Service, request: &TestRequest) -> Response {
    let thread = Thread::LongAnswers { queued_at: std::time::Instant::now() };
    let request = Request { listener: 1, ..request.request() };
    match service.decide(&request, thread) {
        Decision::Respond(response) => response,
        _ => panic!("nothing is to be waited for"),
    }
}

fn ask(service: &Service, method: Method, target: &str, content: &str) -> Response {
    respond(service, &request(method, target, RequestFields::default(), content))
}

/// The content without the line feed at its end.
#[track_caller]
fn json(response: &Response) -> &str {
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

/// What the head decides is decided before content is received.
#[test]
fn a_refusal_by_the_head_closes_the_connection_if_content_follows() {
    for content in ["", "{}"] {
        let mut parser = Parser::default();
        let length = content.len();
        let head = format!("POST /no HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n");
        parser.append(format!("{head}\r\n{content}").as_bytes());
        let (head, content) = parser.next_request(2).unwrap().unwrap();
        let response = respond(&service(), &TestRequest::new(head, content));
        assert_eq!((response.status, response.closes), (StatusCode(404), length > 0));
    }
}

#[test]
fn a_worker_leaves_long_contents_and_lists_to_others() {
    for (method, length, takes_long) in [
        (Method::Post, 16 * 1024, false),
        (Method::Post, 16 * 1024 + 1, true),
        (Method::Put, 2, true),
    ] {
        let content = " ".repeat(length);
        let request = request(method, "/colors", RequestFields::default(), &content);
        let decision = service().decide(&request.request(), Thread::Worker);
        assert_eq!(matches!(decision, Decision::TakesLong), takes_long, "{length}");
    }
}

#[test]
fn reads_answer_the_list_or_the_first_color() {
    check(Method::Get, "/colors", "", StatusCode(200), LIST);
    check(Method::Get, "/colors?sort=name", "ignored", StatusCode(200), LIST);
    check(Method::Head, "/colors", "", StatusCode(200), LIST);
    check(Method::Get, "/colors/red", "", StatusCode(200), r##"{"name":"red","value":"#f00"}"##);
    check(Method::Get, "/colors/r%65d", "", StatusCode(200), r##"{"name":"red","value":"#f00"}"##);
    check(Method::Get, "/colors/Red", "", StatusCode(404), r#"{"error":true}"#);
    check(Method::Get, "/colors/", "", StatusCode(404), r#"{"error":true}"#);
    for method in [Method::Get, Method::Head] {
        let response = ask(&service(), method, "/openapi.json", "");
        assert_eq!(response.status, StatusCode(200));
        assert!(!json(&response).contains('\n'));
    }
}

#[test]
fn a_create_answers_201_and_where_the_color_is() {
    let made = r##"{"name":"a/b","value":"#1"}"##;
    assert_eq!(
        check(Method::Post, "/colors", made, StatusCode(201), made).field("Location"),
        Some("/colors/a%2Fb")
    );
    for made in [r##"{"name":"red","value":"#1"}"##, r##"{"name":"..","value":"#1"}"##] {
        let response = check(Method::Post, "/colors", made, StatusCode(201), made);
        assert_eq!(response.field("Location"), None);
    }
}

#[test]
fn an_update_answers_the_color_as_it_is_now() {
    let made = r##"{"name":"red","value":"#1"}"##;
    let sent = made.replace("red", "x");
    check(Method::Put, "/colors/red", &sent, StatusCode(200), made);
    check(Method::Put, "/colors/red", "{}", StatusCode(200), r##"{"name":"red","value":"#f00"}"##);
    check(Method::Put, "/colors/red", "", StatusCode(200), r##"{"name":"red","value":"#f00"}"##);
    check(Method::Put, "/colors/no", "not JSON", StatusCode(404), r#"{"error":true}"#);
    check(
        Method::Put,
        "/colors/red",
        r#"{"value":1}"#,
        StatusCode(400),
        "{\"error\":true,\"message\":\"invalid type: integer `1`, expected a string at line 1 \
         column 10\"}",
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
            StatusCode(400),
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
        ("/page/files.js", fixed, &[Method::Post, Method::Put, Method::Delete, Method::Patch]),
    ] {
        let options = check(Method::Options, target, "", StatusCode(204), "");
        assert_eq!(allowed(&options), allow);
        for method in refused {
            let message = format!(
                r#"{{"error":true,"message":"the method is not allowed here, only {allow}"}}"#
            );
            let response = check(method.clone(), target, "", StatusCode(405), &message);
            assert_eq!(allowed(&response), allow);
        }
    }
    let options = check(Method::Options, "*", "", StatusCode(204), "");
    assert_eq!(allowed(&options), "GET, HEAD, POST, PUT, DELETE, OPTIONS");
}

/// The methods that a response lists.
fn allowed(response: &Response) -> String {
    response.field("Allow").unwrap_or_default().to_owned()
}

#[test]
fn read_only_allows_only_reads() {
    let options = Options { read_only: true, ..Options::default() };
    let service = service_with(options, None);
    for (method, target) in [
        (Method::Post, "/colors"),
        (Method::Put, "/colors"),
        (Method::Put, "/colors/red"),
        (Method::Delete, "/colors/red"),
    ] {
        let response = ask(&service, method, target, r#"{"name":"a","value":"b"}"#);
        assert_eq!(
            (response.status, allowed(&response).as_str()),
            (StatusCode(405), "GET, HEAD, OPTIONS")
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
    service.server.stop();
    let response = ask(&service, Method::Get, "/health", "");
    assert_eq!(response.status, StatusCode(503));
    assert!(str::from_utf8(response.content.bytes()).unwrap().contains(r#""status":"stopping""#));
}

#[test]
fn targets_that_name_nothing_say_why() {
    let unknown = r#"{"error":true,"message":"no such resource, the list is at /colors"}"#;
    for method in
        [Method::Get, Method::Head, Method::Post, Method::Put, Method::Delete, Method::Patch]
    {
        assert!(check(method, "/", "", StatusCode(404), unknown).varies_by_accept);
    }
    for target in ["//", "/index.html", "/colors/red/"] {
        assert!(!check(Method::Get, target, "", StatusCode(404), unknown).varies_by_accept);
    }
    let escape = "{\"error\":true,\"message\":\"the path has a bad percent escape, or one that \
                  does not decode to UTF-8\"}";
    check(Method::Get, "/colors/%ff", "", StatusCode(400), escape);
    let form = r#"{"error":true,"message":"the request target has to be a path, as in /colors"}"#;
    check(Method::Get, "*", "", StatusCode(400), form);
}

#[test]
fn a_forbidden_request_is_refused_before_anything_else_and_logged() {
    let service = service();
    let ask = |method, target, origin: Option<&str>, host: Option<&str>| {
        let fields =
            RequestFields { origin: origin.map(str::to_owned), ..RequestFields::default() };
        respond(&service, &request_for(host, method, target, fields, ""))
    };
    for target in ["/colors/red", "/nowhere", "/%"] {
        let refused = ask(Method::Delete, target, Some("http://evil.example"), None);
        assert_eq!(
            json(&refused),
            "{\"error\":true,\"message\":\"a page of another origin may not change the list; \
             --allow-origin would allow that origin; behind a proxy, have it keep Host\"}"
        );
        assert_eq!(
            (refused.status, refused.log_detail.rsplit("; ").next()),
            (StatusCode(403), Some(r#"the origin is "http://evil.example""#))
        );
        assert_eq!(ask(Method::Get, target, None, Some("evil.example")).status, StatusCode(403));
    }
    assert_eq!(json(&ask(Method::Get, "/colors", None, None)), LIST);
}

#[test]
fn an_allowed_origin_is_answered_with_cors_fields() {
    let origin = "https://friend.example";
    let options = Options { allow_origin: vec![origin.to_owned()], ..Options::default() };
    let service = service_with(options, None);
    let fields = RequestFields {
        origin: Some(origin.to_owned()),
        preflight_method: Some("DELETE".to_owned()),
        // those of htmx and of Sentry, too, but nothing that is no name of a field
        preflight_fields: Some("hx-request,sentry-trace , a b,,x(".to_owned()),
        ..RequestFields::default()
    };
    for (method, status, methods, names) in [
        (
            Method::Options,
            StatusCode(204),
            Some("GET, HEAD, PUT, DELETE, OPTIONS"),
            Some("hx-request, sentry-trace"),
        ),
        (Method::Delete, StatusCode(200), None, None),
    ] {
        let request = request(method, "/colors/red", fields.clone(), "");
        let allowed_origin = service.common_fields(Some(&request.request())).allowed_origin;
        let response = respond(&service, &request);
        assert_eq!(
            (response.status, allowed_origin, response.field("Access-Control-Allow-Methods")),
            (status, Some(origin), methods)
        );
        assert_eq!(response.field("Access-Control-Allow-Headers"), names);
    }
    for (origin, names) in [(origin, ""), ("https://foe.example", "hx-request")] {
        let fields = RequestFields {
            origin: Some(origin.to_owned()),
            preflight_fields: Some(names.to_owned()),
            ..fields.clone()
        };
        let told = respond(&service, &request(Method::Options, "/colors/red", fields, ""));
        assert_eq!(told.field("Access-Control-Allow-Headers"), None, "{origin}");
    }
    let common = service.common_fields(None);
    assert!(common.allowed_origin.is_none() && common.varies_by_origin);
}

#[test]
fn a_preflight_is_answered_for_every_resource_whatever_its_accept() {
    let fields = |method: &str| RequestFields {
        preflight_method: Some(method.to_owned()),
        ..RequestFields::default()
    };
    for target in ["/", "/colors", "/colors/no", "/health", "/metrics", "/openapi.json", "*"] {
        let response = respond(&service(), &request(Method::Options, target, fields("GET"), ""));
        assert_eq!(
            (response.status, response.field("Allow").is_some()),
            (StatusCode(204), true),
            "{target}"
        );
    }
    let page = respond(&service(), &request(Method::Options, "/", fields("GET"), ""));
    assert_eq!((page.field("Allow"), page.varies_by_accept), (Some("GET, HEAD, OPTIONS"), true));
    assert_eq!(ask(&service(), Method::Options, "/", "").status, StatusCode(404));
    assert_eq!(
        respond(&service(), &request(Method::Get, "/", fields("GET"), "")).status,
        StatusCode(404)
    );
}

#[test]
fn content_with_a_coding_is_refused_where_it_counts() {
    let red = r#"{"name":"red","value":"1"}"#;
    for (method, target, content, status) in [
        (Method::Post, "/colors", red, 415),
        (Method::Post, "/colors", "\u{1f}\u{8b}", 415),
        (Method::Put, "/colors/red", red, 415),
        (Method::Put, "/colors/red", "", 200),
        (Method::Put, "/colors/no", red, 404),
        (Method::Delete, "/colors/red", "", 200),
        (Method::Get, "/colors", red, 200),
    ] {
        let fields =
            RequestFields { content_coding: Some("gzip".to_owned()), ..RequestFields::default() };
        let response = respond(&service(), &request(method.clone(), target, fields, content));
        assert_eq!(response.status.0, status, "{method:?} {target}");
        if status == 415 {
            assert_eq!(
                response.log_detail,
                r#"the content has the coding "gzip", send it without one"#
            );
        }
    }
}

#[test]
fn what_is_sent_instead_of_json_is_answered_with_what_to_send() {
    let form = r##"an object, as in {"name":"red","value":"#f00"}"##;
    let not_json = format!(
        "this is not JSON; send JSON, with double quotes and without a byte order mark: {form}"
    );
    for (content, expected) in [
        ("name=a&value=b", &not_json),
        ("name,value\nred,#f00\n", &not_json),
        ("\"name\",\"value\"\n\"red\",\"#f00\"\n", &not_json),
        ("1,red", &not_json),
        ("1", &format!("invalid type: integer `1`, expected {form}")),
        ("<color/>", &not_json),
        (" ", &not_json),
        ("\u{feff}{}", &not_json),
        ("[]", &format!("invalid type: sequence, expected {form}")),
        (r#"[{"name":"a","value":"b"}]"#, &format!("invalid type: sequence, expected {form}")),
        (r#""a""#, &format!("invalid type: string \"a\", expected {form}")),
    ] {
        for (method, target) in [(Method::Post, "/colors"), (Method::Put, "/colors/red")] {
            let response = ask(&service(), method, target, content);
            let message = response.log_detail.split(" at line ").next();
            assert_eq!(
                (response.status, message),
                (StatusCode(400), Some(expected.as_str())),
                "{content}"
            );
        }
    }
}

#[test]
fn nothing_that_arrives_makes_parser_or_service_panic() {
    const REQUESTS: [&str; 4] = [
        "GET http://localhost:80/colors/%72ed?x HTTP/1.1\r\nHost: localhost.:80\r\n\
         If-None-Match: W/\"a\", *\r\nIf-Match: *\r\n\r\n",
        "POST /colors HTTP/1.1\r\nHost: [::1]\r\nTransfer-Encoding: chunked\r\n\r\n\
         18;a=b\r\n{\"name\":\"a\",\"value\":\"b\"}\r\n0\r\nA: b\r\n\r\n",
        "PUT /colors/red HTTP/1.1\r\nHost: a%20b\r\nContent-Length: 15\r\n\
         Expect: 100-continue\r\nOrigin: http://\u{e9}\r\n\r\n{\"value\":\"\\ud8\"}",
        "OPTIONS * HTTP/1.0\r\nConnection: close, keep-alive\r\nSec-Fetch-Site: none\r\n\
         Access-Control-Request-Method: PUT\r\n\r\n",
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
            while let Ok(Some((head, content))) = parser.next_request(100) {
                assert_ne!(
                    respond(&service, &TestRequest::new(head, content)).status,
                    StatusCode(500),
                    "{:?}",
                    String::from_utf8_lossy(&bytes)
                );
            }
        }
        let refused = parser.abandon().map(|head| TestRequest::new(head, Vec::new()));
        service.common_fields(refused.as_ref().map(TestRequest::request).as_ref());
    }
}
