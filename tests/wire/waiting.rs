//! `Prefer: wait` holds a conditional GET until there is something new (docs/http.md, Waiting for a
//! change).

use std::thread;
use std::time::Instant;

use rusqlite::Connection;

use crate::common::client::{Client, request};
use crate::common::harness::{Server, wait_until};

/// Longest wait that a request can ask for, in seconds: what ends sooner was not ended by time.
const LONGEST: u64 = 300;

pub(super) fn tag(server: &Server, target: &str) -> String {
    server.ask("GET", target, "").field("etag").unwrap().to_owned()
}

/// The fields of a request that waits for something newer than this tag.
fn waits(tag: &str) -> String {
    format!("If-None-Match: {tag}\r\nPrefer: wait={LONGEST}\r\n")
}

pub(super) fn waiting(server: &Server) -> usize {
    server.metric("colors_requests_waiting") as usize
}

/// Has a request wait on a connection of its own for what comes after the current state.
pub(super) fn wait_on(server: &Server, method: &str, target: &str) -> Client {
    let before = waiting(server);
    let mut client = server.connect();
    let fields = format!("Host: localhost\r\n{}", waits(&tag(server, target)));
    client.send(request(method, target, &fields, ""));
    wait_until("the request waits", || waiting(server) == before + 1);
    client
}

#[test]
fn without_a_change_the_answer_is_304_after_the_time_asked_for() {
    let server = Server::start(&["--base-path", "/api"]);
    let tag = tag(&server, "/api/colors/red");
    let mut client = server.connect();
    for (prefer, applied) in [("wait=1", Some("wait=1")), ("respond-async, WAIT=0", Some("wait=0"))]
    {
        let fields = format!("If-None-Match: \"x\", W/{tag}\r\nPrefer: {prefer}\r\n");
        let begun = Instant::now();
        let response = client.ask_with("GET", "/api/colors/red", &fields, "");
        response.expect_field(304, "preference-applied", applied);
        assert_eq!(response.field("vary"), Some("Prefer"));
        assert!(prefer != "wait=1" || begun.elapsed().as_secs() > 0);
    }
}

#[test]
fn what_another_program_commits_ends_a_wait() {
    let (_scratch, file, server) = Server::kept(r##"[{"name":"lamp","value":"#111"}]"##);
    let mut client = wait_on(&server, "GET", "/colors/lamp");
    Connection::open(&file).unwrap().execute("UPDATE color SET value = '#222'", []).unwrap();
    client.response().expect(200, r##"{"name":"lamp","value":"#222"}"##);
}

/// Writers change colors all the time while clients follow them. Had one change been missed, its
/// client would wait for minutes.
#[test]
fn who_follows_a_color_misses_nothing_however_many_write() {
    for server in Server::of_both_kinds(r#"[{"name":"a","value":""},{"name":"b","value":""}]"#) {
        let follow = |target: &str| {
            let mut client = server.connect();
            let mut response = client.ask("GET", target, "");
            let last = 1 + usize::from(target == "/colors");
            while response.content.matches("last").count() < last {
                let tag = response.field("etag").unwrap().to_owned();
                response = client.ask_with("GET", target, &waits(&tag), "");
                response.expect_status(200);
                // Nothing is changed back, so each answer is another one.
                assert_ne!(response.field("etag"), Some(&*tag), "{target}");
            }
        };
        let change = |target: &str| {
            let mut client = server.connect();
            for value in (0..100).map(|value| value.to_string()).chain(["last".to_owned()]) {
                let content = format!(r#"{{"value":"{value}"}}"#);
                client.ask("PUT", target, &content).expect_status(200);
            }
        };
        thread::scope(|scope| {
            for target in ["/colors/a", "/colors/b", "/colors/a", "/colors/b", "/colors"] {
                scope.spawn(move || follow(target));
            }
            for target in ["/colors/a", "/colors/b"] {
                scope.spawn(move || change(target));
            }
        });
        wait_until("nobody waits", || waiting(&server) == 0);
    }
}
