//! The service under systemd: what it tells the manager, and that the units are sound, tight, and
//! not too tight for the program.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::common::client::Client;
use crate::common::harness::{
    DEADLINE, Scratch, Server, colors, eventually, is_installed, own_environment, run, skip,
    wait_until,
};
use crate::common::process::{colors_below_strace, on_log_of};

/// READY as well, in case the first was dropped.
const HEARTBEAT: &str = "READY=1\nWATCHDOG=1\n";

/// A service manager's end of the notification socket.
struct Manager {
    socket: UnixDatagram,
    path: String,
    _scratch: Scratch,
}

impl Manager {
    fn new() -> Self {
        let scratch = Scratch::new();
        let path = scratch.file("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(DEADLINE)).unwrap();
        Self { socket, path, _scratch: scratch }
    }

    /// Starts the service below this manager.
    fn start(&self, watchdog: Option<Duration>, options: &[&str]) -> Server {
        let mut command = colors(&[&["--listen", "127.0.0.1:0"], options].concat());
        command.env("NOTIFY_SOCKET", &self.path);
        if let Some(patience) = watchdog {
            command.env("WATCHDOG_USEC", patience.as_micros().to_string());
        }
        Server::spawn(command)
    }

    /// The next message.
    #[track_caller]
    fn message(&self) -> String {
        let mut bytes = [0; 512];
        let length = loop {
            match self.socket.recv(&mut bytes) {
                // signal(7): a read with a time-out is interrupted when the process was stopped and
                // goes on
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                received => break received.expect("a message in time"),
            }
        };
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    }
}

#[test]
fn the_manager_hears_of_start_and_end_and_when_saving_begins_to_fail_or_works_again() {
    let (manager, scratch) = (Manager::new(), Scratch::new());
    let (file, away) = (scratch.file("colors.db"), scratch.file("away"));
    let server = manager.start(None, &["--data", &file]);
    assert_eq!(manager.message(), "READY=1\nSTATUS=ok\n");
    let ink = r#"{"name":"ink","value":"1"}"#;
    assert_eq!(server.ask("POST", "/colors", ink).status, 201);
    fs::rename(&file, &away).unwrap();
    for _ in 0..2 {
        assert_eq!(server.ask("POST", "/colors", ink).status, 500);
    }
    let failing = manager.message();
    let fault = "STATUS=changes cannot be saved: colors.db was removed, replaced or cut short; ";
    assert!(failing.starts_with(fault), "{failing}");
    fs::rename(&away, &file).unwrap();
    assert_eq!(manager.message(), "STATUS=ok\n");
    server.signal(Signal::TERM);
    assert_eq!(manager.message(), "STOPPING=1\n");
    assert!(server.wait().0.success());
}

#[test]
fn the_watchdog_is_kept_quiet_by_an_idle_service_and_by_a_busy_one() {
    let manager = Manager::new();
    let patience = Duration::from_millis(600);
    let server = manager.start(Some(patience), &[]);
    assert!(manager.message().starts_with("READY=1\n"));
    let begun = Instant::now();
    for _ in 0..2 {
        assert_eq!(manager.message(), HEARTBEAT);
    }
    assert!(begun.elapsed() >= patience * 9 / 10, "{:?}", begun.elapsed());
    let mut client = server.connect();
    std::thread::scope(|scope| {
        let beats = scope.spawn(|| (0..2).all(|_| manager.message() == HEARTBEAT));
        while !beats.is_finished() {
            client.expect_open();
        }
        assert!(beats.join().unwrap());
    });
}

#[test]
fn the_watchdog_is_not_kept_quiet_for_a_thread_that_hangs() {
    let (manager, scratch) = (Manager::new(), Scratch::new());
    let file = scratch.file("colors.db");
    Server::with_data("[]", &file, &[]).stop();
    // a minute, in microseconds: only a test that fails waits for its end
    let options = on_log_of(&file, "fdatasync", "delay_enter=60000000");
    let arguments = ["--listen", "127.0.0.1:0", "--data", &file];
    let Some(mut command) = colors_below_strace(&options, &arguments) else { return };
    let patience = Duration::from_millis(600);
    command
        .env("NOTIFY_SOCKET", &manager.path)
        .env("WATCHDOG_USEC", patience.as_micros().to_string());
    let server = Server::spawn(command);
    assert!(manager.message().starts_with("READY=1\n"));
    assert_eq!(manager.message(), HEARTBEAT);
    let mut writer = server.connect();
    writer.send("POST /colors HTTP/1.1\r\nHost: localhost\r\nContent-Length: 24\r\n\r\n{\"name\":\"a\",\"value\":\"1\"}");
    wait_until("the disk hangs", || {
        std::fs::metadata(format!("{file}-wal")).is_ok_and(|log| log.len() > 0)
    });
    // those that were under way
    manager.socket.set_read_timeout(Some(5 * patience)).unwrap();
    let heartbeats =
        (0..).take_while(|_| manager.socket.recv(&mut [0; 64]).is_ok()).take(20).count();
    assert!(heartbeats <= 2, "{heartbeats} heartbeats while the writer hangs");
    assert_eq!(server.ask("GET", "/colors", "").status, 200);
    // a process does not end in the middle of a delay
    server.end_strace();
}

/// What could not be told to the manager, and why, as the log has it.
fn untold(log: &str) -> Vec<&str> {
    let said =
        log.lines().filter_map(|line| line.split_once("[WARN] cannot tell the service manager "));
    said.map(|(_, said)| said).collect()
}

#[test]
fn a_manager_that_is_gone_is_worth_a_warning_and_no_more() {
    let mut command = colors(&["--listen", "127.0.0.1:0"]);
    // a heartbeat that is due at all times
    command.env("NOTIFY_SOCKET", "/nonexistent/notify").env("WATCHDOG_USEC", "1");
    let server = Server::spawn(command);
    (0..100).for_each(|_| server.connect().expect_open());
    let log = server.stop();
    let reason = "READY=1, STATUS=ok: NOTIFY_SOCKET: No such file or directory (os error 2); further messages that it does not take are dropped without a warning";
    assert_eq!(untold(&log), [reason]);
}

#[test]
fn a_manager_that_reads_nothing_keeps_nobody_waiting() {
    let (manager, scratch) = (Manager::new(), Scratch::new());
    let file = scratch.file("colors.db");
    let fill = || {
        let sender = UnixDatagram::unbound().unwrap();
        sender.set_nonblocking(true).unwrap();
        while sender.send_to(b"x", &manager.path).is_ok() {}
    };
    fill();
    let server = manager.start(Some(Duration::from_millis(20)), &["--data", &file]);
    let warning = "READY=1, STATUS=ok: NOTIFY_SOCKET: Resource temporarily unavailable (os error 11); further messages that it does not take are dropped without a warning";
    server.log_when("a warning", |log| untold(log) == [warning]);
    assert_eq!(server.ask("DELETE", "/colors/red", "").status, 200);
    // the writer has something to tell as well
    fs::remove_file(&file).unwrap();
    assert_eq!(server.ask("DELETE", "/colors/blue", "").status, 500);
    assert_eq!(server.ask("DELETE", "/colors/blue", "").status, 500);
    // what was dropped is told again once somebody reads
    eventually("it is ready", || Some(manager.message()).filter(|message| message == HEARTBEAT));
    fill();
    assert_eq!(untold(&server.stop()), [warning]);
}

#[test]
fn a_path_that_the_unit_makes_read_only_leads_to_the_setting_that_does_not() {
    if !is_installed("unshare")
        || !Command::new("unshare").args(["--mount", "true"]).status().unwrap().success()
    {
        return skip("unshare may make no namespace");
    }
    let scratch = Scratch::new();
    let directory = scratch.0.display();
    // as ProtectSystem=strict does
    let script =
        "mount --bind \"$1\" \"$1\" && mount -o remount,bind,ro \"$1\" && shift && exec \"$@\"";
    let refused = |file: &str| {
        let mut command = own_environment("unshare");
        command
            .args(["--mount", "sh", "-ec", script, "sh"])
            .arg(&scratch.0)
            .arg(colors(&[]).get_program());
        let (code, _, log) = run(command.args(["--check", "--data", &scratch.file(file)]));
        assert_eq!(code, Some(1), "{log}");
        log.split_once(": ").unwrap().1.trim_end().to_owned()
    };
    let expected = format!(
        "cannot write {directory}: it is read-only; under systemd have the unit say ReadWritePaths={directory}, or name another file with --data"
    );
    assert_eq!(refused("new.db"), expected);
    Server::with_data("[]", &scratch.file("old.db"), &[]).stop();
    assert_eq!(refused("old.db"), expected);
}

/// The units in a directory of their own, with a program that exists in place of the installed one.
fn units() -> Scratch {
    let scratch = Scratch::new();
    let program = colors(&[]).get_program().to_str().unwrap().to_owned();
    let service = include_str!("../../packaging/systemd/colors.service");
    let command = "ExecStart=/usr/bin/colors\n";
    assert!(service.contains(command));
    scratch.write("colors.service", service.replace(command, &format!("ExecStart={program}\n")));
    scratch
        .write("colors.socket", include_str!("../../packaging/systemd/activation/colors.socket"));
    fs::create_dir(scratch.0.join("colors.service.d")).unwrap();
    let drop_in = include_str!("../../packaging/systemd/activation/activated.conf");
    scratch.write("colors.service.d/activated.conf", drop_in);
    scratch
}

/// Checks that systemd finds no fault in a unit of this directory.
#[track_caller]
pub(super) fn check_unit(directory: &Path, unit: &str) {
    let verified = analyze(directory, &["verify", "--man=no", &format!("./{unit}")]);
    assert_eq!(verified, (true, String::new()), "{unit}");
}

/// Checks how much systemd finds exposed, from 0 to 10.
#[track_caller]
pub(super) fn check_exposure(directory: &Path, unit: &str, most: f64) {
    let security = ["security", "--offline=yes", "--no-pager", &format!("./{unit}")];
    let (_, report) = analyze(directory, &security);
    let (_, exposure) = report.split_once(&format!("exposure level for {unit}: ")).unwrap();
    let exposure: f64 = exposure.split(' ').next().unwrap().parse().unwrap();
    assert!(exposure <= most, "{report}");
}

/// Runs systemd-analyze; gives whether it is content, and all that it says.
fn analyze(directory: &Path, arguments: &[&str]) -> (bool, String) {
    let output =
        Command::new("systemd-analyze").args(arguments).current_dir(directory).output().unwrap();
    (output.status.success(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

/// Those without activation are checked in `packaging`, as they are installed.
#[test]
fn the_units_for_activation_are_sound_and_leave_little_exposed() {
    if !is_installed("systemd-analyze") {
        return;
    }
    let units = units();
    check_unit(&units.0, "colors.service");
    check_unit(&units.0, "colors.socket");
    check_exposure(&units.0, "colors.service", 0.3);
}

#[test]
fn the_unit_is_sound_with_tokens_as_a_credential() {
    if !is_installed("systemd-analyze") {
        return;
    }
    let units = units();
    let service = fs::read_to_string(units.0.join("colors.service")).unwrap();
    let lines =
        ["LoadCredential=tokens:/etc/colors/tokens", "Environment=COLORS_TOKEN_FILE=%d/tokens"];
    let with_tokens = lines.iter().fold(service, |service, line| {
        let document = include_str!("../../docs/operating.md");
        assert!(service.contains(&format!("\n#{line}\n")));
        assert!(document.contains(&format!("\n{line}\n")));
        service.replace(&format!("#{line}"), line)
    });
    units.write("colors.service", with_tokens);
    check_unit(&units.0, "colors.service");
}

#[test]
fn a_reload_has_the_tokens_read_again_and_does_no_harm_without_any() {
    let service = include_str!("../../packaging/systemd/colors.service");
    let lines: Vec<&str> =
        service.lines().filter_map(|line| line.strip_prefix("ExecReload=")).collect();
    // as systemd.service(5) has it: one after the other as long as they succeed, $$ is a dollar
    // sign, %d is where credentials are
    let program = colors(&[]).get_program().to_str().unwrap().to_owned();
    let script = lines
        .join("\n")
        .replace("$$", "$")
        .replace("%d", "/run/credentials/colors.service")
        .replace("/usr/bin/colors", &program);
    let reload = |server: &Server, file: &str| {
        let mut command = own_environment("/bin/sh");
        command
            .args(["-ec", &script])
            .env("MAINPID", server.pid().to_string())
            .env("COLORS_TOKEN_FILE", file);
        let output = command.output().unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    let scratch = Scratch::new();
    let file = scratch.write_tokens("a-token-0123456789");
    let server = Server::start(&["--token-file", &file]);
    assert_eq!(reload(&server, &file), (true, String::new()));
    wait_until("it is read at the start, and again", || {
        server.log().matches("1 token loaded from ").count() == 2
    });
    fs::write(&file, "short").unwrap();
    let (is_done, log) = reload(&server, &file);
    assert!(!is_done && log.contains("line 1: a token has 16 to 512 characters"), "{log}");
    for (file, reason) in [
        ("", "there is no token file"),
        ("/run/credentials/colors.service/tokens", "systemd copies a credential at a start only"),
    ] {
        let message = format!("cannot reload, {reason}: run systemctl restart colors\n");
        assert_eq!(reload(&server, file), (false, message));
    }
    assert_eq!(server.log().matches(" loaded from ").count(), 2, "{}", server.log());
    let server = Server::start(&[]);
    assert!(!reload(&server, "").0);
    server.connect().expect_open();
}

/// The values that the unit gives a setting, in order.
fn setting(name: &str) -> Vec<&'static str> {
    let service = include_str!("../../packaging/systemd/colors.service");
    service
        .lines()
        .filter_map(|line| line.strip_prefix(name)?.strip_prefix('='))
        .flat_map(|values| values.split(' '))
        .collect()
}

/// The system calls of a group, its subgroups' included.
fn members(group: &str) -> BTreeSet<String> {
    let (_, listing) = analyze(Path::new("/"), &["syscall-filter", "--no-pager", group]);
    let names = listing
        .lines()
        .skip(1)
        .map(str::trim)
        .filter(|name| !name.is_empty() && !name.starts_with('#'));
    names
        .flat_map(|name| {
            if name.starts_with('@') { members(name) } else { BTreeSet::from([name.to_owned()]) }
        })
        .collect()
}

/// The system calls that the unit lets the program make.
fn allowed() -> BTreeSet<String> {
    let values = setting("SystemCallFilter");
    assert_eq!(values, ["@system-service", "~@privileged", "@resources"]);
    let granted = &members("@default") | &members("@system-service");
    &(&granted - &members("@privileged")) - &members("@resources")
}

/// Runs the service below strace through a life with all kinds of requests; gives the lines of its
/// system calls, or `None` if strace is not installed.
fn traced() -> Option<Vec<String>> {
    let scratch = Scratch::new();
    let manager = Manager::new();
    let (trace, socket) = (scratch.0.join("trace"), scratch.0.join("s"));
    let mut command = colors_below_strace(&["-qq", "-o", trace.to_str().unwrap()], &[])?;
    command.arg("--data").arg(scratch.0.join("list.json"));
    command
        .args(["--access-log", "--listen", "127.0.0.1:0", "--listen", "[::1]:0", "--listen"])
        .arg(format!("unix:{}", socket.display()));
    // seldom enough that the messages nobody reads here fit the socket's queue, which holds 10
    // (unix(7), max_dgram_qlen)
    command.env("NOTIFY_SOCKET", &manager.path).env("WATCHDOG_USEC", "2000000");
    drop(UnixListener::bind(&socket).unwrap());
    let server = Server::spawn(command);
    assert!(manager.message().starts_with("READY=1\n"));
    let mut clients: Vec<_> = (0..20).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(Client::expect_open);
    assert_eq!(server.ask("POST", "/colors", r#"{"name":"ink","value":"1"}"#).status, 201);
    assert_eq!(server.ask("DELETE", "/colors/ink", "").status, 200);
    assert_eq!(server.connect().send("nonsense\r\n\r\n").response().status, 400);
    let mut unix = Client::on_unix(&socket);
    unix.expect_open();
    server.stop();
    // the end of its standard error was the end of strace, too
    let trace = fs::read_to_string(&trace).unwrap();
    Some(
        trace.lines().map(|line| line.split_once(' ').unwrap().1.trim_start().to_owned()).collect(),
    )
}

#[test]
fn the_program_does_nothing_that_the_unit_forbids() {
    if !is_installed("systemd-analyze") {
        return;
    }
    let Some(trace) = traced() else { return };
    let is_name = |name: &&str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    let used: BTreeSet<String> = trace
        .iter()
        .filter_map(|line| line.split_once('('))
        .map(|(name, _)| name)
        .filter(is_name)
        .map(str::to_owned)
        .collect();
    assert!(used.contains("accept4") && used.contains("prlimit64") && used.len() > 20, "{used:?}");
    let allowed = allowed();
    assert!(!allowed.contains("chroot") && !allowed.contains("setrlimit"), "{allowed:?}");
    // SQLite gives files away that it makes as root; the unit's user is another
    let as_root = BTreeSet::from(["fchown".to_owned()]);
    assert_eq!(&(&used - &allowed) - &as_root, BTreeSet::new());

    let families = setting("RestrictAddressFamilies");
    for call in trace.iter().filter_map(|line| line.strip_prefix("socket(")) {
        assert!(families.contains(&call.split(',').next().unwrap()), "{call}");
    }
    // systemd.exec(5), MemoryDenyWriteExecute=: no memory both writable and executable, nor made
    // executable afterwards
    for call in trace.iter().filter(|line| line.contains("PROT_EXEC")) {
        assert!(call.starts_with("mmap(") && !call.contains("PROT_WRITE"), "{call}");
    }
}
