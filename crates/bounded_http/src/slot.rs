//! Where a connection finds what became of its request.
//!
//! While its worker has not looked, an answer is left here, and costs no hand-off. Once it has
//! looked in vain, the answer comes by mail.

use std::mem::replace;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::inbox::Mail;
use super::policy::{Arrival, Policy};
use super::request::Request;
use super::response::Response;
use super::shared::Shared;

/// What became of a request.
pub(super) enum Settled {
    Answer(Response),
    Parked(Box<Request>, Instant),
}

/// One for each connection, which has at most one request at a time.
pub(super) struct Slot {
    shared: Arc<Shared>,
    /// The number of the worker.
    pub(super) worker: usize,
    /// The number of the connection at its worker.
    pub(super) id: u64,
    /// The other end's address, if it is a TCP connection.
    pub(super) peer: Option<SocketAddr>,
    /// The number of the listener that has accepted the connection.
    pub(super) listener: usize,
    state: Mutex<SlotState>,
}

enum SlotState {
    /// The worker has handed out the request, and looks here at its next call.
    HandedOut,
    /// For that look.
    Settled(Settled),
    /// The worker has looked in vain, and awaits mail.
    AwaitsMail,
    /// The connection is closed.
    Closed,
}

impl Slot {
    pub(super) fn new(
        shared: Arc<Shared>,
        worker: usize,
        id: u64,
        peer: Option<SocketAddr>,
        listener: usize,
    ) -> Self {
        Self { shared, worker, id, peer, listener, state: Mutex::new(SlotState::HandedOut) }
    }

    pub(super) fn arrival(&self, received_at: Instant) -> Arrival {
        Arrival { worker: self.worker, listener: self.listener, peer: self.peer, received_at }
    }

    pub(super) fn policy(&self) -> Option<Arc<dyn Policy>> {
        self.shared.policy()
    }

    /// Notes what became of the request. Returns mail for the worker if it looks here no more.
    /// Fails if the connection is closed.
    pub(super) fn settle(&self, settled: Settled) -> Result<Option<Mail>, Settled> {
        let mut state = self.lock();
        match &mut *state {
            SlotState::HandedOut => {
                *state = SlotState::Settled(settled);
                Ok(None)
            }
            SlotState::AwaitsMail => {
                // For the next request, which is handed out only after this mail.
                *state = SlotState::HandedOut;
                Ok(Some(Mail::Settled(self.id, settled)))
            }
            SlotState::Settled(_) | SlotState::Closed => Err(settled),
        }
    }

    /// What became of the request that was handed out. If nothing did yet, it comes by mail.
    pub(super) fn look(&self) -> Option<Settled> {
        let mut state = self.lock();
        match replace(&mut *state, SlotState::HandedOut) {
            SlotState::Settled(settled) => Some(settled),
            _ => {
                *state = SlotState::AwaitsMail;
                None
            }
        }
    }

    /// For a connection that is closed: nobody waits for an answer.
    pub(super) fn close(&self) {
        let before = replace(&mut *self.lock(), SlotState::Closed);
        // Not under the lock: what a parked request keeps is dropped with it.
        drop(before);
    }

    pub(super) fn is_closed(&self) -> bool {
        matches!(*self.lock(), SlotState::Closed)
    }

    pub(super) fn post(&self, mail: Mail) {
        self.post_all([mail]);
    }

    pub(super) fn post_all(&self, mail: impl IntoIterator<Item = Mail>) {
        self.shared.workers[self.worker].inbox.post_all(mail);
    }

    fn lock(&self) -> MutexGuard<'_, SlotState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
