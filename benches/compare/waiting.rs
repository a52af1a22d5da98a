//! How soon clients have a change, and what they cost while nothing changes: clients that wait for
//! it (`Prefer: wait`), and clients that ask each second. One thread holds all their connections.
//! Judges nothing.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

use crate::Args;
use crate::client::{Client, Request};
use crate::server::{Kind, Programs, Server};
use crate::table::{Summary, Table, figure, number, spread};
use crate::workload::colors;

const COUNTS: [usize; 4] = [1, 100, 1000, 8000];

/// How long clients that poll leave between two requests.
const PERIOD: Duration = Duration::from_secs(1);

/// How long nothing changes while CPU time is counted, which is then told for a minute.
const IDLE: Duration = Duration::from_secs(2);

/// Who has not got a change after that time is not waited for.
const PATIENCE: Duration = Duration::from_secs(3);

pub(crate) const SUMMARY_TITLE: &str = "clients of one color";

const TITLES: &str = "clients | colors | server          | told ms             | PUT ms           | CPU s/idle minute | KiB/client | not told";

struct Member {
    stream: TcpStream,
    /// The place of its color in the list.
    color: usize,
    tag: String,
    received: Vec<u8>,
    is_asking: bool,
    is_told: bool,
}

struct Crowd<'a> {
    members: Vec<Member>,
    names: &'a [String],
    epoll: OwnedFd,
    events: Vec<Event>,
    waits: bool,
    /// When the member at this place asks next, of those that poll.
    next: (usize, Instant),
    /// The content that tells of the last change, and how many have it.
    wanted: String,
    told: usize,
}

pub(crate) fn print(args: &Args, programs: &Programs) -> Result<()> {
    println!("\nA change of one color, until all clients that show it have it:\n");
    let (table, mut summary) = (Table::begin(TITLES, 0), Summary::new());
    let list = colors(COUNTS[COUNTS.len() - 1] + 1);
    let names: Vec<String> = list.iter().map(|color| color.name.clone()).collect();
    let others = args
        .kinds()
        .filter(|kind| matches!(kind, Kind::Colors | Kind::Before | Kind::Axum | Kind::Actix));
    let contestants: Vec<(Kind, bool)> =
        [(Kind::Colors, true)].into_iter().chain(others.map(|kind| (kind, false))).collect();
    for count in COUNTS {
        for is_shared in [true, false] {
            for &(kind, waits) in &contestants {
                let name = format!("{} {}", kind.name(), if waits { "waits" } else { "polls" });
                let colors = if is_shared { 1 } else { count };
                eprintln!("waiting, {count} clients, {colors} colors: {name}");
                let server = Server::start(kind, programs, &list)?;
                let row = measure(args, &server, count, is_shared, waits, &names)?;
                if is_shared {
                    let clients = count.to_string();
                    summary.add(&clients, &format!("{name}: ms"), row[0].clone());
                    summary.add(&clients, &format!("{name}: CPU s/minute"), row[2].clone());
                }
                let words = [count.to_string(), colors.to_string(), name];
                table.row(words.into_iter().chain(row));
            }
        }
    }
    summary.print(SUMMARY_TITLE);
    Ok(())
}

/// The figures of a row.
fn measure(
    args: &Args,
    server: &Server,
    count: usize,
    is_shared: bool,
    waits: bool,
    names: &[String],
) -> Result<[String; 5]> {
    let empty = server.resident_mib();
    let mut crowd = Crowd::new(server, count, is_shared, waits, names)?;
    crowd.run_for(PERIOD)?;
    let before = server.usage()?;
    crowd.run_for(IDLE)?;
    let used = server.usage()? - before;
    let per_minute = used.cpu_us / 1e6 * 60.0 / IDLE.as_secs_f64();
    let memory = (server.resident_mib() - empty) * 1024.0 / count as f64;
    let (mut times, mut answers, mut missed) = (Vec::new(), Vec::new(), 0);
    for round in 1..=args.rounds {
        // at moments that are spread over the period; who waits asks again meanwhile
        crowd.run_for(PERIOD * (2 * round - 1) / (2 * args.rounds))?;
        let (time, answer, not_told) = crowd.change(server, is_shared, round)?;
        times.push(time);
        answers.push(answer);
        missed = missed.max(not_told);
        if missed > 0 {
            break;
        }
    }
    let not_told = if missed > 0 { missed.to_string() } else { String::new() };
    let told = if missed > 0 { number(f64::NAN) } else { spread(times) };
    Ok([told, spread(answers), figure([per_minute]), figure([memory]), not_told])
}

impl<'a> Crowd<'a> {
    fn new(
        server: &Server,
        count: usize,
        is_shared: bool,
        waits: bool,
        names: &'a [String],
    ) -> Result<Self> {
        let mut client = Client::connect(server.address)?;
        let mut tag_of = |color: usize| -> Result<String> {
            let request = Request::new("GET", format!("/colors/{}", names[color]), "");
            Ok(tag_in(&client.ask(&request)?.0))
        };
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let shared_tag = tag_of(0)?;
        let mut members = Vec::with_capacity(count);
        for place in 0..count {
            let color = if is_shared { 0 } else { place };
            let stream = TcpStream::connect(server.address)?;
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            epoll::add(&epoll, &stream, EventData::new_u64(place as u64), EventFlags::IN)?;
            let tag = if is_shared || !waits { shared_tag.clone() } else { tag_of(color)? };
            let received = Vec::new();
            members.push(Member { stream, color, tag, received, is_asking: false, is_told: false });
        }
        let events = Vec::with_capacity(1024);
        let next = (0, Instant::now());
        let wanted = "no change so far".to_owned();
        Ok(Self { members, names, epoll, events, waits, next, wanted, told: 0 })
    }

    /// Sends what is due, and receives what comes, until it is `end`; those who wait and have been
    /// told ask again.
    fn run_for(&mut self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        if self.waits {
            for place in 0..self.members.len() {
                self.ask(place)?;
            }
        }
        while Instant::now() < end {
            self.step(end)?;
        }
        Ok(())
    }

    /// Changes the color of the first member; returns the milliseconds until all have it who show
    /// it, those of the answer, and how many had not got it in [`PATIENCE`].
    fn change(&mut self, server: &Server, is_shared: bool, round: u32) -> Result<(f64, f64, u32)> {
        let value = format!("#0000{round:02}");
        let content = format!(r#"{{"value":"{value}"}}"#);
        let request = Request::new("PUT", format!("/colors/{}", self.names[0]), content);
        let mut client = Client::connect(server.address)?;
        self.wanted = value;
        self.told = 0;
        for member in &mut self.members {
            member.is_told = false;
        }
        let count = if is_shared { self.members.len() } else { 1 };
        let began = Instant::now();
        let putter = thread::spawn(move || -> Result<f64> {
            client.ask(&request)?;
            Ok(began.elapsed().as_secs_f64() * 1e3)
        });
        while self.told < count && began.elapsed() < PATIENCE {
            self.step(began + PATIENCE)?;
        }
        let time = began.elapsed().as_secs_f64() * 1e3;
        let answer = putter.join().expect("a client does not panic")?;
        Ok((time, answer, (count - self.told) as u32))
    }

    /// Sends what is due, and waits for an event, at most until `end`.
    fn step(&mut self, end: Instant) -> Result<()> {
        let mut until = end;
        if !self.waits {
            let now = Instant::now();
            while self.next.1 <= now {
                self.ask(self.next.0)?;
                self.next.0 = (self.next.0 + 1) % self.members.len();
                self.next.1 += PERIOD / self.members.len() as u32;
            }
            until = until.min(self.next.1);
        }
        let timeout = until.saturating_duration_since(Instant::now()).try_into()?;
        epoll::wait(&self.epoll, spare_capacity(&mut self.events), Some(&timeout))?;
        for event in std::mem::take(&mut self.events) {
            self.receive(event.data.u64() as usize)?;
        }
        self.events.reserve(1024);
        Ok(())
    }

    /// Has a member send its request, unless the answer to its last one has not come.
    fn ask(&mut self, place: usize) -> Result<()> {
        let member = &mut self.members[place];
        if member.is_asking {
            return Ok(());
        }
        let fields = if self.waits {
            format!("If-None-Match: {}\r\nPrefer: wait=300\r\n", member.tag)
        } else {
            String::new()
        };
        let name = &self.names[member.color];
        let request = format!("GET /colors/{name} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n");
        member.stream.write_all(request.as_bytes()).context("a request")?;
        member.is_asking = true;
        Ok(())
    }

    fn receive(&mut self, place: usize) -> Result<()> {
        let member = &mut self.members[place];
        let mut bytes = [0; 4096];
        match member.stream.read(&mut bytes) {
            Ok(0) => anyhow::bail!("a connection was closed"),
            Ok(length) => member.received.extend_from_slice(&bytes[..length]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let text = std::str::from_utf8(&member.received)?;
        let Some((head, content)) = text.split_once("\r\n\r\n") else { return Ok(()) };
        ensure!(head.starts_with("HTTP/1.1 200"), "answered with {head:?}");
        let length: usize = field(head, "content-length").context("a length")?.parse()?;
        if content.len() < length {
            return Ok(());
        }
        let has_it = content.contains(&self.wanted);
        if self.waits {
            member.tag = tag_in(head.as_bytes());
        }
        member.received = Vec::new();
        member.is_asking = false;
        if has_it && !member.is_told {
            member.is_told = true;
            self.told += 1;
        }
        Ok(())
    }
}

/// The value of a field in a head.
fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = head.lines().filter_map(|line| line.split_once(':'));
    fields.find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

/// The entity tag in a head; empty if it has none.
fn tag_in(head: &[u8]) -> String {
    let head = String::from_utf8_lossy(head);
    field(&head, "etag").unwrap_or_default().to_owned()
}
