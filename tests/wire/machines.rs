//! Machines that Litestream copies a list between, by the recipes of docs/replicas.md: each is a
//! directory. What has to hold of the copies is in `litestream`.

use std::fs::{self, File};
use std::process::{Child, Command, Stdio};
use std::thread;

use rustix::process::Signal;

use crate::common::harness::{
    Scratch, Server, eventually, figures, is_installed, own_environment, run, signal_child, stored,
    wait_until,
};
use crate::wire::recipes::{block, path_with};

pub(super) const REPLICAS: &str = include_str!("../../docs/replicas.md");

/// A process of Litestream; killed when dropped.
pub(super) struct Litestream(pub(super) Child);

impl Litestream {
    /// Ends it as systemd does. Before that, it copies what was committed.
    #[track_caller]
    pub(super) fn stop(mut self) {
        signal_child(&self.0, Signal::TERM);
        let status = eventually("Litestream ends", || self.0.try_wait().unwrap());
        assert!(status.success(), "{status}");
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if thread::panicking() {
            let log = fs::read_to_string(self.scratch.0.join("litestream.log"));
            figures(&format!("the log of Litestream:\n{}", log.unwrap_or_default()));
        }
    }
}

impl Drop for Litestream {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A command line in this directory, where `colors` is this build.
pub(super) fn shell(scratch: &Scratch, command_line: &str) -> Command {
    let mut command = own_environment("sh");
    command.args(["-c", command_line]).current_dir(&scratch.0).env("PATH", path_with(""));
    command.stdin(Stdio::null());
    command
}

/// A machine: a directory in place of its `/var/lib/colors`, and `/etc` and `/root` below it. Other
/// machines have its `/srv` as well.
pub(super) struct Machine {
    pub(super) scratch: Scratch,
    /// Where `/srv/colors` is.
    pub(super) replica: String,
}

impl Machine {
    /// The first machine; `None` if Litestream is not installed.
    pub(super) fn first() -> Option<Self> {
        if !is_installed("litestream") {
            return None;
        }
        let scratch = Scratch::new();
        let replica = scratch.file("replica");
        Some(Self::prepare(scratch, replica))
    }

    /// Another one, which has the same directory.
    pub(super) fn another(&self) -> Self {
        Self::prepare(Scratch::new(), self.replica.clone())
    }

    fn prepare(scratch: Scratch, replica: String) -> Self {
        for directory in ["default", "root"] {
            fs::create_dir(scratch.0.join(directory)).unwrap();
        }
        let machine = Self { scratch, replica };
        let socket = machine.scratch.file("litestream.sock");
        let settings = machine.here(block(REPLICAS, "yaml", "file:///srv/colors"));
        // with it, Litestream can be told to copy now
        let settings = format!("{settings}socket: {{enabled: true, path: {socket}}}\n");
        machine.scratch.write("litestream.yml", settings);
        machine
    }

    /// What the document prints, with the paths of this machine.
    fn here(&self, text: &str) -> String {
        let directory = self.scratch.file("");
        let settings = format!("-config {}", self.scratch.file("litestream.yml"));
        text.replace("/var/lib/colors", directory.trim_end_matches('/'))
            .replace("/srv/colors", &self.replica)
            .replace("/etc/default", &self.scratch.file("default"))
            .replace("/root", &self.scratch.file("root"))
            .replace("/usr/bin/litestream", "litestream")
            .replace("litestream restore", &format!("litestream restore {settings}"))
            .replace("litestream replicate", &format!("litestream replicate {settings}"))
    }

    #[track_caller]
    pub(super) fn run(&self, command_line: &str) {
        let (code, printed, error) = run(&mut shell(&self.scratch, &self.here(command_line)));
        assert_eq!(code, Some(0), "{command_line}: {printed}{error}");
    }

    pub(super) fn file(&self) -> String {
        self.scratch.file("colors.db")
    }

    /// Starts the service that writes.
    pub(super) fn serve(&self, seed: &str) -> Server {
        let seed = self.scratch.write("seed.json", seed);
        Server::start(&["--seed", &seed, "--data", &self.file()])
    }

    /// Starts what copies the list, as its unit does, and keeps what it prints in a file.
    pub(super) fn replicate(&self) -> Litestream {
        let unit = block(REPLICAS, "ini", "force-snapshot");
        let first = unit.lines().find_map(|line| line.strip_prefix("ExecStartPre=-")).unwrap();
        self.run(first);
        let log = self.scratch.0.join("litestream.log");
        let log = File::options().create(true).append(true).open(log).unwrap();
        let mut command = shell(&self.scratch, &self.here("exec litestream replicate"));
        command.stdout(log.try_clone().unwrap()).stderr(log);
        let litestream = Litestream(command.spawn().unwrap());
        eventually("Litestream listens", || {
            std::os::unix::net::UnixStream::connect(self.scratch.file("litestream.sock")).ok()
        });
        litestream
    }

    /// Has Litestream copy all that was committed.
    #[track_caller]
    pub(super) fn sync(&self) {
        let command = format!("litestream sync -wait -socket litestream.sock {}", self.file());
        // The first may be told of a copy that had begun before the last change.
        for _ in 0..2 {
            wait_until("Litestream copies", || {
                shell(&self.scratch, &command).output().unwrap().status.success()
            });
        }
    }

    /// The list as a new machine would have it.
    #[track_caller]
    pub(super) fn restored(&self) -> String {
        let new = self.another();
        new.run("litestream restore -o /var/lib/colors/colors.db /var/lib/colors/colors.db");
        stored(&new.file())
    }

    /// The lines of a block with several commands: those with systemctl are for the caller.
    #[track_caller]
    pub(super) fn follow(&self, block: &str, mut systemctl: impl FnMut(&str)) {
        for line in block.lines() {
            match line.strip_prefix("systemctl ") {
                Some(what) => systemctl(what),
                None => self.run(line),
            }
        }
    }
}
