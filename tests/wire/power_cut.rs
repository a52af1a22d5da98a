//! Power cuts: strace records the system calls of a service, and after each of them the disk is
//! made as a cut may leave it: what was not synced is there, missing, or torn.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::thread;

use crate::common::harness::{Scratch, Server, colors, eventually, run};

/// The calls of a trace, a line each: strace splits a call where another thread makes one
/// meanwhile.
fn whole_calls(trace: &str) -> Vec<String> {
    let mut begun = BTreeMap::new();
    let mut whole = Vec::new();
    for line in trace.lines() {
        let (thread, call) = line.split_once(' ').unwrap();
        if let Some(beginning) = line.strip_suffix("<unfinished ...>") {
            begun.insert(thread, beginning);
        } else if let Some((_, end)) = call.split_once(" resumed>") {
            whole.push(format!("{}{end}", begun.remove(thread).unwrap()));
        } else {
            whole.push(line.to_owned());
        }
    }
    whole
}

/// What a disk writes as a whole, in bytes.
const SECTOR: usize = 512;

/// What a sector of the disk has before it is first written.
const BEFORE: u8 = 0xa5;

/// How many disks are made after each call: with nothing of what was not synced, with all of it,
/// with that of the calls before a random one, and with random parts.
const DISKS: usize = 5;

const CHECKERS: usize = 4;

/// The system calls that change the disk, and those that answer. Processors that came late to
/// Linux, like aarch64, have unlinkat alone.
const CALLS: &str = "trace=openat,?unlink,unlinkat,?rename,?renameat,renameat2,pwrite64,ftruncate,fsync,fdatasync,sendto,sendmsg,writev";

/// `HTTP/1.1 ` as strace prints it with the option -xx.
const ANSWER: &str = r"\x48\x54\x54\x50\x2f\x31\x2e\x31\x20";

type Files = BTreeMap<String, Vec<u8>>;

enum Change {
    Bytes(usize, Vec<u8>),
    Length(usize),
    Name(String, Option<usize>),
    Rename(String, String),
}

/// What a cut leaves of a part that is not synced.
#[derive(Clone, Copy, PartialEq)]
enum Left {
    All,
    Nothing,
    /// Of a sector, the place: the file is as long, and has what the disk had there before.
    Place,
}

/// What the disk may write or not: a sector, a length, or a name.
struct Part {
    change: Change,
    /// The number of the call that made it, and of the file; the directory is file 0.
    call: usize,
    file: usize,
    is_synced: bool,
    /// A sync has failed, and later ones do not write it.
    has_failed: bool,
}

#[derive(Default)]
struct Disk {
    parts: Vec<Part>,
    names: BTreeMap<String, usize>,
    calls: usize,
    files: usize,
}

/// The bytes that strace prints with the option -xx.
fn bytes_of(hex: &str) -> Vec<u8> {
    hex.split("\\x").skip(1).map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}

impl Disk {
    /// Makes a call on the directory or a file in it, as strace prints it; false if it is another.
    fn make(&mut self, directory: &Path, line: &str) -> bool {
        let Some((call, arguments)) = line.split_once('(') else { return false };
        // as a string, or behind the number of the descriptor (-y)
        let path = arguments.split(['"', '<', '>']);
        let paths = path.map(|path| String::from_utf8(bytes_of(path)).unwrap_or_default());
        let mut names = paths.filter_map(|path| {
            let name = Path::new(&path).strip_prefix(directory).ok()?;
            Some(name.to_str().unwrap().to_owned())
        });
        let Some(name) = names.next() else { return false };
        let to = names.next();
        let number = |place: usize| {
            let numbers = arguments.split([')', ' ']).filter(|text| !text.contains(['"', '<']));
            numbers.map(|text| text.trim_end_matches(',').parse().unwrap()).nth(place).unwrap()
        };
        let (has_failed, known) = (arguments.contains(" = -1 "), self.names.get(&name).copied());
        let file = if name.is_empty() { Some(0) } else { known };
        self.calls += 1;
        match (call.rsplit(' ').next().unwrap(), file) {
            ("openat", None) if !has_failed => {
                self.files += 1;
                self.names.insert(name.clone(), self.files);
                self.add(0, Change::Name(name, Some(self.files)));
            }
            ("unlink" | "unlinkat", Some(_)) => {
                self.names.remove(&name);
                self.add(0, Change::Name(name, None));
            }
            ("rename" | "renameat" | "renameat2", Some(file)) if !has_failed => {
                let to = to.unwrap();
                self.names.remove(&name);
                self.names.insert(to.clone(), file);
                self.add(0, Change::Rename(name, to));
            }
            ("pwrite64", Some(file)) => {
                let bytes = bytes_of(arguments.split('"').nth(1).unwrap());
                let (mut start, mut rest) = (number(1), &bytes[..]);
                while !rest.is_empty() {
                    let sector = rest.split_at(rest.len().min(SECTOR - start % SECTOR));
                    self.add(file, Change::Bytes(start, sector.0.to_vec()));
                    start += sector.0.len();
                    rest = sector.1;
                }
            }
            ("ftruncate", Some(file)) => self.add(file, Change::Length(number(0))),
            ("fsync" | "fdatasync", Some(file)) => {
                for part in self.parts.iter_mut().filter(|part| part.file == file) {
                    part.has_failed |= has_failed;
                    part.is_synced |= !part.has_failed;
                }
            }
            _ => return false,
        }
        true
    }

    fn add(&mut self, file: usize, change: Change) {
        let call = self.calls;
        self.parts.push(Part { change, call, file, is_synced: false, has_failed: false });
    }

    /// What a cut leaves. `left`: of a part of this call that is not synced.
    fn cut(&self, mut left: impl FnMut(usize) -> Left) -> Files {
        let (mut names, mut files) = (BTreeMap::new(), vec![Vec::new(); self.files + 1]);
        for part in &self.parts {
            let bytes: &mut Vec<u8> = &mut files[part.file];
            let left = if part.is_synced { Left::All } else { left(part.call) };
            match &part.change {
                Change::Bytes(start, written) if left == Left::Place => {
                    bytes.resize(bytes.len().max(start + written.len()), BEFORE);
                }
                _ if left != Left::All => {}
                Change::Length(length) => bytes.resize(*length, 0),
                Change::Bytes(start, written) => {
                    let end = start + written.len();
                    bytes.resize(bytes.len().max(end), 0);
                    bytes[*start..end].copy_from_slice(written);
                }
                Change::Name(name, Some(file)) => drop(names.insert(name.clone(), *file)),
                Change::Name(name, None) => drop(names.remove(name)),
                Change::Rename(from, to) => {
                    if let Some(file) = names.remove(from) {
                        names.insert(to.clone(), file);
                    }
                }
            }
        }
        names.into_iter().map(|(name, file)| (name, files[file].clone())).collect()
    }
}

/// The list after so many changes. No two are of the same length, and each takes some pages.
fn list_of(change: usize) -> String {
    let color = |number| format!(r#"{{"name":"{number}","value":"{change:0>300}"}}"#);
    format!("[{}]", (0..20 + change).map(color).collect::<Vec<_>>().join(","))
}

/// Checks, prints and starts what a cut has left: all find the same, the list after one of these
/// changes.
fn check_disk(files: &Files, seed: &str, changes: [usize; 2]) {
    let scratch = Scratch::new();
    files.iter().for_each(|(name, bytes)| drop(scratch.write(name, bytes)));
    let file = scratch.file("colors.db");
    let options = ["--seed", seed, "--data", &file];
    let lengths: Vec<_> = files.iter().map(|(name, bytes)| (name, bytes.len())).collect();
    let (_, checked, check_error) = run(colors(&["--check"]).args(options));
    let (code, printed, error) = run(&mut colors(&["--dump", "--data", &file]));
    // what is rolled back, and an index that belongs to no FILE-wal, may be gone
    for name in ["colors.db", "colors.db-wal"] {
        let after = fs::read(scratch.file(name)).ok();
        assert!(files.get(name) == after.as_ref(), "{name} was changed: {lengths:?}");
    }
    let list = Server::start(&options).list();
    let is_list = |change: &usize| list == format!(r#"{{"data":{}}}"#, list_of(*change));
    let Some(change) = changes.into_iter().find(is_list) else {
        panic!("not after {changes:?}: {list:.400} {lengths:?}")
    };
    let fine = format!("the options are fine: {} colors ", 20 + change);
    assert!(checked.starts_with(&fine), "{checked}{check_error} {lengths:?}");
    if checked.contains(" kept in ") {
        assert_eq!((code, printed.trim_end()), (Some(0), &list[..]), "{error} {lengths:?}");
    } else {
        assert!(change == 0 && error.contains(": it does not exist, or is empty; "), "{error}");
    }
}

#[test]
fn what_was_acknowledged_survives_a_power_cut_after_any_call_and_what_was_refused_does_not() {
    let scratch = Scratch::new();
    let directory = scratch.0.join("disk");
    fs::create_dir(&directory).unwrap();
    let (file, trace) = (scratch.file("disk/colors.db"), scratch.file("trace"));
    let seed = scratch.write("seed.json", list_of(0));
    let (mut disk, mut random) = (Disk::default(), fastrand::Rng::with_seed(8));
    let (mut asked, mut answered, mut acknowledged) = (0, 0, 0);
    let mut disks = HashSet::new();
    // the syncs of a first change: of the header of FILE-wal, the directory, and the frames
    let failing = ["-e", "inject=fdatasync:error=EIO:when=4"];
    let runs: [(&[&str], &[u16]); 3] =
        [(&[], &[200, 200]), (&[], &[200]), (&failing, &[200, 500, 200])];
    for (inject, statuses) in runs {
        let options = ["-y", "-xx", "-s", "100000", "-o", &trace, "-e", CALLS];
        let options = [&options, inject].concat();
        let Some(server) = Server::below_strace(&options, &["--seed", &seed, "--data", &file])
        else {
            return;
        };
        let mut client = server.connect();
        for status in statuses {
            asked += 1;
            client.ask("PUT", "/colors", &list_of(asked)).expect_status(*status);
        }
        drop(client);
        server.stop();
        let trace = eventually("the trace ends", || {
            fs::read_to_string(&trace).ok().filter(|log| log.contains("+++ exited with 0 +++"))
        });
        for line in &whole_calls(&trace) {
            if let Some((_, status)) = line.split_once(ANSWER) {
                answered += 1;
                if bytes_of(&status[..12]) == b"200" {
                    acknowledged = answered;
                }
            } else if !disk.make(&directory, line) {
                continue;
            }
            for number in 0..DISKS {
                let random_call = random.usize(disk.calls.saturating_sub(15)..=disk.calls);
                let files = disk.cut(|call| match number {
                    0 => Left::Nothing,
                    1 => Left::All,
                    2 if call <= random_call => Left::All,
                    2 => Left::Nothing,
                    3 => [Left::All, Left::Nothing][random.usize(..2)],
                    _ => [Left::All, Left::Nothing, Left::Place][random.usize(..3)],
                });
                disks.insert((files, [acknowledged, answered + 1]));
            }
        }
    }
    assert_eq!((answered, acknowledged), (6, 6));
    let disks = Mutex::new(disks.into_iter());
    let next = || disks.lock().unwrap().next();
    thread::scope(|scope| {
        for _ in 0..CHECKERS {
            scope.spawn(|| {
                while let Some((files, changes)) = next() {
                    check_disk(&files, &seed, changes);
                }
            });
        }
    });
}
