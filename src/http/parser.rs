//! Finds the requests in a connection's bytes (RFC 9112), and refuses what cannot be read safely. Knows no socket, no clock and no color.

use std::mem::take;

use tiny_http::Method;

use super::error::{HEAD_BYTES_MAX, ProtocolError};
use super::head::{self, Framing, Incoming};
use super::request::Request;

/// Bytes of an empty buffer that are kept for the next request.
const KEEP_BYTES_MAX: usize = 1024;

/// What the bytes received so far amount to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Not yet a whole request.
    More,
    /// Not yet a whole request, and the client waits to hear `100 Continue` before it sends the rest. Said once a request.
    Continue,
    /// A request; its bytes are gone from the parser.
    Whole(Request),
}

/// A connection's bytes that no request was made of yet.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    /// Received bytes; those before `start` are used up.
    received: Vec<u8>,
    /// Where the unused bytes begin.
    start: usize,
    /// The search for the end of the next request's head.
    search: Search,
    /// The next request, when its head is read and its content is on its way.
    incoming: Option<Incoming>,
}

/// The search for the end of a head.
#[derive(Debug, Default)]
struct Search {
    /// How many of the unused bytes have been looked at: no line break among them ends the head.
    scanned: usize,
    /// Whether the one empty line that may come before a request came.
    skipped_empty_line: bool,
}

impl Parser {
    /// Takes bytes that were received.
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        self.drop_used();
        self.received.extend_from_slice(bytes);
    }

    /// Bytes that are still missing of a content whose length is known; 0 when it is not.
    pub(crate) fn missing(&self) -> usize {
        match &self.incoming {
            Some(Incoming { framing: Framing::Length(length), .. }) => length.saturating_sub(self.received.len() - self.start),
            _ => 0,
        }
    }

    /// Whether no byte of a next request has arrived.
    pub(crate) fn is_idle(&self) -> bool {
        self.incoming.is_none() && self.start == self.received.len()
    }

    /// Whether the request under way says that its method is HEAD, however little of the rest can be read.
    pub(crate) fn asks_for_head_alone(&self) -> bool {
        self.incoming
            .as_ref()
            .map_or_else(|| self.received[self.start..].starts_with(b"HEAD "), |incoming| incoming.request.method == Method::Head)
    }

    /// Bytes of memory this holds on to.
    pub(crate) fn memory(&self) -> usize {
        let arrived = self.incoming.as_ref().map_or(0, |Incoming { request, .. }| request.memory());
        self.received.capacity() + arrived
    }

    /// Makes the most of the bytes received so far.
    ///
    /// # Errors
    /// When they are no request that can be answered; nothing after them may be read as one.
    pub(crate) fn step(&mut self, content_max: usize) -> Result<Step, ProtocolError> {
        if self.incoming.is_none() {
            let Some(length) = self.search.find_end(&self.received, &mut self.start)? else { return Ok(Step::More) };
            let head = &self.received[self.start..self.start + length];
            self.incoming = Some(head::read(head, content_max)?);
            self.start += length;
            self.search = Search::default();
        }
        let Some(incoming) = &mut self.incoming else { return Ok(Step::More) };
        if incoming.take(&self.received, &mut self.start, content_max)? {
            let whole = self.incoming.take().expect("it is there");
            if self.start == self.received.len() {
                self.drop_used();
            }
            return Ok(Step::Whole(whole.request));
        }
        let expects_continue = take(&mut incoming.expects_continue);
        self.drop_used();
        // RFC 9110 §10.1.1: no 100 when some of the content has arrived already
        Ok(if expects_continue && self.received.is_empty() { Step::Continue } else { Step::More })
    }
}

impl Parser {
    /// Forgets the bytes that are used up, and gives back the memory of many.
    fn drop_used(&mut self) {
        if self.start > 0 {
            self.received.drain(..self.start);
            self.start = 0;
            self.received.shrink_to(KEEP_BYTES_MAX);
        }
    }
}

impl Incoming {
    /// Takes what there is of the content, moving `start` past it; says whether that was all of it.
    fn take(&mut self, received: &[u8], start: &mut usize, content_max: usize) -> Result<bool, ProtocolError> {
        match &mut self.framing {
            Framing::Chunks(chunks) => chunks.take(received, start, &mut self.request.content, content_max),
            Framing::Length(length) => {
                let Some(content) = received[*start..].get(..*length) else { return Ok(false) };
                self.request.content = content.to_vec();
                *start += *length;
                Ok(true)
            }
        }
    }
}

impl Search {
    /// The length of the head that begins at `start`, once all of it is there; skips one empty line before it (RFC 9112 §2.2).
    fn find_end(&mut self, received: &[u8], start: &mut usize) -> Result<Option<usize>, ProtocolError> {
        if !self.skipped_empty_line && received[*start..].starts_with(b"\r\n") {
            *start += 2;
            *self = Self { scanned: 0, skipped_empty_line: true };
        }
        let bytes = &received[*start..];
        if bytes.first().is_some_and(|first| !first.is_ascii_alphanumeric() && !b"!#$%&'*+-.^_`|~\r".contains(first)) {
            return Err(ProtocolError::Malformed("this is not an HTTP request"));
        }
        while let Some(at) = memchr::memchr(b'\n', &bytes[self.scanned..]).map(|at| self.scanned + at) {
            self.scanned = at + 1;
            if at == 0 || bytes[at - 1] != b'\r' {
                return Err(ProtocolError::BareLineFeed);
            }
            if at + 1 > HEAD_BYTES_MAX {
                return Err(ProtocolError::HeadTooLarge);
            }
            if bytes[..at - 1].ends_with(b"\r\n") || at == 1 {
                return Ok(Some(at + 1));
            }
        }
        self.scanned = bytes.len();
        if bytes.len() > HEAD_BYTES_MAX { Err(ProtocolError::HeadTooLarge) } else { Ok(None) }
    }
}

#[cfg(test)]
#[path = "parser_tests.rs"]
mod tests;
