//! Connections whose content has to come without a stall. ureq limits the time of a whole content,
//! which is long, and that of each read, which would limit the wait for the head as well.

use std::time::{Duration, Instant};

use ureq::unversioned::transport::{Buffers, ConnectionDetails, Connector, NextTimeout, Transport};
use ureq::{Error, Timeout};

/// Each piece of content of this length, in bytes, has to come within [`PIECE_TIME`].
const PIECE_BYTES: usize = 64 * 1024;

/// Longest time for [`PIECE_BYTES`], so that 170 kbit/s are enough, and for a content that is
/// shorter.
const PIECE_TIME: Duration = super::ANSWER_TIME;

/// Comes after the connector that opens connections, and closes those that stall.
#[derive(Debug)]
pub(super) struct StallGuard;

impl<T: Transport> Connector<T> for StallGuard {
    type Out = Guarded<T>;

    fn connect(
        &self,
        _: &ConnectionDetails<'_>,
        opened: Option<T>,
    ) -> Result<Option<Self::Out>, Error> {
        Ok(opened.map(|transport| Guarded { transport, begun: None, received: 0 }))
    }
}

/// A connection.
#[derive(Debug)]
pub(super) struct Guarded<T> {
    transport: T,
    /// When the current piece of content has begun; `None` before the content.
    begun: Option<Instant>,
    /// Bytes of the current piece.
    received: usize,
}

impl<T: Transport> Transport for Guarded<T> {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self.transport.buffers()
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.transport.transmit_output(amount, timeout)
    }

    fn await_input(&mut self, mut timeout: NextTimeout) -> Result<bool, Error> {
        if timeout.reason != Timeout::RecvBody {
            self.begun = None;
            return self.transport.await_input(timeout);
        }
        if self.begun.is_none() || self.received >= PIECE_BYTES {
            self.begun = Some(Instant::now());
            self.received = 0;
        }
        let time = self.begun.map_or(Duration::ZERO, |begun| begun.elapsed());
        let left = PIECE_TIME.checked_sub(time).ok_or(Error::Timeout(Timeout::PerRead))?;
        timeout.per_read = Some(left.into());
        let before = self.transport.buffers().input().len();
        let result = self.transport.await_input(timeout);
        self.received += self.transport.buffers().input().len() - before;
        result
    }

    fn is_open(&mut self) -> bool {
        self.transport.is_open()
    }
}
