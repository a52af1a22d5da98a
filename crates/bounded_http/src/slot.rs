//! Where a connection finds what became of the request that it has handed out.
//!
//! An answer that comes before the next call of the worker is left here, and costs no hand-off. If
//! the worker then finds none, a later one comes by mail (`inbox`).

use std::mem::replace;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::inbox::{Inbox, Mail};
use super::limits::Quota;
use super::output::AfterSend;
use super::policy::Arrival;
use super::request::Request;
use super::response::Response;

/// What became of a request.
pub(super) enum Settled {
    /// `is_head`: it answers a HEAD request. `then`: what follows.
    Answer {
        response: Response,
        is_head: bool,
        then: AfterSend,
    },
    Parked(Box<Request>, Instant),
}

/// One for each connection, which has at most one request at a time.
pub(super) struct Slot {
    pub(super) quota: Quota,
    /// The number of the connection, which no other has.
    pub(super) id: u64,
    /// The other end's address, if it is a TCP connection.
    pub(super) peer: Option<SocketAddr>,
    /// The number of the listener that has accepted the connection.
    pub(super) listener: usize,
    state: Mutex<SlotState>,
}

enum SlotState {
    /// The request has no answer yet. The worker looks here at its next call.
    HandedOut,
    /// What it will find then.
    Settled(Settled),
    /// The worker has looked in vain, and awaits mail.
    AwaitsMail,
    /// The connection is closed.
    Closed,
}

impl Slot {
    pub(super) fn new(quota: Quota, peer: Option<SocketAddr>, listener: usize) -> Self {
        let id = quota.shared.next_id.fetch_add(1, Relaxed);
        Self { quota, id, peer, listener, state: Mutex::new(SlotState::HandedOut) }
    }

    pub(super) fn arrival(&self, received_at: Instant) -> Arrival {
        Arrival { worker: self.quota.worker, listener: self.listener, peer: self.peer, received_at }
    }

    /// Notes what became of the request, and tells its worker if that looks here no more. Fails if
    /// the connection is closed.
    pub(super) fn settle(&self, settled: Settled) -> Result<(), Settled> {
        let mail = self.settle_without_post(settled)?;
        mail.into_iter().for_each(|mail| self.inbox().post_all([mail]));
        Ok(())
    }

    /// The same, but returns the mail for the worker.
    pub(super) fn settle_without_post(&self, settled: Settled) -> Result<Option<Mail>, Settled> {
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

    /// That of the worker.
    pub(super) fn inbox(&self) -> &Inbox {
        &self.quota.shared.workers[self.quota.worker].inbox
    }

    fn lock(&self) -> MutexGuard<'_, SlotState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
