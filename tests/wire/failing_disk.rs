//! Durable lists on a disk that fails or is full: what is refused, what stays, and how the service
//! recovers.

use std::fs;

use rusqlite::Connection;

use crate::common::harness::{Scratch, Server, stored, wait_until};
use crate::common::process::on_log_of;
use crate::wire::durable::{A, health, list_after_kill, not_saved};

#[test]
fn a_change_whose_sync_fails_is_not_there_after_a_crash() {
    for is_lasting in [false, true] {
        let scratch = Scratch::new();
        let file = scratch.file("colors.db");
        let list = format!(r#"{{"data":[{A}]}}"#);
        let server = Server::with_data("[]", &file, &[]);
        server.ask("POST", "/colors", A).expect_status(201);
        let failure = if is_lasting { "error=EIO" } else { "error=EIO:when=1" };
        if !server.strace(&on_log_of(&file, "fdatasync", failure)) {
            return;
        }
        let mut cause = "the disk reported an error".to_owned();
        let mut logged = format!("[ERROR] changes cannot be saved: {cause}");
        if is_lasting {
            cause += ", and the change may be in the list";
            logged +=
                ", and another when the change was taken back: it may be in the list after a crash";
        } else {
            logged += " on sync";
        }
        server.ask("DELETE", "/colors/a", "").expect_message(500, &not_saved(&cause));
        logged += "\n";
        server.log_when("it is logged", |log| log.contains(&logged));
        assert_eq!(server.list(), list);
        if !is_lasting {
            wait_until("it recovers by itself", || health(&server).0 == 200);
            server.ask("POST", "/colors", r#"{"name":"b","value":"2"}"#).expect_status(201);
            let expected = format!(r#"{{"data":[{A},{{"name":"b","value":"2"}}]}}"#);
            assert_eq!(list_after_kill(server, &file), expected);
        } else {
            assert_eq!(health(&server).0, 503);
            assert_eq!(list_after_kill(server, &file), list);
        }
    }
}

/// SQLite syncs FILE-wal, and then maps one more block of FILE-shm, which fails.
#[test]
fn a_change_that_is_refused_after_its_sync_is_erased_or_may_be_there() {
    /// How many frames the first block of FILE-shm has room for.
    const FRAMES: u64 = 4062;
    for is_erased in [false, true] {
        let (_scratch, file, server) = Server::kept("[]");
        server.ask("POST", "/colors", A).expect_status(201);
        let log = format!("{file}-wal");
        let frames = || fs::metadata(&log).unwrap().len() / (24 + 4096);
        // FILE-wal begins again when nobody reads it
        let reader = Connection::open(&file).unwrap();
        reader.execute_batch("BEGIN; SELECT * FROM color").unwrap();
        let long = format!(r#"{{"name":"b","value":"{}"}}"#, "x".repeat(1_000_000));
        while frames() + 300 < FRAMES {
            server.ask("POST", "/colors", &long).expect_status(201);
        }
        let update = |value: u64| {
            server.ask("PUT", "/colors/a", &format!(r#"{{"value":"{}"}}"#, 1000 + value))
        };
        while frames() < FRAMES {
            update(frames()).expect_status(200);
        }
        assert_eq!(frames(), FRAMES, "an update is one frame");
        // a frame is two writes
        let writes = if is_erased { "trace=mmap" } else { "inject=pwrite64:error=EIO:when=3+" };
        let shm = format!("{file}-shm");
        let map = "inject=mmap:error=ENOMEM:when=1";
        if !server.strace(
            &["-o", "/dev/null", "-P", &log, "-P", &shm, "-e", map, "-e", writes]
                .map(str::to_owned),
        ) {
            return;
        }
        let mut cause = "the disk reported an error".to_owned();
        if !is_erased {
            cause += ", and the change may be in the list";
        }
        update(0).expect_message(500, &not_saved(&cause));
        drop(reader);
        let list = list_after_kill(server, &file);
        assert_eq!(list.contains(r#"{"name":"a","value":"1000"}"#), !is_erased);
    }
}

#[test]
fn after_a_failed_save_the_directory_has_to_be_synced_again() {
    let (scratch, file, server) = Server::kept("[]");
    let (directory, log) = (scratch.0.to_str().unwrap(), format!("{file}-wal"));
    let inject = ["inject=pwrite64:error=EIO:when=1", "inject=fsync:error=EIO"];
    let options =
        ["-o", "/dev/null", "-P", &log, "-P", directory, "-e", inject[0], "-e", inject[1]]
            .map(str::to_owned);
    if !server.strace(&options) {
        return;
    }
    let failed = not_saved("the disk reported an error");
    server.ask("POST", "/colors", A).expect_message(500, &failed);
    let reason = "(code 778 of SQLite), or the file has reached a limit of its size";
    server.log_when("the code is logged", |log| log.contains(reason));
    // the log can be written again, and the directory not be synced yet
    let failed = not_saved("the database cannot be used");
    server.ask("POST", "/colors", A).expect_message(500, &failed);
    let reason = format!("cannot sync {directory}: Input/output ");
    server.log_when("the cause is logged", |log| log.contains(&reason));
    server.end_strace();
    wait_until("it recovers by itself", || health(&server).0 == 200);
    server.ask("POST", "/colors", A).expect_status(201);
    assert_eq!(list_after_kill(server, &file), format!(r#"{{"data":[{A}]}}"#));
}

#[test]
fn a_full_disk_changes_nothing_and_health_recovers_with_the_disk() {
    let (_scratch, file, server) = Server::kept("[]");
    let create = |value: &str| {
        server.ask("POST", "/colors", &format!(r#"{{"name":"a","value":"{value}"}}"#))
    };
    create("0").expect_status(201);
    if !server.strace(&on_log_of(&file, "pwrite64", "error=ENOSPC")) {
        return;
    }
    let reason = "the disk is full; make room on it";
    create("1").expect_message(500, &not_saved("the disk is full"));
    let list = server.list();
    // requests that save nothing tell nothing of the disk
    server.ask("DELETE", "/colors/none", "").expect_status(404);
    server.ask("PUT", "/colors/none", "{}").expect_status(404);
    server.ask("PUT", "/colors/a", r#"{"value":"0"}"#).expect_status(200);
    let (status, json) = health(&server);
    let fault = format!("changes cannot be saved: {reason}");
    assert_eq!((status, json["status"].as_str()), (503, Some(fault.as_str())));
    assert_eq!(stored(&file), list);

    server.end_strace();
    wait_until("it recovers by itself", || health(&server).0 == 200);
    assert_eq!(server.list(), list);
    create("3").expect_status(201);
    let log = server
        .log_when("the recovery is logged", |log| log.contains("[INFO] changes are saved again\n"));
    assert_eq!(log.matches(&format!("[ERROR] {fault}\n")).count(), 1, "{log}");
    let list = server.list();
    assert_eq!(list_after_kill(server, &file), list);
}
