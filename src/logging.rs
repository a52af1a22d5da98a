//! Where log lines go: standard error, one line each, with the time unless a journal adds it.

use log::LevelFilter;
use simplelog::{ConfigBuilder, WriteLogger};

/// Starts logging at this level.
pub(crate) fn start(level: LevelFilter) {
    let mut config = ConfigBuilder::new();
    config.set_thread_level(LevelFilter::Off).set_target_level(LevelFilter::Off).set_location_level(LevelFilter::Off);
    // systemd.exec(5): set when standard error goes to the journal, which keeps the time of every line itself
    let is_journal = std::env::var_os("JOURNAL_STREAM").is_some();
    config.set_time_level(if is_journal { LevelFilter::Off } else { LevelFilter::Error });
    config.set_time_format_rfc3339();
    WriteLogger::init(level, config.build(), std::io::stderr()).expect("the logger is set once, here");
    std::panic::set_hook(Box::new(|panic| log::error!("{panic}")));
}
