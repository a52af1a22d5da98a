//! Clients that send or take what no legitimate client does, thousands at once: legitimate clients
//! are served, and the service frees what the others took. Time-outs, limits and memory of a
//! connection are in the tests of the crate; here is what the kernel, the C library and the whole
//! program add.
//!
//! Sizes are bounds, not the figures that are reached; `--nocapture` prints those.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

use rustix::process::Signal;

use crate::common::client::{request, reset_on_close};
use crate::common::harness::{DEADLINE, SEED, Server, eventually, figures, long_list, wait_until};
use crate::siege::flood::{CONTENT, FIELDS, REQUEST, RESIDENT_MAX, Target, narrow};

/// A request for the list.
const LIST_REQUEST: &str = "GET /colors HTTP/1.1\r\nHost: localhost\r\n\r\n";

#[test]
fn thousands_of_idle_and_stalled_connections_keep_nobody_waiting_and_end_in_time() {
    let target = Target::start(&["--request-timeout", "4", "--keep-alive", "4", "--workers", "1"]);
    let mut streams = target.connections(4000);
    for (number, stream) in streams.iter_mut().enumerate() {
        stream.write_all([b"", FIELDS.as_bytes(), REQUEST.as_bytes()][number % 3]).unwrap();
    }
    target.check_others_are_served();
    target.wait_for_few_threads();
    target.wait_until_all_are_closed();
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
fn responses_that_nobody_reads_are_given_up_by_the_service_and_by_the_kernel() {
    let options = ["--request-timeout", "5", "--keep-alive", "1"];
    let target = Target::of(Server::durable(&long_list(1_300_000), &options));
    let mut streams: Vec<TcpStream> = (0..100).map(|_| narrow(target.server.address)).collect();
    for stream in &mut streams {
        stream.write_all(LIST_REQUEST.as_bytes()).unwrap();
    }
    // the 130 MB to be sent are one list of 1.3 MB
    target.check_others_are_served();
    target.wait_until_all_are_closed();
    let peak = target.server.proc_status("VmHWM");
    assert!(peak < RESIDENT_MAX, "{peak} KiB");
    // the kernel would keep megabytes for each client for many minutes after the close
    wait_until("the kernel gives up as well", || target.server.queued_bytes().0 == 0);
    drop(streams);
    target.check_recovery();
}

#[test]
fn the_kernel_keeps_little_of_the_responses_that_nobody_reads() {
    let target = Target::start(&[]);
    let mut streams = target.connections(40);
    for stream in &mut streams {
        stream.write_all(LIST_REQUEST.repeat(1000).as_bytes()).unwrap();
    }
    let queued = || target.server.queued_bytes().0;
    let at_last = eventually("nothing more is queued", || {
        let before = queued();
        target.check_others_are_served();
        (before > 0 && queued() == before).then_some(before)
    });
    assert!(at_last < streams.len() as u64 * 512 * 1024, "{at_last}");
    drop(streams);
    target.check_recovery();
}

/// Sends lists at the same time, each on a connection of its own; gives the statuses. A client that
/// is refused early may be reset.
fn replace_at_once(target: &Target, lists: &[String]) -> Vec<u16> {
    thread::scope(|scope| {
        let replace = |list: &String| {
            let mut stream = TcpStream::connect(target.server.address).unwrap();
            stream.set_read_timeout(Some(5 * DEADLINE)).unwrap();
            let request = request("PUT", "/colors", "Host: localhost\r\n", list);
            scope.spawn(move || {
                // The service may close before it has read everything.
                let _ = stream.write_all(request.as_bytes());
                let mut status = [0; "HTTP/1.1 200".len()];
                stream.read_exact(&mut status).ok()?;
                str::from_utf8(&status[9..]).unwrap().parse().ok()
            })
        };
        let clients: Vec<_> = lists.iter().map(replace).collect();
        clients.into_iter().filter_map(|client| client.join().unwrap()).collect()
    })
}

#[test]
fn many_long_lists_at_once_take_limited_memory() {
    let short = vec![format!("[{}]", vec![r#"{"name":"","value":""}"#; 40_000].join(",")); 24];
    let long: Vec<String> = (0..4).map(|number| long_list(16_000_000 + 4096 * number)).collect();
    // a build without optimization takes long for them on a busy machine
    let options = ["--max-body", "16MiB", "--request-timeout", "5m"];
    thread::scope(|scope| {
        for (lists, peak_max) in [(&short, 160 * 1024), (&long, 300 * 1024)] {
            for start in [Server::with_seed, Server::durable] {
                let target = Target::of(start(SEED, &options));
                scope.spawn(move || check_memory(&target, lists, peak_max));
            }
        }
    });
}

fn check_memory(target: &Target, lists: &[String], peak_max: usize) {
    let statuses = replace_at_once(target, lists);
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

#[test]
fn a_signal_ends_it_in_time_whoever_is_connected() {
    let options = ["--request-timeout", "5m"];
    let target = Target::of(Server::durable(&long_list(2_600_000), &options));
    let mut stalled = target.connections(600);
    for (number, stream) in stalled.iter_mut().enumerate() {
        stream.write_all([b"", FIELDS.as_bytes(), CONTENT.as_bytes()][number % 3]).unwrap();
    }
    let mut slow = target.server.connect();
    slow.send(LIST_REQUEST);
    let answered = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..8 {
            let mut client = target.server.connect();
            let answered = &answered;
            scope.spawn(move || {
                let mut put = || {
                    // another value each time: one that is there already is not saved
                    let content = format!(r#"{{"value":"{}"}}"#, answered.load(Relaxed));
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
        assert!(slow.response().content.ends_with("\"}]}"));
    });
    // without the signal, a request may take five minutes
    let (status, log) = target.server.wait();
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(log.contains("connections closed because they were still open "), "{log}");
}
