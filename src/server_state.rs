//! The state of the server: its phase, and how many connections each worker has. The server sets
//! the state and decides by it. The service reads it, for `/health` and `/metrics`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};

pub(crate) struct ServerState {
    phase: AtomicU8,
    /// By the number of the worker.
    pub(crate) workers: Box<[WorkerConnections]>,
    /// The connection limit.
    pub(crate) connections_max: usize,
}

/// What the server is doing, as far as clients notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Serving,
    /// There are more connections than [`ServerState::connections_max`]: each response closes its
    /// connection, and connections that have stalled are closed to make room.
    AboveLimit,
    /// Each response closes its connection, and `/health` says so.
    Stopping,
}

/// One worker's numbers, on cache lines of their own: processors fetch these in pairs of 64 bytes.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct WorkerConnections {
    /// Open connections, those in the inbox included. The accept loop adds them, and the worker
    /// subtracts them.
    pub(crate) open: AtomicUsize,
    /// Requests that wait for a change of the list or of a color. If 0, no change wakes the worker.
    pub(crate) waiting: AtomicUsize,
}

impl ServerState {
    pub(crate) fn new(workers: usize, connections_max: usize) -> Arc<Self> {
        let phase = AtomicU8::new(Phase::Serving as u8);
        let workers = (0..workers).map(|_| WorkerConnections::default()).collect();
        Arc::new(Self { phase, workers, connections_max })
    }

    pub(crate) fn phase(&self) -> Phase {
        match self.phase.load(Relaxed) {
            0 => Phase::Serving,
            1 => Phase::AboveLimit,
            _ => Phase::Stopping,
        }
    }

    /// For the accept loop alone.
    pub(crate) fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Relaxed);
    }

    /// How many connections are open.
    pub(crate) fn connections(&self) -> usize {
        self.workers.iter().map(|worker| worker.open.load(Relaxed)).sum()
    }

    /// How many requests wait for a change.
    pub(crate) fn waiting(&self) -> usize {
        self.workers.iter().map(|worker| worker.waiting.load(Relaxed)).sum()
    }
}
