//! Other programs that write to the database while the service runs: what they commit counts, and
//! nobody is kept out for longer than a save.

use std::thread;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use crate::common::client::request;
use crate::common::harness::{
    DEADLINE, Scratch, Server, at_once, colors, eventually, run, stored, wait_until,
};
use crate::common::process::on_log_of;
use crate::wire::durable::{A, not_saved};

const B: &str = r#"{"name":"b","value":"2"}"#;

/// A service with a database of its own, and the connection to it of another program, which waits
/// for the write lock.
struct Shared {
    server: Server,
    other: Connection,
    file: String,
    _scratch: Scratch,
}

impl Shared {
    fn start(list: &str) -> Self {
        let (scratch, file, server) = Server::kept(list);
        let other = Connection::open(&file).unwrap();
        other.busy_timeout(DEADLINE).unwrap();
        Self { server, other, file, _scratch: scratch }
    }

    #[track_caller]
    fn run(&self, statements: &str) {
        self.other.execute_batch(statements).unwrap();
    }

    fn health(&self) -> u16 {
        self.server.ask("GET", "/health", "").status
    }
}

fn envelope(colors: &[&str]) -> String {
    format!(r#"{{"data":[{}]}}"#, colors.join(","))
}

#[test]
fn a_stop_beside_an_older_transaction_says_what_belongs_together() {
    let shared = Shared::start(&format!("[{A}]"));
    shared.run("BEGIN; SELECT * FROM color");
    shared.server.ask("PUT", "/colors/a", r#"{"value":"2"}"#).expect_status(200);
    let list = shared.server.list();
    let log = shared.server.stop();
    let last = log.lines().next_back().unwrap();
    let file = &shared.file;
    let reason = "another program has a transaction open";
    let expected = format!("[WARN] stopped; keep {file} and {file}-wal together: {reason}");
    assert!(last.ends_with(&expected), "{log}");
    assert_eq!(stored(&shared.file), list);
}

#[test]
fn what_another_program_does_while_saving_fails_is_what_the_next_change_is_decided_on() {
    let failures = [("fdatasync", "error=EIO"), ("pwrite64", "error=ENOSPC")];
    at_once(failures, |(call, failure)| {
        let shared = Shared::start(&format!("[{A},{B}]"));
        let server = &shared.server;
        let put = |name: &str, value: &str| {
            server.ask("PUT", &format!("/colors/{name}"), &format!(r#"{{"value":"{value}"}}"#))
        };
        put("a", "saved").expect_status(200);
        if !server.strace(&on_log_of(&shared.file, call, failure)) {
            return;
        }
        put("a", "not saved").expect_status(500);
        let tag = server.ask("GET", "/colors/a", "").field("etag").unwrap().to_owned();
        shared.run("DELETE FROM color WHERE name = 'b'; UPDATE color SET value = 'theirs' WHERE name = 'a'");
        assert_eq!(put("b", "lost").status, 404, "they have deleted it");
        server.end_strace();
        // the first changes after that, made before anybody can have looked
        let mut clients = [server.connect(), server.connect()];
        clients[0].send(request("PUT", "/colors/b", "Host: localhost\r\n", r#"{"value":"lost"}"#));
        clients[1].send(request(
            "PUT",
            "/colors/a",
            &format!("Host: localhost\r\nIf-Match: {tag}\r\n"),
            r#"{"value":"mine"}"#,
        ));
        assert_eq!(clients.map(|mut client| client.response().status), [404, 412], "{failure}");
        let theirs = r#"{"name":"a","value":"theirs"}"#;
        let expected = envelope(&[theirs]);
        assert_eq!((server.list(), stored(&shared.file)), (expected.clone(), expected));
        put("a", "mine").expect_status(200);
        wait_until("it recovers", || shared.health() == 200);
    });
}

#[test]
fn what_other_programs_add_beside_the_table_is_their_business() {
    let shared = Shared::start(&format!("[{A}]"));
    shared.run(
        "CREATE TABLE theirs (x REFERENCES color (id)); INSERT INTO theirs VALUES (1); \
         CREATE INDEX i ON color (name COLLATE NOCASE, value DESC); CREATE VIEW v AS SELECT * FROM color; \
         CREATE TRIGGER t AFTER INSERT ON theirs BEGIN DELETE FROM theirs; END",
    );
    let server = &shared.server;
    server.ask("POST", "/colors", A).expect_status(201);
    server.ask("DELETE", "/colors/a", "").expect_status(200);
    server.ask("PUT", "/colors", &format!("[{B}]")).expect_status(200);
    assert_eq!((shared.health(), stored(&shared.file)), (200, envelope(&[B])));
}

#[test]
fn an_index_refuses_a_change_alone() {
    let shared = Shared::start(&format!("[{A}]"));
    let (server, file) = (&shared.server, &shared.file);
    let warning = || {
        let health = server.ask("GET", "/health", "");
        let json: serde_json::Value = serde_json::from_str(&health.content).unwrap();
        (health.status, json["warning"].as_str().unwrap_or_default().to_owned())
    };
    let put = |list: &str, status: u16| server.ask("PUT", "/colors", list).expect_status(status);
    let named = r#"the index "by_name" of another program"#;
    let may_refuse = format!("{named} may refuse changes (409)");
    let refused = format!("{named} refuses this change: UNIQUE constraint failed: color.name");
    shared.run("CREATE UNIQUE INDEX by_name ON color (name)");
    wait_until("it is named", || warning() == (200, may_refuse.clone()));
    let log = server.log_when("it is logged", |log| log.contains("may refuse"));
    assert!(log.contains(&format!("[WARN] {may_refuse}\n")), "{log}");
    // all in one commit
    shared.run("BEGIN IMMEDIATE");
    let mut clients: Vec<_> = (0..40).map(|_| server.connect()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        let name = if number % 2 == 0 { "a".to_owned() } else { number.to_string() };
        let color = format!(r#"{{"name":"{name}","value":"1"}}"#);
        client.send(request("POST", "/colors", "Host: localhost\r\n", &color));
    }
    wait_until("all is received", || server.queued_bytes().1 == 0);
    // a worker submits changes at the end of a pass; the second answer is of another pass
    (0..2).for_each(|_| server.connect().expect_open());
    shared.run("COMMIT");
    for (number, client) in clients.iter_mut().enumerate() {
        match number % 2 {
            0 => client.response().expect_message(409, &refused),
            _ => client.response().expect_status(201),
        }
    }
    // of several edits, none is left
    put(&format!("[{A},{B}]"), 200);
    put(r#"[{"name":"a","value":"new"},{"name":"c","value":"3"},{"name":"c","value":"3"}]"#, 409);
    assert_eq!((server.list(), stored(file)), (envelope(&[A, B]), envelope(&[A, B])));
    // an order of edits of which one would be refused, but not all together
    shared.run("DROP INDEX by_name; CREATE UNIQUE INDEX by_value ON color (value)");
    put(r#"[{"name":"a","value":"2"},{"name":"b","value":"1"}]"#, 200);
    shared.run(
        "CREATE INDEX i ON color (json(value)); CREATE INDEX j ON color (id) WHERE json(value)",
    );
    let several = r#"one of the indexes "by_value", "i", "j" of another program"#;
    server
        .ask("POST", "/colors", r#"{"name":"c","value":"x"}"#)
        .expect_message(409, &format!("{several} refuses this change: malformed JSON"));
    assert_eq!(warning(), (200, format!("{several} may refuse changes (409)")));
    let log = server.log();
    assert!(!log.contains("[ERROR]"), "{log}");
    let (code, _, error) = run(&mut colors(&["--check", "--data", file]));
    let warned = format!("[WARN] {several} may refuse changes (409)\n");
    assert!(code == Some(0) && error.ends_with(&warned), "{error}");
    shared.server.stop();
    let server = Server::start(&["--data", &shared.file]);
    let log = server.log_when("a start names them", |log| log.contains("WARN"));
    assert!(log.lines().nth(1).is_some_and(|line| line.ends_with(warned.trim_end())), "{log}");
    shared.other.execute_batch("DROP INDEX i; DROP INDEX j; DROP INDEX by_value").unwrap();
    wait_until("it is over", || !server.ask("GET", "/health", "").content.contains("warning"));
}

#[test]
fn changes_wait_for_another_program_that_writes_but_not_one_after_the_other() {
    let shared = Shared::start(&format!("[{A}]"));
    let server = &shared.server;
    let put = |value: usize| {
        request("PUT", "/colors/a", "Host: localhost\r\n", &format!(r#"{{"value":"{value}"}}"#))
    };
    shared.run("BEGIN IMMEDIATE; UPDATE color SET value = 'theirs'");
    thread::scope(|scope| {
        for number in 0..8 {
            scope.spawn(move || {
                let mut client = server.connect();
                let sent = Instant::now();
                client.send(put(100 + number));
                let response = client.response();
                let waited = sent.elapsed();
                let message = not_saved("another process has locked the database");
                assert_eq!((response.status, response.message()), (500, message));
                // Those that came later wait on when the first ones have failed.
                assert!(Duration::from_secs(4) < waited, "{number}: {waited:?}");
            });
            assert_eq!(server.ask("GET", "/colors/a", "").content, A);
            thread::park_timeout(Duration::from_millis(400));
        }
    });
    assert_eq!(shared.health(), 503);
    shared.run("COMMIT");
    wait_until("it recovers by itself", || shared.health() == 200);
    assert_eq!(server.ask("GET", "/colors/a", "").content, r#"{"name":"a","value":"theirs"}"#);
}

#[test]
fn what_a_program_commits_that_keeps_the_write_lock_is_shown_beside_changes_that_wait_for_it() {
    // On a busy machine, a save may begin between COMMIT and BEGIN.
    assert!((0..10).any(|_| is_shown_without_a_save()), "a save began each time");
}

/// False if a save has begun. The lock is free for no longer than it takes to ask for it again.
fn is_shown_without_a_save() -> bool {
    let shared = Shared::start(&format!("[{A}]"));
    let server = &shared.server;
    shared.run("BEGIN IMMEDIATE");
    let mut waiting = server.connect();
    let mut colors = vec![A.to_owned()];
    // while a change waits for the lock, and after one has failed for want of it
    for name in ["b", "c", "d", "e"] {
        let change = request("PUT", "/colors/a", "Host: localhost\r\n", r#"{"value":"2"}"#);
        waiting.send(change);
        shared.run(&format!(
            "INSERT INTO color (name, value) VALUES ('{name}', '1'); COMMIT; BEGIN IMMEDIATE"
        ));
        colors.push(format!(r#"{{"name":"{name}","value":"1"}}"#));
        let expected = envelope(&colors.iter().map(String::as_str).collect::<Vec<_>>());
        let saved = expected.replacen(A, r#"{"name":"a","value":"2"}"#, 1);
        let list = eventually("it is shown", || {
            Some(server.list()).filter(|list| [&expected, &saved].contains(&list))
        });
        if list == saved {
            return false;
        }
        if name == "c" && waiting.response().status != 500 {
            return false;
        }
    }
    shared.run("COMMIT");
    wait_until("saving works again", || shared.health() == 200);
    true
}

#[test]
fn a_program_that_takes_the_write_lock_again_and_again_starves_no_change() {
    let shared = Shared::start(&format!("[{A}]"));
    shared.run("CREATE TABLE theirs (number INTEGER)");
    let (server, other) = (&shared.server, &shared.other);
    thread::scope(|scope| {
        let changing = scope.spawn(|| {
            let mut client = server.connect();
            for value in 2..12 {
                let update = format!(r#"{{"value":"{value}"}}"#);
                // On a busy machine, one may find no moment within its 5 s.
                wait_until("it is made", || client.ask("PUT", "/colors/a", &update).status == 200);
            }
        });
        while !changing.is_finished() {
            // held for longer than it is free, which is longer than between two tries of the service
            let statements = "BEGIN IMMEDIATE; INSERT INTO theirs VALUES (1); DELETE FROM theirs";
            other.execute_batch(statements).unwrap();
            thread::park_timeout(Duration::from_millis(20));
            other.execute_batch("COMMIT").unwrap();
            thread::park_timeout(Duration::from_millis(5));
        }
    });
}
