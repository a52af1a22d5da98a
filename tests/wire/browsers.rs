//! What browsers get, and what a page can make them send: none of that changes the list, and what
//! other programs send still does. All forms of origins and hosts are in the unit tests; what the
//! page does is in `tests/browser`.

use crate::common::client::{Client, request};
use crate::common::harness::{Scratch, Server, colors};

/// What Chromium sends when it opens an address.
const BROWSER: &str = "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r\n";

#[test]
fn a_client_that_asks_for_html_gets_the_page_at_the_base_path_and_everybody_its_script() {
    for (base, targets) in
        [("", &["/", "/?x"][..]), ("/api/v1", &["/api/v1", "/api/v1/", "/api/v1?x", "/%61pi/v1/"])]
    {
        let server = Server::start(&["--base-path", base]);
        for target in targets {
            let page = server.ask_with("GET", target, BROWSER, "");
            page.expect_field(200, "content-type", Some("text/html; charset=utf-8"));
            assert_eq!(page.field("vary"), Some("Accept"));
            assert_eq!(page.field("referrer-policy"), Some("no-referrer"));
            let condition = format!("{BROWSER}If-None-Match: {}\r\n", page.field("etag").unwrap());
            let current = server.ask_with("GET", target, &condition, "");
            current.expect_field(304, "etag", page.field("etag"));
            assert_eq!(current.field("vary"), Some("Accept"));
            let script = server.ask("GET", &format!("{base}/page/files.js?1"), "");
            script.expect_field(200, "content-type", Some("text/javascript; charset=utf-8"));
            assert!(script.content.contains("\nexport const read ="));
            for field in ["content-security-policy", "referrer-policy", "cache-control"] {
                assert_eq!(script.field(field), page.field(field));
            }
        }
    }
}

#[test]
fn with_allowed_hosts_the_host_counts_on_every_tcp_listener_and_on_no_unix_socket() {
    let scratch = Scratch::new();
    let socket = scratch.file("s");
    // what a container listens on, however its port is published
    let listen = ["--listen", "0.0.0.0:0", "--listen", &format!("unix:{socket}")];
    let start = |arguments: &[&str]| Server::spawn(colors(&[&listen, arguments].concat()));
    let ask = |host: &str| request("GET", "/colors", &format!("Host: {host}\r\n"), "");
    let statuses = |server: &Server| {
        ["evil.example", "own.example", "127.0.0.1:8080", "localhost:8080"]
            .map(|host| server.connect().send(ask(host)).response().status)
    };
    assert_eq!(statuses(&start(&[])), [200, 200, 200, 200]);
    let server = start(&["--allow-host", "own.example"]);
    assert_eq!(statuses(&server), [403, 200, 200, 200]);
    Client::on_unix(&socket).send(ask("evil.example")).response().expect_status(200);
}

#[test]
fn a_page_of_an_allowed_origin_may_read_why_its_request_was_refused_unread() {
    let scratch = Scratch::new();
    let tokens = scratch.write_tokens("a-token-0123456789");
    let origin = "https://friend.example";
    let exposed = "ETag, Location, Preference-Applied";
    let server = Server::start(&["--allow-origin", origin, "--private", "--token-file", &tokens]);
    for (lines, status, allowed) in [
        ("Host: localhost\r\nOrigin: {o}\r\nContent-Length: 1048577\r\n\r\n", 413, Some(origin)),
        // the field may come behind what is wrong
        ("Content-Length: 1\r\nContent-Length: 1\r\nOrigin: {o}\r\n\r\n", 400, Some(origin)),
        ("Origin: {o}\r\n\r\n", 400, Some(origin)),
        // no further than the head was read
        ("A B: c\r\nOrigin: {o}\r\n\r\n", 400, None),
    ] {
        let mut client = server.connect();
        client.send(format!("POST /colors HTTP/1.1\r\n{}", lines.replace("{o}", origin)));
        let response = client.response();
        response.expect_field(status, "access-control-allow-origin", allowed);
        let may_read = allowed.map(|_| exposed);
        response.expect_field(status, "access-control-expose-headers", may_read);
        let expected = (Some("Origin"), Some("private, no-cache"));
        assert_eq!((response.field("vary"), response.field("cache-control")), expected, "{lines}");
    }
}
