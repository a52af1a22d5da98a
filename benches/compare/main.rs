//! `compare`: measures colors beside other servers on this machine, over loopback. `README.md`
//! explains the tables.

mod client;
mod contest;
mod growth;
mod instructions;
mod isolation;
mod latency;
mod server;
mod soak;
mod table;
mod workload;
mod writers;

use std::hint::black_box;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, io, thread};

use anyhow::Result;
use clap::Parser;

use crate::server::{Kind, Programs};
use crate::workload::Workload;

/// Measures colors beside other servers, on this machine, and prints Markdown tables.
#[derive(Debug, Parser)]
struct Args {
    /// Measure this colors instead of building it
    #[arg(long, value_name = "PATH")]
    colors: Option<PathBuf>,
    /// Measure this build of colors, too
    #[arg(long, value_name = "PATH")]
    before: Option<PathBuf>,
    /// Measured runs of each server; in each round every server has its turn
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Length of a measured run
    #[arg(long, value_name = "SECONDS", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// How many connections there are [default: 2,8,32,256; for --latency 64]
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=4096))]
    connections: Vec<u32>,
    /// How many threads wrk has; more threads than connections are skipped
    #[arg(long, value_name = "N,...", default_value = "1,2", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: Vec<u32>,
    /// How many colors the list has, in the comparison and for --latency, --writers and
    /// --isolation [default: 148; for --writers 148,10000,100000,1000000; for --isolation
    /// 100000,1000000]
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    colors_count: Vec<u32>,
    /// Which requests to send
    #[arg(
        long,
        value_name = "NAME,...",
        default_value = "read-one,read-all,update,create-delete,new-connection",
        value_delimiter = ','
    )]
    workloads: Vec<Workload>,
    /// Which servers to measure beside colors; `colors` for none
    #[arg(
        long,
        value_name = "NAME,...",
        default_value = "axum,actix,nginx,floor",
        value_delimiter = ','
    )]
    only: Vec<Kind>,
    /// Change a durable list for this time (90s, 30m, 1h) beside a model of it, and print what the
    /// process holds
    #[arg(long, value_name = "TIME", value_parser = soak::time)]
    soak: Option<Duration>,
    /// Print how many instructions a request takes
    #[arg(long)]
    instructions: bool,
    /// Print what each operation costs as the list grows from 100 to 1,000,000 colors
    #[arg(long)]
    growth: bool,
    /// Print what a change takes that is saved before its answer, with 1 and 64 writers, as the
    /// list grows
    #[arg(long)]
    writers: bool,
    /// Print how long a read takes at fixed rates
    #[arg(long)]
    latency: bool,
    /// Print how long a read takes beside long requests of other clients, on the same worker
    #[arg(long)]
    isolation: bool,
    /// Which rates, per second, for --latency
    #[arg(long, value_name = "N,...", default_value = "1000,20000,50000", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rates: Vec<u32>,
    /// For --latency: meanwhile, another client changes a color and reads the list, one after the
    /// other
    #[arg(long)]
    changes: bool,
    /// Meanwhile, so many processes compute
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=256))]
    busy: u32,
    /// Compute until the standard input ends: one of the processes of --busy
    #[arg(long, hide = true)]
    compute: bool,
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
    if args.compute {
        thread::spawn(|| {
            loop {
                black_box(0);
            }
        });
        io::copy(&mut io::stdin(), &mut io::sink())?;
        return Ok(());
    }
    if let Some(time) = args.soak {
        return soak::print(&Programs::find_colors(args.colors.as_deref())?, time);
    }
    let programs = Programs::build(args.colors.as_deref(), args.before.as_deref())?;
    println!(
        "{} processors, `compare {}`",
        thread::available_parallelism()?,
        env::args().skip(1).collect::<Vec<_>>().join(" ")
    );
    // their standard input ends with this process, however it ends
    let compute =
        |_| Command::new(env::current_exe()?).arg("--compute").stdin(Stdio::piped()).spawn();
    let _busy = (0..args.busy).map(compute).collect::<io::Result<Vec<_>>>()?;
    if !(args.instructions || args.growth || args.writers || args.latency || args.isolation) {
        contest::print(&args, &programs)?;
    }
    if args.instructions {
        instructions::print(&programs, &args.workloads)?;
    }
    if args.growth {
        growth::print(&programs, args.seconds)?;
    }
    if args.writers {
        writers::print(&args, &programs)?;
    }
    if args.latency {
        latency::print(&args, &programs)?;
    }
    if args.isolation {
        isolation::print(&args, &programs)?;
    }
    Ok(())
}
