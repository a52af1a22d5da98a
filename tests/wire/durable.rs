//! `--data`: what was acknowledged is on the disk, whatever happens next. Disks that fail are in
//! `failing_disk`.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

use rustix::process::Signal;

use crate::common::client::request;
use crate::common::harness::{
    DEADLINE, Scratch, Server, colors, colors_below_strace, eventually, run, stored, wait_until,
};

pub(super) const A: &str = r#"{"name":"a","value":"1"}"#;

/// Makes a database of this list.
pub(super) fn make(file: &str, seed: &str) {
    Server::with_data(seed, file, &[]).stop();
}

pub(super) fn health(server: &Server) -> (u16, serde_json::Value) {
    let response = server.ask("GET", "/health", "");
    (response.status, serde_json::from_str(&response.content).unwrap())
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

/// Posts a color; true when the service said that it is created, false when the connection ended
/// before that.
fn create(stream: &mut TcpStream, name: &str, value: &str) -> bool {
    let content = format!(r#"{{"name":"{name}","value":"{value}"}}"#);
    let request = request("POST", "/colors", "Host: localhost\r\n", &content);
    let mut answer = Vec::new();
    if stream.write_all(request.as_bytes()).is_err() {
        return false;
    }
    while !answer.ends_with(format!("{content}\n").as_bytes()) {
        let mut bytes = [0; 1024];
        match stream.read(&mut bytes) {
            Ok(length) if length > 0 => answer.extend_from_slice(&bytes[..length]),
            _ => return false,
        }
    }
    assert!(answer.starts_with(b"HTTP/1.1 201 "));
    true
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

#[test]
fn no_acknowledged_change_is_lost_to_kill_9() {
    const ROUNDS: usize = 30;
    const WRITERS: usize = 4;
    let scratch = Scratch::new();
    let file = scratch.file("colors.db");
    make(&file, "[]");
    let mut random = fastrand::Rng::with_seed(4);
    let mut acknowledged = [const { Vec::<String>::new() }; WRITERS];
    for round in 0..ROUNDS {
        let server = Server::start(&["--data", &file]);
        let until_kill = random.usize(1..80);
        let count = AtomicUsize::new(0);
        thread::scope(|scope| {
            for (writer, ledger) in acknowledged.iter_mut().enumerate() {
                let (address, count) = (server.address, &count);
                scope.spawn(move || {
                    // the service may be gone before this writer connects
                    let Ok(mut stream) = TcpStream::connect(address) else { return };
                    stream.set_read_timeout(Some(DEADLINE)).unwrap();
                    for step in 0.. {
                        let value = format!("{round}-{step}");
                        if !create(&mut stream, &format!("writer-{writer}"), &value) {
                            return;
                        }
                        ledger.push(value);
                        count.fetch_add(1, SeqCst);
                    }
                });
            }
            wait_until("some changes", || count.load(SeqCst) >= until_kill);
            server.signal(Signal::KILL);
        });
        server.wait();
        let list: serde_json::Value = serde_json::from_str(&stored(&file)).unwrap();
        let list = list["data"].as_array().unwrap();
        for (writer, ledger) in acknowledged.iter_mut().enumerate() {
            let name = format!("writer-{writer}");
            let kept = list
                .iter()
                .filter(|color| color["name"] == *name)
                .map(|color| color["value"].as_str().unwrap().to_owned());
            let kept: Vec<String> = kept.collect();
            assert!(
                kept.starts_with(ledger),
                "round {round}: {} acknowledged, kept {kept:?}",
                ledger.len()
            );
            // the one that was under way may be there or not
            assert!(kept.len() <= ledger.len() + 1, "round {round}");
            *ledger = kept;
        }
    }
    assert!(acknowledged.iter().map(Vec::len).sum::<usize>() > ROUNDS);
}

#[test]
fn every_change_is_synced_before_its_answer() {
    let scratch = Scratch::new();
    let (file, trace) = (scratch.file("colors.db"), scratch.0.join("trace"));
    make(&file, "[]");
    let calls = "trace=fsync,fdatasync,sendto,sendmsg,write,writev";
    let options = ["-y", "-s", "16", "-e", calls, "-o", trace.to_str().unwrap()];
    let Some(server) = Server::below_strace(&options, &["--data", &file]) else { return };
    let mut client = server.connect();
    for (method, target, content) in [
        ("POST", "/colors", A),
        ("PUT", "/colors/a", r#"{"value":"2"}"#),
        ("PUT", "/colors/a", ""),
        ("DELETE", "/colors/none", ""),
        ("DELETE", "/colors/a", ""),
    ] {
        client.ask(method, target, content);
    }
    drop(client);
    server.stop();
    let log = eventually("the trace ends", || {
        fs::read_to_string(&trace).ok().filter(|log| log.contains("+++ exited with 0 +++"))
    });
    let mut steps: Vec<&str> = log
        .lines()
        .filter_map(|line| match line {
            _ if line.contains("resumed>") => None,
            _ if (line.contains("fsync(") || line.contains("fdatasync("))
                && line.contains("colors.db-wal>") =>
            {
                Some("sync")
            }
            _ if line.contains("HTTP/1.1 ") => Some("answer"),
            _ => None,
        })
        .collect();
    // the first commit syncs the header of FILE-wal as well
    steps.dedup();
    let saved = ["sync", "answer"];
    let steps: Vec<_> = steps.into_iter().take(7).collect();
    // a PUT and a DELETE that change nothing need no sync: their answers follow the one before, and
    // are one with it here
    assert_eq!(steps, [&saved[..], &saved, &saved, &["sync"]].concat(), "{log}");
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
    let message = format!("the change could not be saved: {reason}");
    server.ask("DELETE", "/colors/a", "").expect_message(500, &message);
    assert_eq!((server.list(), health(&server).0), (list.clone(), 503));
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
fn a_first_start_that_is_killed_leaves_nothing_that_a_second_one_stumbles_over() {
    let scratch = Scratch::new();
    let seed: Vec<String> =
        (0..5000).map(|number| format!(r#"{{"name":"{number}","value":"1"}}"#)).collect();
    let seed = scratch.write("seed.json", format!("[{}]", seed.join(",")));
    for sync in 1..=10 {
        let file = scratch.file(&format!("{sync}.db"));
        let inject = format!("inject=fsync,fdatasync:signal=KILL:when={sync}");
        let options = ["-o", "/dev/null", "-e", "trace=fsync,fdatasync", "-e", &inject];
        let arguments = ["--listen", "127.0.0.1:0", "--seed", &seed, "--data", &file];
        let Some(mut command) = colors_below_strace(&options, &arguments) else { return };
        let mut killed = command.spawn().unwrap();
        // without a sync of that number it goes on: what it logs then ends the wait
        let _ = std::io::BufRead::read_line(
            &mut std::io::BufReader::new(killed.stderr.take().unwrap()),
            &mut String::new(),
        );
        let _ = killed.kill();
        killed.wait().unwrap();
        // the fifth is of the directory: nothing comes before what ends the journal is durable
        assert!(sync != 5 || !fs::exists(format!("{file}-shm")).unwrap(), "another is the fifth");
        let check = run(&mut colors(&["--check", "--seed", &seed, "--data", &file]));
        assert_eq!(check.0, Some(0), "{sync}: {}", check.2);
        let again = Server::start(&["--seed", &seed, "--data", &file]);
        assert_eq!(again.list().matches("\"name\"").count(), 5000, "{sync}");
        again.stop();
    }
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
    assert!(refused.message().contains("link.db was removed, replaced or cut short; "));
    assert_eq!((refused.status, health(&server).0, server.list()), (500, 503, list.clone()));
    server.stop();
    assert_eq!(stored(&scratch.file("colors.db")), list);
}
