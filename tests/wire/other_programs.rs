//! Other programs that write to the database while the service runs: what they commit counts, and
//! nobody is kept out for longer than a save.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use rustix::process::Signal;

use crate::common::client::request;
use crate::common::harness::{Scratch, Server, SetOnDrop, colors_below_strace, eventually, stored};

const A: &str = r#"{"name":"a","value":"1"}"#;
const B: &str = r#"{"name":"b","value":"2"}"#;

/// A service with a database of its own, and another program's connection to it.
pub(super) struct Shared {
    pub(super) server: Server,
    pub(super) other: Connection,
    pub(super) file: String,
    _scratch: Scratch,
}

impl Shared {
    pub(super) fn start(list: &str) -> Self {
        let scratch = Scratch::new();
        let file = scratch.file("colors.db");
        let server = Server::with_data(list, &file, &[]);
        Self { server, other: connect(&file), file, _scratch: scratch }
    }

    /// Has the other program run statements.
    #[track_caller]
    fn run(&self, statements: &str) {
        self.other.execute_batch(statements).unwrap();
    }

    /// The status of `/health`.
    fn health(&self) -> u16 {
        self.server.ask("GET", "/health", "").status
    }

    /// How many times the log says that another program has changed the list.
    fn warnings(&self) -> usize {
        self.server.log().matches("[WARN] another program has changed the list").count()
    }
}

/// Waits for the write lock as Litestream does.
fn connect(file: &str) -> Connection {
    let connection = Connection::open(file).unwrap();
    connection.busy_timeout(Duration::from_secs(1)).unwrap();
    connection
}

fn envelope(colors: &[&str]) -> String {
    format!(r#"{{"data":[{}]}}"#, colors.join(","))
}

/// What Litestream 0.3 has SQLite do, but for its reads of FILE-wal: a table that it counts up in,
/// a transaction that stays open between two checkpoints so that nobody else's copies the log, and
/// a write that is rolled back, which keeps writers out for the moment.
fn replicate(file: &str, is_over: &AtomicBool) -> u32 {
    let (writer, reader) = (connect(file), connect(file));
    writer
        .execute_batch("PRAGMA wal_autocheckpoint=0; CREATE TABLE IF NOT EXISTS _litestream_seq (id INTEGER PRIMARY KEY, seq INTEGER)")
        .unwrap();
    writer.execute_batch("CREATE TABLE IF NOT EXISTS _litestream_lock (id INTEGER)").unwrap();
    let mut rounds = 0_u32;
    for mode in ["PASSIVE", "FULL", "RESTART", "TRUNCATE"].iter().cycle() {
        reader.execute_batch("BEGIN; SELECT count(*) FROM _litestream_seq").unwrap();
        thread::park_timeout(Duration::from_millis(300));
        reader.execute_batch("ROLLBACK").unwrap();
        let checkpoint = format!("PRAGMA wal_checkpoint({mode})");
        // SQLite lets nobody wait while the service makes one itself
        let is_done = || {
            (!writer.query_row(&checkpoint, [], |row| row.get::<_, bool>(0)).unwrap()).then_some(())
        };
        eventually("the checkpoint is done", is_done);
        let count_up = "INSERT INTO _litestream_seq (id, seq) VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET seq = seq + 1";
        writer.execute_batch(count_up).unwrap();
        writer
            .execute_batch(
                "BEGIN IMMEDIATE; INSERT INTO _litestream_lock (id) VALUES (1); ROLLBACK",
            )
            .unwrap();
        rounds += 1;
        if is_over.load(Relaxed) {
            break;
        }
    }
    let sequence: u32 =
        writer.query_row("SELECT seq FROM _litestream_seq", [], |row| row.get(0)).unwrap();
    assert_eq!(sequence, rounds);
    rounds
}

#[test]
fn litestreams_statements_and_durable_writers_never_fail_each_other() {
    const WRITERS: usize = 6;
    let colors: Vec<String> =
        (0..WRITERS).map(|number| format!(r#"{{"name":"{number}","value":"0"}}"#)).collect();
    let Shared { server, file, other, _scratch } =
        Shared::start(&format!("[{}]", colors.join(",")));
    drop(other);
    let is_over = AtomicBool::new(false);
    let (rounds, acknowledged) = thread::scope(|scope| {
        let end = SetOnDrop(&is_over);
        let replica = scope.spawn(|| replicate(&file, &is_over));
        let writers: Vec<_> = (0..WRITERS)
            .map(|number| {
                let (mut client, is_over) = (server.connect(), &is_over);
                scope.spawn(move || {
                    let mut step = 0;
                    while !is_over.load(Relaxed) {
                        step += 1;
                        let answer = client.ask(
                            "PUT",
                            &format!("/colors/{number}"),
                            &format!(r#"{{"value":"{step}"}}"#),
                        );
                        assert_eq!(answer.status, 200, "{answer:?}");
                    }
                    step
                })
            })
            .collect();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(10)
            && !replica.is_finished()
            && !writers.iter().any(|writer| writer.is_finished())
        {
            thread::park_timeout(Duration::from_millis(50));
        }
        drop(end);
        let acknowledged: Vec<usize> =
            writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        (replica.join().unwrap(), acknowledged)
    });
    server.signal(Signal::KILL);
    let (_, log) = server.wait();
    crate::common::harness::figures(&format!(
        "{rounds} rounds of Litestream's, {} changes",
        acknowledged.iter().sum::<usize>()
    ));
    assert!(!log.contains("ERROR") && !log.contains("another program has changed"), "{log}");
    let colors: Vec<String> = acknowledged
        .iter()
        .enumerate()
        .map(|(number, value)| format!(r#"{{"name":"{number}","value":"{value}"}}"#))
        .collect();
    assert_eq!(stored(&file), envelope(&colors.iter().map(String::as_str).collect::<Vec<_>>()));
}

#[test]
fn what_another_program_does_while_saving_fails_is_what_the_next_change_is_decided_on() {
    for (call, failure) in [("fdatasync", "error=EIO"), ("pwrite64", "error=ENOSPC")] {
        let shared = Shared::start(&format!("[{A},{B}]"));
        let server = &shared.server;
        let put = |name: &str, value: &str| {
            server.ask("PUT", &format!("/colors/{name}"), &format!(r#"{{"value":"{value}"}}"#))
        };
        assert_eq!(put("a", "saved").status, 200);
        let log = format!("{}-wal", shared.file);
        if !server.strace(&[
            "-P",
            &log,
            "-e",
            &format!("trace={call}"),
            "-e",
            &format!("inject={call}:{failure}"),
        ]) {
            return;
        }
        assert_eq!(put("a", "not saved").status, 500);
        let tag = server.ask("GET", "/colors/a", "").field("etag").unwrap().to_owned();
        shared.run("DELETE FROM color WHERE name = 'b'; UPDATE color SET value = 'theirs' WHERE name = 'a'");
        assert_eq!(put("b", "lost").status, 500, "it was deleted, and the disk fails");
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
        assert_eq!(
            (server.list(), stored_by_sqlite(&shared.other)),
            (envelope(&[theirs]), vec![("a".into(), "theirs".into())])
        );
        assert_eq!(put("a", "mine").status, 200);
        eventually("it recovers", || (shared.health() == 200).then_some(()));
    }
}

/// The list as another program reads it.
fn stored_by_sqlite(connection: &Connection) -> Vec<(String, String)> {
    let mut statement = connection.prepare("SELECT name, value FROM color ORDER BY id").unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.map(Result::unwrap).collect()
}

#[test]
fn a_change_finds_its_color_after_another_program_has_renumbered_the_rows() {
    let shared = Shared::start(&format!("[{A},{B}]"));
    for (renumber, list) in [
        (
            "UPDATE color SET id = 3 - id WHERE id < 0; UPDATE color SET id = -id; UPDATE color SET id = id + 3",
            [A, B],
        ),
        ("UPDATE color SET id = id + 1000", [A, B]),
        ("UPDATE color SET id = CASE name WHEN 'a' THEN -1 ELSE -2 END", [B, A]),
    ] {
        let server = &shared.server;
        shared.run(renumber);
        // each is the first change after it
        assert_eq!(
            server.ask("PUT", "/colors/a", r#"{"value":"new"}"#).content,
            r#"{"name":"a","value":"new"}"#
        );
        shared.run("UPDATE color SET id = id + 7");
        assert_eq!(server.ask("DELETE", "/colors/b", "").content, B);
        shared.run("UPDATE color SET id = id + 7");
        let expected: Vec<&str> = list.into_iter().filter(|color| *color == A).collect();
        assert_eq!(server.ask("PUT", "/colors/a", r#"{"value":"1"}"#).content, A);
        assert_eq!(server.list(), envelope(&expected));
        assert_eq!(server.ask("PUT", "/colors", &format!("[{A},{B}]")).status, 200);
    }
    let list = shared.server.list();
    assert_eq!(list, envelope(&[A, B]));
    shared.server.stop();
    drop(shared.other);
    assert_eq!(stored(&shared.file), list);
}

#[test]
fn changes_go_on_whatever_another_program_does_to_the_files() {
    let shared = Shared::start(&format!("[{A}]"));
    let statements = [
        "VACUUM",
        "PRAGMA wal_checkpoint(PASSIVE)",
        "PRAGMA wal_checkpoint(FULL)",
        "REINDEX; ANALYZE; PRAGMA optimize",
    ];
    let statements = statements.iter().chain(&[
        "VACUUM; PRAGMA wal_checkpoint(TRUNCATE)",
        "PRAGMA wal_checkpoint(RESTART); VACUUM",
    ]);
    for (round, statements) in statements.cycle().take(18).enumerate() {
        for statement in statements.split("; ") {
            shared.other.prepare(statement).unwrap().query([]).unwrap().next().unwrap();
        }
        let (name, server) = (format!("name-{round}"), &shared.server);
        let created = server.ask(
            "POST",
            "/colors",
            &format!(r#"{{"name":"{name}","value":"{}"}}"#, "x".repeat(20_000)),
        );
        let deleted = (round > 2)
            .then(|| server.ask("DELETE", &format!("/colors/name-{}", round - 2), "").status);
        assert_eq!(
            (created.status, deleted.unwrap_or(200), shared.health()),
            (201, 200, 200),
            "{statements}"
        );
    }
    let list = shared.server.list();
    assert_eq!(shared.warnings(), 0, "none of that changes a color: {}", shared.server.log());
    shared.server.signal(Signal::KILL);
    shared.server.wait();
    drop(shared.other);
    assert_eq!(stored(&shared.file), list);
}

#[test]
fn what_a_start_refuses_is_refused_while_it_runs_until_it_is_gone() {
    for (make, undo, reason) in [
        (
            "CREATE TRIGGER t BEFORE INSERT ON color BEGIN SELECT RAISE(IGNORE); END",
            "DROP TRIGGER t",
            "it has a trigger, which changes the list behind the service; remove it with sqlite3",
        ),
        (
            "INSERT INTO color VALUES (9223372036854775807, 'last', '1')",
            "DELETE FROM color WHERE name = 'last'",
            "no color can follow the row of table color with id 9223372036854775807; give it a smaller id with sqlite3",
        ),
        (
            "INSERT INTO color VALUES (9, CAST(x'ff' AS TEXT), '1')",
            "DELETE FROM color WHERE id = 9",
            "the row of table color with id 9 is not a color: it is not UTF-8; correct it with sqlite3",
        ),
    ] {
        let shared = Shared::start(&format!("[{A}]"));
        shared.run(make);
        let refused = shared.server.ask("POST", "/colors", B);
        let message = format!("the change was not made, it could not be saved: {reason}");
        assert_eq!((refused.status, refused.message(), shared.health()), (500, message, 503));
        assert_eq!(shared.server.list(), envelope(&[A]));
        let log = eventually("it is logged", || {
            Some(shared.server.log()).filter(|log| log.contains("ERROR"))
        });
        assert_eq!(log.matches(reason).count(), 1, "{log}");
        shared.run(undo);
        // the health finds out, and what it says holds for the reads after it
        shared.run("UPDATE color SET value = 'seen' WHERE name = 'a'");
        eventually("it recovers with a request for the health", || {
            (shared.health() == 200).then_some(())
        });
        let seen = A.replace("\"1\"", "\"seen\"");
        assert_eq!(shared.server.list(), envelope(&[&seen]));
        assert_eq!(
            (shared.server.ask("POST", "/colors", B).status, shared.server.list()),
            (201, envelope(&[&seen, B]))
        );
        // and without a change, a request for the health finds it
        shared.run(make.replace("(9,", "(10,").as_str());
        assert_eq!(shared.health(), 503);
    }
}

#[test]
fn readers_see_what_another_program_commits() {
    let shared = Shared::start(&format!("[{A}]"));
    let (server, value) =
        (&shared.server, |value: &str| format!(r#"{{"name":"a","value":"{value}"}}"#));
    let mut client = server.connect();
    for round in 0..10 {
        // with the next save
        shared.run(&format!("UPDATE color SET value = 'save-{round}'"));
        assert_eq!(client.ask("PUT", "/colors", &format!("[{A},{B}]")).status, 200);
        shared.run(&format!("UPDATE color SET value = 'save-{round}' WHERE name = 'a'"));
        assert_eq!(client.ask("DELETE", "/colors/b", "").content, B);
        assert_eq!(client.ask("GET", "/colors/a", "").content, value(&format!("save-{round}")));
    }
    // with a request for the health: its own answer has it, and what is read after that
    for round in 0..100 {
        shared.run(&format!("INSERT INTO color (name, value) VALUES ('health-{round}', '')"));
        let health = client.ask("GET", "/health", "").content;
        assert!(health.contains(&format!(r#""colors":{},"#, round + 2)), "{health}");
        assert_eq!(client.ask("GET", &format!("/colors/health-{round}"), "").status, 200);
    }
    // while requests arrive
    shared.run("UPDATE color SET value = 'seen' WHERE name = 'a'");
    eventually("it is seen without a save", || {
        (client.ask("GET", "/colors/a", "").content == value("seen")).then_some(())
    });
}

#[test]
fn a_program_that_commits_all_the_time_is_one_warning() {
    let shared = Shared::start(&format!("[{A},{B}]"));
    let mut client = shared.server.connect();
    for step in 0..500 {
        shared.run(&format!("UPDATE color SET value = '{step}' WHERE name = 'a'"));
        assert_eq!(client.ask("PUT", "/colors/b", &format!(r#"{{"value":"{step}"}}"#)).status, 200);
    }
    assert_eq!(client.ask("GET", "/colors/a", "").content, r#"{"name":"a","value":"499"}"#);
    let log = shared.server.stop();
    assert_eq!(
        log.matches("another program has changed the list; it has 2 colors now\n").count(),
        1,
        "{log}"
    );
    assert_eq!(log.lines().count(), 3, "{log}");
}

#[test]
fn an_idle_service_leaves_the_database_alone() {
    let scratch = Scratch::new();
    let (file, trace) = (scratch.file("colors.db"), scratch.0.join("trace"));
    Server::with_data(&format!("[{A}]"), &file, &[]).stop();
    let options = ["-y", "-ttt", "-o", trace.to_str().unwrap()];
    let Some(command) =
        colors_below_strace(&options, &["--listen", "127.0.0.1:0", "--data", &file])
    else {
        return;
    };
    let server = Server::spawn(command);
    let mut client = server.connect();
    assert_eq!(client.ask("PUT", "/colors/a", r#"{"value":"2"}"#).status, 200);
    client.expect_nothing_for(Duration::from_secs(4));
    assert_eq!(client.ask("GET", "/colors/a?after", "").status, 200);
    server.stop();
    let trace = fs::read_to_string(trace).unwrap();
    let time = |line: &str| line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap();
    let end = trace.lines().find(|line| line.contains("GET /colors/a?after")).map(time).unwrap();
    let calls: Vec<&str> = trace.lines().filter(|line| line.contains("colors.db")).collect();
    assert!(calls.len() > 10, "{trace}");
    // what follows the change is over in a second
    let idle: Vec<&&str> =
        calls.iter().filter(|line| time(line) < end && time(line) > end - 3.0).collect();
    assert!(idle.is_empty(), "{idle:?}");
}

#[test]
fn changes_wait_for_another_program_that_writes_but_not_one_after_the_other() {
    let shared = Shared::start(&format!("[{A}]"));
    let server = &shared.server;
    let put = |value: usize| {
        request("PUT", "/colors/a", "Host: localhost\r\n", &format!(r#"{{"value":"{value}"}}"#))
    };
    shared.run("BEGIN IMMEDIATE; UPDATE color SET value = 'theirs'");
    let begun = Instant::now();
    let mut clients: Vec<_> = (0..20).map(|_| server.connect()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(put(100 + number));
    }
    while !clients[0].has_answer() {
        assert_eq!(server.ask("GET", "/colors/a", "").content, A);
        thread::park_timeout(Duration::from_millis(20));
    }
    assert!(begun.elapsed() > Duration::from_secs(3), "{:?}", begun.elapsed());
    for client in &mut clients {
        let response = client.response();
        let message = "the change was not made, it could not be saved: another process writes to it; stop that process";
        assert_eq!((response.status, response.message().as_str()), (500, message));
    }
    // one wait for the first, and one for those that came after it
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert_eq!(shared.health(), 503);
    shared.run("COMMIT");
    eventually("it recovers by itself", || (shared.health() == 200).then_some(()));
    assert_eq!(server.ask("GET", "/colors/a", "").content, r#"{"name":"a","value":"theirs"}"#);
    // a lock that is held for less than 5 s fails nothing
    shared.run("BEGIN IMMEDIATE");
    let mut client = server.connect();
    client.send(put(7));
    client.expect_nothing_for(Duration::from_millis(500));
    shared.run("COMMIT");
    assert_eq!(client.response().content, r#"{"name":"a","value":"7"}"#);
}
