//! Log lines: how they look, how many a client can cause, and how they reach standard error. Decides nothing else about what is logged.
//!
//! No thread that serves waits for whoever reads the log. Lines go into a bounded queue, one thread writes them, and lines that do not fit
//! are dropped and counted.

use std::fmt::{self, Display, Write as _};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use log::{Level, LevelFilter, Log, Metadata, Record};
use rustix::event::{PollFd, PollFlags, Timespec};
use simplelog::{ConfigBuilder, WriteLogger};

use crate::message::Status;
use crate::threads;

const QUEUE_BYTES: usize = 256 * 1024; // some 2,000 lines of the access log; the lines being written come on top
const WRITE_BYTES: usize = 4096; // PIPE_BUF of pipe(7): a write of that many is never mixed with another process's
const GATHER_TIME: Duration = Duration::from_millis(5); // after a write, so that a busy access log does not wake a thread for each line
const FLUSH_TIME: Duration = Duration::from_millis(500);
const CLIENT_WARNINGS_MAX: u64 = 5; // per second
const EXCERPT_CHARS: usize = 200; // after escaping

static QUEUE: Queue =
    Queue { state: Mutex::new(State { lines: Vec::new(), dropped: 0, is_writing: false, has_writer: false }), changed: Condvar::new() };
static CLIENT_WARNINGS: Mutex<Limiter> = Mutex::new(Limiter { second: None, said: 0, left_out: 0 });

/// Starts logging at this level, panics included.
///
/// # Errors
/// When the system refuses the thread that writes. [`flush`] writes then.
pub(crate) fn start(level: LevelFilter) -> io::Result<()> {
    let is_journal = is_journal(io::stderr());
    log::set_boxed_logger(logger(is_journal, QUEUE_BYTES)).expect("the logger is set once, here");
    log::set_max_level(level);
    std::panic::set_hook(Box::new(|panic| {
        if !threads::is_quiet() {
            log::error!("{panic}");
        }
    }));
    threads::spawn("log", move || write_forever(&*logger(is_journal, usize::MAX)))?;
    QUEUE.lock().has_writer = true;
    Ok(())
}

/// Logs why the service ends, at whatever level, and waits a moment until the line is out.
pub(crate) fn fail(why: &dyn Display) {
    log::set_max_level(log::max_level().max(LevelFilter::Error));
    log::error!("{why}");
    flush();
}

/// Waits until all lines are out, but for no more than [`FLUSH_TIME`]. Call it before the process ends.
pub(crate) fn flush() {
    let left_out = CLIENT_WARNINGS.lock().unwrap_or_else(PoisonError::into_inner).take_left_out();
    say_left_out(left_out);
    let is_busy = |state: &mut State| state.has_writer && (state.is_writing || !state.lines.is_empty());
    let waited = QUEUE.changed.wait_timeout_while(QUEUE.lock(), FLUSH_TIME, is_busy);
    let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
    if !state.has_writer {
        let patience = Timespec::try_from(FLUSH_TIME).expect("half a second fits");
        write_lines(&std::mem::take(&mut state.lines), Some(&patience));
    }
}

/// Logs a warning that clients can cause at will: a few per second, the others are counted.
pub(crate) fn client_warning(text: fmt::Arguments<'_>) {
    let admitted = CLIENT_WARNINGS.lock().unwrap_or_else(PoisonError::into_inner).admit(Instant::now());
    if let Some(left_out) = admitted {
        say_left_out(left_out);
        log::warn!("{text}");
    }
}

fn say_left_out(count: u64) {
    if count > 0 {
        log::warn!("{count} more warnings about clients were left out");
    }
}

/// What a client sent, for a log line: escaped as by `{:?}`, and cut with `…` if that is longer than 200 characters.
pub(crate) fn excerpt(text: &str) -> impl Display + '_ {
    Excerpt(text)
}

struct Excerpt<'a>(&'a str);

impl Display for Excerpt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut length = 0;
        let end = self.0.char_indices().find_map(|(at, c)| {
            length += c.escape_debug().count();
            (length > EXCERPT_CHARS).then_some(at)
        });
        match end {
            Some(end) => write!(f, "{:?}…", &self.0[..end]),
            None => write!(f, "{:?}", self.0),
        }
    }
}

/// Writes the access log's line: client, method and target, status, bytes sent, microseconds taken.
pub(crate) fn access(client: Option<SocketAddr>, what: &dyn Display, status: Status, bytes: usize, begun: Instant) {
    let (code, taken) = (status.code(), begun.elapsed().as_micros());
    match client {
        Some(client) => log::info!(target: "access", "{client} {what} {code} {bytes} {taken}us"),
        None => log::info!(target: "access", "unix {what} {code} {bytes} {taken}us"),
    }
}

/// Lines on their way to standard error.
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// Whole lines, not taken by the thread that writes yet.
    lines: Vec<u8>,
    /// Lines that did not fit behind those.
    dropped: u64,
    is_writing: bool,
    has_writer: bool,
}

impl Queue {
    /// Nothing that can panic or wait happens under this lock, so it is held for the time of a copy.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds whole lines, unless there would be more than `limit` bytes then.
    fn push(&self, lines: &[u8], limit: usize) {
        let mut state = self.lock();
        // the count stands for a gap at one place, so a shorter line must not slip in behind it
        if state.lines.len() + lines.len() > limit || (state.dropped > 0 && limit == QUEUE_BYTES) {
            state.dropped += 1;
            return;
        }
        state.lines.extend_from_slice(lines);
        let wakes = !state.is_writing;
        drop(state);
        if wakes {
            self.changed.notify_all();
        }
    }
}

/// Writes what is in the queue; `own` logs into it without a limit.
fn write_forever(own: &dyn Log) {
    let mut batch = Vec::new();
    loop {
        let dropped = {
            let waited = QUEUE.changed.wait_while(QUEUE.lock(), |state| state.lines.is_empty());
            let mut state = waited.unwrap_or_else(PoisonError::into_inner);
            std::mem::swap(&mut batch, &mut state.lines);
            state.is_writing = true;
            std::mem::take(&mut state.dropped)
        };
        if dropped > 0 {
            let text = format_args!("{dropped} log lines were dropped: standard error was not read fast enough");
            own.log(&Record::builder().level(Level::Warn).args(text).build());
        }
        write_lines(&batch, None);
        batch.clear();
        std::thread::sleep(GATHER_TIME);
        QUEUE.lock().is_writing = false;
        QUEUE.changed.notify_all();
    }
}

/// Writes whole lines, several at a time. Gives up when standard error takes nothing for as long as `patience` lasts, or fails: there is
/// nowhere to complain. The lock of [`io::Stderr`] is not taken, so that nobody waits for a thread that waits here.
fn write_lines(mut lines: &[u8], patience: Option<&Timespec>) {
    let stderr = io::stderr();
    while !lines.is_empty() {
        let whole = lines.iter().take(WRITE_BYTES).rposition(|byte| *byte == b'\n');
        let end = whole.or_else(|| lines.iter().position(|byte| *byte == b'\n')).map_or(lines.len(), |newline| newline + 1);
        if rustix::event::poll(&mut [PollFd::new(&stderr, PollFlags::OUT)], patience) == Ok(0) {
            return;
        }
        match rustix::io::write(&stderr, &lines[..end]) {
            Ok(written) => lines = &lines[written..],
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            Err(_) => return,
        }
    }
}

/// How many warnings about clients there were in this second.
struct Limiter {
    second: Option<Instant>,
    said: u64,
    left_out: u64,
}

impl Limiter {
    /// Whether another one may be logged now; if so, gives how many were left out before it.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        if self.second.is_none_or(|begun| now.duration_since(begun) >= Duration::from_secs(1)) {
            (self.second, self.said) = (Some(now), 0);
        }
        if self.said == CLIENT_WARNINGS_MAX {
            self.left_out += 1;
            return None;
        }
        self.said += 1;
        Some(self.take_left_out())
    }

    fn take_left_out(&mut self) -> u64 {
        std::mem::take(&mut self.left_out)
    }
}

/// Whether this stream goes to the journal: systemd.exec(5) has it name the device and inode of its end in `JOURNAL_STREAM`.
fn is_journal(stream: impl AsFd) -> bool {
    let identity = rustix::fs::fstat(stream).map(|file| format!("{}:{}", file.st_dev, file.st_ino));
    identity.is_ok_and(|identity| std::env::var_os("JOURNAL_STREAM").is_some_and(|journal| journal == *identity))
}

/// Puts lines into the queue as long as it has no more than `limit` bytes. The level is set for the whole program, not here.
fn logger(is_journal: bool, limit: usize) -> Box<dyn Log> {
    if is_journal {
        return Box::new(JournalLogger { limit });
    }
    let mut config = ConfigBuilder::new();
    config.set_thread_level(LevelFilter::Off).set_target_level(LevelFilter::Off).set_location_level(LevelFilter::Off);
    config.set_time_level(LevelFilter::Error).set_time_format_rfc3339();
    WriteLogger::new(LevelFilter::Trace, config.build(), Lines { pieces: Vec::new(), limit })
}

/// Makes lines of the dozen pieces that simplelog writes for each.
struct Lines {
    pieces: Vec<u8>,
    limit: usize,
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.pieces.extend_from_slice(bytes);
        if self.pieces.ends_with(b"\n") {
            QUEUE.push(&self.pieces, self.limit);
            self.pieces.clear();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes lines that begin with their priority; time and program are the journal's to add (sd-daemon(3)).
struct JournalLogger {
    limit: usize,
}

impl Log for JournalLogger {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        QUEUE.push(journal_lines(record).as_bytes(), self.limit);
    }

    fn flush(&self) {}
}

/// Each line of a record has its own priority, since the journal takes each for an entry.
fn journal_lines(record: &Record<'_>) -> String {
    let priority = match record.level() {
        Level::Error => 3,
        Level::Warn => 4,
        Level::Info => 6,
        Level::Debug | Level::Trace => 7,
    };
    record.args().to_string().lines().fold(String::new(), |mut lines, line| {
        writeln!(lines, "<{priority}>{line}").expect("a string takes all");
        lines
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_has_the_priority_of_its_level() {
        for (level, expected) in
            [(Level::Error, "<3>a\n<3>b\n"), (Level::Warn, "<4>a\n<4>b\n"), (Level::Info, "<6>a\n<6>b\n"), (Level::Debug, "<7>a\n<7>b\n")]
        {
            assert_eq!(journal_lines(&Record::builder().level(level).args(format_args!("a\nb")).build()), expected);
        }
    }

    #[test]
    fn an_excerpt_is_escaped_and_no_longer_than_200_characters() {
        let check = |text: &str, expected: String| assert_eq!(excerpt(text).to_string(), expected);
        check("a\"\n", r#""a\"\n""#.to_owned());
        check(&"é".repeat(200), format!("\"{}\"", "é".repeat(200)));
        check(&"é".repeat(201), format!("\"{}\"…", "é".repeat(200)));
        check(&"\n".repeat(201), format!("\"{}\"…", "\\n".repeat(100)));
    }

    #[test]
    fn five_warnings_per_second_are_admitted_and_the_others_counted() {
        let mut limiter = Limiter { second: None, said: 0, left_out: 0 };
        let start = Instant::now();
        for _ in 0..5 {
            assert_eq!(limiter.admit(start), Some(0));
        }
        assert_eq!(limiter.admit(start), None);
        assert_eq!(limiter.admit(start + Duration::from_millis(999)), None);
        assert_eq!(limiter.admit(start + Duration::from_secs(1)), Some(2));
        assert_eq!(limiter.take_left_out(), 0);
    }
}
