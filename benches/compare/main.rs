//! `compare`: measures colors, beside the servers that people would pick instead. Loads nothing but what it started on loopback itself.
//!
//! A map of the code; arrows of use point down this list only:
//!
//! - `main`, `args`: start-up in reading order; the command line
//! - `versus`, `growth`, `instructions`: the first three tables
//! - `durability`: the fourth, in three parts; `kills`: the last of them
//! - `ledger`: what was acknowledged, and what of it is left; `writers`: writes that wait for their answers; `disk`: what is written to
//! - `table`: medians and Markdown; `machine`: where and when it was measured
//! - `wrk`, `client`: the two ways to send requests; `workload`: which requests
//! - `kind`, `servers`, `nginx`, `json_server`: which servers there are, and how each is started and stopped
//! - `programs`: building and finding programs; `process`: what the kernel knows of a process; `scratch`: temporary files
//! - `colors`: the colors of a list; `failure`: why a comparison cannot go on

mod args;
mod client;
mod colors;
mod disk;
mod durability;
mod failure;
mod growth;
mod instructions;
mod json_server;
mod kills;
mod kind;
mod ledger;
mod machine;
mod nginx;
mod process;
mod programs;
mod scratch;
mod servers;
mod table;
mod versus;
mod workload;
mod writers;
mod wrk;

use std::process::ExitCode;

use clap::Parser;

use crate::args::Args;
use crate::failure::Failure;
use crate::programs::Programs;
use crate::scratch::Scratch;

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("compare: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// The tables that were asked for, one after the other.
fn run(args: &Args) -> Result<(), Failure> {
    let scratch = Scratch::new()?;
    let programs = Programs::build(args.colors.as_deref())?;
    machine::describe();
    if !args.growth && !args.instructions && !args.durability {
        versus::print(args, &programs, &scratch)?;
    }
    if args.growth {
        growth::print(args, &programs)?;
    }
    if args.instructions {
        instructions::print(&programs, &scratch)?;
    }
    if args.durability {
        durability::print(args, &programs)?;
    }
    Ok(())
}
