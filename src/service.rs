//! The HTTP contract: requests in, answers out. No sockets.

mod access_log;
mod admission;
mod matcher;
mod monitoring;
mod openapi;
mod origin;
mod page;
mod policy;
mod respond;
mod token;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

pub(crate) use policy::limits;
pub(crate) use token::{LoadedTokens, Tokens, only_token};

use crate::follow_status::FollowStatus;
use crate::http::Response;
use crate::metrics::Metrics;
use crate::options::Options;
use crate::representation::Representation;
use crate::store::{Change, Store};

/// What requests are answered from. The server uses the same options, list, metrics and state.
pub(crate) struct Service {
    pub(crate) options: Arc<Options>,
    pub(crate) store: Store,
    /// The tokens of `--token-file`. `None` without it: then no request needs a token.
    pub(crate) tokens: Option<Tokens>,
    /// The service whose list this one has, if it follows one.
    followed: Option<Arc<FollowStatus>>,
    pub(crate) metrics: Metrics,
    pub(crate) state: Arc<ServerState>,
    /// The OpenAPI document, with the base path in it.
    openapi: Arc<Representation>,
    page: Arc<Representation>,
    /// The script with which the page reads and writes files.
    page_files: Arc<Representation>,
}

impl Service {
    pub(crate) fn new(
        options: Arc<Options>,
        store: Store,
        tokens: Option<Tokens>,
        followed: Option<Arc<FollowStatus>>,
        state: Arc<ServerState>,
    ) -> Self {
        let metrics = Metrics::new(state.workers.len());
        let openapi = openapi::openapi(&options.base_path);
        let (page, page_files) = (page::page(&options), page::files());
        Self { options, store, tokens, followed, metrics, state, openapi, page, page_files }
    }
}

/// What the server knows of a request besides its bytes.
#[derive(Clone, Copy)]
pub(crate) struct RequestContext {
    /// Whether a request for a foreign host name is refused.
    pub(crate) checks_host: bool,
    pub(crate) thread: Thread,
}

/// Which thread asks the service.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Thread {
    /// An event loop: what would take long is [`Decision::AnswerOnPool`].
    Worker,
    /// The thread for answers that take long. An envelope that was read from the list since the
    /// request was queued is new enough.
    Pool { queued_at: Instant },
}

/// What is to be done next with a request.
pub(crate) enum Decision {
    Respond(Response),
    /// The head of the request is refused: respond so, and read no content.
    Refuse(Response),
    /// What the client has is current, and it prefers to wait until this changes (RFC 7240 §4.3).
    WaitForChange {
        subject: Subject,
        /// The number of the version of the list in which it is current.
        seen: u64,
        /// A 200 with what the client has; [`Response::into_not_modified`] makes it the 304.
        current: Response,
    },
    /// Nothing was done, since it would take long: ask again on [`Thread::Pool`].
    AnswerOnPool,
    /// The writer has to save this change: [`Store::submit`]. [`Service::respond_to_outcome`] makes
    /// the response from the outcome.
    Save(Change),
}

/// What a client waits to see changed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Subject {
    List,
    /// The first color of this name.
    Color(Arc<str>),
}

/// What the server is doing, and how many connections each worker has. The server sets this and
/// decides by it; `/health` and `/metrics` report it.
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

#[cfg(test)]
#[path = "service/contract_tests.rs"]
mod tests;
