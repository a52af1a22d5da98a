//! Many more clients at once than the service has threads, most of them attackers: legitimate
//! clients are served, and soon. None of these tests runs beside another attack, since it measures
//! for how long one waits.
//!
//! Times are bounds that a slow machine keeps, not the figures that an idle one reaches;
//! `--nocapture` prints those.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::common::harness::{SEED, Server, figures, long_list, wait_until};
use crate::siege::flood::{Attack, REQUEST, RESIDENT_MAX, SOON, Target, narrow};

/// How often drippers send a byte.
const BEAT: Duration = Duration::from_millis(300);

#[test]
fn thousands_of_idle_connections_take_no_threads_and_end_in_time() {
    let target =
        Target::alone(|| Server::durable(SEED, &["--request-timeout", "8", "--keep-alive", "8"]));
    let mut streams = target.connections(2000);
    for stream in streams.iter_mut().step_by(2) {
        stream.write_all(REQUEST.as_bytes()).unwrap();
    }
    assert!(target.time(50).worst() < SOON);
    target.wait_for_few_threads();
    target.wait_until_all_are_closed();
    drop(streams);
    target.check_recovery();
}

#[test]
fn thousands_of_dripping_connections_keep_nobody_waiting() {
    for workers in ["1", "4"] {
        let target = Target::alone(|| Server::durable(SEED, &["--workers", workers]));
        let drippers = Attack::drip(target.server.address, 3000, BEAT);
        let times = target.time(50);
        assert!(times.worst() < SOON, "{:?} with {workers} workers", times.worst());
        drop(drippers);
        target.check_recovery();
    }
}

#[test]
fn responses_that_nobody_reads_are_given_up_at_the_request_timeout() {
    let target = Target::alone(|| {
        Server::durable(&long_list(1_300_000), &["--request-timeout", "5", "--keep-alive", "1"])
    });
    let mut streams: Vec<TcpStream> = (0..100).map(|_| narrow(target.server.address)).collect();
    for stream in &mut streams {
        stream.write_all(b"GET /colors HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    }
    // the 130 MB to be sent are one list of 1.3 MB
    assert!(target.time(20).worst() < SOON);
    target.wait_until_all_are_closed();
    target.check_peak();
    // the kernel would keep megabytes for each client for many minutes after the close
    wait_until("the kernel gives up as well", || target.server.queued_bytes().0 == 0);
    drop(streams);
    target.check_recovery();
}

/// Clients that stop in the middle of what `target` has, each after another change of red: so each
/// has another version.
fn readers_of_versions(target: &Target, path: &str, versions: usize) -> Vec<TcpStream> {
    let mut client = target.server.connect();
    let begin = |version: usize| {
        let value = format!(r#"{{"value":"{}"}}"#, format!("{version:06}").repeat(11_300));
        client.ask("PUT", "/colors/red", &value).expect_status(200);
        let mut reader = narrow(target.server.address);
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        reader.write_all(request.repeat(30).as_bytes()).unwrap();
        reader.read_exact(&mut [0; 100]).unwrap();
        reader
    };
    let readers = (0..versions).map(begin).collect();
    client.ask("PUT", "/colors/red", r##"{"value":"#ff0000"}"##).expect_status(200);
    readers
}

#[test]
fn readers_of_old_colors_keep_nobody_waiting_whatever_name_these_have() {
    let red = vec![r##"{"name":"red","value":"#ff0000"}"##; 43_000];
    let seed = format!("[{}]", red.join(","));
    let target = Target::alone(|| Server::with_seed(&seed, &[]));
    let readers = readers_of_versions(&target, "/colors/red", 1012);
    assert!(target.time(20).worst() < SOON);
    let begun = Instant::now();
    target.server.ask("PUT", "/colors/red", r##"{"value":"#ff0000"}"##).expect_status(200);
    assert!(begun.elapsed() < SOON);
    drop(readers);
    target.wait_until_all_are_closed();
}

#[test]
fn readers_of_old_lists_take_limited_memory() {
    // They are not to be closed for taking too long.
    let options = ["--request-timeout", "5m"];
    let target = Target::alone(|| Server::durable(&long_list(5_000_000), &options));
    let readers = readers_of_versions(&target, "/colors", 150);
    let closed = || target.server.metric(r#"colors_connections_closed_total{reason="old_list"}"#);
    wait_until("most of them are closed", || closed() > 100.0);
    let peak = target.server.proc_status("VmHWM");
    figures(&format!("peak {} MiB", peak / 1024));
    assert!(peak < 160 * 1024, "{peak} KiB");
    drop(readers);
    target.check_recovery();
}

#[test]
fn requests_that_are_almost_whole_take_little_memory_together() {
    let target = Target::alone(|| Server::durable(SEED, &["--request-timeout", "5m"]));
    let mut streams = target.connections(1500);
    let start = format!(
        "POST /colors HTTP/1.1\r\nHost: localhost\r\nContent-Length: 65536\r\n\r\n{}",
        " ".repeat(65_535)
    );
    for stream in &mut streams {
        // Some are refused or closed when all hold too much.
        let _ = stream.write_all(start.as_bytes());
    }
    // connections are accepted in order, so all of them are by the time that these are answered
    assert!(target.time(20).worst() < SOON);
    // 32 MiB are 512 of them
    wait_until("about 32 MiB are held", || target.server.connections() <= 600);
    assert!(target.server.connections() > 100, "the budget was not used");
    assert!(target.server.metric(r#"colors_connections_closed_total{reason="no_room"}"#) > 0.0);
    let peak = target.server.proc_status("VmHWM");
    assert!(peak < 2 * RESIDENT_MAX, "{peak} KiB");
    drop(streams);
    target.check_recovery();
}
