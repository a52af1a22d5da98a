//! Requests per second: all servers under wrk, in alternating rounds. Judges nothing: the reader
//! compares.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use tempfile::NamedTempFile;

use crate::Args;
use crate::server::{Kind, Programs, Server, Usage};
use crate::table::{Summary, Table, median, number, range};
use crate::workload::{Color, Workload, colors};

const TITLES: &str = "workload       | colors | threads | conn. | server       | requests/s | min–max         | CPU µs/request | switches/request | p99 ms \
    | RSS MiB | rate ×  | CPU ×  | errors";

/// Few, some, and many for each processor.
const CONNECTIONS: [u32; 3] = [4, 32, 256];

/// What the servers of some rows have in common.
struct Load<'a> {
    workload: Workload,
    colors: &'a [Color],
    connections: u32,
    threads: u32,
}

/// A measured run of one server.
struct Run {
    /// Requests/s, CPU µs/request, context switches/request, p99 in ms, and resident memory in MiB.
    figures: [f64; 5],
    /// Failed connections, statuses from 400 up, and responses that came too late.
    errors: [f64; 3],
}

/// A server, how long its response is, and what was measured.
pub(crate) struct Contestant<Run> {
    pub(crate) kind: Kind,
    pub(crate) server: Server,
    pub(crate) length: usize,
    pub(crate) runs: Vec<Run>,
}

pub(crate) fn print(args: &Args, programs: &Programs) -> Result<()> {
    println!();
    let table = Table::begin(TITLES, 5);
    let mut summaries = Vec::new();
    for &count in args.colors_count(&[148]) {
        let colors = &colors(count as usize)[..];
        for &connections in args.connections(&CONNECTIONS) {
            for &threads in args.threads.iter().filter(|threads| **threads <= connections) {
                let mut summary = Summary::new();
                let mut costs = Vec::new();
                for (place, &workload) in args.workloads.iter().enumerate() {
                    let load = Load { workload, colors, connections, threads };
                    for (kind, [rate, cpu, _, _, resident]) in
                        print_rows(&table, &load, programs, args)?
                    {
                        let name = workload.name();
                        summary.add(kind.name(), &format!("{name}s/s"), number(rate));
                        if place == 0 {
                            costs.push((kind, format!("CPU µs/{name}"), cpu, resident));
                        }
                    }
                }
                for (kind, title, cpu, resident) in costs {
                    summary.add(kind.name(), &title, number(cpu));
                    summary.add(kind.name(), "MiB", number(resident));
                }
                summaries.push((
                    format!("{connections} connections, {} colors", number(count.into())),
                    summary,
                ));
            }
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
        let length = workload.check(kind, &server, colors).with_context(|| kind.name())?;
        Ok(Contestant { kind, server, length, runs: Vec::new() })
    };
    kinds.filter(|kind| kind.serves(workload)).map(start).collect()
}

/// Starts all servers anew, gives each its turn in every round, and prints a row for each. Returns
/// the medians of their figures.
fn print_rows(
    table: &Table,
    load: &Load,
    programs: &Programs,
    args: &Args,
) -> Result<Vec<(Kind, [f64; 5])>> {
    let Load { workload, colors, connections, threads } = *load;
    let mut contestants = start_all(args.kinds(), programs, workload, colors)?;
    for round in 1..=args.rounds {
        for Contestant { kind, server, runs, .. } in &mut contestants {
            eprintln!(
                "{}, {} colors, {threads}/{connections}, round {round}: {}",
                workload.name(),
                colors.len(),
                kind.name()
            );
            if round == 1 {
                measure(load, 1, server)?; // to warm up
            }
            runs.push(measure(load, args.seconds, server)?);
        }
    }
    let words = [
        workload.name().to_owned(),
        colors.len().to_string(),
        threads.to_string(),
        connections.to_string(),
    ];
    let mut medians = Vec::new();
    for Contestant { kind, runs, .. } in &contestants {
        let figures =
            [0, 1, 2, 3, 4].map(|figure| median(runs.iter().map(|run| run.figures[figure])));
        let row = row(figures, runs, &contestants[0].runs);
        table.row(words.iter().cloned().chain([kind.name().to_owned()]).chain(row));
        medians.push((*kind, figures));
    }
    Ok(medians)
}

fn measure(load: &Load, seconds: u32, server: &Server) -> Result<Run> {
    let (request, _) = &load.workload.requests(load.colors)[0];
    let script = NamedTempFile::new()?;
    fs::write(&script, load.workload.script())?;
    let mut wrk = Command::new("wrk");
    wrk.args([
        "--threads",
        &load.threads.to_string(),
        "--connections",
        &load.connections.to_string(),
    ]);
    wrk.args(["--duration", &format!("{seconds}s"), "--timeout", "10s", "--latency", "--script"])
        .arg(script.path());
    wrk.args(request.fields().iter().flat_map(|field| ["--header", field]));
    wrk.arg(format!("http://{}{}", server.address, request.target));
    let before = server.usage()?;
    let output = wrk.output().context("wrk does not start")?;
    let Usage { cpu_us, switches } = server.usage()? - before;
    let resident_mib = server.resident_mib();
    ensure!(output.status.success(), "wrk failed: {}", String::from_utf8_lossy(&output.stderr));
    load.workload.tidy(server)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("measured "))
        .context("wrk printed no results")?;
    let numbers: Vec<f64> = line.split(' ').map(str::parse).collect::<Result<_, _>>()?;
    let [requests, time_us, p99_us, errors @ ..] =
        <[f64; 6]>::try_from(numbers).ok().context("wrk printed other results")?;
    Ok(Run {
        figures: [
            requests / time_us * 1e6,
            cpu_us / requests,
            switches / requests,
            p99_us / 1e3,
            resident_mib,
        ],
        errors,
    })
}

/// A row: the medians and, of colors to this server within each round, the ratios.
fn row(medians: [f64; 5], runs: &[Run], colors: &[Run]) -> [String; 9] {
    let [rate, cpu, switches, p99, resident] = medians.map(number);
    let ratios = |figure: usize| {
        colors
            .iter()
            .zip(runs)
            .map(move |(colors, run)| colors.figures[figure] / run.figures[figure])
    };
    let [rate_ratio, cpu_ratio] = [0, 1].map(|figure| number(median(ratios(figure))));
    let sums = [0, 1, 2].map(|kind| runs.iter().map(|run| run.errors[kind]).sum::<f64>());
    let errors =
        sums.iter().zip(["connection", "status", "timeout"]).filter(|(sum, _)| **sum > 0.0);
    let errors = errors.map(|(sum, what)| format!("{sum} {what}")).collect::<Vec<_>>().join(", ");
    [
        rate,
        range(runs.iter().map(|run| run.figures[0])),
        cpu,
        switches,
        p99,
        resident,
        rate_ratio,
        cpu_ratio,
        errors,
    ]
}
