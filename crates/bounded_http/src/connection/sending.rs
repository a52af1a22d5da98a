//! `State::Sending` and `State::Lingering`: how responses are appended to the output, refusals
//! included, how the output is sent, and what follows when all is sent.

use std::io;
use std::time::Instant;

use rustix::event::epoll::EventFlags;
use rustix::net::Shutdown;

use super::{AfterSend, Connection, Next, State};
use crate::head::Head;
use crate::output::Sent;
use crate::parser::Parser;
use crate::pass::Pass;
use crate::policy::Closing;
use crate::protocol_error::ProtocolError;
use crate::response::{CLOSE, Response};

/// About how many bytes are received and dropped after the last response, at most. Clients, and
/// proxies such as Apache, look for a response only after they have sent all of a content.
const LINGER_BYTES_MAX: usize = 16 * 1024 * 1024;

impl Connection {
    pub(super) fn refuse_for_memory(
        &mut self,
        head: Option<&Head>,
        pass: &mut Pass,
    ) -> io::Result<Next> {
        self.note(Closing::NoRoom, pass);
        self.refuse_with(head, ProtocolError::OVERLOADED, pass)
    }

    /// Refuses what has arrived, after which nothing that arrives is read as a request. `head`:
    /// `None` if it has not arrived as a whole, or cannot be parsed.
    pub(super) fn refuse_with(
        &mut self,
        head: Option<&Head>,
        error: ProtocolError,
        pass: &mut Pass,
    ) -> io::Result<Next> {
        let unfinished = self.parser.abandon();
        let head = head.or(unfinished.as_ref());
        let (status, message) = (error.status(), error.to_string().into());
        let response = pass.policy.refuse(head, self.arrival(), status, message);
        self.refuse(head.is_some_and(Head::is_head), response, pass)
    }

    /// Responds with a refusal, after which nothing that arrives is read as a request. `is_head`:
    /// it answers a HEAD request.
    pub(super) fn refuse(
        &mut self,
        is_head: bool,
        response: Response,
        pass: &mut Pass,
    ) -> io::Result<Next> {
        self.parser.abandon();
        self.output.append(response, is_head, pass.date.text(), CLOSE);
        self.begin_sending(AfterSend::Linger, pass.now, pass)
    }

    /// Sends what the socket has room for, and does what `then` says if that is all of the output.
    /// `since`: when the client last made progress, for the state that follows.
    pub(super) fn begin_sending(
        &mut self,
        then: AfterSend,
        since: Instant,
        pass: &mut Pass,
    ) -> io::Result<Next> {
        if self.output.is_long() {
            // A long content is sent from the run queue, after all that is short.
            return Ok(self.enter(State::Sending { then, since: pass.now }, Next::Queue));
        }
        let sent = self.output.flush(&self.socket)?;
        // The time for the client to read the rest begins now.
        let since = if sent == Sent::All { since } else { pass.now };
        self.after_send(sent, then, since, pass)
    }

    /// Sends more of the output. `overdue`: the reason to close if the socket takes nothing now. It
    /// may take some: epoll reports room only when a third of the send buffer is free.
    pub(super) fn continue_sending(
        &mut self,
        then: AfterSend,
        since: Instant,
        overdue: Option<Closing>,
        pass: &mut Pass,
    ) -> io::Result<Next> {
        let sent = self.output.flush(&self.socket)?;
        let since = match overdue {
            Some(reason) if sent == Sent::Nothing => return Ok(self.close(reason, pass)),
            // A client that has read nothing gets no more time.
            None if sent == Sent::Nothing => since,
            _ => pass.now,
        };
        self.after_send(sent, then, since, pass)
    }

    /// Goes on after a part of the output, or all of it, was sent. Closes at once only if the
    /// client sends no further request and no bytes are unread: these would cause a reset.
    fn after_send(
        &mut self,
        sent: Sent,
        then: AfterSend,
        since: Instant,
        pass: &mut Pass,
    ) -> io::Result<Next> {
        if sent != Sent::All {
            // The rest stays in memory until the client reads it.
            if self.slot.quota.would_exceed(self.output.memory()) {
                return Ok(self.close(Closing::NoRoom, pass));
            }
            self.output.begin_reading(&pass.shared, pass.now);
            let next =
                if sent == Sent::Enough { Next::Queue } else { Next::Epoll(EventFlags::OUT) };
            return Ok(self.enter(State::Sending { then, since }, next));
        }
        let read = Next::Epoll(EventFlags::IN);
        match then {
            AfterSend::Resume if !self.parser.is_idle() => {
                return Ok(self.enter(State::Receiving { since }, Next::Queue));
            }
            AfterSend::Resume | AfterSend::Receive => {
                return Ok(self.enter(State::Receiving { since }, read));
            }
            AfterSend::Close | AfterSend::Linger => {}
        }
        let is_done = then == AfterSend::Close && self.parser.is_idle();
        if is_done && pass.receive(&self.socket, 1)?.is_none_or(|received| received.is_empty()) {
            return Ok(Next::Close);
        }
        rustix::net::shutdown(&self.socket, Shutdown::Write)?;
        self.parser = Parser::default();
        let (since, received) = (pass.now, pass.now);
        Ok(self.enter(State::Lingering { left: LINGER_BYTES_MAX, since, received }, read))
    }

    pub(super) fn drop_received(
        &mut self,
        left: usize,
        since: Instant,
        received: Instant,
        pass: &mut Pass,
    ) -> io::Result<Next> {
        let Some(dropped) = pass.receive(&self.socket, left)?.map(<[u8]>::len) else {
            let lingering = State::Lingering { left, since, received };
            return Ok(self.enter(lingering, Next::Epoll(EventFlags::IN)));
        };
        if dropped == 0 {
            return Ok(Next::Close);
        }
        let left = left - dropped;
        let events = if left == 0 { EventFlags::empty() } else { EventFlags::IN };
        let lingering = State::Lingering { left, since, received: pass.now };
        Ok(self.enter(lingering, Next::Epoll(events)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::super::Event;
    use super::super::receiving::RECEIVE_BYTES;
    use super::super::tests::Pair;
    use super::*;
    use crate::response::SharedContent;
    use crate::shared::Phase;
    use crate::test_application::{Client, LONG, describe, get};

    #[test]
    fn long_content_is_sent_when_its_turn_comes() {
        let mut pair = Pair::in_state("current");
        pair.begin(20);
        assert_eq!(pair.client.received(), ["200 current"]);
        assert_eq!(pair.handle(Event::Socket), Next::Queue);
        let mut received = [0; 1_000];
        assert!(rustix::io::read(&pair.client.0, &mut received).is_err(), "nothing is sent yet");
        assert_eq!(pair.handle(Event::Turn), Next::Epoll(EventFlags::OUT));
        assert_eq!(pair.deadline(Phase::Serving), Some(50), "the client has read some");
        pair.begin(30);
        assert_eq!(pair.handle(Event::Turn), Next::Epoll(EventFlags::OUT));
        assert_eq!(pair.deadline(Phase::Serving), Some(50), "and no more");
        assert_eq!(rustix::io::read(&pair.client.0, &mut received), Ok(1_000));
    }

    #[test]
    fn a_client_that_does_not_read_is_closed_when_its_responses_take_too_much() {
        for (others_bytes, expected) in [(0, Next::Epoll(EventFlags::OUT)), (9_900, Next::Close)] {
            let mut pair = Pair::new();
            let _others = pair.others(others_bytes);
            assert_eq!(pair.send(1, &get("/more-lines").repeat(90)), expected);
        }
    }

    #[test]
    fn a_slow_reader_of_an_orphaned_content_is_closed_when_memory_is_short() {
        for (others_bytes, deadline, next) in [
            (20_000_000, 10, Next::Close),
            // a long content and the one before may be read to their end
            (LONG, 40, Next::Epoll(EventFlags::OUT)),
        ] {
            let mut pair = Pair::in_state("current");
            pair.application.current = SharedContent::new(*b"new");
            pair.pass.shared.read_bytes.fetch_add(others_bytes, Relaxed);
            assert_eq!(pair.deadline(Phase::Serving), Some(deadline));
            assert_eq!(pair.handle(Event::Overdue), next);
            let is_noted = pair.application.notes.closed() == [Closing::OrphanedContent];
            assert_eq!(is_noted, next == Next::Close);
        }
    }

    /// The bytes that are not read would cause a reset, and the client could lose the response.
    #[test]
    fn after_the_last_response_a_client_that_has_sent_more_is_waited_for() {
        for (length, more, next) in [
            (100, "", Next::Close),
            (100, "GET", Next::Epoll(EventFlags::IN)),
            // which is still in the socket
            (RECEIVE_BYTES, "GET", Next::Epoll(EventFlags::IN)),
        ] {
            let head = get("/a").replace("\r\n\r\n", "\r\nConnection: close\r\nLong: ");
            let value = "x".repeat(length - head.len() - 4);
            let mut pair = Pair::new();
            assert_eq!(pair.send(1, &format!("{head}{value}\r\n\r\n{more}")), next, "{length}");
            assert_eq!(pair.client.received(), ["200 /a close"]);
        }
    }

    /// A socket of this type keeps what was sent at a time apart.
    #[test]
    fn responses_to_pipelined_requests_are_sent_together() {
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::NONBLOCK);
        let (client, socket) = socketpair(AddressFamily::UNIX, kind, flags, None).unwrap();
        let mut pair = Pair::of((Client(client.into()), socket));
        pair.send(1, &get("/a").repeat(10));
        let mut buffer = [0; 8 * 1024];
        let length = rustix::io::read(&pair.client.0, &mut buffer).unwrap();
        assert_eq!(describe(&buffer[..length]), ["200 /a"; 10]);
    }
}
