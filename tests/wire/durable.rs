//! `--data`: how FILE is made, and what becomes of it when others remove, replace or move it. Kills
//! are in `histories`, power cuts in `power_cut`, disks that fail in `failing_disk`.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::thread;

use rustix::process::Signal;

use crate::common::harness::{Scratch, Server, stored, wait_until};

pub(super) const A: &str = r#"{"name":"a","value":"1"}"#;

/// Makes a database of this list.
pub(super) fn make(file: &str, seed: &str) {
    Server::with_data(seed, file, &[]).stop();
}

pub(super) fn health(server: &Server) -> (u16, serde_json::Value) {
    let response = server.ask("GET", "/health", "");
    (response.status, serde_json::from_str(&response.content).unwrap())
}

/// The message of a change that could not be saved.
pub(super) fn not_saved(cause: &str) -> String {
    format!("the change could not be saved: {cause}; /health and the log say what to do")
}

/// Kills the service, as a crash would, and gives the list of the next start.
pub(super) fn list_after_kill(server: Server, file: &str) -> String {
    server.signal(Signal::KILL);
    server.wait();
    let again = Server::start(&["--data", file]);
    let list = again.list();
    again.stop();
    assert_eq!(stored(file), list);
    list
}

#[test]
fn the_file_is_made_from_the_seed_and_is_the_list_from_then_on() {
    let scratch = Scratch::new();
    let file = scratch.file("colors.db");
    let server = Server::start(&["--seed", "seed/colors.json", "--data", &file]);
    assert_eq!(stored(&file), server.list());
    server.ask("DELETE", "/colors/red", "").expect_status(200);
    server.ask("PUT", "/colors/blue", r#"{"value":"1"}"#).expect_status(200);
    server.ask("POST", "/colors", r#"{"name":"é\n\u0000","value":"2"}"#).expect_status(201);
    server.ask("POST", "/colors", r#"{"name":"blue","value":""}"#).expect_status(201);
    let list = server.list();
    assert_eq!(stored(&file), list);
    server.stop();
    // the seed is not read when there is a file
    let again = Server::start(&["--seed", "no/such/file", "--data", &file]);
    assert_eq!(again.list(), list);
    assert_eq!(again.ask("DELETE", "/colors/blue", "").content, r#"{"name":"blue","value":"1"}"#);
    assert_eq!(again.ask("GET", "/colors/blue", "").content, r#"{"name":"blue","value":""}"#);
    let list = again.list();
    again.stop();
    // and what --dump prints is a seed
    let seed = scratch.write("dump.json", stored(&file));
    assert_eq!(Server::start(&["--seed", &seed]).list(), list);
}

#[test]
fn new_files_are_the_owners_alone_and_after_a_stop_the_file_is_all_there_is() {
    let (scratch, file, server) = Server::kept("[]");
    server.ask("POST", "/colors", A).expect_status(201);
    assert_eq!(scratch.names(), ["colors.db", "colors.db-shm", "colors.db-wal"]);
    for name in scratch.names() {
        let mode = fs::metadata(scratch.file(&name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    server.stop();
    assert_eq!(scratch.names(), ["colors.db"]);
    assert_eq!(stored(&file), format!(r#"{{"data":[{A}]}}"#));
}

#[test]
fn a_link_stays_and_the_mode_is_kept() {
    let scratch = Scratch::new();
    let target = scratch.0.join("target.db");
    let (link, target) = (scratch.file("link.db"), target.to_str().unwrap());
    symlink("target.db", &link).unwrap();
    make(&link, "[]");
    fs::set_permissions(target, fs::Permissions::from_mode(0o640)).unwrap();
    let server = Server::start(&["--data", &link]);
    server.ask("POST", "/colors", A).expect_status(201);
    assert_eq!((stored(&link), stored(target)), (server.list(), server.list()));
    assert!(scratch.0.join("target.db-wal").exists());
    server.stop();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::metadata(target).unwrap().permissions().mode() & 0o777, 0o640);
}

/// Moves a file away, puts something else in its place, and expects changes to be refused until it
/// is back.
#[track_caller]
fn check_removal(name: &str, replacement: Option<&str>) {
    let (scratch, file, server) = Server::kept(&format!("[{A}]"));
    server.ask("PUT", "/colors/a", r#"{"value":"2"}"#).expect_status(200);
    let list = server.list();
    let (there, away) = (scratch.0.join(name), scratch.0.join("away"));
    fs::rename(&there, &away).unwrap();
    if let Some(content) = replacement {
        fs::write(&there, content).unwrap();
    }
    wait_until("it is noticed without a change", || health(&server).0 == 503);
    let fix = "move it back (a copy is another file), or save what GET /colors answers and restart";
    let reason = format!("{name} was removed, replaced or cut short; {fix}");
    let message = not_saved("the database cannot be used");
    server.ask("DELETE", "/colors/a", "").expect_message(500, &message);
    let (status, json) = health(&server);
    assert_eq!((server.list(), status), (list.clone(), 503));
    assert_eq!(
        json["status"].as_str(),
        Some(format!("changes cannot be saved: {reason}").as_str())
    );
    if let Some(content) = replacement {
        assert_eq!(fs::read_to_string(&there).unwrap(), content);
    }
    fs::rename(&away, &there).unwrap();
    wait_until("it recovers by itself", || health(&server).0 == 200);
    server.ask("POST", "/colors", r#"{"name":"b","value":"3"}"#).expect_status(201);
    let list = server.list();
    assert_eq!(list_after_kill(server, &file), list);
}

#[test]
fn a_file_that_is_removed_or_replaced_is_not_written() {
    // at the same time, since each waits until the service tries again
    thread::scope(|scope| {
        for name in ["colors.db", "colors.db-wal", "colors.db-shm"] {
            scope.spawn(|| check_removal(name, None));
            scope.spawn(|| check_removal(name, Some("somebody else's")));
        }
    });
}

#[test]
fn a_removed_wal_loses_nothing_when_the_service_is_stopped() {
    let (scratch, file, server) = Server::kept(&format!("[{A}]"));
    server.ask("PUT", "/colors/a", r#"{"value":"2"}"#).expect_status(200);
    let list = server.list();
    fs::remove_file(scratch.0.join("colors.db-wal")).unwrap();
    server.ask("DELETE", "/colors/a", "").expect_status(500);
    server.stop();
    assert_eq!(stored(&file), list);
}

#[test]
fn a_link_that_is_made_to_lead_elsewhere_is_noticed_before_the_next_acknowledgment() {
    let scratch = Scratch::new();
    let link = scratch.file("link.db");
    Server::with_data("[]", &scratch.file("other.db"), &[]).stop();
    std::os::unix::fs::symlink("colors.db", &link).unwrap();
    let server = Server::with_data(&format!("[{A}]"), &link, &[]);
    server.ask("PUT", "/colors/a", r#"{"value":"2"}"#).expect_status(200);
    let list = server.list();
    std::os::unix::fs::symlink("other.db", scratch.file("new")).unwrap();
    fs::rename(scratch.file("new"), &link).unwrap();
    let refused = server.ask("PUT", "/colors/a", r#"{"value":"3"}"#);
    refused.expect_message(500, &not_saved("the database cannot be used"));
    let (status, json) = health(&server);
    assert!(json["status"].to_string().contains("link.db was removed, replaced or cut short; "));
    assert_eq!((status, server.list()), (503, list.clone()));
    server.stop();
    assert_eq!(stored(&scratch.file("colors.db")), list);
}
