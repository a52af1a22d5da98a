//! One connection: a state machine that receives, answers and sends, and never waits for its
//! client. Touches no other connection.
//!
//! Here are the states, the table of events in each of them, their deadlines and their memory, and
//! what happens in `State::Receiving`. What happens in `State::AwaitingAnswer` and
//! `State::Watching` is in [`pending`], and in `State::Sending` and `State::Lingering` in
//! [`sending`].

mod pending;
mod sending;

use std::io;
use std::mem::replace;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;

use self::pending::Pending;
use self::sending::{OVERLOADED, TIMED_OUT};
use super::Phase;
use super::inbox::NewConnection;
use super::limits::{Limits, Quota, Reading};
use super::loop_context::LoopContext;
use super::output::Output;
use super::policy::{Arrival, Closing};
use crate::http::{Parser, ProtocolError, ReceivedRequest};
use crate::service::Decision;

/// Bytes received at a time, unless more bytes of a content are missing. A request of curl has 84.
const RECEIVE_BYTES: usize = 4096;

/// Requests answered in a row before other connections are served, so that one client that
/// pipelines does not hold up the others.
const ANSWERS_IN_A_ROW: usize = 16;

/// How long a connection stays open after its last response while the client sends nothing. While
/// bytes come, it stays up to the request timeout. If it were closed with bytes unread, the kernel
/// would reset it, and the client could lose the response.
const LINGER_TIME: Duration = Duration::from_secs(2);

/// How much longer than the keep-alive time an idle connection stays open, so that a request that
/// is sent in the last moment still arrives. The grace also covers a keep-alive time below one
/// second, since the field Keep-Alive promises at least one second.
const KEEP_ALIVE_GRACE: Duration = Duration::from_secs(1);

/// Time between two looks at the deadline of a connection with a [`Reading`]. A change of the list
/// by others may bring it forward.
const READING_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Longest keep-alive time during a stop. A busy client sends its next request sooner.
const STOPPING_IDLE: Duration = Duration::from_secs(1);

/// What a connection waits for. `since`: when the client last made progress, or the state began.
enum State {
    /// A request, or the rest of one. `since`: when the client connected, when the last response
    /// was sent, or when the request began.
    Receiving { since: Instant },
    /// The answer of the pool, which takes long, or the outcome of a change, which the writer has
    /// to save first. Nothing is received meanwhile, so that requests are answered in order. There
    /// is no deadline: the request stays in memory, and has to be counted, until the answer comes.
    AwaitingAnswer(Pending),
    /// A change of the list or the color that the request names (RFC 7240 §4.3).
    Watching(Pending),
    /// Room in the socket for more of the output.
    Sending { then: AfterSend, since: Instant },
    /// The client to close, after the last response. Up to `left` more bytes are received and
    /// dropped. `received`: when the last of them came.
    Lingering { left: usize, since: Instant, received: Instant },
    /// Nothing: the connection is to be dropped.
    Closed,
}

/// The state that follows an event, and what the worker has to do in it.
struct Transition(State, Next);

impl Transition {
    fn close() -> Self {
        Self(State::Closed, Next::Close)
    }
}

/// What follows when the whole output is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterSend {
    /// Answer the whole requests that may be in the buffer, then receive more.
    Resume,
    /// Receive more: there is no whole request in the buffer.
    Receive,
    /// Close: by `Connection: close` or HTTP/1.0, this was the last request (RFC 9112 §9.3).
    Close,
    /// Close once the client has: it may still be sending another request, or the refused one.
    Linger,
}

/// What happens to a connection, besides answers and outcomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The connection is new, or epoll has reported its socket.
    Socket,
    /// Its turn in the run queue has come. It was queued by [`Next::Queue`], or because the answer
    /// to its waiting request may have changed.
    Turn,
    /// [`Connection::deadline`] has passed.
    Overdue,
    /// There are too many connections, and this one has stalled.
    Evicted,
}

/// What the worker has to do for the connection next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Have epoll wait for these events on the socket. Without any, take the socket out of epoll:
    /// otherwise epoll would report in every pass that the client has gone.
    Epoll(EventFlags),
    /// Send [`Event::Turn`] when the other connections have been served.
    Queue,
    Close,
}

pub(super) struct Connection {
    pub(super) socket: OwnedFd,
    /// The other end's address, if it is a TCP connection.
    peer: Option<SocketAddr>,
    /// The number of the listener that has accepted the connection.
    listener: usize,
    parser: Parser,
    pub(super) output: Output,
    state: State,
    /// No whole request has arrived yet.
    had_no_request: bool,
    /// When the pass began in which the last bytes were received, or in which the wait for a change
    /// ended. The service is not to blame for the time before that.
    received_at: Instant,
    quota: Quota,
}

impl Connection {
    pub(super) fn new(accepted: NewConnection, now: Instant) -> Self {
        let NewConnection { socket, peer, listener, quota } = accepted;
        Self {
            socket,
            peer,
            listener,
            parser: Parser::new(peer.is_none()),
            output: Output::default(),
            state: State::Receiving { since: now },
            had_no_request: true,
            received_at: now,
            quota,
        }
    }

    /// Receives, answers and sends as far as possible.
    pub(super) fn handle_event(&mut self, event: Event, context: &mut LoopContext<'_>) -> Next {
        let state = replace(&mut self.state, State::Closed);
        let transition = self.transition(event, state, context);
        self.enter_state(transition, context)
    }

    /// What each event means in each state. Answers and outcomes of other threads come by
    /// [`Connection::handle_decision`] and [`Connection::handle_outcome`].
    fn transition(
        &mut self,
        event: Event,
        state: State,
        context: &mut LoopContext<'_>,
    ) -> io::Result<Transition> {
        match (state, event) {
            (State::Receiving { since }, Event::Socket) => self.receive_requests(since, context),
            (State::Receiving { since }, Event::Turn) => self.answer_requests(since, context),
            (State::Receiving { .. }, Event::Overdue) if !self.parser.is_idle() => {
                self.note(Closing::Request, context);
                let (status, message) = TIMED_OUT;
                self.refuse_with(None, status, message, context)
            }
            (State::Receiving { .. }, Event::Overdue) => Ok(self.close(Closing::Idle, context)),
            (State::Receiving { .. }, Event::Evicted) => {
                if !self.parser.is_idle() {
                    let (status, message) = OVERLOADED;
                    self.refuse_with(None, status, message, context)?;
                }
                Ok(self.close(Closing::NoRoom, context))
            }

            // The client sent more, or has gone: epoll would report that in every pass. No other
            // event comes: this state has no deadline, and is never in the run queue.
            (awaiting @ State::AwaitingAnswer(_), _) => {
                Ok(Transition(awaiting, Next::Epoll(EventFlags::empty())))
            }

            (State::Watching(pending), Event::Socket) => {
                self.receive_while_watching(pending, context)
            }
            (State::Watching(pending), Event::Turn) => self.ask_again(pending, context),
            (State::Watching(pending), Event::Overdue) => self.end_watch(pending, context),
            (State::Watching(pending), Event::Evicted) => {
                let transition = self.end_watch(pending, context)?;
                // A long answer is made or sent first. Then the connection closes, unless there is
                // room again.
                if let Transition(State::AwaitingAnswer(_) | State::Sending { .. }, _) = transition
                {
                    return Ok(transition);
                }
                // Close without lingering. The client has sent nothing for which the kernel would
                // reset the connection, and while one lingers, another is closed in its place.
                Ok(self.close(Closing::NoRoom, context))
            }

            // Long content has its turn after all that is short.
            (sending @ State::Sending { .. }, Event::Socket) if self.output.is_long() => {
                Ok(Transition(sending, Next::Queue))
            }
            (State::Sending { then, since }, Event::Socket | Event::Turn) => {
                self.continue_sending(then, since, None, context)
            }
            (State::Sending { .. }, Event::Overdue) if self.is_reading_overdue(context.now) => {
                Ok(self.close(Closing::OldContent, context))
            }
            (State::Sending { then, since }, Event::Overdue) => {
                let time = context.shared.limits.request_timeout;
                let overdue = (since + time <= context.now).then_some(Closing::Unread);
                self.continue_sending(then, since, overdue, context)
            }
            (State::Sending { then, since }, Event::Evicted) => {
                self.continue_sending(then, since, Some(Closing::NoRoom), context)
            }

            (State::Lingering { left, since, received }, Event::Socket | Event::Turn) => {
                self.drop_received(left, since, received, context)
            }
            (State::Lingering { .. }, Event::Overdue | Event::Evicted) => Ok(Transition::close()),

            (State::Closed, _) => Ok(Transition::close()),
        }
    }

    /// Enters the next state, and counts the memory that the connection has in it.
    fn enter_state(
        &mut self,
        transition: io::Result<Transition>,
        context: &LoopContext<'_>,
    ) -> Next {
        let Transition(state, next) = transition.unwrap_or_else(|error| match error.kind() {
            // The kernel gave up the connection (TCP_USER_TIMEOUT).
            io::ErrorKind::TimedOut => self.close(Closing::Unread, context),
            // The client has gone.
            _ => Transition::close(),
        });
        self.state = state;
        self.quota.set_memory(self.memory());
        next
    }

    /// Bytes of memory that count against the quota. Names all fields and states, so that a new one
    /// does not compile before somebody has decided whether it has a buffer.
    fn memory(&self) -> usize {
        let Self {
            socket: _,
            peer: _,
            listener: _,
            parser,
            output,
            state,
            had_no_request: _,
            received_at: _,
            quota: _,
        } = self;
        let request = match state {
            State::AwaitingAnswer(pending) => pending.counted_bytes,
            // The request is short: `Request::is_short`.
            State::Watching(_) => 0,
            State::Receiving { .. } | State::Sending { .. } => 0,
            State::Lingering { .. } | State::Closed => 0,
        };
        parser.memory() + output.memory() + request
    }

    /// Whether the answer or the outcome comes by mail.
    pub(super) fn awaits_mail(&self) -> bool {
        matches!(self.state, State::AwaitingAnswer(_))
    }

    /// When the connection is overdue; `None` while it awaits an answer, and once it is
    /// closed.
    pub(super) fn deadline(&self, phase: Phase, limits: &Limits) -> Option<Instant> {
        let is_stopping = phase == Phase::Stopping;
        let deadline = match &self.state {
            State::AwaitingAnswer(_) | State::Closed => return None,
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
            State::Watching(pending) if is_stopping => pending.since,
            State::Watching(pending) => pending.wait_end(),
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

    /// When the client last made progress; `None` while the connection awaits an answer, and once
    /// it is closed.
    pub(super) fn stalled_since(&self) -> Option<Instant> {
        match &self.state {
            State::AwaitingAnswer(_) | State::Closed => None,
            State::Watching(pending) => Some(pending.since),
            State::Receiving { since }
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
    pub(super) fn next_check(&self, context: &LoopContext<'_>) -> Option<Instant> {
        if self.output.reading().is_some() {
            return Some(context.now + READING_CHECK_INTERVAL);
        }
        self.deadline(context.phase, &context.shared.limits)
    }

    fn arrival(&self, context: &LoopContext<'_>) -> Arrival {
        Arrival {
            worker: context.worker,
            peer: self.peer,
            listener: self.listener,
            received_at: self.received_at,
        }
    }

    /// Tells that the connection is closed, or about to be, and why.
    pub(super) fn note(&self, reason: Closing, context: &LoopContext<'_>) {
        context.shared.policy().closed(self.arrival(context), reason);
    }

    fn close(&self, reason: Closing, context: &LoopContext<'_>) -> Transition {
        self.note(reason, context);
        Transition::close()
    }

    fn receive_requests(
        &mut self,
        since: Instant,
        context: &mut LoopContext<'_>,
    ) -> io::Result<Transition> {
        self.received_at = context.now;
        let was_idle = self.parser.is_idle();
        let length = self.parser.missing().max(RECEIVE_BYTES);
        match context.receive(&self.socket, length)? {
            Some([]) if was_idle => Ok(Transition::close()),
            Some([]) => self.refuse_malformed(ProtocolError::UNEXPECTED_EOF, context),
            Some(received) => {
                self.parser.append(received);
                // More bytes of a request do not give it more time.
                let since = if was_idle { context.now } else { since };
                self.answer_requests(since, context)
            }
            None => self.answer_requests(since, context),
        }
    }

    /// Answers the requests in the buffer, up to [`ANSWERS_IN_A_ROW`].
    fn answer_requests(
        &mut self,
        mut since: Instant,
        context: &mut LoopContext<'_>,
    ) -> io::Result<Transition> {
        for _ in 0..ANSWERS_IN_A_ROW {
            if !self.output.has_room() || self.parser.is_idle() {
                break;
            }
            let content_max = context.shared.limits.content_max;
            let request = match self.parser.next_request(content_max) {
                Ok(Some((head, content))) => ReceivedRequest::new(head, content),
                not_whole => {
                    // A refusal by the head comes first, however much of the content has arrived.
                    let arrival = self.arrival(context);
                    if let Some(head) = self.parser.new_head()
                        && let Err(refusal) = context.shared.policy().admit(head, arrival)
                    {
                        let is_head = head.is_head();
                        return self.refuse(is_head, refusal, context);
                    }
                    if let Err(error) = not_whole {
                        return self.refuse_malformed(error, context);
                    }
                    if self.quota.would_exceed(self.parser.memory()) {
                        return self.refuse_for_memory(None, context);
                    }
                    if self.parser.take_expectation() {
                        self.output.append_continue();
                    }
                    return self.begin_sending(AfterSend::Receive, since, context);
                }
            };
            self.had_no_request = false;
            // The next request has a time of its own.
            since = context.now;
            let counted_bytes = context.shared.limits.counted_bytes(&request);
            if self.quota.would_exceed(counted_bytes + self.output.memory()) {
                // As for a request that comes in parts, the head decides first.
                return match context.shared.policy().admit(&request.head, self.arrival(context)) {
                    Err(refusal) => self.refuse(request.head.is_head(), refusal, context),
                    Ok(()) => self.refuse_for_memory(Some(&request.head), context),
                };
            }
            match context.decide(&request.request(), self.listener) {
                // The head refuses the request. The client sees the same as above, where its
                // content has not arrived.
                Decision::Refuse(refusal) if request.head.has_content() => {
                    context.answered += 1;
                    return self.refuse_whole(&request, refusal, context);
                }
                Decision::Respond(response) | Decision::Refuse(response) => {
                    context.answered += 1;
                    let then = self.append_response(&request, response, context);
                    if then != AfterSend::Resume {
                        return self.begin_sending(then, since, context);
                    }
                }
                decision => {
                    let pending = Pending::new(request, context.now, counted_bytes);
                    return self.carry_out(pending, decision, context);
                }
            }
        }
        self.begin_sending(AfterSend::Resume, since, context)
    }
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
