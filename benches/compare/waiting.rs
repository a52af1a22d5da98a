//! How long a read of one color takes while other clients change a long list that is kept on the disk. Measures colors only.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::client::{Client, Request};
use crate::server::{Kind, Programs, Server};
use crate::table::{Table, median, number, percentile};
use crate::workload::{color, colors};

/// From one read to the next. Those that would have been sent while one waits count as waiting, too.
const PACE: Duration = Duration::from_millis(1);

const TITLES: &str = "others send           | server | colors  | their time ms | p50 ms | p99 ms | worst ms";

pub(crate) fn print(programs: &Programs, seconds: u32) -> Result<()> {
    println!("\nA read of one color while another client sends these requests, one after the other:\n");
    let table = Table::begin(TITLES, 2);
    for count in [200_000, 1_000_000] {
        let colors = colors(count);
        let kinds = [Kind::Colors].into_iter().chain(programs.before.iter().map(|_| Kind::Before));
        let start = |kind| Ok((kind, Server::start_colors(Command::new(programs.program(kind)?), &colors, true)?));
        let servers = kinds.map(start).collect::<Result<Vec<_>>>()?;
        let put = |name: &str, value| Request::new("PUT", format!("/colors/{name}"), format!(r##"{{"value":"{value}"}}"##));
        let list = |method| Request::new(method, "/colors", "");
        // in turn, since nothing is saved when a color has the value already
        let [one, other] = ["#112233", "#445566"].map(|value| put(&color(count / 3).name, value));
        let loads = [
            ("nothing", vec![]),
            ("PUT of a missing name", vec![put("missing", "#112233")]),
            ("PUT", vec![one.clone(), other.clone()]),
            ("PUT, HEAD of the list", vec![one.clone(), list("HEAD"), other.clone(), list("HEAD")]),
            ("PUT, GET of the list", vec![one, list("GET"), other, list("GET")]),
        ];
        for (name, requests) in &loads {
            for (kind, server) in &servers {
                eprintln!("waiting: {count} colors, {name}, {}", kind.name());
                let (theirs, reads) = measure(server, count, requests, Duration::from_secs(seconds.into()))?;
                let figures = [median(theirs), percentile(0.5, reads.clone()), percentile(0.99, reads.clone()), percentile(1.0, reads)];
                let words = [(*name).to_owned(), kind.name().to_owned(), count.to_string()];
                table.row(words.into_iter().chain(figures.map(number)));
            }
        }
    }
    Ok(())
}

/// What the last of these requests took each time, and what each read took meanwhile, in milliseconds.
fn measure(server: &Server, count: usize, requests: &[Request], time: Duration) -> Result<(Vec<f64>, Vec<f64>)> {
    let is_over = AtomicBool::new(requests.is_empty());
    let read = Request::new("GET", format!("/colors/{}", color(count / 2).name), "");
    thread::scope(|scope| {
        let others = scope.spawn(|| repeat(server, requests, || is_over.load(Relaxed)));
        let reads = read_at_pace(server, &read, time);
        is_over.store(true, Relaxed);
        Ok((others.join().expect("a client does not panic")?, reads?))
    })
}

/// Gives what each read took from the moment on when it was due.
fn read_at_pace(server: &Server, read: &Request, time: Duration) -> Result<Vec<f64>> {
    let mut client = Client::connect(server.address)?;
    let (mut due, mut times) = (Instant::now(), Vec::new());
    let end = due + time;
    while due < end {
        let early = due.saturating_duration_since(Instant::now());
        thread::sleep(early);
        let began = if early.is_zero() { due } else { Instant::now() };
        client.ask(read)?;
        times.push(began.elapsed().as_secs_f64() * 1e3);
        due += PACE;
    }
    Ok(times)
}

/// Sends the requests in turn, all of them at least once if there are any; gives what the last of each turn took.
fn repeat(server: &Server, requests: &[Request], is_over: impl Fn() -> bool) -> Result<Vec<f64>> {
    let mut client = Client::connect(server.address)?;
    let mut times = Vec::new();
    while !is_over() {
        let mut began = Instant::now();
        for request in requests {
            began = Instant::now();
            client.send(request)?;
            client.receive_any(request.method == "HEAD")?;
        }
        times.push(began.elapsed().as_secs_f64() * 1e3);
    }
    Ok(times)
}
