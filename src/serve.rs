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

use bounded_http::{Arrival, Worker};
use threadpool::ThreadPool;
use tiny_http::StatusCode;

pub(crate) use self::accept::{accept, stop};
use self::late::Saving;
pub(crate) use self::listen::{Listener, check_endpoint, inherited, listen};
use crate::http::{Request, RequestFields, Response};
use crate::service::{Decision, FAILED, RequestContext, Service, Thread, Wait};
use crate::store::Change;

/// What all workers share.
pub(crate) struct Desk {
    service: Arc<Service>,
    /// One thread of it makes the answers that take long, one after the other. The workers, the
    /// writer, the watch and the follower keep the others for good.
    pool: ThreadPool,
    /// By the number of the worker: whether it has still to show that it is not stuck.
    pings: Box<[AtomicBool]>,
    /// How changes go to the writer, by the number of the worker.
    savings: Box<[Saving]>,
}

/// Takes requests and answers them, until the server stops.
fn serve(worker: &mut Worker, desk: &Arc<Desk>) {
    loop {
        serve_pass(worker, desk);
        if !worker.wait() {
            return;
        }
    }
}

/// Answers the requests of one pass. The changes among them that have to be saved go to the writer
/// together.
fn serve_pass(worker: &mut Worker, desk: &Arc<Desk>) {
    let waits = &desk.service.waits[worker.number()];
    let counters = &desk.service.metrics.workers[worker.number()];
    desk.pings[worker.number()].store(false, Relaxed);
    for id in waits.take_affected() {
        worker.wake(id);
    }
    let (mut answered, mut changes) = (0, Vec::new());
    while let Some(request) = worker.try_recv() {
        if desk.answer(Asked::new(request), Thread::Worker, &mut changes) == Answered::Now {
            answered += 1;
        }
    }
    counters.immediate.observe_each(answered, worker.pass_time());
    if !changes.is_empty() {
        desk.save(worker.number(), changes);
    }
}

/// Runs [`serve`] on this thread. If a panic ended the thread, the acceptor would go on choosing
/// its worker, as the one with the fewest connections.
pub(crate) fn run(mut worker: Worker, desk: &Arc<Desk>) {
    while catch_unwind(AssertUnwindSafe(|| serve(&mut worker, desk))).is_err() {
        worker.close_all();
    }
}

/// A request that has no answer yet.
struct Asked {
    http: bounded_http::Request,
    /// `None` if none of them came.
    fields: Option<Box<RequestFields>>,
    /// Once it waits for a change.
    wait: Option<Box<Wait>>,
}

impl Asked {
    /// A request that is received for the first time, or again.
    fn new(mut http: bounded_http::Request) -> Self {
        match http.take_kept::<wait::Kept>() {
            Some(kept) => kept.with(http),
            None => Self { fields: RequestFields::read(http.head()), http, wait: None },
        }
    }

    fn request(&self) -> Request<'_> {
        Request::new(self.http.head(), self.fields.as_deref(), self.http.content())
    }
}

/// When a request is answered.
#[derive(PartialEq, Eq)]
enum Answered {
    Now,
    /// It was answered late, and its time is noted, or it will be answered later.
    Later,
}

impl Desk {
    pub(crate) fn new(service: Arc<Service>, pool: &ThreadPool) -> Arc<Self> {
        let workers = service.waits.len();
        Arc::new_cyclic(|desk| Self {
            service,
            pool: pool.clone(),
            pings: (0..workers).map(|_| AtomicBool::new(false)).collect(),
            savings: (0..workers).map(|_| Saving::new(desk)).collect(),
        })
    }

    /// Has each worker show that it is not stuck.
    fn ping(&self) {
        for (worker, ping) in self.pings.iter().enumerate() {
            ping.store(true, Relaxed);
            self.service.server.notify(worker);
        }
    }

    /// Whether a worker has not answered the last [`Desk::ping`].
    fn misses_one(&self) -> bool {
        self.pings.iter().any(|ping| ping.load(Relaxed))
    }

    /// Answers a request, or has it answered later. If its change has to be saved first, both are
    /// added to `changes`. `thread`: the one that calls this.
    fn answer(
        self: &Arc<Self>,
        asked: Asked,
        thread: Thread,
        changes: &mut Vec<(Asked, Change)>,
    ) -> Answered {
        // Before the service looks: a later change marks the request once more.
        let number = || self.service.store.list.number();
        let is_changed = asked.wait.as_ref().is_some_and(|wait| wait.is_changed(number()));
        let listener = asked.http.arrival().listener;
        let context = RequestContext { listener, thread };
        match catch_panic(|| self.service.decide(&asked.request(), context)) {
            Decision::Respond(response) => self.respond(asked, response, thread),
            Decision::Refuse(refusal) => self.refuse(asked, refusal, thread),
            Decision::Wait { current, .. } if is_changed => self.respond(asked, current, thread),
            Decision::Wait { current, .. } if !asked.may_wait() => {
                self.respond(asked, current.into_not_modified(), thread)
            }
            Decision::Wait { subject, seen, .. } if asked.wait.is_none() => {
                let waits = &self.service.waits[asked.http.arrival().worker];
                let asked = asked.waiting(waits, subject, seen);
                // A change may have come before the wait, so ask again.
                self.answer(asked, thread, changes)
            }
            Decision::Wait { .. } => asked.park(),
            Decision::AnswerOnPool => self.answer_on_pool(asked),
            Decision::Save(change) => {
                changes.push((asked, change));
                Answered::Later
            }
        }
    }

    fn respond(&self, asked: Asked, response: Response, thread: Thread) -> Answered {
        let is_late = asked.wait.is_some() || thread != Thread::Worker;
        let response = wait::note_wait(&asked, response);
        let arrival = asked.http.arrival();
        let length = |sent: &bounded_http::Response| asked.http.length_of(sent);
        let sent = self.service.finish(Some(&asked.request()), arrival, response, length);
        // Fails if the client has gone.
        let _ = asked.http.respond(sent);
        self.note_time(arrival, is_late)
    }

    /// Notes how long a late answer took. The others have the time of their pass.
    fn note_time(&self, arrival: Arrival, is_late: bool) -> Answered {
        if !is_late {
            return Answered::Now;
        }
        let counters = &self.service.metrics.workers[arrival.worker];
        counters.immediate.observe(arrival.received_at.elapsed());
        Answered::Later
    }

    /// Refuses a request by its head. The client sees the same as if the content that the head
    /// announces had not arrived: the connection closes.
    fn refuse(&self, asked: Asked, refusal: Response, thread: Thread) -> Answered {
        let head = asked.http.head();
        if !head.has_content() {
            return self.respond(asked, refusal, thread);
        }
        let is_head = head.is_head();
        let is_late = asked.wait.is_some() || thread != Thread::Worker;
        let length = |sent: &bounded_http::Response| sent.length_as_last(is_head);
        let arrival = asked.http.arrival();
        let sent = self.service.finish(Some(&asked.request()), arrival, refusal, length);
        let _ = asked.http.respond(sent.closing());
        self.note_time(arrival, is_late)
    }
}

/// Asks the service. A panic is answered with 500. The list is consistent after a panic: a change
/// is decided before it is made, and to make it does not panic. If the panic came only while the
/// response was made, the list has the change.
fn catch_panic(question: impl FnOnce() -> Decision) -> Decision {
    catch_unwind(AssertUnwindSafe(question))
        .unwrap_or_else(|_| Decision::Respond(Response::error(StatusCode(500), FAILED)))
}

#[cfg(test)]
#[path = "serve_tests.rs"]
mod tests;
