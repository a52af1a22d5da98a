//! What is a request and what is not, on the wire, once per error: refusals close, and none of
//! their bytes is ever another request. All forms of each error are in the unit tests. Also in what
//! order requests are answered, and when a connection stays open.

use std::net::Shutdown;
use std::time::{Duration, Instant};

use crate::common::client::{Client, request};
use crate::common::harness::{Scratch, Server};

/// A request that would be noticed: it changes the list.
const SMUGGLED: &str = "DELETE /colors/red HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// Even if both are valid: a proxy might have checked one, and the service another.
const TWICE_AUTHORIZED: &str = "Host: localhost\r\nAuthorization: Bearer a-token-0123456789\r\n\
                                Authorization: Bearer a-token-0123456789\r\n";

/// Framing errors as heads without the version, each with the status that answers it in HTTP/1.1.
const REFUSED: [(&str, u16); 9] = [
    ("POST /colors {v}\r\nHost: a\r\nHost: a\r\n\r\n", 400),
    ("POST /colors {v}\r\nHost: a\r\nContent-Length: 3, 4\r\n\r\n{}", 400),
    // 2 bytes for who keeps only 32 bits
    ("POST /colors {v}\r\nHost: a\r\nContent-Length: 4294967298\r\n\r\n{}", 413),
    (
        "POST /colors {v}\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    ("POST /colors {v}\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", 400),
    ("GET /colors {v}\r\nHost: a\r\nX: a\nContent-Length: 3\r\n\r\n", 400),
    ("GET /colors {v}\r\nHost: a\r\n folded: x\r\n\r\n", 400),
    ("nonsense\r\n\r\n", 400),
    ("A-METHOD-THAT-IS-LONGER-THAN-ANY-OTHER", 501),
];

#[test]
fn a_refused_request_closes_and_hides_no_other() {
    let server = Server::start(&["--allow-host", "a"]);
    let before = server.list();
    for version in ["HTTP/1.1", "HTTP/1.0"] {
        for connection in ["", "Connection: keep-alive\r\n", "Connection: close\r\n"] {
            for (request, status) in REFUSED {
                let request = request.replace("{v}", version).replacen(
                    "\r\n",
                    &format!("\r\n{connection}"),
                    1,
                );
                let mut client = server.connect();
                client.send(&request).send(SMUGGLED);
                let response = client.response();
                assert_eq!((response.status, response.closes()), (status, true), "{request:?}");
                client.expect_close();
            }
        }
    }
    assert_eq!(server.list(), before);
}

#[test]
fn a_refused_head_is_answered_without_content() {
    let server = Server::start(&["--request-timeout", "5"]);
    let cases = [
        ("Content-Length: x\r\n\r\n", 400),
        ("Content-Length: 1048577\r\n\r\n", 413),
        ("Expect: wonders\r\n\r\n", 417),
        ("Transfer-Encoding: chunked\r\n\r\nnonsense\r\n", 400),
        ("Content-Length: 3\r\n\r\n{}", 408),
        ("Fie", 408),
    ];
    // all are sent before the time is over for one
    let clients = cases.map(|(rest, _)| {
        let mut client = server.connect();
        client.send(format!("HEAD /colors HTTP/1.1\r\nHost: localhost\r\n{rest}"));
        client
    });
    for (mut client, (rest, status)) in clients.into_iter().zip(cases) {
        assert_eq!(client.response_to("HEAD").status, status, "{rest:?}");
        client.expect_close();
    }
}

#[test]
fn chunked_content_is_content() {
    let server = Server::with_seed("[]", &[]);
    let mut client = server.connect();
    let post = "POST /colors HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
    client.send(post).send("0000000000000000000008;x=y\r\n{\"name\":\r\n10\r\n\"a\",\"value\":\"b\"}\r\n0\r\nTrailer: x\r\n\r\n");
    assert_eq!(client.response().content, r#"{"name":"a","value":"b"}"#);
    client.expect_open();
    let mut client = server.connect();
    client.send(post).send("2\r\n{}0\r\n\r\n").send(SMUGGLED);
    client.response().expect_status(400);
    client.expect_close();
    for size in ["100000002", "ffffffffffffffff"] {
        let mut client = server.connect();
        client.send(post).send(format!("{size}\r\n{{}}\r\n0\r\n\r\n"));
        client.response().expect_status(413);
        client.expect_close();
    }
}

/// A client that reads only when it has sent all, over whatever socket.
#[test]
fn a_refusal_reaches_a_client_that_is_still_sending() {
    let scratch = Scratch::new();
    let (tokens, socket) = (scratch.write_tokens("0123456789abcdef"), scratch.file("socket"));
    let server = Server::start(&["--token-file", &tokens, "--listen", &format!("unix:{socket}")]);
    let head = |length: usize| {
        format!("PUT /colors HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n")
    };
    for (length, status) in [(900_000, 401), (12_000_000, 413)] {
        let request = head(length) + &" ".repeat(length);
        let mut client = server.connect();
        client.send(&request).response().expect_status(status);
        let mut client = Client::on_unix(&socket);
        client.send(&request).response().expect_status(status);
    }
}

#[test]
fn a_request_cut_off_at_any_byte_changes_nothing() {
    let server = Server::with_seed("[]", &[]);
    let color = r#"{"name":"a","value":"b"}"#;
    for request in [
        format!("POST /colors HTTP/1.1\r\nHost: localhost\r\nContent-Length: 24\r\n\r\n{color}"),
        format!(
            "POST /colors HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n18\r\n{color}\r\n0\r\n\r\n"
        ),
    ] {
        for end in 0..request.len() {
            let mut client = server.connect();
            client.send(&request[..end]);
            client.stream.shutdown(Shutdown::Write).unwrap();
            if end > 0 {
                let response = client.response();
                let expected =
                    (400, "the connection ended in the middle of the request".to_owned(), true);
                assert_eq!(
                    (response.status, response.message(), response.closes()),
                    expected,
                    "{:?}",
                    &request[..end]
                );
            }
            client.expect_close();
        }
        assert_eq!(server.list(), r#"{"data":[]}"#);
    }
}

#[test]
fn a_client_that_expects_100_is_told_to_go_on_or_refused_at_once() {
    let server = Server::with_seed("[]", &["--max-body", "100"]);
    let mut client = server.connect();
    client.send("POST /colors HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 24\r\n\r\n");
    client.response().expect_status(100);
    client.send(r#"{"name":"a","value":"b"}"#);
    client.response().expect_status(201);
    // the limit comes before the color that is not there
    for (request_line, length) in [("POST /colors", "101"), ("PUT /colors/no", "10000000000")] {
        let mut client = server.connect();
        client.send(format!("{request_line} HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: {length}\r\n\r\n"));
        let response = client.response();
        response.expect_message(
            413,
            "the content is longer than the limit of 100 bytes; --max-body sets it",
        );
        assert!(response.closes());
        client.expect_close();
    }
}

#[test]
fn what_the_head_decides_is_answered_without_waiting_for_the_content() {
    let scratch = Scratch::new();
    let tokens = scratch.write_tokens("a-token-0123456789");
    let server = Server::start(&["--token-file", &tokens]);
    let before = server.list();
    // which nothing but its place refuses
    let delete =
        SMUGGLED.replace("\r\n\r\n", "\r\nAuthorization: Bearer a-token-0123456789\r\n\r\n");
    let evil = "Host: localhost\r\nOrigin: https://evil.example\r\n";
    for (request_line, fields, status) in [
        ("POST /colors", "Host: localhost\r\n", 401),
        ("PUT /colors/red", "Host: localhost\r\nAuthorization: Bearer another-token-0\r\n", 401),
        ("PUT /colors/red", TWICE_AUTHORIZED, 400),
        ("POST /colors", "Host: evil.example\r\n", 403),
        ("POST /colors", evil, 403),
        ("POST /no", "Host: localhost\r\n", 404),
        ("POST /", "Host: localhost\r\n", 404),
        ("POST /%", "Host: localhost\r\n", 400),
        ("DELETE /colors", "Host: localhost\r\n", 405),
    ] {
        let length = delete.len().to_string();
        for (framing, content) in [
            ("Expect: 100-continue\r\nContent-Length: 5", String::new()),
            ("Expect: 100-continue\r\nTransfer-Encoding: chunked", String::new()),
            (&format!("Content-Length: {length}"), delete.repeat(2)),
        ] {
            let mut client = server.connect();
            client.send(format!("{request_line} HTTP/1.1\r\n{fields}{framing}\r\n\r\n{content}"));
            let response = client.response();
            assert_eq!((response.status, response.closes()), (status, true), "{request_line}");
            client.expect_close();
        }
    }
    assert_eq!(server.list(), before);
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    for server in Server::of_both_kinds("[]") {
        let mut client = server.connect();
        let contents = [(); 20].map(|()| r#"{"name":"a","value":"1"}"#);
        let pair = |content| {
            let read = "GET /colors/a HTTP/1.1\r\nHost: localhost\r\n\r\n";
            let delete = "DELETE /colors/a HTTP/1.1\r\nHost: localhost\r\n\r\n";
            request("POST", "/colors", "Host: localhost\r\n", content) + read + delete + read
        };
        client.send(contents.map(pair).concat());
        for content in contents {
            client.response().expect(201, content);
            client.response().expect(200, content);
            client.response().expect(200, content);
            client.response().expect(404, r#"{"error":true}"#);
        }
        client.expect_open();
    }
}

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
        ("CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n", "close"),
        (
            "GET /colors/red HTTP/1.0\r\nHost: localhost\r\nConnection: Keep-Alive\r\n\r\n",
            "keep-alive",
        ),
    ] {
        let mut client = server.connect();
        client.send(request);
        let response = client.response();
        let status = if request.starts_with("CONNECT") { 400 } else { 200 };
        response.expect_field(status, "connection", Some(connection));
        if connection == "close" { client.expect_close() } else { client.expect_open() }
    }
}

#[test]
fn every_response_says_how_long_its_connection_may_be_idle_and_that_is_never_too_long() {
    for (option, said) in [("75s", "timeout=75"), ("1999ms", "timeout=1"), ("0.2", "timeout=1")] {
        let server = Server::start(&["--keep-alive", option]);
        // A connection for each request: an idle one may be closed before the next.
        let mut client = server.connect();
        let mut asked = Instant::now();
        for (method, target, content) in [
            ("GET", "/colors/red", ""),
            ("HEAD", "/", ""),
            ("POST", "/colors", "{"),
            ("OPTIONS", "*", ""),
        ] {
            client = server.connect();
            asked = Instant::now();
            let response = client.ask(method, target, content);
            assert_eq!(response.field("keep-alive"), Some(said), "{method} {option}");
        }
        if option == "0.2" {
            client.expect_close();
            assert!(asked.elapsed() >= Duration::from_millis(1150), "{:?}", asked.elapsed());
        }
    }
    let expected = Some("timeout=75");
    assert_eq!(Server::start(&[]).connect().ask("GET", "/", "").field("keep-alive"), expected);
}
