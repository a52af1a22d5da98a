//! Conditional requests, without a socket.

use tiny_http::{Method, StatusCode};

use super::Service;
use super::tests::{LIST, ask, json, request, respond, service};
use crate::http::{Fields, Response};

fn ask_if(service: &Service, method: Method, target: &str, fields: &Fields) -> Response {
    respond(service, &request(method, target, fields.clone(), r##"{"name":"red","value":"#1"}"##))
}

#[test]
fn a_read_of_what_the_client_has_is_304() {
    let service = service();
    for target in ["/colors", "/colors/red", "/openapi.json"] {
        let tag = ask(&service, Method::Get, target, "").tag.unwrap().to_string();
        for method in [Method::Get, Method::Head] {
            let same = ask_if(
                &service,
                method.clone(),
                target,
                &Fields { if_none_match: Some(tag.clone()), ..Fields::default() },
            );
            assert_eq!(
                (same.status, same.content.bytes(), same.tag.unwrap().to_string()),
                (StatusCode::NOT_MODIFIED, &[][..], tag.clone())
            );
            let other = ask_if(
                &service,
                method.clone(),
                target,
                &Fields { if_none_match: Some("\"x\"".to_owned()), ..Fields::default() },
            );
            assert_eq!(other.status, StatusCode::OK);
        }
    }
}

#[test]
fn a_write_under_a_failed_condition_is_412_and_changes_nothing() {
    let service = service();
    for (method, target) in
        [(Method::Post, "/colors"), (Method::Put, "/colors/red"), (Method::Delete, "/colors/red")]
    {
        for fields in [
            &Fields { if_match: Some("\"x\"".to_owned()), ..Fields::default() },
            &Fields { if_none_match: Some("*".to_owned()), ..Fields::default() },
        ] {
            assert_eq!(
                ask_if(&service, method.clone(), target, fields).status,
                StatusCode::PRECONDITION_FAILED,
                "{method:?}"
            );
        }
    }
    assert_eq!(json(&ask(&service, Method::Get, "/colors", "")), LIST);
}

#[test]
fn a_write_under_the_current_tag_goes_ahead_once() {
    for (method, target, read) in [
        (Method::Post, "/colors", "/colors"),
        (Method::Put, "/colors/red", "/colors/red"),
        (Method::Delete, "/colors/red", "/colors/red"),
    ] {
        let service = service();
        let tag = ask(&service, Method::Get, read, "").tag.unwrap().to_string();
        let fields = &Fields { if_match: Some(tag), ..Fields::default() };
        assert!(
            matches!(
                ask_if(&service, method.clone(), target, fields).status,
                StatusCode::OK | StatusCode::CREATED
            ),
            "{method:?}"
        );
        assert_eq!(
            ask_if(&service, method.clone(), target, fields).status,
            StatusCode::PRECONDITION_FAILED,
            "{method:?}"
        );
    }
}

#[test]
fn what_else_is_wrong_wins_over_the_condition() {
    let service = service();
    let fields = &Fields { if_match: Some("\"x\"".to_owned()), ..Fields::default() };
    assert_eq!(ask_if(&service, Method::Put, "/colors/no", fields).status, StatusCode::NOT_FOUND);
    assert_eq!(
        ask_if(&service, Method::Delete, "/colors/no", fields).status,
        StatusCode::NOT_FOUND
    );
    assert_eq!(
        ask_if(&service, Method::Post, "/colors/red", fields).status,
        StatusCode::METHOD_NOT_ALLOWED
    );
    let bad = request(Method::Post, "/colors", fields.clone(), "[]");
    assert_eq!(respond(&service, &bad).status, StatusCode::BAD_REQUEST);
}
