//! Clients that send or take what no client that means well does: they get a refusal or none, and the service lets go of what they took.
//!
//! Times and sizes are bounds that a slow machine keeps, not the figures that an idle one reaches; those are in README.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::flood::{CONTENT, FIELDS, REQUEST, RESIDENT_MAX, Target, drip, narrow, pour, throw, unsent_bytes};
use crate::harness::{Client, Server, eventually, many_colors};

/// Checks that a request which begins with `start` and goes on with a byte of `bytes` now and then is over after the request timeout.
#[track_caller]
fn check_slow(start: &str, bytes: &[u8]) {
    let target = Target::start(&["--request-timeout", "1", "--keep-alive", "0.2"]);
    let address = target.server.address;
    let outcomes: Vec<(String, Duration)> = thread::scope(|scope| {
        let clients: Vec<_> = (0..8).map(|_| scope.spawn(|| drip(address, start, bytes, Duration::from_millis(50)))).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    for (response, time) in outcomes {
        assert!(response.starts_with("HTTP/1.1 408 "), "{response:?}");
        assert!(response.ends_with(r#"{"error":true,"message":"the request did not arrive in time"}"#), "{response:?}");
        assert!((0.9..6.0).contains(&time.as_secs_f64()), "{time:?}");
    }
    target.check_recovery();
}

#[test]
fn fields_that_never_come_end_at_the_request_timeout() {
    check_slow(FIELDS, b"");
}

#[test]
fn fields_that_drip_end_at_the_request_timeout() {
    check_slow(FIELDS, &[b'x'; 1000]);
}

#[test]
fn clients_that_drip_in_step_end_at_the_request_timeout() {
    // a look at who has waited too long is often due just when their bytes arrive, and must not overlook them for that
    let target = Target::start(&["--request-timeout", "1"]);
    let address = target.server.address;
    for _ in 0..4 {
        let worst = thread::scope(|scope| {
            let clients: Vec<_> = (0..8).map(|_| scope.spawn(|| drip(address, FIELDS, &[b'x'; 1000], Duration::from_millis(50)))).collect();
            clients.into_iter().map(|client| client.join().unwrap().1).max().unwrap()
        });
        assert!(worst < Duration::from_millis(2500), "{worst:?}");
    }
    target.check_recovery();
}

#[test]
fn content_that_never_comes_ends_at_the_request_timeout() {
    check_slow(CONTENT, b"");
}

#[test]
fn content_that_drips_ends_at_the_request_timeout() {
    check_slow(&CONTENT.replace("24", "1000"), &[b' '; 998]);
    check_slow(&CONTENT.replace("Content-Length: 24", "Transfer-Encoding: chunked").replace('{', "3e0\r\n"), &[b' '; 990]);
}

/// Checks that requests without end are cut off soon, having taken little memory.
#[track_caller]
fn check_endless(start: &str, again: &str) {
    let target = Target::start(&[]);
    let address = target.server.address;
    let outcomes: Vec<(usize, Duration)> = thread::scope(|scope| {
        let clients: Vec<_> = (0..8).map(|_| scope.spawn(|| pour(address, start, again))).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    for (taken, time) in outcomes {
        // 1 MiB is read over, and the kernel has buffers on either side
        assert!(taken < 16 << 20, "{taken} bytes of {again:?}");
        assert!(time < Duration::from_secs(3), "{time:?}");
    }
    let peak = target.server.proc_status("VmHWM");
    assert!(peak < RESIDENT_MAX, "{peak} KiB");
    target.check_recovery();
}

#[test]
fn a_field_line_without_end_is_cut_off() {
    check_endless(FIELDS, "x");
    check_endless("GET /", "x");
}

#[test]
fn fields_without_end_are_cut_off() {
    check_endless(FIELDS, "x\r\nX-Again: ");
}

#[test]
fn chunked_content_without_end_is_cut_off() {
    let start = CONTENT.replace("Content-Length: 24", "Transfer-Encoding: chunked");
    let start = start.trim_end_matches('{');
    check_endless(start, "1\r\nx\r\n");
    check_endless(start, "1;extension=of-no-use\r\nx\r\n");
    check_endless(&format!("{start}0\r\n"), "Trailer: x\r\n");
}

#[test]
fn responses_that_nobody_reads_are_given_up_at_the_request_timeout() {
    let target = Target::of(|| Server::with_seed(&many_colors(30_000), &["--request-timeout", "1", "--keep-alive", "1"]));
    let mut streams: Vec<TcpStream> = (0..100).map(|_| narrow(target.server.address)).collect();
    for stream in &mut streams {
        stream.write_all(b"GET /colors HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    }
    // all of them are owed 130 MB, and the service has the 1.3 MB of each once
    assert!(target.time(20).worst() < Duration::from_secs(1));
    let begun = Instant::now();
    target.wait_until_all_are_closed();
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    let peak = target.server.proc_status("VmHWM");
    assert!(peak < RESIDENT_MAX, "{peak} KiB");
    // what is closed here could stay with the kernel for many minutes, megabytes of it for each client
    eventually("the kernel gives up as well", || (unsent_bytes(target.server.address) == 0).then_some(()));
    drop(streams);
    target.check_recovery();
}

#[test]
fn what_is_sent_behind_a_refused_request_costs_no_answer_before_it() {
    let target = Target::of(|| Server::with_seed(&many_colors(2000), &[]));
    for too_much in ["POST /colors HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3000000\r\n\r\n", "GET / HTTP/0.0\r\n\r\n"] {
        let mut client = Client::new(narrow(target.server.address));
        let mut sender = client.stream.try_clone().unwrap();
        let requests = "GET /colors HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(20) + too_much;
        thread::scope(|scope| {
            scope.spawn(move || {
                sender.write_all(requests.as_bytes()).unwrap();
                // The service may close before it has read everything.
                let _ = sender.write_all(&vec![b' '; 3_000_000]);
            });
            (0..20).for_each(|_| assert_eq!(client.response().status, 200));
            let refusal = client.response();
            assert!(refusal.status >= 400 && refusal.closes(), "{refusal:?}");
        });
    }
    target.check_recovery();
}

#[test]
fn a_reader_that_takes_a_little_at_a_time_is_not_given_up() {
    let target = Target::of(|| Server::with_seed(&many_colors(60_000), &["--request-timeout", "1"]));
    let mut client = target.server.connect();
    client.send("GET /colors HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(10));
    // some of the first response for three times as long as it may take none, and the rest in one go
    let (_stop, stopped) = channel::<()>();
    let mut received = vec![0; 1_000_000];
    for little in received.chunks_mut(100_000) {
        client.stream.read_exact(little).unwrap();
        assert_eq!(stopped.recv_timeout(Duration::from_millis(300)), Err(RecvTimeoutError::Timeout));
    }
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    client.stream.read_to_end(&mut received).unwrap();
    assert_eq!(String::from_utf8(received).unwrap().matches(r#""name":"red""#).count(), 10);
    target.check_recovery();
}

#[test]
fn requests_are_not_read_on_while_nobody_reads_the_responses() {
    let target = Target::start(&["--request-timeout", "1"]);
    let requests = REQUEST.repeat(1000);
    let mut streams: Vec<TcpStream> = (0..20).map(|_| narrow(target.server.address)).collect();
    for stream in &mut streams {
        stream.set_write_timeout(Some(Duration::from_millis(50))).unwrap();
        let begun = Instant::now();
        while stream.write_all(requests.as_bytes()).is_ok() {
            assert!(begun.elapsed() < Duration::from_secs(5), "the service still reads");
        }
    }
    target.wait_until_all_are_closed();
    let peak = target.server.proc_status("VmHWM");
    assert!(peak < RESIDENT_MAX, "{peak} KiB");
    target.check_recovery();
}

#[test]
fn absurd_lengths_are_refused_and_large_ones_reserve_nothing() {
    let target = Target::start(&["--max-body", "16777216", "--request-timeout", "1"]);
    let with = |field: &str| format!("POST /colors HTTP/1.1\r\nHost: localhost\r\n{field}\r\n\r\n");
    for (request, status) in [
        (with("Content-Length: 16777217"), 413),
        (with("Content-Length: 4294967296"), 413),
        (with("Content-Length: 9223372036854775807"), 413),
        (with("Content-Length: 18446744073709551615"), 413),
        (with("Content-Length: 18446744073709551616"), 400),
        (with(&format!("Content-Length: {}", "9".repeat(60_000))), 400),
        (with("Transfer-Encoding: chunked") + "1000001\r\n", 413),
        (with("Transfer-Encoding: chunked") + "ffffffffffffffff\r\n", 413),
        (with("Transfer-Encoding: chunked") + "10000000000000000\r\n", 400),
        (with("Transfer-Encoding: chunked") + &"0".repeat(10_000), 400),
    ] {
        let mut client = target.server.connect();
        client.send(&request);
        assert_eq!(client.response().status, status, "{:?}", &request[..request.len().min(100)]);
        client.expect_close();
    }
    let mut streams = target.connections(500);
    for stream in &mut streams {
        stream.write_all(with("Content-Length: 67108864").as_bytes()).unwrap();
    }
    target.wait_until_all_are_closed();
    let peak = target.server.proc_status("VmHWM");
    assert!(peak < RESIDENT_MAX, "{peak} KiB");
    target.check_recovery();
}

#[test]
fn requests_that_are_almost_whole_take_little_memory_together() {
    let target = Target::start(&[]);
    let mut streams = target.connections(1500);
    let start = format!("POST /colors HTTP/1.1\r\nHost: localhost\r\nContent-Length: 65536\r\n\r\n{}", " ".repeat(65_535));
    for stream in &mut streams {
        // Those that hold most are hung up when all hold too much.
        let _ = stream.write_all(start.as_bytes());
    }
    // those who come last are accepted last, so that all of the others are by now
    assert!(target.time(20).worst() < Duration::from_secs(1));
    // 32 MiB are 512 of them
    eventually("no more than 32 MiB are held", || (target.open_connections() <= 512).then_some(()));
    assert!(target.open_connections() > 400, "and not much less");
    let peak = target.server.proc_status("VmHWM");
    assert!(peak < 2 * RESIDENT_MAX, "{peak} KiB");
    drop(streams);
    target.check_recovery();
}

#[test]
fn random_bytes_get_a_response_or_none_and_change_nothing() {
    let target = Target::start(&[]);
    let mut random = fastrand::Rng::with_seed(9112);
    // none of them can change the list, and what a mutation makes of them is the same in every run
    let valid: [&[u8]; 5] = [
        REQUEST.as_bytes(),
        b"POST /colors HTTP/1.1\r\nHost: localhost\r\nContent-Length: 14\r\n\r\n{\"name\":\"mine\"}",
        b"POST /colors HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\n{\"a\r\n4\r\n\":1}\r\n0\r\nA: b\r\n\r\n",
        b"PUT /colors/not-there HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n{}",
        b"DELETE http://localhost/colors/not-%20there HTTP/1.0\r\nConnection: keep-alive\r\nIf-Match: \"a\", *\r\n\r\n",
    ];
    for number in 0..2000 {
        let mut bytes: Vec<u8> = if number % 4 == 0 {
            (0..random.usize(..2000)).map(|_| random.u8(..)).collect()
        } else {
            (0..random.usize(1..4)).flat_map(|_| valid[random.usize(..valid.len())]).copied().collect()
        };
        for _ in 0..random.usize(..5) {
            let at = random.usize(..=bytes.len());
            match random.u8(..4) {
                0 => bytes.insert(at, random.u8(..)),
                1 => bytes.insert(at, *random.choice(b"\r\n :;,\0\xff").expect("there are some")),
                2 => bytes.truncate(at),
                _ => drop(bytes.drain(at..bytes.len().min(at + random.usize(..9)))),
            }
        }
        let response = throw(target.server.address, &bytes);
        assert!(response.is_empty() || response.starts_with(b"HTTP/1.1 "), "{number}: {:?}", String::from_utf8_lossy(&bytes));
    }
    target.check_recovery();
}

#[test]
fn a_version_that_is_not_spoken_costs_no_worker() {
    let target = Target::start(&["--request-timeout", "20"]);
    let mut clients: Vec<Client> = target.connections(1500).into_iter().map(Client::new).collect();
    for client in &mut clients {
        client.send("GET / HTTP/2.0\r\nHost: localhost\r\n\r\n");
    }
    assert!(target.time(20).worst() < Duration::from_secs(1));
    for client in &mut clients {
        assert_eq!(client.response().status, 505);
        client.expect_close();
    }
    target.wait_until_all_are_closed();
    target.check_recovery();
}

#[test]
fn responses_that_nobody_reads_keep_few_versions_of_the_list() {
    // longer than the 4 MB that the kernel takes of a response by itself
    let target = Target::of(|| Server::with_seed(&many_colors(150_000), &["--request-timeout", "60"]));
    let bytes = target.server.list().len();
    let mut writer = target.server.connect();
    let mut readers = Vec::new();
    for version in 0..60 {
        let mut reader = narrow(target.server.address);
        reader.write_all(b"GET /colors HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        assert_eq!(reader.peek(&mut [0]).unwrap(), 1);
        readers.push(reader);
        assert_eq!(writer.ask("PUT", "/colors/color-0", &format!(r#"{{"value":"{version}"}}"#)).status, 200);
    }
    // 64 MiB of versions are 10; the list itself, its index and the one being made are as much again
    let peak = target.server.proc_status("VmHWM") * 1024;
    assert!(peak < 35 * bytes, "{peak} bytes, {} versions", peak / bytes);
    assert_eq!(writer.ask("PUT", "/colors/color-0", r##"{"value":"#000000"}"##).status, 200);
    drop((readers, writer));
    target.wait_until_all_are_closed();
    assert_eq!(target.server.list().len(), bytes);
}
