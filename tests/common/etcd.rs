//! Starts etcd: one member or several, as processes of this host.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with};
use rustix::process::Signal;

use crate::common::harness::{Scratch, eventually, is_installed, run, signal_child, wait_until};

/// A running etcd; stopped when dropped.
pub(crate) struct Etcd {
    scratch: Scratch,
    members: Vec<Member>,
    arguments: Vec<String>,
}

struct Member {
    /// Where it listens for clients, and for the other members.
    client: SocketAddr,
    peer: SocketAddr,
    _ports: [OwnedFd; 2],
    process: Option<Child>,
}

/// Finds a free port, and keeps it from being free for others: etcd, which does not say which port
/// it got if it is told 0, may listen beside the socket, since both are reusable (socket(7)).
fn reserve_port() -> (OwnedFd, SocketAddr) {
    let (family, flags) = (AddressFamily::INET, SocketFlags::CLOEXEC);
    let socket = socket_with(family, SocketType::STREAM, flags, None).unwrap();
    set_socket_reuseaddr(&socket, true).unwrap();
    bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = getsockname(&socket).unwrap().try_into().unwrap();
    (socket, address)
}

impl Etcd {
    /// Starts so many members; `None` if etcd is not installed.
    pub(crate) fn start(members: usize) -> Option<Self> {
        Self::start_with(members, &[])
    }

    /// The same with these arguments of etcd.
    pub(crate) fn start_with(members: usize, arguments: &[&str]) -> Option<Self> {
        if !is_installed("etcd") || !is_installed("etcdctl") {
            return None;
        }
        let member = |_| {
            let [client, peer] = [reserve_port(), reserve_port()];
            Member { client: client.1, peer: peer.1, _ports: [client.0, peer.0], process: None }
        };
        let mut etcd = Self {
            scratch: Scratch::new(),
            members: (0..members).map(member).collect(),
            arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
        };
        (0..members).for_each(|member| etcd.start_member(member));
        (0..members).for_each(|member| etcd.wait_until_healthy(member));
        Some(etcd)
    }

    /// Starts a member that does not run.
    pub(crate) fn start_member(&mut self, number: usize) {
        let names = self.members.iter().enumerate();
        let cluster: Vec<_> =
            names.map(|(number, member)| format!("m{number}=http://{}", member.peer)).collect();
        let member = &self.members[number];
        let (client, peer) =
            (format!("http://{}", member.client), format!("http://{}", member.peer));
        let name = format!("m{number}");
        let mut command = Command::new("etcd");
        command.args(["--name", &name, "--data-dir", &self.scratch.file(&name)]);
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &cluster.join(",")]).args(&self.arguments);
        // To check a password takes 0.1 s of the processor otherwise.
        command.args(["--bcrypt-cost", "4"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.members[number].process = Some(command.spawn().unwrap());
    }

    /// What a member answers to a GET; the empty string if it does not.
    pub(crate) fn ask(&self, number: usize, target: &str) -> String {
        let mut answer = String::new();
        let Ok(mut stream) = TcpStream::connect(self.members[number].client) else { return answer };
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let asked = write!(stream, "GET {target} HTTP/1.0\r\n\r\n");
        // What has come of an answer that is cut off is of no use.
        let read = asked.and_then(|()| stream.read_to_string(&mut answer));
        if read.is_ok() { answer } else { String::new() }
    }

    #[track_caller]
    pub(crate) fn wait_until_healthy(&self, number: usize) {
        wait_until("the member is healthy", || self.ask(number, "/health").contains(r#""true""#));
    }

    /// Makes users, with their names as passwords: `root`, and `colors` for keys with a prefix.
    pub(crate) fn add_users(&self, prefix: &str) {
        for line in [
            "user add root:root".to_owned(),
            "user grant-role root root".to_owned(),
            "user add colors:colors".to_owned(),
            "role add colors".to_owned(),
            format!("role grant-permission --prefix colors readwrite {prefix}"),
            "user grant-role colors colors".to_owned(),
            "auth enable".to_owned(),
        ] {
            self.etcdctl(&line.split(' ').collect::<Vec<_>>());
        }
    }

    /// Removes what a member has on disk, which does not run.
    pub(crate) fn wipe(&self, number: usize) {
        std::fs::remove_dir_all(self.scratch.file(&format!("m{number}"))).unwrap();
    }

    pub(crate) fn kill(&mut self, number: usize) {
        let mut process = self.members[number].process.take().expect("it runs");
        process.kill().unwrap();
        process.wait().unwrap();
    }

    /// Has a cluster of one member go on from a snapshot.
    pub(crate) fn restore(&mut self, snapshot: &str) {
        self.kill(0);
        self.wipe(0);
        let directory = self.scratch.file("m0");
        let (code, _, error) = self.run(&[
            "snapshot",
            "restore",
            snapshot,
            "--name=m0",
            &format!("--data-dir={directory}"),
            &format!("--initial-cluster=m0=http://{}", self.members[0].peer),
            &format!("--initial-advertise-peer-urls=http://{}", self.members[0].peer),
        ]);
        assert_eq!(code, Some(0), "{error}");
        self.start_member(0);
        self.wait_until_healthy(0);
    }

    pub(crate) fn signal(&self, number: usize, signal: Signal) {
        signal_child(self.members[number].process.as_ref().expect("it runs"), signal);
    }

    pub(crate) fn member(&self, number: usize) -> SocketAddr {
        self.members[number].client
    }

    /// Where a member listens for the others.
    pub(crate) fn peer(&self, number: usize) -> SocketAddr {
        self.members[number].peer
    }

    /// The number of the member that leads.
    pub(crate) fn leader(&self) -> usize {
        let is_leader = |number: &usize| {
            let endpoint = format!("--endpoints={}", self.members[*number].client);
            let (_, status, _) = self.run(&[&endpoint, "endpoint", "status", "--write-out=fields"]);
            let field = |name: &str| {
                status.lines().find_map(|line| line.strip_prefix(&format!("\"{name}\" : ")))
            };
            field("MemberID").is_some() && field("MemberID") == field("Leader")
        };
        eventually("a member leads", || (0..self.members.len()).find(is_leader))
    }

    /// What `--data` takes for a key: all members.
    pub(crate) fn url(&self, key: &str) -> String {
        let members: Vec<_> = self.members.iter().map(|member| member.client.to_string()).collect();
        format!("etcd://{}/{key}", members.join(","))
    }

    /// Runs etcdctl; gives its output.
    #[track_caller]
    pub(crate) fn etcdctl(&self, arguments: &[&str]) -> String {
        let (code, output, errors) = self.run(arguments);
        assert_eq!(code, Some(0), "{arguments:?}: {errors}");
        output
    }

    /// Has `etcdctl txn` make a transaction, which has to hold.
    #[track_caller]
    pub(crate) fn txn(&self, text: &str) {
        let mut command = Command::new("etcdctl");
        command.arg(format!("--endpoints={}", self.members[0].client)).arg("txn");
        command.env("ETCDCTL_API", "3").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
        assert!(output.starts_with("SUCCESS"), "{output}");
    }

    /// Runs etcdctl; gives exit code, standard output and standard error.
    pub(crate) fn run(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let mut command = Command::new("etcdctl");
        if !arguments[0].starts_with("--endpoints") {
            command.arg(format!("--endpoints={}", self.members[0].client));
        }
        command.args(["--dial-timeout=60s", "--command-timeout=60s"]);
        run(command.args(arguments).env("ETCDCTL_API", "3"))
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for process in self.members.iter_mut().filter_map(|member| member.process.as_mut()) {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
