//! The first table: all servers side by side under wrk, in interleaved rounds. Judges nothing: the reader compares.

use std::path::Path;
use std::time::Duration;

use crate::args::Args;
use crate::colors::{self, Color};
use crate::failure::Failure;
use crate::kind::Kind;
use crate::programs::Programs;
use crate::scratch::Scratch;
use crate::servers::Server;
use crate::table::{self, Table};
use crate::workload::Workload;
use crate::wrk::{Errors, Run, Wrk};

/// Length of the run before each measured one, in seconds: wrk's shortest.
const WARM_UP: u32 = 1;

/// One measured run of one server.
#[derive(Debug)]
struct Measured {
    /// What wrk saw.
    run: Run,
    /// CPU time of the server.
    cpu: Duration,
    /// Its resident memory at the end, in KiB.
    resident: u64,
}

impl Measured {
    /// Requests per second.
    fn rate(&self) -> f64 {
        self.run.requests as f64 / self.run.duration.as_secs_f64()
    }

    /// CPU time per request, in microseconds; not a number if there were no requests.
    fn cost(&self) -> f64 {
        match self.run.requests {
            0 => f64::NAN,
            requests => self.cpu.as_secs_f64() * 1e6 / requests as f64,
        }
    }

    /// Time within which 99 of 100 requests were answered, in milliseconds; not a number if there were no requests.
    fn p99(&self) -> f64 {
        if self.run.requests == 0 { f64::NAN } else { self.run.p99.as_secs_f64() * 1e3 }
    }
}

/// A server and its runs, one per round.
#[derive(Debug)]
struct Contestant {
    /// The server.
    server: Server,
    /// Its runs so far.
    runs: Vec<Measured>,
}

/// What wrk is to send to whom.
struct Load<'a> {
    /// The installed wrk.
    wrk: &'a Wrk,
    /// The kind of requests.
    workload: Workload,
    /// The same as a script.
    script: &'a Path,
    /// How many connections.
    connections: u32,
    /// Seconds of a measured run.
    seconds: u32,
}

/// Measures everything and prints the table.
pub(crate) fn print(args: &Args, programs: &Programs, scratch: &Scratch) -> Result<(), Failure> {
    let wrk = Wrk::find()?;
    let kinds = available(args, programs)?;
    let titles = [
        ("workload", 13),
        ("colors", 6),
        ("conn.", 5),
        ("server", 25),
        ("requests/s", 10),
        ("min–max", 17),
        ("CPU µs", 7),
        ("p99 ms", 6),
        ("RSS MiB", 7),
        ("rate ×", 6),
        ("CPU ×", 6),
        ("errors", 6),
    ];
    let table = Table::begin(&titles, 4);
    for &count in &args.colors_count {
        let colors = colors::list(count as usize);
        for &workload in &args.workloads {
            let script = scratch.write("workload.lua", &workload.script(&colors))?;
            for &connections in &args.connections {
                let load = Load { wrk: &wrk, workload, script: &script, connections, seconds: args.seconds };
                let kinds: Vec<Kind> = kinds.iter().copied().filter(|kind| kind.can(workload)).collect();
                let contestants = contest(&load, args.rounds, &kinds, programs, &colors)?;
                for contestant in &contestants {
                    table.row(&row(&load, count, contestant, &contestants[0]));
                }
            }
        }
    }
    println!();
    Ok(())
}

/// Those servers that can be measured here, colors first; says of the others why not.
fn available(args: &Args, programs: &Programs) -> Result<Vec<Kind>, Failure> {
    let few = colors::list(3);
    let mut kinds = vec![Kind::Colors];
    Workload::ReadOne.check(&Server::start(Kind::Colors, programs, &few)?, &few)?;
    for &kind in args.only.iter().filter(|kind| **kind != Kind::Colors) {
        match Server::start(kind, programs, &few).and_then(|server| Workload::ReadOne.check(&server, &few)) {
            Ok(()) => kinds.push(kind),
            Err(failure) => println!("Skipped {kind}: {failure}\n"),
        }
    }
    Ok(kinds)
}

/// Starts the servers anew and gives each its turn in every round.
fn contest(load: &Load, rounds: u32, kinds: &[Kind], programs: &Programs, colors: &[Color]) -> Result<Vec<Contestant>, Failure> {
    let mut contestants = Vec::new();
    for &kind in kinds {
        let server = Server::start(kind, programs, colors)?;
        load.workload.check(&server, colors)?;
        contestants.push(Contestant { server, runs: Vec::new() });
    }
    for round in 1..=rounds {
        for Contestant { server, runs } in &mut contestants {
            eprintln!("{}, {} colors, {} connections, round {round}: {}", load.workload, colors.len(), load.connections, server.kind);
            runs.push(measure(load, server)?);
        }
    }
    Ok(contestants)
}

/// One run, after a short one to warm up.
fn measure(load: &Load, server: &Server) -> Result<Measured, Failure> {
    let run = |seconds| load.wrk.run(load.script, server.address, load.connections, seconds);
    run(WARM_UP)?;
    server.settle()?;
    load.workload.tidy(server)?;
    server.settle()?;
    let before = server.cpu()?;
    let run = run(load.seconds)?;
    let measured = Measured { run, cpu: server.cpu()? - before, resident: server.resident() };
    server.settle()?;
    load.workload.tidy(server)?;
    Ok(measured)
}

/// A row of the table. The ratios are of colors to this server, run by run of the same round.
fn row(load: &Load, count: u32, contestant: &Contestant, colors: &Contestant) -> Vec<String> {
    let runs = &contestant.runs;
    let rates = || runs.iter().map(Measured::rate);
    let ratio = |of: fn(&Measured) -> f64| table::median(colors.runs.iter().zip(runs).map(|(ours, theirs)| of(ours) / of(theirs)));
    vec![
        load.workload.to_string(),
        count.to_string(),
        load.connections.to_string(),
        contestant.server.kind.to_string(),
        table::number(table::median(rates())),
        table::range(rates()),
        table::number(table::median(runs.iter().map(Measured::cost))),
        table::number(table::median(runs.iter().map(Measured::p99))),
        table::number(table::median(runs.iter().map(|measured| measured.resident as f64 / 1024.0))),
        table::number(ratio(Measured::rate)),
        table::number(ratio(Measured::cost)),
        errors(runs),
    ]
}

/// What went wrong in these runs; nothing if nothing did.
fn errors(runs: &[Measured]) -> String {
    let sum = |of: fn(&Errors) -> u64| runs.iter().map(|measured| of(&measured.run.errors)).sum();
    let counts: [(u64, &str); 3] =
        [(sum(|errors| errors.sockets), "socket"), (sum(|errors| errors.statuses), "status"), (sum(|errors| errors.timeouts), "timeout")];
    let seen = counts.iter().filter(|(count, _)| *count > 0);
    seen.map(|(count, what)| format!("{count} {what}")).collect::<Vec<_>>().join(", ")
}
