//! SIGTERM and SIGINT: what is under way is finished, what is idle is closed, and the exit
//! code is 0.

use rustix::process::Signal;
use std::io::{BufRead as _, BufReader};

use crate::common::harness::{Scratch, Server, colors, eventually, signal_child, wait_until};

#[test]
fn a_signal_while_the_list_is_loaded_ends_the_start() {
    for signal in [Signal::TERM, Signal::INT] {
        let scratch = Scratch::new();
        let seed = scratch.file("seed.json");
        // nobody writes to it
        rustix::fs::mkfifoat(rustix::fs::CWD, &seed, 0o600.into()).unwrap();
        let listen = format!("unix:{}", scratch.file("s"));
        let mut child = colors(&["--seed", &seed, "--listen", &listen]).spawn().unwrap();
        // this end can be opened as soon as the service has opened the other
        let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::NONBLOCK;
        let open = || rustix::fs::open(&seed, flags, rustix::fs::Mode::empty()).ok();
        let _writer = eventually("it reads the seed", open);
        signal_child(&child, signal);
        eventually("the end", || child.try_wait().unwrap());
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), output.stderr), (Some(0), vec![]), "{signal:?}");
    }
}

#[test]
fn a_start_waits_for_one_that_still_answers_its_last_client() {
    let (_scratch, file, server) = Server::kept("[]");
    let mut stalled = server.connect();
    stalled.send("GET /colors/red HTTP/1.1\r\n");
    server.begin_to_stop();
    let mut command = colors(&["--listen", &server.address.to_string(), "--data", &file]);
    let mut child = command.spawn().unwrap();
    let first = BufReader::new(child.stderr.take().unwrap()).lines().next().unwrap().unwrap();
    signal_child(&child, Signal::TERM);
    child.wait().unwrap();
    let listens = format!(" [INFO] listening on http://{} ", server.address);
    assert!(first.contains(&listens), "{first}");
    assert_eq!(server.wait().0.code(), Some(0));
}

#[test]
fn each_signal_ends_an_idle_service_at_once() {
    let check = |signal| {
        let server = Server::start(&[]);
        let mut idle = server.connect();
        idle.expect_open();
        server.signal(signal);
        idle.expect_close();
        let (status, log) = server.wait();
        assert_eq!(status.code(), Some(0), "{log}");
        assert!(log.ends_with("stopped\n") && !log.contains("still open"), "{log}");
    };
    std::thread::scope(|scope| {
        for signal in [Signal::TERM, Signal::INT] {
            scope.spawn(move || check(signal));
        }
    });
}

#[test]
fn a_request_that_has_begun_is_answered_and_closes() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    client.send("GET /colors/red HTTP/1.1\r\nHost: loc");
    server.begin_to_stop();
    client.send("alhost\r\n\r\n");
    let response = client.response();
    assert_eq!((response.status, response.closes()), (200, true));
    client.expect_close();
    // RFC 9112 §9.6: what was on its way by then must not be met with a reset
    client.send("GET /colors/red HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(client.stream.take_error().unwrap().map(|error| error.kind()), None);
    drop(client);
    assert_eq!(server.wait().0.code(), Some(0));
}

#[test]
fn nobody_new_is_served_and_a_request_never_finished_is_cut_off_in_time() {
    let server = Server::start(&[]);
    let mut stalled = server.connect();
    stalled.send("GET /colors/red HTTP/1.1\r\n");
    server.begin_to_stop();
    eventually("connections are refused", || std::net::TcpStream::connect(server.address).err());
    let (status, log) = server.wait();
    assert_eq!(status.code(), Some(0));
    assert!(log.contains("connections closed because they were still open "), "{log}");
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let server = Server::start(&[]);
    let mut stalled = server.connect();
    stalled.send("GET /colors/red HTTP/1.1\r\n");
    server.begin_to_stop();
    stalled.stream.set_nonblocking(true).unwrap();
    wait_until("the connection ends", || {
        server.signal(Signal::TERM);
        stalled.stream.peek(&mut [0]).is_ok_and(|length| length == 0)
    });
    assert_eq!(server.wait().0.code(), Some(1));
}

#[test]
fn two_signals_at_once_are_one() {
    let server = Server::start(&[]);
    let mut stalled = server.connect();
    stalled.send("GET /colors/red HTTP/1.1\r\n");
    server.connect().expect_open();
    // Both are there when it goes on.
    server.pause();
    server.signal(Signal::TERM);
    server.signal(Signal::INT);
    server.signal(Signal::CONT);
    stalled.send("Host: localhost\r\n\r\n");
    stalled.response().expect_status(200);
    assert_eq!(server.wait().0.code(), Some(0));
}
