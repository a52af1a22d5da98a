//! What `--data FILE` accepts as FILE, who may share its directory, and what a save does to names that others have planted there.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Signal, geteuid};

use crate::harness::{Scratch, Server, colors, eventually, is_installed, own_environment, skip};

const RED: &str = r#"{"name":"red","value":"1"}"#;
const ONLY_RED: &str = "[\n{\"name\":\"red\",\"value\":\"1\"}\n]";

/// Starts the service in a directory, with a list of its own.
fn start_in(directory: &Path, file: &str) -> Server {
    let mut command = colors(&["--listen", "127.0.0.1:0", "--data", file]);
    command.args(["--seed", concat!(env!("CARGO_MANIFEST_DIR"), "/seed/colors.json")]).current_dir(directory);
    Server::spawn(command)
}

/// Starts the service in a directory and expects it to fail; gives the reason.
#[track_caller]
fn failed_start(directory: &Path, file: &str) -> String {
    let mut command = colors(&["--listen", "127.0.0.1:0", "--data", file]);
    command.args(["--seed", concat!(env!("CARGO_MANIFEST_DIR"), "/seed/colors.json")]).current_dir(directory);
    let output = command.output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{file}: {error}");
    error.trim_end().split_once("[ERROR] ").unwrap().1.to_owned()
}

fn names_in(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn make_fifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

/// The reason in the answer to a change that could not be saved.
#[track_caller]
fn refused_save(server: &Server) -> String {
    let response = server.ask("POST", "/colors", RED);
    assert_eq!(response.status, 500, "{response:?}");
    assert_eq!(server.ask("GET", "/health", "").status, 503);
    response.message().strip_prefix("the change was not made, it could not be saved: ").unwrap().to_owned()
}

#[test]
fn a_name_of_4096_bytes_is_reached_by_its_location() {
    let server = Server::with_seed("[]", &[]);
    let name = "é".repeat(2048);
    let color = |value: &str| format!(r#"{{"name":"{name}","value":"{value}"}}"#);
    let created = server.ask("POST", "/colors", &color("1"));
    assert_eq!((created.status, &created.content), (201, &color("1")));
    let location = created.field("location").unwrap().to_owned();
    assert_eq!(location, format!("/colors/{}", "%C3%A9".repeat(2048)));
    assert_eq!(server.ask("GET", &location, "").content, color("1"));
    if is_installed("curl") {
        let url = format!("http://{}{location}", server.address);
        let curl = |arguments: &[&str]| {
            let output = Command::new("curl").args(["-s", "-w", " %{http_code}"]).args(arguments).arg(&url).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        assert_eq!(curl(&[]), color("1") + " 200");
        assert_eq!(curl(&["-X", "PUT", "-d", r#"{"value":"2"}"#]), color("2") + " 200");
        assert_eq!(curl(&["-X", "DELETE"]), color("2") + " 200");
        assert_eq!(curl(&[]), r#"{"error":true} 404"#);
    }
}

#[test]
fn a_name_of_4097_bytes_is_refused_wherever_colors_come_from() {
    let scratch = Scratch::new();
    let color = format!(r#"{{"name":"{}é","value":"1"}}"#, "a".repeat(4095));
    let reason = "field \"name\" has 4097 bytes, at most 4096 are allowed";
    let response = Server::with_seed("[]", &[]).ask("POST", "/colors", &color);
    assert_eq!((response.status, response.message()), (400, format!("{reason} at line 1 column 4107")));
    let file = scratch.write("list.json", format!("[\n{color}\n]"));
    assert_eq!(failed_start(&scratch.0, "list.json"), format!("list.json:2:4107: {reason}"));
    let output = colors(&["--listen", "127.0.0.1:0", "--seed", &file]).output().unwrap();
    assert!(String::from_utf8(output.stderr).unwrap().ends_with(&format!("[ERROR] {file}:2:4107: {reason}\n")));
}

#[test]
fn a_long_content_does_not_come_back_in_the_message() {
    let server = Server::with_seed("[]", &[]);
    let response = server.ask("POST", "/colors", &format!("\"{}\"", "a".repeat(60_000)));
    assert_eq!((response.status, response.message().len() < 250), (400, true), "{response:?}");
}

#[test]
fn entity_tags_survive_a_restart() {
    let tag = |target: &str| Server::with_seed(ONLY_RED, &[]).ask("GET", target, "").field("etag").unwrap().to_owned();
    for target in ["/colors", "/colors/red"] {
        let first = tag(target);
        let digits = first.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap();
        assert!(digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()), "{first}");
        assert_eq!(tag(target), first);
    }
}

#[test]
fn a_process_whose_lock_file_was_removed_writes_nothing() {
    let scratch = Scratch::new();
    let directory = scratch.0.join("data");
    fs::create_dir(&directory).unwrap();
    let first = start_in(&scratch.0, "data/list.json");
    let list = first.list();
    fs::remove_dir_all(&directory).unwrap();
    fs::create_dir(&directory).unwrap();
    let reason = "the lock file list.json.lock was removed or replaced, so another process may use the data file; restart this one";
    assert_eq!(refused_save(&first), reason);
    assert_eq!((first.list(), names_in(&directory)), (list.clone(), vec![]));

    let second = start_in(&scratch.0, "data/list.json");
    assert_eq!(second.ask("DELETE", "/colors/red", "").status, 200);
    assert_eq!(refused_save(&first), reason);
    assert_eq!((first.list(), names_in(&directory)), (list, vec!["list.json".to_owned(), "list.json.lock".to_owned()]));
    let list = second.list();
    second.signal(Signal::TERM);
    second.wait();
    assert_eq!(start_in(&scratch.0, "data/list.json").list(), list);
}

#[test]
fn a_lock_file_that_comes_back_is_ours_again() {
    let scratch = Scratch::new();
    let server = start_in(&scratch.0, "list.json");
    let (lock, away) = (scratch.0.join("list.json.lock"), scratch.0.join("away"));
    fs::rename(&lock, &away).unwrap();
    fs::write(&lock, "").unwrap();
    refused_save(&server);
    fs::rename(&away, &lock).unwrap();
    assert_eq!(server.ask("POST", "/colors", RED).status, 201);
    assert_eq!(server.ask("GET", "/health", "").status, 200);
}

/// Starts the service under strace, which tampers with a system call as strace(1) describes.
fn start_tampered(call: &str, tampering: &str, file: &str) -> Server {
    let program = colors(&[]);
    let mut command = own_environment("strace");
    command.args(["-D", "-f", "-o", "/dev/null", "-e", &format!("trace={call}"), "-e", &format!("inject={call}:{tampering}")]);
    command.arg(program.get_program()).args(["--listen", "127.0.0.1:0", "--data", file]);
    command.current_dir(env!("CARGO_MANIFEST_DIR")).stderr(Stdio::piped());
    Server::spawn(command)
}

#[test]
fn a_lock_file_that_is_removed_during_a_save_is_noticed_before_the_answer() {
    if !is_installed("strace") {
        return;
    }
    // 2 s, in microseconds, before the sync and after the rename; the file has the new list only in the second case
    for (call, tampering, is_replaced) in [("fsync", "delay_enter=2000000:when=1", false), ("/^rename", "delay_exit=2000000", true)] {
        let scratch = Scratch::new();
        let file = scratch.write("list.json", "[\n]");
        let server = start_tampered(call, tampering, &file);
        let mut client = server.connect();
        client.send(format!("POST /colors HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{RED}", RED.len()));
        eventually("the save is under way", || match is_replaced {
            true => (fs::read_to_string(&file).unwrap() == ONLY_RED).then_some(()),
            false => scratch.0.join("list.json.tmp").exists().then_some(()),
        });
        fs::remove_file(scratch.0.join("list.json.lock")).unwrap();
        let response = client.response();
        assert_eq!(response.status, 500, "{response:?}");
        assert!(response.message().contains("the lock file list.json.lock was removed or replaced"), "{response:?}");
        assert_eq!(server.list(), r#"{"data":[]}"#);
        assert_eq!(fs::read_to_string(&file).unwrap(), if is_replaced { ONLY_RED } else { "[\n]" });
    }
}

#[test]
fn a_change_refused_for_a_lasting_sync_error_is_not_in_the_file() {
    if !is_installed("strace") {
        return;
    }
    let scratch = Scratch::new();
    let file = scratch.write("list.json", ONLY_RED);
    let server = start_tampered("fsync", "error=EIO:when=2+", &file);
    assert_eq!(server.ask("DELETE", "/colors/red", "").message(), {
        "the change was not made, it could not be saved: cannot sync the directory: Input/output error (os error 5)"
    });
    assert_eq!(fs::read_to_string(&file).unwrap(), ONLY_RED);
    // strace counts the calls of each thread by itself
    assert!(refused_save(&server).starts_with("cannot sync the "));
    assert_eq!(fs::read_to_string(&file).unwrap(), ONLY_RED);
    assert_eq!(names_in(&scratch.0), ["list.json", "list.json.lock"]);
    assert_eq!(server.list(), format!(r#"{{"data":[{RED}]}}"#));
}

#[test]
fn what_is_planted_as_the_temporary_file_is_neither_written_nor_waited_for() {
    let scratch = Scratch::new();
    let victim = scratch.write("victim", "precious");
    let server = start_in(&scratch.0, "list.json");
    let temporary = scratch.0.join("list.json.tmp");
    let reason = "list.json.tmp is not a file that this service left there; remove it";
    for plant in
        [&|path: &Path| symlink("victim", path).unwrap(), &make_fifo, &|path: &Path| fs::create_dir(path).unwrap()] as [&dyn Fn(&Path); 3]
    {
        plant(&temporary);
        let kind = fs::symlink_metadata(&temporary).unwrap().file_type();
        assert_eq!(refused_save(&server), format!("cannot create a file: {reason}"));
        assert_eq!(failed_start(&scratch.0, "list.json"), {
            "cannot use list.json: another process keeps its list there; name another file with --data"
        });
        assert_eq!(fs::symlink_metadata(&temporary).unwrap().file_type(), kind);
        if kind.is_dir() { fs::remove_dir(&temporary).unwrap() } else { fs::remove_file(&temporary).unwrap() }
    }
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    fs::write(&temporary, "left over").unwrap();
    assert_eq!(server.ask("POST", "/colors", RED).status, 201);
    assert!(!temporary.exists());
    drop(server);
    make_fifo(&temporary);
    assert_eq!(failed_start(&scratch.0, "list.json"), format!("cannot use list.json: {reason}"));
}

#[test]
fn what_is_planted_as_the_lock_file_stops_the_start() {
    let scratch = Scratch::new();
    let lock = scratch.0.join("list.json.lock");
    let expected = "cannot use list.json: list.json.lock is not a regular file; remove it";
    symlink("victim", &lock).unwrap();
    assert_eq!(failed_start(&scratch.0, "list.json"), expected);
    assert_eq!(names_in(&scratch.0), ["list.json.lock"]);
    fs::remove_file(&lock).unwrap();
    make_fifo(&lock);
    assert_eq!(failed_start(&scratch.0, "list.json"), expected);
    fs::remove_file(&lock).unwrap();
    fs::create_dir(&lock).unwrap();
    assert_eq!(failed_start(&scratch.0, "list.json"), expected);
}

#[test]
fn a_save_keeps_owner_and_group() {
    if !geteuid().is_root() {
        return skip("only root may give files away");
    }
    let scratch = Scratch::new();
    let file = scratch.write("list.json", "[]");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    chown(&file, Some(65534), Some(65534)).unwrap();
    assert_eq!(start_in(&scratch.0, "list.json").ask("POST", "/colors", RED).status, 201);
    let metadata = fs::metadata(&file).unwrap();
    assert_eq!((metadata.uid(), metadata.gid(), metadata.mode() & 0o777), (65534, 65534, 0o640));
    // a crash may leave a temporary file that has been given away already
    fs::write(scratch.0.join("list.json.tmp"), "").unwrap();
    chown(scratch.0.join("list.json.tmp"), Some(65534), None).unwrap();
    assert_eq!(start_in(&scratch.0, "list.json").ask("POST", "/colors", RED).status, 201);
    // but one that neither the service nor the file's owner has is somebody else's
    fs::write(scratch.0.join("list.json.tmp"), "").unwrap();
    chown(scratch.0.join("list.json.tmp"), Some(1234), None).unwrap();
    let expected = "cannot use list.json: list.json.tmp is not a file that this service left there; remove it";
    assert_eq!(failed_start(&scratch.0, "list.json"), expected);
}

#[test]
fn a_save_that_cannot_keep_the_group_gives_its_rights_to_no_other() {
    if !geteuid().is_root() {
        return skip("only root can run the service as somebody else");
    }
    for (before, after) in [(0o664, 0o604), (0o640, 0o600), (0o600, 0o600), (0o604, 0o600)] {
        let scratch = Scratch::new();
        let program = scratch.0.join("colors");
        fs::copy(colors(&[]).get_program(), &program).unwrap();
        let file = scratch.write("list.json", "[]");
        fs::set_permissions(&file, fs::Permissions::from_mode(before)).unwrap();
        chown(&scratch.0, Some(65534), None).unwrap();
        chown(&file, Some(65534), Some(0)).unwrap();
        let mut command = own_environment(program);
        command.args(["--listen", "127.0.0.1:0", "--data", "list.json"]).current_dir(&scratch.0);
        let server = Server::spawn({
            command.uid(65534).gid(65534).stderr(Stdio::piped());
            command
        });
        assert_eq!(server.ask("POST", "/colors", RED).status, 201);
        let metadata = fs::metadata(&file).unwrap();
        assert_eq!((metadata.uid(), metadata.gid(), metadata.mode() & 0o777), (65534, 65534, after), "{before:o}");
    }
}

#[test]
fn a_path_that_is_no_file_stops_the_start_and_leaves_nothing() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.0.join("dir")).unwrap();
    make_fifo(&scratch.0.join("fifo"));
    symlink("dir", scratch.0.join("link")).unwrap();
    let before = names_in(&scratch.0);
    for file in [".", "..", "dir", "dir/", "dir/.", "dir/..", "link", "link/", "/", "missing/"] {
        assert_eq!(failed_start(&scratch.0, file), format!("cannot use {file}: it names a directory; name a file in it with --data"));
    }
    for file in ["fifo", "/dev/null"] {
        assert_eq!(failed_start(&scratch.0, file), format!("cannot use {file}: it is not a regular file; name another file with --data"));
    }
    assert_eq!((names_in(&scratch.0), names_in(&scratch.0.join("dir"))), (before, vec![]));
}

#[test]
fn a_missing_directory_is_named_with_the_command_that_creates_it() {
    let scratch = Scratch::new();
    let expected = "cannot use no/such/list.json: no such directory; create it with mkdir -p no/such";
    assert_eq!(failed_start(&scratch.0, "no/such/list.json"), expected);
    symlink("gone/list.json", scratch.0.join("link")).unwrap();
    assert_eq!(failed_start(&scratch.0, "link"), "cannot use link: no such directory; create it with mkdir -p gone");
}
