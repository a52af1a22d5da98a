//! Refusals by the head alone, on the wire: they come before the content, close, and none of its
//! bytes is ever another request. What is a request and what is not is in the tests of the crate.

use crate::common::client::{Client, request};
use crate::common::harness::{Scratch, Server};

/// A client that reads only when it has sent all, over whatever socket.
#[test]
fn a_refusal_reaches_a_client_that_is_still_sending() {
    let scratch = Scratch::new();
    let (tokens, socket) = (scratch.write_tokens("0123456789abcdef"), scratch.file("socket"));
    let server = Server::start(&["--token-file", &tokens, "--listen", &format!("unix:{socket}")]);
    let too_long = "the content is longer than the limit of 1048576 bytes; --max-body sets it";
    for (length, status, message) in [
        (900_000, 401, "this needs a token, sent as Authorization: Bearer TOKEN"),
        (12_000_000, 413, too_long),
    ] {
        let put = request("PUT", "/colors", "Host: localhost\r\n", &" ".repeat(length));
        server.connect().send(&put).response().expect_message(status, message);
        Client::on_unix(&socket).send(&put).response().expect_message(status, message);
    }
}

#[test]
fn what_the_head_decides_is_answered_without_waiting_for_the_content() {
    let scratch = Scratch::new();
    let tokens = scratch.write_tokens("a-token-0123456789");
    let server = Server::start(&["--token-file", &tokens]);
    let before = server.list();
    let token = "Authorization: Bearer a-token-0123456789\r\n";
    // which nothing but its place refuses
    let delete = request("DELETE", "/colors/red", &format!("Host: localhost\r\n{token}"), "");
    let evil = "Host: localhost\r\nOrigin: https://evil.example\r\n";
    for (request_line, fields, status) in [
        ("POST /colors", "Host: localhost\r\n", 401),
        ("PUT /colors/red", "Host: localhost\r\nAuthorization: Bearer another-token-0\r\n", 401),
        ("PUT /colors/red", &format!("Host: localhost\r\n{token}{token}"), 400),
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
