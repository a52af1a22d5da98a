//! Starts the real binary on a free port, and stops it. Does not speak HTTP; `client` does. What is
//! seen of its process is in `process`.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use crate::common::client::{Client, Response};
use crate::common::etcd::Etcd;
use crate::common::process::sockets_of;

/// The colors that the service starts with by default.
pub(crate) const SEED: &str = include_str!("../../seed/colors.json");

/// Longest wait for what is expected to happen; generous, since machines are slow at times.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// A running service; stopped when dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
    /// The sockets that it has without any connection.
    pub(super) own_sockets: HashSet<String>,
    log: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
    /// Where its list is, if that is to go with it.
    scratch: Option<Scratch>,
    /// The same for a list in etcd.
    etcd: Option<Etcd>,
}

/// Names another program to test: a binary, or a script that runs one of another architecture.
const BINARY: &str = "TESTED_BINARY";

/// The program with these arguments, in the project's directory and its own environment.
pub(crate) fn colors(arguments: &[&str]) -> Command {
    let mut command = own_environment(
        std::env::var_os(BINARY).unwrap_or_else(|| env!("CARGO_BIN_EXE_colors").into()),
    );
    command.args(arguments).current_dir(env!("CARGO_MANIFEST_DIR"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs a command to its end; gives exit code, standard output and standard error.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

/// A program that is or starts the service, without what the service would inherit from where these
/// tests run: the variables that configure it, and that nohup(1) has SIGHUP ignored.
pub(crate) fn own_environment(program: impl AsRef<OsStr>) -> Command {
    TIMED.with(|_| ());
    // a new program starts without handlers, but goes on ignoring what was ignored (execve(2))
    static HANGUP: Once = Once::new();
    HANGUP.call_once(|| {
        signal_hook::flag::register(signal_hook::consts::SIGHUP, Arc::default())
            .expect("SIGHUP may be handled");
    });
    let mut command = Command::new(program);
    for (name, _) in
        std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"COLORS_"))
    {
        command.env_remove(name);
    }
    for name in [
        "CREDENTIALS_DIRECTORY",
        "JOURNAL_STREAM",
        "NOTIFY_SOCKET",
        "WATCHDOG_USEC",
        "LISTEN_PID",
        "LISTEN_FDS",
    ] {
        command.env_remove(name);
    }
    command
}

/// Prints the list of a database as the next start reads it.
#[track_caller]
pub(crate) fn stored(file: &str) -> String {
    let output = colors(&["--dump", "--data", file]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim_end_matches('\n').to_owned()
}

/// The program with these arguments, started by a shell once it has done what `before` says.
pub(crate) fn colors_from_shell(before: &str, arguments: &[&str]) -> Command {
    let mut command = own_environment("sh");
    command.args(["-c", &format!("{before} exec \"$0\" \"$@\"")]);
    command.arg(colors(&[]).get_program()).args(arguments);
    command.current_dir(env!("CARGO_MANIFEST_DIR")).stderr(Stdio::piped());
    command
}

/// The program with two listening sockets from its parent, as systemd hands them over.
pub(crate) fn colors_inheriting(
    first: impl Into<OwnedFd>,
    second: impl Into<OwnedFd>,
    arguments: &[&str],
) -> Command {
    let sockets = "exec 3<&0 4<&1 0</dev/null 1>/dev/null; LISTEN_PID=$$ LISTEN_FDS=2";
    let mut command = colors_from_shell(sockets, arguments);
    command.stdin(first.into()).stdout(second.into());
    command
}

impl Server {
    /// Starts the service on a free port with its own seed of 148 colors.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::spawn(colors(&[&["--listen", "127.0.0.1:0"], arguments].concat()))
    }

    /// Starts the service on a free port with these colors.
    pub(crate) fn with_seed(seed: &str, arguments: &[&str]) -> Self {
        let scratch = Scratch::new();
        let file = scratch.write("seed.json", seed);
        Self::start(&[&["--seed", &file], arguments].concat())
    }

    /// The same with the colors kept in this file, which does not exist yet.
    pub(crate) fn with_data(seed: &str, file: &str, arguments: &[&str]) -> Self {
        Self::with_seed(seed, &[&["--data", file], arguments].concat())
    }

    /// The same with a database of its own.
    pub(crate) fn durable(seed: &str, arguments: &[&str]) -> Self {
        let scratch = Scratch::new();
        let mut server = Self::with_data(seed, &scratch.file("colors.db"), arguments);
        server.scratch = Some(scratch);
        server
    }

    /// The same in a directory that outlives it; gives that and the path of the database as well.
    pub(crate) fn kept(seed: &str) -> (Scratch, String, Self) {
        let scratch = Scratch::new();
        let file = scratch.file("colors.db");
        let server = Self::with_data(seed, &file, &[]);
        (scratch, file, server)
    }

    /// Services with these colors: one that has them in memory, and one with a database.
    pub(crate) fn of_both_kinds(seed: &str) -> Vec<Self> {
        vec![Self::with_seed(seed, &[]), Self::durable(seed, &[])]
    }

    /// The same, and one that keeps them in etcd, if that is installed.
    pub(crate) fn of_all_kinds(seed: &str) -> Vec<Self> {
        let mut servers = Self::of_both_kinds(seed);
        if let Some(etcd) = Etcd::start(1) {
            let mut server = Self::with_data(seed, &etcd.url("colors"), &[]);
            server.etcd = Some(etcd);
            servers.push(server);
        }
        servers
    }

    /// Sends SIGTERM, and waits until the end has begun: idle connections are closed then.
    pub(crate) fn begin_to_stop(&self) {
        let mut idle = self.connect();
        idle.expect_open();
        self.signal(rustix::process::Signal::TERM);
        idle.expect_close();
    }

    /// Ends the service as systemd does; gives its log.
    #[track_caller]
    pub(crate) fn stop(self) -> String {
        self.signal(rustix::process::Signal::TERM);
        let (status, log) = self.wait();
        assert!(status.success(), "{log}");
        log
    }

    /// Starts a command that is or becomes the service, whose first line tells where it listens.
    pub(crate) fn spawn(mut command: Command) -> Self {
        let mut child = command.spawn().expect("the binary has been built");
        let mut lines = BufReader::new(child.stderr.take().expect("stderr is piped"));
        let mut first = String::new();
        lines.read_line(&mut first).expect("log lines are UTF-8");
        let address = first.split("http://").nth(1).and_then(|rest| rest.split([' ', '/']).next());
        let Some(Ok(address)) = address.map(str::parse) else { panic!("not listening: {first}") };
        let log = Arc::new(Mutex::new(first));
        let reader = thread::spawn({
            let log = Arc::clone(&log);
            move || {
                let mut line = String::new();
                while lines.read_line(&mut line).is_ok_and(|length| length > 0) {
                    log.lock().unwrap().push_str(&std::mem::take(&mut line));
                }
            }
        });
        let own_sockets = sockets_of(child.id());
        Self { child, address, own_sockets, log, reader: Some(reader), scratch: None, etcd: None }
    }

    pub(crate) fn connect(&self) -> Client {
        Client::new(TcpStream::connect(self.address).expect("the service listens"))
    }

    /// One request on a connection of its own.
    pub(crate) fn ask(&self, method: &str, target: &str, content: &str) -> Response {
        self.connect().ask(method, target, content)
    }

    /// The same with further field lines, each ended by CR LF.
    pub(crate) fn ask_with(
        &self,
        method: &str,
        target: &str,
        fields: &str,
        content: &str,
    ) -> Response {
        self.connect().ask_with(method, target, fields, content)
    }

    /// The content of `GET /colors`.
    pub(crate) fn list(&self) -> String {
        let response = self.ask("GET", "/colors", "");
        assert_eq!(response.status, 200);
        response.content
    }

    /// The value of a sample of `/metrics`, by its name and labels as they are written.
    #[track_caller]
    pub(crate) fn metric(&self, sample: &str) -> f64 {
        value(&self.ask("GET", "/metrics", "").content, sample)
    }

    /// The log once this holds of it.
    #[track_caller]
    pub(crate) fn log_when(&self, what: &str, holds: impl Fn(&str) -> bool) -> String {
        eventually(what, || Some(self.log()).filter(|log| holds(log)))
    }

    /// Log lines so far.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        signal_child(&self.child, signal);
    }

    /// Waits for the service to end by itself; gives its exit status and all of its log.
    pub(crate) fn wait(mut self) -> (ExitStatus, String) {
        let status = eventually("the service ends", || self.child.try_wait().unwrap());
        self.reader.take().unwrap().join().unwrap();
        (status, self.log())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if thread::panicking() {
            let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
            figures(&format!("the log of the service:\n{log}"));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn signal_child(child: &Child, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, signal).expect("it runs");
}

/// The value of a sample on a page of metrics.
#[track_caller]
pub(crate) fn value(page: &str, sample: &str) -> f64 {
    let line = page.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {sample}: {page}")).parse().expect("a value is a number")
}

/// An address that refuses connections as long as the socket exists: it is bound, and does not
/// listen. A listener would not be gone once it is dropped, as long as a child of this process that
/// another test has just started has not begun its own program.
pub(crate) fn refusing() -> (Socket, SocketAddr) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    (socket, address)
}

/// Whether a program is installed; if not, the test is to be skipped.
pub(crate) fn is_installed(program: &str) -> bool {
    let directories = std::env::var_os("PATH").unwrap_or_default();
    let is_there = std::env::split_paths(&directories).any(|path| path.join(program).is_file());
    if !is_there {
        skip(&format!("{program} is not installed"));
    }
    is_there
}

/// Says on the terminal that a test is skipped, even though the test runner keeps what a test
/// prints to itself, and notes it for tests/skipped.rs, which says so again at the end.
pub(crate) fn skip(reason: &str) {
    assert!(std::env::var_os("CI").is_none(), "cannot be skipped when CI is set: {reason}");
    let name = thread::current().name().unwrap_or_default().to_owned();
    // Nothing depends on the message.
    let _ = writeln!(std::io::stderr(), "skipped {name}: {reason}");
    note("skipped", &format!("{name}: {reason}"));
}

/// Notes a line for tests/skipped.rs, which knows the files by the process of cargo.
fn note(kind: &str, line: &str) {
    let cargo = std::os::unix::process::parent_id();
    let file = format!("{}/{kind}-{cargo}", env!("CARGO_TARGET_TMPDIR"));
    let mut file = fs::OpenOptions::new().create(true).append(true).open(file).unwrap();
    // in one piece, beside those of other threads
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
}

/// A test, which is a thread with the test's name, and when it first used this harness. Notes at the
/// end of the thread how long it took: stable Rust tells no times of tests.
struct Timed(String, Instant);

thread_local! {
    static TIMED: Timed =
        Timed(thread::current().name().unwrap_or_default().to_owned(), Instant::now());
}

impl Drop for Timed {
    fn drop(&mut self) {
        if self.0.contains("::") {
            note("times", &format!("{:7.1} s  {}", self.1.elapsed().as_secs_f64(), self.0));
        }
    }
}

/// Prints what was measured; `--nocapture` shows it.
#[expect(clippy::print_stderr, reason = "nobody sees it unless asked for")]
pub(crate) fn figures(text: &str) {
    eprintln!("{}: {text}", thread::current().name().unwrap_or_default());
}

/// A seed of so many bytes: between `color-0` to `color-99` and `red`, which are short, those with
/// long values, which are read and written much faster than many short ones.
pub(crate) fn long_list(bytes: usize) -> String {
    let short =
        (0..100).map(|number| format!(r##"{{"name":"color-{number}","value":"#{number:06x}"}}"##));
    let long = (0..bytes / 4096)
        .map(|number| format!(r#"{{"name":"long-{number}","value":"{}"}}"#, "x".repeat(4096 - 31)));
    let red = r##"{"name":"red","value":"#ff0000"}"##.to_owned();
    format!("[{}]", short.chain(long).chain([red]).collect::<Vec<_>>().join(","))
}

/// Waits until `probe` gives something, and fails the test if it does not before the deadline.
#[track_caller]
pub(crate) fn eventually<T>(what: &str, probe: impl FnMut() -> Option<T>) -> T {
    within(DEADLINE, probe).unwrap_or_else(|| panic!("in vain: {what}"))
}

/// Waits until this holds, and fails the test if it does not before the deadline.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    eventually(what, || holds().then_some(()));
}

/// What `probe` gives, if it gives something within this time.
pub(crate) fn within<T>(time: Duration, mut probe: impl FnMut() -> Option<T>) -> Option<T> {
    let begun = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        let found = probe();
        if found.is_some() || begun.elapsed() >= time {
            return found;
        }
        // leaves the processor to what is waited for, and to other tests
        thread::park_timeout(pause);
        pause = (2 * pause).min(Duration::from_millis(20));
    }
}

/// Does this with all at the same time: most of it is to wait. Each thread has the test's name.
pub(crate) fn at_once<T: Send>(rows: impl IntoIterator<Item = T>, check: impl Fn(T) + Sync) {
    let name = thread::current().name().unwrap_or_default().to_owned();
    thread::scope(|scope| {
        for row in rows {
            let (thread, check) = (thread::Builder::new().name(name.clone()), &check);
            thread.spawn_scoped(scope, move || check(row)).expect("the system has threads");
        }
    });
}

/// A directory for one test; removed when dropped.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        Self::below(env!("CARGO_TARGET_TMPDIR"))
    }

    /// One that other users reach: a checkout may be where only root gets. It has the program.
    pub(crate) fn for_all_users() -> Self {
        let scratch = Self::below("/tmp");
        // What this process has open for writing, each program that is started at the time has open
        // as well for a moment, and until then it cannot be executed (ETXTBSY). So cp(1) copies it.
        let mut copy = Command::new("cp");
        copy.arg(colors(&[]).get_program()).arg(scratch.file("colors"));
        assert!(copy.status().unwrap().success());
        scratch
    }

    fn below(directory: &str) -> Self {
        TIMED.with(|_| ());
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("scratch-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
        let path = PathBuf::from(directory).join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// The path of a file in it.
    pub(crate) fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    /// Writes a file; gives its path.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.file(name);
        fs::write(&path, content).unwrap();
        path
    }

    /// The names of what is in it, in ascending order.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Writes a token file that its owner alone can use; gives its path.
    pub(crate) fn write_tokens(&self, content: &str) -> String {
        let path = self.write("tokens", content);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Sets its flag when it is dropped, also by a panic.
pub(crate) struct SetOnDrop<'a>(pub(crate) &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}
