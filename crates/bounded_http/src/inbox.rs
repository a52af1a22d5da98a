//! The mailbox of a worker, by which other threads reach it: the acceptor with new connections, and
//! whoever settles a request for which the worker has looked in vain (`slot`). A wake-up may also
//! come without mail: when the phase changes, and from [`Handle::notify`](super::Handle::notify).

use std::io;
use std::mem::take;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

use super::slot::{Settled, Slot};

pub(super) struct Inbox {
    /// `None` once the worker is gone.
    mail: Mutex<Option<Vec<Mail>>>,
    /// Readable after [`Inbox::wake`], until [`Inbox::take`].
    pub(super) eventfd: OwnedFd,
}

pub(super) enum Mail {
    /// A connection that its worker has not taken yet, from the acceptor.
    NewConnection(OwnedFd, Slot),
    /// What became of the request of the connection with this id.
    Settled(u64, Settled),
}

impl Inbox {
    pub(super) fn new() -> io::Result<Self> {
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { mail: Mutex::new(Some(Vec::new())), eventfd })
    }

    /// Wakes the worker once, and only if it has no mail yet. If the worker is gone, the mail is
    /// dropped, and with it the connections that come by it.
    pub(super) fn post_all(&self, mail: impl IntoIterator<Item = Mail>) {
        let was_empty = {
            let mut posted = self.lock();
            let Some(posted) = &mut *posted else { return };
            let was_empty = posted.is_empty();
            posted.extend(mail);
            was_empty
        };
        if was_empty {
            self.wake();
        }
    }

    pub(super) fn take(&self) -> Vec<Mail> {
        // Read before taking: mail that is posted in between makes the eventfd readable again.
        let _ = rustix::io::read(&self.eventfd, &mut [0; 8]);
        self.lock().as_mut().map(take).unwrap_or_default()
    }

    /// Drops the mail, and all that comes later: the worker is gone.
    pub(super) fn close(&self) {
        let mail = self.lock().take();
        // Not under the lock: connections are closed.
        drop(mail);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().is_none()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<Mail>>> {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn wake(&self) {
        // Fails only if the counter is at its end, 2^64 - 2. Then the eventfd is readable anyway.
        let _ = rustix::io::write(&self.eventfd, &1_u64.to_ne_bytes());
    }
}
