//! Finds the requests in a connection's bytes (RFC 9112), and refuses what cannot be read safely. Knows no socket, no clock and no color.
//!
//! A request leaves here whole: the fields that the service looks at, the content, and a head of nothing but method and target for
//! tiny_http to read. Given the bytes of clients themselves, tiny_http waits forever on `HTTP/2.0` (a worker lost for good), buffers a
//! field line without end, takes `3, 4` for no Content-Length, and refuses tabs and UTF-8 in fields nobody asks for.

use std::mem::take;

use crate::head::{self, Arriving, Call, Framing};
use crate::refusal::{HEAD_BYTES_MAX, Refusal};

/// What the bytes received so far amount to.
#[derive(Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "nearly every step gives a whole request")]
pub(crate) enum Step {
    /// Not yet a whole request.
    More,
    /// Not yet a whole request, and the client waits to hear `100 Continue` before it sends the rest. Said once a request.
    Continue,
    /// A request; its bytes are gone from the intake.
    Whole(Call),
}

/// A connection's bytes that no request was made of yet.
#[derive(Debug, Default)]
pub(crate) struct Intake {
    /// Received bytes; those before `start` are used up.
    received: Vec<u8>,
    /// Where the unused bytes begin.
    start: usize,
    /// The search for the end of the next request's head.
    search: Search,
    /// The next request, when its head is read and its content is on its way.
    arriving: Option<Arriving>,
}

/// The search for the end of a head.
#[derive(Debug, Default)]
struct Search {
    /// How many of the unused bytes have been looked at: no line break among them ends the head.
    scanned: usize,
    /// Whether the one empty line that may come before a request came.
    skipped_empty_line: bool,
}

impl Intake {
    /// Where to append what the socket delivers, with room for at least `bytes` more.
    pub(crate) fn room(&mut self, bytes: usize) -> &mut Vec<u8> {
        if self.start > 0 {
            self.received.drain(..self.start);
            self.start = 0;
        }
        self.received.reserve(bytes);
        &mut self.received
    }

    /// Whether no byte of a next request has arrived.
    pub(crate) fn is_idle(&self) -> bool {
        self.arriving.is_none() && self.start == self.received.len()
    }

    /// Whether the request under way says that its method is HEAD, however little of the rest can be read.
    pub(crate) fn asks_for_head_alone(&self) -> bool {
        self.arriving.as_ref().map_or_else(|| self.received[self.start..].starts_with(b"HEAD "), |arriving| arriving.call.is_head())
    }

    /// Bytes of memory this holds on to.
    pub(crate) fn held(&self) -> usize {
        let arrived = self.arriving.as_ref().map_or(0, |Arriving { call, .. }| call.held());
        self.received.capacity() + arrived
    }

    /// Gives back the memory that a waiting connection does not need.
    pub(crate) fn shrink(&mut self) {
        self.room(0).shrink_to_fit();
    }

    /// Makes the most of the bytes received so far.
    ///
    /// # Errors
    /// When they are no request that can be answered; nothing after them may be read as one.
    pub(crate) fn step(&mut self, content_max: usize) -> Result<Step, Refusal> {
        if self.arriving.is_none() {
            let Some(length) = self.search.find_end(&self.received, &mut self.start)? else { return Ok(Step::More) };
            let head = &self.received[self.start..self.start + length];
            self.arriving = Some(head::read(head, content_max)?);
            self.start += length;
            self.search = Search::default();
        }
        let Some(arriving) = &mut self.arriving else { return Ok(Step::More) };
        if arriving.take(&self.received, &mut self.start, content_max)? {
            let call = take(&mut arriving.call);
            self.arriving = None;
            return Ok(Step::Whole(call));
        }
        // RFC 9110 §10.1.1: no 100 when some of the content has arrived already
        let says_continue = take(&mut arriving.expects_continue) && self.start == self.received.len();
        Ok(if says_continue { Step::Continue } else { Step::More })
    }
}

impl Arriving {
    /// Takes what there is of the content, moving `start` past it; says whether that was all of it.
    fn take(&mut self, received: &[u8], start: &mut usize, content_max: usize) -> Result<bool, Refusal> {
        match &mut self.framing {
            Framing::Chunks(chunks) => chunks.take(received, start, &mut self.call.content, content_max),
            Framing::Length(length) => {
                let Some(content) = received[*start..].get(..*length) else { return Ok(false) };
                self.call.content = content.to_vec();
                *start += *length;
                Ok(true)
            }
        }
    }
}

impl Search {
    /// The length of the head that begins at `start`, once all of it is there; skips one empty line before it (RFC 9112 §2.2).
    fn find_end(&mut self, received: &[u8], start: &mut usize) -> Result<Option<usize>, Refusal> {
        if !self.skipped_empty_line && received[*start..].starts_with(b"\r\n") {
            *start += 2;
            *self = Self { scanned: 0, skipped_empty_line: true };
        }
        let bytes = &received[*start..];
        if bytes.first().is_some_and(|first| !first.is_ascii_alphanumeric() && !b"!#$%&'*+-.^_`|~\r".contains(first)) {
            return Err(Refusal::Malformed("this is not an HTTP request"));
        }
        while let Some(at) = bytes[self.scanned..].iter().position(|byte| *byte == b'\n').map(|at| self.scanned + at) {
            self.scanned = at + 1;
            if at == 0 || bytes[at - 1] != b'\r' {
                return Err(Refusal::BareLineFeed);
            }
            if at + 1 > HEAD_BYTES_MAX {
                return Err(Refusal::HeadTooLarge);
            }
            if bytes[..at - 1].ends_with(b"\r\n") || at == 1 {
                return Ok(Some(at + 1));
            }
        }
        self.scanned = bytes.len();
        if bytes.len() > HEAD_BYTES_MAX { Err(Refusal::HeadTooLarge) } else { Ok(None) }
    }
}

#[cfg(test)]
#[path = "framing_tests.rs"]
mod tests;
