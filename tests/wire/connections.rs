//! When a connection stays open and when it closes, that many may be open at once, and that they
//! wait for each other no longer than they have to.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::common::client::{Client, request};
use crate::common::harness::{Server, long_list};

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
fn connections_that_were_slow_to_read_use_no_processor_once_all_is_answered() {
    let seed = long_list(2_600_000);
    let server = Server::with_seed(&seed, &["--keep-alive", "1"]);
    let mut clients: Vec<Client> = (0..8).map(|_| server.connect()).collect();
    let long = "GET /colors HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(4);
    let short = "GET /colors/color-7 HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(60);
    for client in &mut clients {
        client.send(&long).send(&short);
    }
    let list = format!(r#"{{"data":{seed}}}"#);
    std::thread::scope(|scope| {
        for client in &mut clients {
            scope.spawn(|| {
                (0..4).for_each(|_| assert!(client.response().content == list));
                let color = r##"{"name":"color-7","value":"#000007"}"##;
                (0..60).for_each(|_| client.response().expect(200, color));
            });
        }
    });
    let before = server.cpu_ticks().expect("it runs");
    clients.iter_mut().for_each(Client::expect_close);
    // ticks are hundredths of a second, and the wait takes one second
    let ticks = server.cpu_ticks().expect("it runs") - before;
    assert!(ticks < 50, "waiting for a request kept the processor busy: {ticks} ticks");
}

#[test]
fn what_comes_behind_the_last_request_does_not_cost_its_answer() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    client
        .send("GET /colors HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .send(vec![b'x'; 300_000]);
    let response = client.response();
    assert_eq!((response.status, response.closes()), (200, true));
    client.expect_close();
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

#[test]
fn a_change_waits_for_no_more_than_one_that_takes_long() {
    let colors =
        (0..3000).map(|number| format!(r#"{{"name":"{number}","value":"{number:03000}"}}"#));
    let seed = format!("[{}]", colors.collect::<Vec<_>>().join(","));
    let short = r#"{"name":"short","value":""}"#;
    for start in [Server::with_seed, Server::durable] {
        // which receives them in their order
        let server = start(&seed, &["--workers", "1"]);
        let mut clients: Vec<_> = (0..61).map(|_| server.connect()).collect();
        clients.iter_mut().for_each(Client::expect_open);
        let fields = format!("Host: localhost\r\nIf-None-Match: \"{}\"\r\n", "0".repeat(32));
        // all of them have arrived when it goes on, however busy the machine is
        server.pause();
        for client in &mut clients[1..] {
            client.send(request("POST", "/colors", &fields, r#"{"name":"long","value":""}"#));
        }
        clients[0].send(request("POST", "/colors", "Host: localhost\r\n", short));
        server.signal(Signal::CONT);
        clients.iter_mut().for_each(|client| client.response().expect_status(201));
        let list = server.list();
        let before = list.split(short).next().unwrap().matches(r#""long""#).count();
        assert!(before < 30, "{before} of 60 were made before it");
    }
}
