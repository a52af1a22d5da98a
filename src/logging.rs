//! Log lines: how they look, how warnings are limited, and how they reach standard error.
//!
//! [`PANICS`], and each kind of warning that any client can cause, have a [`Limiter`] of their own,
//! so that no kind uses up the lines of another. All else, the access log included, is logged by
//! the macros of `log`, without a limit.
//!
//! A slow reader of the log must not slow down the service. So one thread writes the lines, from a
//! bounded queue. Lines that do not fit into the queue are dropped and counted.

use std::fmt::{self, Display};
use std::io::{self, LineWriter, Write};
use std::iter::once;
use std::mem::{replace, take};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use log::{Level, LevelFilter, Log, Metadata, Record};
use simplelog::{ConfigBuilder, FormatItem, WriteLogger, format_description};

const QUEUE_LINES: usize = 1024;
const LINE_BYTES: usize = 16 * 1024; // longer lines are written in parts
/// How long the thread that writes sleeps after each write, so that a busy access log does not wake
/// it for each line. Also the time between two looks of [`end`] whether all lines are written.
const GATHER_TIME: Duration = Duration::from_millis(5);
/// Longest wait of [`end`] for the lines to be written. If that takes longer, nobody reads them.
const FLUSH_TIME: Duration = Duration::from_millis(500);
/// Longest wait of [`end`] if one of the lines says why the process fails.
const FAILURE_FLUSH_TIME: Duration = Duration::from_secs(2);
const CLIENT_WARNINGS_MAX: u64 = 5; // of one kind, per second
const PANICS_MAX: u64 = 100; // per second
const EXCERPT_CHARS: usize = 200; // after escaping

/// UTC in the form of RFC 3339, with milliseconds, so that all times have the same length.
const TIME_FORMAT: &[FormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");

/// Whole lines, or parts of long ones, for the thread that writes.
static QUEUE: OnceLock<SyncSender<Vec<u8>>> = OnceLock::new();
/// How many entries of [`QUEUE`] wait or are being written.
static UNWRITTEN: AtomicUsize = AtomicUsize::new(0);
static DROPPED: AtomicU64 = AtomicU64::new(0);
static WARNINGS: AtomicU64 = AtomicU64::new(0);

/// Panics. Clients should not be able to cause any; one that finds a way may cause many.
pub(crate) static PANICS: Limiter = Limiter::new(Level::Error, PANICS_MAX, "faults of the service");
pub(crate) static WRONG_TOKENS: Limiter =
    Limiter::new(Level::Warn, CLIENT_WARNINGS_MAX, "warnings about wrong tokens");
/// Requests refused with 403: changes from other origins, and requests for foreign hosts.
pub(crate) static FORBIDDEN: Limiter =
    Limiter::new(Level::Warn, CLIENT_WARNINGS_MAX, "warnings about requests refused with 403");
/// Connections that accept(2) or epoll refuses, most likely for lack of descriptors or memory.
pub(crate) static CONNECTIONS: Limiter =
    Limiter::new(Level::Warn, CLIENT_WARNINGS_MAX, "warnings about connections");

/// Starts logging at this level, panics included. Fails if the thread cannot be started.
pub(crate) fn start(level: LevelFilter) -> io::Result<()> {
    let logger = Logger::new(Queue, is_journal());
    log::set_boxed_logger(Box::new(logger)).expect("the logger is set once, here");
    log::set_max_level(level);
    std::panic::set_hook(Box::new(|panic| PANICS.log(format_args!("{panic}"))));
    let (queue, lines) = sync_channel(QUEUE_LINES);
    thread::Builder::new().name("log".to_owned()).spawn(move || write_forever(&lines))?;
    QUEUE.set(queue).expect("the queue is set once, here");
    Ok(())
}

/// Logs `failure`, if there is one, whatever the log level is. Then waits until all lines are
/// written, no longer than [`FLUSH_TIME`], or [`FAILURE_FLUSH_TIME`] after a failure. Call this
/// before the process ends.
pub(crate) fn end(failure: Option<&impl Display>) {
    if let Some(failure) = failure {
        log::set_max_level(log::max_level().max(LevelFilter::Error));
        log::error!("{failure}");
    }
    let longest = if failure.is_some() { FAILURE_FLUSH_TIME } else { FLUSH_TIME };
    let deadline = Instant::now() + longest;
    while UNWRITTEN.load(Relaxed) > 0 && Instant::now() < deadline {
        sleep(GATHER_TIME);
    }
}

/// The numbers of dropped lines and of warnings, those included that a [`Limiter`] left out.
pub(crate) fn counts() -> (u64, u64) {
    (DROPPED.load(Relaxed), WARNINGS.load(Relaxed))
}

/// Quotes what a client sent, for a log line: escaped as by `{:?}`, and cut, with `…` behind it,
/// after [`EXCERPT_CHARS`] characters.
pub(crate) fn excerpt(text: &str) -> String {
    let mut length = 0;
    let end = text.char_indices().find_map(|(at, c)| {
        length += c.escape_debug().count();
        (length > EXCERPT_CHARS).then_some(at)
    });
    match end {
        Some(end) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}

/// Lets a number of lines per second through, and counts the others.
pub(crate) struct Limiter {
    level: Level,
    /// What kind of lines these are, in the plural, to say how many were left out.
    what: &'static str,
    rate: Mutex<Rate>,
}

impl Limiter {
    const fn new(level: Level, max: u64, what: &'static str) -> Self {
        Self { level, what, rate: Mutex::new(Rate { max, second: None, admitted: 0, left_out: 0 }) }
    }

    /// Logs a line, and how many were left out before it. Leaves it out if there were too many in
    /// this second.
    pub(crate) fn log(&self, text: fmt::Arguments<'_>) {
        if !log::log_enabled!(self.level) {
            return;
        }
        let admitted = {
            let mut rate = self.rate.lock().unwrap_or_else(PoisonError::into_inner);
            rate.admit(Instant::now())
        };
        if let Some(left_out) = admitted {
            match left_out {
                0 => log::log!(self.level, "{text}"),
                _ => log::log!(self.level, "{text} ({left_out} more {} were left out)", self.what),
            }
        } else if self.level == Level::Warn {
            WARNINGS.fetch_add(1, Relaxed);
        }
    }
}

/// How many lines were admitted in the current second, and how many were left out since the last.
struct Rate {
    max: u64,
    /// When the current second began; `None` before the first line.
    second: Option<Instant>,
    admitted: u64,
    left_out: u64,
}

impl Rate {
    /// `None` if this line is one too many; otherwise how many lines were left out before it.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        if self.second.is_none_or(|begun| now.duration_since(begun) >= Duration::from_secs(1)) {
            self.second = Some(now);
            self.admitted = 0;
        }
        if self.admitted == self.max {
            self.left_out += 1;
            return None;
        }
        self.admitted += 1;
        Some(take(&mut self.left_out))
    }
}

/// Writes to [`QUEUE`]. The logger writes whole lines at a time, or parts of a long one.
struct Queue;

impl Write for Queue {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        // Without a queue there is only one line: that the thread could not be started.
        let Some(queue) = QUEUE.get() else { return io::stderr().write(lines) };
        UNWRITTEN.fetch_add(1, Relaxed);
        if queue.try_send(lines.to_vec()).is_err() {
            UNWRITTEN.fetch_sub(1, Relaxed);
            DROPPED.fetch_add(1, Relaxed);
        }
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes what is in the queue to standard error, several lines at a time.
fn write_forever(lines: &Receiver<Vec<u8>>) {
    // Writes to standard error and not to the queue, which is full when lines are dropped.
    let logger = Logger::new(io::stderr(), is_journal());
    let mut reported = 0;
    while let Ok(first) = lines.recv() {
        let taken: Vec<_> = once(first).chain(lines.try_iter().take(QUEUE_LINES)).collect();
        // A failure of the log cannot be logged.
        let _ = io::stderr().write_all(&taken.concat());
        let dropped = DROPPED.load(Relaxed);
        if dropped > reported && log::log_enabled!(Level::Warn) {
            let count = dropped - replace(&mut reported, dropped);
            let what = "log lines were dropped: standard error was not read fast enough";
            let text = format_args!("{count} {what}");
            logger.log(&Record::builder().level(Level::Warn).args(text).build());
        }
        UNWRITTEN.fetch_sub(taken.len(), Relaxed);
        sleep(GATHER_TIME);
    }
}

/// Whether standard error goes to the journal: its device and inode are then those that
/// `JOURNAL_STREAM` has (systemd.exec(5)).
fn is_journal() -> bool {
    let Ok(file) = rustix::fs::fstat(io::stderr()) else { return false };
    let identity = format!("{}:{}", file.st_dev, file.st_ino);
    std::env::var("JOURNAL_STREAM").is_ok_and(|journal| journal == identity)
}

/// Counts warnings, and has simplelog make lines. The level is set for the whole program, not here.
struct Logger {
    /// simplelog writes a line in a dozen pieces, which the [`LineWriter`] joins.
    lines: Box<WriteLogger<LineWriter<Box<dyn Write + Send>>>>,
    is_journal: bool,
}

impl Logger {
    /// Lines for the journal have neither time nor level: the journal adds the time, and takes the
    /// level from the priority.
    fn new(to: impl Write + Send + 'static, is_journal: bool) -> Self {
        let time_and_level = if is_journal { LevelFilter::Off } else { LevelFilter::Error };
        let config = ConfigBuilder::new()
            .set_time_level(time_and_level)
            .set_max_level(time_and_level)
            .set_thread_level(LevelFilter::Off)
            .set_target_level(LevelFilter::Off)
            .set_location_level(LevelFilter::Off)
            .set_time_format_custom(TIME_FORMAT)
            .build();
        let to: Box<dyn Write + Send> = Box::new(to);
        let to = LineWriter::with_capacity(LINE_BYTES, to);
        Self { lines: WriteLogger::new(LevelFilter::Trace, config, to), is_journal }
    }
}

impl Log for Logger {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        // Leaves out ureq's own lines: the follower logs what matters.
        if record.target().starts_with("ureq") {
            return;
        }
        if record.level() == Level::Warn {
            WARNINGS.fetch_add(1, Relaxed);
        }
        let level = record.level();
        // Format here: simplelog would format under its lock, and the hook that logs the panic of
        // an argument would wait for that lock forever.
        let mut text = record.args().to_string();
        if self.is_journal {
            text = with_priority(level, &text);
        }
        self.lines.log(&Record::builder().level(level).args(format_args!("{text}")).build());
    }

    fn flush(&self) {}
}

/// Puts the priority before each line, since the journal makes an entry of each (sd-daemon(3)).
fn with_priority(level: Level, text: &str) -> String {
    let priority = match level {
        Level::Error => "<3>",
        Level::Warn => "<4>",
        Level::Info => "<6>",
        Level::Debug | Level::Trace => "<7>",
    };
    format!("{priority}{}", text.replace('\n', &format!("\n{priority}")))
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use time::OffsetDateTime;

    use super::*;

    /// What comes of the lines that a logger is given.
    fn logged(is_journal: bool, log: impl FnOnce(&dyn Log)) -> String {
        let (mut lines, writer) = io::pipe().unwrap();
        let logger = Logger::new(writer, is_journal);
        log(&logger);
        drop(logger);
        io::read_to_string(&mut lines).unwrap()
    }

    #[test]
    fn every_line_of_the_journal_has_the_priority_of_its_level() {
        for (level, expected) in [
            (Level::Error, "<3>a\n<3>b\n"),
            (Level::Warn, "<4>a\n<4>b\n"),
            (Level::Info, "<6>a\n<6>b\n"),
            (Level::Debug, "<7>a\n<7>b\n"),
        ] {
            let text = logged(true, |logger| {
                logger.log(&Record::builder().level(level).args(format_args!("a\nb")).build());
            });
            assert_eq!(text, expected);
        }
    }

    /// Logs a line, as the hook of a panic does, and panics.
    struct Faulty<'a>(&'a dyn Log);

    impl Display for Faulty<'_> {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.log(&Record::builder().args(format_args!("by the hook")).build());
            panic!("an argument of a log line");
        }
    }

    #[test]
    fn an_argument_that_panics_leaves_the_log_usable() {
        let text = logged(true, |logger| {
            let log = || {
                logger.log(&Record::builder().args(format_args!("{}", Faulty(logger))).build());
            };
            assert!(catch_unwind(AssertUnwindSafe(log)).is_err());
            logger.log(&Record::builder().args(format_args!("afterwards")).build());
        });
        assert_eq!(text, "<6>by the hook\n<6>afterwards\n");
    }

    #[test]
    fn times_have_a_fixed_width() {
        let at = |milliseconds| {
            (OffsetDateTime::UNIX_EPOCH + Duration::from_millis(milliseconds))
                .format(TIME_FORMAT)
                .unwrap()
        };
        assert_eq!(
            [at(784_111_777_900), at(784_111_777_007)],
            ["1994-11-06T08:49:37.900Z", "1994-11-06T08:49:37.007Z"]
        );
        // simplelog has no error for a clock that is wrong by thousands of years: it would panic.
        assert_eq!(at(253_402_300_800_000), "+10000-01-01T00:00:00.000Z");
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
    fn a_number_of_lines_per_second_is_admitted_and_the_others_are_counted() {
        let mut rate = Rate { max: 5, second: None, admitted: 0, left_out: 0 };
        let start = Instant::now();
        for _ in 0..5 {
            assert_eq!(rate.admit(start), Some(0));
        }
        assert_eq!(rate.admit(start), None);
        assert_eq!(rate.admit(start + Duration::from_millis(999)), None);
        assert_eq!(rate.admit(start + Duration::from_secs(1)), Some(2));
        assert_eq!(rate.admit(start + Duration::from_secs(1)), Some(0));
    }
}
