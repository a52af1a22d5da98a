//! How many connections each worker has. The accept loop chooses a worker by that, and keeps to the
//! connection limit; `/metrics` shows it.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

#[derive(Debug)]
pub(crate) struct ConnectionCounts {
    /// By worker; those in its inbox included.
    open: Box<[AtomicUsize]>,
    /// The connection limit.
    pub(crate) max: usize,
}

impl ConnectionCounts {
    pub(crate) fn new(workers: usize, max: usize) -> Self {
        Self { open: (0..workers).map(|_| AtomicUsize::new(0)).collect(), max }
    }

    pub(crate) fn workers(&self) -> usize {
        self.open.len()
    }

    /// The worker for the next connection: the one that has the fewest.
    pub(crate) fn next_worker(&self) -> usize {
        (0..self.workers())
            .min_by_key(|worker| self.open[*worker].load(Relaxed))
            .expect("there is a worker")
    }

    pub(crate) fn add(&self, worker: usize) {
        self.open[worker].fetch_add(1, Relaxed);
    }

    pub(crate) fn remove(&self, worker: usize) {
        self.open[worker].fetch_sub(1, Relaxed);
    }

    pub(crate) fn total(&self) -> usize {
        self.open.iter().map(|open| open.load(Relaxed)).sum()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.total() >= self.max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worker_with_the_fewest_is_next() {
        let counts = ConnectionCounts::new(2, 10);
        let workers: Vec<usize> = (0..10)
            .map(|_| {
                let worker = counts.next_worker();
                counts.add(worker);
                worker
            })
            .collect();
        assert_eq!(workers, [0, 1, 0, 1, 0, 1, 0, 1, 0, 1]);
        assert!(counts.is_full());
        counts.remove(1);
        assert_eq!((counts.next_worker(), counts.total(), counts.is_full()), (1, 9, false));
    }
}
