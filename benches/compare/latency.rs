//! Latency at fixed rates: requests become due at even distances, however slowly the server
//! answers, and the time of each counts from when it was due. So a stall shows in all requests that
//! came due meanwhile, and not only in the one that was sent. Judges nothing.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::thread::set_current_timer_slack;

use crate::Args;
use crate::client::{Client, Request};
use crate::contest::{Contestant, start_all};
use crate::server::{Programs, Server, Usage};
use crate::table::{Table, median, number, percentile, range};
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
    // A change needs more than a server of files.
    let workload = if args.changes { Workload::Update } else { Workload::ReadOne };
    let kinds = || args.kinds().filter(|kind| kind.serves(workload));
    println!("\nReads of one color at fixed rates, each timed from when it was due:\n");
    let table = Table::begin(TITLES, 0);
    for &count in args.colors_count(&[148]) {
        let colors = &colors(count as usize)[..];
        let changes = args.changes.then(|| {
            [Workload::Update, Workload::ReadAll]
                .map(|workload| workload.requests(colors).remove(0).0)
        });
        for &connections in args.connections(&[CONNECTIONS]) {
            for &rate in &args.rates {
                let mut contestants = start_all(kinds(), programs, Workload::ReadOne, colors)?;
                for round in 1..=args.rounds {
                    for Contestant { kind, server, response, runs } in &mut contestants {
                        eprintln!(
                            "latency, {rate}/s, {count} colors, {connections} connections, round {round}: {}",
                            kind.name()
                        );
                        let request = &Workload::ReadOne.requests(colors)[0].0;
                        let run = |seconds| {
                            measure(
                                server,
                                request,
                                response.len(),
                                connections,
                                (rate, seconds),
                                changes.as_ref(),
                            )
                        };
                        run(1)?; // to warm up
                        runs.push(run(args.seconds)?);
                    }
                }
                for Contestant { kind, runs, .. } in &contestants {
                    let words = [
                        rate.to_string(),
                        count.to_string(),
                        connections.to_string(),
                        kind.name().to_owned(),
                    ];
                    table.row(words.into_iter().chain(row(runs)));
                }
            }
        }
    }
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

/// Sends requests at a rate for some seconds, and receives responses of this length, while another
/// client sends `changes`, if there are any.
fn measure(
    server: &Server,
    request: &Request,
    length: usize,
    connections: u32,
    pace: (u32, u32),
    changes: Option<&[Request; 2]>,
) -> Result<Run> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let changes = changes
            .map(|changes| scope.spawn(|| repeat(server, changes, &is_over, &AtomicU32::new(0))));
        let run = send(server, &request.bytes(), length, connections, pace);
        is_over.store(true, Relaxed);
        changes.map_or(Ok(()), |changes| changes.join().expect("a client does not panic"))?;
        run
    })
}

/// Changes a color and reads the list, one after the other; counts the lists.
pub(crate) fn repeat(
    server: &Server,
    [put, get]: &[Request; 2],
    is_over: &AtomicBool,
    count: &AtomicU32,
) -> Result<()> {
    let mut client = Client::connect(server.address)?;
    for number in (0..).take_while(|_| !is_over.load(Relaxed)) {
        // a color that has the value already is not changed
        client.ask(&Request {
            content: format!(r##"{{"value":"#{:06x}"}}"##, number % 0x0100_0000),
            ..put.clone()
        })?;
        client.ask(get)?;
        count.fetch_add(1, Relaxed);
    }
    Ok(())
}

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
