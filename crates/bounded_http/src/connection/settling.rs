//! `State::Away` and `State::Parked`: what becomes of a request that was handed out.

use std::io;
use std::mem::replace;
use std::sync::Arc;
use std::time::Instant;

use rustix::event::epoll::EventFlags;

use super::receiving::RECEIVE_BYTES;
use super::{AfterSend, Connection, Next, State};
use crate::output::Sent;
use crate::pass::Pass;
use crate::policy::Closing;
use crate::request::{Reason, Request};
use crate::response::{CLOSE, Response};
use crate::shared::Phase;
use crate::slot::Settled;

impl Connection {
    /// Goes on once the caller of `try_recv` is back.
    pub(crate) fn take_back(&mut self, pass: &mut Pass) -> Next {
        if let Some(settled) = self.slot.look() {
            return self.handle_settled(settled, pass);
        }
        let state = replace(&mut self.state, State::Closed);
        // Epoll goes on to report IN: few clients send more before they have the answer, and to
        // stop that costs a system call. If a client does send more, `Event::Socket` stops it.
        let next = self.send_while_away(state, EventFlags::IN);
        self.end_event(next, pass)
    }

    /// Sends the responses to earlier requests, while somebody else has the request. Fails if the
    /// client has gone. `events`: for what epoll waits once all is sent.
    pub(super) fn send_while_away(&mut self, away: State, events: EventFlags) -> io::Result<Next> {
        let next = match self.output.flush(&self.socket)? {
            Sent::All => Next::Epoll(events),
            _ => Next::Epoll(EventFlags::OUT),
        };
        Ok(self.enter(away, next))
    }

    /// Goes on with what became of the request.
    pub(crate) fn handle_settled(&mut self, settled: Settled, pass: &mut Pass) -> Next {
        let next = match (replace(&mut self.state, State::Closed), settled) {
            (State::Away { .. }, Settled::Answer { response, is_head, then }) => {
                self.respond(response, is_head, then, pass)
            }
            (State::Away { is_woken, .. }, Settled::Parked(request, until)) => {
                self.park(request, until, is_woken, pass)
            }
            // Should not happen: the state ends with what became of the request.
            _ => Ok(Next::Close),
        };
        self.end_event(next, pass)
    }

    /// Has a parked request handed out again. If it is not parked yet, then once it is. True if
    /// its turn has to come.
    pub(crate) fn wake(&mut self) -> bool {
        if let State::Away { is_woken, .. } = &mut self.state {
            *is_woken = true;
        }
        self.is_parked()
    }

    fn respond(
        &mut self,
        response: Response,
        is_head: bool,
        then: AfterSend,
        pass: &mut Pass,
    ) -> io::Result<Next> {
        let end = if then == AfterSend::Resume { &*pass.shared.keep_alive } else { CLOSE };
        self.output.append(response, is_head, pass.date.text(), end);
        match then {
            // The next request has a time of its own.
            AfterSend::Resume => self.next_request(pass.now, pass),
            _ => self.begin_sending(then, pass.now, pass),
        }
    }

    fn park(
        &mut self,
        request: Box<Request>,
        until: Instant,
        is_woken: bool,
        pass: &mut Pass,
    ) -> io::Result<Next> {
        if request.reason() == Reason::Evicted {
            return Ok(Next::Close);
        }
        if request.reason().is_final() {
            // It would be handed out again at once, and again.
            return Ok(self.close(Closing::NoRoom, pass));
        }
        let reason = if self.output.flush(&self.socket)? != Sent::All || !self.parser.is_idle() {
            Reason::ClientGoesOn
        } else if pass.phase == Phase::Stopping {
            Reason::Stopping
        } else if is_woken {
            Reason::Woken
        } else {
            let parked = State::Parked { request, since: pass.now, until };
            return Ok(self.enter(parked, Next::Epoll(EventFlags::IN)));
        };
        Ok(self.hand_out_again(*request, reason, pass))
    }

    pub(super) fn hand_out_again(
        &mut self,
        mut request: Request,
        reason: Reason,
        pass: &mut Pass,
    ) -> Next {
        request.receive_again(reason, Arc::clone(&self.slot), pass.now);
        self.received_at = pass.now;
        let memory = request.memory(&pass.shared.limits);
        pass.received = Some(request);
        self.enter(State::Away { memory, is_woken: false }, Next::HandOut)
    }

    /// Ends the parking if the client has sent another request, or has ended its half of the
    /// connection. Then it may still read; if it has gone, nobody reads the answer.
    pub(super) fn receive_while_parked(
        &mut self,
        request: Box<Request>,
        since: Instant,
        until: Instant,
        pass: &mut Pass,
    ) -> io::Result<Next> {
        match pass.receive(&self.socket, RECEIVE_BYTES)? {
            Some(received) => {
                self.parser.append(received);
                Ok(self.hand_out_again(*request, Reason::ClientGoesOn, pass))
            }
            // Nothing has arrived after all.
            None => {
                let parked = State::Parked { request, since, until };
                Ok(self.enter(parked, Next::Epoll(EventFlags::IN)))
            }
        }
    }
}
