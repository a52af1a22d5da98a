//! Log lines: where they go, which is standard error, with time and level or as the journal wants them, and how the access log spells a
//! request. Decides nothing about what is logged.

use std::fmt::{Display, Write as _};
use std::io::{self, LineWriter, Write as _};
use std::os::fd::AsFd;
use std::time::Instant;

use log::{Level, LevelFilter, Log, Metadata, Record};
use simplelog::{ConfigBuilder, WriteLogger};

use tiny_http::StatusCode;

/// Bytes that a log line has at most, to be written in one go.
const LINE_BYTES: usize = 8192;

/// Starts logging at this level.
pub(crate) fn start(level: LevelFilter) {
    if is_journal(io::stderr()) {
        log::set_logger(&JournalLogger).map(|()| log::set_max_level(level)).expect("the logger is set once, here");
    } else {
        let mut config = ConfigBuilder::new();
        config.set_thread_level(LevelFilter::Off).set_target_level(LevelFilter::Off).set_location_level(LevelFilter::Off);
        config.set_time_level(LevelFilter::Error).set_time_format_rfc3339();
        // written a line at a time, unless it is very long: simplelog writes a dozen pieces of it
        WriteLogger::init(level, config.build(), LineWriter::with_capacity(LINE_BYTES, io::stderr()))
            .expect("the logger is set once, here");
    }
    std::panic::set_hook(Box::new(|panic| log::error!("{panic}")));
}

/// Writes the access log's line: client, method and target, status, bytes sent, microseconds taken.
pub(crate) fn access(client: &dyn Display, what: &dyn Display, status: StatusCode, bytes: usize, begun: Instant) {
    let (code, taken) = (status.0, begun.elapsed().as_micros());
    log::info!(target: "access", "{client} {what} {code} {bytes} {taken}us");
}

/// Whether this stream goes to the journal: systemd.exec(5) has it name the device and inode of its end in `JOURNAL_STREAM`.
fn is_journal(stream: impl AsFd) -> bool {
    let identity = rustix::fs::fstat(stream).map(|file| format!("{}:{}", file.st_dev, file.st_ino));
    identity.is_ok_and(|identity| std::env::var_os("JOURNAL_STREAM").is_some_and(|journal| journal == *identity))
}

/// Writes lines that begin with their priority; time and program are the journal's to add (sd-daemon(3)).
struct JournalLogger;

impl Log for JournalLogger {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        // the level is set for all
        true
    }

    fn log(&self, record: &Record<'_>) {
        // One write, so that lines of two threads never mix; there is nowhere to complain when it fails.
        let _ = io::stderr().write_all(spell(record).as_bytes());
    }

    fn flush(&self) {}
}

/// The lines of a record; each has its own priority, since the journal takes each for an entry.
fn spell(record: &Record<'_>) -> String {
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
            assert_eq!(spell(&Record::builder().level(level).args(format_args!("a\nb")).build()), expected);
        }
    }
}
