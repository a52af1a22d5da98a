//! Hosts that share a list in etcd, by the recipe of docs/replicas.md. Each host is a namespace with
//! an address, processes, `/etc` and `/var/lib` of its own, where the commands run as they are
//! printed. Scripts stand for apt-get, for scp, and for systemctl.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};
use std::thread;

use rustix::process::geteuid;

use crate::common::harness::{
    Scratch, at_once, figures, is_installed, own_environment, run, skip, wait_until,
};
use crate::wire::machines::REPLICAS;
use crate::wire::recipes::{block, path_with};

const OPERATING: &str = include_str!("../../docs/operating.md");

const INK: &str = r##"{"name":"ink","value":"#191970"}"##;

/// What a host has of its own. Prints a line when all is there; fails before that. Reaps what ends.
const HOST: &str = "set -e
    mount -t tmpfs tmpfs $0
    for directory in etc var/lib; do
        mkdir -p $0/upper/$directory $0/work/$directory
        mount -t overlay overlay /$directory \
            -o lowerdir=/$directory,upperdir=$0/upper/$directory,workdir=$0/work/$directory
    done
    echo 127.0.0.1 localhost >/etc/hosts
    ip link set lo up
    echo ready
    sleep infinity & wait";

/// What connects them.
const SWITCH: &str = "set -e
    ip link add switch type bridge
    ip link set switch up
    echo ready
    exec sleep infinity";

/// What systemd does with the two units. One that fails is started again.
const SYSTEMCTL: &str = "#!/bin/sh
    set -ea
    file=/var/lib/$2.pid
    if [ \"$1\" != edit ] && [ -e $file ]; then
        kill -- \"-$(cat $file)\"
        while kill -0 \"-$(cat $file)\" 2>/dev/null; do :; done
        rm $file
    fi
    [ \"$1\" = restart ] || exit 0
    case $2 in
    etcd) user=etcd; ETCD_DATA_DIR=/var/lib/etcd/default; ETCD_BCRYPT_COST=4 ;;
    colors) user=root; COLORS_ETCD_USER_FILE=/etc/etcd/colors.user ;;
    esac
    . /etc/default/$2
    setsid setpriv --reuid=$user --regid=$user --clear-groups \
        sh -c 'until \"$0\"; do :; done' $2 >>/var/lib/$2.log 2>&1 </dev/null &
    echo $! >$file";

/// A namespace and all that runs in it, which end when dropped.
struct Namespace(Child);

impl Namespace {
    /// `None` if it cannot be made here.
    fn start(script: &str, directory: &str) -> Option<Self> {
        let mut command = own_environment("unshare");
        command.args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
        command.args(["sh", "-c", script, directory]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut namespace = Self(command.spawn().unwrap());
        let mut line = String::new();
        BufReader::new(namespace.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        (line == "ready\n").then_some(namespace)
    }

    /// A command line in it.
    fn shell(&self, command_line: &str) -> Command {
        let mut command = own_environment("nsenter");
        let process = format!("/proc/{}/ns", self.0.id());
        for (option, file) in [("net", "net"), ("mount", "mnt"), ("pid", "pid_for_children")] {
            command.arg(format!("--{option}={process}/{file}"));
        }
        command.args(["sh", "-ec", command_line]).stdin(Stdio::null());
        command
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Network {
    switch: Namespace,
    scratch: Scratch,
}

/// A host with this address.
struct Host {
    namespace: Namespace,
    address: &'static str,
    path: String,
}

impl Network {
    fn start() -> Option<Self> {
        if !["etcd", "etcdctl", "ip", "openssl", "curl"].into_iter().all(is_installed) {
            return None;
        }
        if !geteuid().is_root() {
            skip("root is needed to make hosts");
            return None;
        }
        let Some(switch) = Namespace::start(SWITCH, "") else {
            skip("no namespace can be made here");
            return None;
        };
        let scratch = Scratch::new();
        let seed = concat!("COLORS_SEED=", env!("CARGO_MANIFEST_DIR"), "/seed/colors.json");
        let copy = format!("box={}/${{3%:*}}; mkdir -p $box; cp -r $2 $box", scratch.0.display());
        fs::create_dir(scratch.0.join("bin")).unwrap();
        for (program, script) in [
            ("systemctl", SYSTEMCTL.replace("colors) ", &format!("colors) {seed}; "))),
            ("apt-get", "#!/bin/sh\n".to_owned()),
            ("scp", format!("#!/bin/sh\n{copy}\n")),
        ] {
            let file = scratch.write(&format!("bin/{program}"), script);
            fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Some(Self { switch, scratch })
    }

    /// A new host, with what was copied to its address.
    fn host(&self, address: &'static str) -> Option<Host> {
        let directory = self.scratch.file(&format!("host-{address}"));
        fs::create_dir_all(&directory).unwrap();
        let Some(namespace) = Namespace::start(HOST, &directory) else {
            skip("no host can be made here");
            return None;
        };
        let host = Host { namespace, address, path: path_with(&self.scratch.file("bin")) };
        let one = host.namespace.0.id().to_string();
        let other = self.switch.0.id().to_string();
        // what its sockets could not send keeps a former host of this address there for a minute
        let port = format!("to-{address}");
        let unplug = format!("! ip link show {port} || ip link delete {port}");
        assert_eq!(run(&mut self.switch.shell(&unplug)).0, Some(0));
        let mut link = Command::new("ip");
        link.args(["link", "add", "eth0", "netns", &one, "type", "veth"]);
        let ended = run(link.args(["peer", "name", &port, "netns", &other]));
        assert_eq!(ended, (Some(0), String::new(), String::new()));
        let connect = format!("ip link set {port} master switch up");
        let ended = run(&mut self.switch.shell(&connect));
        assert_eq!(ended, (Some(0), String::new(), String::new()));
        host.run(&format!("ip address add {address}/24 dev eth0 && ip link set eth0 up"));
        let copied = self.scratch.file(&format!("root@{address}"));
        host.run(&format!("[ ! -e {copied} ] || cp -r {copied}/etcd /etc"));
        Some(host)
    }
}

impl Host {
    fn shell(&self, command_line: &str) -> Command {
        let user = command_in(REPLICAS, "export ETCDCTL_USER");
        let mut command = self.namespace.shell(&format!("cd /var/lib; {user}; {command_line}"));
        let times = ["ETCDCTL_COMMAND_TIMEOUT", "ETCDCTL_DIAL_TIMEOUT"].map(|name| (name, "60s"));
        command.env("PATH", &self.path).envs(times);
        command
    }

    /// Runs commands of the document; gives what they print.
    #[track_caller]
    fn run(&self, commands: &str) -> String {
        let (code, printed, error) = run(&mut self.shell(commands));
        assert_eq!(code, Some(0), "{}: {commands}: {printed}{error}", self.address);
        printed.trim_end().to_owned()
    }

    #[track_caller]
    fn wait_for(&self, commands: &str) {
        let what = format!("{commands} at {}", self.address);
        wait_until(&what, || run(&mut self.shell(commands)).0 == Some(0));
    }

    /// Sets etcd up. A further line is for its settings.
    fn set_etcd_up(&self, line: &str) {
        let commands = block(REPLICAS, "sh", "ETCD_NAME=");
        let own = commands.replacen("own=192.0.2.1\n", &format!("own={}\n", self.address), 1);
        self.run(&own.replace("\nEND\n", &format!("\n{line}\nEND\n")));
    }

    fn add_users(&self) {
        self.wait_for("etcdctl endpoint health");
        self.run(block(REPLICAS, "sh", "etcdctl auth enable"));
    }

    /// Starts the service, and lets the other hosts in.
    fn start_colors(&self) {
        self.wait_for("etcdctl endpoint health");
        let listen = command_in(OPERATING, "COLORS_LISTEN=0");
        self.run(&format!("echo {listen} >>/etc/default/colors"));
        self.run(block(REPLICAS, "sh", "COLORS_DATA=etcd"));
        self.wait_for("curl -sSf localhost:8080/health");
    }

    fn list(&self) -> String {
        self.run("curl -sSf localhost:8080/colors")
    }

    /// Changes a color from the other host until that is acknowledged, and waits until the other
    /// has it.
    fn change(&self, other: &Self, value: &str) {
        let content = format!(r#"{{"value":"{value}"}}"#);
        let put = format!("curl -sSf -X PUT {}:8080/colors/red --json", self.address);
        other.wait_for(&format!("{put} '{content}'"));
        other.wait_for(&format!("curl -sSf localhost:8080/colors/red | grep '\"{value}\"'"));
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if thread::panicking() {
            let logs = self.shell("tail -n 30 etcd.log colors.log").output().unwrap();
            figures(&format!("{}: {}", self.address, String::from_utf8_lossy(&logs.stdout)));
        }
    }
}

/// A command that is within a sentence, on one line.
fn command_in(document: &'static str, start: &str) -> String {
    let text = document.split('`').find(|text| text.starts_with(start)).expect("it is there");
    text.replace('\n', " ")
}

#[test]
fn three_hosts_share_a_list_and_one_or_all_are_replaced() {
    let Some(network) = Network::start() else { return };
    let Some(one) = network.host("192.0.2.1") else { return };
    one.run(block(REPLICAS, "sh", "openssl req"));
    let begin = || {
        let others = ["192.0.2.2", "192.0.2.3"].map(|address| network.host(address).unwrap());
        let hosts = || others.iter().chain([&one]);
        at_once(hosts(), |host| host.set_etcd_up(""));
        one.add_users();
        at_once(hosts(), Host::start_colors);
        others
    };
    let [two, three] = begin();
    two.wait_for(&format!("curl -sSf localhost:8080/colors --json '{INK}'"));
    [&one, &three].iter().for_each(|host| host.wait_for("curl -sSf localhost:8080/colors/ink"));

    // as a page may ask, also one whose name leads to this host
    let delete = "curl -s -w '%{http_code}' 127.0.0.1:2379/v3/kv/deleterange";
    let all = r#"-d '{"key":"AA==","range_end":"AA=="}'"#;
    let refused = one.run(&format!("{delete} {all}"));
    assert!(refused.contains("user name is empty") && refused.ends_with("400"), "{refused}");
    assert!(one.run(&format!("{delete} {all} -H 'Host: example.org:2379'")).ends_with("421"));
    // the key of the service is all that its user may change
    let as_service = "ETCDCTL_USER=$(cat /etc/etcd/colors.user) etcdctl get";
    one.run(&format!("{as_service} --prefix colors/"));
    assert_ne!(run(&mut one.shell(&format!("{as_service} --prefix color"))).0, Some(0));

    // the members let nobody in without the key
    let ask = "curl -sS --http1.1 --cacert /etc/etcd/peer.crt https://192.0.2.1:2380/members";
    let key = "--cert /etc/etcd/peer.crt --key /etc/etcd/peer.key";
    assert_ne!(run(&mut two.shell(ask)).0, Some(0));
    assert!(two.run(&format!("{ask} {key}")).contains("https://192.0.2.3:2380"));

    drop(three);
    one.change(&two, "without three");
    // etcd refuses to change its members until they have known each other for 5 s
    block(REPLICAS, "sh", "etcdctl member remove").lines().for_each(|line| one.wait_for(line));
    let three = network.host("192.0.2.3").unwrap();
    let line = command_in(REPLICAS, "ETCD_INITIAL_CLUSTER_STATE");
    three.set_etcd_up(&line);
    three.start_colors();
    assert_eq!(three.list(), one.list());
    drop(two);
    three.change(&one, "without two");

    one.run(block(REPLICAS, "sh", "etcdctl compact"));
    let list = one.list();
    let dump = block(REPLICAS, "sh", "colors --dump --data etcd://");
    one.run(dump);
    assert_eq!(one.run("cat backup.json"), list);
    let lines = block(REPLICAS, "ini", "PrivateNetwork=no").lines();
    let variable = lines.filter_map(|line| line.strip_prefix("Environment=")).next().unwrap();
    let backup = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/backup");
    one.run(&format!(
        "export {variable} COLORS_DATA=etcd://127.0.0.1/colors STATE_DIRECTORY=/var/lib
        {backup} && cmp colors-*.json backup.json"
    ));

    // no majority is left
    drop(three);
    one.run(&format!(
        "rm backup.json; {}",
        command_in(REPLICAS, "curl -sSf localhost:8080/colors")
    ));
    assert_eq!(one.run("cat backup.json"), list);
    // nor a service that has the list in memory
    one.run("rm backup.json; systemctl stop colors; systemctl restart etcd");
    assert_ne!(run(&mut one.shell(dump)).0, Some(0));
    one.run(block(REPLICAS, "sh", "ETCD_FORCE_NEW_CLUSTER"));
    one.wait_for(dump);
    assert_eq!(one.run("cat backup.json"), list);
    one.run(&command_in(REPLICAS, "systemctl stop etcd"));
    let [two, three] = begin();
    assert_ne!(one.list(), list);
    let restore = block(OPERATING, "sh", "-T backup.json").lines().last().unwrap();
    one.run(restore);
    two.change(&three, "restored");
    assert_eq!(three.list(), list.replace("without two", "restored"));
}
