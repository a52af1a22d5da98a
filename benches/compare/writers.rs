//! Writers that each wait for the answer to one change before they send the next, on a connection of their own. Print nothing.

use std::thread;
use std::time::{Duration, Instant};

use crate::client::{Client, request};
use crate::colors::Color;
use crate::failure::Failure;
use crate::kind::Kind;
use crate::servers::Server;
use crate::table;

/// What the writes of one run took.
#[derive(Debug)]
pub(crate) struct Writes {
    /// From the request to its answer, each.
    each: Vec<Duration>,
    /// From the first request to the last answer.
    time: Duration,
    /// CPU time of the server.
    cpu: Duration,
    /// Bytes that the server had written to the disk.
    written: u64,
}

impl Writes {
    /// How many they were.
    pub(crate) fn count(&self) -> u64 {
        self.each.len() as u64
    }

    /// Writes per second, of all writers together.
    pub(crate) fn rate(&self) -> f64 {
        self.count() as f64 / self.time.as_secs_f64()
    }

    /// Milliseconds that a writer waits for its answer; median.
    pub(crate) fn wait(&self) -> f64 {
        table::median(self.each.iter().map(|time| time.as_secs_f64() * 1e3))
    }

    /// CPU time per write, in microseconds.
    pub(crate) fn cost(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.count() as f64
    }

    /// KiB per write that went to the disk.
    pub(crate) fn kib(&self) -> f64 {
        self.written as f64 / 1024.0 / self.count() as f64
    }
}

/// Has so many writers change values for this time, each that of a color of its own, after one change each to warm up.
///
/// # Errors
/// When a change is not answered with 200.
pub(crate) fn run(server: &Server, colors: &[Color], count: usize, time: Duration) -> Result<Writes, Failure> {
    let mut writers = Vec::new();
    for number in 0..count {
        let target = format!("/colors/{}", colors[number * colors.len() / count].name);
        let mut writer = Writer { client: Client::connect(server.address)?, target, step: 0 };
        writer.write()?;
        writers.push(writer);
    }
    let (cpu, written) = (server.cpu()?, server.written());
    let began = Instant::now();
    let each = thread::scope(|scope| {
        let threads: Vec<_> = writers.into_iter().map(|writer| scope.spawn(move || writer.write_until(began + time))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a writer does not panic")).collect::<Result<Vec<_>, _>>()
    })?;
    let time = began.elapsed();
    Ok(Writes { each: each.concat(), time, cpu: server.cpu()? - cpu, written: server.written() - written })
}

/// One of them.
struct Writer {
    /// Its connection.
    client: Client,
    /// The path of its color.
    target: String,
    /// How many changes it has sent; each is to another value.
    step: usize,
}

impl Writer {
    /// Sends changes until this moment; gives what each took.
    fn write_until(mut self, deadline: Instant) -> Result<Vec<Duration>, Failure> {
        let mut each = Vec::new();
        let mut now = Instant::now();
        while now < deadline {
            self.write()?;
            let answered = Instant::now();
            each.push(answered - now);
            now = answered;
        }
        Ok(each)
    }

    /// Sends one change and waits for its answer.
    fn write(&mut self) -> Result<(), Failure> {
        self.step += 1;
        let content = format!(r##"{{"value":"#{:06x}"}}"##, self.step % (1 << 24));
        let answer = self.client.ask(&request("PUT", &self.target, Some(&content)))?;
        if answer.status == 200 { Ok(()) } else { Err(Failure::Wrong(Kind::Colors, format!("PUT {}", self.target), answer.status)) }
    }
}
