//! Clients that stand still within a request: how many of them it takes until a server answers
//! nobody else, and after how long it closes one. Judges nothing.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::Args;
use crate::client::Client;
use crate::rates::{Contestant, start_all};
use crate::server::{Programs, Server};
use crate::table::{Summary, figure, number};
use crate::workload::{Color, Workload, colors};

pub(crate) const SUMMARY_TITLE: &str = "clients that stand still";

/// Where a client stands still, and what it has sent by then.
const SHAPES: [(&str, &[u8]); 2] = [
    ("half a head", b"GET /colors HTTP/1.1\r\nHost: loc"),
    // A program that reads the rest in a thread of a pool waits there.
    (
        "half a content",
        b"POST /colors HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 4096\r\n\r\n{",
    ),
];

/// More than colors takes, at its default limit of connections.
const COUNT_MAX: usize = 10_000;

/// How long a client that asks for a color waits for it.
const PATIENCE: Duration = Duration::from_secs(1);

/// Longer than the time-out of colors, by default.
const CLOSED_MAX: Duration = Duration::from_secs(40);

pub(crate) fn print(args: &Args, programs: &Programs) -> Result<()> {
    let colors = colors(148);
    let mut summary = Summary::new();
    for (shape, part) in SHAPES {
        let contestants = start_all::<()>(args.kinds(), programs, Workload::Read, &colors)?;
        let closed = thread::scope(|scope| {
            let begin = |contestant: &Contestant<()>| {
                let client = stall(&contestant.server, part);
                scope.spawn(move || client?.closed_within(CLOSED_MAX))
            };
            let threads: Vec<_> = contestants.iter().map(begin).collect();
            let ends = threads.into_iter().map(|thread| thread.join().expect("it does not panic"));
            ends.collect::<Result<Vec<_>>>()
        })?;
        for (Contestant { kind, server, .. }, closed) in contestants.iter().zip(closed) {
            eprintln!("stalled, {shape}: {}", kind.name());
            let count = match count(server, part, &colors)? {
                Some(count) => count.to_string(),
                None => format!("over {}", number(COUNT_MAX as f64)),
            };
            let closed = match closed {
                Some(time) => figure([time.as_secs_f64()]),
                None => format!("over {}", CLOSED_MAX.as_secs()),
            };
            summary.add(&format!("{shape}: clients until others wait"), kind.name(), count);
            summary.add(&format!("{shape}: seconds until it is closed"), kind.name(), closed);
        }
    }
    summary.print(SUMMARY_TITLE);
    Ok(())
}

fn stall(server: &Server, part: &[u8]) -> Result<Client> {
    let mut client = Client::connect(server.address)?;
    client.send_bytes(part)?;
    Ok(client)
}

/// With how many stalled clients another one is not answered in time; `None` if it still is with
/// [`COUNT_MAX`] of them.
fn count(server: &Server, part: &[u8], colors: &[Color]) -> Result<Option<usize>> {
    let read = Workload::Read.request(colors);
    let mut stalled = Vec::new();
    while stalled.len() < COUNT_MAX {
        stalled.push(stall(server, part)?);
        thread::sleep(Duration::from_millis(1)); // until the server has read it
        let mut other = Client::connect(server.address)?;
        other.send(&read)?;
        if other.receive_within(PATIENCE).is_err() {
            return Ok(Some(stalled.len()));
        }
    }
    Ok(None)
}

impl Client {
    /// After how long the server closes the connection, whatever it sends before that.
    fn closed_within(mut self, time: Duration) -> Result<Option<Duration>> {
        let begin = Instant::now();
        while let Some(left) = time.checked_sub(begin.elapsed()) {
            if self.receive_line_within(left).is_ok_and(|line| line.is_empty()) {
                return Ok(Some(begin.elapsed()));
            }
        }
        Ok(None)
    }
}
