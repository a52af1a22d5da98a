//! What the service counts. The text that Prometheus reads is made in `service::monitoring`.
//!
//! Each worker has counters of its own, so that workers write to no common cache line. `/metrics`
//! shows the sums.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use bounded_http::Closing;
use tiny_http::Method;

use crate::http::METHODS;

/// The value of the label `reason`.
pub(crate) fn closing_label(reason: Closing) -> &'static str {
    match reason {
        Closing::Idle => "idle",
        Closing::RequestTimeout => "request",
        Closing::Unread => "unread",
        Closing::OrphanedContent => "old_list",
        Closing::NoRoom => "no_room",
    }
}

/// The values of the label `status`: the classes of final statuses (RFC 9110 §15).
pub(crate) const CLASSES: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];

/// The upper bound of a histogram's first bucket in nanoseconds: a read of one color takes less.
/// Each further bound is twice the one before.
pub(crate) const FIRST_BOUND: u64 = 10_000;

/// How many bounds there are. The last one is 10.5 s, for a sync of a slow disk.
pub(crate) const BOUNDS: usize = 21;

/// A number that is counted up.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn inc(&self) {
        self.add(1);
    }

    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// How many times something took how long.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    /// One counter for each bound, not cumulative, and one for what took longer.
    pub(crate) buckets: [Counter; BOUNDS + 1],
    pub(crate) nanoseconds: Counter,
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
    /// Responses by [`METHODS`], all else last, and by [`CLASSES`].
    pub(crate) responses: [[Counter; CLASSES.len()]; METHODS.len() + 1],
    /// Closed connections by [`Closing`].
    closed: [Counter; Closing::ALL.len()],
    /// Times of requests that the service has answered and that are not in `durable`. Refusals of
    /// what has not arrived as a whole, and for lack of memory, are in neither. Most requests have
    /// the time of the pass that answered them, from its start to its end, which leaves out their
    /// time in the run queue. A request that another thread answers has the time since the start of
    /// the pass that received the last bytes, and one that waited has the time since the end of the
    /// wait. The time in the kernel's receive buffer is not counted.
    pub(crate) not_durable: Histogram,
    /// Times of changes that the writer decided, whether it had something to save or not: from the
    /// start of the pass that received the last bytes to the answer.
    pub(crate) durable: Histogram,
}

impl WorkerCounters {
    pub(crate) fn closed(&self, reason: Closing) -> &Counter {
        &self.closed[reason as usize]
    }

    /// Responses by method and by the class of their status. `method`: `None` if it is not known.
    pub(crate) fn responses(&self, method: Option<&Method>, status: u16) -> &Counter {
        let method = METHODS.iter().position(|known| Some(known) == method);
        let class = usize::from(status / 100).saturating_sub(2).min(CLASSES.len() - 1);
        &self.responses[method.unwrap_or(METHODS.len())][class]
    }
}

/// What the writer counts. Looks for commits of other programs that fail count as failures.
#[derive(Debug, Default)]
pub(crate) struct StorageMetrics {
    /// Times of the saves that changed something, without the wait for the write lock.
    pub(crate) durations: Histogram,
    pub(crate) failures: Counter,
}

/// The numbers of the whole service.
pub(crate) struct Metrics {
    /// By the number of the worker.
    pub(crate) workers: Box<[WorkerCounters]>,
    pub(crate) started: SystemTime,
}

impl Metrics {
    pub(crate) fn new(workers: usize) -> Self {
        let workers = (0..workers).map(|_| WorkerCounters::default()).collect();
        Self { workers, started: SystemTime::now() }
    }

    /// The sum of one counter over all workers.
    pub(crate) fn sum(&self, counter: impl Fn(&WorkerCounters) -> &Counter) -> u64 {
        self.workers.iter().map(|worker| counter(worker).get()).sum()
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
