//! `compare`: measures colors beside other servers on this machine, over loopback. `README.md` explains the tables.

mod client;
mod contest;
mod growth;
mod instructions;
mod server;
mod soak;
mod table;
mod waiting;
mod workload;
mod writers;

use std::path::PathBuf;
use std::time::Duration;
use std::{env, thread};

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
    /// How many connections wrk keeps busy
    #[arg(long, value_name = "N,...", default_value = "1,32,256", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=4096))]
    connections: Vec<u32>,
    /// How many threads wrk has; more threads than connections are skipped
    #[arg(long, value_name = "N,...", default_value = "1,2", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: Vec<u32>,
    /// How many colors the list has, in the comparison and for --writers [default: 148; for --writers 148,10000,100000,1000000]
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    colors_count: Vec<u32>,
    /// Which requests to send
    #[arg(long, value_name = "NAME,...", default_value = "read-one,read-all,update,create-delete,new-connection", value_delimiter = ',')]
    workloads: Vec<Workload>,
    /// Which servers to measure beside colors; `colors` for none
    #[arg(long, value_name = "NAME,...", default_value = "axum,actix,nginx,floor", value_delimiter = ',')]
    only: Vec<Kind>,
    /// Change a durable list for this time (90s, 30m, 1h) beside a model of it, and print what the process holds
    #[arg(long, value_name = "TIME", value_parser = soak::time)]
    soak: Option<Duration>,
    /// Print how many instructions a request takes
    #[arg(long)]
    instructions: bool,
    /// Print what each operation costs as the list grows from 100 to 1,000,000 colors
    #[arg(long)]
    growth: bool,
    /// Print what a change takes that is saved before its answer, with 1 and 64 writers, as the list grows
    #[arg(long)]
    writers: bool,
    /// Print how long a read takes beside clients that change a long list
    #[arg(long)]
    waiting: bool,
}

fn main() -> Result<()> {
    let args = Args::parse();
    if let Some(time) = args.soak {
        return soak::print(&Programs::find_colors(args.colors.as_deref())?, time);
    }
    let programs = Programs::build(args.colors.as_deref(), args.before.as_deref())?;
    println!("{} processors, `compare {}`", thread::available_parallelism()?, env::args().skip(1).collect::<Vec<_>>().join(" "));
    if !(args.instructions || args.growth || args.writers || args.waiting) {
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
    if args.waiting {
        waiting::print(&programs, args.seconds)?;
    }
    Ok(())
}
