//! The rates of [`rates`](crate::rates) once more, measured by wrk(1), which somebody else has
//! written. Judges nothing.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::Args;
use crate::rates::{Contestant, start_all};
use crate::server::Programs;
use crate::table::{Summary, spread};
use crate::workload::{Workload, colors};

/// Threads of wrk. With one, it takes one of two processors at most.
const THREADS: [u32; 2] = [1, 2];

/// A measured run: responses per second, and the p50 and p99 of their times in milliseconds.
type Run = [f64; 3];

pub(crate) fn print(args: &Args, programs: &Programs) -> Result<()> {
    let colors = colors(148);
    for &connections in args.connections(&[32]) {
        let mut summary = Summary::new();
        for &workload in args.workloads.iter().filter(|workload| **workload != Workload::Update) {
            for threads in THREADS {
                let mut contestants = start_all::<Run>(args.kinds(), programs, workload, &colors)?;
                for round in 0..=args.rounds {
                    for Contestant { kind, server, runs, .. } in &mut contestants {
                        eprintln!("wrk, {} threads, round {round}: {}", threads, kind.name());
                        let target = workload.request(&colors).target;
                        let url = format!("http://{}{target}", server.address);
                        // The first one is to warm up.
                        let seconds = if round == 0 { 1 } else { args.seconds };
                        let run = measure(&url, threads, connections, seconds)?;
                        if round > 0 {
                            runs.push(run);
                        }
                    }
                }
                for Contestant { kind, runs, .. } in &contestants {
                    let titles = ["s, 1,000/s", ": p50 ms", ": p99 ms"];
                    for (part, title) in titles.into_iter().enumerate() {
                        let title = format!("{}{title}, {threads} of wrk", workload.name());
                        let cell = spread(runs.iter().map(|run| run[part]));
                        summary.add(&title, kind.name(), cell);
                    }
                }
            }
        }
        summary.print(&format!("by wrk, {connections} connections"));
    }
    Ok(())
}

fn measure(url: &str, threads: u32, connections: u32, seconds: u32) -> Result<Run> {
    let mut wrk = Command::new("wrk");
    wrk.args(["--latency", "--threads", &threads.to_string()]);
    wrk.args(["--connections", &connections.to_string(), "--duration", &seconds.to_string(), url]);
    let output = String::from_utf8(wrk.output().context("wrk")?.stdout)?;
    ensure!(!output.contains("Non-2xx"), "wrk: {output}");
    let word = |title: &str| {
        let line = output.lines().find_map(|line| line.trim().strip_prefix(title));
        line.map(str::trim).with_context(|| format!("wrk prints no {title}: {output}"))
    };
    let rate: f64 = word("Requests/sec:")?.parse()?;
    Ok([rate / 1e3, milliseconds(word("50%")?)?, milliseconds(word("99%")?)?])
}

/// A time as wrk prints it, such as 87.00us.
fn milliseconds(time: &str) -> Result<f64> {
    let unit = time.find(|sign: char| sign.is_ascii_alphabetic()).context("a time has a unit")?;
    let factor = match &time[unit..] {
        "us" => 1e-3,
        "ms" => 1.0,
        _ => 1e3,
    };
    Ok(time[..unit].parse::<f64>()? * factor)
}
