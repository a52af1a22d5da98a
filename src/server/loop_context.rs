//! What a worker gives to the connection that it serves: the receive buffer, the service, and the
//! pool.

use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::RecvFlags;
use threadpool::ThreadPool;
use tiny_http::StatusCode;

use super::inbox::Mail;
use super::{Phase, Shared};
use crate::http::{Request, Response};
use crate::metrics::WorkerCounters;
use crate::service::{Decision, RequestContext, Service, Thread, Watches};
use crate::store::Change;

/// What a connection needs of its worker in one pass of the event loop.
pub(super) struct LoopContext<'a> {
    pub(super) shared: &'a Arc<Shared>,
    /// The number of the worker.
    pub(super) worker: usize,
    pub(super) pool: &'a ThreadPool,
    /// The id of the connection that is served.
    pub(super) id: u64,
    /// The phase of the service when the pass began.
    pub(super) phase: Phase,
    /// When the pass began.
    pub(super) now: Instant,
    /// The value of Date in responses of this pass.
    pub(super) date: &'a str,
    /// The receive buffer of all connections.
    scratch: &'a mut [u8],
    /// Requests that this pass has answered without another thread.
    pub(super) answered: u64,
    /// Changes for the writer, by the id of the connection. They are submitted together at the end
    /// of the pass: a commit of all of them costs one sync, as that of the first one would.
    pub(super) changes: Vec<(u64, Change)>,
}

impl<'a> LoopContext<'a> {
    pub(super) fn new(
        shared: &'a Arc<Shared>,
        worker: usize,
        pool: &'a ThreadPool,
        now: Instant,
        date: &'a str,
        scratch: &'a mut [u8],
    ) -> Self {
        let phase = shared.phase();
        Self {
            shared,
            worker,
            pool,
            id: 0,
            phase,
            now,
            date,
            scratch,
            answered: 0,
            changes: Vec::new(),
        }
    }

    /// The worker's counters.
    pub(super) fn counters(&self) -> &'a WorkerCounters {
        &self.shared.service().metrics.workers[self.worker]
    }

    pub(super) fn watches(&self) -> &'a Arc<Watches> {
        &self.shared.service().watches[self.worker]
    }

    /// Receives as many bytes as are there, up to this many and to the length of the buffer.
    /// Returns an empty slice at the end of what the client sends, and `None` if nothing has
    /// arrived yet.
    pub(super) fn receive(&mut self, socket: &OwnedFd, most: usize) -> io::Result<Option<&[u8]>> {
        let most = most.min(self.scratch.len());
        match rustix::net::recv(socket, &mut self.scratch[..most], RecvFlags::DONTWAIT) {
            Ok((_, received)) => Ok(Some(&self.scratch[..received])),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Asks the service what to do next with a request.
    pub(super) fn decide(&self, request: &Request<'_>, listener: usize) -> Decision {
        let context = RequestContext { listener, thread: Thread::Worker };
        catch_panic(|| self.shared.service().decide(request, context))
    }

    /// Has the pool make an answer that takes long, and post it as [`Mail::FromPool`].
    pub(super) fn answer_on_pool(
        &self,
        question: impl FnOnce(&Service) -> Decision + Send + 'static,
    ) {
        let shared = Arc::clone(self.shared);
        let (worker, id) = (self.worker, self.id);
        self.pool.execute(move || {
            let decision = catch_panic(|| question(shared.service()));
            shared.workers[worker].inbox.post(Mail::FromPool(id, decision));
        });
    }
}

/// Puts a question to the service. A panic is answered with 500. The list is consistent after a
/// panic: a change is decided before it is made, and to make it does not panic. If the panic came
/// only while the response was made, the list has the change.
pub(super) fn catch_panic(question: impl FnOnce() -> Decision) -> Decision {
    catch_unwind(AssertUnwindSafe(question)).unwrap_or_else(|_| {
        let message = "the service failed on this request, its log says where; a change may have \
                       been made";
        Decision::Respond(Response::error(StatusCode(500), message))
    })
}
