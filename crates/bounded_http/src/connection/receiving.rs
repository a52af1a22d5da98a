//! `State::Receiving`: how requests are received, refused by their heads, and handed out.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use super::{AfterSend, Connection, Next, State};
use crate::head::Head;
use crate::pass::Pass;
use crate::protocol_error::ProtocolError;
use crate::request::Request;

/// Bytes received at a time, unless more bytes of a content are missing. A request of curl has 84.
pub(super) const RECEIVE_BYTES: usize = 4096;

/// Requests handed out in a row before other connections are served, so that one client that
/// pipelines does not hold up the others.
pub(crate) const REQUESTS_IN_A_ROW: u8 = 16;

impl Connection {
    pub(super) fn receive_requests(&mut self, since: Instant, pass: &mut Pass) -> io::Result<Next> {
        self.received_at = pass.now;
        let was_idle = self.parser.is_idle();
        let length = self.parser.missing().max(RECEIVE_BYTES);
        match pass.receive(&self.socket, length)? {
            Some([]) if was_idle => Ok(Next::Close),
            Some([]) => self.refuse_with(None, ProtocolError::UNEXPECTED_EOF, pass),
            Some(received) => {
                self.parser.append(received);
                // More bytes of a request do not give it more time.
                let since = if was_idle { pass.now } else { since };
                self.first_request(since, pass)
            }
            None => self.first_request(since, pass),
        }
    }

    pub(super) fn first_request(&mut self, since: Instant, pass: &mut Pass) -> io::Result<Next> {
        self.in_a_row = 0;
        self.next_request(since, pass)
    }

    /// Hands out the next request in the buffer, if there is a whole one, up to
    /// [`REQUESTS_IN_A_ROW`].
    pub(super) fn next_request(&mut self, since: Instant, pass: &mut Pass) -> io::Result<Next> {
        let has_room =
            self.output.has_room() && !self.slot.quota.would_exceed(self.output.memory());
        if self.in_a_row == REQUESTS_IN_A_ROW || !has_room || self.parser.is_idle() {
            return self.begin_sending(AfterSend::Resume, since, pass);
        }
        match self.parser.next_request(pass.shared.limits.content_max) {
            Ok(Some((head, content))) => self.hand_out(head, content, pass),
            not_whole => self.go_on_receiving(not_whole.err(), since, pass),
        }
    }

    fn hand_out(&mut self, head: Head, content: Vec<u8>, pass: &mut Pass) -> io::Result<Next> {
        self.had_no_request = false;
        let memory = head.memory() + pass.shared.limits.content_factor * content.capacity();
        if self.slot.quota.would_exceed(memory + self.output.memory()) {
            // As for a request that comes in parts, the head decides first.
            return match pass.policy.check_head(&head, self.arrival()) {
                Err(refusal) => self.refuse(head.is_head(), refusal, pass),
                Ok(()) => self.refuse_for_memory(Some(&head), pass),
            };
        }
        self.in_a_row += 1;
        let slot = Arc::clone(&self.slot);
        pass.received = Some(Request::new(head, content, slot, self.received_at));
        Ok(self.enter(State::Away { memory, is_woken: false }, Next::HandOut))
    }

    /// Goes on when there is no whole request in the buffer. `error`: what is wrong with the next
    /// one.
    fn go_on_receiving(
        &mut self,
        error: Option<ProtocolError>,
        since: Instant,
        pass: &mut Pass,
    ) -> io::Result<Next> {
        // A refusal by the head comes first, however much of the content has arrived.
        let arrival = self.arrival();
        if let Some(head) = self.parser.new_head()
            && let Err(refusal) = pass.policy.check_head(head, arrival)
        {
            let is_head = head.is_head();
            return self.refuse(is_head, refusal, pass);
        }
        if let Some(error) = error {
            return self.refuse_with(None, error, pass);
        }
        if self.slot.quota.would_exceed(self.parser.memory()) {
            return self.refuse_for_memory(None, pass);
        }
        if self.parser.take_expectation() {
            self.output.append_continue();
        }
        self.begin_sending(AfterSend::Receive, since, pass)
    }
}
