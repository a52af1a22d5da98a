//! What the service counts, and the text that Prometheus reads.
//!
//! Each counter here is written by one thread, and summed when `/metrics` is read: workers share no
//! cache line for counting.

use std::fmt::{Display, Write as _};
use std::fs;
use std::iter;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::{Resource, getrlimit};
use tiny_http::{Method, StatusCode};

use crate::connection_counts::ConnectionCounts;
use crate::logging;
use crate::store::DatabaseStatus;

/// The labels of methods. All others share one: a client must not be able to create time series.
const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "other"];

/// Why the service has closed a connection, as a label; the rest are closed by their clients, or
/// after a last response.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Closing {
    /// It was idle for the keep-alive time, or had no first request.
    Idle,
    /// A request was not there in time.
    Request,
    /// The client did not read its response.
    Unread,
    /// It was reading an old list, and those took too much memory.
    OldList,
    /// There was no room for it.
    NoRoom,
}

/// The labels of [`Closing`], in its order.
const CLOSINGS: [&str; 5] = ["idle", "request", "unread", "old_list", "no_room"];

impl Closing {
    pub(crate) fn label(self) -> &'static str {
        CLOSINGS[self as usize]
    }
}

/// The classes of final statuses (RFC 9110 §15).
const CLASSES: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];

/// The upper bound of a histogram's first bucket in nanoseconds: a read of one color takes less.
/// Each further bound is twice the one before.
const FIRST_BOUND: u64 = 10_000;

/// The last bound is 10.5 s, for a sync of a slow disk.
const BOUNDS: usize = 21;

/// A number that one thread counts up and every thread may read.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds without a locked instruction. Only for the one thread that writes it.
    pub(crate) fn add(&self, count: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(count), Relaxed);
    }

    pub(crate) fn read(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// How often something took how long.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    /// One for each bound, not cumulative, and one for what took longer.
    buckets: [Counter; BOUNDS + 1],
    nanoseconds: Counter,
}

impl Histogram {
    /// Records that each of `count` things took `time`.
    pub(crate) fn add(&self, count: u64, time: Duration) {
        let nanoseconds = time.as_nanos() as u64;
        let bucket = u64::BITS - (nanoseconds.saturating_sub(1) / FIRST_BOUND).leading_zeros();
        self.buckets[(bucket as usize).min(BOUNDS)].add(count);
        self.nanoseconds.add(count * nanoseconds);
    }
}

/// What one worker counts, on cache lines of its own; processors fetch them in pairs of 64 bytes.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct WorkerCounters {
    /// By method and class of status.
    responses: [[Counter; CLASSES.len()]; METHODS.len()],
    /// By [`Closing`].
    pub(crate) closed: [Counter; CLOSINGS.len()],
    /// Times of requests that were answered without a save: from the start of the pass that
    /// received the last byte to the end of that pass, so that the clock is read once per pass.
    /// Requests that waited for further passes, behind others of their connection, are measured up
    /// to their answers. The time in the kernel's receive buffer is not included.
    immediate: Histogram,
    /// How long changes took that had to be saved first, up to their answers.
    pub(crate) durable: Histogram,
}

impl WorkerCounters {
    /// Records that so many requests took this time, and were answered without a save.
    pub(crate) fn time_answers(&self, count: u64, time: Duration) {
        if count > 0 {
            self.immediate.add(count, time);
        }
    }

    pub(crate) fn count_closed(&self, reason: Closing, count: usize) {
        self.closed[reason as usize].add(count as u64);
    }

    /// Counts a response; `None` is what could not be read as a request.
    pub(crate) fn count_response(&self, method: Option<&Method>, status: StatusCode) {
        let is_named = |method: &Method| METHODS.iter().position(|name| *name == method.as_str());
        let method = method.and_then(is_named).unwrap_or(METHODS.len() - 1);
        self.responses[method]
            [usize::from(status.0 / 100).saturating_sub(2).min(CLASSES.len() - 1)]
        .add(1);
    }
}

/// What the writer counts.
#[derive(Debug, Default)]
pub(crate) struct SaveMetrics {
    /// Of those that succeeded.
    pub(crate) durations: Histogram,
    pub(crate) failures: Counter,
}

/// The numbers of the whole service.
#[derive(Debug)]
pub(crate) struct Metrics {
    /// By worker.
    pub(crate) workers: Vec<WorkerCounters>,
    connections: Arc<ConnectionCounts>,
    started: SystemTime,
}

impl Metrics {
    pub(crate) fn new(connections: Arc<ConnectionCounts>) -> Self {
        Self {
            workers: (0..connections.workers()).map(|_| WorkerCounters::default()).collect(),
            connections,
            started: SystemTime::now(),
        }
    }

    /// All of it in the text format of Prometheus, version 0.0.4, for a list of so many colors and
    /// bytes.
    pub(crate) fn exposition(
        &self,
        (colors, list_bytes): (usize, usize),
        status: &DatabaseStatus,
    ) -> String {
        let mut text = Exposition(String::with_capacity(8 * 1024)); // bytes; the text has 7 KiB
        let counters = || self.workers.iter();
        text.family(
            "colors_http_requests_total",
            "counter",
            "Responses by method and class of status; other: also what is no request.",
        );
        for (method, name) in METHODS.iter().enumerate() {
            for (class, status) in CLASSES.iter().enumerate() {
                let count: u64 =
                    counters().map(|counters| counters.responses[method][class].read()).sum();
                text.sample(
                    "colors_http_requests_total",
                    &format!("{{method=\"{name}\",status=\"{status}\"}}"),
                    count,
                );
            }
        }
        let durations = "colors_http_request_duration_seconds";
        text.family(durations, "histogram", "Time from the last byte of a request to its answer; durable: changes that were saved first.");
        text.histogram(
            durations,
            "durable=\"false\"",
            counters().map(|counters| &counters.immediate),
        );
        text.histogram(durations, "durable=\"true\"", counters().map(|counters| &counters.durable));
        let (dropped, warnings) = logging::counts();
        text.gauge("colors_connections", "Open connections.", self.connections.total());
        text.gauge(
            "colors_connections_max",
            "Most connections at a time; further clients wait.",
            self.connections.max,
        );
        let closed = "colors_connections_closed_total";
        text.family(closed, "counter", "Connections closed by the service, by reason: idle; request: not received in time; unread: a response; old_list, no_room: memory and connections.");
        for (reason, name) in CLOSINGS.iter().enumerate() {
            let count: u64 = counters().map(|counters| counters.closed[reason].read()).sum();
            text.sample(closed, &format!("{{reason=\"{name}\"}}"), count);
        }
        text.gauge("colors_workers", "Event loops.", self.workers.len());
        text.gauge("colors_colors", "Colors in the list.", colors);
        text.gauge("colors_list_bytes", "Bytes of the list as JSON.", list_bytes);
        let saves = &status.metrics;
        let saved: u64 = saves.durations.buckets.iter().map(Counter::read).sum();
        text.counter(
            "colors_saves_total",
            "Saves that succeeded; those of several changes together count once.",
            saved,
        );
        text.counter(
            "colors_save_failures_total",
            "Saves that failed, those tried again included; of a follower, reads.",
            saves.failures.read(),
        );
        text.family("colors_save_duration_seconds", "histogram", "Time of a save that succeeded.");
        text.histogram("colors_save_duration_seconds", "", iter::once(&saves.durations));
        let times = status.current();
        for (name, help, time) in [
            ("read", "When the file that is followed was last read anew.", times.read),
            ("changed", "When the list that was read was last another one.", times.changed),
        ] {
            if let Some(time) = time {
                let name = format!("colors_{name}_timestamp_seconds");
                text.gauge(&name, help, seconds_since_1970(time));
            }
        }
        text.counter(
            "colors_log_lines_dropped_total",
            "Log lines dropped: standard error was not read fast enough.",
            dropped,
        );
        text.counter(
            "colors_log_warnings_total",
            "Warnings, those that were left out of the log included.",
            warnings,
        );
        text.family(
            "colors_build_info",
            "gauge",
            "The version of the program, with the commit unless it is a release.",
        );
        text.sample("colors_build_info", concat!("{version=\"", env!("BUILD_VERSION"), "\"}"), 1);
        text.gauge(
            "process_start_time_seconds",
            "Start of the process in seconds since 1970.",
            seconds_since_1970(self.started),
        );
        // what proc(5) does not tell, as in an empty root directory, is left out
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // utime and stime, the 14th and 15th field, in the unit of user space, 10 ms; the second is
        // the name and has parentheses
        if let Some((_, fields)) = stat.rsplit_once(") ") {
            let ticks: u64 = fields
                .split(' ')
                .skip(11)
                .take(2)
                .filter_map(|field| field.parse::<u64>().ok())
                .sum();
            text.counter(
                "process_cpu_seconds_total",
                "Processor time in user and in kernel mode.",
                ticks as f64 / 100.0,
            );
        }
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let resident = status.lines().find_map(|line| {
            line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok()
        });
        if let Some(kibibytes) = resident {
            text.gauge("process_resident_memory_bytes", "Resident memory.", kibibytes * 1024);
        }
        if let Ok(descriptors) = fs::read_dir("/proc/self/fd") {
            text.gauge("process_open_fds", "Open file descriptors.", descriptors.count() - 1); // one reads the directory
        }
        if let Some(limit) = getrlimit(Resource::Nofile).current {
            text.gauge("process_max_fds", "Most file descriptors.", limit);
        }
        text.0
    }
}

fn seconds_since_1970(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// Metrics as text: families, each with its samples.
struct Exposition(String);

impl Exposition {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}").expect("a string takes all");
    }

    fn sample(&mut self, name: &str, labels: &str, value: impl Display) {
        writeln!(self.0, "{name}{labels} {value}").expect("a string takes all");
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, "gauge", help);
        self.sample(name, "", value);
    }

    fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, "counter", help);
        self.sample(name, "", value);
    }

    /// The sum of some histograms, with this label; buckets are cumulative here.
    fn histogram<'a>(
        &mut self,
        name: &str,
        label: &str,
        histograms: impl Iterator<Item = &'a Histogram> + Clone,
    ) {
        let (mut count, separator) = (0, if label.is_empty() { "" } else { "," });
        for bucket in 0..=BOUNDS {
            count +=
                histograms.clone().map(|histogram| histogram.buckets[bucket].read()).sum::<u64>();
            let bound = if bucket < BOUNDS {
                ((FIRST_BOUND << bucket) as f64 / 1e9).to_string()
            } else {
                "+Inf".to_owned()
            };
            self.sample(name, &format!("_bucket{{{label}{separator}le=\"{bound}\"}}"), count);
        }
        let nanoseconds: u64 = histograms.map(|histogram| histogram.nanoseconds.read()).sum();
        let labels = if label.is_empty() { String::new() } else { format!("{{{label}}}") };
        self.sample(name, &format!("_sum{labels}"), nanoseconds as f64 / 1e9);
        self.sample(name, &format!("_count{labels}"), count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_the_first_bucket_that_it_does_not_exceed() {
        for (nanoseconds, bucket) in [
            (0, 0),
            (10_000, 0),
            (10_001, 1),
            (20_000, 1),
            (20_001, 2),
            (40_000, 2),
            (40_001, 3),
            (FIRST_BOUND << (BOUNDS - 1), BOUNDS - 1),
            ((FIRST_BOUND << (BOUNDS - 1)) + 1, BOUNDS),
            (u64::MAX / 2, BOUNDS),
        ] {
            let histogram = Histogram::default();
            histogram.add(2, Duration::from_nanos(nanoseconds));
            let counts: Vec<u64> = histogram.buckets.iter().map(Counter::read).collect();
            assert_eq!(
                (counts.iter().sum::<u64>(), counts[bucket]),
                (2, 2),
                "{nanoseconds}: {counts:?}"
            );
        }
    }
}
