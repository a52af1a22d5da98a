//! How other threads reach a worker: the accept loop with connections, and those that make responses
//! later than the worker could wait for.

use std::io;
use std::mem::take;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{EventfdFlags, eventfd};
use threadpool::ThreadPool;

use super::Shared;
use super::connection::{Connection, Event};
use crate::http::{ProtocolError, Request};
use crate::service::{Answer, Arrival, Service};
use crate::store::{Outcome, Reply};

pub(super) struct Inbox {
    mail: Mutex<Vec<Mail>>,
    /// Readable after [`Inbox::wake`], until [`Inbox::take`].
    pub(super) eventfd: OwnedFd,
    /// The number of the worker.
    pub(super) worker: usize,
    pub(super) shared: Arc<Shared>,
    /// Has one thread more than there are workers. It makes the answers that take long, one after
    /// the other, so that they delay no clients but those who asked for them.
    pub(super) pool: ThreadPool,
}

pub(super) enum Mail {
    Connection(Box<Connection>),
    /// For the connection with this id.
    Event(u64, Event),
    /// The worker drops it, to show that it is alive.
    Ping(Arc<()>),
}

impl Inbox {
    pub(super) fn new(worker: usize, shared: Arc<Shared>, pool: ThreadPool) -> io::Result<Self> {
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { mail: Mutex::default(), eventfd, worker, shared, pool })
    }

    pub(super) fn post(&self, mail: Mail) {
        let was_empty = {
            let mut waiting = self.mail.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.push(mail);
            waiting.len() == 1
        };
        if was_empty {
            self.wake();
        }
    }

    pub(super) fn take(&self) -> Vec<Mail> {
        // It fails when the counter is 0 already: the mail came after an earlier read.
        let _ = rustix::io::read(&self.eventfd, &mut [0; 8]);
        take(&mut *self.mail.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn wake(&self) {
        // It fails only when the counter is at its end, 2^64 - 2, and then the eventfd is readable.
        let _ = rustix::io::write(&self.eventfd, &1_u64.to_ne_bytes());
    }

    /// Has a request of the connection with this id answered by a thread of the pool, however long
    /// that takes.
    pub(super) fn defer(self: &Arc<Self>, id: u64, request: Arc<Request>, checks_host: bool) {
        let inbox = Arc::clone(self);
        self.pool.execute(move || {
            let make_reply = &|| inbox.make_reply(id);
            let arrival = Arrival { checks_host, may_defer: false, make_reply };
            inbox.post_response(id, false, |service| service.respond(&request, arrival));
        });
    }

    /// What takes the outcome of a change that the connection with this id has asked for.
    pub(super) fn make_reply(self: &Arc<Self>, id: u64) -> Reply {
        let inbox = Arc::clone(self);
        Box::new(move |outcome| {
            // its envelope has to be made
            let has_envelope = matches!(outcome, Ok(Outcome::Replaced(..)));
            let pool = has_envelope.then(|| inbox.pool.clone());
            let respond = move || {
                inbox.post_response(id, true, |service| {
                    Answer::Now(service.respond_to_outcome(outcome))
                });
            };
            match pool {
                Some(pool) => pool.execute(respond),
                None => respond(),
            }
        })
    }

    /// Posts the response that `respond` makes for the connection with this id.
    fn post_response(&self, id: u64, durable: bool, respond: impl FnOnce(&Service) -> Answer) {
        let answer = catch_unwind(AssertUnwindSafe(|| respond(&self.shared.service)));
        let response = match answer {
            Ok(Answer::Now(response)) => Ok(Box::new(response)),
            // its reply posts it
            Ok(Answer::Saving | Answer::Deferred) => return,
            Err(_) => Err(ProtocolError::Panicked),
        };
        self.post(Mail::Event(id, Event::Response { response, durable }));
    }
}
