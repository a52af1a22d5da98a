//! Latency at fixed rates, which shows what a server that is not busy adds. Judges nothing.

use std::num::NonZeroU64;

use anyhow::Result;
use rustix::thread::set_current_timer_slack;

use crate::Args;
use crate::load::{Pace, Run};
use crate::rates::{Contestant, measure};
use crate::server::Programs;
use crate::table::{Summary, Table, figure, number, spread};
use crate::workload::{Workload, colors};

/// For requests that are due while others wait for their responses; at these rates, more are never
/// in use unless the server stalls.
const CONNECTIONS: u32 = 64;

pub(crate) const SUMMARY_TITLE: &str = "reads at a fixed rate";

const TITLES: &str = "due/s  | colors  | conn. | server              | answered/s | p50 ms              | p99 ms              \
    | p99.9 ms            | CPU µs/request      | switches/request";

pub(crate) fn print(args: &Args, programs: &Programs) -> Result<()> {
    // The default of the kernel, 50 µs, would be most of what is measured.
    set_current_timer_slack(NonZeroU64::new(1))?;
    println!("\nReads of one color at fixed rates, each timed from when it was due:\n");
    let table = Table::begin(TITLES, 0);
    let mut summary = Summary::new();
    for &count in args.colors_count(&[148]) {
        let colors = &colors(count as usize)[..];
        for &connections in args.connections(&[CONNECTIONS]) {
            for &rate in &args.rates {
                let pace = Pace::Rate(rate);
                let contestants =
                    measure(Workload::Read, colors, connections, pace, programs, args)?;
                for Contestant { kind, runs, .. } in &contestants {
                    let words = [rate, count, connections].map(|number| number.to_string());
                    let words = words.into_iter().chain([kind.name().to_owned()]);
                    let row = row(runs);
                    for (title, cell) in ["p50", "p99", "p99.9"].iter().zip(&row[1..]) {
                        let title = format!("{}/s: {title} ms", number(rate.into()));
                        summary.add(&title, kind.name(), cell.clone());
                    }
                    table.row(words.chain(row));
                }
            }
        }
    }
    summary.print(SUMMARY_TITLE);
    Ok(())
}

fn row(runs: &[Run]) -> [String; 6] {
    let of = |figure: fn(&Run) -> f64| runs.iter().map(figure);
    [
        figure(of(|run| run.rate)),
        spread(of(|run| run.times[0])),
        spread(of(|run| run.times[1])),
        spread(of(|run| run.times[2])),
        spread(of(|run| run.usage.cpu_us)),
        figure(of(|run| run.usage.switches)),
    ]
}
