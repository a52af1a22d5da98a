//! What can be seen of the service's process from outside (proc(5)), and what strace does to it.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::harness::{Server, colors, is_installed, own_environment, wait_until};

impl Server {
    /// Starts the service on a free port below strace; `None` if that is not installed.
    pub(crate) fn below_strace(options: &[impl AsRef<OsStr>], arguments: &[&str]) -> Option<Self> {
        let arguments = [&["--listen", "127.0.0.1:0"], arguments].concat();
        Some(Self::spawn(colors_below_strace(options, &arguments)?))
    }

    /// A number of the process's status in proc(5), by its name; sizes are in KiB.
    #[track_caller]
    pub(crate) fn proc_status(&self, name: &str) -> usize {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let mut lines = status.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
        value.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// How many connections the service has.
    pub(crate) fn connections(&self) -> usize {
        sockets_of(self.pid()).difference(&self.own_sockets).count()
    }

    /// Stops the process with SIGSTOP, and waits until it has stopped.
    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
        wait_until("the service is stopped", || {
            let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
            // the name before the state is in parentheses and may contain anything
            stat.rsplit_once(") ").unwrap().1.starts_with('T')
        });
    }

    /// Has strace do something until [`Server::end_strace`]; false if that is not installed.
    #[track_caller]
    pub(crate) fn strace(&self, options: &[String]) -> bool {
        if !is_installed("strace") {
            return false;
        }
        let mut command = Command::new("strace");
        command.args(["-f", "-qq", "-p", &self.pid().to_string()]).args(options);
        let mut strace = command.stdin(Stdio::null()).spawn().unwrap();
        wait_until("strace traces every thread", || {
            assert_eq!(strace.try_wait().unwrap(), None, "strace has ended");
            let mut threads = fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap();
            threads.all(|thread| {
                let status = fs::read_to_string(thread.unwrap().path().join("status"));
                status.is_ok_and(|status| !status.contains("TracerPid:\t0\n"))
            })
        });
        std::thread::spawn(move || strace.wait());
        true
    }

    /// Ends the strace that traces the service, and so what it does to the service.
    #[track_caller]
    pub(crate) fn end_strace(&self) {
        let tracer = Pid::from_raw(self.proc_status("TracerPid") as i32).expect("it is traced");
        kill_process(tracer, Signal::KILL).expect("strace runs");
        wait_until("strace has ended", || self.proc_status("TracerPid") == 0);
    }

    /// Bytes that the kernel has for it over TCP (proc_net_tcp(5)): those not sent yet, on closed
    /// connections, too, and those not received yet, with connections that are not accepted yet.
    pub(crate) fn queued_bytes(&self) -> (u64, u64) {
        let port = format!(":{:04X}", self.address.port());
        let table = fs::read_to_string("/proc/net/tcp").expect("Linux has proc(5)");
        let lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let number = |digits: &str| u64::from_str_radix(digits, 16).unwrap();
        lines.filter(|columns| columns[1].ends_with(&port)).fold((0, 0), |sum, columns| {
            let (sent, received) = columns[4].split_at(8);
            (sum.0 + number(sent), sum.1 + number(&received[1..]))
        })
    }
}

/// The program with these arguments below strace; `None` if that is not installed.
pub(crate) fn colors_below_strace(
    options: &[impl AsRef<OsStr>],
    arguments: &[&str],
) -> Option<Command> {
    if !is_installed("strace") {
        return None;
    }
    let mut command = own_environment("strace");
    // -D: the service stays the child of this process, and so gets its signals
    command.args(["-D", "-f"]).args(options).arg(colors(&[]).get_program()).args(arguments);
    command.current_dir(env!("CARGO_MANIFEST_DIR")).stderr(Stdio::piped());
    Some(command)
}

/// Options of strace that have this happen to system calls on the log of a database.
pub(crate) fn on_log_of(file: &str, call: &str, what: &str) -> [String; 8] {
    let (trace, inject) = (format!("trace={call}"), format!("inject={call}:{what}"));
    let log = format!("{file}-wal");
    ["-o", "/dev/null", "-P", &log, "-e", &trace, "-e", &inject].map(str::to_owned)
}

/// The sockets of a process, each once, however many descriptors lead to it.
pub(super) fn sockets_of(process: u32) -> HashSet<String> {
    let descriptors = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten();
    let targets = descriptors.filter_map(|descriptor| {
        fs::read_link(descriptor.ok()?.path()).ok()?.into_os_string().into_string().ok()
    });
    targets.filter(|target| target.starts_with("socket:")).collect()
}
