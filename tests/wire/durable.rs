//! `--data`: how FILE is made, as a whole or not at all, and what becomes of it when others remove,
//! replace or move it. Kills are in `histories`, power cuts in `power_cut`, disks that fail in
//! `failing_disk`.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::process::Output;

use rustix::process::{Signal, geteuid};

use crate::common::harness::{
    DEADLINE, Scratch, Server, at_once, colors, stored, wait_until, within,
};
use crate::common::process::colors_below_strace;

pub(super) const A: &str = r#"{"name":"a","value":"1"}"#;

/// The list of it.
pub(super) const LIST: &str = r#"{"data":[{"name":"a","value":"1"}]}"#;

/// A start that fails; gives what it says.
#[track_caller]
pub(super) fn fail(arguments: &[&str]) -> String {
    let mut child = colors(&["--listen", "127.0.0.1:0"]).args(arguments).spawn().unwrap();
    let ended = within(DEADLINE, || child.try_wait().unwrap());
    child.kill().unwrap();
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    let (printed, error) = [stdout, stderr].map(|text| String::from_utf8(text).unwrap()).into();
    assert!(ended.is_some(), "{arguments:?} should fail, and goes on: {error}");
    assert_eq!((status.code(), printed.as_str()), (Some(1), ""), "{arguments:?}: {error}");
    error
}

/// What `/health` answers: its status, and what it says in `status`.
pub(super) fn health(server: &Server) -> (u16, String) {
    let response = server.ask("GET", "/health", "");
    let json: serde_json::Value = serde_json::from_str(&response.content).unwrap();
    (response.status, json["status"].as_str().unwrap().to_owned())
}

/// The message of a change that could not be saved.
pub(super) fn not_saved(cause: &str) -> String {
    format!("the change could not be saved: {cause}; /health and the log say what to do")
}

/// Checks that changes are refused since this file is not the one that was opened, or was cut.
#[track_caller]
pub(super) fn expect_refusal(server: &Server, name: &str) {
    let message = not_saved("the database cannot be used");
    server.ask("PUT", "/colors/a", r#"{"value":"3"}"#).expect_message(500, &message);
    let fault = format!(
        "changes cannot be saved: {name} was removed, replaced or cut short; move it back (a copy \
         is another file), or save what GET /colors answers and restart"
    );
    assert_eq!(health(server), (503, fault));
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
fn new_files_are_the_owners_alone_and_a_link_and_a_mode_stay() {
    let scratch = Scratch::new();
    let (link, target) = (scratch.file("link.db"), scratch.file("target.db"));
    symlink("target.db", &link).unwrap();
    for mode in [0o600, 0o640] {
        let server = Server::start(&["--data", &link]);
        server.ask("POST", "/colors", A).expect_status(201);
        assert_eq!((stored(&link), stored(&target)), (server.list(), server.list()));
        for name in ["target.db", "target.db-shm", "target.db-wal"] {
            let file = fs::metadata(scratch.file(name)).unwrap();
            assert_eq!(file.mode() & 0o777, mode, "{name}");
        }
        server.stop();
        assert_eq!(scratch.names(), ["link.db", "target.db"]);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::metadata(&target).unwrap().mode() & 0o777, mode);
        fs::set_permissions(&target, fs::Permissions::from_mode(0o640)).unwrap();
    }
}

#[test]
fn a_file_that_is_removed_or_replaced_is_not_written() {
    let names = ["colors.db", "colors.db-wal", "colors.db-shm"];
    let rows = names.map(|name| [(name, None), (name, Some("somebody else's"))]);
    at_once(rows.concat(), |(name, replacement)| {
        let (scratch, file, server) = Server::kept(&format!("[{A}]"));
        server.ask("PUT", "/colors/a", r#"{"value":"2"}"#).expect_status(200);
        let list = server.list();
        let (there, away) = (scratch.0.join(name), scratch.0.join("away"));
        fs::rename(&there, &away).unwrap();
        if let Some(content) = replacement {
            fs::write(&there, content).unwrap();
        }
        wait_until("it is noticed without a change", || health(&server).0 == 503);
        expect_refusal(&server, name);
        assert_eq!(server.list(), list);
        if let Some(content) = replacement {
            assert_eq!(fs::read_to_string(&there).unwrap(), content);
        }
        fs::rename(&away, &there).unwrap();
        wait_until("it recovers by itself", || health(&server).0 == 200);
        server.ask("POST", "/colors", r#"{"name":"b","value":"3"}"#).expect_status(201);
        let list = server.list();
        assert_eq!(list_after_kill(server, &file), list);
    });
}

#[test]
fn a_removed_wal_loses_nothing_when_the_service_is_stopped() {
    let (scratch, file, server) = Server::kept(&format!("[{A}]"));
    server.ask("PUT", "/colors/a", r#"{"value":"2"}"#).expect_status(200);
    let list = server.list();
    fs::remove_file(scratch.0.join("colors.db-wal")).unwrap();
    expect_refusal(&server, "colors.db-wal");
    server.stop();
    assert_eq!(stored(&file), list);
}

#[test]
fn a_link_that_is_made_to_lead_elsewhere_is_noticed_before_the_next_acknowledgment() {
    let scratch = Scratch::new();
    let link = scratch.file("link.db");
    Server::with_data("[]", &scratch.file("other.db"), &[]).stop();
    symlink("colors.db", &link).unwrap();
    let server = Server::with_data(&format!("[{A}]"), &link, &[]);
    server.ask("PUT", "/colors/a", r#"{"value":"2"}"#).expect_status(200);
    let list = server.list();
    symlink("other.db", scratch.file("new")).unwrap();
    fs::rename(scratch.file("new"), &link).unwrap();
    expect_refusal(&server, "link.db");
    assert_eq!(server.list(), list);
    server.stop();
    assert_eq!(stored(&scratch.file("colors.db")), list);
}

/// The options of a first start, and a directory for FILE alone.
struct FirstStart {
    scratch: Scratch,
    data: Scratch,
    file: String,
    seed: String,
}

impl FirstStart {
    fn new() -> Self {
        let (scratch, data) = (Scratch::new(), Scratch::new());
        let (file, seed) = (data.file("colors.db"), scratch.write("seed", LIST));
        Self { scratch, data, file, seed }
    }

    fn arguments(&self) -> [&str; 6] {
        ["--listen", "127.0.0.1:0", "--seed", &self.seed, "--data", &self.file]
    }

    /// Where a file is in the directory, or that itself.
    fn path(&self, name: &str) -> String {
        self.data.file(name).trim_end_matches('/').to_owned()
    }

    /// Starts it, and has these calls on these files fail. Gives its first line, after which it is
    /// killed if it has not ended; `None` if strace is not installed.
    fn fail_at(&self, calls: &str, files: &[&str], further: &[&str]) -> Option<String> {
        let (inject, paths) = (format!("inject={calls}"), files.iter().map(|name| self.path(name)));
        let mut options = ["-o", "/dev/null", "-e", &inject].map(str::to_owned).to_vec();
        paths.for_each(|path| options.extend(["-P".to_owned(), path]));
        let arguments = [&self.arguments()[..], further].concat();
        let mut child = colors_below_strace(&options, &arguments)?.spawn().unwrap();
        let mut first = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut first).unwrap();
        let _ = child.kill();
        child.wait().unwrap();
        Some(first)
    }

    /// Starts it as it should be, and checks that FILE is then all that is there.
    #[track_caller]
    fn check_next(&self, what: &str) {
        let server = Server::start(&self.arguments());
        assert_eq!(server.list(), LIST, "{what}");
        server.stop();
        assert_eq!(
            (self.data.names(), stored(&self.file)),
            (vec!["colors.db".into()], LIST.into())
        );
    }
}

#[test]
fn whatever_call_fails_the_next_start_works() {
    let calls =
        ["openat", "pwrite64,ftruncate", "fsync,fdatasync", "renameat2,rename", "unlink,unlinkat"];
    at_once(calls, |call| {
        for number in 1..=4 {
            let start = FirstStart::new();
            let inject = format!("{call}:error=EIO:when={number}+");
            let files = ["", "colors.db", ".colors-new"];
            let Some(first) = start.fail_at(&inject, &files, &[]) else { return };
            if first.contains("[ERROR]") {
                let is_clean = !start.data.names().contains(&".colors-new".to_owned());
                assert!(is_clean || call.starts_with("unlink"), "{inject}: {first}");
            }
            start.check_next(&format!("{inject}: {first}"));
        }
    });
}

#[test]
fn where_files_cannot_be_locked_synced_mapped_or_grow_is_no_place_for_a_list() {
    let shm = ["colors.db-shm", ".colors-new-shm"];
    let no_maps =
        "this file system has no shared memory maps; name a file on another one with --data";
    let [failed, too_many] =
        ["Input/output error (os error 5)", "Too many open files (os error 24)"]
            .map(|error| format!("cannot sync DIR: {error}; a power cut "));
    let no_locks = "cannot lock FILE: No locks available (os error 37); name another file";
    for (is_there, paths, inject, reason) in [
        (false, &shm[..], "mmap:error=ENODEV", no_maps),
        (false, &shm, "fallocate:error=ENOSPC", "the disk is full; make room on it"),
        (true, &[""], "fsync,fdatasync:error=EIO", &failed),
        (true, &[""], "openat:error=EMFILE", &too_many),
        (true, &["colors.db"], "flock:error=ENOLCK", no_locks),
    ] {
        for check in [&["--check"][..], &[]] {
            let start = FirstStart::new();
            if is_there {
                start.check_next("as it should be");
            }
            let before = start.data.names();
            let Some(first) = start.fail_at(inject, paths, check) else { return };
            let reason = reason.replace("DIR", &start.path("")).replace("FILE", &start.file);
            let expected = format!("cannot use {}: {reason}", start.file);
            assert!(first.contains(&expected), "{inject} {check:?}: {first}");
            assert_eq!(start.data.names(), before, "{inject} {check:?}");
            start.check_next(inject);
        }
    }
}

#[test]
fn without_a_rename_that_replaces_nothing_a_link_does_the_same() {
    let start = FirstStart::new();
    let Some(first) = start.fail_at("renameat2:error=EINVAL", &[], &[]) else { return };
    assert!(first.contains("which was made now from"), "{first}");
    assert_eq!(fs::metadata(&start.file).unwrap().nlink(), 1);
    start.check_next(&first);
}

/// What it has may be nowhere else.
#[test]
fn a_wal_without_its_file_refuses_a_start_and_is_not_removed() {
    let start = FirstStart::new();
    let server = Server::start(&start.arguments());
    server.ask("DELETE", "/colors/a", "").expect_status(200);
    let list = server.list();
    server.signal(Signal::KILL);
    server.wait();
    let moved = start.scratch.file("moved.db");
    fs::rename(&start.file, &moved).unwrap();
    for is_empty in [false, true] {
        if is_empty {
            fs::write(&start.file, "").unwrap();
        }
        let name = &start.file;
        let expected = format!(
            "[ERROR] cannot use {name}: it is missing or empty, and {name}-wal may have changes that \
             are nowhere else; move the file back to which that belongs, or remove {name}-wal to \
             begin with the seed\n"
        );
        for mode in [&["--seed", &start.seed], &["--check"][..]] {
            let log = fail(&[mode, &["--data", name]].concat());
            assert!(log.ends_with(&expected), "{log}");
        }
    }
    fs::rename(moved, &start.file).unwrap();
    assert_eq!(stored(&start.file), list);
    fs::remove_file(&start.file).unwrap();
    fs::remove_file(format!("{}-wal", start.file)).unwrap();
    start.check_next("a FILE-shm that was left");
}

#[test]
fn an_empty_file_keeps_its_owner_and_mode() {
    let start = FirstStart::new();
    fs::write(&start.file, "").unwrap();
    fs::set_permissions(&start.file, fs::Permissions::from_mode(0o660)).unwrap();
    let is_root = geteuid().is_root();
    let owner = if is_root { 65534 } else { geteuid().as_raw() };
    if is_root {
        chown(&start.file, Some(owner), Some(owner)).unwrap();
    }
    start.check_next("empty");
    let file = fs::metadata(&start.file).unwrap();
    assert_eq!((file.mode() & 0o7777, file.uid()), (0o660, owner));
}

#[test]
fn a_new_file_that_was_left_is_removed_and_a_link_in_its_place_is_not_followed() {
    for name in ["colors.db-shm", ".colors-new"] {
        let start = FirstStart::new();
        let path = start.data.0.join(name);
        fs::write(&path, "half").unwrap();
        start.check_next("a file");
        fs::remove_file(&start.file).unwrap();
        let target = start.scratch.write("target", "theirs");
        symlink(&target, &path).unwrap();
        start.check_next("a link");
        assert_eq!(fs::read_to_string(target).unwrap(), "theirs");
    }
}
