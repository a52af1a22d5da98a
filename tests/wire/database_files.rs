//! The files of the database: a small disk that is full, files cut short, and one of sqlite3.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::{Signal, geteuid};

use crate::common::harness::{
    Scratch, Server, at_once, colors, is_installed, run, signal_child, skip, stored, wait_until,
};
use crate::wire::durable::{A, LIST, expect_refusal, not_saved};

const FULL: &str = "the disk is full; make room on it";

/// A file system with blocks of 1 KiB, as mkfs makes them on small disks.
struct SmallDisk {
    directory: PathBuf,
    _scratch: Scratch,
}

impl SmallDisk {
    /// `None`, and the test is skipped, where it cannot be mounted.
    fn mount(mebibytes: usize) -> Option<Self> {
        if !geteuid().is_root() {
            skip("only root can mount a file system");
            return None;
        }
        if !is_installed("mkfs.ext4") {
            return None;
        }
        let scratch = Scratch::new();
        let image = scratch.write("image", vec![0; mebibytes << 20]);
        let directory = scratch.0.join("disk");
        fs::create_dir(&directory).unwrap();
        let made = Command::new("mkfs.ext4")
            .args(["-q", "-m", "0", "-b", "1024", "-O", "^has_journal", &image])
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        let mounted =
            Command::new("mount").args(["-o", "loop", &image]).arg(&directory).output().unwrap();
        if !mounted.status.success() {
            skip(&format!("no loop device: {}", String::from_utf8_lossy(&mounted.stderr)));
            return None;
        }
        Some(Self { directory, _scratch: scratch })
    }

    fn file(&self, name: &str) -> String {
        self.directory.join(name).to_str().unwrap().to_owned()
    }

    /// Leaves so many KiB free.
    fn fill(&self, free: u64) {
        let available = || {
            let disk = rustix::fs::statvfs(&self.directory).unwrap();
            disk.f_bavail * disk.f_frsize / 1024
        };
        let mut filler = fs::File::create(self.directory.join("filler")).unwrap();
        while available() > free {
            filler.write_all(&[0; 1024]).unwrap();
        }
        // a block that has the numbers of others may be written as well
        assert!(free - available() < 2, "{} KiB", available());
    }

    fn make_room(&self) {
        fs::remove_file(self.directory.join("filler")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.directory).status();
    }
}

/// What the program with these options says behind `[ERROR]`, if anything; a signal fails the test.
#[track_caller]
fn error_of(arguments: &[&str]) -> String {
    let mut child = colors(arguments).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut first).unwrap();
    // a start that succeeds has said so
    if !first.contains("[ERROR]") && !first.is_empty() {
        signal_child(&child, Signal::TERM);
    }
    let status = child.wait().unwrap();
    assert_eq!(status.signal(), None, "{arguments:?} {first}");
    first.trim_end().split_once("[ERROR] ").map(|(_, error)| error.to_owned()).unwrap_or_default()
}

#[test]
fn a_full_disk_of_small_blocks_is_an_error_and_never_a_signal() {
    let Some(disk) = SmallDisk::mount(1) else { return };
    let file = disk.file("colors.db");
    Server::with_data(&format!("[{A}]"), &file, &[]).stop();
    for free in [8, 10, 12, 16, 20, 24] {
        // the first change after a start
        let server = Server::start(&["--data", &file]);
        disk.fill(free);
        let mut refused = 0;
        for step in 0..40 {
            let answer = server.ask("PUT", "/colors/a", &format!(r#"{{"value":"{free}-{step}"}}"#));
            if answer.status == 500 {
                let causes = ["the disk is full", "the disk reported an error"];
                let is_known = causes.iter().any(|cause| answer.message() == not_saved(cause));
                assert!(is_known, "{free} KiB: {answer:?}");
                refused += 1;
            } else {
                assert_eq!(answer.status, 200, "{free} KiB: {answer:?}");
            }
        }
        assert!(refused > 0, "{free} KiB were enough");
        let list = server.list();
        // what another process reads, and a start after a crash
        assert_eq!(stored(&file), list, "{free} KiB");
        disk.make_room();
        wait_until("it recovers", || server.ask("GET", "/health", "").status == 200);
        server.stop();
        // after a kill, with and without FILE-shm
        for is_there in [true, false] {
            let server = Server::start(&["--data", &file]);
            let change = format!(r#"{{"value":"{is_there}"}}"#);
            server.ask("PUT", "/colors/a", &change).expect_status(200);
            let list = server.list();
            server.signal(Signal::KILL);
            assert_eq!(server.wait().0.signal(), Some(9), "{free} KiB");
            if !is_there {
                fs::remove_file(format!("{file}-shm")).unwrap();
            }
            disk.fill(free);
            for arguments in [&["--dump"][..], &["--check"], &["--listen", "127.0.0.1:0"]] {
                let error = error_of(&[arguments, &["--data", &file]].concat());
                let is_known = error.ends_with(FULL) || error.contains("cannot be opened");
                assert!(error.is_empty() || is_known, "{free} KiB, {arguments:?}: {error}");
                let is_start = arguments.len() > 1;
                let is_expected = if is_there { error.is_empty() } else { error.ends_with(FULL) };
                assert!(!is_start || is_expected, "{free} KiB, {is_there}: {error}");
            }
            disk.make_room();
            assert_eq!(stored(&file), list, "{free} KiB");
        }
        Server::start(&["--data", &file]).stop();
    }
    // a start that has to make all files
    disk.fill(8);
    let new = disk.file("new.db");
    let error = error_of(&["--listen", "127.0.0.1:0", "--data", &new]);
    assert_eq!(error, format!("cannot use {new}: {FULL}"));
    disk.make_room();
    assert_eq!(Server::start(&["--data", &new]).list().matches("\"name\"").count(), 148);
}

#[test]
fn a_link_beside_the_file_is_not_followed() {
    let (scratch, file, server) = Server::kept(&format!("[{A}]"));
    server.stop();
    let target = scratch.write("target", "theirs");
    for suffix in ["-shm", "-wal"] {
        let link = format!("{file}{suffix}");
        symlink(&target, &link).unwrap();
        for arguments in [&["--listen", "127.0.0.1:0"][..], &["--check"], &["--dump"]] {
            let error = error_of(&[arguments, &["--data", &file]].concat());
            assert!(error.contains("cannot "), "{link} {arguments:?}: {error}");
            assert_eq!(fs::read_to_string(&target).unwrap(), "theirs", "{link} {arguments:?}");
        }
        fs::remove_file(&link).unwrap();
    }
    assert_eq!(stored(&file), LIST);
}

#[test]
fn a_file_that_is_cut_acknowledges_nothing_until_it_is_whole_again() {
    // of several pages, so that not all that is cut is in FILE-wal as well
    let long = format!(r#"{{"name":"long","value":"{}"}}"#, "x".repeat(20_000));
    let cuts =
        [("", 0), ("", 1), ("", 4096), ("-wal", 0), ("-wal", 4096), ("-shm", 0), ("-shm", 20_000)];
    at_once(cuts, |(suffix, length)| {
        let (_scratch, file, server) = Server::kept(&format!("[{A},{long}]"));
        server.ask("PUT", "/colors/a", r#"{"value":"2"}"#).expect_status(200);
        let list = server.list();
        let cut = format!("{file}{suffix}");
        let whole = fs::read(&cut).unwrap();
        fs::File::options().write(true).open(&cut).unwrap().set_len(length).unwrap();
        expect_refusal(&server, &format!("colors.db{suffix}"));
        let log = server.stop();
        let last = log.lines().next_back().unwrap();
        let warning = format!("[WARN] stopped; keep {file} and {file}-wal together: ");
        assert!(last.contains(&warning), "{log}");
        // nothing was written to it: the same file has what it lacks
        fs::write(&cut, whole).unwrap();
        assert_eq!(stored(&file), list, "{cut} {length}");
        assert_eq!(Server::start(&["--data", &file]).list(), list, "{cut} {length}");
    });
}

#[test]
fn a_database_that_sqlite3_has_restored_is_used_once_it_is_marked_as_the_message_says() {
    if !is_installed("sqlite3") {
        return;
    }
    let (scratch, _, server) = Server::kept(&format!("[{A}]"));
    server.stop();
    let new = scratch.file("new.db");
    let shell =
        |script: &str| run(Command::new("sh").args(["-ec", script]).current_dir(&scratch.0));
    assert_eq!(shell("sqlite3 colors.db .dump | sqlite3 new.db").0, Some(0));
    let error = error_of(&["--listen", "127.0.0.1:0", "--data", &new]);
    let command =
        format!("sqlite3 {new} 'PRAGMA application_id=1668246642; PRAGMA user_version=1'");
    let expected = "it is the database of another program, or made by sqlite3 from a dump; name another file with --data, or mark it as ours with";
    assert_eq!(error, format!("cannot use {new}: {expected} {command}"));
    assert_eq!(shell(&command), (Some(0), String::new(), String::new()));
    let server = Server::start(&["--data", &new]);
    assert_eq!((&*server.list(), server.ask("POST", "/colors", A).status), (LIST, 201));
}
