//! When a connection stays open and when it closes, and that many may be open at once.

use std::time::{Duration, Instant};

use crate::common::harness::Server;

#[test]
fn the_version_and_the_connection_field_decide_whether_it_stays_open() {
    let server = Server::start(&[]);
    for (request, connection) in [
        ("GET /colors/red HTTP/1.1\r\nHost: localhost\r\n\r\n", "keep-alive"),
        (
            "GET /colors/red HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n",
            "keep-alive",
        ),
        ("GET /colors/red HTTP/1.1\r\nHost: localhost\r\nConnection: x, Close\r\n\r\n", "close"),
        ("GET /colors/red HTTP/1.0\r\n\r\n", "close"),
        (
            "GET /colors/red HTTP/1.0\r\nHost: localhost\r\nConnection: Keep-Alive\r\n\r\n",
            "keep-alive",
        ),
    ] {
        let mut client = server.connect();
        client.send(request);
        let response = client.response();
        response.expect_field(200, "connection", Some(connection));
        if connection == "close" { client.expect_close() } else { client.expect_open() }
    }
}

#[test]
fn every_response_says_how_long_its_connection_may_be_idle_and_that_is_never_too_long() {
    for (option, said) in [("75s", "timeout=75"), ("1999ms", "timeout=1"), ("0.2", "timeout=1")] {
        let server = Server::start(&["--keep-alive", option]);
        let mut client = server.connect();
        for (method, target, content) in [
            ("GET", "/colors/red", ""),
            ("HEAD", "/", ""),
            ("POST", "/colors", "{"),
            ("OPTIONS", "*", ""),
        ] {
            let response = client.ask(method, target, content);
            assert_eq!(response.field("keep-alive"), Some(said), "{method} {option}");
        }
        if option == "0.2" {
            let answered = Instant::now();
            client.expect_close();
            assert!(answered.elapsed() >= Duration::from_millis(1150), "{:?}", answered.elapsed());
        }
    }
    let expected = Some("timeout=75");
    assert_eq!(Server::start(&[]).connect().ask("GET", "/", "").field("keep-alive"), expected);
}
