//! The loop: each worker takes requests and answers them. `lib.rs` begins with the way of a
//! request, and with all threads and locks.
//!
//! Most requests are answered at once. Of the others, those whose change has to be saved first go
//! to the writer, and those that take long to another thread ([`late`]); those that wait for a
//! change are parked, and are received again ([`wait`]).

mod accept;
mod late;
mod listen;
#[cfg(fuzzing)]
#[path = "../fuzz/seam/stepped.rs"]
pub(crate) mod stepped;
mod wait;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bounded_http::Worker;
use threadpool::ThreadPool;
use tiny_http::StatusCode;

pub(crate) use self::accept::{accept, stop};
pub(crate) use self::late::{Submitter, save};
pub(crate) use self::listen::{Listener, check_endpoint, inherited, listen};
use crate::http::{Request, RequestFields, Response};
use crate::service::{Decision, FAILED, Service, Thread, Wait};
use crate::store::{Change, Store};

/// What all workers share: the service, and how it is asked.
pub(crate) struct Handler {
    service: Arc<Service>,
    /// What saves the changes that have to be saved.
    pub(crate) store: Store<Submitter>,
    /// One thread of it makes the answers that take long, one after the other. The workers, the
    /// writer, the watch and the follower keep the others for good.
    pool: ThreadPool,
    /// By the number of the worker: whether it has still to show that it is not stuck.
    pings: Box<[AtomicBool]>,
}

/// Takes requests and answers them, until the server stops.
fn serve(worker: &mut Worker, handler: &Arc<Handler>) {
    loop {
        serve_pass(worker, handler);
        if !worker.wait() {
            return;
        }
    }
}

/// Answers the requests of one pass. The changes among them that have to be saved go to the writer
/// together.
fn serve_pass(worker: &mut Worker, handler: &Arc<Handler>) {
    let counters = &handler.service.metrics.workers[worker.number()];
    handler.pings[worker.number()].store(false, Relaxed);
    for id in handler.service.waits.take_affected(worker.number()) {
        worker.wake(id);
    }
    let (mut answered, mut changes) = (0, Vec::new());
    while let Some(request) = worker.try_recv() {
        if handler.answer(Exchange::new(request), Thread::Worker, &mut changes) {
            answered += 1;
        }
    }
    counters.not_durable.observe_each(answered, worker.pass_time());
    if !changes.is_empty() {
        handler.submit(changes);
    }
}

/// Runs [`serve`] on this thread. If a panic ended the thread, the acceptor would go on choosing
/// its worker, as the one with the fewest connections.
pub(crate) fn run(mut worker: Worker, handler: &Arc<Handler>) {
    while catch_unwind(AssertUnwindSafe(|| serve(&mut worker, handler))).is_err() {
        worker.close_all();
    }
}

/// A request that has no response yet.
pub(crate) struct Exchange {
    http: bounded_http::Request,
    known: Known,
}

/// What is known of a request besides what the server has of it. Kept while the request is parked.
struct Known {
    /// `None` if none of them came.
    fields: Option<Box<RequestFields>>,
    /// Once it waits for a change.
    wait: Option<Box<Wait>>,
}

impl Exchange {
    /// A request that is received for the first time, or again.
    fn new(mut http: bounded_http::Request) -> Self {
        let known = match http.take_kept::<Known>() {
            Some(known) => *known,
            None => Known { fields: RequestFields::read(http.head()), wait: None },
        };
        Self { http, known }
    }

    fn request(&self) -> Request<'_> {
        let listener = self.http.arrival().listener;
        let fields = self.known.fields.as_deref();
        Request::new(self.http.head(), fields, self.http.content(), listener)
    }
}

impl Handler {
    pub(crate) fn new(
        service: Arc<Service>,
        store: Store<Submitter>,
        pool: &ThreadPool,
    ) -> Arc<Self> {
        let pings = (0..service.waits.workers()).map(|_| AtomicBool::new(false)).collect();
        Arc::new(Self { service, store, pool: pool.clone(), pings })
    }

    /// Has each worker show that it is not stuck.
    fn ping(&self) {
        for (worker, ping) in self.pings.iter().enumerate() {
            ping.store(true, Relaxed);
            self.service.server.notify(worker);
        }
    }

    /// Whether a worker has not answered the last [`Handler::ping`].
    fn misses_one(&self) -> bool {
        self.pings.iter().any(|ping| ping.load(Relaxed))
    }

    /// Answers a request, or has it answered later. If its change has to be saved first, both are
    /// added to `changes`. `thread`: the one that calls this. True if it was answered, and took no
    /// longer than the pass that received it first.
    fn answer(
        self: &Arc<Self>,
        exchange: Exchange,
        thread: Thread,
        changes: &mut Vec<(Exchange, Change)>,
    ) -> bool {
        // Before the service looks: a later change marks the request once more.
        let is_changed = exchange.is_changed(&self.service.list);
        let decide = || self.service.decide(&exchange.request(), thread);
        match catch_panic(decide) {
            Ok(Decision::Respond(response)) | Err(response) => {
                return self.respond(exchange, response, thread);
            }
            Ok(Decision::Wait { subject, seen, .. }) if exchange.known.wait.is_none() => {
                let exchange = exchange.waiting(&self.service.waits, subject, seen);
                // A change may have come before the wait, so ask again.
                return self.answer(exchange, thread, changes);
            }
            Ok(Decision::Wait { current, .. }) if is_changed => {
                return self.respond(exchange, current, thread);
            }
            Ok(Decision::Wait { current, .. }) if !exchange.may_wait() => {
                return self.respond(exchange, current.into_not_modified(), thread);
            }
            Ok(Decision::Wait { .. }) => exchange.park(),
            Ok(Decision::TakesLong) => self.answer_on_another_thread(exchange),
            Ok(Decision::Save(change)) => changes.push((exchange, change)),
        }
        false
    }

    /// Sends a response. False if the request took longer than a pass: its time is noted here.
    fn respond(&self, exchange: Exchange, mut response: Response, thread: Thread) -> bool {
        let is_late = exchange.known.wait.is_some() || thread != Thread::Worker;
        exchange.note_wait(&mut response);
        let arrival = exchange.http.arrival();
        let sent = self.service.finish(Some(&exchange.request()), arrival, response);
        // Fails if the client has gone.
        let _ = exchange.http.respond(sent);
        if is_late {
            let counters = &self.service.metrics.workers[arrival.worker];
            counters.not_durable.observe(arrival.received_at.elapsed());
        }
        !is_late
    }
}

/// Asks the service. A panic is answered with 500. The list is consistent after a panic: a change
/// is decided before it is made, and to make it does not panic. If the panic came only while the
/// response was made, the list has the change.
fn catch_panic<T>(question: impl FnOnce() -> T) -> Result<T, Response> {
    catch_unwind(AssertUnwindSafe(question)).map_err(|_| Response::error(StatusCode(500), FAILED))
}

#[cfg(test)]
#[path = "serve_tests.rs"]
mod tests;
