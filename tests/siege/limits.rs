//! The limit of connections, which follows from that of descriptors, and the time that the end may
//! take.
//!
//! Times are bounds that a slow machine keeps, not the figures that an idle one reaches.

use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::common::client::{Client, request};
use crate::common::harness::{Server, long_list, wait_until};
use crate::siege::flood::{CONTENT, FIELDS, REQUEST, Target};

#[test]
fn at_the_connection_limit_nobody_is_closed_unless_others_wait() {
    const DESCRIPTORS: usize = 100;
    let options = ["--workers", "2", "--request-timeout", "5m"];
    let target = Target::of(|| Server::with_descriptors(DESCRIPTORS, &options));
    let limit = target.server.metric("colors_connections_max") as usize;
    assert!((20..DESCRIPTORS).contains(&limit), "{limit}");
    target.wait_until_all_are_closed();
    let mut clients: Vec<Client> = target.connections(limit).into_iter().map(Client::new).collect();
    for client in &mut clients {
        client.send(&REQUEST[..20]);
    }
    // longer than an unfinished request is left alone when others need its place
    clients[0].expect_nothing_for(Duration::from_millis(2500));
    assert!(!clients.iter().any(|client| client.has_answer()), "nobody needs their places");
    let waiting = target.connections(3);
    let closed = |clients: &[Client]| -> Vec<usize> {
        (0..limit).filter(|client| clients[*client].has_answer()).collect()
    };
    wait_until("as many have given way as wait", || closed(&clients).len() == waiting.len());
    Client::new(waiting[0].try_clone().unwrap()).expect_nothing_for(Duration::from_millis(300));
    // Each of the two workers has every second connection, and closes those of its own first that
    // have stood still longest.
    let closed = closed(&clients);
    for worker in 0..2 {
        let own: Vec<usize> = closed.iter().copied().filter(|it| it % 2 == worker).collect();
        let longest: Vec<usize> = (worker..).step_by(2).take(own.len()).collect();
        assert_eq!(own, longest, "{closed:?}");
    }
    assert_eq!(closed.len(), waiting.len());
    drop(waiting);
    clients[closed[0]].response().expect_status(503);
    // for want of room, and not because a request has taken too long
    let late = r#"colors_connections_closed_total{reason="request"}"#;
    assert_eq!(target.server.metric(late), 0.0);
    drop(clients);
    target.check_recovery();
}

#[test]
fn a_signal_ends_it_in_time_whoever_is_connected() {
    let options = ["--request-timeout", "5m"];
    let target = Target::of(|| Server::durable(&long_list(2_600_000), &options));
    let mut stalled = target.connections(600);
    for (number, stream) in stalled.iter_mut().enumerate() {
        stream.write_all([b"", FIELDS.as_bytes(), CONTENT.as_bytes()][number % 3]).unwrap();
    }
    let mut slow = target.server.connect();
    slow.send("GET /colors HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let answered = AtomicUsize::new(0);
    let begun = thread::scope(|scope| {
        for _ in 0..8 {
            let client = target.server.connect();
            scope.spawn(|| {
                let mut client = client;
                // another value each time: one that is there already is not saved
                let update = |step: usize| format!(r#"{{"value":"{step}"}}"#);
                let mut put = || {
                    let content = update(answered.load(Relaxed));
                    client.try_ask(&request("PUT", "/colors/red", "Host: localhost\r\n", &content))
                };
                // one that is slow looks idle, and is not answered
                while put().is_some_and(|response| !response.closes()) {
                    answered.fetch_add(1, Relaxed);
                }
                client.expect_close();
            });
        }
        wait_until("there is load", || answered.load(Relaxed) > 200);
        target.server.signal(Signal::TERM);
        let begun = Instant::now();
        assert!(slow.response().content.ends_with("\"}]}"));
        begun
    });
    let (status, log) = target.server.wait();
    assert_eq!(status.code(), Some(0), "{log}");
    // without the signal, a request may take five minutes
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}
