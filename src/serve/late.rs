//! Requests that other threads answer: the writer, once a change is saved, and the thread for
//! answers that take long.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::{Answered, Asked, Desk, catch_panic};
use crate::service::{Decision, Thread};
use crate::store::{Change, Deliver, Outcome, StorageError};

type Decided = Result<Outcome, StorageError>;

impl Desk {
    /// Has another thread answer, since it takes long.
    pub(super) fn answer_on_pool(self: &Arc<Self>, asked: Asked) -> Answered {
        let queued_at = Instant::now();
        let desk = Arc::clone(self);
        self.pool.execute(move || match desk.answer(asked, Thread::Pool { queued_at }) {
            Answered::Now | Answered::Later => {}
            Answered::Save(asked, change) => desk.save(vec![(asked, change)]),
        });
        Answered::Later
    }

    /// Has the writer make these changes, and answer their requests. They go together: a commit of
    /// all of them costs one sync, as that of the first one would.
    pub(super) fn save(self: &Arc<Self>, changes: Vec<(Asked, Change)>) {
        // If the client is known to have gone, its change is not made.
        let changes = changes.into_iter().filter(|(asked, _)| asked.http.is_open());
        let (asked, changes): (Vec<_>, Vec<_>) = changes.unzip();
        if changes.is_empty() {
            return;
        }
        let asked: Vec<_> = asked.into_iter().map(Some).collect();
        let (desk, asked) = (Arc::clone(self), Mutex::new(asked));
        let deliver: Arc<Deliver> = Arc::new(move |outcomes| {
            let decided: Vec<_> = {
                let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
                let take = |(place, outcome)| Some((asked[place as usize].take()?, outcome));
                outcomes.into_iter().filter_map(take).collect()
            };
            // After a panic here, those that are left are dropped, which answers them.
            let _ = catch_unwind(AssertUnwindSafe(|| desk.answer_decided(decided)));
        });
        self.service.store.submit((0..).zip(changes).collect(), &deliver);
    }

    /// Answers requests on whose changes the writer has decided.
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
