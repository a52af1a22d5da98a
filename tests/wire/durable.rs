//! `--data`: what was acknowledged is on the disk, whatever happens next, and what could not be saved was not made.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};

use crate::harness::{DEADLINE, Scratch, Server, colors, colors_below_strace, eventually, own_environment};

/// Starts the service with its list in this file.
fn start(file: &str) -> Server {
    Server::start(&["--seed", "seed/colors.json", "--data", file])
}

/// The list as the next start reads it.
fn stored(file: &str) -> String {
    let colors: serde_json::Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    serde_json::json!({ "data": colors }).to_string()
}

#[track_caller]
fn stop(server: Server) {
    server.signal(Signal::TERM);
    assert!(server.wait().0.success());
}

/// Posts a color; true when the service said that it is created, false when the connection ended before that.
fn create(stream: &mut TcpStream, name: &str, value: &str) -> bool {
    let content = format!(r#"{{"name":"{name}","value":"{value}"}}"#);
    let request = format!("POST /colors HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{content}", content.len());
    let mut answer = Vec::new();
    if stream.write_all(request.as_bytes()).is_err() {
        return false;
    }
    while !answer.ends_with(content.as_bytes()) {
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
    let file = scratch.0.join("list.json").to_str().unwrap().to_owned();
    let server = start(&file);
    assert_eq!(stored(&file), server.list());
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777 & !0o600, 0);
    assert_eq!(server.ask("DELETE", "/colors/red", "").status, 200);
    assert_eq!(server.ask("PUT", "/colors/blue", r#"{"value":"1"}"#).status, 200);
    assert_eq!(server.ask("POST", "/colors", r#"{"name":"é\n","value":"2"}"#).status, 201);
    let list = server.list();
    assert_eq!(stored(&file), list);
    stop(server);
    // the seed is not read when there is a file
    let again = Server::start(&["--seed", "no/such/file", "--data", &file]);
    assert_eq!(again.list(), list);
    stop(again);
    // and the file is a seed
    assert_eq!(Server::start(&["--seed", &file]).list(), list);
}

#[test]
fn no_acknowledged_change_is_lost_to_kill_9() {
    const ROUNDS: usize = 30;
    const WRITERS: usize = 4;
    let scratch = Scratch::new();
    let file = scratch.write("list.json", "[]");
    let mut random = fastrand::Rng::with_seed(4);
    let mut acknowledged = [const { Vec::<String>::new() }; WRITERS];
    for round in 0..ROUNDS {
        let server = start(&file);
        let until_kill = random.usize(1..40);
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
            eventually("some changes", || (count.load(SeqCst) >= until_kill).then_some(()));
            server.signal(Signal::KILL);
        });
        server.wait();
        let list: serde_json::Value = serde_json::from_str(&stored(&file)).unwrap();
        let list = list["data"].as_array().unwrap();
        for (writer, ledger) in acknowledged.iter_mut().enumerate() {
            let name = format!("writer-{writer}");
            let kept = list.iter().filter(|color| color["name"] == *name).map(|color| color["value"].as_str().unwrap().to_owned());
            let kept: Vec<String> = kept.collect();
            assert!(kept.starts_with(ledger), "round {round}: {} acknowledged, kept {kept:?}", ledger.len());
            // the one that was under way may be there or not
            assert!(kept.len() <= ledger.len() + 1, "round {round}");
            *ledger = kept;
        }
    }
    assert!(acknowledged.iter().map(Vec::len).sum::<usize>() > ROUNDS);
}

#[test]
fn every_save_is_synced_before_its_answer() {
    let scratch = Scratch::new();
    let file = scratch.write("list.json", "[]");
    let trace = scratch.0.join("trace").to_str().unwrap().to_owned();
    let options = ["-y", "-s", "16", "-e", "trace=fsync,fdatasync,/rename,sendto,sendmsg,write,writev", "-o", &trace];
    let Some(command) = colors_below_strace(&options, &["--listen", "127.0.0.1:0", "--data", &file]) else { return };
    let server = Server::spawn(command);
    let mut client = server.connect();
    for (method, target, content) in [
        ("POST", "/colors", r#"{"name":"a","value":"1"}"#),
        ("PUT", "/colors/a", r#"{"value":"2"}"#),
        ("PUT", "/colors/a", ""),
        ("DELETE", "/colors/a", ""),
    ] {
        assert!(client.ask(method, target, content).status < 300);
    }
    drop(client);
    stop(server);
    let directory = scratch.0.to_str().unwrap();
    let log = eventually("the trace ends", || fs::read_to_string(&trace).ok().filter(|log| log.contains("+++ exited with 0 +++")));
    let steps: Vec<&str> = log
        .lines()
        .filter_map(|line| match line {
            _ if line.contains("resumed>") => None,
            _ if (line.contains("fsync(") || line.contains("fdatasync(")) && line.contains("list.json.tmp>") => Some("sync file"),
            _ if line.contains("rename") && line.contains("list.json.tmp") => Some("rename"),
            _ if line.contains("fsync(") && line.contains(&format!("<{directory}>")) => Some("sync directory"),
            _ if line.contains("HTTP/1.1 20") => Some("answer"),
            _ => None,
        })
        .collect();
    let save = ["sync file", "rename", "sync directory", "answer"];
    assert_eq!(steps, [&save[..], &save, &["answer"], &save].concat(), "{log}");
}

#[test]
fn a_save_that_fails_changes_nothing_and_the_next_works_again() {
    let scratch = Scratch::new();
    let file = scratch.write("list.json", "[]");
    let server = start(&file);
    let create = |value: &str| server.ask("POST", "/colors", &format!(r#"{{"name":"a","value":"{value}"}}"#));
    assert_eq!(create("1").status, 201);
    let list = server.list();

    // a file size limit stands for a full disk
    let pid = Pid::from_raw(server.pid() as i32);
    let limit = |bytes: Option<u64>| prlimit(pid, Resource::Fsize, Rlimit { current: bytes, maximum: None }).unwrap();
    limit(Some(64));
    for _ in 0..3 {
        let response = create(&"2".repeat(100));
        assert_eq!(
            (response.status, response.message().as_str()),
            (500, "the change was not made, it could not be saved: cannot write: File too large (os error 27)")
        );
    }
    assert_eq!((server.list(), stored(&file)), (list.clone(), list.clone()));
    // requests that save nothing tell nothing of the disk
    assert_eq!((server.ask("DELETE", "/colors/none", "").status, server.ask("PUT", "/colors/a", "{}").status), (404, 200));
    let health = server.ask("GET", "/health", "");
    let json: serde_json::Value = serde_json::from_str(&health.content).unwrap();
    assert_eq!((health.status, &json["status"]), (503, &"the last change could not be saved".into()));

    assert!(json["saved"].as_str().is_some_and(|saved| saved.len() == 20 && saved.ends_with('Z')), "{json}");
    let mut left: Vec<_> = fs::read_dir(&scratch.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["list.json", "list.json.lock"]);
    limit(None);
    assert_eq!(create("3").status, 201);
    assert_eq!(server.ask("GET", "/health", "").status, 200);
    assert_eq!(stored(&file), server.list());

    // the directory is gone
    let list = server.list();
    let elsewhere = Scratch::new();
    fs::rename(&scratch.0, elsewhere.0.join("moved")).unwrap();
    assert_eq!(create("4").status, 500);
    assert_eq!(server.list(), list);
    fs::rename(elsewhere.0.join("moved"), &scratch.0).unwrap();
    assert_eq!(create("5").status, 201);
    assert_eq!(stored(&file), server.list());

    // something else is in the way of the file
    let list = server.list();
    fs::rename(&file, format!("{file}.away")).unwrap();
    fs::create_dir(&file).unwrap();
    assert_eq!(create("6").status, 500);
    assert_eq!(server.list(), list);
    fs::remove_dir(&file).unwrap();
    assert_eq!(create("7").status, 201);
    assert_eq!(stored(&file), server.list());
    let again = |log: &String| log.matches("[INFO] changes are saved again\n").count() == 3;
    let log = eventually("each recovery is logged", || Some(server.log()).filter(again));
    assert_eq!(log.matches("[ERROR] changes cannot be saved: cannot write: File too large (os error 27)\n").count(), 1, "{log}");
}

#[test]
fn a_directory_that_may_not_be_written_is_a_500_and_no_harm() {
    // no permission bit keeps root out, so root's part is played by nobody
    let scratch = std::env::temp_dir().join(format!("colors-{}", std::process::id()));
    fs::create_dir_all(&scratch).unwrap();
    let scratch = Scratch(scratch);
    let (program, file) = (scratch.0.join("colors"), scratch.0.join("data/list.json"));
    fs::copy(colors(&[]).get_program(), &program).unwrap();
    fs::create_dir(scratch.0.join("data")).unwrap();
    fs::write(&file, r#"[{"name":"a","value":"1"}]"#).unwrap();
    let mut command = own_environment(program);
    command.args(["--listen", "127.0.0.1:0", "--data", file.to_str().unwrap()]).stderr(std::process::Stdio::piped());
    let directory = file.parent().unwrap();
    if rustix::process::geteuid().is_root() {
        std::os::unix::process::CommandExt::uid(&mut command, 65534);
        std::os::unix::fs::chown(directory, Some(65534), None).unwrap();
        std::os::unix::fs::chown(&file, Some(65534), None).unwrap();
    }
    let server = Server::spawn(command);
    let mode = |mode| fs::set_permissions(directory, fs::Permissions::from_mode(mode)).unwrap();
    mode(0o555);
    let response = server.ask("DELETE", "/colors/a", "");
    assert_eq!(response.status, 500);
    assert!(response.message().ends_with("cannot create a file: Permission denied (os error 13)"), "{response:?}");
    assert_eq!(server.list(), r#"{"data":[{"name":"a","value":"1"}]}"#);
    mode(0o755);
    assert_eq!(server.ask("DELETE", "/colors/a", "").status, 200);
    assert_eq!(stored(file.to_str().unwrap()), r#"{"data":[]}"#);
}

#[test]
fn when_the_directory_cannot_be_synced_the_list_before_is_put_back() {
    let scratch = Scratch::new();
    let file = scratch.write("list.json", "[]");
    let options = ["-o", "/dev/null", "-e", "trace=fsync", "-e", "inject=fsync:error=EIO:when=2"];
    let Some(command) = colors_below_strace(&options, &["--listen", "127.0.0.1:0", "--data", &file]) else { return };
    let server = Server::spawn(command);
    let mut client = server.connect();
    let content = r#"{"name":"a","value":"1"}"#;
    let response = client.ask("POST", "/colors", content);
    assert_eq!(
        (response.status, response.message().as_str()),
        (500, "the change was not made, it could not be saved: cannot sync the directory: Input/output error (os error 5)")
    );
    assert_eq!((server.list().as_str(), stored(&file).as_str()), (r#"{"data":[]}"#, r#"{"data":[]}"#));
    assert_eq!(client.ask("POST", "/colors", content).status, 201);
    assert_eq!(stored(&file), server.list());
    drop(client);
    stop(server);
}

#[test]
fn a_second_process_on_the_same_file_is_told_so() {
    let scratch = Scratch::new();
    let file = scratch.0.join("list.json").to_str().unwrap().to_owned();
    let server = start(&file);
    server.ask("DELETE", "/colors/red", "");
    let output = colors(&["--listen", "127.0.0.1:0", "--data", &file]).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    let expected = format!("[ERROR] cannot use {file}: another process keeps its list there; name another file with --data\n");
    assert!(error.ends_with(&expected), "{error}");
    stop(server);
    assert_eq!(start(&file).ask("GET", "/colors/red", "").status, 404);
}

#[test]
fn a_file_that_is_no_list_stops_the_start_and_is_left_alone() {
    let scratch = Scratch::new();
    let whole = "[\n{\"name\":\"a\",\"value\":\"1\"},\n{\"name\":\"b\",\"value\":\"2\"}\n]";
    for end in 0..whole.len() {
        let file = scratch.write("list.json", &whole[..end]);
        let output = colors(&["--listen", "127.0.0.1:0", "--data", &file]).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{end}: {error}");
        assert!(error.contains(&format!("[ERROR] {file}:")), "{error}");
        assert_eq!(fs::read_to_string(&file).unwrap(), whole[..end]);
    }
}

#[test]
fn a_link_stays_and_the_mode_is_kept_and_what_a_crash_left_is_cleared_away() {
    let scratch = Scratch::new();
    let target = scratch.write("target.json", "[]");
    fs::set_permissions(&target, fs::Permissions::from_mode(0o644)).unwrap();
    let left_over = scratch.write("target.json.tmp", "[{\"na");
    let link = scratch.0.join("link.json");
    symlink("target.json", &link).unwrap();
    let server = start(link.to_str().unwrap());
    assert!(!Path::new(&left_over).exists());
    assert_eq!(server.ask("POST", "/colors", r#"{"name":"a","value":"1"}"#).status, 201);
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(stored(&target), r#"{"data":[{"name":"a","value":"1"}]}"#);
    assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o644);

    let dangling = scratch.0.join("dangling.json");
    symlink("new.json", &dangling).unwrap();
    let server = start(dangling.to_str().unwrap());
    assert!(fs::symlink_metadata(&dangling).unwrap().is_symlink());
    assert_eq!(stored(scratch.0.join("new.json").to_str().unwrap()), server.list());
}

#[test]
fn changes_saved_together_each_get_their_own_answer() {
    let scratch = Scratch::new();
    let file = scratch.write("list.json", "[]");
    let server = start(&file);
    thread::scope(|scope| {
        for number in 0..32 {
            let mut client = server.connect();
            scope.spawn(move || {
                let (name, target) = (format!("name-{number}"), format!("/colors/name-{number}"));
                for step in 0..5 {
                    let color = |value: &str| format!(r#"{{"name":"{name}","value":"{value}"}}"#);
                    assert_eq!(client.ask("DELETE", &target, "").status, 404);
                    let made = client.ask("POST", "/colors", &color("new"));
                    assert_eq!((made.status, made.content, made.fields.iter().any(|(n, _)| n == "Location")), (201, color("new"), true));
                    let changed = client.ask("PUT", &target, &format!(r#"{{"value":"{step}"}}"#));
                    assert_eq!((changed.status, changed.content), (200, color(&step.to_string())));
                    assert_eq!(client.ask_with("DELETE", &target, "If-Match: \"x\"\r\n", "").status, 412);
                    assert_eq!(client.ask("DELETE", &target, "").content, color(&step.to_string()));
                }
            });
        }
    });
    assert_eq!((server.list().as_str(), stored(&file).as_str()), (r#"{"data":[]}"#, r#"{"data":[]}"#));
}

#[test]
fn two_writers_by_turns_are_about_as_fast_as_one() {
    let scratch = Scratch::new();
    let file = scratch.write("list.json", r#"[{"name":"a","value":"1"}]"#);
    let server = Server::start(&["--data", &file, "--workers", "1"]);
    let mut writers = [server.connect(), server.connect()];
    let mut time = |order: [usize; 2]| {
        let begun = Instant::now();
        for writer in order.into_iter().cycle().take(100) {
            assert_eq!(writers[writer].ask("PUT", "/colors/a", r#"{"value":"2"}"#).status, 200);
        }
        begun.elapsed()
    };
    let (one, two) = (time([0, 0]), time([0, 1]));
    // 5 s more if each waits until the other has been silent for a moment
    assert!(two < 2 * one + Duration::from_secs(2), "{two:?} against {one:?}");
}
