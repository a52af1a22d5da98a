//! One connection: a state machine that receives, hands out, and sends, and never waits for its
//! client. Touches no other connection.
//!
//! ```text
//!    +----- a whole request -----> Away <------- a reason ------- Parked
//!    |                             |  |                             ^
//!    |                             |  +----------- parked ----------+
//!    |                             v answered
//! Receiving ------ refused -----> Sending ----- the last one ----> Lingering
//!    ^                             |  |                             |
//!    +-------- all is sent --------+  +--------> Closed <-----------+
//! ```
//!
//! A response that the socket takes at once skips `State::Sending`. After the last response the
//! connection lingers, so that the client gets it; it closes at once if the client has asked for
//! that and has sent nothing more.
//!
//! Not drawn: from all states but two, a connection closes when its socket fails, its client has
//! gone, its deadline has passed, or room has to be made. A parked request is handed out a last
//! time first. A request that is away is waited for, unless sending the responses before it fails.
//!
//! This file has the states, the table of events in each of them, their deadlines and their memory.
//! What happens in `State::Receiving` is in [`receiving`], from there until the answer in
//! [`settling`], and in `State::Sending` and `State::Lingering` in [`sending`].
//!
//! What a connection waits for, for how long ([`Connection::deadline`]), and what happens then:
//!
//! - Its first request: the request timeout, at most 1 s during a stop. Closed.
//! - The rest of a request: the request timeout since its first byte, or since the response before
//!   it was sent. 408.
//! - Another request: the keep-alive time and 1 s, at most 1 s during a stop. Closed.
//! - Whoever has the request: no deadline.
//! - A reason to hand out a parked request: until the given time, not at all during a stop. Handed
//!   out.
//! - The client to read: the request timeout since the socket last took bytes. Closed. It is less
//!   for a content that only slow clients keep, if such take much memory ([`Reading::deadline`]).
//! - The client to close: 2 s since it last sent something, and at most the request timeout; 2 s in
//!   all during a stop. Closed.
//!
//! Above the connection limit, those that have stalled longest, for at least half a second, are
//! evicted. The constants of `worker` say how late this may be.

pub(super) mod receiving;
mod sending;
mod settling;

use std::io;
use std::mem::replace;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;

use super::limits::{Limits, Reading};
use super::output::{AfterSend, Output};
use super::parser::Parser;
use super::pass::Pass;
use super::policy::{Arrival, Closing, tell};
use super::protocol_error::ProtocolError;
use super::request::{Reason, Request};
use super::shared::Phase;
use super::slot::Slot;

/// How long a connection stays open after its last response while the client sends nothing. While
/// bytes come, it stays up to the request timeout. If it were closed with bytes unread, the kernel
/// would reset it, and the client could lose the response.
const LINGER_TIME: Duration = Duration::from_secs(2);

/// How much longer than the keep-alive time an idle connection stays open, so that a request that
/// is sent in the last moment still arrives. The grace also covers a keep-alive time below one
/// second, since the field Keep-Alive promises at least one second.
const KEEP_ALIVE_GRACE: Duration = Duration::from_secs(1);

/// Time between two looks at the deadline of a connection with a [`Reading`]. Others may bring it
/// forward.
const READING_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Longest keep-alive time during a stop. A busy client sends its next request sooner.
const STOPPING_IDLE: Duration = Duration::from_secs(1);

/// What a connection waits for. `since`: when the client last made progress, or the state began.
enum State {
    /// A request, or the rest of one. `since`: when the client connected, when the last response
    /// was sent, or when the request began.
    Receiving { since: Instant },
    /// Whoever has the request: first the caller of `try_recv`. Nothing is received meanwhile, so
    /// that requests are answered in order. There is no deadline: the request stays in memory, and
    /// has to be counted, until it is answered or parked. `memory`: the bytes that it counts for.
    /// `is_woken`: it is received again at once if it gets parked.
    Away { memory: usize, is_woken: bool },
    /// A reason to hand the parked request out again.
    Parked { request: Box<Request>, since: Instant, until: Instant },
    /// Room in the socket for more of the output.
    Sending { then: AfterSend, since: Instant },
    /// The client to close, after the last response. Up to `left` more bytes are received and
    /// dropped. `received`: when the last of them came.
    Lingering { left: usize, since: Instant, received: Instant },
    /// Nothing: the connection is to be dropped.
    Closed,
}

/// What happens to a connection, besides what becomes of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The connection is new, or epoll has reported its socket.
    Socket,
    /// Its turn in the run queue has come. It was queued by [`Next::Queue`], or because its parked
    /// request was woken.
    Turn,
    /// [`Connection::deadline`] has passed.
    Overdue,
    /// There are too many connections, and this one has stalled.
    Evicted,
}

/// What the worker has to do for the connection next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Have epoll wait for these events on the socket. Without any, take the socket out of epoll,
    /// which would otherwise report in every pass what nobody can handle now.
    Epoll(EventFlags),
    /// Send [`Event::Turn`] when the other connections have been served.
    Queue,
    /// Hand out [`Pass::received`], and call [`Connection::take_back`] when the caller comes back.
    HandOut,
    Close,
}

pub(super) struct Connection {
    pub(super) socket: OwnedFd,
    slot: Arc<Slot>,
    parser: Parser,
    pub(super) output: Output,
    state: State,
    /// No whole request has arrived yet.
    had_no_request: bool,
    /// When the pass began in which the last bytes were received, or in which a parked request was
    /// handed out again. The application is not to blame for the time before that.
    received_at: Instant,
    /// Requests handed out since other connections were served.
    in_a_row: u8,
}

impl Connection {
    pub(super) fn new(socket: OwnedFd, slot: Slot, now: Instant) -> Self {
        Self {
            socket,
            parser: Parser::new(slot.peer.is_none()),
            slot: Arc::new(slot),
            output: Output::default(),
            state: State::Receiving { since: now },
            had_no_request: true,
            received_at: now,
            in_a_row: 0,
        }
    }

    /// Receives, hands out and sends as far as possible.
    pub(super) fn handle_event(&mut self, event: Event, pass: &mut Pass) -> Next {
        let state = replace(&mut self.state, State::Closed);
        let next = self.transition(event, state, pass);
        self.end_event(next, pass)
    }

    /// What each event means in each state. What comes by mail is [`Connection::handle_settled`].
    fn transition(&mut self, event: Event, state: State, pass: &mut Pass) -> io::Result<Next> {
        match (state, event) {
            (State::Receiving { since }, Event::Socket) => self.receive_requests(since, pass),
            (State::Receiving { since }, Event::Turn) => self.first_request(since, pass),
            (State::Receiving { .. }, Event::Overdue) if !self.parser.is_idle() => {
                self.note(Closing::RequestTimeout, pass);
                self.refuse_with(None, ProtocolError::TIMED_OUT, pass)
            }
            (State::Receiving { .. }, Event::Overdue) => Ok(self.close(Closing::Idle, pass)),
            (State::Receiving { .. }, Event::Evicted) => {
                if !self.parser.is_idle() {
                    self.refuse_with(None, ProtocolError::OVERLOADED, pass)?;
                }
                Ok(self.close(Closing::NoRoom, pass))
            }

            // There is room in the socket, or the client sent more, or has gone: epoll would report
            // the latter in every pass. No other event comes: this state has no deadline, and is
            // never in the run queue.
            (state @ State::Away { .. }, _) => self.send_while_away(state, EventFlags::empty()),

            (State::Parked { request, since, until }, Event::Socket) => {
                self.receive_while_parked(request, since, until, pass)
            }
            (State::Parked { request, .. }, Event::Turn) => {
                Ok(self.hand_out_again(*request, Reason::Woken, pass))
            }
            (State::Parked { request, .. }, Event::Overdue) => {
                let is_stopping = pass.phase == Phase::Stopping;
                let reason = if is_stopping { Reason::Stopping } else { Reason::TimeOver };
                Ok(self.hand_out_again(*request, reason, pass))
            }
            (State::Parked { request, .. }, Event::Evicted) => {
                self.note(Closing::NoRoom, pass);
                Ok(self.hand_out_again(*request, Reason::Evicted, pass))
            }

            // Long content has its turn after all that is short.
            (state @ State::Sending { .. }, Event::Socket) if self.output.is_long() => {
                Ok(self.enter(state, Next::Queue))
            }
            (State::Sending { then, since }, Event::Socket | Event::Turn) => {
                self.continue_sending(then, since, None, pass)
            }
            (State::Sending { .. }, Event::Overdue) if self.is_reading_overdue(pass.now) => {
                Ok(self.close(Closing::OrphanedContent, pass))
            }
            (State::Sending { then, since }, Event::Overdue) => {
                let time = pass.shared.limits.request_timeout;
                let overdue = (since + time <= pass.now).then_some(Closing::Unread);
                self.continue_sending(then, since, overdue, pass)
            }
            (State::Sending { then, since }, Event::Evicted) => {
                self.continue_sending(then, since, Some(Closing::NoRoom), pass)
            }

            (State::Lingering { .. }, Event::Overdue | Event::Evicted) => Ok(Next::Close),
            (State::Lingering { left, since, received }, _) => {
                self.drop_received(left, since, received, pass)
            }

            (State::Closed, _) => Ok(Next::Close),
        }
    }

    /// Sets the next state, which is the last that a transition does. Until then, it is `Closed`.
    fn enter(&mut self, state: State, next: Next) -> Next {
        self.state = state;
        next
    }

    /// Counts the memory that the connection has in its new state. If the event has failed, the
    /// connection is closed.
    fn end_event(&mut self, next: io::Result<Next>, pass: &Pass) -> Next {
        let next = next.unwrap_or_else(|error| match error.kind() {
            // The kernel gave up the connection (TCP_USER_TIMEOUT).
            io::ErrorKind::TimedOut => self.close(Closing::Unread, pass),
            // The client has gone.
            _ => Next::Close,
        });
        // Once the connection is closed, somebody may still have its request.
        if next != Next::Close {
            self.slot.quota.set_memory(self.memory(&pass.shared.limits));
        }
        next
    }

    /// Bytes of memory that count against the quota. Names all fields and states, so that a new one
    /// does not compile before somebody has decided whether it has a buffer.
    fn memory(&self, limits: &Limits) -> usize {
        let Self {
            socket: _,
            slot: _,
            parser,
            output,
            state,
            had_no_request: _,
            received_at: _,
            in_a_row: _,
        } = self;
        let request = match state {
            State::Away { memory, .. } => *memory,
            State::Parked { request, .. } => request.memory(limits),
            State::Receiving { .. } | State::Sending { .. } => 0,
            State::Lingering { .. } | State::Closed => 0,
        };
        parser.memory() + output.memory() + request
    }

    /// Whether somebody else has the request.
    pub(super) fn is_away(&self) -> bool {
        matches!(self.state, State::Away { .. })
    }

    pub(super) fn is_parked(&self) -> bool {
        matches!(self.state, State::Parked { .. })
    }

    /// When the connection is overdue; `None` while somebody else has the request, and once it is
    /// closed.
    pub(super) fn deadline(&self, phase: Phase, limits: &Limits) -> Option<Instant> {
        let is_stopping = phase == Phase::Stopping;
        let deadline = match &self.state {
            State::Away { .. } | State::Closed => return None,
            State::Receiving { since } => {
                let is_idle = self.parser.is_idle();
                let time = if is_idle && !self.had_no_request {
                    limits.keep_alive + KEEP_ALIVE_GRACE
                } else {
                    limits.request_timeout
                };
                let time = if is_idle && is_stopping { time.min(STOPPING_IDLE) } else { time };
                *since + time
            }
            State::Parked { since, .. } if is_stopping => *since,
            State::Parked { until, .. } => *until,
            State::Sending { since, .. } => {
                let reading = self.output.reading().and_then(Reading::deadline);
                let progress = *since + limits.request_timeout;
                reading.map_or(progress, |reading| reading.min(progress))
            }
            State::Lingering { since, .. } if is_stopping => *since + LINGER_TIME,
            State::Lingering { since, received, .. } => {
                (*since + limits.request_timeout).min(*received + LINGER_TIME)
            }
        };
        Some(deadline)
    }

    /// When the client last made progress; `None` while somebody else has the request, and once the
    /// connection is closed.
    pub(super) fn stalled_since(&self) -> Option<Instant> {
        match &self.state {
            State::Away { .. } | State::Closed => None,
            State::Receiving { since }
            | State::Parked { since, .. }
            | State::Sending { since, .. }
            | State::Lingering { since, .. } => Some(*since),
        }
    }

    /// Whether [`Reading::deadline`] has passed.
    fn is_reading_overdue(&self, now: Instant) -> bool {
        let deadline = self.output.reading().and_then(Reading::deadline);
        deadline.is_some_and(|deadline| deadline <= now)
    }

    /// When the worker has to look at the connection at the latest, if no event comes before. That
    /// is soon if the connection has a [`Reading`].
    pub(super) fn next_check(&self, pass: &Pass) -> Option<Instant> {
        if self.output.reading().is_some() {
            return Some(pass.now + READING_CHECK_INTERVAL);
        }
        self.deadline(pass.phase, &pass.shared.limits)
    }

    fn arrival(&self) -> Arrival {
        self.slot.arrival(self.received_at)
    }

    /// Tells the application that the connection is closed, or about to be, and why.
    pub(super) fn note(&self, reason: Closing, pass: &Pass) {
        tell(|| pass.policy.closed(self.arrival(), reason));
    }

    fn close(&mut self, reason: Closing, pass: &Pass) -> Next {
        self.note(reason, pass);
        self.enter(State::Closed, Next::Close)
    }
}

impl Drop for Connection {
    /// Whoever has the request gets to know that nobody waits for its answer.
    fn drop(&mut self) {
        self.slot.close();
    }
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
