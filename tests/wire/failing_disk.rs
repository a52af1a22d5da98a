//! Durable lists on a disk that fails, is full, or hangs: what is refused, what stays, and how the
//! service recovers. Readers do not wait for the disk, and each change gets its own answer.

use std::fs;

use rusqlite::Connection;
use rustix::process::{Pid, Signal, kill_process};

use crate::common::client::{Client, request};
use crate::common::harness::{Scratch, Server, at_once, eventually, stored, wait_until};
use crate::common::process::on_log_of;
use crate::wire::durable::{A, LIST, health, list_after_kill, not_saved};

/// Where the disk works again, see `power_cut`.
#[test]
fn a_change_whose_sync_fails_is_not_there_after_a_crash() {
    let (_scratch, file, server) = Server::kept("[]");
    server.ask("POST", "/colors", A).expect_status(201);
    if !server.strace(&on_log_of(&file, "fdatasync", "error=EIO")) {
        return;
    }
    let cause = "the disk reported an error";
    let message = not_saved(&format!("{cause}, and the change may be in the list"));
    server.ask("DELETE", "/colors/a", "").expect_message(500, &message);
    let logged = format!(
        "[ERROR] changes cannot be saved: {cause}, and another when the change was taken back: it \
         may be in the list after a crash\n"
    );
    server.log_when("it is logged", |log| log.contains(&logged));
    assert_eq!((&*server.list(), health(&server).0), (LIST, 503));
    assert_eq!(list_after_kill(server, &file), LIST);
}

/// SQLite syncs FILE-wal, and then maps one more block of FILE-shm, which fails.
#[test]
fn a_change_that_is_refused_after_its_sync_is_erased_or_may_be_there() {
    /// How many frames the first block of FILE-shm has room for.
    const FRAMES: u64 = 4062;
    at_once([false, true], |is_erased| {
        let (_scratch, file, server) = Server::kept("[]");
        server.ask("POST", "/colors", A).expect_status(201);
        let log = format!("{file}-wal");
        let frames = || fs::metadata(&log).unwrap().len() / (24 + 4096);
        // FILE-wal begins again when nobody reads it
        let reader = Connection::open(&file).unwrap();
        reader.execute_batch("BEGIN; SELECT * FROM color").unwrap();
        server.ask("POST", "/colors", r#"{"name":"b","value":""}"#).expect_status(201);
        // SQLite writes no page that stays the same
        let mut fill = ["x", "y"].into_iter().cycle();
        while frames() + 20 < FRAMES {
            let length = (4000 * (FRAMES - frames() - 15) as usize).min(1_000_000);
            let long = format!(r#"{{"value":"{}"}}"#, fill.next().unwrap().repeat(length));
            server.ask("PUT", "/colors/b", &long).expect_status(200);
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
    });
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
    assert_eq!(list_after_kill(server, &file), LIST);
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
    let fault = "changes cannot be saved: the disk is full; make room on it";
    create("1").expect_message(500, &not_saved("the disk is full"));
    let list = server.list();
    // requests that save nothing tell nothing of the disk
    server.ask("DELETE", "/colors/none", "").expect_status(404);
    server.ask("PUT", "/colors/none", "{}").expect_status(404);
    server.ask("PUT", "/colors/a", r#"{"value":"0"}"#).expect_status(200);
    assert_eq!(health(&server), (503, fault.to_owned()));
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

/// A service whose disk finishes no save before it is told to.
struct Stalled {
    server: Server,
    file: String,
    _scratch: Scratch,
}

impl Stalled {
    /// Starts the service; `None` if strace is not installed.
    fn start() -> Option<Self> {
        let (scratch, file, server) = Server::kept(&format!("[{A}]"));
        server.stop();
        // ten minutes, in microseconds: only a test that fails waits for its end
        let options = on_log_of(&file, "fdatasync", "delay_enter=600000000");
        let server = Server::below_strace(&options, &["--data", &file])?;
        Some(Self { server, file, _scratch: scratch })
    }

    /// A client that makes a change, whose save has begun.
    fn change(&self) -> Client {
        let mut client = self.server.connect();
        let content = r#"{"value":"2"}"#;
        client.send(request("PUT", "/colors/a", "Host: localhost\r\n", content));
        wait_until("a save has begun", || {
            fs::metadata(format!("{}-wal", self.file)).is_ok_and(|log| log.len() > 0)
        });
        client
    }
}

#[test]
fn while_a_disk_hangs_no_reader_waits_and_the_health_says_so_after_5_s() {
    let Some(disk) = Stalled::start() else { return };
    let (mut writer, mut reader) = (disk.change(), disk.server.connect());
    reader.ask("GET", "/colors/a", "").expect_content(A);
    let mut health = || reader.ask("GET", "/health", "");
    let unwell = eventually("the save takes too long", || {
        Some(health()).filter(|health| health.status != 200)
    });
    let reason = r#""status":"the storage has not answered for 5 s""#;
    assert!(unwell.content.contains(reason), "{}", unwell.content);
    assert!(!writer.has_answer());
    disk.server.end_strace();
    assert_eq!((writer.response().status, health().status), (200, 200));
}

#[test]
fn the_end_waits_for_a_disk_that_hangs_no_longer_than_for_a_client() {
    let Some(disk) = Stalled::start() else { return };
    let tracer = Pid::from_raw(disk.server.proc_status("TracerPid") as i32).unwrap();
    let mut client = disk.change();
    disk.server.signal(Signal::TERM);
    // the disk hangs for minutes; strace keeps the process, and has a line of its own
    disk.server.log_when("it logs the end", |log| log.contains(" [WARN] stopped; "));
    kill_process(tracer, Signal::KILL).unwrap();
    // the disk works again while the process ends, so the change may be saved, and answered
    let answer = client.whatever_comes();
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let (status, log) = disk.server.wait();
    assert_eq!(status.code(), Some(0));
    let closed = "connections closed because they were still open 4 s after the signal: 1\n";
    let file = &disk.file;
    let last = format!("stopped; keep {file} and {file}-wal together: the storage was not closed");
    assert!(log.contains(closed) && log.contains(&last), "{log}");
}
