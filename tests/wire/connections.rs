//! When a connection stays open and when it closes, and that many may be open at once.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::common::client::Client;
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

#[test]
fn a_request_that_is_there_in_time_is_answered_however_late_it_is_seen() {
    let request = "GET /colors/red HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for ending in [None, Some(Signal::TERM)] {
        let server = Server::start(&["--keep-alive", if ending.is_some() { "20" } else { "4" }]);
        let mut clients: Vec<Client> = (0..600).map(|_| server.connect()).collect();
        for client in &mut clients {
            client.send(request).response().expect_status(200);
        }
        // when it runs again, all connections look overdue, and there are more requests than it may
        // see at a time
        server.pause();
        for client in &mut clients {
            client.send(request);
        }
        clients[0].expect_nothing_for(Duration::from_millis(5100));
        ending.into_iter().for_each(|signal| server.signal(signal));
        server.signal(Signal::CONT);
        for client in &mut clients {
            assert_eq!(client.response().status, 200, "{ending:?}");
        }
    }
}

#[test]
fn a_long_color_reaches_slow_readers_whole_however_many_they_are() {
    // the last one is read when all others were, which a busy machine takes long for
    let server = Server::start(&["--max-body", "16MiB", "--request-timeout", "5m"]);
    let value = "x".repeat(15 << 20);
    let color = format!(r#"{{"name":"long","value":"{value}"}}"#);
    server.ask("POST", "/colors", &color).expect_status(201);
    // 120 MiB: each is sent from what the list keeps
    let mut slow: Vec<Client> = (0..8).map(|_| server.connect()).collect();
    for client in &mut slow {
        client.send("GET /colors/long HTTP/1.1\r\nHost: localhost\r\n\r\n");
    }
    server.ask("GET", "/colors/red", "").expect_status(200);
    for client in &mut slow {
        assert!(client.response().content == color);
    }
    let peak = server.proc_status("VmHWM");
    assert!(peak < 128 * 1024, "{peak} KiB");
}
