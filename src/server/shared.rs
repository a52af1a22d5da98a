//! What the accept loop and all workers share: the service, the limits, and how much memory is used.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use super::limits::Limits;
use crate::http::stays_open;
use crate::service::Service;

/// A connection with no more bytes than this does not count, so that small requests are served
/// however much the others take.
const UNCOUNTED_BYTES: usize = 4096;

pub(crate) struct Shared {
    pub(crate) service: Service,
    pub(crate) limits: Limits,
    /// The fields about the connection of responses after which it stays open.
    pub(super) stays_open: String,
    /// Bytes counted against [`Limits::memory_max`].
    memory: AtomicUsize,
    /// The connection limit is reached and clients wait: idle and stalled connections are closed,
    /// the others after their next response.
    pub(super) limit_reached: AtomicBool,
}

impl Shared {
    pub(crate) fn new(service: Service, limits: Limits) -> Self {
        // in whole seconds, and not 0, which some clients take for no limit
        let stays_open = stays_open(limits.keep_alive.as_secs().max(1));
        let (memory, limit_reached) = (AtomicUsize::new(0), AtomicBool::new(false));
        Self { service, limits, stays_open, memory, limit_reached }
    }

    /// Whether connections have to end sooner than their clients were told.
    pub(super) fn is_in_need(&self) -> bool {
        self.service.is_stopping.load(Relaxed) || self.limit_reached.load(Relaxed)
    }
}

/// One connection's part of the connection limit and of [`Limits::memory_max`], until it is
/// dropped.
pub(super) struct Quota {
    shared: Arc<Shared>,
    /// The number of the worker that serves the connection.
    worker: usize,
    memory: usize,
}

impl Quota {
    pub(super) fn new(shared: Arc<Shared>, worker: usize) -> Self {
        shared.service.metrics.workers[worker].connections.fetch_add(1, Relaxed);
        Self { shared, worker, memory: 0 }
    }

    /// Sets how many bytes the buffers of the connection take.
    pub(super) fn set_memory(&mut self, bytes: usize) {
        let bytes = if bytes > UNCOUNTED_BYTES { bytes } else { 0 };
        if bytes != self.memory {
            self.shared.memory.fetch_add(bytes, Relaxed);
            self.shared.memory.fetch_sub(self.memory, Relaxed);
            self.memory = bytes;
        }
    }

    /// Whether the connection would exceed [`Limits::memory_max`] with this many bytes. While the
    /// others have none, it is always let through.
    pub(super) fn is_refused(&self, bytes: usize) -> bool {
        let others = self.shared.memory.load(Relaxed).saturating_sub(self.memory);
        bytes > UNCOUNTED_BYTES && others > 0 && others + bytes > self.shared.limits.memory_max
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        self.set_memory(0);
        self.shared.service.metrics.workers[self.worker].connections.fetch_sub(1, Relaxed);
    }
}
