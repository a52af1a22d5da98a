//! Clients that send or take what no legitimate client does: they get a refusal or nothing, and the
//! service frees what they took.
//!
//! Times and sizes are bounds that a slow machine keeps, not the figures that an idle one reaches;
//! `--nocapture` prints those.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use crate::common::client::{Client, request, reset_on_close};
use crate::common::harness::{DEADLINE, SEED, Server, eventually, figures, long_list, wait_until};
use crate::siege::flood::{CONTENT, FIELDS, REQUEST, Target, connect_with_buffers, drip, pour};

/// Checks that a request which begins with `start` and goes on with a byte of `bytes` now and then
/// is over after the request timeout.
#[track_caller]
fn check_slow(start: &str, bytes: &[u8]) {
    let target = Target::start(&["--request-timeout", "5"]);
    let address = target.server.address;
    let outcomes: Vec<(String, Duration)> = thread::scope(|scope| {
        let clients: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    // A connection is closed if this thread sends its first byte too late.
                    (0..20)
                        .map(|_| drip(address, start, bytes, Duration::from_millis(50)))
                        .find(|(response, _)| !response.is_empty())
                        .unwrap()
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    for (response, time) in outcomes {
        assert!(response.starts_with("HTTP/1.1 408 "), "{response:?}");
        let error = "{\"error\":true,\"message\":\"the request did not arrive in time\"}\n";
        assert!(response.ends_with(error), "{response:?}");
        assert!(time >= Duration::from_secs(5), "{time:?}");
    }
    target.check_recovery();
}

#[test]
fn a_request_that_does_not_come_or_drips_ends_at_the_request_timeout() {
    let long = CONTENT.replace("24", "1000");
    let chunked =
        CONTENT.replace("Content-Length: 24", "Transfer-Encoding: chunked").replace('{', "3e0\r\n");
    thread::scope(|scope| {
        for (start, bytes) in [
            (FIELDS, 0),
            (FIELDS, 1000),
            (CONTENT, 0),
            (long.as_str(), 998),
            (chunked.as_str(), 990),
        ] {
            scope.spawn(move || check_slow(start, &vec![b' '; bytes]));
        }
    });
}

/// Checks that requests without end are cut off, having taken few bytes and little memory.
#[track_caller]
fn check_endless(start: &str, again: &str) {
    let target = Target::start(&[]);
    let address = target.server.address;
    thread::scope(|scope| {
        (0..8).for_each(|_| drop(scope.spawn(|| pour(address, start, again))));
    });
    target.check_peak();
    target.check_recovery();
}

#[test]
fn a_request_without_end_is_cut_off() {
    check_endless(FIELDS, "x");
    check_endless("GET /", "x");
    check_endless(FIELDS, "x\r\nX-Again: ");
    let start = CONTENT.replace("Content-Length: 24", "Transfer-Encoding: chunked");
    let start = start.trim_end_matches('{');
    check_endless(start, "1\r\nx\r\n");
    check_endless(start, "1;extension=of-no-use\r\nx\r\n");
    check_endless(&format!("{start}0\r\n"), "Trailer: x\r\n");
}

#[test]
fn what_is_sent_behind_a_refused_request_costs_no_answer_before_it() {
    let target = Target::of(|| Server::durable(&long_list(90_000), &[]));
    for too_much in [
        "POST /colors HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3000000\r\n\r\n",
        "GET / HTTP/0.0\r\n\r\n",
    ] {
        // The service drops what follows for 2 s, in which the client reads what it had no room
        // for: with this buffer, in some ten steps.
        let mut client = Client::new(connect_with_buffers(target.server.address, 64 * 1024));
        let mut sender = client.stream.try_clone().unwrap();
        let requests = "GET /colors HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(8) + too_much;
        thread::scope(|scope| {
            scope.spawn(move || {
                sender.write_all(requests.as_bytes()).unwrap();
                // The service may close before it has read everything.
                let _ = sender.write_all(&vec![b' '; 3_000_000]);
            });
            (0..8).for_each(|_| client.response().expect_status(200));
            let refusal = client.response();
            assert!(refusal.status >= 400 && refusal.closes(), "{refusal:?}");
        });
    }
    target.check_recovery();
}

#[test]
fn a_reader_that_takes_a_little_at_a_time_is_not_given_up() {
    let target = Target::of(|| Server::durable(&long_list(2_600_000), &["--request-timeout", "8"]));
    // a kernel tells the sender of room only when a part of its buffer is free: with a large one,
    // that can be later than the timeout
    let mut client = Client::new(connect_with_buffers(target.server.address, 64 * 1024));
    client.send("GET /colors HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(10));
    // it takes a little for twice the request timeout, and then all the rest
    let mut received = vec![0; 2_000_000];
    for little in received.chunks_mut(50_000) {
        client.stream.read_exact(little).unwrap();
        thread::park_timeout(Duration::from_millis(450));
    }
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    client.stream.read_to_end(&mut received).unwrap();
    assert_eq!(String::from_utf8(received).unwrap().matches(r#""name":"red""#).count(), 10);
    target.check_recovery();
}

#[test]
fn the_kernel_keeps_little_of_the_responses_that_nobody_reads() {
    let target = Target::start(&[]);
    let mut streams = target.connections(40);
    for stream in &mut streams {
        let requests = "GET /colors HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(1000);
        stream.write_all(requests.as_bytes()).unwrap();
    }
    let queued = || target.server.queued_bytes().0;
    let at_last = eventually("nothing more is queued", || {
        let before = queued();
        target.time(20);
        (before > 0 && queued() == before).then_some(before)
    });
    assert!(at_last < streams.len() as u64 * 512 * 1024, "{at_last}");
    drop(streams);
    target.check_recovery();
}

#[test]
fn connections_reset_at_once_leave_nothing_behind() {
    let target = Target::start(&[]);
    for number in 0..5000 {
        let mut stream = TcpStream::connect(target.server.address).unwrap();
        reset_on_close(&stream);
        stream.write_all([b"", FIELDS.as_bytes(), REQUEST.as_bytes()][number % 3]).unwrap();
    }
    target.check_recovery();
}

#[test]
fn content_of_reads_takes_no_memory_that_changes_need() {
    let target = Target::alone(|| Server::durable(SEED, &["--request-timeout", "5m"]));
    let content = " ".repeat((1 << 20) - 1);
    let mut readers = target.connections(33);
    for (number, reader) in readers.iter_mut().enumerate() {
        let method = ["GET", "HEAD", "OPTIONS", "DELETE"][number % 4];
        let head = format!("{method} /colors/none HTTP/1.1\r\nHost: localhost\r\n");
        let request = format!("{head}Content-Length: {}\r\n\r\n{content}", 1 << 20);
        reader.write_all(request.as_bytes()).unwrap();
    }
    wait_until("all has been received", || target.server.queued_bytes().1 == 0);
    let value = "x".repeat(100_000);
    let change = format!(r#"{{"value":"{value}"}}"#);
    let before = target.server.ask("GET", "/colors/red", "").content;
    target.server.ask("PUT", "/colors/red", &change).expect_status(200);
    target.server.ask("PUT", "/colors/red", &before).expect_status(200);
    for (number, reader) in readers.into_iter().enumerate() {
        let mut client = Client::new(reader);
        client.send(" ");
        let method = ["GET", "HEAD", "OPTIONS", "DELETE"][number % 4];
        let status = if method == "OPTIONS" { 204 } else { 404 };
        client.response_to(method).expect_status(status);
    }
    target.check_recovery();
}

/// Sends lists at the same time, each on a connection of its own; gives the statuses. A client that
/// is refused early may be reset.
fn replace_at_once(target: &Target, lists: &[String]) -> Vec<u16> {
    thread::scope(|scope| {
        let clients: Vec<_> = lists
            .iter()
            .map(|list| {
                let mut stream = TcpStream::connect(target.server.address).unwrap();
                stream.set_read_timeout(Some(5 * DEADLINE)).unwrap();
                scope.spawn(move || {
                    // The service may close before it has read everything.
                    let _ = stream.write_all(
                        request("PUT", "/colors", "Host: localhost\r\n", list).as_bytes(),
                    );
                    let mut status = [0; "HTTP/1.1 200".len()];
                    stream
                        .read_exact(&mut status)
                        .ok()
                        .map(|()| str::from_utf8(&status[9..]).unwrap().parse().unwrap())
                })
            })
            .collect();
        clients.into_iter().filter_map(|client| client.join().unwrap()).collect()
    })
}

#[test]
fn many_long_lists_at_once_take_limited_memory() {
    let short = vec![format!("[{}]", vec![r#"{"name":"","value":""}"#; 40_000].join(",")); 48];
    let long: Vec<String> = (0..4).map(|number| long_list(16_000_000 + 4096 * number)).collect();
    // a build without optimization takes long for them on a busy machine
    let options = ["--max-body", "16MiB", "--request-timeout", "5m"];
    for (lists, peak_max) in [(short, 160 * 1024), (long, 300 * 1024)] {
        for start in [Server::with_seed, Server::durable] {
            let target = Target::of(|| start(SEED, &options));
            let statuses = replace_at_once(&target, &lists);
            let made = statuses.iter().filter(|status| **status == 200).count();
            let peak = target.server.proc_status("VmHWM");
            figures(&format!("{made} of {} were made, peak {} MiB", lists.len(), peak / 1024));
            // one is made, and none is refused but for its size
            let is_known = |status: &u16| [200, 503].contains(status);
            assert!(made > 0 && statuses.iter().all(is_known), "{statuses:?}");
            let list = target.server.list();
            assert!(lists.iter().any(|sent| format!(r#"{{"data":{sent}}}"#) == list));
            assert!(peak < peak_max, "{peak} KiB");
            assert_eq!(target.server.ask("PUT", "/colors", "[]").content, r#"{"data":[]}"#);
            target.wait_until_all_are_closed();
            // the C library keeps more of the memory than `check_recovery` lets pass: 67 MiB, also
            // after the same attack has been made six times
            let log = target.server.log();
            assert!(!log.contains("ERROR") && !log.contains("panicked"), "{log}");
        }
    }
}
