//! What a change takes that is saved before its answer, as the list grows: colors, the storage
//! engine by itself, and Redis, on one disk and in alternating rounds. Judges nothing; that nothing
//! is lost is shown in `tests/`.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rusqlite::Connection;
use rustix::event::{PollFd, PollFlags, poll};
use tempfile::TempDir;

use crate::Args;
use crate::client::{Client, Request, redis_command};
use crate::server::{Kind, Programs, Server, place};
use crate::table::{Summary, Table, figure, number, percentile, spread};
use crate::workload::{Color, colors};

/// How long the list is, unless the arguments say.
const COUNTS: [u32; 4] = [148, 10_000, 100_000, 1_000_000];

/// Each has one connection, and sends a change once the one before is answered.
const WRITERS: [usize; 3] = [1, 8, 64];

/// From one changed color to the next, so that the changes are all over the list: prime, and no
/// factor of its length.
const STRIDE: usize = 7919;

/// How many there were so far.
static CHANGES: AtomicU32 = AtomicU32::new(0);

const TITLES: &str = "colors  | writers | server | changes/s                 | p50 ms              | p99 ms              | CPU µs/change    | time × | rate × ";

pub(crate) enum Contestant {
    Colors(Kind, Server),
    Redis(Server),
    /// A table like that of colors, with the same settings.
    Sqlite {
        connection: Connection,
        _files: TempDir,
    },
}

/// A measured run: of each change, or of each commit of SQLite, how long it took, in milliseconds.
pub(crate) struct Run {
    times: Vec<f64>,
    pub(crate) rate: f64,
    /// Of the server, per change.
    cpu_us: f64,
}

pub(crate) fn print(args: &Args, programs: &Programs) -> Result<()> {
    println!("\nChanges that are on the disk before they are answered:\n");
    let (table, mut summaries) = (Table::begin(TITLES, 0), Vec::new());
    for &count in args.colors_count(&COUNTS) {
        let mut summary = Summary::new();
        let colors = colors(count as usize);
        let mut contestants = start_all(programs, &colors)?;
        let mut runs: Vec<[Vec<Run>; WRITERS.len()]> =
            contestants.iter().map(|_| Default::default()).collect();
        for round in 1..=args.rounds {
            eprintln!("writers: {count} colors, round {round}");
            for (contestant, runs) in contestants.iter_mut().zip(&mut runs) {
                for (writers, runs) in WRITERS.into_iter().zip(runs) {
                    runs.push(contestant.run(
                        &colors,
                        writers,
                        Duration::from_secs(args.seconds.into()),
                    )?);
                }
            }
        }
        for (index, writers) in WRITERS.iter().enumerate() {
            for (contestant, all) in contestants.iter().zip(&runs) {
                let words = [count.to_string(), writers.to_string(), contestant.name().to_owned()];
                table.row(words.into_iter().chain(row(&all[index], &runs[0][index])));
                let clients = format!("{writers} client{}", if *writers == 1 { "" } else { "s" });
                add_to(&mut summary, &clients, contestant.name(), &all[index]);
            }
        }
        summaries.push((format!("durable changes, {} colors", number(count.into())), summary));
    }
    summaries.iter().for_each(|(title, summary)| summary.print(title));
    Ok(())
}

fn start_all(programs: &Programs, colors: &[Color]) -> Result<Vec<Contestant>> {
    let kinds = [Kind::Colors].into_iter().chain(programs.before.iter().map(|_| Kind::Before));
    let start = |kind| {
        Ok(Contestant::Colors(
            kind,
            Server::start_colors(Command::new(programs.program(kind)?), colors, true)?,
        ))
    };
    let mut contestants = kinds.map(start).collect::<Result<Vec<_>>>()?;
    contestants.extend([
        Contestant::start_sqlite(colors)?,
        Contestant::Redis(Server::start_redis(Command::new("redis-server"), true)?),
    ]);
    Ok(contestants)
}

/// The figures of a row. The ratios are of colors to this server, within each round.
fn row(runs: &[Run], colors: &[Run]) -> [String; 6] {
    let ratio = |figure: fn(&Run) -> f64| {
        colors.iter().zip(runs).map(move |(colors, run)| figure(colors) / figure(run))
    };
    [
        spread(runs.iter().map(|run| run.rate)),
        spread(runs.iter().map(|run| run.time(0.5))),
        spread(runs.iter().map(|run| run.time(0.99))),
        spread(runs.iter().map(|run| run.cpu_us)),
        figure(ratio(|run| run.time(0.5))),
        figure(ratio(|run| run.rate)),
    ]
}

/// Adds what the documents show of a server.
fn add_to(summary: &mut Summary, clients: &str, server: &str, runs: &[Run]) {
    let add = |summary: &mut Summary, what: &str, cell| {
        summary.add(&format!("{clients}{what}"), server, cell);
    };
    add(summary, ", 1,000/s", spread(runs.iter().map(|run| run.rate / 1e3)));
    add(summary, ": p99 ms", spread(runs.iter().map(|run| run.time(0.99))));
}

impl Run {
    fn time(&self, part: f64) -> f64 {
        percentile(part, self.times.iter().copied())
    }
}

impl Contestant {
    fn start_sqlite(colors: &[Color]) -> Result<Self> {
        let (files, _) = place()?;
        let mut connection = Connection::open(files.path().join("colors.db"))?;
        connection.execute_batch(
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA journal_size_limit=4194304; PRAGMA cache_size=-512;
            CREATE TABLE color (id INTEGER PRIMARY KEY, name TEXT NOT NULL, value TEXT NOT NULL) STRICT;",
        )?;
        let transaction = connection.transaction()?;
        for (id, color) in (1_i64..).zip(colors) {
            transaction.prepare_cached("INSERT INTO color VALUES (?1, ?2, ?3)")?.execute((
                id,
                &color.name,
                &color.value,
            ))?;
        }
        transaction.commit()?;
        connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")?;
        Ok(Self::Sqlite { connection, _files: files })
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Colors(kind, _) => kind.name(),
            Self::Redis(_) => "Redis",
            Self::Sqlite { .. } => "SQLite",
        }
    }

    pub(crate) fn run(&mut self, colors: &[Color], writers: usize, time: Duration) -> Result<Run> {
        let changes = (1_usize..).map(|number| {
            let place = number * STRIDE % colors.len();
            // SQLite writes nothing when a row has the value already: never the same, in no later
            // run either
            let value = CHANGES.fetch_add(1, Relaxed) % (1 << 24);
            (place, &*colors[place].name, format!("#{value:06x}"))
        });
        match self {
            Self::Sqlite { connection, .. } => commit(connection, changes, writers, time),
            Self::Colors(_, server) => {
                let request = |name: &str, value: &str| {
                    Request::new(
                        "PUT",
                        format!("/colors/{name}"),
                        format!(r#"{{"value":"{value}"}}"#),
                    )
                    .bytes()
                };
                let receive = |client: &mut Client| client.receive().map(drop);
                write(
                    server,
                    changes.map(|(_, name, value)| request(name, &value)),
                    receive,
                    writers,
                    time,
                )
            }
            Self::Redis(server) => {
                let receive = |client: &mut Client| {
                    let line = client.receive_line()?;
                    ensure!(line == "+OK\r\n", "Redis answered with {line:?}");
                    Ok(())
                };
                write(
                    server,
                    changes.map(|(_, name, value)| redis_command(&["SET", name, &value])),
                    receive,
                    writers,
                    time,
                )
            }
        }
    }
}

/// Has the storage engine commit changes, as many together as there are writers: the best that a
/// server can do with it.
fn commit<'a>(
    connection: &Connection,
    mut changes: impl Iterator<Item = (usize, &'a str, String)>,
    writers: usize,
    time: Duration,
) -> Result<Run> {
    let (began, mut times) = (Instant::now(), Vec::new());
    while began.elapsed() < time {
        let commit_began = Instant::now();
        connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        for (place, _, value) in changes.by_ref().take(writers) {
            connection
                .prepare_cached("UPDATE color SET value = ?2 WHERE id = ?1")?
                .execute((place as i64 + 1, value))?;
        }
        connection.prepare_cached("COMMIT")?.execute([])?;
        times.push(commit_began.elapsed().as_secs_f64() * 1e3);
    }
    let rate = (times.len() * writers) as f64 / began.elapsed().as_secs_f64();
    Ok(Run { times, rate, cpu_us: f64::NAN })
}

/// Has writers, all of them on this thread, send these requests.
fn write(
    server: &Server,
    mut requests: impl Iterator<Item = Vec<u8>>,
    receive: impl Fn(&mut Client) -> Result<()>,
    writers: usize,
    time: Duration,
) -> Result<Run> {
    let mut clients =
        (0..writers).map(|_| Client::connect(server.address)).collect::<Result<Vec<_>>>()?;
    let (before, began, mut times) = (server.usage()?, Instant::now(), Vec::new());
    let mut sent = vec![began; writers];
    let mut send = |client: &mut Client| {
        client.send_bytes(&requests.next().context("there is always another")?)
    };
    clients.iter_mut().try_for_each(&mut send)?;
    let mut unanswered = writers;
    while unanswered > 0 {
        let mut watched: Vec<PollFd<'_>> =
            clients.iter().map(|client| PollFd::new(client, PollFlags::IN)).collect();
        poll(&mut watched, None)?;
        let is_ready: Vec<bool> =
            watched.iter().map(|client| !client.revents().is_empty()).collect();
        for ((client, sent), _) in
            clients.iter_mut().zip(&mut sent).zip(is_ready).filter(|(_, is_ready)| *is_ready)
        {
            receive(client)?;
            times.push(sent.elapsed().as_secs_f64() * 1e3);
            if began.elapsed() < time {
                *sent = Instant::now();
                send(client)?;
            } else {
                unanswered -= 1;
            }
        }
    }
    let changes = times.len() as f64;
    let rate = changes / began.elapsed().as_secs_f64();
    Ok(Run { rate, cpu_us: (server.usage()? - before).cpu_us / changes, times })
}
