//! Requests per second, and how long each takes: all servers, in alternating rounds. Judges
//! nothing: the reader compares.

use std::time::Duration;

use anyhow::{Context, Result};

use crate::load::{Load, Pace, Run};
use crate::server::{Kind, Programs, Server};
use crate::table::{Summary, Table, figure, number, spread};
use crate::workload::{Color, Workload, colors};
use crate::{Args, Part};

const TITLES: &str = "workload | colors | conn. | server              | requests/s                | p50 ms              | p99 ms              \
    | CPU µs/request      | switches/request | RSS MiB          | rate × | CPU × ";

/// Few, some, and many for each processor.
const CONNECTIONS: [u32; 4] = [8, 32, 64, 256];

/// A server, how long its response is, and what was measured.
pub(crate) struct Contestant<Run> {
    pub(crate) kind: Kind,
    pub(crate) server: Server,
    pub(crate) length: usize,
    pub(crate) runs: Vec<Run>,
}

pub(crate) fn print(args: &Args, programs: &Programs) -> Result<()> {
    println!("\nEach client sends its next request when the one before is answered:\n");
    let table = Table::begin(TITLES, 4);
    let mut summaries = Vec::new();
    for &count in args.colors_count(&[148]) {
        let colors = &colors(count as usize)[..];
        for &connections in args.connections(&CONNECTIONS) {
            let (mut summary, mut costs) = (Summary::new(), Vec::new());
            for &workload in &args.workloads {
                let pace = Pace::OneAfterAnother;
                let contestants = measure(workload, colors, connections, pace, programs, args)?;
                for Contestant { kind, runs, .. } in &contestants {
                    let numbers = [count, connections].map(|number| number.to_string());
                    let words = [workload.name(), &numbers[0], &numbers[1], kind.name()];
                    let row = row(runs, &contestants[0].runs);
                    table.row(words.map(str::to_owned).into_iter().chain(row));
                    add_to(&mut summary, workload, *kind, runs);
                    // docs/performance.md plots the rates and p99 of other numbers of connections
                    if workload == args.workloads[0] && args.connections.len() == 1 {
                        let of = |cost: fn(&Run) -> f64| spread(runs.iter().map(cost));
                        let cpu = of(|run| run.usage.cpu_us);
                        costs.push((*kind, cpu, of(|run| run.resident_mib)));
                    }
                }
            }
            for (kind, cpu, resident) in costs {
                let title = format!("CPU µs/{}", args.workloads[0].name());
                summary.add(&title, kind.name(), cpu);
                summary.add("MiB", kind.name(), resident);
            }
            let of_threads = if args.part == Part::Threads { "threads, " } else { "" };
            let colors = number(count.into());
            let title = format!("{of_threads}{connections} connections, {colors} colors");
            summaries.push((title, summary));
        }
    }
    summaries.iter().for_each(|(title, summary)| summary.print(title));
    Ok(())
}

/// Starts servers, colors first, and checks what they respond with.
pub(crate) fn start_all<Run>(
    kinds: impl Iterator<Item = Kind>,
    programs: &Programs,
    workload: Workload,
    colors: &[Color],
) -> Result<Vec<Contestant<Run>>> {
    let start = |kind: Kind| {
        let server = Server::start(kind, programs, colors)?;
        if kind != Kind::Redis && kind.serves(Workload::Update) {
            Workload::check_operations(&server).with_context(|| kind.name())?;
        }
        let length = workload.check(kind, &server, colors).with_context(|| kind.name())?;
        Ok(Contestant { kind, server, length, runs: Vec::new() })
    };
    kinds.filter(|kind| kind.serves(workload)).map(start).collect()
}

/// Starts all servers anew, and gives each its turn in every round.
pub(crate) fn measure(
    workload: Workload,
    colors: &[Color],
    connections: u32,
    pace: Pace,
    programs: &Programs,
    args: &Args,
) -> Result<Vec<Contestant<Run>>> {
    let mut contestants = start_all(args.kinds(), programs, workload, colors)?;
    for round in 0..=args.rounds {
        for Contestant { kind, server, length, runs } in &mut contestants {
            eprintln!(
                "{}, {} colors, {connections} connections, round {round}: {}",
                workload.name(),
                colors.len(),
                kind.name()
            );
            let requests = workload.requests(*kind, colors);
            let load = Load { requests: &requests, length: *length, connections, pace };
            // The first one is to warm up.
            let seconds = if round == 0 { 1 } else { args.seconds };
            let run = load.run(server, Duration::from_secs(seconds.into()));
            let run = run.with_context(|| kind.name())?;
            if round > 0 {
                runs.push(run);
            }
        }
    }
    Ok(contestants)
}

/// A row. The ratios are of colors to this server, within each round.
fn row(runs: &[Run], colors: &[Run]) -> [String; 8] {
    let of = |figure: fn(&Run) -> f64| runs.iter().map(figure);
    let ratio = |figure: fn(&Run) -> f64| {
        colors.iter().zip(runs).map(move |(colors, run)| figure(colors) / figure(run))
    };
    [
        spread(of(|run| run.rate)),
        spread(of(|run| run.times[0])),
        spread(of(|run| run.times[1])),
        spread(of(|run| run.usage.cpu_us)),
        figure(of(|run| run.usage.switches)),
        spread(of(|run| run.resident_mib)),
        figure(ratio(|run| run.rate)),
        figure(ratio(|run| run.usage.cpu_us)),
    ]
}

/// Adds what the documents show of a server, but for what it takes of the machine.
fn add_to(summary: &mut Summary, workload: Workload, kind: Kind, runs: &[Run]) {
    let of = |figure: fn(&Run) -> f64| runs.iter().map(figure);
    let (name, server) = (workload.name(), kind.name());
    summary.add(&format!("{name}s, 1,000/s"), server, spread(of(|run| run.rate / 1e3)));
    summary.add(&format!("{name}: p99 ms"), server, spread(of(|run| run.times[1])));
}
