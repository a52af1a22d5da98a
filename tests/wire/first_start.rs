//! A first start makes FILE whole or not at all, whatever fails or ends it, and whoever starts at
//! the same time. Power cuts are in `power_cut`.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::thread;

use rustix::process::geteuid;

use crate::common::harness::{Scratch, Server, colors, own_environment, skip, stored};
use crate::common::process::colors_below_strace;

const LIST: &str = r#"{"data":[{"name":"a","value":"1"}]}"#;

/// The first line of a program that is killed then, if it has not ended.
pub(super) fn first_line(command: &mut Command) -> String {
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut first).unwrap();
    let _ = child.kill();
    child.wait().unwrap();
    first
}

/// The options of a first start.
struct FirstStart {
    scratch: Scratch,
    file: String,
    seed: String,
}

impl FirstStart {
    fn new() -> Self {
        let scratch = Scratch::new();
        fs::create_dir(scratch.0.join("data")).unwrap();
        let (file, seed) = (scratch.file("data/colors.db"), scratch.write("seed", LIST));
        Self { scratch, file, seed }
    }

    fn arguments(&self) -> [&str; 6] {
        ["--listen", "127.0.0.1:0", "--seed", &self.seed, "--data", &self.file]
    }

    /// What is in the directory of FILE.
    fn names(&self) -> Vec<String> {
        let names = fs::read_dir(self.scratch.0.join("data")).unwrap();
        let mut names: Vec<_> =
            names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Starts it as it should be, and checks that FILE is then all that is there.
    #[track_caller]
    fn check_next(&self, what: &str) {
        let server = Server::start(&self.arguments());
        assert_eq!(server.list(), LIST, "{what}");
        server.stop();
        assert_eq!((self.names(), stored(&self.file)), (vec!["colors.db".into()], LIST.into()));
    }
}

#[test]
fn whatever_call_fails_or_is_the_last_the_next_start_works() {
    for call in
        ["openat", "pwrite64,ftruncate", "fsync,fdatasync", "renameat2,rename", "unlink,unlinkat"]
    {
        for number in 1..=4 {
            for what in ["error=EIO", "error=ENOSPC", "signal=KILL"] {
                let start = FirstStart::new();
                let inject = format!("inject={call}:{what}:when={number}+");
                let directory = start.scratch.file("data");
                let paths =
                    ["", "/colors.db", "/.colors-new"].map(|name| format!("{directory}{name}"));
                let mut options = vec!["-o", "/dev/null", "-e", &inject];
                paths.iter().for_each(|path| options.extend(["-P", path]));
                let Some(mut command) = colors_below_strace(&options, &start.arguments()) else {
                    return;
                };
                let first = first_line(&mut command);
                if first.contains("[ERROR]") {
                    let is_clean = !start.names().contains(&".colors-new".to_owned());
                    assert!(is_clean || call.starts_with("unlink"), "{inject}: {first}");
                }
                start.check_next(&format!("{inject}: {first}"));
            }
        }
    }
}

#[test]
fn a_start_that_is_refused_leaves_nothing_and_a_check_says_the_same() {
    for (inject, reason) in [
        (
            "inject=mmap:error=ENODEV",
            "this file system has no shared memory maps; name a file on another one with --data",
        ),
        ("inject=fallocate:error=ENOSPC", "the disk is full; make room on it"),
    ] {
        for check in [&["--check"][..], &[]] {
            let start = FirstStart::new();
            let paths = ["data/colors.db-shm", "data/.colors-new-shm"];
            let paths = paths.map(|name| start.scratch.file(name));
            let mut options = vec!["-o", "/dev/null", "-e", inject];
            paths.iter().for_each(|path| options.extend(["-P", path]));
            let arguments = [&start.arguments()[..], check].concat();
            let Some(mut command) = colors_below_strace(&options, &arguments) else { return };
            let first = first_line(&mut command);
            assert!(first.ends_with(&format!("{reason}\n")), "{inject} {check:?}: {first}");
            assert_eq!(start.names(), [""; 0], "{inject} {check:?}");
            start.check_next(inject);
        }
    }
}

#[test]
fn a_link_at_the_path_of_the_shm_is_removed_and_not_followed() {
    let start = FirstStart::new();
    let other = start.scratch.write("other", "untouched");
    symlink(&other, format!("{}-shm", start.file)).unwrap();
    start.check_next("a link");
    assert_eq!(fs::read_to_string(&other).unwrap(), "untouched");
}

#[test]
fn without_a_rename_that_replaces_nothing_a_link_does_the_same() {
    let start = FirstStart::new();
    let options = ["-o", "/dev/null", "-e", "inject=renameat2:error=EINVAL"];
    let Some(mut command) = colors_below_strace(&options, &start.arguments()) else { return };
    let first = first_line(&mut command);
    assert!(first.contains("which was made now from"), "{first}");
    assert_eq!(fs::metadata(&start.file).unwrap().nlink(), 1);
    start.check_next(&first);
}

#[test]
fn of_several_at_once_one_makes_the_file_and_the_others_are_told_of_it() {
    let start = FirstStart::new();
    let started = thread::scope(|scope| {
        [(); 4].map(|()| scope.spawn(|| run_until_listening(&start))).map(|one| one.join().unwrap())
    });
    let (listening, refused): (Vec<_>, Vec<_>) =
        started.into_iter().partition(|(line, _)| line.contains("which was made now from"));
    assert_eq!((listening.len(), refused.len()), (1, 3));
    for (line, _) in &refused {
        assert!(
            line.contains("another process has locked the database; stop that process"),
            "{line}"
        );
    }
    let (_, mut child) = listening.into_iter().next().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(stored(&start.file), LIST);
}

/// Starts the service; gives its first line that is no warning, and the process.
fn run_until_listening(start: &FirstStart) -> (String, std::process::Child) {
    let mut child = colors(&start.arguments()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let is_last = |line: &String| line.contains("listening") || line.contains("[ERROR]");
    let line = lines.map(Result::unwrap).find(is_last).unwrap();
    if line.contains("[ERROR]") {
        child.wait().unwrap();
    }
    (line, child)
}

#[test]
fn what_a_file_that_is_gone_has_left_is_not_applied_to_the_new_one() {
    let start = FirstStart::new();
    let server = Server::start(&start.arguments());
    server.ask("DELETE", "/colors/a", "").expect_status(200);
    server.signal(rustix::process::Signal::KILL);
    server.wait();
    let wal = fs::metadata(format!("{}-wal", start.file)).unwrap();
    assert!(wal.len() > 0);
    fs::remove_file(&start.file).unwrap();
    start.check_next("a FILE-wal that was left");
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
fn an_empty_file_whose_owner_cannot_be_kept_stays() {
    if !geteuid().is_root() {
        return skip("only root can run the service as somebody else");
    }
    let scratch = Scratch::for_all_users();
    fs::set_permissions(&scratch.0, fs::Permissions::from_mode(0o777)).unwrap();
    let file = scratch.write("colors.db", "");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    let mut command = own_environment(scratch.file("colors"));
    command.args(["--listen", "127.0.0.1:0", "--data", &file]).uid(65534).gid(65534);
    let log = first_line(command.current_dir("/"));
    let reason = "it is empty, and this process may not give its owner and group to a new file; remove it, or run this as root";
    assert!(log.ends_with(&format!("cannot use {file}: {reason}\n")), "{log}");
    assert_eq!(
        (scratch.names(), fs::metadata(&file).unwrap().len()),
        (vec!["colors".into(), "colors.db".into()], 0)
    );
}

#[test]
fn a_new_file_that_was_left_is_removed_and_a_link_in_its_place_is_not_followed() {
    let start = FirstStart::new();
    let new = start.scratch.0.join("data/.colors-new");
    fs::write(&new, "half").unwrap();
    start.check_next("a file");
    fs::remove_file(&start.file).unwrap();
    let target = start.scratch.write("target", "theirs");
    symlink(&target, &new).unwrap();
    start.check_next("a link");
    assert_eq!(fs::read_to_string(target).unwrap(), "theirs");
}
