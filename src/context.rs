//! What every worker knows: the service, the limits, and how things stand at the moment.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use crate::respond::Service;

/// Shared by the accept loop and all workers.
#[derive(Debug)]
pub(crate) struct Context {
    /// Answers requests.
    pub(crate) service: Service,
    /// What clients may use up.
    pub(crate) limits: Limits,
    /// Whether every request is logged.
    pub(crate) access_log: bool,
    /// How things stand.
    pub(crate) signs: Signs,
}

/// What clients may use up.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// Bytes of content in one request.
    pub(crate) content_max: usize,
    /// Time from the first byte of a request to its last, and for a client to take some more of a response.
    pub(crate) request_timeout: Duration,
    /// Time between two requests on one connection.
    pub(crate) keep_alive: Duration,
    /// Threads that answer requests, those that wait for the disk included; of these there is one in any case.
    pub(crate) workers_max: usize,
}

/// How things stand: set by the accept loop, read by the workers; each is a hint and none guards anything.
#[derive(Debug, Default)]
pub(crate) struct Signs {
    /// Somebody waits for whom there is no room: connections close with their next response.
    pub(crate) crowded: AtomicBool,
    /// Bytes of requests that the accept loop knows to wait for workers of their own.
    pub(crate) queued_bytes: AtomicUsize,
}

impl Context {
    /// Whether the service is ending: connections close with their next response.
    pub(crate) fn is_stopping(&self) -> bool {
        self.service.is_stopping.load(Relaxed)
    }

    /// See [`Signs::crowded`].
    pub(crate) fn is_crowded(&self) -> bool {
        self.signs.crowded.load(Relaxed)
    }
}
