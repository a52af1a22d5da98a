//! `compare`: measures colors beside other servers on this machine, over loopback. `README.md`
//! explains the tables.

mod client;
mod disk;
mod figures;
mod isolation;
mod latency;
mod load;
mod losses;
mod rates;
mod server;
mod stalled;
mod table;
mod waiting;
mod workload;
mod writers;
mod wrk;

use std::env;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;
use clap::{Parser, ValueEnum};

use crate::server::{Kind, Programs};
use crate::workload::Workload;

/// Measures colors beside other servers, on this machine, and prints Markdown tables.
#[derive(Debug, Parser)]
struct Args {
    /// What to do
    #[arg(default_value = "rates")]
    part: Part,
    /// Measure this colors instead of building it
    #[arg(long, value_name = "PATH")]
    colors: Option<PathBuf>,
    /// Measure this build of colors, too
    #[arg(long, value_name = "PATH")]
    before: Option<PathBuf>,
    /// Measured runs of each server; in each round every server has its turn
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Length of a measured run
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// How many connections there are [default: 8,32,64,256; for latency 64]
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=4096))]
    connections: Vec<u32>,
    /// How many colors the list has [default: 148; for writers 148,10000,100000,1000000; for
    /// isolation 100000,1000000]
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    colors_count: Vec<u32>,
    /// Which requests to send
    #[arg(
        long,
        value_name = "NAME,...",
        default_value = "read,list,update",
        value_delimiter = ','
    )]
    workloads: Vec<Workload>,
    /// Which servers to measure beside colors; `colors` for none
    #[arg(
        long,
        value_name = "NAME,...",
        default_value = "tiny-http,tiny-http-64,oxhttp,axum,axum-bytes,actix,nginx",
        value_delimiter = ','
    )]
    only: Vec<Kind>,
    /// Which rates, per second, for latency
    #[arg(long, value_name = "N,...", default_value = "1000,20000,50000", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rates: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Part {
    /// Requests per second, how long each takes, and CPU time
    Rates,
    /// The same, of servers whose `--only` says how many threads they have
    Threads,
    /// Requests per second, and how long each takes, as wrk(1) measures them
    Wrk,
    /// How many clients that stand still it takes until nobody else is answered
    Stalled,
    /// Times of reads at fixed rates
    Latency,
    /// Durable changes per second, beside SQLite and Redis
    Writers,
    /// Times of reads beside long requests of other clients
    Isolation,
    /// Times of reads beside a client that writes to a slow disk, also of Redis
    Disk,
    /// The tables of README and of all servers, put together from benches/results
    Comparison,
    /// Times until clients have a change, and CPU time while nothing changes: waiting and polling
    Waiting,
    /// Measure everything that the documents show, into benches/results, and then `documents`; of
    /// the options, only `--rounds` counts
    All,
    /// Draw the plots, and put the tables into the documents, from benches/results
    Documents,
}

impl Args {
    fn connections<'a>(&'a self, default: &'a [u32]) -> &'a [u32] {
        if self.connections.is_empty() { default } else { &self.connections }
    }

    fn colors_count<'a>(&'a self, default: &'a [u32]) -> &'a [u32] {
        if self.colors_count.is_empty() { default } else { &self.colors_count }
    }

    /// The servers of the tables that have several, colors first.
    fn kinds(&self) -> impl Iterator<Item = Kind> {
        let before = self.before.iter().map(|_| Kind::Before);
        [Kind::Colors]
            .into_iter()
            .chain(before)
            .chain(self.only.iter().copied().filter(|kind| *kind != Kind::Colors))
    }
}

fn main() -> Result<()> {
    let args = Args::parse();
    if args.part == Part::All {
        figures::measure(args.rounds)?;
    }
    if matches!(args.part, Part::All | Part::Documents) {
        return figures::show();
    }
    if args.part == Part::Comparison {
        return figures::compare();
    }
    let programs = Programs::build(args.colors.as_deref(), args.before.as_deref())?;
    print!("`compare{}`\n{}", arguments_without_paths(), conditions()?);
    match args.part {
        Part::Latency => latency::print(&args, &programs),
        Part::Writers => writers::print(&args, &programs),
        Part::Isolation => isolation::print(&args, &programs),
        Part::Waiting => waiting::print(&args, &programs),
        Part::Disk => disk::print(&args, &programs),
        Part::Wrk => wrk::print(&args, &programs),
        Part::Stalled => stalled::print(&args, &programs),
        _ => rates::print(&args, &programs),
    }
}

/// The arguments. The builds that they name are of this machine alone.
fn arguments_without_paths() -> String {
    let mut shown = String::new();
    let mut is_path = false;
    for argument in env::args().skip(1) {
        shown += &format!(" {}", if is_path { "PATH" } else { &argument });
        is_path = ["--colors", "--before"].contains(&&*argument);
    }
    shown
}

/// What is measured, when and where: a line for each.
fn conditions() -> Result<String> {
    const SCRIPT: &str = r#"PATH=$PATH:/usr/sbin
        echo "commit $(git describe --always --exclude='*')$(git diff --quiet HEAD -- ../src ../crates ../build.rs ../Cargo.* compare peers *.py Cargo.* || echo ' and changes'), $(date -u +%F)"
        echo "$(lscpu | sed -n 's/^Model name: *//p'), $(nproc) processors, Linux $(uname -r)"
        for program in 'nginx -v' 'redis-server -v'; do $program 2>&1 | head -n 1; done"#;
    let mut shell = Command::new("sh");
    shell.args(["-c", SCRIPT]).current_dir(env!("CARGO_MANIFEST_DIR"));
    Ok(String::from_utf8(shell.output()?.stdout)?)
}
