//! Requests that other threads answer: the writer, once a change is saved, and the thread for
//! answers that take long.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;

use super::{Answered, Asked, Desk, catch_panic};
use crate::service::{Decision, Thread};
use crate::store::{Change, Deliver, Outcome, StorageError};

type Decided = Result<Outcome, StorageError>;

/// How the changes of one worker go to the writer.
pub(super) struct Saving {
    /// The requests whose changes are there, by the ids of their connections.
    unsaved: Arc<Mutex<HashMap<u64, Asked>>>,
    /// The same for all changes of the worker, so that the outcomes of a commit come together.
    deliver: Arc<Deliver>,
}

impl Saving {
    pub(super) fn new(desk: &Weak<Desk>) -> Self {
        let unsaved = Arc::<Mutex<HashMap<_, Asked>>>::default();
        let (desk, saved) = (desk.clone(), Arc::clone(&unsaved));
        let deliver = move |outcomes: Vec<(u64, Decided)>| {
            let decided: Vec<_> = {
                let mut saved = saved.lock().unwrap_or_else(PoisonError::into_inner);
                let take = |(id, outcome)| Some((saved.remove(&id)?, outcome));
                outcomes.into_iter().filter_map(take).collect()
            };
            let Some(desk) = desk.upgrade() else { return };
            // After a panic here, those that are left are dropped, which answers them.
            let _ = catch_unwind(AssertUnwindSafe(|| desk.answer_decided(decided)));
        };
        Self { unsaved, deliver: Arc::new(deliver) }
    }
}

impl Desk {
    /// Has another thread answer, since it takes long.
    pub(super) fn answer_on_pool(self: &Arc<Self>, asked: Asked) -> Answered {
        let queued_at = Instant::now();
        let desk = Arc::clone(self);
        self.pool.execute(move || {
            let worker = asked.http.arrival().worker;
            let mut changes = Vec::new();
            desk.answer(asked, Thread::Pool { queued_at }, &mut changes);
            desk.save(worker, changes);
        });
        Answered::Later
    }

    /// Has the writer make these changes of one worker, and answer their requests. They go
    /// together: a commit of all of them costs one sync, as that of the first one would.
    pub(super) fn save(&self, worker: usize, changes: Vec<(Asked, Change)>) {
        let Saving { unsaved, deliver } = &self.savings[worker];
        let submitted: Vec<_> = {
            let mut unsaved = unsaved.lock().unwrap_or_else(PoisonError::into_inner);
            // If the client is known to have gone, its change is not made.
            let changes = changes.into_iter().filter(|(asked, _)| asked.http.is_open());
            let mut submit = |(asked, change): (Asked, Change)| {
                let id = asked.http.id();
                unsaved.insert(id, asked);
                (id, change)
            };
            changes.map(&mut submit).collect()
        };
        if !submitted.is_empty() {
            self.service.store.submit(submitted, deliver);
        }
    }

    /// Answers requests on whose changes the writer has decided, on its thread.
    fn answer_decided(self: &Arc<Self>, decided: Vec<(Asked, Decided)>) {
        let mut answers = Vec::new();
        for (asked, outcome) in decided {
            if matches!(outcome, Ok(Outcome::ReplacedAll { .. })) {
                // The JSON of the new list may have to be made, which takes long.
                let desk = Arc::clone(self);
                self.pool.execute(move || {
                    let (http, response) = desk.respond_to_outcome(asked, outcome);
                    // Fails if the client has gone.
                    let _ = http.respond(response);
                });
            } else {
                answers.push(self.respond_to_outcome(asked, outcome));
            }
        }
        bounded_http::respond_all(answers);
    }

    fn respond_to_outcome(
        &self,
        asked: Asked,
        outcome: Decided,
    ) -> (bounded_http::Request, bounded_http::Response) {
        let decide = || Decision::Respond(self.service.respond_to_outcome(outcome));
        let Decision::Respond(response) = catch_panic(decide) else {
            unreachable!("either is a response")
        };
        let arrival = asked.http.arrival();
        let length = |sent: &bounded_http::Response| asked.http.length_of(sent);
        let sent = self.service.finish(Some(&asked.request()), arrival, response, length);
        let counters = &self.service.metrics.workers[arrival.worker];
        counters.durable.observe(arrival.received_at.elapsed());
        (asked.http, sent)
    }
}
