//! What clients often get wrong, and what they are told, without a socket.

use tiny_http::Method;

use super::tests::{ask, request, respond, service};
use crate::http::{Fields, StatusCode};

#[test]
fn a_preflight_is_answered_for_every_resource_whatever_its_accept() {
    let fields =
        |method: &str| Fields { preflight_method: Some(method.to_owned()), ..Fields::default() };
    for target in ["/", "/colors", "/colors/no", "/health", "/metrics", "/openapi.json", "*"] {
        let response = respond(&service(), &request(Method::Options, target, fields("GET"), ""));
        assert_eq!(
            (response.status, response.field("Allow").is_some()),
            (StatusCode::NoContent, true),
            "{target}"
        );
    }
    let page = respond(&service(), &request(Method::Options, "/", fields("GET"), ""));
    assert_eq!((page.field("Allow"), page.varies_by_accept), (Some("GET, HEAD, OPTIONS"), true));
    assert_eq!(ask(&service(), Method::Options, "/", "").status, StatusCode::NotFound);
    assert_eq!(
        respond(&service(), &request(Method::Get, "/", fields("GET"), "")).status,
        StatusCode::NotFound
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
        (Method::Delete, "/colors/red", red, 200),
        (Method::Get, "/colors", red, 200),
    ] {
        let fields = Fields { content_coding: Some("gzip".to_owned()), ..Fields::default() };
        let response = respond(&service(), &request(method.clone(), target, fields, content));
        assert_eq!(response.status.code(), status, "{method:?} {target}");
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
    let not_json = format!("this is not JSON; send JSON, without a byte order mark: {form}");
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
                (StatusCode::BadRequest, Some(expected.as_str())),
                "{content}"
            );
        }
    }
}
