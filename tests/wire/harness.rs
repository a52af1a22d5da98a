//! Starts the real binary on a free port and speaks HTTP to it byte by byte. Every response read here passes the checks that hold for all.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest wait for anything that is expected to happen; generous, since machines are slow at times.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// A running service; stopped when dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
    log: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

/// The program with these arguments, run in the project's directory, with an environment of its own.
pub(crate) fn colors(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_colors"));
    command.args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"COLORS_")) {
        command.env_remove(name);
    }
    for name in ["JOURNAL_STREAM", "NOTIFY_SOCKET", "WATCHDOG_USEC", "LISTEN_PID", "LISTEN_FDS"] {
        command.env_remove(name);
    }
    command
}

/// The program with two listening sockets from its parent, as systemd hands them over: from descriptor 3 on.
pub(crate) fn colors_inheriting(first: impl Into<OwnedFd>, second: impl Into<OwnedFd>, arguments: &[&str]) -> Command {
    let program = colors(&[]);
    let mut command = Command::new("sh");
    command.args(["-c", "exec 3<&0 4<&1 0</dev/null 1>/dev/null; LISTEN_PID=$$ LISTEN_FDS=2 exec \"$0\" \"$@\""]);
    command.arg(program.get_program()).args(arguments).current_dir(env!("CARGO_MANIFEST_DIR"));
    command.stdin(first.into()).stdout(second.into()).stderr(Stdio::piped());
    command
}

impl Server {
    /// Starts the service on a free port with its own seed of 148 colors.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut command = colors(&["--listen", "127.0.0.1:0"]);
        command.args(arguments);
        Self::spawn(command)
    }

    /// Starts the service on a free port with these colors.
    pub(crate) fn with_seed(seed: &str, arguments: &[&str]) -> Self {
        let scratch = Scratch::new();
        let file = scratch.write("seed.json", seed);
        let mut command = colors(&["--listen", "127.0.0.1:0", "--seed", &file]);
        command.args(arguments);
        Self::spawn(command)
    }

    /// Starts the service on a free port with its own seed, as a process that may have no more than so many descriptors.
    pub(crate) fn with_descriptors(limit: usize, arguments: &[&str]) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -n {limit} && exec \"$0\" --listen 127.0.0.1:0 \"$@\"")]);
        command.arg(colors(&[]).get_program()).args(arguments);
        command.current_dir(env!("CARGO_MANIFEST_DIR")).stderr(Stdio::piped());
        Self::spawn(command)
    }

    /// Starts a command that is or becomes the service; its first line of output tells where it listens.
    pub(crate) fn spawn(mut command: Command) -> Self {
        let mut child = command.spawn().expect("the binary has been built");
        let mut lines = BufReader::new(child.stderr.take().expect("stderr is piped"));
        let mut first = String::new();
        lines.read_line(&mut first).expect("log lines are UTF-8");
        let address = first.split("http://").nth(1).and_then(|rest| rest.split([' ', '/']).next()).and_then(|text| text.parse().ok());
        let Some(address) = address else { panic!("not listening: {first}") };
        let log = Arc::new(Mutex::new(first));
        let reader = std::thread::spawn({
            let log = Arc::clone(&log);
            move || {
                let mut line = String::new();
                while lines.read_line(&mut line).is_ok_and(|length| length > 0) {
                    log.lock().unwrap().push_str(&std::mem::take(&mut line));
                }
            }
        });
        Self { child, address, log, reader: Some(reader) }
    }

    /// A new connection.
    pub(crate) fn connect(&self) -> Client {
        Client::new(TcpStream::connect(self.address).expect("the service listens"))
    }

    /// One request on a connection of its own.
    pub(crate) fn ask(&self, method: &str, target: &str, content: &str) -> Response {
        self.connect().ask(method, target, content)
    }

    /// The content of `GET /colors`.
    pub(crate) fn list(&self) -> String {
        let response = self.ask("GET", "/colors", "");
        assert_eq!(response.status, 200);
        response.content
    }

    /// Log lines so far.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// The process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Processor time it has used, in hundredths of a second; `None` once it has ended (proc_pid_stat(5)).
    pub(crate) fn cpu_ticks(&self) -> Option<u64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).ok()?;
        let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
        (fields[0] != "Z").then(|| fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap())
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("the service runs");
    }

    /// Whether the process runs still.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// A number of the process's status in proc(5), by its name; sizes are in KiB.
    #[track_caller]
    pub(crate) fn proc_status(&self, name: &str) -> usize {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("the service runs");
        let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).expect("proc(5) has the name");
        value.trim().trim_end_matches(" kB").parse().expect("the value is a number")
    }

    /// How many descriptors the process has open.
    pub(crate) fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.pid())).expect("the service runs").count()
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
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a program is installed; if not, says that the test is skipped.
pub(crate) fn is_installed(program: &str) -> bool {
    let directories = std::env::var_os("PATH").unwrap_or_default();
    let is_there = std::env::split_paths(&directories).any(|directory| directory.join(program).is_file());
    if !is_there {
        eprintln!("skipped: {program} is not installed");
    }
    is_there
}

/// A seed of so many colors; 30,000 take 1.3 MB in JSON.
pub(crate) fn many_colors(count: usize) -> String {
    let colors: Vec<String> = (0..count).map(|number| format!(r##"{{"name":"color-{number}","value":"#{number:06x}"}}"##)).collect();
    format!(r##"[{},{{"name":"red","value":"#ff0000"}}]"##, colors.join(","))
}

/// Waits until `probe` gives something, and fails the test if it does not before the deadline.
#[track_caller]
pub(crate) fn eventually<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(begun.elapsed() < DEADLINE, "in vain: {what}");
        std::thread::yield_now();
    }
}

/// A directory for one test; removed when dropped.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("scratch-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Writes a file; gives its path.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.0.join(name);
        fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A client's end of a connection.
pub(crate) struct Client<S = TcpStream> {
    pub(crate) stream: S,
    received: Vec<u8>,
}

/// A response that passed the checks which hold for every one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) content: String,
}

impl Response {
    /// The value of a field, by its name in any case.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// Whether the service announced that it closes the connection.
    pub(crate) fn closes(&self) -> bool {
        self.field("connection") == Some("close")
    }

    /// The message of an Error body; the empty string when there is only `{"error":true}`.
    #[track_caller]
    pub(crate) fn message(&self) -> String {
        let json: serde_json::Value = serde_json::from_str(&self.content).unwrap();
        assert_eq!(json["error"], true, "{self:?}");
        json["message"].as_str().unwrap_or_default().to_owned()
    }
}

impl Client<TcpStream> {
    pub(crate) fn new(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_write_timeout(Some(DEADLINE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, received: Vec::new() }
    }

    /// Checks that nothing comes for some time.
    #[track_caller]
    pub(crate) fn expect_nothing_for(&self, time: Duration) {
        self.stream.set_read_timeout(Some(time)).unwrap();
        let come = self.stream.peek(&mut [0]);
        assert!(come.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock), "something came: {come:?}");
        self.stream.set_read_timeout(Some(DEADLINE)).unwrap();
    }

    /// Whether something has come that was not read yet.
    pub(crate) fn has_answer(&self) -> bool {
        self.stream.set_nonblocking(true).unwrap();
        let peeked = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false).unwrap();
        peeked.is_ok()
    }
}

impl Client<UnixStream> {
    /// A new connection to a unix socket.
    pub(crate) fn on_unix(path: impl AsRef<Path>) -> Self {
        let stream = UnixStream::connect(path).expect("the service listens");
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_write_timeout(Some(DEADLINE)).unwrap();
        Self { stream, received: Vec::new() }
    }
}

impl<S: Read + Write> Client<S> {
    /// Sends bytes as they are.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        self.stream.write_all(bytes.as_ref()).unwrap();
        self
    }

    /// Sends a request that keeps the connection, and reads the response.
    pub(crate) fn ask(&mut self, method: &str, target: &str, content: &str) -> Response {
        self.ask_with(method, target, "", content)
    }

    /// The same with further field lines, each ended by CR LF.
    pub(crate) fn ask_with(&mut self, method: &str, target: &str, fields: &str, content: &str) -> Response {
        let length = if content.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", content.len()) };
        self.send(format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n{fields}{length}\r\n{content}"));
        self.response_to(method)
    }

    /// Reads a response to a request of any method but HEAD.
    pub(crate) fn response(&mut self) -> Response {
        self.response_to("GET")
    }

    /// Reads a response; that to HEAD has no content.
    #[track_caller]
    pub(crate) fn response_to(&mut self, method: &str) -> Response {
        let end = loop {
            match find(&self.received, b"\r\n\r\n") {
                Some(end) => break end,
                None => assert!(self.receive(), "closed in the middle of a response: {:?}", String::from_utf8_lossy(&self.received)),
            }
        };
        let head = String::from_utf8(self.received.drain(..end + 4).collect()).unwrap();
        let mut lines = head.trim_end().split("\r\n");
        let status_line = lines.next().unwrap();
        let status = status_line.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)).unwrap().parse().unwrap();
        let fields: Vec<_> = lines.map(|line| line.split_once(": ").map(|(n, v)| (n.to_owned(), v.to_owned())).unwrap()).collect();
        let mut response = Response { status, fields, content: String::new() };
        if status != 100 {
            check_head(&response);
            let length = response.field("content-length").map_or(0, |length| length.parse().unwrap());
            let length = if method == "HEAD" { 0 } else { length };
            while self.received.len() < length {
                assert!(self.receive(), "closed in the middle of a content: {response:?}");
            }
            response.content = String::from_utf8(self.received.drain(..length).collect()).unwrap();
            check_content(&response, method);
        }
        response
    }

    /// Checks that the service closes the connection and that nothing comes before that.
    #[track_caller]
    pub(crate) fn expect_close(&mut self) {
        while self.receive() {}
        assert_eq!(String::from_utf8_lossy(&self.received), "", "before the close");
    }

    /// Checks that the connection is still good for a request.
    #[track_caller]
    pub(crate) fn expect_open(&mut self) {
        assert_eq!(self.ask("HEAD", "/colors", "").status, 200);
    }

    /// Receives some bytes; false at the end of the connection, a reset included.
    fn receive(&mut self) -> bool {
        let mut bytes = [0; 64 * 1024];
        match self.stream.read(&mut bytes) {
            Ok(length) => {
                self.received.extend_from_slice(&bytes[..length]);
                length > 0
            }
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => false,
            // signal(7): a read with a time-out ends like this when the process was stopped and goes on
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => true,
            Err(error) => panic!("neither answer nor end: {error}"),
        }
    }
}

/// Where `part` begins in `bytes`.
fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}

/// What holds for status and fields of every response.
#[track_caller]
fn check_head(response: &Response) {
    const STATUSES: [u16; 18] = [200, 201, 204, 304, 400, 401, 403, 404, 405, 408, 412, 413, 417, 431, 500, 501, 503, 505];
    const FIELDS: [&str; 15] = [
        "WWW-Authenticate",
        "Date",
        "Content-Type",
        "Content-Length",
        "Cache-Control",
        "X-Content-Type-Options",
        "ETag",
        "Location",
        "Allow",
        "Connection",
        "Vary",
        "Access-Control-Allow-Origin",
        "Access-Control-Allow-Methods",
        "Access-Control-Allow-Headers",
        "Access-Control-Max-Age",
    ];
    assert!(STATUSES.contains(&response.status), "{response:?}");
    for (position, (name, _)) in response.fields.iter().enumerate() {
        assert!(FIELDS.contains(&name.as_str()) || name == "Access-Control-Expose-Headers", "{name}");
        assert!(!response.fields[..position].iter().any(|(before, _)| before == name), "{name} twice: {response:?}");
    }
    let has_content = !matches!(response.status, 204 | 304);
    assert_eq!(response.field("content-type"), has_content.then_some("application/json"), "{response:?}");
    assert_eq!(response.field("content-length").is_some(), has_content, "{response:?}");
    let cache_control = response.field("cache-control").unwrap();
    let is_private = cache_control == "private, no-cache";
    assert!(if response.status == 401 { cache_control == "no-store" } else { is_private || cache_control == "no-cache" }, "{response:?}");
    // RFC 9110 §15.5.2: a 401 MUST say how to authenticate
    assert_eq!(response.field("www-authenticate").is_some(), response.status == 401, "{response:?}");
    assert_eq!(response.field("x-content-type-options"), Some("nosniff"));
    assert!(httpdate::parse_http_date(response.field("date").unwrap()).is_ok());
    assert_eq!(response.field("allow").is_some(), matches!(response.status, 204 | 405));
    assert!(matches!(response.field("connection"), None | Some("close" | "keep-alive")), "{response:?}");
}

/// What holds for the content of every response.
#[track_caller]
fn check_content(response: &Response, method: &str) {
    if method == "HEAD" || matches!(response.status, 204 | 304) {
        return;
    }
    let json: serde_json::Value = serde_json::from_str(&response.content).expect("every content is JSON");
    let keys: Vec<_> = json.as_object().expect("every content is an object").keys().map(String::as_str).collect();
    match response.status {
        404 if keys == ["error"] => assert_eq!(response.content, r#"{"error":true}"#),
        503 if keys == ["status"] => {}
        400.. => {
            assert_eq!((keys.as_slice(), &json["error"]), (["error", "message"].as_slice(), &true.into()), "{response:?}");
            let message = response.message();
            let first = message.chars().next().unwrap();
            assert!(
                !message.ends_with('.') && !first.is_uppercase()
                    || message.starts_with("Content-Length")
                    || message.starts_with("Transfer"),
                "{message}"
            );
        }
        _ => {}
    }
}
