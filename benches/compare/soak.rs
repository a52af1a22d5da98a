//! Mixed operations on a durable list for as long as one says, beside a model that knows what the
//! list has to be, and what the process of colors holds meanwhile. Fails at the first difference.
//! Measures no speed: the load is moderate and even.

use std::collections::VecDeque;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use rustix::net::sockopt::set_socket_linger;
use serde_json::Value;
use tempfile::TempDir;

use crate::client::{Client, Request};
use crate::server::{Server, place, status};
use crate::table::{Table, number};
use crate::workload::{Color, colors, to_json};

/// Each has a thread, and colors of its own.
const CLIENTS: usize = 8;

/// From one operation of a client to its next: at most 300 per second in all.
const PERIOD: Duration = Duration::from_millis(27);

/// Names that a client has: few, so that it often finds one, and makes duplicates.
const NAMES: usize = 24;

/// Connections that a client leaves open; the server closes them before they are so many.
const LEFT_MAX: usize = 24;

/// Lines of the table; each takes at least a second.
const ROWS: u32 = 60;

/// Longer than any pause of a client.
const TIMES: [&str; 4] = ["--keep-alive", "20s", "--request-timeout", "10s"];

const TITLES: &str = "minutes | CPU µs/operation | RSS MiB | peak MiB | operations | colors | threads | descriptors | FILE KiB | FILE-wal KiB";

/// The colors of one client in their order; and what they become by a change that is not answered
/// yet.
struct Model(Vec<Color>, Option<Vec<Color>>);

struct Soak<'a> {
    program: &'a Path,
    /// Where the list is.
    files: TempDir,
    /// A client holds its own during an operation; who holds all has a list that does not change.
    models: Vec<Mutex<Model>>,
    operations: AtomicUsize,
    /// The server is about to be killed: failures of clients mean nothing from now on.
    ends: AtomicBool,
}

/// Reads the time of a run: `90s`, `30m`, `1h`.
pub(crate) fn time(text: &str) -> Result<Duration> {
    let mut units = [("s", 1), ("m", 60), ("h", 3600)].into_iter();
    let (number, seconds) = units
        .find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, seconds)))
        .context("lacks s, m or h")?;
    Ok(Duration::from_secs(number.parse::<u32>()?.into()) * seconds)
}

pub(crate) fn print(program: &Path, time: Duration) -> Result<()> {
    let models: Vec<_> =
        (0..CLIENTS).map(|client| Mutex::new(Model(vec![reset(client)], None))).collect();
    let soak = &Soak {
        program,
        files: place()?.0,
        models,
        operations: AtomicUsize::new(0),
        ends: AtomicBool::new(false),
    };
    let server = soak.start()?;
    thread::scope(|scope| {
        let client = |client: usize| {
            let random = 0x9e37_79b9_7f4a_7c15 + client as u64; // any but 0
            let operator = Operator {
                client,
                address: server.address,
                kept: None,
                left: VecDeque::new(),
                random,
            };
            scope.spawn(move || soak.run(operator).with_context(|| format!("client {client}")))
        };
        let clients: Vec<_> = (0..CLIENTS).map(client).collect();
        let watched = soak.watch(&server, time, &clients);
        let log = fs::read_to_string(format!("/proc/{}/fd/2", server.id()))
            .unwrap_or_else(|error| error.to_string());
        soak.ends.store(true, Relaxed);
        kill(server.id(), Signal::SIGKILL)?; // while clients change the list
        let outcomes =
            clients.into_iter().map(|client| client.join().expect("a client does not panic"));
        outcomes
            .collect::<Result<()>>()
            .and(watched)
            .with_context(|| format!("failed while colors logged {log:?}"))?;
        ensure!(log.is_empty(), "colors logged {log:?}");
        Ok(())
    })?;
    drop(server);
    let dump = soak.dump()?;
    check(&dump, &soak.lock_all()).context("the dump after the kill")?;
    let list = read_all(soak.start()?.address)?;
    ensure!(
        dump.strip_suffix(b"\n") == Some(&list),
        "after the restart, the list is not that of the dump"
    );
    println!(
        "\n{} operations, a kill -9 and a restart: the list was that of the model.",
        soak.operations.load(Relaxed)
    );
    Ok(())
}

/// The color that a client changes without knowing whether the change is made.
fn reset(client: usize) -> Color {
    Color { name: format!("{client} reset"), value: "reset".to_owned() }
}

fn read_all(address: SocketAddr) -> Result<Vec<u8>> {
    Ok(Client::connect(address)?.ask(&Request::new("GET", "/colors", ""))?.1)
}

/// The colors of a response or a dump; those that nobody knows are as they were at first.
fn parse(list: &[u8]) -> Result<Vec<Color>> {
    let mut list: Vec<Color> =
        serde_json::from_value(serde_json::from_slice::<Value>(list)?["data"].take())?;
    let unknown = list
        .iter_mut()
        .filter(|color| color.name.ends_with(" reset") && color.value.starts_with("reset"));
    unknown.for_each(|color| color.value = "reset".to_owned());
    Ok(list)
}

fn part(list: &[Color], client: usize) -> Vec<Color> {
    list.iter().filter(|color| color.name.starts_with(&format!("{client} "))).cloned().collect()
}

/// Fails unless a list is the seed and then the colors of all clients, those of each in its order.
/// Returns how many there are.
fn check(list: &[u8], models: &[MutexGuard<'_, Model>]) -> Result<usize> {
    let (list, seed) = (parse(list)?, colors(148));
    let mut count = seed.len();
    for (client, model) in models.iter().enumerate() {
        let found = part(&list, client);
        ensure!(
            found == model.0 || model.1.as_ref() == Some(&found),
            "client {client} has {found:?} instead of {:?}",
            model.0
        );
        count += found.len();
    }
    ensure!(
        list.starts_with(&seed) && list.len() == count,
        "the seed, or colors that nobody made: {list:?}"
    );
    Ok(count)
}

impl Soak<'_> {
    fn start(&self) -> Result<Server> {
        let (files, address) = place()?;
        let seed = self.files.path().join("seed.json");
        fs::write(&seed, to_json(&[colors(148), (0..CLIENTS).map(reset).collect()].concat()))?;
        let mut command = Command::new(self.program);
        command
            .env_clear()
            .args(TIMES)
            .args(["--log-level", "warn", "--listen", &address.to_string(), "--seed"])
            .arg(seed);
        command.arg("--data").arg(self.files.path().join("colors.db"));
        Server::launch(command, files, address)
    }

    fn dump(&self) -> Result<Vec<u8>> {
        let output = Command::new(self.program)
            .arg("--dump")
            .arg("--data")
            .arg(self.files.path().join("colors.db"))
            .output()?;
        ensure!(
            output.status.success(),
            "--dump failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(output.stdout)
    }

    fn lock_all(&self) -> Vec<MutexGuard<'_, Model>> {
        self.models.iter().map(|model| model.lock().expect("a client does not panic")).collect()
    }

    /// Has a client make operations until the end.
    fn run(&self, mut operator: Operator) -> Result<()> {
        let model = &self.models[operator.client];
        while !self.ends.load(Relaxed) {
            let began = Instant::now();
            let outcome = operator.operate(&mut model.lock().expect("a client does not panic"));
            if !self.ends.load(Relaxed) {
                outcome?;
                self.operations.fetch_add(1, Relaxed);
            }
            thread::sleep(PERIOD.saturating_sub(began.elapsed()));
        }
        Ok(())
    }

    /// Prints the table; compares the list at each line, and the dump at the last one.
    fn watch(
        &self,
        server: &Server,
        time: Duration,
        clients: &[ScopedJoinHandle<'_, Result<()>>],
    ) -> Result<()> {
        println!("\nA durable list, {CLIENTS} clients:\n");
        let table = Table::begin(TITLES, 0);
        let interval = (time / ROWS).max(Duration::from_secs(1));
        let (began, mut before) = (Instant::now(), (0, 0.0));
        for due in (1..).map(|row| interval * row).take_while(|due| *due <= time) {
            while let Some(rest) = due.checked_sub(began.elapsed()) {
                if clients.iter().any(ScopedJoinHandle::is_finished) {
                    return Ok(()); // its failure is the outcome
                }
                thread::sleep(rest.min(Duration::from_secs(1)));
            }
            let models = self.lock_all();
            let colors = check(&read_all(server.address)?, &models).context("the list")?;
            Client::connect(server.address)?.ask(&Request::new("GET", "/health", ""))?;
            if due + interval > time {
                check(&self.dump()?, &models).context("the dump beside the server")?;
            }
            let now = (self.operations.load(Relaxed), server.usage()?.cpu_us);
            let process = format!("/proc/{}", server.id());
            let line = |title| status(&process, title);
            let cpu = (now.1 - before.1) / (now.0 - before.0) as f64;
            let figures = [
                began.elapsed().as_secs_f64() / 60.0,
                cpu,
                line("VmRSS:") / 1024.0,
                line("VmHWM:") / 1024.0,
            ]
            .map(number);
            let descriptors = fs::read_dir(format!("{process}/fd"))?.count();
            let kib = |name: &str| {
                fs::metadata(self.files.path().join(name))
                    .map_or(0, |data| data.len() as usize / 1024)
            };
            let counts = [
                now.0,
                colors,
                line("Threads:") as usize,
                descriptors,
                kib("colors.db"),
                kib("colors.db-wal"),
            ];
            table.row(figures.into_iter().chain(counts.map(|count| count.to_string())));
            before = now;
        }
        thread::sleep(PERIOD * 10); // so that all clients are at work when the server is killed
        Ok(())
    }
}

/// A client: sends requests in one way or another, and knows what each has to be answered with.
struct Operator {
    client: usize,
    address: SocketAddr,
    kept: Option<Client>,
    /// Connections with half a request, or with responses that nobody receives.
    left: VecDeque<TcpStream>,
    random: u64,
}

impl Operator {
    /// A number less than `end`, the same ones in every run: xorshift.
    fn below(&mut self, end: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 32) as usize % end
    }

    fn operate(&mut self, model: &mut Model) -> Result<()> {
        let (name, value) = (self.below(NAMES), self.below(1 << 24));
        // Names need escapes in a path, and in JSON.
        let color =
            Color { name: format!("{} \"é/{name}", self.client), value: format!("#{value:06x}") };
        let one = format!(
            "/colors/{}",
            color.name.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>()
        );
        let mut next = model.0.clone();
        let place = next.iter().position(|other| other.name == color.name);
        let (method, content) = match self.below(100) {
            0..5 => return self.disturb(&one),
            5..22 => ("POST", to_json(&color)),
            22..52 => ("DELETE", String::new()),
            52..75 => ("PUT", format!(r#"{{"value":"{}"}}"#, color.value)),
            75..97 => ("GET", String::new()),
            _ => {
                let found = part(&parse(&read_all(self.address)?)?, self.client);
                ensure!(found == model.0, "the list has {found:?} instead of {:?}", model.0);
                return Ok(());
            }
        };
        let (status, target, answer) = match (method, place) {
            ("POST", _) => {
                next.push(color);
                (201, "/colors", content.clone())
            }
            ("DELETE", Some(place)) => (200, &*one, to_json(&next.remove(place))),
            ("PUT", Some(place)) => {
                next[place].value = color.value;
                (200, &*one, to_json(&next[place]))
            }
            (_, Some(place)) => (200, &*one, to_json(&next[place])),
            (_, None) => (404, &*one, r#"{"error":true}"#.to_owned()),
        };
        model.1 = Some(next);
        self.exchange(Request::new(method, target, &*content), status, &answer)
            .with_context(|| format!("{method} {target} {content}"))?;
        model.0 = model.1.take().expect("set above");
        Ok(())
    }

    /// Sends a request on a connection that is kept, closed, slow or reset, and fails unless this
    /// is the answer.
    fn exchange(&mut self, request: Request, status: u16, content: &str) -> Result<()> {
        let (start, end) = (format!("HTTP/1.1 {status} "), format!("\r\n\r\n{content}"));
        let way = self.below(20);
        let mut answer = vec![0; start.len()];
        if way < 14 && status < 400 {
            let mut client = self.kept.take().map_or_else(|| Client::connect(self.address), Ok)?;
            let response = client.ask(&request)?;
            answer = [response.0, response.1].concat();
            self.kept = Some(client).filter(|_| way > 0);
        } else {
            let mut stream = self.connect()?;
            let (is_slow, is_reset) = (way == 14, way == 15);
            for piece in (Request { close: !is_reset, ..request }).bytes().chunks(if is_slow {
                20
            } else {
                usize::MAX
            }) {
                stream.write_all(piece)?;
                thread::sleep(Duration::from_millis(10 * u64::from(is_slow)));
            }
            stream.read_exact(&mut answer)?;
            if is_reset {
                answer.extend_from_slice(end.as_bytes()); // not received, so the kernel resets the connection
            } else {
                stream.read_to_end(&mut answer)?;
            }
        }
        let is_right = answer.starts_with(start.as_bytes()) && answer.ends_with(end.as_bytes());
        ensure!(
            is_right,
            "answered with {:?} instead of {start} and {content}",
            String::from_utf8_lossy(&answer)
        );
        Ok(())
    }

    /// Does what only bad clients do. None of it changes the color of this target.
    fn disturb(&mut self, target: &str) -> Result<()> {
        let mut stream = self.connect()?;
        let way = self.below(4);
        let request = match way {
            0 | 1 => Request::new("PUT", target, r#"{"value":"never"}"#),
            2 => Request::new(
                "PUT",
                format!("/colors/{}%20reset", self.client),
                format!(r#"{{"value":"reset {}"}}"#, self.below(1 << 24)),
            ),
            _ => Request::new("GET", "/colors", ""),
        };
        let bytes = request.bytes().repeat(if way == 3 { 300 } else { 1 });
        stream.write_all(&bytes[..if way < 2 { self.below(bytes.len()) } else { bytes.len() }])?;
        if way == 1 || way == 2 {
            return Ok(set_socket_linger(&stream, Some(Duration::ZERO))?); // closing it resets the connection
        }
        self.left.push_back(stream);
        self.left.drain(..self.left.len().saturating_sub(LEFT_MAX));
        Ok(())
    }

    fn connect(&self) -> Result<TcpStream> {
        let stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(stream)
    }
}
