//! Conditional requests, without a socket.

use tiny_http::{Method, StatusCode};

use super::{LIST, ask, json, request, respond, service};
use crate::conditions::Conditions;
use crate::http::{RequestFields, Response, is_safe};
use crate::service::Service;
use crate::store::Outcome;

const COLOR: &str = r##"{"name":"red","value":"#1"}"##;

const WRITES: [(Method, &str, &str); 4] = [
    (Method::Post, "/colors", COLOR),
    (Method::Put, "/colors", "[]"),
    (Method::Put, "/colors/red", COLOR),
    (Method::Delete, "/colors/red", ""),
];

/// Asks with If-Match and If-None-Match, in which `T` is the tag of what the target names.
fn ask_if(
    service: &Service,
    (method, target, content): (Method, &str, &str),
    [if_match, if_none_match]: [Option<&str>; 2],
) -> Response {
    let fields = RequestFields { asks_for_html: true, ..RequestFields::default() };
    let read = respond(service, &request(Method::Get, target, fields.clone(), ""));
    let tag = read.tag.map(|tag| tag.to_string()).unwrap_or_default();
    let value = |value: Option<&str>| value.map(|value| value.replace('T', &tag));
    let (if_match, if_none_match) = (value(if_match), value(if_none_match));
    let conditions =
        Conditions::parse(is_safe(&method), if_match.as_deref(), if_none_match.as_deref());
    let fields = RequestFields { conditions, ..fields };
    respond(service, &request(method, target, fields, content))
}

#[test]
fn a_read_is_304_or_412_or_in_full() {
    let service = service();
    for (conditions, status) in [
        ([None, Some("T")], 304),
        ([None, Some("\"x\", W/T")], 304),
        ([None, Some("\"x\"")], 200),
        // A full response is never wrong.
        ([None, Some("x")], 200),
        ([Some("T"), None], 200),
        ([Some("*"), None], 200),
        ([Some("\"x\""), None], 412),
        ([Some("W/T"), None], 412),
        ([Some(""), None], 412),
        ([Some("x"), None], 400),
        // RFC 9110 §13.2.2: If-Match is evaluated first.
        ([Some("\"x\""), Some("T")], 412),
        ([Some("T"), Some("T")], 304),
    ] {
        for target in ["/colors", "/colors/red", "/openapi.json", "/health", "/", "/page/files.js"]
        {
            for method in [Method::Get, Method::Head] {
                let response = ask_if(&service, (method, target, ""), conditions);
                let has_tag = matches!(status, 200 | 304);
                assert_eq!(
                    (response.status.0, response.tag.is_some(), json(&response).is_empty()),
                    (status, has_tag, status == 304),
                    "{target} {conditions:?}"
                );
            }
        }
    }
}

#[test]
fn a_write_under_a_condition_that_fails_is_412_or_400_and_changes_nothing() {
    let service = service();
    for (conditions, status) in [
        ([Some("\"x\""), None], 412),
        ([Some("W/T"), None], 412),
        ([None, Some("*")], 412),
        ([None, Some("W/T")], 412),
        ([Some("x"), None], 400),
        ([None, Some("*, *")], 400),
    ] {
        for write in WRITES {
            let response = ask_if(&service, write.clone(), conditions);
            assert_eq!(response.status.0, status, "{write:?} {conditions:?}");
        }
    }
    assert_eq!(json(&ask(&service, Method::Get, "/colors", "")), LIST);
}

#[test]
fn a_write_under_the_current_tag_goes_ahead_once() {
    for write in WRITES {
        let service = service();
        let tag = ask(&service, Method::Get, write.1, "").tag.unwrap().to_string();
        let status = || ask_if(&service, write.clone(), [Some(&tag), None]).status;
        assert!(matches!(status(), StatusCode(200) | StatusCode(201)), "{write:?}");
        assert_eq!(status(), StatusCode(412), "{write:?}");
    }
}

#[test]
fn a_change_of_a_list_that_others_change_all_the_time_is_refused_as_documented() {
    let service = service();
    let refused = service.response_to(Ok(Outcome::Contended));
    let read = |json: &str| serde_json::from_str::<serde_json::Value>(json).unwrap();
    let document = read(json(&ask(&service, Method::Get, "/openapi.json", "")));
    let documented = &document["components"]["responses"]["NotMade"];
    assert_eq!(refused.status, StatusCode(503));
    assert_eq!(read(json(&refused)), documented["content"]["application/json"]["example"]);
}

#[test]
fn what_else_is_wrong_wins_over_the_condition() {
    let service = service();
    for (method, target, content, status) in [
        (Method::Get, "/colors/no", "", 404),
        (Method::Put, "/colors/no", COLOR, 404),
        (Method::Delete, "/colors/no", "", 404),
        (Method::Post, "/colors/red", COLOR, 405),
        (Method::Options, "/colors/red", "", 204),
        (Method::Post, "/colors", "[]", 400),
        (Method::Put, "/colors", "[7]", 400),
    ] {
        for condition in ["\"x\"", "x"] {
            let what = (method.clone(), target, content);
            let response = ask_if(&service, what, [Some(condition), None]);
            assert_eq!(response.status.0, status, "{method:?} {target} {condition}");
        }
    }
}

#[test]
fn a_put_that_creates_is_refused_where_the_color_is_whatever_its_content() {
    let service = service();
    let put = |name: &str, content: &str, coding: Option<&str>| {
        let fields = RequestFields {
            conditions: Conditions::parse(false, None, Some("*")),
            content_coding: coding.map(str::to_owned),
            ..RequestFields::default()
        };
        let target = format!("/colors/{name}");
        respond(&service, &request(Method::Put, &target, fields, content)).status
    };
    let value = r#"{"value":"1"}"#;
    for content in [value, "", "{}", r#"{"value":1}"#, "{"] {
        for coding in [None, Some("gzip")] {
            assert_eq!(put("red", content, coding), StatusCode(412), "{content}");
        }
    }
    for content in ["", "{}", r#"{"value":1}"#, "{"] {
        assert_eq!(put("new", content, None), StatusCode(400), "{content}");
    }
    assert_eq!(put("new", value, Some("gzip")), StatusCode(415));
    assert_eq!(put("new", value, None), StatusCode(201));
}
