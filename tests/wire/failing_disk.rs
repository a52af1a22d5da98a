//! Durable lists on a disk that fails or is full: what is refused, what stays, and how the service
//! recovers.

use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::common::harness::{Scratch, Server, eventually, stored, wait_until};
use crate::wire::durable::{A, health, list_after_kill, make};

/// Has this happen to system calls on the log of the database from now on; false if strace is not
/// installed.
fn trouble(server: &Server, file: &str, call: &str, what: &str) -> bool {
    server.strace(&[
        "-P",
        &format!("{file}-wal"),
        "-e",
        &format!("trace={call}"),
        "-e",
        &format!("inject={call}:{what}"),
    ])
}

#[test]
fn a_change_whose_sync_fails_is_not_there_after_a_crash() {
    for is_lasting in [false, true] {
        let scratch = Scratch::new();
        let file = scratch.file("colors.db");
        let list = format!(r#"{{"data":[{A}]}}"#);
        let server = Server::with_data("[]", &file, &[]);
        server.ask("POST", "/colors", A).expect_status(201);
        if !trouble(
            &server,
            &file,
            "fdatasync",
            if is_lasting { "error=EIO" } else { "error=EIO:when=1" },
        ) {
            return;
        }
        let response = server.ask("DELETE", "/colors/a", "");
        assert_eq!(response.status, 500);
        assert_eq!(
            response.message(),
            "the change was not made, it could not be saved: the disk reported an error on sync"
        );
        assert_eq!(server.list(), list);
        assert_eq!(health(&server).0, 503);
        if !is_lasting {
            wait_until("it recovers by itself", || health(&server).0 == 200);
            server.ask("POST", "/colors", r#"{"name":"b","value":"2"}"#).expect_status(201);
            assert_eq!(
                list_after_kill(server, &file),
                format!(r#"{{"data":[{A},{{"name":"b","value":"2"}}]}}"#)
            );
        } else {
            assert_eq!(list_after_kill(server, &file), list);
        }
    }
}

#[test]
fn a_full_disk_changes_nothing_and_health_recovers_with_the_disk() {
    let scratch = Scratch::new();
    let file = scratch.file("colors.db");
    let server = Server::with_data("[]", &file, &[]);
    let create = |value: &str| {
        server.ask("POST", "/colors", &format!(r#"{{"name":"a","value":"{value}"}}"#))
    };
    create("0").expect_status(201);
    if !trouble(&server, &file, "pwrite64", "error=ENOSPC") {
        return;
    }
    let refused = create("1");
    assert_eq!(refused.status, 500);
    assert_eq!(
        refused.message(),
        "the change was not made, it could not be saved: the disk is full; make room on it"
    );
    let list = server.list();
    // requests that save nothing tell nothing of the disk
    assert_eq!(
        (
            server.ask("DELETE", "/colors/none", "").status,
            server.ask("PUT", "/colors/none", "{}").status
        ),
        (404, 404)
    );
    let (status, json) = health(&server);
    let reason = "changes cannot be saved: the disk is full; make room on it";
    assert_eq!((status, &json["status"]), (503, &reason.into()));
    assert_eq!(stored(&file), list);

    server.end_strace();
    wait_until("it recovers by itself", || health(&server).0 == 200);
    assert_eq!(server.list(), list);
    create("3").expect_status(201);
    let log = server
        .log_when("the recovery is logged", |log| log.contains("[INFO] changes are saved again\n"));
    assert_eq!(
        log.matches("[ERROR] changes cannot be saved: the disk is full; make room on it\n").count(),
        1,
        "{log}"
    );
    let list = server.list();
    assert_eq!(list_after_kill(server, &file), list);
}

#[test]
fn a_limit_of_the_files_size_is_a_500_until_it_is_raised() {
    let scratch = Scratch::new();
    let file = scratch.file("colors.db");
    make(&file, "[]");
    let server = Server::start(&["--data", &file]);
    let create = |value: &str| {
        server.ask("POST", "/colors", &format!(r#"{{"name":"a","value":"{value}"}}"#))
    };
    create("1").expect_status(201);
    let list = server.list();
    let pid = Pid::from_raw(server.pid() as i32);
    let limit = |bytes: Option<u64>| {
        prlimit(pid, Resource::Fsize, Rlimit { current: bytes, maximum: None }).unwrap()
    };
    limit(Some(64));
    for _ in 0..3 {
        assert!(create("2").message().contains("the file cannot be written: "));
        // it saves nothing, so it tells nothing of the disk
        server.ask("PUT", "/colors/a", r#"{"value":"1"}"#).expect_status(200);
        assert_eq!(health(&server).0, 503);
    }
    assert_eq!((server.list(), stored(&file)), (list.clone(), list));
    limit(None);
    create("3").expect_status(201);
    assert_eq!(stored(&file), server.list());
    assert!(!server.log().contains("another program has written"), "{}", server.log());
}
