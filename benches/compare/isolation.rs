//! How long a read of one color takes beside long requests of other clients, on servers that have
//! as many threads for them. The reader sends its next request 2 ms after the one before, or once
//! that is answered: a stall shows in one read, not in those that would have come due meanwhile.
//! Judges nothing.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use crate::Args;
use crate::client::{Client, Request, Response};
use crate::server::{Kind, Programs, Server};
use crate::table::{Summary, Table, figure, number, percentile, spread};
use crate::workload::{Color, Workload, colors, to_json};

/// How long the list is, unless the arguments say.
const COUNTS: [u32; 2] = [100_000, 1_000_000];

/// As many colors as fit into the longest content that colors takes.
const LONGEST: usize = 390_000;

/// From one read to the next.
const PACE: Duration = Duration::from_millis(2);

/// How many clients read the list that does not change.
const READERS: u64 = 64;

/// Of each server, for requests. Of those of colors, all but one are workers.
const THREADS: u32 = 3;

const TITLES: &str = "beside              | colors  | server        | p50 ms               | p99 ms               | longest ms | long requests/s    ";

/// What other clients do meanwhile.
#[derive(Clone, Copy, PartialEq)]
enum Others {
    Nothing,
    /// One client replaces the list.
    Replace,
    /// One client changes a color and reads the list, one after the other.
    ChangeAndRead,
    /// [`READERS`] read a list that does not change.
    Read,
}

struct Contestant {
    kind: Kind,
    is_durable: bool,
    server: Server,
    runs: Vec<Run>,
}

/// A measured run: how long each read took, in milliseconds, and how many requests of the others
/// were answered meanwhile, per second.
pub(crate) struct Run {
    pub(crate) times: Vec<f64>,
    pub(crate) others: f64,
}

pub(crate) fn print(args: &Args, programs: &Programs) -> Result<()> {
    println!("\nReads of one color beside long requests, on {THREADS} threads of each server:\n");
    let (table, mut summaries) = (Table::begin(TITLES, 3), Vec::new());
    for &count in args.colors_count(&COUNTS) {
        let mut summary = Summary::new();
        let all = colors(count as usize);
        for others in [Others::Nothing, Others::Replace, Others::ChangeAndRead, Others::Read] {
            let colors = match others {
                Others::Replace => &all[..all.len().min(LONGEST)],
                _ => &all[..],
            };
            let mut contestants = start_all(args, programs, others, colors)?;
            for round in 1..=args.rounds {
                for contestant in &mut contestants {
                    eprintln!(
                        "isolation, {}, {} colors, round {round}: {}",
                        others.name(),
                        colors.len(),
                        contestant.name()
                    );
                    let run = measure(&contestant.server, others, colors, args.seconds)?;
                    contestant.runs.push(run);
                }
            }
            for contestant in &contestants {
                let (name, row) = (contestant.name(), row(&contestant.runs));
                let shown = ["", "p99 ms", "", "long/s"].iter().zip(&row);
                let shown = shown.filter(|(title, _)| !title.is_empty());
                for (title, cell) in shown.filter(|_| !contestant.is_durable) {
                    summary.add(others.name(), &format!("{name}: {title}"), cell.clone());
                }
                let words = [others.name().to_owned(), colors.len().to_string(), name];
                table.row(words.into_iter().chain(row));
            }
        }
        summaries.push((format!("beside, {} colors", number(count.into())), summary));
    }
    summaries.iter().for_each(|(title, summary)| summary.print(title));
    Ok(())
}

/// Starts the servers that can replace their list, colors first; and colors with a database, too,
/// if the list is changed.
fn start_all(
    args: &Args,
    programs: &Programs,
    others: Others,
    colors: &[Color],
) -> Result<Vec<Contestant>> {
    let mut contestants = Vec::new();
    for kind in args.kinds() {
        let is_changed = matches!(others, Others::Replace | Others::ChangeAndRead);
        let durabilities: &[bool] = match kind {
            Kind::Colors | Kind::Before if is_changed => &[false, true],
            Kind::Colors | Kind::Before | Kind::Axum | Kind::Actix => &[false],
            _ => &[],
        };
        for &is_durable in durabilities {
            let peer = |name| {
                let mut command = programs.peer(name);
                command.env("THREADS", THREADS.to_string());
                Server::start_peer(command, colors)
            };
            let server = match kind {
                Kind::Axum => peer("peer-axum"),
                Kind::Actix => peer("peer-actix"),
                _ => {
                    let mut command = Command::new(programs.program(kind)?);
                    command.args(["--workers", &(THREADS - 1).to_string(), "--max-body", "16MiB"]);
                    Server::start_colors(command, colors, is_durable)
                }
            };
            let server = server.with_context(|| kind.name())?;
            Workload::Read.check(kind, &server, light(colors)).with_context(|| kind.name())?;
            contestants.push(Contestant { kind, is_durable, server, runs: Vec::new() });
        }
    }
    Ok(contestants)
}

/// The first colors, so that no server takes long to find one.
fn light(colors: &[Color]) -> &[Color] {
    &colors[..colors.len().min(3)]
}

/// The figures of a row: the longest is that of all rounds.
pub(crate) fn row(runs: &[Run]) -> [String; 4] {
    let part = |part| runs.iter().map(move |run| percentile(part, run.times.iter().copied()));
    let longest = runs.iter().flat_map(|run| run.times.iter().copied()).fold(0.0, f64::max);
    let others = runs.iter().map(|run| run.others);
    [spread(part(0.5)), spread(part(0.99)), figure([longest]), spread(others)]
}

/// Reads for some seconds, after one to warm up, while others send long requests.
fn measure(server: &Server, others: Others, colors: &[Color], seconds: u32) -> Result<Run> {
    let (is_over, count) = (AtomicBool::new(false), AtomicU32::new(0));
    thread::scope(|scope| {
        let others = scope.spawn(|| others.run(server, colors, &is_over, &count));
        let run =
            read(server, colors, 1, &count).and_then(|_| read(server, colors, seconds, &count));
        is_over.store(true, Relaxed);
        others.join().expect("a client does not panic")?;
        run
    })
}

fn read(server: &Server, colors: &[Color], seconds: u32, count: &AtomicU32) -> Result<Run> {
    let mut client = Client::connect(server.address)?;
    let request = Workload::Read.request(light(colors));
    let before = count.load(Relaxed);
    let times = pace(seconds, || client.ask(&request).map(drop))?;
    Ok(Run { times, others: f64::from(count.load(Relaxed) - before) / f64::from(seconds) })
}

/// Reads again and again for some seconds; returns how long each read took, in milliseconds.
pub(crate) fn pace(seconds: u32, mut read: impl FnMut() -> Result<()>) -> Result<Vec<f64>> {
    let (began, mut times) = (Instant::now(), Vec::new());
    let mut due = began;
    while began.elapsed().as_secs() < seconds.into() {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let sent = Instant::now();
        read()?;
        times.push(sent.elapsed().as_secs_f64() * 1e3);
        due = sent + PACE;
    }
    Ok(times)
}

impl Contestant {
    fn name(&self) -> String {
        [self.kind.name(), if self.is_durable { " --data" } else { "" }].concat()
    }
}

impl Others {
    fn name(self) -> &'static str {
        ["nothing", "replace the list", "change, read list", "64 read the list"][self as usize]
    }

    /// Sends long requests and counts the answers.
    fn run(
        self,
        server: &Server,
        colors: &[Color],
        is_over: &AtomicBool,
        count: &AtomicU32,
    ) -> Result<()> {
        match self {
            Self::Nothing => Ok(()),
            Self::Replace => replace(server, colors, is_over, count),
            Self::ChangeAndRead => {
                let requests = [Workload::Update, Workload::List]
                    .map(|workload| workload.request(&colors[..1]));
                repeat(server, &requests, is_over, count)
            }
            Self::Read => read_lists(server, is_over, count),
        }
    }
}

/// Changes a color and reads the list, one after the other; counts the lists.
fn repeat(
    server: &Server,
    [put, get]: &[Request; 2],
    is_over: &AtomicBool,
    count: &AtomicU32,
) -> Result<()> {
    let mut client = Client::connect(server.address)?;
    for number in (0..).take_while(|_| !is_over.load(Relaxed)) {
        // a color that has the value already is not changed
        client.ask(&Request {
            content: format!(r##"{{"value":"#{:06x}"}}"##, number % 0x0100_0000),
            ..put.clone()
        })?;
        client.ask(get)?;
        count.fetch_add(1, Relaxed);
    }
    Ok(())
}

/// Replaces the list by one in which every color has another value, and back.
fn replace(
    server: &Server,
    colors: &[Color],
    is_over: &AtomicBool,
    count: &AtomicU32,
) -> Result<()> {
    let other = |color: &Color| Color { value: "#123456".to_owned(), ..color.clone() };
    let others: Vec<Color> = colors.iter().map(other).collect();
    let requests =
        [&others[..], colors].map(|list| Request::new("PUT", "/colors", to_json(&list)).bytes());
    let mut client = Client::connect(server.address)?;
    for request in requests.iter().cycle().take_while(|_| !is_over.load(Relaxed)) {
        client.send_bytes(request)?;
        client.receive()?;
        count.fetch_add(1, Relaxed);
    }
    Ok(())
}

/// Has all readers, on this thread, read the list again and again, whatever each has received of it
/// so far.
fn read_lists(server: &Server, is_over: &AtomicBool, count: &AtomicU32) -> Result<()> {
    let request = Request::new("GET", "/colors", "");
    // the list does not change, and so all responses are as long as this one
    let Response(head, content) = Client::connect(server.address)?.ask(&request)?;
    let length = head.len() + content.len();
    let (request, epoll) = (request.bytes(), epoll::create(CreateFlags::CLOEXEC)?);
    let mut readers = Vec::new();
    for index in 0..READERS {
        let mut reader = TcpStream::connect(server.address)?;
        epoll::add(&epoll, &reader, EventData::new_u64(index), EventFlags::IN)?;
        reader.write_all(&request)?;
        readers.push((reader, length));
    }
    let (mut events, mut bytes) = (Vec::with_capacity(readers.len()), vec![0; 256 * 1024]);
    let patience = Duration::from_secs(60).try_into()?;
    while !is_over.load(Relaxed) {
        epoll::wait(&epoll, spare_capacity(&mut events), Some(&patience))?;
        ensure!(!events.is_empty(), "no list comes");
        for event in events.drain(..) {
            let (reader, left) = &mut readers[event.data.u64() as usize];
            let received = reader.read(&mut bytes)?;
            ensure!((1..=*left).contains(&received), "a response of another length");
            *left -= received;
            if *left == 0 {
                count.fetch_add(1, Relaxed);
                reader.write_all(&request)?;
                *left = length;
            }
        }
    }
    Ok(())
}
