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
const COUNT: &str = "until nobody else is answered";
const CLOSED: &str = "closed after s";

/// More than colors takes, at its default limit of connections.
const COUNT_MAX: usize = 10_000;

/// How long a client that asks for a color waits for it.
const PATIENCE: Duration = Duration::from_secs(1);

/// Longer than the time-out of colors, by default.
const CLOSED_MAX: Duration = Duration::from_secs(40);

/// A request with little of its content: a program that reads the rest in a thread of a pool waits
/// there.
const PART: &[u8] = b"POST /colors HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 4096\r\n\r\n{";

pub(crate) fn print(args: &Args, programs: &Programs) -> Result<()> {
    let colors = colors(148);
    let contestants = start_all::<()>(args.kinds(), programs, Workload::Read, &colors)?;
    let closed: Vec<Result<Option<Duration>>> = thread::scope(|scope| {
        let begin = |contestant: &Contestant<()>| {
            let client = stall(&contestant.server);
            scope.spawn(move || client?.closed_within(CLOSED_MAX))
        };
        let threads: Vec<_> = contestants.iter().map(begin).collect();
        threads.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
    });
    let mut summary = Summary::new();
    for (Contestant { kind, server, .. }, closed) in contestants.iter().zip(closed) {
        eprintln!("stalled: {}", kind.name());
        let count = match count(server, &colors)? {
            Some(count) => count.to_string(),
            None => format!("over {}", number(COUNT_MAX as f64)),
        };
        let closed = match closed? {
            Some(time) => figure([time.as_secs_f64()]),
            None => format!("over {}", CLOSED_MAX.as_secs()),
        };
        summary.add(kind.name(), COUNT, count);
        summary.add(kind.name(), CLOSED, closed);
    }
    summary.print(SUMMARY_TITLE);
    Ok(())
}

fn stall(server: &Server) -> Result<Client> {
    let mut client = Client::connect(server.address)?;
    client.send_bytes(PART)?;
    Ok(client)
}

/// With how many stalled clients another one is not answered in time; `None` if it still is with
/// [`COUNT_MAX`] of them.
fn count(server: &Server, colors: &[Color]) -> Result<Option<usize>> {
    let read = Workload::Read.request(colors);
    let mut stalled = Vec::new();
    while stalled.len() < COUNT_MAX {
        stalled.push(stall(server)?);
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
