//! What the accept loop and all workers share: the service, the limits, and how much of them is used.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use super::wrong_tokens::WrongTokens;
use crate::service::Service;

/// Bytes of unfinished requests and untaken responses of all connections together: 500 requests of 64 KiB.
const MEMORY_MAX: usize = 32 * 1024 * 1024;

/// Bytes that each connection may have beside [`MEMORY_MAX`]: more than most requests and responses take.
const MEMORY_FREE: usize = 4096;

/// What clients may use up; see the options of the same names.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// Bytes of content in one request.
    pub(crate) content_max: usize,
    pub(crate) request_timeout: Duration,
    pub(crate) keep_alive: Duration,
    pub(crate) connections_max: usize,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) service: Service,
    pub(crate) limits: Limits,
    /// Whether every request is logged.
    pub(crate) access_log: bool,
    pub(super) wrong_tokens: WrongTokens,
    /// Connections accepted and not closed yet.
    connections: AtomicUsize,
    /// Bytes counted against [`MEMORY_MAX`].
    memory: AtomicUsize,
    /// A client waits to be accepted and there is no room: idle connections are closed, the others close with their next response.
    limit_reached: AtomicBool,
    /// Whether the accept loop wants to hear of the next connection that is closed.
    close_is_awaited: AtomicBool,
    /// Becomes readable then.
    closed: OwnedFd,
}

impl Shared {
    /// # Errors
    /// When the process has no descriptor left.
    pub(crate) fn new(service: Service, limits: Limits, access_log: bool) -> io::Result<Self> {
        Ok(Self {
            service,
            limits,
            access_log,
            wrong_tokens: WrongTokens::default(),
            connections: AtomicUsize::new(0),
            memory: AtomicUsize::new(0),
            limit_reached: AtomicBool::new(false),
            close_is_awaited: AtomicBool::new(false),
            closed: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.service.is_stopping.load(Relaxed)
    }

    pub(super) fn connections(&self) -> usize {
        self.connections.load(SeqCst)
    }

    pub(super) fn is_full(&self) -> bool {
        self.connections() >= self.limits.connections_max
    }

    pub(super) fn limit_reached(&self) -> bool {
        self.limit_reached.load(Relaxed)
    }

    pub(super) fn set_limit_reached(&self, limit_reached: bool) {
        self.limit_reached.store(limit_reached, Relaxed);
    }

    /// Whether a request or response of this many bytes has to be refused, since all of them together take too much.
    pub(super) fn has_no_memory_for(&self, bytes: usize) -> bool {
        bytes > MEMORY_FREE && self.memory.load(Relaxed) + bytes > MEMORY_MAX
    }

    /// Makes [`Shared::closed`] readable at the next close. Ask first, count then.
    pub(super) fn await_close(&self) {
        self.close_is_awaited.store(true, SeqCst);
    }

    pub(super) fn closed(&self) -> BorrowedFd<'_> {
        self.closed.as_fd()
    }

    pub(super) fn note_closed(&self) {
        // Nothing to read means that it has been noted already.
        let _ = rustix::io::read(&self.closed, &mut [0; 8]);
    }
}

/// What one connection takes of what is shared; given back when dropped, however the connection ends.
#[derive(Debug)]
pub(super) struct Share {
    shared: Arc<Shared>,
    /// Connections of the worker that it belongs to.
    of_worker: Arc<AtomicUsize>,
    memory: usize,
}

impl Share {
    pub(super) fn new(shared: Arc<Shared>, of_worker: Arc<AtomicUsize>) -> Self {
        shared.connections.fetch_add(1, SeqCst);
        of_worker.fetch_add(1, Relaxed);
        Self { shared, of_worker, memory: 0 }
    }

    /// Notes how many bytes of memory the connection has.
    pub(super) fn set_memory(&mut self, bytes: usize) {
        let bytes = if bytes > MEMORY_FREE { bytes } else { 0 };
        if bytes != self.memory {
            self.shared.memory.fetch_add(bytes, Relaxed);
            self.shared.memory.fetch_sub(self.memory, Relaxed);
            self.memory = bytes;
        }
    }

    /// Whether the connection may not have this many bytes; what it has already does not count twice.
    pub(super) fn is_refused(&self, bytes: usize) -> bool {
        self.shared.has_no_memory_for(bytes.saturating_sub(self.memory))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set_memory(0);
        self.of_worker.fetch_sub(1, Relaxed);
        self.shared.connections.fetch_sub(1, SeqCst);
        if self.shared.close_is_awaited.swap(false, SeqCst) {
            // The event's counter would have to stand at 2^64 - 2 to fail.
            let _ = rustix::io::write(&self.shared.closed, &1_u64.to_ne_bytes());
        }
    }
}
