//! Instructions per request of colors, counted by callgrind. Needs no quiet machine, and says
//! nothing of time.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use tempfile::NamedTempFile;

use crate::client::Client;
use crate::server::{Programs, Server};
use crate::table::{Table, number};
use crate::workload::{Workload, colors};

/// Requests of a short and a long run. Both contain the start, the stop and the first requests, so
/// that the difference does not.
const REQUESTS: [usize; 2] = [1_000, 11_000];

pub(crate) fn print(programs: &Programs, workloads: &[Workload]) -> Result<()> {
    println!("\nInstructions per request, user space only, 148 colors:\n");
    let table = Table::begin("workload       | server | instructions", 2);
    for &workload in workloads {
        let before = programs.before.iter().map(|program| ("before", program));
        for (name, program) in [("colors", &programs.colors)].into_iter().chain(before) {
            eprintln!("instructions: {}, {name}", workload.name());
            let [short, long] =
                [count(program, workload, REQUESTS[0])?, count(program, workload, REQUESTS[1])?];
            table.row([
                workload.name().into(),
                name.into(),
                number((long - short) / (REQUESTS[1] - REQUESTS[0]) as f64),
            ]);
        }
    }
    Ok(())
}

/// Instructions of a whole life of the server in which it answers so many requests, one after the
/// other.
fn count(program: &Path, workload: Workload, requests: usize) -> Result<f64> {
    let log = NamedTempFile::new()?;
    let mut callgrind = Command::new("valgrind");
    callgrind
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(format!("--log-file={}", log.path().display()))
        .arg(program);
    let colors = colors(148);
    let server = Server::start_colors(callgrind, &colors, false)?;
    let mut client = Client::connect(server.address)?;
    for (request, _) in workload.requests(&colors).iter().cycle().take(requests) {
        if request.close {
            client = Client::connect(server.address)?;
        }
        client.ask(request)?;
    }
    drop(server);
    let collected = fs::read_to_string(&log)?
        .lines()
        .find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok());
    collected.context("valgrind printed no sum of instructions")
}
