//! What SIGTERM, SIGINT and SIGHUP do: end the service after what is under way, or the start at once.
//!
//! The handlers are there before anything takes time: the kernel drops signals without a handler for process 1 of a container.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::process::exit;
use std::sync::{Arc, Mutex, PoisonError};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;

use crate::{logging, threads};

const EXIT_CUT_SHORT: i32 = 1;

/// How far the process is, as signals are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Loading,
    Serving,
    /// A signal that counts has come: SIGHUP does not, since a terminal that is closed may send it several times.
    Ending,
}

/// A signal gets to the accept loop as one byte, its number, that can be read from `events`.
pub(crate) struct Stop {
    phase: Arc<Mutex<Phase>>,
    events: UnixStream,
}

impl Stop {
    /// From here on a signal ends the process with exit code 0, as long as it does not serve.
    ///
    /// # Errors
    /// When the system has no descriptor or thread left.
    pub(crate) fn on_signals() -> io::Result<Self> {
        let (events, mut sender) = UnixStream::pair()?;
        // one byte is enough, and a signal must not wait for the accept loop
        sender.set_nonblocking(true)?;
        let wanted = [SIGTERM, SIGINT].into_iter().chain((!is_ignored(SIGHUP)).then_some(SIGHUP));
        let mut signals = Signals::new(wanted)?;
        let phase = Arc::new(Mutex::new(Phase::Loading));
        let stop = Self { phase: Arc::clone(&phase), events };
        threads::spawn("signals", move || {
            for signal in signals.forever() {
                let mut phase = phase.lock().unwrap_or_else(PoisonError::into_inner);
                // SIGHUP would be told apart here, if it is to mean something else
                match *phase {
                    // the lock is kept, so that the start does not get any further
                    Phase::Loading => end("stopped before it listened", log::Level::Info, 0),
                    Phase::Ending if signal != SIGHUP => end("ended at once by a second signal", log::Level::Warn, EXIT_CUT_SHORT),
                    Phase::Serving if signal != SIGHUP => *phase = Phase::Ending,
                    Phase::Serving | Phase::Ending => {}
                }
                // The accept loop has ended, or has not read the bytes before this one: it knows.
                let _ = sender.write(&[signal.to_le_bytes()[0]]);
            }
        })?;
        Ok(stop)
    }

    /// From here on signals are events. Gives the descriptor that becomes readable with the first.
    pub(crate) fn serve(&self) -> &UnixStream {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner) = Phase::Serving;
        &self.events
    }
}

fn end(why: &str, level: log::Level, code: i32) -> ! {
    log::log!(level, "{why}");
    logging::flush();
    exit(code)
}

/// Makes a file size limit an error of the write, and not a signal that ends the process.
pub(crate) fn survive_file_size_limits() -> io::Result<()> {
    // Nobody reads the flag: that the signal is caught is all it is for.
    signal_hook::flag::register(SIGXFSZ, Arc::default()).map(drop)
}

/// Whether the parent process has had this signal ignored, as nohup(1) does (proc_pid_status(5)).
fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}
