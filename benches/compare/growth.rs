//! The second table: what each operation costs colors as its list grows. Measures no other server, and no more load than eight requests.

use std::iter;
use std::ops::Range;
use std::time::{Duration, Instant};

use crate::args::Args;
use crate::client::{Client, request};
use crate::colors;
use crate::failure::Failure;
use crate::kind::Kind;
use crate::programs::Programs;
use crate::servers::Server;
use crate::table::{self, Table};
use crate::workload::UPDATE;

/// Lengths of the list.
const COUNTS: [usize; 5] = [100, 1_000, 10_000, 100_000, 1_000_000];

/// Connections in use. A request is sent on each of them before the first answer is awaited.
const CONNECTIONS: usize = 8;

/// Colors that are created before as many are deleted, so that the list is never much longer than the table says.
const BATCH: usize = 8 * CONNECTIONS;

/// What some requests of one kind took.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    /// How many they were.
    requests: u64,
    /// CPU time of the server.
    cpu: Duration,
    /// Time until the last was answered.
    time: Duration,
}

impl Spent {
    /// These and others of the same kind.
    fn add(&mut self, other: Self) {
        self.requests += other.requests;
        self.cpu += other.cpu;
        self.time += other.time;
    }

    /// CPU time per request in microseconds, and requests per second.
    fn cell(&self) -> String {
        let requests = self.requests as f64;
        let [cost, rate] = [self.cpu.as_secs_f64() * 1e6 / requests, requests / self.time.as_secs_f64()];
        format!("{} ({})", table::number(cost), table::number(rate))
    }
}

/// Measures everything and prints the table.
pub(crate) fn print(args: &Args, programs: &Programs) -> Result<(), Failure> {
    println!("Server CPU µs per request (requests/s), {CONNECTIONS} connections:\n");
    let titles = [
        ("colors", 9),
        ("start ms", 8),
        ("RSS MiB", 7),
        ("read one", 16),
        ("update", 16),
        ("create", 16),
        ("delete newest", 16),
        ("delete oldest", 16),
        ("read all", 16),
    ];
    let table = Table::begin(&titles, 0);
    for count in COUNTS {
        eprintln!("growth: {count} colors");
        let mut load = Load::new(programs, count)?;
        let [start, resident] = [load.server.start_time.as_secs_f64() * 1e3, load.server.resident() as f64 / 1024.0];
        let time = Duration::from_secs(args.seconds.into());
        let middle = format!("/colors/{}", colors::color(count / 2).name);
        let read_one = load.repeat(&request("GET", &middle, None), time)?;
        let update = load.repeat(&request("PUT", &middle, Some(UPDATE)), time)?;
        let read_all = load.repeat(&request("GET", "/colors", None), time)?;
        let Changes { create, delete_newest, delete_oldest } = load.change(time * 3)?;
        let mut row = vec![table::grouped(count as u64), table::number(start), table::number(resident)];
        row.extend([read_one, update, create, delete_newest, delete_oldest, read_all].map(|spent| spent.cell()));
        table.row(&row);
    }
    println!();
    Ok(())
}

/// What the operations took that change the length of the list.
#[derive(Debug, Default)]
struct Changes {
    /// POST.
    create: Spent,
    /// DELETE of the last color of the list: the cheapest.
    delete_newest: Spent,
    /// DELETE of the first color of the list: the dearest.
    delete_oldest: Spent,
}

/// A server, its clients and what its list holds.
struct Load {
    /// The product.
    server: Server,
    /// One per connection.
    clients: Vec<Client>,
    /// The list from first to last, as places of [`colors::color`]; concurrent requests may leave neighbors the wrong way round.
    live: Range<usize>,
}

impl Load {
    /// The product with a list of this length.
    fn new(programs: &Programs, count: usize) -> Result<Self, Failure> {
        let server = Server::start(Kind::Colors, programs, &colors::list(count))?;
        let clients = (0..CONNECTIONS).map(|_| Client::connect(server.address)).collect::<Result<_, _>>()?;
        Ok(Self { server, clients, live: 0..count })
    }

    /// Sends one request again and again, for this time, after a few to warm up.
    fn repeat(&mut self, request: &[u8], time: Duration) -> Result<Spent, Failure> {
        self.send(200, iter::repeat_n(request.to_owned(), CONNECTIONS))?;
        let deadline = Instant::now() + time;
        self.send(200, iter::repeat_with(|| request.to_owned()).take_while(|_| Instant::now() < deadline))
    }

    /// Creates and deletes colors, for this time, after a few to warm up.
    fn change(&mut self, time: Duration) -> Result<Changes, Failure> {
        self.create()?;
        self.delete_newest()?;
        let mut changes = Changes::default();
        let deadline = Instant::now() + time;
        while Instant::now() < deadline {
            changes.create.add(self.create()?);
            changes.delete_newest.add(self.delete_newest()?);
            changes.create.add(self.create()?);
            changes.delete_oldest.add(self.delete_oldest()?);
        }
        Ok(changes)
    }

    /// Creates a batch of new colors.
    fn create(&mut self) -> Result<Spent, Failure> {
        let new = self.live.end..self.live.end + BATCH;
        self.live.end = new.end;
        let create = |place| {
            let color = serde_json::to_string(&colors::color(place)).expect("strings always serialize");
            request("POST", "/colors", Some(&color))
        };
        self.send(201, new.map(create))
    }

    /// Deletes a batch from the end of the list.
    fn delete_newest(&mut self) -> Result<Spent, Failure> {
        let old = self.live.end - BATCH..self.live.end;
        self.live.end = old.start;
        self.send(200, old.rev().map(delete))
    }

    /// Deletes a batch from the beginning of the list.
    fn delete_oldest(&mut self) -> Result<Spent, Failure> {
        let old = self.live.start..self.live.start + BATCH;
        self.live.start = old.end;
        self.send(200, old.map(delete))
    }

    /// Sends requests, one on each connection at a time, and measures them.
    ///
    /// # Errors
    /// When an answer has not the expected status.
    fn send(&mut self, status: u16, mut requests: impl Iterator<Item = Vec<u8>>) -> Result<Spent, Failure> {
        let mut spent = Spent::default();
        let cpu_before = self.server.cpu()?;
        let began = Instant::now();
        loop {
            let mut asked = Vec::with_capacity(CONNECTIONS);
            for (client, request) in self.clients.iter_mut().zip(&mut requests) {
                client.send(&request)?;
                asked.push((client, request));
            }
            if asked.is_empty() {
                break;
            }
            spent.requests += asked.len() as u64;
            for (client, request) in asked {
                let answer = client.receive()?;
                if answer.status != status {
                    let line = String::from_utf8_lossy(&request).lines().next().unwrap_or_default().to_owned();
                    return Err(Failure::Wrong(Kind::Colors, line, answer.status));
                }
            }
        }
        spent.time = began.elapsed();
        spent.cpu = self.server.cpu()? - cpu_before;
        Ok(spent)
    }
}

/// The request that deletes the color of this place.
fn delete(place: usize) -> Vec<u8> {
    request("DELETE", &format!("/colors/{}", colors::color(place).name), None)
}
