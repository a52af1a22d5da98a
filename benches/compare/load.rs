//! Sends requests on many connections, from one thread, and times each. Judges nothing.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use crate::server::{Server, Usage};
use crate::table::percentile;

/// How long no server takes for a response.
const PATIENCE: Duration = Duration::from_secs(10);

/// How a response begins that tells of success: of HTTP, and of Redis.
const SUCCESS: [&[u8]; 3] = [b"HTTP/1.1 20", b"$7", b"+OK"];

/// When requests are sent.
#[derive(Clone, Copy)]
pub(crate) enum Pace {
    /// Each client sends the next one when the one before is answered.
    OneAfterAnother,
    /// So many a second become due, at even distances, however slowly the server answers. The time
    /// of each counts from then, so that a stall shows in all that came due meanwhile.
    Rate(u32),
}

pub(crate) struct Load<'a> {
    /// Sent in turn.
    pub(crate) requests: &'a [Vec<u8>],
    /// Of each response, in bytes.
    pub(crate) length: usize,
    pub(crate) connections: u32,
    pub(crate) pace: Pace,
}

/// What was measured.
pub(crate) struct Run {
    /// Responses per second.
    pub(crate) rate: f64,
    /// From a request to its response, in milliseconds: the median, p99 and p99.9.
    pub(crate) times: [f64; 3],
    /// Of the server, per request.
    pub(crate) usage: Usage,
    /// Of the server, right after the run.
    pub(crate) resident_mib: f64,
}

struct Clients<'a> {
    load: &'a Load<'a>,
    began: Instant,
    end: Instant,
    sockets: Vec<TcpStream>,
    /// Those that wait for no response.
    idle: VecDeque<usize>,
    /// Of each: when its request was due, and how many bytes of the response are to come.
    awaited: Vec<(Instant, usize)>,
    sent: usize,
    /// In milliseconds.
    times: Vec<f64>,
}

impl Load<'_> {
    /// Fails if a response has another length or does not tell of success.
    pub(crate) fn run(&self, server: &Server, time: Duration) -> Result<Run> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let mut bytes = vec![0; self.length];
        let mut sockets = Vec::new();
        for index in 0..self.connections {
            let mut socket = TcpStream::connect(server.address)?;
            socket.set_nodelay(true)?;
            // One after the other: of several that come at once, tiny_http 0.12 leaves some without
            // a thread, and never answers them.
            socket.set_read_timeout(Some(PATIENCE))?;
            socket.write_all(&self.requests[0])?;
            socket.read_exact(&mut bytes)?;
            epoll::add(&epoll, &socket, EventData::new_u64(index.into()), EventFlags::IN)?;
            sockets.push(socket);
        }
        let before = server.usage()?;
        let began = Instant::now();
        let mut clients = Clients {
            load: self,
            began,
            end: began + time,
            idle: (0..sockets.len()).collect(),
            awaited: vec![(began, 0); sockets.len()],
            sockets,
            sent: 0,
            times: Vec::new(),
        };
        let mut events = Vec::with_capacity(1024);
        while let Some(time) = clients.send()? {
            epoll::wait(&epoll, spare_capacity(&mut events), Some(&time.try_into()?))?;
            ensure!(!events.is_empty() || time < PATIENCE, "no response comes");
            for event in events.drain(..) {
                clients.receive(event.data.u64() as usize, &mut bytes)?;
                clients.send()?;
            }
        }
        let answers = clients.times.len() as f64;
        let rate = answers / began.elapsed().as_secs_f64();
        let Usage { cpu_us, switches } = server.usage()? - before;
        let usage = Usage { cpu_us: cpu_us / answers, switches: switches / answers };
        let times = [0.5, 0.99, 0.999].map(|part| percentile(part, clients.times.iter().copied()));
        Ok(Run { rate, times, usage, resident_mib: server.resident_mib() })
    }
}

impl Clients<'_> {
    /// Sends what is due. Returns how long to wait for a response at most, or `None` when all of
    /// them have come.
    fn send(&mut self) -> Result<Option<Duration>> {
        while let Some(&client) = self.idle.front() {
            let now = Instant::now();
            let due = match self.load.pace {
                Pace::OneAfterAnother => now,
                Pace::Rate(rate) => self.began + Duration::from_secs(1) * self.sent as u32 / rate,
            };
            if due >= self.end {
                break;
            }
            if due > now {
                return Ok(Some(due - now));
            }
            let requests = self.load.requests;
            self.sockets[client].write_all(&requests[self.sent % requests.len()])?;
            self.awaited[client] = (due, self.load.length);
            self.idle.pop_front();
            self.sent += 1;
        }
        Ok((self.times.len() < self.sent).then_some(PATIENCE))
    }

    /// Receives a response, or a part of it.
    fn receive(&mut self, client: usize, bytes: &mut [u8]) -> Result<()> {
        let (due, left) = &mut self.awaited[client];
        let is_begin = *left == self.load.length;
        let received = self.sockets[client].read(&mut bytes[..*left])?;
        ensure!(received > 0, "a connection was closed, or a response is longer than the others");
        ensure!(
            !is_begin
                || SUCCESS
                    .iter()
                    .any(|begin| begin.starts_with(&bytes[..received.min(begin.len())])),
            "answered with {:?}",
            String::from_utf8_lossy(&bytes[..received])
        );
        *left -= received;
        if *left == 0 {
            self.times.push(due.elapsed().as_secs_f64() * 1e3);
            self.idle.push_back(client);
        }
        Ok(())
    }
}
