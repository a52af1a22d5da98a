//! The comparison: all servers under wrk, in alternating rounds. Judges nothing: the reader
//! compares.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use tempfile::NamedTempFile;

use crate::Args;
use crate::server::{Kind, Programs, Server, Usage};
use crate::table::{Table, median, number, range};
use crate::workload::{Color, Workload, colors};

const TITLES: &str = "workload       | colors | threads | conn. | server    | requests/s | min–max         | CPU µs/request | switches/request | p99 ms \
    | RSS MiB | rate ×  | CPU ×  | errors";

/// One waits for each answer, some leave the processors idle now and then, many never do.
const CONNECTIONS: [u32; 4] = [2, 8, 32, 256];

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

/// A server, the response that it gives, and what was measured.
pub(crate) struct Contestant<Run> {
    pub(crate) kind: Kind,
    pub(crate) server: Server,
    pub(crate) response: Vec<u8>,
    pub(crate) runs: Vec<Run>,
}

pub(crate) fn print(args: &Args, programs: &Programs) -> Result<()> {
    println!();
    let table = Table::begin(TITLES, 5);
    for &count in args.colors_count(&[148]) {
        let colors = &colors(count as usize)[..];
        for &workload in &args.workloads {
            for &connections in args.connections(&CONNECTIONS) {
                for &threads in args.threads.iter().filter(|threads| **threads <= connections) {
                    print_rows(
                        &table,
                        &Load { workload, colors, connections, threads },
                        programs,
                        args,
                    )?;
                }
            }
        }
    }
    Ok(())
}

/// Starts servers, colors first, and checks what they respond with.
pub(crate) fn start_all<Run>(
    kinds: impl Iterator<Item = Kind>,
    programs: &Programs,
    workload: Workload,
    colors: &[Color],
) -> Result<Vec<Contestant<Run>>> {
    let mut contestants: Vec<Contestant<Run>> = Vec::new();
    for kind in kinds.filter(|kind| kind.serves(workload)) {
        // for the floor
        let of_colors = contestants.first().map_or(&[][..], |colors| &colors.response);
        let server = Server::start(kind, programs, colors, of_colors)?;
        let response = workload.check(&server, colors).context(kind.name())?;
        contestants.push(Contestant { kind, server, response, runs: Vec::new() });
    }
    Ok(contestants)
}

/// Starts all servers anew, gives each its turn in every round, and prints a row for each.
fn print_rows(table: &Table, load: &Load, programs: &Programs, args: &Args) -> Result<()> {
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
            measure(load, 1, server)?; // to warm up
            runs.push(measure(load, args.seconds, server)?);
        }
    }
    let words = [
        workload.name().to_owned(),
        colors.len().to_string(),
        threads.to_string(),
        connections.to_string(),
    ];
    for Contestant { kind, runs, .. } in &contestants {
        table.row(
            words
                .iter()
                .cloned()
                .chain([kind.name().to_owned()])
                .chain(row(runs, &contestants[0].runs)),
        );
    }
    Ok(())
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

/// The figures of a row. The ratios are of colors to this server, within each round.
fn row(runs: &[Run], colors: &[Run]) -> [String; 9] {
    let [rate, cpu, switches, p99, resident] =
        [0, 1, 2, 3, 4].map(|figure| number(median(runs.iter().map(|run| run.figures[figure]))));
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
