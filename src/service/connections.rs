//! How many connections each worker has. The server decides by it, and `/metrics` shows it.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Those of all workers.
pub(crate) struct Connections {
    /// By the number of the worker.
    pub(crate) workers: Box<[WorkerConnections]>,
    /// The connection limit.
    pub(crate) max: usize,
}

/// On cache lines of its own: processors fetch these in pairs of 64 bytes.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct WorkerConnections {
    /// Open connections, those in the inbox included. The accept loop adds them, and the worker
    /// subtracts them.
    pub(crate) open: AtomicUsize,
    /// Requests that wait for a change of the list. A change wakes the worker unless it is 0.
    pub(crate) waiting: AtomicUsize,
}

impl Connections {
    pub(super) fn new(workers: usize, max: usize) -> Self {
        let workers = (0..workers).map(|_| WorkerConnections::default()).collect();
        Self { workers, max }
    }

    /// How many connections are open.
    pub(crate) fn open(&self) -> usize {
        self.workers.iter().map(|worker| worker.open.load(Relaxed)).sum()
    }

    /// How many requests wait for a change.
    pub(super) fn waiting(&self) -> usize {
        self.workers.iter().map(|worker| worker.waiting.load(Relaxed)).sum()
    }
}
