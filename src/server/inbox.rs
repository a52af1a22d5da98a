//! How other threads reach a worker.

use std::io;
use std::mem::take;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

use super::connection::{Connection, Event};

pub(super) struct Inbox {
    mail: Mutex<Vec<Mail>>,
    /// Readable after [`Inbox::wake`], until [`Inbox::take`].
    pub(super) eventfd: OwnedFd,
    /// The number of the worker.
    pub(super) worker: usize,
}

pub(super) enum Mail {
    Connection(Box<Connection>),
    /// For the connection with this id: an answer, or the outcome of a change.
    Event(u64, Event),
    /// The worker drops it, to show that it is alive.
    Ping(Arc<()>),
}

impl Inbox {
    pub(super) fn new(worker: usize) -> io::Result<Self> {
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { mail: Mutex::default(), eventfd, worker })
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
}
