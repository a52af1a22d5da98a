//! Mixed operations on a durable list for as long as one says, beside a model that knows what the list has to be, and what the process of
//! colors holds meanwhile. Fails at the first difference. Measures no speed: the load is moderate and even.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use rustix::net::sockopt;
use serde::Deserialize;

use crate::client::{Client, Request};
use crate::server::place;
use crate::table::{Table, number};
use crate::workload::{Color, colors, to_json};

/// Each has a thread, and colors of its own.
const CLIENTS: usize = 8;

/// From one operation of a client to its next: 300 per second in all.
const PERIOD: Duration = Duration::from_millis(27);

/// Names that a client has: few, so that it often finds one, and makes duplicates.
const NAMES: usize = 24;

/// Connections that a client leaves open; the server closes them before they are so many.
const LEFT_MAX: usize = 24;

/// Lines of the table, if the time is more than as many seconds.
const ROWS: u32 = 60;

/// Longer than any pause of a client.
const TIMES: [&str; 4] = ["--keep-alive", "20s", "--request-timeout", "10s"];

const TITLES: &str =
    "minutes | CPU µs/operation | RSS MiB | peak MiB | operations | colors | threads | descriptors | FILE KiB | FILE-wal KiB";

/// The colors of one client, in their order.
#[derive(Default)]
struct Model {
    now: Vec<Color>,
    /// What they become by a change that is not answered yet.
    next: Option<Vec<Color>>,
}

/// What `GET /colors` and `--dump` give.
#[derive(Deserialize)]
struct List {
    data: Vec<Color>,
}

/// What the threads share.
struct Soak {
    address: SocketAddr,
    /// A client holds its own during an operation; who holds all has a list that does not change.
    models: Vec<Mutex<Model>>,
    operations: AtomicU64,
    /// The server is about to be killed: failures mean nothing from now on.
    ends: AtomicBool,
}

/// A running server; killed, as by `kill -9`, when this value is dropped.
struct Server(Child);

/// Reads the time of a run: `90s`, `30m`, `1h`.
pub(crate) fn time(text: &str) -> Result<Duration> {
    let units = [("s", 1), ("m", 60), ("h", 3600)];
    let (number, seconds) =
        units.iter().find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, seconds))).context("lacks s, m or h")?;
    Ok(Duration::from_secs(number.parse::<u32>()?.into()) * *seconds)
}

pub(crate) fn print(program: &Path, time: Duration) -> Result<()> {
    let (files, address) = place()?;
    fs::write(files.path().join("seed.json"), to_json(&colors(148)))?;
    let outcome = soak(program, files.path(), address, time);
    let log = fs::read_to_string(files.path().join("log"))?;
    if outcome.is_err() || !log.is_empty() {
        eprintln!("the files are kept in {}; colors logged {log:?}", files.keep().display());
    }
    outcome
}

fn soak(program: &Path, files: &Path, address: SocketAddr, time: Duration) -> Result<()> {
    let models = (0..CLIENTS).map(|_| Mutex::default()).collect();
    let soak = &Soak { address, models, operations: AtomicU64::new(0), ends: AtomicBool::new(false) };
    let server = Server::start(program, files, address)?;
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|number| scope.spawn(move || soak.run(Operator::new(number, soak)))).collect();
        let watched = soak.watch(&server, program, files, time, &clients);
        soak.ends.store(true, Relaxed);
        drop(server); // while clients change the list
        clients.into_iter().map(|client| client.join().expect("a client does not panic")).collect::<Result<()>>().and(watched)
    })?;
    let dump = dump(program, files)?;
    let models = soak.lock_all();
    check(&dump, &models).context("the dump after the kill")?;
    let server = Server::start(program, files, address)?;
    let list = Client::connect(address)?.ask(&Request::new("GET", "/colors", ""))?.1;
    ensure!(dump.strip_suffix(b"\n") == Some(&list), "after the restart, the list is not that of the dump");
    drop(server);
    println!("\n{} operations, a kill -9 and a restart: the list was that of the model.", soak.operations.load(Relaxed));
    Ok(())
}

fn dump(program: &Path, files: &Path) -> Result<Vec<u8>> {
    let output = Command::new(program).args(["--data", "colors.db", "--dump"]).current_dir(files).output()?;
    ensure!(output.status.success(), "--dump failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(output.stdout)
}

/// Fails unless a list is the seed and then the colors of all clients, those of each in its order.
fn check(list: &[u8], models: &[MutexGuard<'_, Model>]) -> Result<()> {
    let list = serde_json::from_slice::<List>(list)?.data;
    let seed = colors(148);
    ensure!(list.starts_with(&seed), "the seed has changed");
    let mut count = seed.len();
    for (number, model) in models.iter().enumerate() {
        let found = part(&list, number);
        ensure!(found == model.now || model.next.as_ref() == Some(&found), "client {number} has {:?}, not {found:?}", model.now);
        count += found.len();
    }
    ensure!(list.len() == count, "{} colors instead of {count}", list.len());
    Ok(())
}

/// The colors of a client. Nobody knows whether a change by [`Operator::disturb`] was made: any such value becomes the same.
fn part(list: &[Color], number: usize) -> Vec<Color> {
    let mut part: Vec<Color> = list.iter().filter(|color| color.name.starts_with(&format!("{number} "))).cloned().collect();
    let uncertain = part.iter_mut().filter(|color| color.name.ends_with("reset") && color.value.starts_with("reset"));
    uncertain.for_each(|color| color.value = "reset".to_owned());
    part
}

impl Soak {
    fn lock_all(&self) -> Vec<MutexGuard<'_, Model>> {
        self.models.iter().map(|model| model.lock().expect("a client does not panic")).collect()
    }

    /// Has a client make operations until the end.
    fn run(&self, mut operator: Operator<'_>) -> Result<()> {
        let model = &self.models[operator.number];
        while !self.ends.load(Relaxed) {
            let began = Instant::now();
            let outcome = operator.operate(&mut model.lock().expect("a client does not panic"));
            match outcome {
                Err(_) if self.ends.load(Relaxed) => break,
                outcome => outcome.with_context(|| format!("client {}", operator.number))?,
            }
            self.operations.fetch_add(1, Relaxed);
            thread::sleep(PERIOD.saturating_sub(began.elapsed()));
        }
        Ok(())
    }

    /// Prints the table; compares the list at each line, and the dump at the last one.
    fn watch(
        &self,
        server: &Server,
        program: &Path,
        files: &Path,
        time: Duration,
        clients: &[ScopedJoinHandle<'_, Result<()>>],
    ) -> Result<()> {
        println!("\nA durable list, {CLIENTS} clients:\n");
        let table = Table::begin(TITLES, 0);
        let interval = (time / ROWS).max(Duration::from_secs(1));
        let (began, mut before) = (Instant::now(), (0.0, 0.0));
        for due in (1..).map(|row| interval * row).take_while(|due| *due <= time) {
            while began.elapsed() < due {
                if clients.iter().any(ScopedJoinHandle::is_finished) {
                    return Ok(()); // its failure is the outcome
                }
                thread::sleep((due - began.elapsed().min(due)).min(Duration::from_secs(1)));
            }
            let models = self.lock_all();
            let mut client = Client::connect(self.address)?;
            let list = client.ask(&Request::new("GET", "/colors", ""))?.1;
            check(&list, &models).context("the list")?;
            client.ask(&Request::new("GET", "/health", "")).context("health")?;
            if due + interval > time {
                check(&dump(program, files)?, &models).context("the dump beside the server")?;
            }
            let now = (self.operations.load(Relaxed) as f64, server.cpu_us()?);
            let colors = serde_json::from_slice::<List>(&list)?.data.len();
            let [resident, peak] = [server.status("VmRSS:")? / 1024.0, server.status("VmHWM:")? / 1024.0];
            let descriptors = fs::read_dir(format!("/proc/{}/fd", server.0.id()))?.count();
            let [file, wal] = ["colors.db", "colors.db-wal"].map(|name| fs::metadata(files.join(name)).map_or(0, |data| data.len() / 1024));
            let cpu = (now.1 - before.1) / (now.0 - before.0);
            let figures = [began.elapsed().as_secs_f64() / 60.0, cpu, resident, peak].map(number);
            let counts = [now.0 as usize, colors, server.status("Threads:")? as usize, descriptors, file as usize, wal as usize];
            table.row(figures.into_iter().chain(counts.map(|count| count.to_string())));
            before = now;
        }
        thread::sleep(PERIOD * 10); // so that all clients are at work when the server is killed
        Ok(())
    }
}

impl Server {
    fn start(program: &Path, files: &Path, address: SocketAddr) -> Result<Self> {
        let mut command = Command::new(program);
        command.env_clear().args(["--seed", "seed.json", "--data", "colors.db", "--log-level", "warn", "--listen", &address.to_string()]);
        let log = File::options().append(true).create(true).open(files.join("log"))?;
        let child = command.args(TIMES).current_dir(files).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn()?;
        let mut server = Self(child);
        while TcpStream::connect(address).is_err() {
            ensure!(server.0.try_wait()?.is_none(), "colors does not start");
            thread::sleep(Duration::from_millis(1));
        }
        Ok(server)
    }

    fn cpu_us(&self) -> Result<f64> {
        let clock = clock_getcpuclockid(Pid::from_raw(self.0.id() as i32))?;
        Ok(Duration::from(clock_gettime(clock)?).as_secs_f64() * 1e6)
    }

    /// A number of `/proc/PID/status`.
    fn status(&self, title: &str) -> Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id()))?;
        let word = status.lines().find_map(|line| line.strip_prefix(title)?.split_whitespace().next());
        Ok(word.with_context(|| title.to_owned())?.parse()?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It fails only if the process has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A client: sends requests in one way or another, and knows what each has to be answered with.
struct Operator<'a> {
    number: usize,
    soak: &'a Soak,
    kept: Option<Client>,
    /// Connections with half a request, or with responses that nobody receives.
    left: VecDeque<TcpStream>,
    random: u64,
}

impl<'a> Operator<'a> {
    fn new(number: usize, soak: &'a Soak) -> Self {
        Self { number, soak, kept: None, left: VecDeque::new(), random: 0x9e37_79b9_7f4a_7c15 + number as u64 }
    }

    /// A number from 0 to `end` - 1, the same ones in every run: xorshift.
    fn below(&mut self, end: usize) -> usize {
        for shift in [13, -7, 17] {
            self.random ^= if shift > 0 { self.random << shift } else { self.random >> -shift };
        }
        (self.random >> 32) as usize % end
    }

    fn operate(&mut self, model: &mut Model) -> Result<()> {
        let reset = Color { name: format!("{} reset", self.number), value: "reset".to_owned() };
        if model.now.is_empty() {
            model.next = Some(vec![reset.clone()]);
            self.exchange(Request::new("POST", "/colors", to_json(&reset)), 201, &to_json(&reset))?;
            model.now.extend(model.next.take().into_iter().flatten());
        }
        // Names that need escapes in a path, and in JSON.
        let (name, value) = (self.below(NAMES), self.below(1 << 24));
        let color = Color { name: format!("{} \"é/{name}", self.number), value: format!("#{value:06x}") };
        let target = |color: &Color| format!("/colors/{}", color.name.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>());
        let (one, value) = (target(&color), format!(r#"{{"value":"{}"}}"#, color.value));
        let mut next = model.now.clone();
        let found = next.iter().position(|other| other.name == color.name);
        let (request, status, content) = match (self.below(100), found) {
            (0..5, _) => return self.disturb(&one, &target(&reset)),
            (5..22, _) => {
                next.push(color.clone());
                (Request::new("POST", "/colors", to_json(&color)), 201, to_json(&color))
            }
            (22..52, Some(place)) => (Request::new("DELETE", one, ""), 200, to_json(&next.remove(place))),
            (52..75, Some(place)) => {
                next[place].value = color.value;
                (Request::new("PUT", one, value), 200, to_json(&next[place]))
            }
            (75..97, Some(place)) => (Request::new("GET", one, ""), 200, to_json(&next[place])),
            (97.., _) => {
                let list = Client::connect(self.soak.address)?.ask(&Request::new("GET", "/colors", ""))?.1;
                let found = part(&serde_json::from_slice::<List>(&list)?.data, self.number);
                ensure!(found == model.now, "{:?} expected, not {found:?}", model.now);
                return Ok(());
            }
            (22..52, None) => (Request::new("DELETE", one, ""), 404, r#"{"error":true}"#.to_owned()),
            (52..75, None) => (Request::new("PUT", one, value), 404, r#"{"error":true}"#.to_owned()),
            (_, None) => (Request::new("GET", one, ""), 404, r#"{"error":true}"#.to_owned()),
        };
        model.next = Some(next);
        let what = format!("{} {} {}", request.method, request.target, request.content);
        self.exchange(request, status, &content).context(what)?;
        model.now = model.next.take().expect("set above");
        Ok(())
    }

    /// Sends a request on a connection that is kept, closed, slow or reset, and fails unless this is the answer.
    fn exchange(&mut self, request: Request, status: u16, content: &str) -> Result<()> {
        let start = format!("HTTP/1.1 {status}");
        let way = self.below(20);
        if way < 14 && status < 400 {
            let client = if let Some(client) = &mut self.kept { client } else { self.kept.insert(Client::connect(self.soak.address)?) };
            let answer = client.ask(&request)?;
            ensure!(answer.0.starts_with(start.as_bytes()) && answer.1 == content.as_bytes(), "another answer on the kept connection");
            self.kept.take_if(|_| way == 0);
            return Ok(());
        }
        let is_slow = way == 14;
        let mut stream = self.connect()?;
        for piece in (Request { close: way != 15, ..request }).bytes().chunks(if is_slow { 20 } else { usize::MAX }) {
            stream.write_all(piece)?;
            thread::sleep(Duration::from_millis(10 * u64::from(is_slow)));
        }
        let mut answer = vec![0; start.len()];
        stream.read_exact(&mut answer)?;
        if way != 15 {
            stream.read_to_end(&mut answer)?;
            ensure!(
                answer.ends_with(format!("\r\n\r\n{content}").as_bytes()),
                "{content} expected: {:?}",
                String::from_utf8_lossy(&answer)
            );
        } // else the kernel resets the connection, since not all is received
        ensure!(answer.starts_with(start.as_bytes()), "{start} expected: {:?}", String::from_utf8_lossy(&answer));
        Ok(())
    }

    /// Does what only bad clients do. None of it changes `target`.
    fn disturb(&mut self, target: &str, reset: &str) -> Result<()> {
        let mut stream = self.connect()?;
        let half_sent = Request::new("PUT", target, r#"{"value":"never"}"#).bytes();
        let abort = |stream| sockopt::set_socket_linger(stream, Some(Duration::ZERO)).map_err(|error| anyhow!(error));
        match self.below(4) {
            way @ 0..2 => {
                stream.write_all(&half_sent[..self.below(half_sent.len())])?;
                if way == 0 {
                    return abort(&stream);
                }
            }
            2 => {
                let content = format!(r#"{{"value":"reset {}"}}"#, self.below(usize::MAX));
                stream.write_all(&Request::new("PUT", reset, content).bytes())?;
                return abort(&stream);
            }
            _ => stream.write_all(&Request::new("GET", "/colors", "").bytes().repeat(300))?,
        }
        self.left.push_back(stream);
        self.left.drain(..self.left.len().saturating_sub(LEFT_MAX));
        Ok(())
    }

    fn connect(&self) -> Result<TcpStream> {
        let stream = TcpStream::connect(self.soak.address)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        stream.set_write_timeout(Some(Duration::from_secs(60)))?;
        Ok(stream)
    }
}
