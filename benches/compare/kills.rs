//! The last part of the fourth table: servers that keep a file are killed under load, and what they had acknowledged is looked for.
//!
//! A kill takes from a server what it has not handed to the kernel yet. What the kernel has not written yet survives it; only the loss of
//! power would take that.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::args::Args;
use crate::client::{Client, request};
use crate::colors::{self, Color};
use crate::failure::Failure;
use crate::json_server;
use crate::kind::Kind;
use crate::ledger::Ledger;
use crate::programs::Programs;
use crate::scratch::Scratch;
use crate::servers::Server;
use crate::table::{self, Table};

/// Concurrent writers.
const WRITERS: usize = 8;

/// Colors in the list before the first kill: the product's own seed.
const COUNT: usize = 148;

/// Where the random moments begin: the same ones for every server, in every run.
const SEED: u64 = 4;

/// The longest time from the first answer to the kill: some dozens of saves, while the list grows little.
const MOMENT_MAX: Duration = Duration::from_millis(250);

/// The longest wait for the first answer after a start.
const FIRST_MAX: Duration = Duration::from_secs(10);

/// What the kills of one server did.
#[derive(Debug, Default)]
struct Tally {
    /// Changes that it had acknowledged.
    acknowledged: usize,
    /// Those of them that were not there afterwards.
    lost: usize,
    /// Kills after which some were not there.
    kills_with_loss: usize,
    /// Starts at which the file was no list anymore.
    broken: usize,
    /// Starts at which the order was another.
    disordered: usize,
}

/// Kills each server in turn and prints what that did.
pub(crate) fn print(args: &Args, programs: &Programs, scratch: &Scratch) -> Result<(), Failure> {
    let peers = args.only.iter().copied().filter(|kind| *kind != Kind::Colors && kind.keeps_a_file());
    let kinds: Vec<Kind> = [Kind::Colors].into_iter().chain(peers).collect();
    println!("kill -9 under {WRITERS} writers, and a start on what is left:\n");
    let titles =
        [("server", 25), ("kills", 5), ("acknowledged", 12), ("lost", 5), ("kills with loss", 15), ("broken", 6), ("disordered", 10)];
    let mut skipped = Vec::new();
    let table = Table::begin(&titles, 1);
    for kind in kinds {
        match kill_again_and_again(kind, args.kills, programs, scratch) {
            Ok(tally) => table.row(&row(kind, args.kills, &tally)),
            Err(failure) if kind == Kind::Colors => return Err(failure),
            Err(failure) => skipped.push(format!("Skipped {kind}: {failure}\n")),
        }
    }
    println!();
    skipped.iter().for_each(|line| println!("{line}"));
    Ok(())
}

/// A row of the table.
fn row(kind: Kind, kills: u32, tally: &Tally) -> Vec<String> {
    let Tally { acknowledged, lost, kills_with_loss, broken, disordered } = *tally;
    let numbers = [acknowledged, lost, kills_with_loss, broken, disordered].map(|number| table::grouped(number as u64));
    [kind.to_string(), kills.to_string()].into_iter().chain(numbers).collect()
}

/// Starts a server on a file, and has it killed so many times and started again on what is left.
fn kill_again_and_again(kind: Kind, kills: u32, programs: &Programs, scratch: &Scratch) -> Result<Tally, Failure> {
    let file = scratch.directory(&format!("kills of {kind}"))?.join("list.json");
    let mut ledger = Ledger::new(colors::list(COUNT));
    let mut tally = Tally::default();
    let mut random = fastrand::Rng::with_seed(SEED);
    let mut server = start_afresh(kind, programs, &file, ledger.list())?;
    for kill in 1..=kills {
        eprintln!("durability, {kind}: kill {kill}");
        let moment = MOMENT_MAX.mul_f64(random.f64());
        let acknowledged = load_and_kill(server, kill, moment)?;
        let count = acknowledged.iter().map(Vec::len).sum();
        let mut lost = count;
        if let Some((started, found)) = restart(kind, programs, &file)? {
            server = started;
            let audit = ledger.audit(&acknowledged, found);
            lost = audit.lost;
            tally.disordered += usize::from(audit.is_disordered);
        } else {
            server = start_afresh(kind, programs, &file, ledger.list())?;
            tally.broken += 1;
        }
        tally.acknowledged += count;
        tally.lost += lost;
        tally.kills_with_loss += usize::from(lost > 0);
    }
    Ok(tally)
}

/// Has writers create colors until the server is killed, this long after the first answer. Gives what each was told is created.
fn load_and_kill(server: Server, kill: u32, moment: Duration) -> Result<Vec<Vec<Color>>, Failure> {
    let (kind, address) = (server.kind, server.address);
    let (answered, first) = mpsc::channel();
    thread::scope(|scope| {
        let write = |writer| {
            let answered = answered.clone();
            scope.spawn(move || create_until_the_end(kind, address, &format!("kill-{kill}-{writer}"), &answered))
        };
        let writers: Vec<_> = (0..WRITERS).map(write).collect();
        drop(answered);
        // Without any answer there is nothing to lose, but something to be said: it is missing from the sum of the acknowledged.
        let _ = first.recv_timeout(FIRST_MAX);
        thread::sleep(moment);
        server.kill();
        writers.into_iter().map(|writer| writer.join().expect("a writer does not panic")).collect()
    })
}

/// Creates one color after the other until the connection breaks; gives those of which the server said that they are created.
///
/// # Errors
/// When the server refuses one.
fn create_until_the_end(kind: Kind, address: SocketAddr, prefix: &str, answered: &Sender<()>) -> Result<Vec<Color>, Failure> {
    let mut created = Vec::new();
    // The server may be killed before this writer's turn comes.
    let Ok(mut client) = Client::connect(address) else { return Ok(created) };
    for step in 0.. {
        let color = Color { name: format!("{prefix}-{step}"), value: format!("#{step:06x}") };
        let content = serde_json::to_string(&color).expect("strings always serialize");
        let Ok(answer) = client.ask(&request("POST", "/colors", Some(&content))) else { break };
        if answer.status != 201 {
            return Err(Failure::Wrong(kind, "POST /colors".to_owned(), answer.status));
        }
        created.push(color);
        // Only the first one is waited for.
        let _ = answered.send(());
    }
    Ok(created)
}

/// Starts a server on what is left, and asks for its list; nothing if the file is no list anymore.
///
/// # Errors
/// When it does not start for any other reason.
fn restart(kind: Kind, programs: &Programs, file: &Path) -> Result<Option<(Server, Vec<Color>)>, Failure> {
    let started = Server::start_on(kind, programs, file).and_then(|server| {
        let list = list_of(&server)?;
        Ok((server, list))
    });
    match started {
        Ok(both) => Ok(Some(both)),
        Err(failure) if is_list(&fs::read(file).unwrap_or_default()) => Err(failure),
        Err(_) => Ok(None),
    }
}

/// Starts a server on a new file with these colors.
fn start_afresh(kind: Kind, programs: &Programs, file: &Path, colors: &[Color]) -> Result<Server, Failure> {
    let content = if kind == Kind::Colors { colors::seed(colors) } else { json_server::database(colors) };
    fs::write(file, content).map_err(|error| Failure::File(file.to_owned(), error))?;
    Server::start_on(kind, programs, file)
}

/// The list that a server has.
fn list_of(server: &Server) -> Result<Vec<Color>, Failure> {
    let answer = Client::connect(server.address)?.ask(&request("GET", "/colors", None))?;
    let wrong = || Failure::Wrong(server.kind, "GET /colors".to_owned(), answer.status);
    // json-server has no envelope.
    let mut content = answer.json();
    let list = if content.is_array() { content } else { content["data"].take() };
    serde_json::from_value(list).map_err(|_| wrong())
}

/// Whether a file is a list still, as colors or as json-server keeps it.
fn is_list(content: &[u8]) -> bool {
    let content: Value = serde_json::from_slice(content).unwrap_or_default();
    content.is_array() || content["colors"].is_array()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_a_list_or_not() {
        let colors = colors::list(2);
        for whole in [colors::seed(&colors), json_server::database(&colors)] {
            assert!(is_list(whole.as_bytes()));
            assert!(!is_list(&whole.as_bytes()[..whole.len() - 1]));
        }
        for gone in ["", "{}", "null"] {
            assert!(!is_list(gone.as_bytes()), "{gone:?}");
        }
    }
}
