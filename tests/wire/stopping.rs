//! SIGTERM and SIGINT: what is under way is finished, what is idle is closed, and the exit
//! code is 0.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::common::harness::{
    Scratch, Server, colors, eventually, is_installed, own_environment, signal_child, skip,
};

/// The process that this one has started.
fn child_of(pid: u32) -> Option<Pid> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    Pid::from_raw(children.split_whitespace().next()?.parse().ok()?)
}

/// The service, in the middle of reading its seed: a FIFO that nobody writes to.
fn loading(scratch: &Scratch, mut command: Command) -> std::process::Child {
    let seed = scratch.0.join("seed.json");
    rustix::fs::mkfifoat(rustix::fs::CWD, &seed, 0o600.into()).unwrap();
    let socket = scratch.0.join("s");
    command.arg("--seed").arg(&seed).args(["--listen", &format!("unix:{}", socket.display())]);
    let child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    // this end can be opened as soon as the service has opened the other, and is left open without
    // a word
    let open = || {
        let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::NONBLOCK;
        rustix::fs::open(&seed, flags, rustix::fs::Mode::empty()).ok()
    };
    std::mem::forget(eventually("it reads the seed", open));
    child
}

#[test]
fn a_signal_while_the_list_is_loaded_ends_the_start() {
    for signal in [Signal::TERM, Signal::INT] {
        let scratch = Scratch::new();
        let mut child = loading(&scratch, colors(&[]));
        signal_child(&child, signal);
        eventually("the end", || child.try_wait().unwrap());
        let output = child.wait_with_output().unwrap();
        let log = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{signal:?}: {log}");
        assert_eq!(log, "");
    }
}

#[test]
fn a_signal_while_process_1_loads_its_list_ends_the_start() {
    if !is_installed("unshare")
        || !Command::new("unshare").args(["--pid", "--fork", "true"]).status().unwrap().success()
    {
        return skip("unshare may make no namespace");
    }
    let scratch = Scratch::new();
    let mut command = own_environment("unshare");
    command.args(["--pid", "--fork", "--kill-child"]).arg(colors(&[]).get_program());
    let mut child = loading(&scratch, command);
    let first = eventually("process 1", || child_of(child.id()));
    rustix::process::kill_process(first, Signal::TERM).unwrap();
    let status = eventually("the end", || child.try_wait().unwrap());
    assert_eq!(status.code(), Some(0));
}

#[test]
fn a_signal_while_file_is_opened_ends_the_start() {
    let (scratch, file, server) = Server::kept("[]");
    server.stop();
    // has the start wait
    let other = rusqlite::Connection::open(&file).unwrap();
    other.execute_batch("PRAGMA journal_mode=DELETE; BEGIN EXCLUSIVE").unwrap();
    let socket = scratch.file("s");
    let mut command = colors(&["--listen", &format!("unix:{socket}"), "--data", &file]);
    let mut child = command.spawn().unwrap();
    eventually("it listens", || std::os::unix::net::UnixStream::connect(&socket).ok());
    signal_child(&child, Signal::TERM);
    eventually("the end", || child.try_wait().unwrap());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr), (Some(0), vec![]));
}

#[test]
fn a_start_waits_for_one_that_still_answers_its_last_client() {
    let (_scratch, file, server) = Server::kept("[]");
    let mut stalled = server.connect();
    stalled.send("GET /colors/red HTTP/1.1\r\n");
    server.begin_to_stop();
    let mut command = colors(&["--listen", &server.address.to_string(), "--data", &file]);
    let mut child = command.spawn().unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut line = || log.next().unwrap().unwrap();
    let waits = format!(
        " [WARN] waiting for another process of the service, which has {file} open, to stop"
    );
    let first = line();
    let second = line();
    signal_child(&child, Signal::TERM);
    child.wait().unwrap();
    assert!(first.ends_with(&waits), "{first}");
    let listens = format!(" [INFO] listening on http://{} ", server.address);
    assert!(second.contains(&listens), "{second}");
    assert_eq!(server.wait().0.code(), Some(0));
}

#[test]
fn each_signal_ends_an_idle_service_at_once() {
    let check = |signal| {
        let server = Server::start(&[]);
        let mut idle = server.connect();
        idle.expect_open();
        let begun = Instant::now();
        server.signal(signal);
        idle.expect_close();
        let (status, log) = server.wait();
        assert_eq!(status.code(), Some(0), "{log}");
        assert!(begun.elapsed() < Duration::from_secs(5));
        assert!(log.ends_with("stopped\n"), "{log}");
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
    let closed = "connections closed because they were still open 4 s after the signal: 1";
    assert!(log.contains(closed), "{log}");
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let server = Server::start(&[]);
    let mut stalled = server.connect();
    stalled.send("GET /colors/red HTTP/1.1\r\n");
    server.begin_to_stop();
    server.signal(Signal::TERM);
    assert_eq!(server.wait().0.code(), Some(1));
}
