//! Turns the bytes that a connection receives into requests (RFC 9112), or says why it refuses
//! them. Uses no socket and no clock.

use std::mem::take;

use memchr::memchr;

use super::head::{self, Framing, Head, Incoming};
use super::protocol_error::{HEAD_BYTES_MAX, METHOD_BYTES_MAX, ProtocolError};
use super::syntax::is_tchar;

/// Most empty lines that are skipped before a request: as many as Apache by default. nginx and Node
/// skip any number. Clients send some after a content, or to keep a connection.
const EMPTY_LINES_MAX: usize = 100;

/// Capacity, in bytes, to which the buffer shrinks once its bytes are parsed, if the rest fits.
const KEEP_BYTES_MAX: usize = 1024;

/// Makes requests of the bytes of one connection.
#[derive(Default)]
pub struct Parser {
    /// Bytes received. Those before `start` are parsed, and removed later.
    received: Vec<u8>,
    start: usize,
    /// How many bytes from `start` on have been searched for the end of a head.
    searched: usize,
    /// Empty lines that were skipped before the next request.
    empty_lines: usize,
    /// The connection is one of a unix socket. Host decides nothing there, and may be empty.
    is_unix: bool,
    /// The next request, once its head is parsed.
    incoming: Option<Incoming>,
}

impl Parser {
    /// A parser of the bytes of one connection. `is_unix`: it is one of a unix socket.
    pub fn new(is_unix: bool) -> Self {
        Self { is_unix, ..Self::default() }
    }

    /// Adds bytes that were received.
    pub fn append(&mut self, bytes: &[u8]) {
        self.drop_used();
        let length = self.received.len();
        let missing = self.missing();
        if length + bytes.len() > self.received.capacity() && missing > 0 {
            // Double the length, but not beyond the end of the content or of these bytes.
            let enough = (2 * length).min(length + missing).max(length + bytes.len());
            self.received.reserve_exact(enough - length);
        }
        self.received.extend_from_slice(bytes);
    }

    /// Bytes of the content that have not arrived; 0 before its head, and for chunked content.
    pub fn missing(&self) -> usize {
        match &self.incoming {
            Some(Incoming { framing: Framing::Length(length), .. }) => {
                length.saturating_sub(self.received.len() - self.start)
            }
            _ => 0,
        }
    }

    /// True if no byte of the next request has arrived.
    pub fn is_idle(&self) -> bool {
        self.incoming.is_none() && self.start == self.received.len()
    }

    /// Bytes of memory that count for the parser: its buffer, and the request that is not whole.
    pub(super) fn memory(&self) -> usize {
        // Names all fields, so that no new one that has a buffer is forgotten.
        let Self { received, start: _, searched: _, empty_lines: _, is_unix: _, incoming } = self;
        let request = incoming
            .as_ref()
            .map_or(0, |incoming| incoming.head.memory() + incoming.content.capacity());
        received.capacity() + request
    }

    /// The head of the request of which not all content has arrived. Once for each request.
    pub(super) fn new_head(&mut self) -> Option<&Head> {
        let incoming = self.incoming.as_mut()?;
        take(&mut incoming.is_new).then_some(&incoming.head)
    }

    /// Parses the head of the next request, if all of it has arrived and it is not parsed yet.
    fn parse_head(&mut self, content_max: usize) -> Result<(), ProtocolError> {
        if self.incoming.is_some() {
            return Ok(());
        }
        let parsed = self.parse_whole_head(content_max);
        if self.incoming.is_none() {
            // What is wrong with the method comes first, and does not wait for the rest.
            check_method(&self.received[self.start..])?;
        }
        parsed
    }

    /// The same without a look at the method of what is not whole, or malformed.
    fn parse_whole_head(&mut self, content_max: usize) -> Result<(), ProtocolError> {
        if let Some(end) = self.find_head_end()? {
            let head = &self.received[self.start..end];
            self.incoming = Some(head::parse(head, content_max, self.is_unix)?);
            self.start = end;
            self.searched = 0;
            self.empty_lines = 0;
        }
        Ok(())
    }

    /// The head and the content of the next request, if all of it has arrived. After an error, call
    /// [`Parser::abandon`].
    pub fn next_request(
        &mut self,
        content_max: usize,
    ) -> Result<Option<(Head, Vec<u8>)>, ProtocolError> {
        self.parse_head(content_max)?;
        let Some(incoming) = &mut self.incoming else { return Ok(None) };
        let ignores_content = incoming.head.ignores_content();
        let content = &mut incoming.content;
        let is_whole = match &mut incoming.framing {
            Framing::Chunked(decoder) => {
                let whole =
                    decoder.decode(&self.received, &mut self.start, content, content_max)?;
                if ignores_content {
                    *content = Vec::new();
                }
                whole
            }
            Framing::Length(left) if ignores_content => {
                let arrived = (*left).min(self.received.len() - self.start);
                self.start += arrived;
                *left -= arrived;
                *left == 0
            }
            Framing::Length(length) => match self.received[self.start..].get(..*length) {
                Some(arrived) => {
                    *content = arrived.to_vec();
                    self.start += *length;
                    true
                }
                None => false,
            },
        };
        if !is_whole || self.start == self.received.len() {
            self.drop_used();
        }
        let whole = self.incoming.take_if(|_| is_whole);
        Ok(whole.map(|incoming| (incoming.head, incoming.content)))
    }

    /// Whether to send `100 Continue` now. True at most once for each request: when its client
    /// waits for that before it sends the content.
    pub(super) fn take_expectation(&mut self) -> bool {
        let expects_continue =
            self.incoming.as_mut().is_some_and(|incoming| take(&mut incoming.expects_continue));
        // RFC 9110 §10.1.1: a 100 may be left out when some of the content has arrived already.
        expects_continue && self.start == self.received.len()
    }

    /// Drops everything received, so that nothing of it is parsed as a request. Returns what is
    /// known of the head of the refused request; `None` if its method is not known, or too long.
    pub fn abandon(&mut self) -> Option<Head> {
        let Self { received, start, searched, incoming, .. } = take(self);
        incoming
            .map(|incoming| incoming.head)
            .or_else(|| head::parse_in_part(&received[start..start + searched]))
    }

    /// The index in `received` at which the next head ends, if all of it has arrived.
    fn find_head_end(&mut self) -> Result<Option<usize>, ProtocolError> {
        // RFC 9112 §2.2: at least one empty line before the request line is to be ignored.
        while self.empty_lines < EMPTY_LINES_MAX && self.received[self.start..].starts_with(b"\r\n")
        {
            self.start += 2;
            self.searched = 0;
            self.empty_lines += 1;
        }
        let bytes = &self.received[self.start..];
        // Look no further than the limit: the result must not depend on how much arrives at a time.
        let bytes = &bytes[..bytes.len().min(HEAD_BYTES_MAX + 1)];
        while let Some(length) = memchr(b'\n', &bytes[self.searched..]) {
            self.searched += length + 1;
            match &bytes[..self.searched] {
                _ if self.searched > HEAD_BYTES_MAX => break,
                b"\r\n" | [.., b'\r', b'\n', b'\r', b'\n'] => {
                    return Ok(Some(self.start + self.searched));
                }
                [.., b'\r', b'\n'] => {}
                _ => return Err(ProtocolError::BARE_LINE_FEED),
            }
        }
        self.searched = bytes.len();
        match bytes.get(..=HEAD_BYTES_MAX) {
            None => Ok(None),
            Some(head) if head.contains(&b'\n') => Err(ProtocolError::HEAD_TOO_LARGE),
            Some(_) => Err(ProtocolError::TARGET_TOO_LONG),
        }
    }

    /// Removes the parsed bytes, and shrinks a large buffer.
    fn drop_used(&mut self) {
        if self.start > 0 {
            self.received.drain(..self.start);
            self.start = 0;
            self.received.shrink_to(KEEP_BYTES_MAX);
        }
    }
}

/// Fails if no request begins with this: its method is too long, or it has none.
fn check_method(bytes: &[u8]) -> Result<(), ProtocolError> {
    match bytes.iter().take(METHOD_BYTES_MAX + 1).position(|byte| !is_tchar(byte)) {
        Some(0) if bytes[0] != b'\r' => {
            Err(ProtocolError::malformed("this is not an HTTP request"))
        }
        None if bytes.len() > METHOD_BYTES_MAX => Err(ProtocolError::METHOD_TOO_LONG),
        _ => Ok(()),
    }
}

#[cfg(test)]
#[path = "parser_tests.rs"]
mod tests;
