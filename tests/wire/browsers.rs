//! What a web page can make a visitor's browser send: none of it changes the list, and what other
//! programs send still does. All forms of origins and hosts are in the unit tests.

use std::net::Shutdown;

use crate::common::client::Client;
use crate::common::harness::{Scratch, Server, colors};

#[test]
fn with_allowed_hosts_the_host_counts_on_every_tcp_listener_and_on_no_unix_socket() {
    let scratch = Scratch::new();
    let socket = scratch.file("s");
    // what a container listens on, however its port is published
    let listen = ["--listen", "0.0.0.0:0", "--listen", &format!("unix:{socket}")];
    let start = |arguments: &[&str]| Server::spawn(colors(&[&listen, arguments].concat()));
    let statuses = |server: &Server| {
        ["evil.example", "own.example", "127.0.0.1:8080", "localhost:8080"].map(|host| {
            server
                .connect()
                .send(format!("GET /colors HTTP/1.1\r\nHost: {host}\r\n\r\n"))
                .response()
                .status
        })
    };
    assert_eq!(statuses(&start(&[])), [200, 200, 200, 200]);
    let server = start(&["--allow-host", "own.example"]);
    assert_eq!(statuses(&server), [403, 200, 200, 200]);
    let mut client = Client::on_unix(&socket);
    client.send("GET /colors HTTP/1.1\r\nHost: evil.example\r\n\r\n").response().expect_status(200);
}

#[test]
fn pages_of_allowed_origins_are_told_what_they_may_send_and_read() {
    let server = Server::start(&["--allow-origin", "https://friend.example"]);
    let origin = "Origin: https://friend.example\r\n";
    let asked = format!("{origin}Access-Control-Request-Method: PUT\r\n");
    let told = server.ask_with("OPTIONS", "/colors/red", &asked, "");
    told.expect_field(204, "access-control-allow-headers", None);
    let methods = "GET, HEAD, PUT, DELETE, OPTIONS";
    told.expect_field(204, "access-control-allow-methods", Some(methods));
    // those of htmx and of Sentry, too, but nothing that is no name of a field
    let asked =
        format!("{asked}Access-Control-Request-Headers: hx-request,sentry-trace , a b,,x(\r\n");
    let told = server.ask_with("OPTIONS", "/colors/red", &asked, "");
    let fields = Some("hx-request, sentry-trace");
    told.expect_field(204, "access-control-allow-headers", fields);
    let foreign = asked.replace("friend.example", "foe.example");
    let told = server.ask_with("OPTIONS", "/colors/red", &foreign, "");
    told.expect_field(204, "access-control-allow-headers", None);
    let exposed = Some("ETag, Location, Preference-Applied");
    let read = server.ask_with("GET", "/colors", origin, "");
    read.expect_field(200, "access-control-expose-headers", exposed);
}

#[test]
fn a_page_of_an_allowed_origin_may_read_why_its_request_was_refused_unread() {
    let scratch = Scratch::new();
    let tokens = scratch.write_tokens("a-token-0123456789");
    let origin = "https://friend.example";
    let access = ["--allow-origin", origin, "--private", "--token-file", &tokens];
    let server = Server::start(&[&access[..], &["--request-timeout", "5"]].concat());
    let cases = [
        ("Host: localhost\r\nOrigin: {o}\r\nContent-Length: 1048577\r\n\r\n", 413),
        // the field may come behind what is wrong
        ("Content-Length: 1048577\r\nHost: localhost\r\nOrigin: {o}\r\n\r\n", 413),
        ("Content-Length: 1\r\nContent-Length: 1\r\nHost: localhost\r\nOrigin: {o}\r\n\r\n", 400),
        ("Origin: {o}\r\n\r\n", 400),
        (
            "Host: localhost\r\nOrigin: {o}\r\nAuthorization: Bearer a-token-0123456789\r\n\
             Transfer-Encoding: chunked\r\n\r\nnonsense\r\n",
            400,
        ),
        (
            "Host: localhost\r\nOrigin: {o}\r\nAuthorization: Bearer a-token-0123456789\r\n\
             Content-Length: 9\r\n\r\n{",
            408,
        ),
        ("Host: localhost\r\nOrigin: {o}\r\nX: ", 408),
        (&format!("Host: localhost\r\nOrigin: {{o}}\r\nX: {}", "y".repeat(70_000)), 431),
    ];
    // all are sent before the time is over for one
    let clients = cases.map(|(lines, _)| {
        let mut client = server.connect();
        client.send(format!("POST /colors HTTP/1.1\r\n{}", lines.replace("{o}", origin)));
        client
    });
    for (mut client, (lines, status)) in clients.into_iter().zip(cases) {
        let response = client.response();
        assert_eq!(response.status, status, "{lines:.200}");
        assert_eq!(response.field("access-control-allow-origin"), Some(origin), "{lines:.200}");
        assert_eq!(
            (response.field("vary"), response.field("cache-control")),
            (Some("Origin"), Some("private, no-cache")),
            "{lines:.200}"
        );
    }
    // no further than the head was read
    for (bytes, status) in
        [("nonsense\r\n\r\n", 400), ("POST /colors HTTP/1.1\r\nOrigin: https://friend.exam", 400)]
    {
        let mut client = server.connect();
        client.send(bytes).stream.shutdown(Shutdown::Write).unwrap();
        let response = client.response();
        response.expect_field(status, "access-control-allow-origin", None);
        let expected = (Some("Origin"), Some("private, no-cache"));
        assert_eq!((response.field("vary"), response.field("cache-control")), expected, "{bytes}");
    }
}
