//! The command line. Checks each value by itself and starts nothing.

use std::path::PathBuf;

use clap::Parser;

use crate::kind::Kind;
use crate::workload::Workload;

/// Measures colors beside other servers, on this machine, and prints Markdown tables.
#[derive(Debug, Parser)]
#[command(max_term_width = 100)]
pub(crate) struct Args {
    /// Measure this colors instead of building it
    #[arg(long, value_name = "PATH")]
    pub(crate) colors: Option<PathBuf>,

    /// Measured runs of each server; in each round every server has its turn
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) rounds: u32,

    /// Length of a measured run
    #[arg(long, value_name = "SECONDS", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=600))]
    pub(crate) seconds: u32,

    /// How many connections wrk keeps busy
    #[arg(long, value_name = "N,...", default_value = "1,32,256", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) connections: Vec<u32>,

    /// How many colors the list has
    #[arg(long, value_name = "N,...", default_value = "148,30000", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) colors_count: Vec<u32>,

    /// Which requests to send
    #[arg(long, value_name = "WORKLOAD,...", default_value = "read-one,read-all,update,create-delete", value_delimiter = ',')]
    pub(crate) workloads: Vec<Workload>,

    /// Which servers to measure beside colors; `colors` for none
    #[arg(long, value_name = "PEER,...", default_value = "axum,actix,nginx,json-server-0,json-server-1", value_delimiter = ',')]
    pub(crate) only: Vec<Kind>,

    /// Print what each operation costs as the list grows from 100 to 1,000,000 colors
    #[arg(long)]
    pub(crate) growth: bool,

    /// Print how many instructions a request takes
    #[arg(long)]
    pub(crate) instructions: bool,

    /// Print what it costs colors to save each change, and what is left after kill -9
    #[arg(long)]
    pub(crate) durability: bool,

    /// With --durability: how often each server is killed
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub(crate) kills: u32,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Args::command().debug_assert();
    }

    #[test]
    fn the_defaults_are_everything() {
        let args = Args::parse_from(["compare"]);
        assert_eq!(args.workloads, Workload::ALL);
        assert_eq!([&[Kind::Colors], &args.only[..]].concat(), Kind::ALL);
    }
}
