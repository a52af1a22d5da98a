//! `State::HandedOut`, `State::AwaitingAnswer` and `State::Parked`: what becomes of a request that
//! was handed out.

use std::io;
use std::mem::replace;
use std::sync::Arc;
use std::time::Instant;

use rustix::event::epoll::EventFlags;

use super::receiving::RECEIVE_BYTES;
use super::{AfterSend, Away, Connection, Next, State, Transition};
use crate::output::Sent;
use crate::pass::Pass;
use crate::policy::Closing;
use crate::request::{Reason, Request};
use crate::shared::Phase;
use crate::slot::Settled;

impl Connection {
    /// What became of the request, by mail.
    pub(crate) fn handle_settled(&mut self, settled: Settled, pass: &mut Pass) -> Next {
        let transition = match replace(&mut self.state, State::Closed) {
            State::AwaitingAnswer(away) => self.go_on(settled, away, pass),
            // Should not happen: only mail ends that state.
            _ => Ok(Transition::close()),
        };
        self.enter_state(transition, pass)
    }

    /// Has a parked request handed out again. If it is not parked yet, then once it is. True if
    /// its turn has to come.
    pub(crate) fn wake(&mut self) -> bool {
        if let State::HandedOut(away) | State::AwaitingAnswer(away) = &mut self.state {
            away.is_woken = true;
        }
        self.is_parked()
    }

    /// Goes on once the caller of `try_recv` is back.
    pub(super) fn take_back(&mut self, away: Away, pass: &mut Pass) -> io::Result<Transition> {
        if let Some(settled) = self.slot.look() {
            return self.go_on(settled, away, pass);
        }
        // Send the responses to earlier requests. If the client has gone, this fails.
        self.output.flush(&self.socket)?;
        // Epoll goes on to report IN: few clients send more before they have the answer, and to
        // stop that costs a system call. If a client does send more, `Event::Socket` stops it.
        Ok(Transition(State::AwaitingAnswer(away), Next::Epoll(EventFlags::IN)))
    }

    fn go_on(&mut self, settled: Settled, away: Away, pass: &mut Pass) -> io::Result<Transition> {
        let response = match settled {
            Settled::Answer(response) => response,
            Settled::Parked(request, until) => return self.park(request, until, away, pass),
        };
        let then = self.append_response(response, away, pass);
        let transition = match then {
            // The next request has a time of its own.
            AfterSend::Resume => self.next_request(pass.now, pass),
            _ => self.begin_sending(then, pass.now, pass),
        }?;
        // A long answer is sent first. Then the connection closes, unless there is room again.
        if !away.is_evicted || matches!(transition, Transition(State::Sending { .. }, _)) {
            return Ok(transition);
        }
        // Close without lingering. The client has sent nothing for which the kernel would reset the
        // connection, and while one lingers, another is closed in its place.
        Ok(self.close(Closing::NoRoom, pass))
    }

    fn park(
        &mut self,
        request: Box<Request>,
        until: Instant,
        away: Away,
        pass: &mut Pass,
    ) -> io::Result<Transition> {
        if request.reason().is_final() {
            // It would be handed out again at once, and again.
            return Ok(self.close(Closing::NoRoom, pass));
        }
        let reason = if self.output.flush(&self.socket)? != Sent::All || !self.parser.is_idle() {
            Reason::ClientGoesOn
        } else if pass.phase == Phase::Stopping {
            Reason::Stopping
        } else if away.is_woken {
            Reason::Woken
        } else {
            let parked = State::Parked { request, since: pass.now, until };
            return Ok(Transition(parked, Next::Epoll(EventFlags::IN)));
        };
        Ok(self.hand_out_again(*request, reason, pass))
    }

    pub(super) fn hand_out_again(
        &mut self,
        mut request: Request,
        reason: Reason,
        pass: &mut Pass,
    ) -> Transition {
        request.receive_again(reason, Arc::clone(&self.slot), pass.now);
        self.received_at = pass.now;
        let away = Away {
            memory: request.memory(),
            is_head: request.head().is_head(),
            keep_alive: request.head().keep_alive(),
            is_woken: false,
            is_evicted: reason == Reason::Evicted,
        };
        pass.received = Some(request);
        Transition(State::HandedOut(away), Next::HandOut)
    }

    /// Ends the parking if the client has sent another request, or has ended its half of the
    /// connection. Then it may still read; if it has gone, nobody reads the answer.
    pub(super) fn receive_while_parked(
        &mut self,
        request: Box<Request>,
        since: Instant,
        until: Instant,
        pass: &mut Pass,
    ) -> io::Result<Transition> {
        match pass.receive(&self.socket, RECEIVE_BYTES)? {
            Some(received) => {
                self.parser.append(received);
                Ok(self.hand_out_again(*request, Reason::ClientGoesOn, pass))
            }
            // Nothing has arrived after all.
            None => {
                let parked = State::Parked { request, since, until };
                Ok(Transition(parked, Next::Epoll(EventFlags::IN)))
            }
        }
    }
}
