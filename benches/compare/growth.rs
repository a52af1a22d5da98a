//! What each operation costs colors as its list grows. Measures no other server, and no more load
//! than eight requests at once.

use std::iter;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::client::{Client, Request};
use crate::server::{Kind, Programs, Server};
use crate::table::{Table, number};
use crate::workload::{color, colors, to_json};

/// A request is sent on each of them before the first response is awaited.
const CONNECTIONS: usize = 8;

/// Colors that are created before as many are deleted, so that the list is never much longer than
/// the table says.
const BATCH: usize = 8 * CONNECTIONS;

const TITLES: &str = "colors    | start ms | RSS MiB | read one       | update         | read all       | create         | delete newest  | delete oldest ";

/// What requests of one kind took: how many they were, the server's CPU time in microseconds, and
/// the time until the last answer.
#[derive(Clone, Copy, Default)]
struct Spent(f64, f64, Duration);

pub(crate) fn print(programs: &Programs, seconds: u32) -> Result<()> {
    println!("\nServer CPU µs per request (requests/s), {CONNECTIONS} connections:\n");
    let table = Table::begin(TITLES, 0);
    for count in [100, 1_000, 10_000, 100_000, 1_000_000] {
        eprintln!("growth: {count} colors");
        let server = Server::start(Kind::Colors, programs, &colors(count), &[])?;
        let mut row = vec![
            count.to_string(),
            number(server.start_time.as_secs_f64() * 1e3),
            number(server.resident_mib()),
        ];
        for Spent(requests, cpu, time) in
            measure(&server, count, Duration::from_secs(seconds.into()))?
        {
            row.push(format!(
                "{} ({})",
                number(cpu / requests),
                number(requests / time.as_secs_f64())
            ));
        }
        table.row(row);
    }
    Ok(())
}

/// Repeats each operation for this time, in the order of the table.
fn measure(server: &Server, count: usize, time: Duration) -> Result<[Spent; 6]> {
    let mut clients =
        (0..CONNECTIONS).map(|_| Client::connect(server.address)).collect::<Result<Vec<_>>>()?;
    let mut spent = [Spent::default(); 6];
    let [read_one, update, read_all, create, newest, oldest] = &mut spent;
    let middle = format!("/colors/{}", color(count / 2).name);
    let put = Request::new("PUT", &middle, r##"{"value":"#112233"}"##);
    for (spent, request) in [
        (read_one, Request::new("GET", &middle, "")),
        (update, put),
        (read_all, Request::new("GET", "/colors", "")),
    ] {
        let deadline = Instant::now() + time;
        spent.send(
            server,
            &mut clients,
            iter::repeat(request).take_while(|_| Instant::now() < deadline),
        )?;
    }
    let creation = |place| Request::new("POST", "/colors", to_json(&color(place)));
    let deletion = |place| Request::new("DELETE", format!("/colors/{}", color(place).name), "");
    let deadline = Instant::now() + 3 * time;
    // The list always holds `count` colors, from the place `first` on; concurrent requests may
    // leave neighbors in another order.
    for first in (0..).step_by(BATCH).take_while(|_| Instant::now() < deadline) {
        let new = first + count..first + count + BATCH;
        create.send(server, &mut clients, new.clone().map(creation))?;
        newest.send(server, &mut clients, new.clone().rev().map(deletion))?;
        create.send(server, &mut clients, new.map(creation))?;
        oldest.send(server, &mut clients, (first..first + BATCH).map(deletion))?;
    }
    Ok(spent)
}

impl Spent {
    /// Sends requests, one on each connection at a time, and adds what they took.
    fn send(
        &mut self,
        server: &Server,
        clients: &mut [Client],
        mut requests: impl Iterator<Item = Request>,
    ) -> Result<()> {
        let (cpu, began) = (server.usage()?.cpu_us, Instant::now());
        while let Some(first) = requests.next() {
            let batch: Vec<Request> =
                iter::once(first).chain(requests.by_ref().take(clients.len() - 1)).collect();
            clients
                .iter_mut()
                .zip(&batch)
                .try_for_each(|(client, request)| client.send(request))?;
            clients
                .iter_mut()
                .zip(&batch)
                .try_for_each(|(client, _)| client.receive().map(drop))?;
            self.0 += batch.len() as f64;
        }
        self.1 += server.usage()?.cpu_us - cpu;
        self.2 += began.elapsed();
        Ok(())
    }
}
