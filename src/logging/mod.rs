//! Log lines: how they look, how many a client can cause, and how they reach standard error.
//!
//! A slow reader of the log must not slow down the service: one thread writes the lines, from a bounded queue. Lines that do not fit are
//! dropped and counted.

use std::fmt::{self, Display, Write as _};
use std::io::{self, Write};
use std::iter::once;
use std::mem::{replace, take};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use log::{Level, LevelFilter, Log, Metadata, Record};
use simplelog::{ConfigBuilder, FormatItem, WriteLogger, format_description};
use tiny_http::{Method, StatusCode};

const QUEUE_LINES: usize = 1024;
const GATHER_TIME: Duration = Duration::from_millis(5); // after a write, so that a busy access log does not wake the thread for each line
const FLUSH_TIME: Duration = Duration::from_millis(500);
const CLIENT_WARNINGS_MAX: u64 = 5; // per second
const EXCERPT_CHARS: usize = 200; // after escaping

/// Times in UTC as in RFC 3339, with milliseconds: all are of one length.
const TIME_FORMAT: &[FormatItem<'_>] = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");

static QUEUE: OnceLock<SyncSender<Message>> = OnceLock::new();
static DROPPED: AtomicU64 = AtomicU64::new(0);
static WARNINGS: AtomicU64 = AtomicU64::new(0);
static CLIENT_WARNINGS: Mutex<Limiter> = Mutex::new(Limiter { second: None, said: 0, left_out: 0 });

/// What the thread that writes is sent.
enum Message {
    /// One or more whole lines.
    Lines(Vec<u8>),
    /// To be answered when everything before it is written.
    Flush(SyncSender<()>),
}

/// Starts logging at this level, panics included.
pub(crate) fn start(level: LevelFilter) -> io::Result<()> {
    let (queue, messages) = sync_channel(QUEUE_LINES);
    thread::Builder::new().name("log".to_owned()).spawn(move || write_forever(&messages))?;
    QUEUE.set(queue).map_err(|_| io::ErrorKind::AlreadyExists)?;
    log::set_boxed_logger(Box::new(logger(send))).expect("the logger is set once, here");
    log::set_max_level(level);
    // a client that causes one panic may cause many
    std::panic::set_hook(Box::new(|panic| log_limited(Level::Error, format_args!("{panic}"))));
    Ok(())
}

/// Logs why the process ends, whatever the log level is.
pub(crate) fn fail(why: &dyn Display) {
    if QUEUE.get().is_none() {
        return log_now(Level::Error, format_args!("{why}"));
    }
    log::set_max_level(log::max_level().max(LevelFilter::Error));
    log::error!("{why}");
    flush();
}

/// Waits until all lines are written, but for no more than [`FLUSH_TIME`]. Call it before the process ends.
pub(crate) fn flush() {
    let left_out = limiter().take_left_out();
    report_left_out(left_out);
    let (done, is_done) = sync_channel(1);
    let begun = Instant::now();
    while let Some(queue) = QUEUE.get()
        && begun.elapsed() < FLUSH_TIME
    {
        if queue.try_send(Message::Flush(done.clone())).is_ok() {
            // If it is not in time, the log is not read.
            let _ = is_done.recv_timeout(FLUSH_TIME.saturating_sub(begun.elapsed()));
            return;
        }
        sleep(GATHER_TIME);
    }
}

/// Logs a warning that any client can cause: at most [`CLIENT_WARNINGS_MAX`] per second; the others are counted.
pub(crate) fn client_warning(text: fmt::Arguments<'_>) {
    log_limited(Level::Warn, text);
}

fn log_limited(level: Level, text: fmt::Arguments<'_>) {
    if log::log_enabled!(level)
        && let Some(left_out) = limiter().admit(Instant::now())
    {
        report_left_out(left_out);
        log::log!(level, "{text}");
    }
}

/// How many lines were dropped, and how many warnings there were, those that were left out included.
pub(crate) fn counts() -> (u64, u64) {
    (DROPPED.load(Relaxed), WARNINGS.load(Relaxed) + limiter().left_out)
}

fn limiter() -> MutexGuard<'static, Limiter> {
    CLIENT_WARNINGS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn report_left_out(count: u64) {
    if count > 0 {
        // this line counts for one of them
        WARNINGS.fetch_add(count - 1, Relaxed);
        log::warn!("{count} more warnings about clients were left out");
    }
}

/// Logs a response. With the access log, when `begun` is given: client, method, target, status, bytes, microseconds, and the reason of an
/// error. Without it: errors alone, at debug. `client` may begin with the name of a token; `request` is `None` for bytes that are no request.
pub(crate) fn response(
    client: &str,
    request: Option<(&Method, &str)>,
    status: StatusCode,
    reason: &str,
    bytes: usize,
    begun: Option<Instant>,
) {
    let what =
        request.map_or_else(|| "-".to_owned(), |(method, target)| format!("{:.32} {}", method.as_str(), excerpt(without_query(target))));
    match begun.map(|begun| begun.elapsed().as_micros()) {
        Some(taken) if reason.is_empty() => log::info!(target: "access", "{client} {what} {} {bytes} {taken}us", status.0),
        Some(taken) => log::info!(target: "access", "{client} {what} {} {bytes} {taken}us {reason}", status.0),
        None => log::debug!("refused {client} {what} with {}: {reason}", status.0),
    }
}

/// The query, which the service ignores, may have a token (RFC 6750 §2.3), which does not belong in a log.
fn without_query(target: &str) -> &str {
    target.split('?').next().unwrap_or_default()
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

/// Sends lines to the thread that writes, if there is room.
fn send(lines: Vec<u8>) {
    if QUEUE.get().is_some_and(|queue| queue.try_send(Message::Lines(lines)).is_err()) {
        DROPPED.fetch_add(1, Relaxed);
    }
}

/// Writes lines; blocks for as long as that takes.
fn write(lines: Vec<u8>) {
    // There is nowhere to complain.
    let _ = io::stderr().write_all(&lines);
}

fn log_now(level: Level, text: fmt::Arguments<'_>) {
    logger(write).log(&Record::builder().level(level).args(text).build());
}

/// Writes what is in the queue, several lines at a time.
fn write_forever(messages: &Receiver<Message>) {
    let (mut lines, mut reported) = (Vec::new(), 0);
    while let Ok(first) = messages.recv() {
        let mut flushes = Vec::new();
        for message in once(first).chain(messages.try_iter().take(QUEUE_LINES)) {
            match message {
                Message::Lines(more) => lines.extend_from_slice(&more),
                Message::Flush(done) => flushes.push(done),
            }
        }
        write(take(&mut lines));
        let dropped = DROPPED.load(Relaxed);
        if dropped > reported && log::log_enabled!(Level::Warn) {
            let count = dropped - replace(&mut reported, dropped);
            log_now(Level::Warn, format_args!("{count} log lines were dropped: standard error was not read fast enough"));
        }
        for done in flushes {
            // The thread that waited has given up.
            let _ = done.send(());
        }
        sleep(GATHER_TIME);
    }
}

/// The warnings about clients in the current second.
struct Limiter {
    second: Option<Instant>,
    said: u64,
    left_out: u64,
}

impl Limiter {
    /// `None` if this warning is one too many; otherwise how many were left out before it.
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

/// Whether this stream goes to the journal, whose device and inode `JOURNAL_STREAM` has (systemd.exec(5)).
fn is_journal(stream: impl AsFd) -> bool {
    let identity = rustix::fs::fstat(stream).map(|file| format!("{}:{}", file.st_dev, file.st_ino));
    identity.is_ok_and(|identity| std::env::var_os("JOURNAL_STREAM").is_some_and(|journal| journal == *identity))
}

/// Counts warnings, and passes lines to `sink`. The level is set for the whole program, not here.
struct Logger {
    sink: fn(Vec<u8>),
    /// `None` for the journal, which adds time and program itself (sd-daemon(3)).
    plain: Option<Box<WriteLogger<Pieces>>>,
}

impl Log for Logger {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        if record.level() == Level::Warn {
            WARNINGS.fetch_add(1, Relaxed);
        }
        match &self.plain {
            Some(plain) => plain.log(record),
            None => (self.sink)(journal_lines(record).into_bytes()),
        }
    }

    fn flush(&self) {}
}

fn logger(sink: fn(Vec<u8>)) -> Logger {
    let mut config = ConfigBuilder::new();
    config.set_thread_level(LevelFilter::Off).set_target_level(LevelFilter::Off).set_location_level(LevelFilter::Off);
    config.set_time_level(LevelFilter::Error).set_time_format_custom(TIME_FORMAT);
    let plain = || WriteLogger::new(LevelFilter::Trace, config.build(), Pieces { line: Vec::new(), sink });
    Logger { sink, plain: (!is_journal(io::stderr())).then(plain) }
}

/// Joins the dozen pieces that simplelog writes for a line.
struct Pieces {
    line: Vec<u8>,
    sink: fn(Vec<u8>),
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.line.extend_from_slice(bytes);
        if self.line.ends_with(b"\n") {
            (self.sink)(take(&mut self.line));
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
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
    use time::OffsetDateTime;

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
    fn times_have_a_fixed_width() {
        let at = |milliseconds| (OffsetDateTime::UNIX_EPOCH + Duration::from_millis(milliseconds)).format(TIME_FORMAT).unwrap();
        assert_eq!([at(784_111_777_900), at(784_111_777_007)], ["1994-11-06T08:49:37.900Z", "1994-11-06T08:49:37.007Z"]);
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
