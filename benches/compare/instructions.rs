//! The third table: instructions per request of colors, counted by callgrind. Needs no quiet machine, and says nothing of time.

use std::fs;
use std::process::Command;

use crate::client::{Client, request};
use crate::colors::{self, Color};
use crate::failure::Failure;
use crate::kind::Kind;
use crate::programs::{self, Programs};
use crate::scratch::Scratch;
use crate::servers::Server;
use crate::table::{self, Table};
use crate::workload::{UPDATE, Workload, target_color};

/// Requests of the shorter run: what start, stop and the first requests take is in both runs alike.
const FEW: u64 = 1_000;

/// Requests that the longer run has more than the shorter one.
const MORE: u64 = 10_000;

/// Colors in the list: the product's own seed.
const COUNT: usize = 148;

/// Measures everything and prints the table.
pub(crate) fn print(programs: &Programs, scratch: &Scratch) -> Result<(), Failure> {
    let colors = colors::list(COUNT);
    println!("Instructions per keep-alive request, user space only, {COUNT} colors:\n");
    let table = Table::begin(&[("workload", 13), ("instructions", 12)], 1);
    for workload in Workload::ALL {
        eprintln!("instructions: {workload}");
        let few = count(programs, scratch, workload, &colors, FEW)?;
        let all = count(programs, scratch, workload, &colors, FEW + MORE)?;
        table.row(&[workload.to_string(), table::number(all.saturating_sub(few) as f64 / MORE as f64)]);
    }
    println!();
    Ok(())
}

/// Instructions of a whole life of the server in which it answers so many requests.
fn count(programs: &Programs, scratch: &Scratch, workload: Workload, colors: &[Color], requests: u64) -> Result<u64, Failure> {
    let log = scratch.path().join("callgrind.log");
    let mut callgrind = Command::new(programs::installed("valgrind", "valgrind")?);
    callgrind.arg("--tool=callgrind").arg(format!("--callgrind-out-file={}", scratch.path().join("callgrind.out").display()));
    callgrind.arg(format!("--log-file={}", log.display())).arg(&programs.colors);
    let server = Server::start_colors(callgrind, colors)?;
    let asked = ask(&server, &cycle(workload, colors), requests);
    drop(server);
    asked?;
    let text = fs::read_to_string(&log).map_err(|error| Failure::File(log, error))?;
    let collected = text.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok());
    collected.ok_or(Failure::Unreadable("valgrind", "sum of instructions"))
}

/// The requests of a workload that leave the list as it was.
fn cycle(workload: Workload, colors: &[Color]) -> Vec<Vec<u8>> {
    let target = format!("/colors/{}", target_color(colors).name);
    match workload {
        Workload::ReadOne => vec![request("GET", &target, None)],
        Workload::ReadAll => vec![request("GET", "/colors", None)],
        Workload::Update => vec![request("PUT", &target, Some(UPDATE))],
        Workload::CreateDelete => {
            let create = request("POST", "/colors", Some(r##"{"name":"bench-000-00000001","value":"#112233"}"##));
            vec![create, request("DELETE", "/colors/bench-000-00000001", None)]
        }
    }
}

/// Sends so many requests, one after the other on one connection.
fn ask(server: &Server, cycle: &[Vec<u8>], requests: u64) -> Result<(), Failure> {
    let mut client = Client::connect(server.address)?;
    for (request, _) in cycle.iter().cycle().zip(0..requests) {
        let answer = client.ask(request)?;
        if answer.status >= 400 {
            let line = String::from_utf8_lossy(request).lines().next().unwrap_or_default().to_owned();
            return Err(Failure::Wrong(Kind::Colors, line, answer.status));
        }
    }
    Ok(())
}
