//! How other threads reach a worker.

use std::io;
use std::mem::take;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use rustix::event::{EventfdFlags, eventfd};

use super::connection::{Connection, Event};
use super::shared::{Quota, Shared};

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

    /// Passes a new connection to the worker.
    pub(super) fn add(
        &self,
        socket: OwnedFd,
        peer: Option<SocketAddr>,
        checks_host: bool,
        shared: &Arc<Shared>,
    ) {
        let quota = Quota::new(Arc::clone(shared), self.worker);
        let connection = Connection::new(socket, peer, checks_host, quota, Instant::now());
        self.post(Mail::Connection(Box::new(connection)));
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
        // It fails when an earlier read has reset the counter.
        let _ = rustix::io::read(&self.eventfd, &mut [0; 8]);
        take(&mut *self.mail.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn wake(&self) {
        // It fails only when the counter is at 2^64 - 2, and then the worker wakes anyway.
        let _ = rustix::io::write(&self.eventfd, &1_u64.to_ne_bytes());
    }
}
