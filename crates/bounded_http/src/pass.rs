//! What a worker gives to the connection that it serves.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::date::Date;
use super::policy::Policy;
use super::request::Request;
use super::shared::{Phase, Shared};

/// Most bytes received at a time: of a long content, or of what is dropped after the last response.
const RECEIVE_BYTES_MAX: usize = 64 * 1024;

/// What a connection needs of its worker in one pass of the event loop.
pub(super) struct Pass {
    pub(super) shared: Arc<Shared>,
    pub(super) policy: Arc<dyn Policy>,
    /// The number of the worker.
    pub(super) worker: usize,
    /// The phase of the server when the pass began.
    pub(super) phase: Phase,
    /// When the pass began.
    pub(super) now: Instant,
    /// The value of Date in responses of this pass.
    pub(super) date: Date,
    /// The receive buffer of all connections.
    scratch: Vec<u8>,
    /// The request that a connection hands out.
    pub(super) received: Option<Request>,
}

impl Pass {
    pub(super) fn new(
        shared: Arc<Shared>,
        policy: Arc<dyn Policy>,
        worker: usize,
        now: Instant,
    ) -> Self {
        Self {
            phase: shared.phase(),
            shared,
            policy,
            worker,
            now,
            date: Date::default(),
            scratch: vec![0; RECEIVE_BYTES_MAX],
            received: None,
        }
    }

    pub(super) fn begin(&mut self, now: Instant) {
        self.now = now;
        self.date.set(now);
        self.phase = self.shared.phase();
    }

    /// Receives as many bytes as are there, up to this many and to the length of the buffer.
    /// Returns an empty slice at the end of what the client sends, and `None` if nothing has
    /// arrived yet.
    pub(super) fn receive(&mut self, socket: &OwnedFd, most: usize) -> io::Result<Option<&[u8]>> {
        let most = most.min(self.scratch.len());
        match rustix::net::recv(socket, &mut self.scratch[..most], RecvFlags::DONTWAIT) {
            Ok((_, received)) => Ok(Some(&self.scratch[..received])),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}
