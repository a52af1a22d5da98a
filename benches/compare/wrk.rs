//! Runs wrk and reads its results. Knows nothing of what the script sends.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::failure::Failure;
use crate::programs;

/// What one run of wrk saw.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Run {
    /// Requests answered.
    pub(crate) requests: u64,
    /// How long it took.
    pub(crate) duration: Duration,
    /// 99 of 100 requests were answered within this time.
    pub(crate) p99: Duration,
    /// What went wrong.
    pub(crate) errors: Errors,
}

/// What went wrong in runs of wrk.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Errors {
    /// Connections that failed.
    pub(crate) sockets: u64,
    /// Answers with a status of 400 and up.
    pub(crate) statuses: u64,
    /// Answers that came too late.
    pub(crate) timeouts: u64,
}

/// The installed wrk.
#[derive(Debug)]
pub(crate) struct Wrk(PathBuf);

impl Wrk {
    /// Finds it.
    ///
    /// # Errors
    /// When it is not installed.
    pub(crate) fn find() -> Result<Self, Failure> {
        programs::installed("wrk", "wrk").map(Self)
    }

    /// Keeps so many connections busy for so many seconds; one thread of wrk per core, as far as there are connections.
    pub(crate) fn run(&self, script: &Path, address: SocketAddr, connections: u32, seconds: u32) -> Result<Run, Failure> {
        let cores = thread::available_parallelism().map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(u32::MAX));
        let mut command = Command::new(&self.0);
        command.args(["--threads", &connections.min(cores).to_string(), "--connections", &connections.to_string()]);
        command.args(["--duration", &format!("{seconds}s"), "--timeout", "10s", "--latency", "--script"]).arg(script);
        command.arg(format!("http://{address}"));
        parse(&programs::output(command)?).ok_or(Failure::Unreadable("wrk", "results"))
    }
}

/// Reads the line that ends every script's output.
fn parse(output: &str) -> Option<Run> {
    let line = output.lines().find_map(|line| line.strip_prefix("measured "))?;
    let numbers: Vec<u64> = line.split(' ').map(|number| number.parse().ok()).collect::<Option<_>>()?;
    let [requests, duration, p99, sockets, statuses, timeouts] = numbers[..] else { return None };
    let errors = Errors { sockets, statuses, timeouts };
    Some(Run { requests, duration: Duration::from_micros(duration), p99: Duration::from_micros(p99), errors })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_the_line_of_the_script() {
        let run = Run {
            requests: 7,
            duration: Duration::from_secs(1),
            p99: Duration::from_micros(250),
            errors: Errors { sockets: 1, statuses: 2, timeouts: 3 },
        };
        assert_eq!(parse("Running 1s test\nmeasured 7 1000000 250 1 2 3\n"), Some(run));
        for output in ["", "measured", "measured 1 2 3 4 5\n", "measured 1 2 3 4 5 x\n"] {
            assert_eq!(parse(output), None, "{output:?}");
        }
    }
}
