//! What stops even root from using FILE, what stops others, and names that are easily mistaken.
//! `--dump` and `--check` open FILE as a start does, beside a service as well. That they change
//! nothing is in `power_cut`; what else FILE may be, in the unit tests.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::process::{Signal, geteuid};

use crate::common::harness::{Scratch, Server, colors, own_environment, run, skip, stored};
use crate::wire::durable::{A, LIST, fail};

/// Runs the program in a directory, with a seed that can be read.
fn run_in(directory: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = colors(arguments);
    command.args(["--seed", concat!(env!("CARGO_MANIFEST_DIR"), "/seed/colors.json")]);
    run(command.current_dir(directory))
}

/// The reason for which a start cannot use this file, and the check of it, as `run` runs them.
#[track_caller]
fn same_refusal(file: &str, run: impl Fn(&[&str]) -> (Option<i32>, String, String)) -> String {
    // The check is first: a start may leave files that the check would find.
    let [check, start] = [&["--check"][..], &["--listen", "127.0.0.1:0"]].map(|mode| {
        let (code, out, error) = run(&[mode, &["--data", file]].concat());
        assert_eq!((code, out.as_str(), error.lines().count()), (Some(1), "", 1), "{error}");
        let prefix = format!("[ERROR] cannot use {file}: ");
        error.trim_end().split_once(&prefix).expect(&error).1.to_owned()
    });
    assert_eq!(check, start);
    start
}

#[test]
fn what_stops_even_root_is_told() {
    if !geteuid().is_root() {
        return skip("only root can set attributes of files");
    }
    let scratch = Scratch::new();
    Server::with_data("[]", &scratch.file("good.db"), &[]).stop();
    let full = "cp good.db d/f";
    let irregular = "it is not a regular file; remove it";
    let attribute = |option| match option {
        'i' => "it is immutable; change that with chattr -i, or name another file with --data",
        _ => "it is append-only; change that with chattr -a, or name another file with --data",
    };
    let mount = "it is empty and a mount point, so that no other file can take its place; mount its \
                 directory instead, or name another file with --data";
    let read_only = format!(
        "it is read-only; name another file with --data, or under systemd have the unit say \
         ReadWritePaths={}",
        scratch.file("d")
    );
    for (make, operation, file, reason) in [
        (&format!("{full}; chattr +i d/f") as &str, "write", "d/f", attribute('i')),
        (&format!("{full}; chattr +a d/f"), "write", "d/f", attribute('a')),
        (&format!("{full}; chattr +a d"), "write", "d", attribute('a')),
        (&format!("{full}; : > d/f-wal; chattr +a d/f-wal"), "write", "d/f-wal", attribute('a')),
        (&format!("{full}; : > d/f-shm; chattr +i d/f-shm"), "open", "d/f-shm", attribute('i')),
        (&format!("{full}; mkfifo d/f-wal"), "open", "d/f-wal", irregular),
        (&format!("{full}; mkfifo d/f-shm"), "open", "d/f-shm", irregular),
        (&format!("{full}; mkfifo d/f-journal"), "open", "d/f-journal", irregular),
        (&format!("{full}; mkdir d/f-journal"), "open", "d/f-journal", irregular),
        ("chattr +i d", "write", "d", attribute('i')),
        ("chattr +a d", "write", "d", attribute('a')),
        (": > d/f; chattr +i d/f", "write", "d/f", attribute('i')),
        (": > d/f; chattr +a d/f", "write", "d/f", attribute('a')),
        (": > d/f-journal; chattr +i d/f-journal", "remove", "d/f-journal", attribute('i')),
        (": > d/f; : > d/f-wal; chattr +a d/f-wal", "remove", "d/f-wal", attribute('a')),
        (": > d/f; mount --bind d/f d/f", "", "", mount),
        (": > d/f; mount --bind d/f d/f; mount -o remount,ro,bind d/f", "write", "d/f", &read_only),
    ] {
        let shell =
            |script: &str| run(Command::new("sh").args(["-c", script]).current_dir(&scratch.0));
        let (_, before, failure) = shell(&format!("mkdir d; {make}; ls -A d"));
        let refusal = || same_refusal("d/f", |arguments| run_in(&scratch.0, arguments));
        let found = failure.is_empty().then(refusal);
        let after = shell("ls -A d").1;
        shell("umount d/f; chattr -f -i -a d d/*; rm -r d");
        let Some(found) = found else { return skip(&failure) };
        let subject = format!("cannot {operation} {}: ", scratch.file(file));
        let expected = if operation.is_empty() { reason.to_owned() } else { subject + reason };
        assert_eq!((found, after), (expected, before), "{make}");
    }
}

#[test]
fn a_second_service_is_told_that_the_list_is_in_use() {
    let (scratch, file, server) = Server::kept(&format!("[{A}]"));
    // whatever the file is called
    let other = scratch.file("other.db");
    fs::hard_link(&file, &other).unwrap();
    let error = fail(&["--data", &other]);
    let expected =
        "another process has locked the database; stop that process, or name another file";
    assert!(error.contains(&format!("[ERROR] cannot use {other}: {expected}")), "{error}");
    server.ask("POST", "/colors", A).expect_status(201);
    assert_eq!((server.list(), stored(&file)), (format!(r#"{{"data":[{A},{A}]}}"#), server.list()));
}

#[test]
fn without_write_permission_the_list_can_be_printed_and_a_start_says_whose_it_is() {
    if !geteuid().is_root() {
        return skip("only root can run the service as somebody else");
    }
    let scratch = Scratch::for_all_users();
    let file = scratch.file("colors.db");
    Server::with_data(&format!("[{A}]"), &file, &[]).stop();
    let use_as_nobody = |arguments: &[&str]| {
        let mut command = own_environment(scratch.file("colors"));
        run(command.args(arguments).uid(65534).gid(65534).current_dir("/"))
    };
    let dump = || use_as_nobody(&["--dump", "--data", &file]);
    let refusal = |file: &str| same_refusal(file, use_as_nobody);
    let refused = |operation: &str, path: &str, mode: u32| {
        format!(
            "cannot {operation} {path}: permission denied: it belongs to user 0 with mode {mode:04o}, \
             and this process runs as user 65534; run this as its owner, change its mode or owner, or \
             name another file with --data"
        )
    };
    let expect_no_dump = |operation: &str, mode: u32| {
        let (code, _, error) = dump();
        let expected = format!("cannot use {file}: {}\n", refused(operation, &file, mode));
        assert!(code == Some(1) && error.ends_with(&expected), "{error}");
    };
    assert_eq!(refusal(&file), refused("read", &file, 0o600));
    expect_no_dump("read", 0o600);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(refusal(&file), refused("write", &file, 0o644));
    let list = (Some(0), format!("{LIST}\n"), String::new());
    assert_eq!(dump(), list);
    // beside a service, and what a kill has left
    let server = Server::start(&["--data", &file]);
    for change in ["2", "1"] {
        server.ask("PUT", "/colors/a", &format!(r#"{{"value":"{change}"}}"#)).expect_status(200);
    }
    assert_eq!(dump(), list);
    server.signal(Signal::KILL);
    server.wait();
    assert_eq!(dump(), list);
    fs::remove_file(format!("{file}-shm")).unwrap();
    expect_no_dump("write", 0o644);
    Server::start(&["--data", &file]).stop();
    // its own file in a directory of root's: there is no place for FILE-wal
    chown(&file, Some(65534), Some(65534)).unwrap();
    assert_eq!(refusal(&file), refused("write", scratch.0.to_str().unwrap(), 0o755));
    // as the service manager starts it
    let (_, _, error) = use_as_nobody(&["--check", "--data", "colors.db"]);
    assert!(error.contains("cannot use colors.db: cannot write /: "), "{error}");
    chown(&scratch.0, Some(65534), Some(65534)).unwrap();
    assert_eq!(use_as_nobody(&["--check", "--data", &file]).0, Some(0));
    // an empty file of root's, and what a list has left that was root's
    let empty = scratch.write("empty", "");
    fs::set_permissions(&empty, fs::Permissions::from_mode(0o666)).unwrap();
    let reason = "it is empty, and this process may not give its owner and group to a new file; \
                  remove it, or run this as root";
    assert_eq!((refusal(&empty), fs::metadata(&empty).unwrap().len()), (reason.to_owned(), 0));
    fs::remove_file(&empty).unwrap();
    let left = scratch.write("new-wal", "");
    fs::set_permissions(&left, fs::Permissions::from_mode(0o600)).unwrap();
    chown(&scratch.0, Some(0), Some(0)).unwrap();
    fs::set_permissions(&scratch.0, fs::Permissions::from_mode(0o1777)).unwrap();
    assert_eq!(refusal(&scratch.file("new")), refused("remove", &left, 0o600));
    fs::remove_file(&left).unwrap();
    assert_eq!(scratch.names(), ["colors", "colors.db"]);
}

#[test]
fn names_that_a_uri_would_take_apart_are_names() {
    let scratch = Scratch::new();
    let seed = scratch.write("seed.json", format!("[{A}]"));
    for name in ["a?b#c%20d&mode=ro", "file:x", "file:y?mode=memory", ":memory:", "é ü"] {
        let file = scratch.file(name);
        let mut command = colors(&["--listen", "127.0.0.1:0", "--seed", &seed, "--data", name]);
        command.current_dir(&scratch.0);
        Server::spawn(command).stop();
        assert_eq!(stored(&file), LIST, "{name}");
        let dumped = run_in(&scratch.0, &["--dump", "--data", name]).1;
        assert_eq!(dumped, format!("{LIST}\n"), "{name}");
        assert_eq!(run_in(&scratch.0, &["--check", "--data", name]).0, Some(0), "{name}");
    }
    assert_eq!(scratch.names().len(), 6);
}
