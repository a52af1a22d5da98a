//! Requests that other threads answer: the writer, once a change is saved, and the thread for
//! answers that take long.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Instant;

use super::{Exchange, Handler, catch_panic};
use crate::service::Thread;
use crate::store::{Change, Decided, Outcome, Writer};

/// Who submits a change, and gets its outcome.
pub(crate) enum Submitter {
    Client(Exchange),
    Follower(Sender<Decided>),
}

/// Runs the writer on this thread, which answers the requests whose changes it has decided.
pub(crate) fn save(writer: Writer<Submitter>, handler: &Arc<Handler>) {
    writer.run(|decided| handler.answer_decided(decided));
}

impl Handler {
    /// Has another thread answer, since it takes long.
    pub(super) fn answer_on_another_thread(self: &Arc<Self>, exchange: Exchange) {
        let queued_at = Instant::now();
        let handler = Arc::clone(self);
        self.pool.execute(move || {
            let mut changes = Vec::new();
            handler.answer(exchange, Thread::LongAnswers { queued_at }, &mut changes);
            handler.submit(changes);
        });
    }

    /// Has the writer make these changes, and answer their requests. They go together: a commit of
    /// all of them costs one sync, as that of the first one would.
    pub(super) fn submit(self: &Arc<Self>, mut changes: Vec<(Exchange, Change)>) {
        // If the client is known to have gone, its change is not made.
        changes.retain(|(exchange, _)| exchange.http.is_open());
        if changes.is_empty() {
            return;
        }
        let of_client = |(exchange, change)| (Submitter::Client(exchange), change);
        let refused = self.store.submit(changes.into_iter().map(of_client).collect());
        self.answer_decided(refused);
    }

    /// Answers those whose changes are decided. On the thread of the writer, or on the one that has
    /// submitted them.
    pub(super) fn answer_decided(self: &Arc<Self>, decided: Vec<(Submitter, Decided)>) {
        // A panic would end the writer. Those that are left are dropped, which answers them.
        let _ = catch_unwind(AssertUnwindSafe(|| self.answer_each(decided)));
    }

    fn answer_each(self: &Arc<Self>, decided: Vec<(Submitter, Decided)>) {
        let mut answers = Vec::new();
        for (submitter, outcome) in decided {
            match submitter {
                // Fails if the follower has ended: then the process ends.
                Submitter::Follower(sender) => drop(sender.send(outcome)),
                // The JSON of the new list may have to be made, which takes long.
                Submitter::Client(exchange)
                    if matches!(outcome, Ok(Outcome::ReplacedAll { .. })) =>
                {
                    let handler = Arc::clone(self);
                    self.pool.execute(move || {
                        let (http, response) = handler.respond_to_outcome(exchange, outcome);
                        // Fails if the client has gone.
                        let _ = http.respond(response);
                    });
                }
                Submitter::Client(exchange) => {
                    answers.push(self.respond_to_outcome(exchange, outcome));
                }
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
