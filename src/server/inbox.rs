//! How other threads reach a worker: the accept loop with connections, the writer with outcomes,
//! the pool with answers that took long, and whoever changes the list.

use std::io;
use std::mem::take;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{EventfdFlags, eventfd};
use threadpool::ThreadPool;

use super::Shared;
use super::connection::{Connection, Event, panicked};
use super::watches::Watches;
use crate::service::{Answer, Service};

pub(super) struct Inbox {
    mail: Mutex<Vec<Mail>>,
    /// Readable after [`Inbox::wake`], until [`Inbox::take`].
    pub(super) eventfd: OwnedFd,
    /// The number of the worker.
    pub(super) worker: usize,
    pub(super) shared: Arc<Shared>,
    /// Which of its connections wait for a change of the list.
    pub(super) watches: Arc<Watches>,
    /// Each worker has one of its threads for good. The one that is left makes the answers that
    /// take long, one after the other, so that they delay only the clients who asked for them, and
    /// frees long lists.
    pub(super) pool: ThreadPool,
}

pub(super) enum Mail {
    Connection(Box<Connection>),
    /// For the connection with this id.
    Event(u64, Event),
    /// A request that waits for a change may have lost its token.
    TokensChanged,
    /// The worker drops it, to show that it is alive.
    Ping(Arc<()>),
}

impl Inbox {
    pub(super) fn new(worker: usize, shared: Arc<Shared>, pool: ThreadPool) -> io::Result<Self> {
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let watches = Arc::new(Watches::new(Arc::clone(&shared.server), worker));
        Ok(Self { mail: Mutex::default(), eventfd, worker, shared, watches, pool })
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

    /// Has a thread of the pool answer the connection with this id, however long that takes.
    pub(super) fn defer(
        self: &Arc<Self>,
        connection: u64,
        answer: impl FnOnce(&Service) -> Answer + Send + 'static,
    ) {
        let inbox = Arc::clone(self);
        self.pool.execute(move || {
            let answer = catch_unwind(AssertUnwindSafe(|| answer(&inbox.shared.service)));
            let answer = answer.unwrap_or_else(|_| Answer::Now(panicked()));
            // If the change has to be saved, the writer delivers its outcome.
            if !matches!(answer, Answer::Saving) {
                inbox.post(Mail::Event(connection, Event::Answer(Box::new(answer))));
            }
        });
    }
}
