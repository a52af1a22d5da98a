//! What the service counts, and the text that Prometheus reads.
//!
//! Each [`Counter`] is written by one thread alone, so that workers share no cache line for
//! counting. `/metrics` shows the sums.

use std::fmt::Display;
use std::fs;
use std::iter;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tiny_http::Method;

use crate::http::METHODS;
use crate::logging;

/// The metric families, one per line: name, type and help.
const FAMILIES: &str = "\
colors_http_requests_total counter Responses by method and class of status; other: also what is no \
request.
colors_http_request_duration_seconds histogram Time from the last byte of a request to its answer; \
durable: changes with --data, also those that leave nothing to save, such as a 404 or a 412.
colors_connections gauge Open connections.
colors_connections_max gauge Most connections at a time; further clients wait.
colors_requests_waiting gauge Requests that wait for a change of the list.
colors_connections_closed_total counter Connections closed by the service, by reason: idle; \
request: not received in time; unread: a response; old_list, no_room: memory and connections.
colors_workers gauge Event loops.
colors_colors gauge Colors in the list.
colors_list_bytes gauge Bytes of the list as JSON.
colors_saves_total counter Saves that succeeded; those of several changes together count once.
colors_save_failures_total counter Saves that failed, those tried again included.
colors_save_duration_seconds histogram Time of a save that succeeded.
colors_followed_answered_timestamp_seconds gauge When the service that is followed last answered.
colors_followed_up gauge 1, or 0 while the service that is followed has not answered for 5 s.
colors_log_lines_dropped_total counter Log lines dropped: standard error was not read fast enough.
colors_log_warnings_total counter Warnings that were logged, or left out because there were too \
many.
colors_build_info gauge The version of the program, with the commit unless it is a release.
process_start_time_seconds gauge Start of the process in seconds since 1970.
process_cpu_seconds_total counter Processor time in user and in kernel mode.
process_resident_memory_bytes gauge Resident memory.
";

/// The label `method` of all but [`METHODS`]: a client must not be able to create time series.
const OTHER: &str = "other";

/// Why the service has closed a connection. Those that their clients close, or that end with their
/// last response, are not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closing {
    /// It was idle for the keep-alive time, or its first request did not begin in time.
    Idle,
    /// A request did not arrive as a whole in time.
    Request,
    /// The client did not read a response in time.
    Unread,
    /// It was still being sent an old list or color, and those took too much memory.
    OldList,
    /// The limit of connections or that of memory was reached, or epoll did not take the socket.
    NoRoom,
}

impl Closing {
    pub(crate) const ALL: [Self; Self::NoRoom as usize + 1] =
        [Self::Idle, Self::Request, Self::Unread, Self::OldList, Self::NoRoom];

    /// The value of the label `reason`.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Request => "request",
            Self::Unread => "unread",
            Self::OldList => "old_list",
            Self::NoRoom => "no_room",
        }
    }
}

/// The values of the label `status`: the classes of final statuses (RFC 9110 §15).
const CLASSES: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];

/// The upper bound of a histogram's first bucket in nanoseconds: a read of one color takes less.
/// Each further bound is twice the one before.
const FIRST_BOUND: u64 = 10_000;

/// How many bounds there are. The last is 10.5 s, for a sync of a slow disk.
const BOUNDS: usize = 21;

/// A number that one thread counts up and every thread may read.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn inc(&self) {
        self.add(1);
    }

    /// Adds `count` without a locked instruction. Only for the one thread that writes the counter.
    pub(crate) fn add(&self, count: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(count), Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// How often something took how long.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    /// One counter for each bound, not cumulative, and one for what took longer.
    buckets: [Counter; BOUNDS + 1],
    nanoseconds: Counter,
}

impl Histogram {
    pub(crate) fn observe(&self, time: Duration) {
        self.observe_each(1, time);
    }

    /// Observes that each of `count` things took `time`.
    pub(crate) fn observe_each(&self, count: u64, time: Duration) {
        let nanoseconds = time.as_nanos() as u64;
        let bucket = u64::BITS - (nanoseconds.saturating_sub(1) / FIRST_BOUND).leading_zeros();
        self.buckets[(bucket as usize).min(BOUNDS)].add(count);
        self.nanoseconds.add(count * nanoseconds);
    }
}

/// What one worker counts, on cache lines of its own: processors fetch these in pairs of 64 bytes.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct WorkerCounters {
    /// Responses by [`METHODS`], [`OTHER`] last, and by [`CLASSES`].
    responses: [[Counter; CLASSES.len()]; METHODS.len() + 1],
    /// Closed connections by [`Closing`].
    closed: [Counter; Closing::ALL.len()],
    /// Times of requests that the service has answered and that are not in `durable`. Refusals of
    /// what has not arrived as a whole are in neither. The clock is read once per pass, so most
    /// requests have the time of the pass that answered them, from its start to its end. A request
    /// that takes long has the time from the start of the pass that received its last byte. The
    /// time in the kernel's receive buffer, and in the run queue, is not counted.
    pub(crate) immediate: Histogram,
    /// Times of changes that the writer decided, whether it had something to save or not: from the
    /// start of the pass that received the last byte to the answer.
    pub(crate) durable: Histogram,
}

impl WorkerCounters {
    pub(crate) fn closed(&self, reason: Closing) -> &Counter {
        &self.closed[reason as usize]
    }

    /// Responses by method and by the class of their status. `method` is `None` for what could not
    /// be read as a request.
    pub(crate) fn responses(&self, method: Option<&Method>, status: u16) -> &Counter {
        let method = METHODS.iter().position(|known| Some(known) == method);
        let class = usize::from(status / 100).saturating_sub(2).min(CLASSES.len() - 1);
        &self.responses[method.unwrap_or(METHODS.len())][class]
    }
}

/// What the writer counts of saves. Looks for commits of other programs that fail count as failures.
#[derive(Debug, Default)]
pub(crate) struct DatabaseMetrics {
    /// Times of the saves that succeeded.
    pub(crate) durations: Histogram,
    pub(crate) failures: Counter,
}

/// What the service is at this moment, and what its store counts.
pub(crate) struct Gauges<'a> {
    /// Open connections.
    pub(crate) connections: usize,
    pub(crate) connections_max: usize,
    /// Requests that wait for a change of the list.
    pub(crate) waiting: usize,
    /// Colors in the list.
    pub(crate) colors: usize,
    /// Bytes of the list as JSON.
    pub(crate) list_bytes: usize,
    pub(crate) saves: &'a DatabaseMetrics,
    /// When the service that is followed last answered.
    pub(crate) answered: Option<SystemTime>,
    /// Whether it answers; `None` if none is followed.
    pub(crate) is_followed_up: Option<bool>,
}

/// The numbers of the whole service.
pub(crate) struct Metrics {
    /// By the number of the worker.
    pub(crate) workers: Box<[WorkerCounters]>,
    started: SystemTime,
}

impl Metrics {
    pub(crate) fn new(workers: usize) -> Self {
        let workers = (0..workers).map(|_| WorkerCounters::default()).collect();
        Self { workers, started: SystemTime::now() }
    }

    /// All metrics in the text format of Prometheus, version 0.0.4.
    pub(crate) fn exposition(&self, gauges: &Gauges<'_>) -> String {
        // In bytes: the text has some 7 KiB.
        let mut text = Exposition { text: String::with_capacity(8 * 1024), family: "" };
        text.family("colors_http_requests_total");
        for (method, name) in METHODS.iter().map(Method::as_str).chain([OTHER]).enumerate() {
            for (class, status) in CLASSES.iter().enumerate() {
                let count = self.sum(|worker| &worker.responses[method][class]);
                text.sample(&format!("{{method=\"{name}\",status=\"{status}\"}}"), count);
            }
        }
        let workers = self.workers.iter();
        text.family("colors_http_request_duration_seconds");
        text.histogram("durable=\"false\"", workers.clone().map(|worker| &worker.immediate));
        text.histogram("durable=\"true\"", workers.map(|worker| &worker.durable));
        text.number("colors_connections", gauges.connections);
        text.number("colors_connections_max", gauges.connections_max);
        text.number("colors_requests_waiting", gauges.waiting);
        text.family("colors_connections_closed_total");
        for reason in Closing::ALL {
            let count = self.sum(|worker| worker.closed(reason));
            text.sample(&format!("{{reason=\"{}\"}}", reason.label()), count);
        }
        text.number("colors_workers", self.workers.len());
        text.number("colors_colors", gauges.colors);
        text.number("colors_list_bytes", gauges.list_bytes);
        let saves = gauges.saves;
        let saved: u64 = saves.durations.buckets.iter().map(Counter::get).sum();
        text.number("colors_saves_total", saved);
        text.number("colors_save_failures_total", saves.failures.get());
        text.family("colors_save_duration_seconds");
        text.histogram("", iter::once(&saves.durations));
        let answered = gauges.answered.map(seconds_since_1970);
        text.optional("colors_followed_answered_timestamp_seconds", answered);
        text.optional("colors_followed_up", gauges.is_followed_up.map(u8::from));
        let (dropped, warnings) = logging::counts();
        text.number("colors_log_lines_dropped_total", dropped);
        text.number("colors_log_warnings_total", warnings);
        text.family("colors_build_info");
        text.sample(concat!("{version=\"", env!("BUILD_VERSION"), "\"}"), 1);
        text.number("process_start_time_seconds", seconds_since_1970(self.started));
        // Where there is no proc(5), as in an empty root directory, its numbers are left out. The
        // number of descriptors is always left out: counting thousands would take milliseconds of a
        // worker.
        text.optional("process_cpu_seconds_total", processor_seconds());
        text.optional("process_resident_memory_bytes", resident_bytes());
        text.text
    }

    /// The sum of one counter over all workers.
    fn sum(&self, counter: impl Fn(&WorkerCounters) -> &Counter) -> u64 {
        self.workers.iter().map(|worker| counter(worker).get()).sum()
    }
}

fn seconds_since_1970(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// The processor time of the process in user and in kernel mode.
fn processor_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // proc_pid_stat(5): utime and stime are fields 14 and 15, in ticks of 10 ms. Field 2, the name,
    // is in parentheses and may have spaces.
    let (_, fields) = stat.rsplit_once(") ")?;
    let times = fields.split(' ').skip(11).take(2);
    Some(times.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0)
}

fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let value = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = value.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes * 1024)
}

/// Metrics as text: families, each with its samples.
struct Exposition {
    text: String,
    /// The name of the family that was begun last.
    family: &'static str,
}

impl Exposition {
    /// Begins one of [`FAMILIES`].
    fn family(&mut self, name: &'static str) {
        let rest = FAMILIES.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let (kind, help) = rest.and_then(|rest| rest.split_once(' ')).expect("it is listed");
        self.text += &format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
        self.family = name;
    }

    fn sample(&mut self, labels: &str, value: impl Display) {
        self.text += &format!("{}{labels} {value}\n", self.family);
    }

    /// Adds a family with one sample.
    fn number(&mut self, name: &'static str, value: impl Display) {
        self.family(name);
        self.sample("", value);
    }

    fn optional(&mut self, name: &'static str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.number(name, value);
        }
    }

    /// Adds the samples of a histogram that is the sum of `parts`. Here, as Prometheus wants it,
    /// each bucket includes those before it.
    fn histogram<'a>(&mut self, label: &str, parts: impl Iterator<Item = &'a Histogram> + Clone) {
        let (separator, labels) =
            if label.is_empty() { ("", String::new()) } else { (",", format!("{{{label}}}")) };
        let mut count = 0;
        for bucket in 0..=BOUNDS {
            count += parts.clone().map(|part| part.buckets[bucket].get()).sum::<u64>();
            let bound = match bucket {
                BOUNDS => "+Inf".to_owned(),
                _ => ((FIRST_BOUND << bucket) as f64 / 1e9).to_string(),
            };
            self.sample(&format!("_bucket{{{label}{separator}le=\"{bound}\"}}"), count);
        }
        let nanoseconds: u64 = parts.map(|part| part.nanoseconds.get()).sum();
        self.sample(&format!("_sum{labels}"), nanoseconds as f64 / 1e9);
        self.sample(&format!("_count{labels}"), count);
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
            histogram.observe_each(2, Duration::from_nanos(nanoseconds));
            let counts: Vec<u64> = histogram.buckets.iter().map(Counter::get).collect();
            assert_eq!(
                (counts.iter().sum::<u64>(), counts[bucket]),
                (2, 2),
                "{nanoseconds}: {counts:?}"
            );
        }
    }
}
