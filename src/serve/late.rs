//! Requests that other threads answer: the writer, once a change is saved, and the thread for
//! answers that take long.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use super::{Exchange, Handler, catch_panic};
use crate::service::Thread;
use crate::store::{Change, Deliver, Outcome, StorageError};

type Decided = Result<Outcome, StorageError>;

/// The requests of one worker whose changes are not saved yet.
pub(super) struct Unsaved {
    /// By the ids of their connections.
    exchanges: Mutex<HashMap<u64, Exchange>>,
    /// What is called with the outcomes. The same for all changes of the worker, so that the
    /// outcomes of a commit come together.
    deliver: Arc<Deliver>,
}

impl Unsaved {
    pub(super) fn new(handler: &Weak<Handler>, worker: usize) -> Self {
        let handler = handler.clone();
        let deliver = move |decided| {
            let Some(handler) = handler.upgrade() else { return };
            // After a panic here, those that are left are dropped, which answers them.
            let _ = catch_unwind(AssertUnwindSafe(|| handler.answer_decided(worker, decided)));
        };
        Self { exchanges: Mutex::default(), deliver: Arc::new(deliver) }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Exchange>> {
        self.exchanges.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Handler {
    /// Has another thread answer, since it takes long.
    pub(super) fn answer_on_another_thread(self: &Arc<Self>, exchange: Exchange) {
        let queued_at = Instant::now();
        let handler = Arc::clone(self);
        self.pool.execute(move || {
            let worker = exchange.http.arrival().worker;
            let mut changes = Vec::new();
            handler.answer(exchange, Thread::LongAnswers { queued_at }, &mut changes);
            handler.submit(worker, changes);
        });
    }

    /// Has the writer make these changes of one worker, and answer their requests. They go
    /// together: a commit of all of them costs one sync, as that of the first one would.
    pub(super) fn submit(&self, worker: usize, mut changes: Vec<(Exchange, Change)>) {
        // If the client is known to have gone, its change is not made.
        changes.retain(|(exchange, _)| exchange.http.is_open());
        if changes.is_empty() {
            return;
        }
        let unsaved = &self.unsaved[worker];
        let submitted = {
            let mut exchanges = unsaved.lock();
            let keep = |(exchange, change): (Exchange, Change)| {
                let id = exchange.http.id();
                exchanges.insert(id, exchange);
                (id, change)
            };
            changes.into_iter().map(keep).collect()
        };
        self.service.store.submit(submitted, &unsaved.deliver);
    }

    /// Answers requests of one worker on whose changes the writer has decided, or which it does not
    /// take. On the thread of the writer or, for the latter, of the worker.
    fn answer_decided(self: &Arc<Self>, worker: usize, decided: Vec<(u64, Decided)>) {
        let decided: Vec<_> = {
            let mut exchanges = self.unsaved[worker].lock();
            let take = |(id, outcome)| Some((exchanges.remove(&id)?, outcome));
            decided.into_iter().filter_map(take).collect()
        };
        let mut answers = Vec::new();
        for (exchange, outcome) in decided {
            if matches!(outcome, Ok(Outcome::ReplacedAll { .. })) {
                // The JSON of the new list may have to be made, which takes long.
                let handler = Arc::clone(self);
                self.pool.execute(move || {
                    let (http, response) = handler.respond_to_outcome(exchange, outcome);
                    // Fails if the client has gone.
                    let _ = http.respond(response);
                });
            } else {
                answers.push(self.respond_to_outcome(exchange, outcome));
            }
        }
        bounded_http::respond_all(answers);
    }

    /// The request, and the response that it gets.
    fn respond_to_outcome(
        &self,
        exchange: Exchange,
        outcome: Decided,
    ) -> (bounded_http::Request, bounded_http::Response) {
        let respond = || self.service.response_to(outcome);
        let response = catch_panic(respond).unwrap_or_else(|failed| failed);
        let arrival = exchange.http.arrival();
        let sent = self.service.finish(Some(&exchange.request()), arrival, response);
        let counters = &self.service.metrics.workers[arrival.worker];
        counters.durable.observe(arrival.received_at.elapsed());
        (exchange.http, sent)
    }
}
