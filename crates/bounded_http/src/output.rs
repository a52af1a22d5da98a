//! The output of a connection. Sends as much as the socket has room for, and never waits for the
//! client.

use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags};

use super::date::ImfFixdate;
use super::limits::Reading;
use super::response::{Content, Response};
use super::shared::Shared;

/// Longest content in bytes that is copied into the buffer; a longer one is sent from its place in
/// memory.
const COPY_BYTES_MAX: usize = 1024;

/// Bytes of responses that are collected before they are sent: 16 short responses.
const COLLECT_BYTES: usize = 8 * 1024;

/// Bytes that a short response takes, head and content, or somewhat more.
const RESPONSE_BYTES: usize = 512;

/// Largest capacity, in bytes, that the empty buffer keeps for the next response.
const KEPT_BUFFER_BYTES_MAX: usize = 1024;

/// Bytes after which other connections get their turn, since the kernel may take megabytes at a
/// time. With much shorter turns, the kernel times out clients that read slowly (TCP_USER_TIMEOUT).
const TURN_BYTES: usize = 512 * 1024;

/// Bytes of content from which on a response is sent from the run queue, so that a crowd of clients
/// that read long contents does not hold up those who read short ones.
const LONG_BYTES_MIN: usize = 64 * 1024;

const SEND_FLAGS: SendFlags = SendFlags::NOSIGNAL.union(SendFlags::DONTWAIT);

/// Responses that are not sent yet, in order.
#[derive(Default)]
pub(super) struct Output {
    /// Heads and short contents.
    buffer: Vec<u8>,
    /// The long content of the last response.
    content: Content,
    /// How many bytes of `buffer` and `content` together are sent.
    sent: usize,
    /// For shared content, once a part of the output is sent.
    reading: Option<Reading>,
}

/// How much of the output the socket took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    All,
    /// [`TURN_BYTES`] or more, but not all. The socket may have room for the rest.
    Enough,
    Part,
    Nothing,
}

/// What follows when the whole output is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterSend {
    /// Hand out the whole requests that may be in the buffer, then receive more.
    Resume,
    /// Receive more: there is no whole request in the buffer.
    Receive,
    /// Close: this was the last request, by `Connection: close` or HTTP/1.0 (RFC 9112 §9.3), or
    /// since it was evicted while the client waited.
    Close,
    /// Close once the client has: it may still be sending another request, or the refused one.
    Linger,
}

impl Output {
    /// Appends a response. `is_head`: it answers a HEAD request. `date` and `end`: see
    /// [`Response::write_head`].
    pub(super) fn append(
        &mut self,
        response: Response,
        is_head: bool,
        date: &ImfFixdate,
        end: &str,
    ) {
        let before = self.buffer.len();
        // A second response means that the client pipelines, and gets many.
        let room = if before == 0 { RESPONSE_BYTES } else { COLLECT_BYTES + COPY_BYTES_MAX };
        self.buffer.reserve(room.saturating_sub(before));
        response.write_head(&mut self.buffer, date, end);
        if !response.has_content(is_head) {
            return;
        }
        let content = response.into_content();
        if content.bytes().len() <= COPY_BYTES_MAX {
            self.buffer.extend_from_slice(content.bytes());
        } else {
            self.content = content;
        }
    }

    /// Appends the interim response to `Expect: 100-continue` (RFC 9110 §10.1.1).
    pub(super) fn append_continue(&mut self) {
        self.buffer.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
    }

    /// Whether another response may be appended before the output is sent.
    pub(super) fn has_room(&self) -> bool {
        matches!(self.content, Content::None) && self.buffer.len() < COLLECT_BYTES
    }

    /// Whether the content has at least [`LONG_BYTES_MIN`].
    pub(super) fn is_long(&self) -> bool {
        self.content.bytes().len() >= LONG_BYTES_MIN
    }

    /// Bytes of memory that the output takes. Shared content does not count, and neither does the
    /// small buffer that is kept when all is sent.
    pub(super) fn memory(&self) -> usize {
        let Self { buffer, content, sent: _, reading: _ } = self;
        let own = match content {
            Content::Own(bytes) => bytes.capacity(),
            Content::None | Content::Shared(_) | Content::Copied(_) => 0,
        };
        if buffer.is_empty() { 0 } else { buffer.capacity() + own }
    }

    /// Notes that not all of the output could be sent.
    pub(super) fn begin_reading(&mut self, shared: &Arc<Shared>, now: Instant) {
        if self.reading.is_none()
            && let Content::Shared(content) = &self.content
        {
            self.reading = Some(Reading::new(shared, content, now));
        }
    }

    /// The content that is shared with other connections and the application, once a part of the
    /// output is sent.
    pub(super) fn reading(&self) -> Option<&Reading> {
        self.reading.as_ref()
    }

    /// Sends what the socket has room for. Stops once [`TURN_BYTES`] are sent, or somewhat more.
    pub(super) fn flush(&mut self, socket: impl AsFd) -> io::Result<Sent> {
        let before = self.sent;
        while !self.is_sent() {
            let sent = match self.rest() {
                [rest, b""] | [b"", rest] => rustix::net::send(&socket, rest, SEND_FLAGS),
                both => rustix::net::sendmsg(
                    &socket,
                    &both.map(IoSlice::new),
                    &mut SendAncillaryBuffer::default(),
                    SEND_FLAGS,
                ),
            };
            match sent {
                Ok(0) | Err(Errno::AGAIN | Errno::INTR) => {
                    return Ok(if self.sent > before { Sent::Part } else { Sent::Nothing });
                }
                sent => self.sent += sent?,
            }
            if self.sent - before >= TURN_BYTES && !self.is_sent() {
                return Ok(Sent::Enough);
            }
        }
        self.content = Content::None;
        self.reading = None;
        self.sent = 0;
        self.buffer.clear();
        if self.buffer.capacity() > KEPT_BUFFER_BYTES_MAX {
            self.buffer = Vec::new();
        }
        Ok(Sent::All)
    }

    fn is_sent(&self) -> bool {
        self.sent == self.buffer.len() + self.content.bytes().len()
    }

    /// What is not sent of `buffer`, and of `content` up to one turn.
    fn rest(&self) -> [&[u8]; 2] {
        let buffer = &self.buffer[self.sent.min(self.buffer.len())..];
        let content = &self.content.bytes()[self.sent.saturating_sub(self.buffer.len())..];
        let content = &content[..content.len().min(TURN_BYTES)];
        [buffer, content]
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::io::Read as _;
    use std::os::fd::BorrowedFd;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::response::CLOSE;

    const DATE: &ImfFixdate = b"Sat, 21 Nov 2026 01:02:03 GMT";

    /// A socket whose client has read all before more is sent, so that it always has room.
    struct Drained {
        socket: UnixStream,
        client: UnixStream,
        received: RefCell<Vec<u8>>,
    }

    impl AsFd for Drained {
        fn as_fd(&self) -> BorrowedFd<'_> {
            // It fails when there is nothing more yet.
            let _ = (&self.client).read_to_end(&mut self.received.borrow_mut());
            self.socket.as_fd()
        }
    }

    #[test]
    fn a_turn_ends_though_the_socket_has_room_and_all_arrives_once() {
        let (socket, client) = UnixStream::pair().unwrap();
        client.set_nonblocking(true).unwrap();
        let socket = Drained { socket, client, received: RefCell::default() };
        let content: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_le_bytes).collect();
        let mut output = Output::default();
        output.append(Response::from_data(content.clone()), false, DATE, CLOSE);
        assert!(!output.has_room());
        assert_eq!(output.rest()[1].len(), TURN_BYTES, "one call takes no more");
        assert_eq!(output.flush(&socket).unwrap(), Sent::Enough);
        assert!((TURN_BYTES..2 * TURN_BYTES).contains(&output.sent), "{}", output.sent);
        for _ in 0..content.len() / TURN_BYTES {
            output.flush(&socket).unwrap();
        }
        assert!(output.has_room() && output.memory() <= KEPT_BUFFER_BYTES_MAX);
        let _ = socket.as_fd();
        let received = socket.received.take();
        let head = received.len() - content.len();
        assert!(received[head..] == content && received[..head].ends_with(b"\r\n\r\n"));
    }

    /// It would be taken for the begin of the next response.
    #[test]
    fn content_that_the_head_cannot_announce_is_not_sent() {
        for status in [101, 204, 304] {
            let mut output = Output::default();
            let response = Response::from_data("none").with_status_code(status);
            output.append(response, false, DATE, CLOSE);
            let [bytes, b""] = output.rest() else { panic!("one buffer") };
            let text = str::from_utf8(bytes).unwrap();
            assert!(text.ends_with("\r\n\r\n"), "{text}");
            assert!(!text.contains("Content-Length"), "{text}");
        }
    }
}
