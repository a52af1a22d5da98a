//! `--read-only --data FILE` follows a file that others write, whatever they do to it, and writes
//! nothing itself. The rules by which it reads are tested one by one in
//! `src/store/foreign_reader.rs`, and real replicas in `litestream`.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::geteuid;
use serde_json::Value;

use crate::common::client::Client;
use crate::common::harness::{
    DEADLINE, Scratch, Server, SetOnDrop, colors, is_installed, own_environment, run, skip,
    wait_until,
};
use crate::wire::durable::health;

/// Colors of a list whose values are all the same: one that is mixed of two has two.
const COLORS: usize = 400;

pub(super) fn list_of(value: usize) -> String {
    let colors: Vec<String> = (0..COLORS)
        .map(|number| format!(r#"{{"name":"color-{number}","value":"{value}"}}"#))
        .collect();
    format!("[{}]", colors.join(","))
}

/// The one value of such a list.
#[track_caller]
pub(super) fn value_of(envelope: &str) -> usize {
    let list: Value = serde_json::from_str(envelope).unwrap();
    let colors = list["data"].as_array().unwrap();
    let value = colors[0]["value"].as_str().unwrap();
    let same = colors.iter().filter(|color| color["value"] == value).count();
    assert_eq!((colors.len(), same), (COLORS, COLORS), "it is mixed");
    value.parse().unwrap()
}

fn follow(file: &str) -> Server {
    Server::start(&["--read-only", "--data", file])
}

/// The status and the reason of `/health`.
fn fault(server: &Server) -> (u16, String) {
    let (status, json) = health(server);
    (status, json["status"].as_str().unwrap().to_owned())
}

#[test]
fn a_seed_beside_a_file_that_others_write_is_a_warning() {
    let scratch = Scratch::new();
    let file = scratch.file("colors.db");
    Server::start(&["--data", &file]).stop();
    let log = Server::start(&["--read-only", "--data", &file, "--seed", "none"]).stop();
    assert!(log.contains("[WARN] --seed does nothing: others write the list of --data\n"), "{log}");
}

/// A service on `live.db`, with a writer that replaces its list all the time, while `bring` brings
/// `live.db` to the file that is followed, again and again. Two followers read it for some seconds:
/// no list is mixed, and the next ones come.
fn check_use(followed: &str, bring: impl Fn(&str, &str) + Sync) {
    let scratch = Scratch::new();
    let (live, followed) = (scratch.file("live.db"), scratch.file(followed));
    let server = Server::with_data(&list_of(0), &live, &[]);
    bring(&live, &followed);
    let followers = [follow(&followed), follow(&followed)];
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _end = SetOnDrop(&is_over);
        let written = scope.spawn(|| {
            let mut client = server.connect();
            let mut times = vec![Instant::now()];
            while !is_over.load(Relaxed) {
                let list = list_of(times.len());
                client.ask("PUT", "/colors", &list).expect_status(200);
                times.push(Instant::now());
            }
            times
        });
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                bring(&live, &followed);
            }
        });
        let begun = Instant::now();
        let mut clients: Vec<Client> = followers.iter().map(Server::connect).collect();
        let (mut seen, mut values) = (Vec::new(), BTreeSet::new());
        // a busy machine takes longer for some lists
        while begun.elapsed() < Duration::from_secs(5)
            || values.len() < 4 && begun.elapsed() < 3 * DEADLINE
        {
            for client in &mut clients {
                let value = value_of(&client.ask("GET", "/colors", "").content);
                seen.push((value, Instant::now()));
                values.insert(value);
                client.ask("GET", "/health", "").expect_status(200);
            }
            thread::park_timeout(Duration::from_millis(5));
        }
        is_over.store(true, Relaxed);
        let times = written.join().unwrap();
        // how long ago each was replaced when it was read
        let ages = seen.iter().filter_map(|(value, read)| {
            Some(read.saturating_duration_since(*times.get(value + 1)?))
        });
        let oldest = ages.max().unwrap();
        assert!(values.len() >= 4 && oldest < DEADLINE, "{} lists, {oldest:?}", values.len());
    });
}

fn back_up(from: &str, to: &str) {
    let output =
        Command::new("sqlite3").args([from, ".timeout 5000", &format!(".backup {to}")]).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn the_file_of_a_service_that_runs_is_followed() {
    check_use("live.db", |_, _| thread::park_timeout(Duration::from_millis(100)));
}

#[test]
fn a_backup_that_sqlite3_makes_in_place_is_followed() {
    if is_installed("sqlite3") {
        check_use("copy.db", back_up);
    }
}

#[test]
fn a_file_that_is_renamed_into_place_is_followed() {
    if is_installed("sqlite3") {
        check_use("copy.db", |live, followed| {
            let new = format!("{followed}.new");
            back_up(live, &new);
            fs::rename(new, followed).unwrap();
        });
    }
}

#[test]
fn a_missing_file_fails_the_start_with_one_line_and_nothing_is_made() {
    let scratch = Scratch::new();
    let file = scratch.file("none.db");
    for mode in [&["--listen", "127.0.0.1:0"][..], &["--check"]] {
        let arguments = [mode, &["--read-only", "--data", &file]].concat();
        let (code, printed, log) = run(&mut colors(&arguments));
        let reason = "it does not exist, or is empty; name the file of a service, or a copy, with";
        assert_eq!((code, printed.as_str(), log.lines().count()), (Some(1), "", 1), "{log}");
        assert!(log.ends_with(&format!("[ERROR] cannot use {file}: {reason} --data\n")), "{log}");
    }
    assert_eq!(scratch.names(), Vec::<String>::new());
}

#[test]
fn what_happens_to_the_file_keeps_the_last_list_until_it_can_be_read_again() {
    let scratch = Scratch::new();
    let (file, away) = (scratch.file("colors.db"), scratch.file("away.db"));
    Server::with_data(&list_of(1), &file, &[]).stop();
    Server::with_data(&list_of(2), &away, &[]).stop();
    let follower = follow(&file);
    let first = follower.log();
    let shown = format!("400 colors, follows {file}, read-only)\n");
    assert!(first.contains(&shown) && first.contains("[INFO] listening on"), "{first}");
    let (_, before) = health(&follower);
    let expected = ["changed", "colors", "follows", "read", "status", "version"];
    assert_eq!(before.as_object().unwrap().keys().collect::<Vec<_>>(), expected);
    assert_eq!(before["follows"], "colors.db");
    let missing =
        "it does not exist, or is empty; name the file of a service, or a copy, with --data";
    let broken = "it is not a database of colors; name another file with --data";
    let other = "it is the database of another program; name another file with --data";
    let foreign = fs::read(&file).unwrap();
    let foreign = [&foreign[..68], &[0, 0, 0, 7], &foreign[72..]].concat();
    for (content, reason) in
        [(None, missing), (Some(&b"broken"[..]), broken), (Some(&foreign[..]), other)]
    {
        fs::rename(&file, scratch.file("kept.db")).unwrap();
        if let Some(content) = content {
            fs::write(&file, content).unwrap();
        }
        let expected = (503, format!("the list cannot be read: {reason}"));
        wait_until("it is noticed", || fault(&follower) == expected);
        assert_eq!(value_of(&follower.list()), 1);
        fs::rename(scratch.file("kept.db"), &file).unwrap();
        wait_until("it is read again", || fault(&follower).0 == 200);
        assert_eq!(value_of(&follower.list()), 1);
    }
    let (_, after) = health(&follower);
    assert_eq!(after["changed"], before["changed"], "it is the same list");
    assert_ne!(after["read"], before["read"]);
    fs::rename(&away, &file).unwrap();
    wait_until("another file is read", || value_of(&follower.list()) == 2);
    assert_ne!(health(&follower).1["changed"], before["changed"]);
    for name in ["colors_read_timestamp_seconds", "colors_changed_timestamp_seconds"] {
        assert!(follower.metric(name) > 1e9, "{name}");
    }
    // each reason once
    let log = follower.stop();
    assert_eq!(log.matches("[ERROR] the list cannot be read: ").count(), 3, "{log}");
    assert_eq!(log.matches("[INFO] the list is read again\n").count(), 3, "{log}");
    assert_eq!(scratch.names(), ["colors.db"]);
}

#[test]
fn a_follower_writes_nothing_and_needs_no_permission_to() {
    let scratch = Scratch::for_all_users();
    let file = scratch.file("colors.db");
    let server = Server::with_data(&list_of(1), &file, &[]);
    server.ask("PUT", "/colors", &list_of(2)).expect_status(200);
    if !geteuid().is_root() {
        return skip("it takes root to start a process of another user");
    }
    // a directory of others, in which nobody but its owner may write
    for name in ["colors.db", "colors.db-wal", "colors.db-shm"] {
        fs::set_permissions(scratch.file(name), fs::Permissions::from_mode(0o644)).unwrap();
    }
    let names = scratch.names();
    let mut command = own_environment("./colors");
    command.args(["--listen", "127.0.0.1:0", "--read-only", "--data", "colors.db"]);
    command.current_dir(&scratch.0).uid(65534).gid(65534).stderr(std::process::Stdio::piped());
    let follower = Server::spawn(command);
    assert_eq!(value_of(&follower.list()), 2);
    server.ask("PUT", "/colors", &list_of(3)).expect_status(200);
    wait_until("it follows", || value_of(&follower.list()) == 3);
    let refused = follower.ask("PUT", "/colors/color-0", r#"{"value":"4"}"#);
    assert_eq!((refused.status, refused.field("allow")), (405, Some("GET, HEAD, OPTIONS")));
    assert_eq!(scratch.names(), names);
    // it keeps no lock: the service stops without it, and can start again
    server.stop();
    let server = Server::start(&["--data", &file]);
    server.ask("PUT", "/colors", &list_of(5)).expect_status(200);
    wait_until("it follows the next one", || value_of(&follower.list()) == 5);
    server.stop();
    assert_eq!(fault(&follower).0, 200);
}
