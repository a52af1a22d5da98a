//! `PUT /colors`: what counts as a list, who may replace it, and that it is one step for readers
//! and on the disk.

use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};

use crate::common::harness::{Scratch, Server, stored, wait_until};
use crate::common::process::on_log_of;
use crate::wire::durable::not_saved;

const LIST: &str = r#"{"data":[{"name":"a","value":"1"},{"name":"b","value":"2"}]}"#;

/// A list of colors whose names and values are these; whole numbers, so that no escapes are needed.
fn list_of(colors: impl IntoIterator<Item = (usize, usize)>) -> String {
    let colors =
        colors.into_iter().map(|(name, value)| format!(r#"{{"name":"{name}","value":"{value}"}}"#));
    format!(r#"{{"data":[{}]}}"#, colors.collect::<Vec<_>>().join(","))
}

#[test]
fn the_list_is_what_was_sent_in_order_with_duplicates_and_without_further_fields() {
    for server in Server::of_all_kinds(LIST) {
        let mut client = server.connect();
        for (content, list) in [
            (
                r#"[{"name":"z","value":"1"},{"name":"a","value":"2"},{"name":"z","value":"3"},{"name":"z","value":"1"}]"#,
                None,
            ),
            (
                " {\"x\":[7],\"data\" : [ {\"id\":1,\"value\":\"\\u0031\",\"name\":\"\",\"x\":{}} ],\n\"y\":null}\n",
                Some(r#"{"data":[{"name":"","value":"1"}]}"#),
            ),
            ("[]", None),
            (LIST, Some(LIST)),
            (r#"{"data":[]}"#, Some(r#"{"data":[]}"#)),
        ] {
            let list = list.map_or_else(|| format!(r#"{{"data":{content}}}"#), str::to_owned);
            let response = client.ask("PUT", "/colors", content);
            assert_eq!((response.status, response.content.as_str()), (200, list.as_str()));
            // RFC 9110 §9.3.4: what was sent is not what is kept, byte by byte, so there is no tag
            // of it
            assert_eq!((response.field("etag"), response.field("location")), (None, None));
            assert_eq!(server.list(), list);
        }
        assert_eq!(client.ask("GET", "/colors/a", "").status, 404);
        // an empty list is a list
        client.ask_with("PUT", "/colors", "If-Match: *\r\n", LIST).expect(200, LIST);
        client.ask("PUT", "/colors", r#"[{"name":"a","value":"1"},{"name":"a","value":"2"}]"#);
        assert_eq!(client.ask("GET", "/colors/a", "").content, r#"{"name":"a","value":"1"}"#);
        assert!(client.ask("GET", "/health", "").content.contains(r#""colors":2,"#));
    }
}

/// What docs/limits.md says, for the shortest colors, and 8 MiB for all else.
#[test]
fn a_list_and_the_one_that_it_replaces_take_twelve_times_the_content() {
    const CONTENT: usize = 2 * 1024 * 1024;
    let color = r#"{"name":"","value":""}"#;
    // one color fewer each time, so that the lists differ
    let list = |step: usize| {
        format!(r#"{{"data":[{}]}}"#, vec![color; CONTENT / (color.len() + 1) - step].join(","))
    };
    let scratch = Scratch::new();
    let limit = Some((12 * CONTENT + 8 * 1024 * 1024) as u64);
    for data in [&[][..], &["--data", &scratch.file("colors.db")]] {
        // each worker has a stack besides
        let options = ["--workers", "1", "--max-body", "3000000"];
        let server = Server::start(&[&options[..], data].concat());
        let pid = Pid::from_raw(server.pid() as i32);
        prlimit(pid, Resource::Data, Rlimit { current: limit, maximum: limit }).unwrap();
        for step in 0..4 {
            server.ask("PUT", "/colors", &list(step)).expect(200, &list(step));
        }
    }
}

/// As many colors as are more than SQLite keeps in memory before a commit, with values that tell
/// the lists apart: under 1 MiB of JSON.
fn long_list(version: usize) -> String {
    list_of((0..20_000).map(|number| (number, 10_usize.pow(18) + version)))
}

#[test]
fn on_a_full_disk_the_old_list_stays() {
    // the head of the log, its first frames, the pages that do not fit into memory, and what the
    // commit writes
    for write in [1, 4, 100, 250] {
        let scratch = Scratch::new();
        let file = scratch.file("colors.db");
        Server::with_data(&long_list(0), &file, &[]).stop();
        let options = on_log_of(&file, "pwrite64", &format!("error=ENOSPC:when={write}+"));
        let Some(server) = Server::below_strace(&options, &["--data", &file]) else { return };
        for _ in 0..2 {
            let message = not_saved("the disk is full");
            server.ask("PUT", "/colors", &long_list(1)).expect_message(500, &message);
        }
        assert!(server.list() == long_list(0) && stored(&file) == long_list(0), "{write}");
        if write == 100 {
            server.end_strace();
            wait_until("it recovers by itself", || server.ask("GET", "/health", "").status == 200);
            assert!(server.list() == long_list(0));
            server.ask("PUT", "/colors", &long_list(2)).expect_status(200);
            assert!(stored(&file) == long_list(2));
            continue;
        }
        server.signal(Signal::KILL);
        server.wait();
        let again = Server::start(&["--data", &file]);
        assert!(again.list() == long_list(0), "{write}");
        again.ask("PUT", "/colors", "[]").expect_status(200);
    }
}
