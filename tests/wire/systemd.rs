//! The service under systemd: what it tells the manager, and that the units are sound and tight.
//! `.ci/boot` runs them.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use crate::common::harness::{DEADLINE, Scratch, Server, colors, eventually, is_installed};

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

    /// Starts the service below this manager, which may expect heartbeats in this time.
    fn start(&self, watchdog: Option<Duration>) -> Server {
        let mut command = colors(&["--listen", "127.0.0.1:0"]);
        command.env("NOTIFY_SOCKET", &self.path);
        command.envs(watchdog.map(|time| ("WATCHDOG_USEC", time.as_micros().to_string())));
        Server::spawn(command)
    }

    #[track_caller]
    fn message(&self) -> String {
        let mut bytes = [0; 512];
        let length = loop {
            match self.socket.recv(&mut bytes) {
                // signal(7): as a read with a time-out is when the process was stopped and goes on
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                received => break received.expect("a message in time"),
            }
        };
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    }
}

#[test]
fn the_manager_hears_of_the_start_the_life_idle_or_busy_and_the_end() {
    let manager = Manager::new();
    let server = manager.start(Some(Duration::from_millis(200)));
    assert_eq!(manager.message(), "READY=1\n");
    for _ in 0..2 {
        assert_eq!(manager.message(), HEARTBEAT);
    }
    let mut client = server.connect();
    std::thread::scope(|scope| {
        let beats = scope.spawn(|| (0..2).all(|_| manager.message() == HEARTBEAT));
        while !beats.is_finished() {
            client.expect_open();
        }
        assert!(beats.join().unwrap());
    });
    server.signal(Signal::TERM);
    let message = eventually("it stops", || Some(manager.message()).filter(|it| it != HEARTBEAT));
    assert_eq!(message, "STOPPING=1\n");
    assert!(server.wait().0.success());
    manager.start(None).stop();
    assert_eq!([(); 2].map(|()| manager.message()), ["READY=1\n", "STOPPING=1\n"]);
}

#[test]
fn a_manager_that_reads_nothing_keeps_nobody_waiting() {
    let manager = Manager::new();
    let fill = || {
        let sender = UnixDatagram::unbound().unwrap();
        sender.set_nonblocking(true).unwrap();
        while sender.send_to(b"x", &manager.path).is_ok() {}
    };
    fill();
    let server = manager.start(Some(Duration::from_millis(20)));
    assert_eq!(server.ask("DELETE", "/colors/red", "").status, 200);
    // what was dropped is told again once somebody reads
    eventually("it is ready", || Some(manager.message()).filter(|message| message == HEARTBEAT));
    fill();
    server.stop();
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
    // with a program that exists in place of the installed one
    let program = colors(&[]).get_program().to_str().unwrap().to_owned();
    let service = include_str!("../../packaging/systemd/colors.service");
    let socket = include_str!("../../packaging/systemd/activation/colors.socket");
    let drop_in = include_str!("../../packaging/systemd/activation/activated.conf");
    let units = Scratch::new();
    units.write("colors.service", service.replace("/usr/bin/colors\n", &format!("{program}\n")));
    units.write("colors.socket", socket);
    fs::create_dir(units.0.join("colors.service.d")).unwrap();
    units.write("colors.service.d/activated.conf", drop_in);
    check_unit(&units.0, "colors.service");
    check_unit(&units.0, "colors.socket");
    check_exposure(&units.0, "colors.service", 0.3);
}
