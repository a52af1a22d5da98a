//! Which requests need a token, without a socket.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use tiny_http::{Method, StatusCode};

use super::{LIST, ask, json, request, respond, service_with};
use crate::conditions::Conditions;
use crate::http::{Challenge, Credentials, RequestFields, Response};
use crate::options::Options;
use crate::service::{Service, Tokens};

/// The service with the token in a file of its own.
fn with_token(private: bool, read_only: bool) -> Service {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!("colors-token-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
    let file = std::env::temp_dir().join(name);
    std::fs::write(&file, "abcdefgh01234567").unwrap();
    let tokens = Tokens::new(Path::new(&file));
    tokens.load().unwrap();
    std::fs::remove_file(&file).unwrap();
    service_with(Options { private, read_only, ..Options::default() }, Some(tokens))
}

fn ask_with(service: &Service, method: Method, target: &str, token: &str) -> Response {
    let fields = RequestFields {
        authorization: (!token.is_empty())
            .then(|| Credentials::parse(format!("Bearer {token}").as_bytes())),
        conditions: match method {
            Method::Get | Method::Head => Conditions::default(),
            _ => Conditions::parse(false, Some("\"x\""), None),
        },
        ..RequestFields::default()
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
                (StatusCode(401), Some(challenge)),
                "{method:?} {target}"
            );
            let expected = format!(r#"{{"error":true,"message":"{}"}}"#, challenge.message());
            assert_eq!(json(&refused), expected);
        }
    }
    assert_eq!(json(&ask(&service, Method::Get, "/colors", "")), LIST);
    let token = "abcdefgh01234567";
    assert_eq!(ask_with(&service, Method::Post, "/colors", token).status, StatusCode(400));
    assert_eq!(ask_with(&service, Method::Delete, "/colors/no", token).status, StatusCode(404));
    assert_eq!(ask_with(&service, Method::Delete, "/colors/red", token).status, StatusCode(412));
}

#[test]
fn what_is_no_resource_or_has_no_such_method_needs_none() {
    for private in [false, true] {
        let service = with_token(private, false);
        for (method, target, status) in [
            (Method::Delete, "/colors", StatusCode(405)),
            (Method::Post, "/colors/red", StatusCode(405)),
            (Method::Patch, "/colors/red", StatusCode(405)),
            (Method::Put, "/health", StatusCode(405)),
            (Method::Post, "/nowhere", StatusCode(404)),
            (Method::Post, "/colors/%", StatusCode(400)),
            (Method::Options, "/colors/red", StatusCode(204)),
            (Method::Options, "/colors", StatusCode(204)),
            (Method::Get, "/health", StatusCode(200)),
            (Method::Head, "/openapi.json", StatusCode(200)),
        ] {
            assert_eq!(
                ask_with(&service, method.clone(), target, "").status,
                status,
                "{method:?} {target}"
            );
        }
        let read_only = with_token(private, true);
        assert_eq!(ask_with(&read_only, Method::Delete, "/colors/red", "").status, StatusCode(405));
    }
}

#[test]
fn reads_of_colors_and_metrics_need_one_when_they_are_private() {
    for private in [false, true] {
        let service = with_token(private, false);
        for (target, is_there) in
            [("/colors", true), ("/colors/red", true), ("/colors/no", false), ("/metrics", true)]
        {
            for method in [Method::Get, Method::Head] {
                let found = if is_there { StatusCode(200) } else { StatusCode(404) };
                let expected = if private { StatusCode(401) } else { found };
                assert_eq!(
                    ask_with(&service, method.clone(), target, "").status,
                    expected,
                    "{method:?} {target}"
                );
                let response = ask_with(&service, method, target, "abcdefgh01234567");
                assert_eq!(
                    (response.status, service.common_fields(None).is_private),
                    (found, private)
                );
            }
        }
    }
}

#[test]
fn an_intrusion_is_refused_first() {
    let service = with_token(true, false);
    let fields = RequestFields {
        origin: Some("http://evil.example".to_owned()),
        ..RequestFields::default()
    };
    assert_eq!(
        respond(&service, &request(Method::Delete, "/colors/red", fields, "")).status,
        StatusCode(403)
    );
}

#[test]
fn a_repeated_authorization_is_refused_before_anything_else() {
    let service = with_token(true, false);
    let fields = RequestFields {
        authorization: Some(Credentials::parse(b"Bearer abcdefgh01234567")),
        repeats_authorization: true,
        origin: Some("http://evil.example".to_owned()),
        ..RequestFields::default()
    };
    let refused = "{\"error\":true,\"message\":\"the field Authorization may be given only once\"}";
    for (method, target) in [
        (Method::Get, "/colors"),
        (Method::Get, "/health"),
        (Method::Delete, "/no"),
        (Method::Put, "/%"),
    ] {
        let response = respond(&service, &request(method, target, fields.clone(), ""));
        assert_eq!((response.status, json(&response)), (StatusCode(400), refused), "{target}");
    }
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
        for target in ["/colors", "/colors/red", "*"] {
            assert_eq!(asked(&writable, target).challenge, challenge, "{target} {token}");
            assert_eq!(asked(&read_only, target).challenge, None, "{target} {token}");
        }
        assert_eq!(asked(&writable, "/health").challenge, None, "{token}");
    }
}
