//! `--dump` and `--check` open FILE as a start does, beside a service as well, and change nothing
//! but what a kill has left to recover.

use std::fs;

use rustix::process::Signal;

use crate::common::harness::{Scratch, Server, colors, run, stored};

const A: &str = r#"{"name":"a","value":"1"}"#;

/// The names of the files in a directory but FILE-shm, which harms nobody where it stays.
fn names(scratch: &Scratch) -> Vec<String> {
    scratch.names().into_iter().filter(|name| !name.ends_with("-shm")).collect()
}

/// The contents of FILE and FILE-wal, and the names beside them.
fn files(scratch: &Scratch) -> (Vec<String>, [Vec<u8>; 2]) {
    let read = |name: &str| fs::read(scratch.0.join(name)).unwrap();
    (names(scratch), ["colors.db", "colors.db-wal"].map(read))
}

#[test]
fn a_dump_and_a_check_beside_a_service_or_after_a_kill_change_nothing() {
    let (scratch, file, server) = Server::kept("[]");
    server.ask("POST", "/colors", A).expect_status(201);
    let list = server.list();
    let check = || {
        let before = files(&scratch);
        assert_eq!(stored(&file), list);
        let (code, printed, log) = run(&mut colors(&["--check", "--data", &file]));
        let expected = format!("the options are fine: 1 color kept in {file}\n");
        assert_eq!((code, printed, log), (Some(0), expected, String::new()));
        assert!(files(&scratch) == before);
    };
    check();
    server.ask("PUT", "/colors/a", r#"{"value":"1"}"#).expect_status(200);
    server.signal(Signal::KILL);
    server.wait();
    check();
    fs::remove_file(format!("{file}-shm")).unwrap();
    check();
}

#[test]
fn a_dump_and_a_check_roll_back_what_a_program_has_left_as_a_start_does() {
    let scratch = Scratch::new();
    let file = scratch.file("colors.db");
    let list = format!(r#"{{"data":[{A}]}}"#);
    for arguments in [&["--dump"][..], &["--check"]] {
        Server::with_data(&format!("[{A}]"), &file, &[]).stop();
        let other = rusqlite::Connection::open(&file).unwrap();
        // writes pages to FILE before the commit
        other.execute_batch("PRAGMA journal_mode=DELETE; PRAGMA cache_size=2; BEGIN").unwrap();
        let rows = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 50)";
        let insert = "INSERT INTO color (name, value) SELECT printf('%3000d', x), '' FROM n";
        other.execute_batch(&format!("{rows} {insert}")).unwrap();
        // what a kill of that program would leave
        let [bytes, journal] =
            ["", "-journal"].map(|end| fs::read(format!("{file}{end}")).unwrap());
        drop(other);
        fs::write(&file, bytes).unwrap();
        fs::write(format!("{file}-journal"), journal).unwrap();
        assert_eq!(run(&mut colors(&[arguments, &["--data", &file]].concat())).0, Some(0));
        assert_eq!(names(&scratch), ["colors.db"]);
        assert_eq!(stored(&file), list);
        fs::remove_file(&file).unwrap();
    }
}

#[test]
fn a_dump_needs_a_list() {
    let scratch = Scratch::new();
    let (code, _, error) = run(colors(&["--dump", "--data", "none.db"]).current_dir(&scratch.0));
    let expected = "cannot use none.db: it does not exist, or is empty; name the file of a service, or a copy, with --data\n";
    assert!(code == Some(1) && error.ends_with(expected), "{error}");
    let mut command = colors(&["--dump"]);
    assert_eq!(run(command.env("COLORS_DATA", "none.db").current_dir(&scratch.0)).0, Some(1));
    assert_eq!(scratch.names(), Vec::<String>::new());
}
