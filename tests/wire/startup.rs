//! From the command line to the first request, and everything that keeps it from getting there. And
//! the end, by SIGTERM and SIGINT: what is under way is finished, what is idle is closed, and the
//! exit code is 0.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;

use rustix::process::Signal;

use crate::common::harness::{
    Scratch, Server, colors, colors_from_shell, eventually, run, signal_child, wait_until,
};

/// The text of the one log line, without time and level.
#[track_caller]
fn only_line(log: &str) -> &str {
    assert_eq!(log.lines().count(), 1, "{log}");
    log.trim_end().split_once("[ERROR] ").unwrap().1
}

#[test]
fn an_address_in_use_is_one_clear_line_and_leaves_no_file() {
    let scratch = Scratch::new();
    let server = Server::start(&[]);
    let address = server.address.to_string();
    let socket = format!("unix:{}", scratch.file("s"));
    let (empty, list) = (scratch.write("empty.db", ""), scratch.file("list.db"));
    Server::with_data("[]", &list, &[]).stop();
    let before = fs::read(&list).unwrap();
    for file in [&scratch.file("colors.db"), &empty, &list] {
        let (code, _, log) =
            run(&mut colors(&["--listen", &socket, "--listen", &address, "--data", file]));
        let expected = format!(
            "cannot listen on http://{address}: Address already in use (os error 98); choose another address, port or path with --listen"
        );
        assert_eq!((code, only_line(&log)), (Some(1), expected.as_str()));
        assert_eq!(scratch.names(), ["empty.db", "list.db"]);
        assert_eq!(fs::read_to_string(&empty).unwrap(), "");
        assert!(fs::read(&list).unwrap() == before);
    }
}

#[test]
fn too_few_descriptors_for_a_client_are_refused_with_the_number_that_is_needed() {
    let scratch = Scratch::new();
    let file = scratch.file("colors.db");
    let start = |descriptors: usize| {
        let arguments = ["--listen", "127.0.0.1:0", "--workers", "2", "--data", &file];
        colors_from_shell(&format!("ulimit -n {descriptors} &&"), &arguments)
    };
    let (code, _, log) = run(&mut start(38));
    let expected = "cannot go on: the process may have 38 descriptors and needs 39; raise the limit (ulimit -n, LimitNOFILE=)";
    assert_eq!((code, only_line(&log)), (Some(1), expected));
    assert_eq!(scratch.names(), [""; 0]);
    Server::spawn(start(39)).ask("DELETE", "/colors/red", "").expect_status(200);
}

#[test]
fn threads_have_names_that_tell_them_apart() {
    let writer = Server::start(&[]);
    let url = format!("http://{}", writer.address);
    let scratch = Scratch::new();
    let data = scratch.file("colors.db");
    let server = Server::start(&["--workers", "2", "--data", &data, "--follow", &url]);
    let mut expected = ["follower", "log", "pool", "worker-0", "worker-1", "writer"].to_vec();
    wait_until("all threads have begun", || {
        let tasks = fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
        let names: Vec<String> =
            tasks.flat_map(|task| fs::read_to_string(task.unwrap().path().join("comm"))).collect();
        expected.retain(|name| !names.iter().any(|other| other.trim_end() == *name));
        expected.is_empty()
    });
}

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
    wait_until("it has opened FILE", || {
        let descriptors = fs::read_dir(format!("/proc/{}/fd", child.id())).into_iter().flatten();
        let mut targets = descriptors.flat_map(|it| fs::read_link(it.unwrap().path()));
        targets.any(|target| target == Path::new(&file))
    });
    stalled.send("Host: localhost\r\n\r\n").response().expect_status(404);
    let first = BufReader::new(child.stderr.take().unwrap()).lines().next().unwrap().unwrap();
    signal_child(&child, Signal::TERM);
    child.wait().unwrap();
    let listens = format!(" [INFO] listening on http://{} ", server.address);
    assert!(first.contains(&listens), "{first}");
    assert_eq!(server.wait().0.code(), Some(0));
}

#[test]
fn a_signal_closes_what_is_idle_and_a_request_that_has_begun_is_answered() {
    for signal in [Signal::TERM, Signal::INT] {
        let server = Server::start(&[]);
        let (mut idle, mut client) = (server.connect(), server.connect());
        idle.expect_open();
        client.send("GET /colors/red HTTP/1.1\r\nHost: loc");
        server.signal(signal);
        idle.expect_close();
        client.send("alhost\r\n\r\n");
        let response = client.response();
        assert_eq!((response.status, response.closes()), (200, true));
        client.expect_close();
        // RFC 9112 §9.6: what was on its way by then must not be met with a reset
        client.send("GET /colors/red HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!(client.stream.take_error().unwrap().map(|error| error.kind()), None);
        drop(client);
        let (status, log) = server.wait();
        assert_eq!(status.code(), Some(0), "{log}");
        assert!(log.ends_with("stopped\n") && !log.contains("still open"), "{log}");
    }
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
