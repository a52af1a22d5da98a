//! Latency at fixed rates: requests become due at even distances, however slowly the server
//! answers, and the time of each counts from when it was due. So a stall shows in all requests that
//! came due meanwhile, and not only in the one that was sent. Judges nothing.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::thread::set_current_timer_slack;

use crate::Args;
use crate::rates::{Contestant, start_all};
use crate::server::{Programs, Server, Usage};
use crate::table::{Summary, Table, median, number, percentile, range};
use crate::workload::{Workload, colors};

/// For requests that are due while others wait for their responses; at these rates, more are never
/// in use unless the server stalls.
const CONNECTIONS: u32 = 64;

const TITLES: &str = "due/s  | colors  | conn. | server    | answered/s | p50 µs | min–max         | p99 µs | min–max         | p99.9 µs | \
    min–max         | CPU µs/request | switches/request";

/// The percentiles of the columns.
const PARTS: [f64; 3] = [0.5, 0.99, 0.999];

/// A measured run of one server.
struct Run {
    /// Of the request of each of [`PARTS`], in microseconds.
    times: [f64; 3],
    /// Responses per second, CPU µs/request and context switches/request.
    figures: [f64; 3],
}

pub(crate) fn print(args: &Args, programs: &Programs) -> Result<()> {
    // The default of the kernel, 50 µs, would be most of what is measured.
    set_current_timer_slack(NonZeroU64::new(1))?;
    println!("\nReads of one color at fixed rates, each timed from when it was due:\n");
    let (table, mut summary) = (Table::begin(TITLES, 0), Summary::new());
    for &count in args.colors_count(&[148]) {
        let colors = &colors(count as usize)[..];
        let request = Workload::Read.requests(colors)[0].0.bytes();
        for &connections in args.connections(&[CONNECTIONS]) {
            for &rate in &args.rates {
                let mut contestants = start_all(args.kinds(), programs, Workload::Read, colors)?;
                for round in 1..=args.rounds {
                    for Contestant { kind, server, length, runs } in &mut contestants {
                        eprintln!(
                            "latency, {rate}/s, {count} colors, {connections} connections, round {round}: {}",
                            kind.name()
                        );
                        let run =
                            |seconds| send(server, &request, *length, connections, (rate, seconds));
                        run(1)?; // to warm up
                        runs.push(run(args.seconds)?);
                    }
                }
                for Contestant { kind, runs, .. } in &contestants {
                    let name = kind.name();
                    let words = [rate, count, connections].map(|number| number.to_string());
                    table.row(words.into_iter().chain([name.to_owned()]).chain(row(runs)));
                    for (title, part) in [("p50 µs", 0), ("p99 µs", 1)] {
                        let time = median(runs.iter().map(|run| run.times[part]));
                        let row = number(rate.into());
                        summary.add(&row, &format!("{name}: {title}"), number(time));
                    }
                }
            }
        }
    }
    summary.print("reads/s");
    Ok(())
}

fn row(runs: &[Run]) -> impl Iterator<Item = String> {
    let [rate, cpu, switches] =
        [0, 1, 2].map(|figure| number(median(runs.iter().map(|run| run.figures[figure]))));
    let times = [0, 1, 2].map(|part| runs.iter().map(move |run| run.times[part]));
    let times =
        times.map(|times| [number(median(times.clone())), range(times)]).into_iter().flatten();
    [rate].into_iter().chain(times).chain([cpu, switches])
}

/// Sends requests at a rate for some seconds, and receives responses of this length.
fn send(
    server: &Server,
    request: &[u8],
    length: usize,
    connections: u32,
    (rate, seconds): (u32, u32),
) -> Result<Run> {
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    let mut sockets = (0..connections)
        .map(|_| Ok(TcpStream::connect(server.address)?))
        .collect::<Result<Vec<_>>>()?;
    for (index, socket) in (0..).zip(&sockets) {
        socket.set_read_timeout(Some(Duration::from_secs(10)))?; // a response may be another one, and shorter
        epoll::add(&epoll, socket, EventData::new_u64(index), EventFlags::IN)?;
    }
    let mut idle: VecDeque<usize> = (0..sockets.len()).collect();
    let (mut events, mut response) = (Vec::with_capacity(sockets.len()), vec![0; length]);
    let count = (rate * seconds) as usize;
    let mut times = Vec::with_capacity(count);
    let (before, began) = (server.usage()?, Instant::now());
    let due = |request: usize| began + Duration::from_secs(1) * request as u32 / rate;
    let (mut sent, mut due_of) = (0, vec![began; sockets.len()]);
    while times.len() < count {
        while sent < count
            && due(sent) <= Instant::now()
            && let Some(connection) = idle.pop_front()
        {
            sockets[connection].write_all(request)?;
            due_of[connection] = due(sent);
            sent += 1;
        }
        let time = (sent < count && !idle.is_empty())
            .then(|| due(sent).saturating_duration_since(Instant::now()));
        epoll::wait(
            &epoll,
            spare_capacity(&mut events),
            time.map(|time| time.try_into()).transpose()?.as_ref(),
        )?;
        for event in events.drain(..) {
            let connection = event.data.u64() as usize;
            sockets[connection].read_exact(&mut response)?;
            times.push(due_of[connection].elapsed().as_secs_f64() * 1e6);
            ensure!(
                response.starts_with(b"HTTP/1.1 200"),
                "answered with {:?}",
                String::from_utf8_lossy(&response)
            );
            idle.push_back(connection);
        }
    }
    let (answers, took) = (times.len() as f64, began.elapsed());
    let Usage { cpu_us, switches } = server.usage()? - before;
    let times = PARTS.map(|part| percentile(part, times.iter().copied()));
    Ok(Run { times, figures: [answers / took.as_secs_f64(), cpu_us / answers, switches / answers] })
}
