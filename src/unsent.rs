//! What is left to send of a response, and the sending: never more than the socket's buffer has room for, so that it waits for no client.

use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::net::{SendAncillaryBuffer, SendFlags};

use crate::message::Content;

/// Longest content in bytes that is put into one buffer with its head; a longer one is sent from where it is kept, with the head before it.
const COPY_BYTES_MAX: usize = 1024;

/// Sending never waits for a client to make room, and has no signal raised when the client has gone.
const SENDING: SendFlags = SendFlags::NOSIGNAL.union(SendFlags::DONTWAIT);

/// A response under way.
pub(crate) struct Unsent {
    /// The head, and a short content with it.
    first: Vec<u8>,
    /// A longer content.
    content: Content,
    /// Bytes sent so far of both.
    sent: usize,
}

impl Unsent {
    /// A response of which nothing is sent yet.
    pub(crate) fn new(head: Vec<u8>, content: Content) -> Self {
        let mut unsent = Self { first: head, content, sent: 0 };
        if unsent.content.bytes().len() <= COPY_BYTES_MAX {
            unsent.first.extend_from_slice(unsent.content.bytes());
            unsent.content = Content::None;
        }
        unsent
    }

    /// Bytes of it, sent or not.
    pub(crate) fn len(&self) -> usize {
        self.first.len() + self.content.bytes().len()
    }

    /// Bytes of memory that only it holds on to.
    pub(crate) fn held(&self) -> usize {
        let own = if let Content::Own(json) = &self.content { json.capacity() } else { 0 };
        self.first.capacity() + own
    }

    /// The kept representation that it is sent from, by address, and the bytes of that.
    pub(crate) fn pinned(&self) -> Option<(usize, usize)> {
        match &self.content {
            Content::Shared(json) => Some((Arc::as_ptr(json) as usize, json.len())),
            _ => None,
        }
    }

    /// Sends what the socket has room for; says whether all is sent.
    ///
    /// # Errors
    /// When the client has gone.
    pub(crate) fn send(&mut self, socket: impl AsFd) -> io::Result<bool> {
        while let Some(rest) = self.rest() {
            let sent = match rest {
                [rest, b""] | [b"", rest] => rustix::net::send(&socket, rest, SENDING),
                both => rustix::net::sendmsg(&socket, &both.map(IoSlice::new), &mut SendAncillaryBuffer::default(), SENDING),
            };
            match sent {
                // no room at the moment
                Ok(0) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(false),
                sent => self.sent += sent?,
            }
        }
        Ok(true)
    }

    /// The bytes to send next, from two places; `None` when all are sent.
    fn rest(&self) -> Option<[&[u8]; 2]> {
        let first = &self.first[self.sent.min(self.first.len())..];
        let content = &self.content.bytes()[self.sent.saturating_sub(self.first.len())..];
        (!first.is_empty() || !content.is_empty()).then_some([first, content])
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn all_of_it_arrives_once_however_often_the_reader_makes_room() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair of sockets");
        theirs.set_nonblocking(true).expect("it is ours");
        let json: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_le_bytes).collect();
        let mut unsent = Unsent::new(b"head".to_vec(), Content::Shared(json.clone().into()));
        assert_eq!((unsent.len(), unsent.held()), (json.len() + 4, 4));
        let (mut rounds, mut received) = (0, Vec::new());
        while !unsent.send(&ours).expect("the reader is there") {
            rounds += 1;
            let mut some = [0; 70_001];
            let count = theirs.read(&mut some).expect("something was sent");
            received.extend_from_slice(&some[..count]);
        }
        drop(ours);
        theirs.read_to_end(&mut received).expect("the rest is there");
        assert!(rounds > 1, "the socket took all at once");
        assert!(received.strip_prefix(b"head") == Some(&json[..]));
    }

    #[test]
    fn a_short_content_goes_with_its_head() {
        let unsent = Unsent::new(b"head".to_vec(), Content::Fixed("content"));
        assert_eq!(unsent.rest(), Some([&b"headcontent"[..], b""]));
    }
}
