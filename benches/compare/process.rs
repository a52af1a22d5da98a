//! What the kernel knows of a server's processes, and how to end them. Knows nothing of what they serve.

use std::fs;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

use crate::failure::Failure;

/// How long a server may take to stop; actix-web waits up to 30 s for connections, but there are none left.
const STOP_MAX: Duration = Duration::from_secs(10);

/// CPU time, user and system, that a process and its descendants have used, those of their threads that ended included.
///
/// # Errors
/// When one of them has ended meanwhile.
pub(crate) fn cpu(root: u32) -> Result<Duration, Failure> {
    let mut sum = Duration::ZERO;
    for process in tree(root) {
        let clock = clock_getcpuclockid(pid(process)).map_err(Failure::Clock)?;
        sum += Duration::from(clock_gettime(clock).map_err(Failure::Clock)?);
    }
    Ok(sum)
}

/// Resident memory of a process and its descendants, in KiB; pages that they share count once for each.
pub(crate) fn resident(root: u32) -> u64 {
    tree(root).into_iter().filter_map(resident_of_one).sum()
}

/// `VmRSS` in KiB; nothing once the process has ended.
fn resident_of_one(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

/// Bytes that a process and its descendants have had written to the disk; whole pages of memory, without the file system's own.
pub(crate) fn written(root: u32) -> u64 {
    tree(root).into_iter().filter_map(written_by_one).sum()
}

/// `write_bytes` (proc_pid_io(5)); nothing once the process has ended.
fn written_by_one(process: u32) -> Option<u64> {
    let io = fs::read_to_string(format!("/proc/{process}/io")).ok()?;
    io.lines().find_map(|line| line.strip_prefix("write_bytes: "))?.parse().ok()
}

/// A process and its descendants.
fn tree(root: u32) -> Vec<u32> {
    let parents: Vec<(u32, u32)> = fs::read_dir("/proc").into_iter().flatten().filter_map(|entry| parent(&entry.ok()?)).collect();
    let mut tree = vec![root];
    let mut seen = 0;
    while let Some(&process) = tree.get(seen) {
        tree.extend(parents.iter().filter(|(_, parent)| *parent == process).map(|(child, _)| child));
        seen += 1;
    }
    tree
}

/// A process and its parent, if this entry of `/proc` is a process.
fn parent(entry: &fs::DirEntry) -> Option<(u32, u32)> {
    let process = entry.file_name().to_str()?.parse().ok()?;
    let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
    // proc_pid_stat(5): the command's name stands in parentheses and may hold any; state and parent follow it.
    let (_, after_name) = stat.rsplit_once(')')?;
    Some((process, after_name.split_whitespace().nth(1)?.parse().ok()?))
}

/// Ends a process: by SIGTERM, which lets nginx end its workers and callgrind write its sums, and by force if it takes too long.
pub(crate) fn stop(child: &mut Child) {
    // A process that has ended already is what is wanted.
    let _ = kill(pid(child.id()), Signal::SIGTERM);
    let deadline = Instant::now() + STOP_MAX;
    while Instant::now() < deadline {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
    // As above.
    let _ = child.kill();
    let _ = child.wait();
}

/// Sends SIGKILL to a process and its descendants: none of them gets to do anything more.
pub(crate) fn kill_all(root: u32) {
    for process in tree(root) {
        // A process that has ended already is what is wanted.
        let _ = kill(pid(process), Signal::SIGKILL);
    }
}

/// The number in the form that system calls take.
fn pid(process: u32) -> Pid {
    Pid::from_raw(process.try_into().expect("the kernel counts processes in 22 bits"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_time_and_memory() {
        assert!(cpu(std::process::id()).unwrap() > Duration::ZERO);
        assert!(resident(std::process::id()) > 100);
    }

    #[test]
    fn a_child_belongs_to_the_tree_until_it_is_stopped() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(tree(std::process::id()).contains(&child.id()));
        stop(&mut child);
        assert!(!tree(std::process::id()).contains(&child.id()));
    }

    #[test]
    fn descendants_are_killed_too() {
        let mut shell = std::process::Command::new("sh").args(["-c", "sleep 60; true"]).spawn().unwrap();
        let deadline = Instant::now() + STOP_MAX;
        while tree(shell.id()).len() < 2 {
            assert!(Instant::now() < deadline);
            thread::sleep(Duration::from_millis(1));
        }
        let sleep = tree(shell.id())[1];
        kill_all(shell.id());
        shell.wait().unwrap();
        while fs::read_to_string(format!("/proc/{sleep}/stat")).is_ok_and(|stat| !stat.contains(") Z ")) {
            assert!(Instant::now() < deadline);
            thread::sleep(Duration::from_millis(1));
        }
    }
}
