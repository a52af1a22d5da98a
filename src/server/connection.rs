//! One connection: a state machine that receives, answers and sends, and never waits for its client. Knows nothing of other connections.

use std::io;
use std::mem::{replace, take};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown};
use tiny_http::{HTTPVersion, Method};

use super::client::Client;
use super::output::{Output, Sent};
use super::shared::{Quota, Shared};
use crate::http::{Challenge, Parser, ProtocolError, Request, Response};
use crate::logging;
use crate::service::Answer;
use crate::store::{Change, DatabaseError, Outcome};

/// Bytes received at a time: a request of curl takes a tenth of it, and a pipelining client has no more in its buffer.
const RECEIVE_BYTES: usize = 4096;

/// Requests answered in a row before other connections are served: pipelining clients cannot starve light ones.
const ANSWERS_IN_A_ROW: usize = 16;

/// How long, and how many bytes, a client may go on sending behind its last response. A close before that could cost it the response.
const LINGER_TIME: Duration = Duration::from_secs(2);
const LINGER_BYTES_MAX: usize = 1024 * 1024;

/// How long an idle connection stays when the service is stopping; a busy client does not pause for longer.
const STOPPING_KEEP_ALIVE: Duration = Duration::from_secs(1);

/// What a connection waits for.
#[derive(Debug)]
enum State {
    /// The first byte of a request.
    Idle,
    /// The rest of a request.
    Reading,
    /// The outcome of a change. Nothing is received meanwhile, so that nothing overtakes it, and nothing closes the connection, so that the
    /// memory of the change stays counted.
    Committing(Box<Committing>),
    /// Room for more of the output.
    Writing,
    /// The end: the last response is sent, and so many more bytes of what the client still sends are read and dropped.
    Lingering { left: usize },
}

#[derive(Debug)]
struct Committing {
    request: Request,
    /// Bytes of memory that the change takes.
    memory: usize,
    begun: Option<Instant>,
}

/// What follows once the output is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    NextRequest,
    Close,
    /// The client may still be sending.
    Linger,
}

#[derive(Debug)]
pub(super) enum Event {
    /// There is something to receive, or the connection has ended.
    Readable,
    Writable,
    /// The other connections have been served: go on with the requests in the buffer.
    Resume,
    /// The change that was waited for is saved, or was not made.
    Outcome(Result<Outcome, DatabaseError>),
    /// The deadline has passed.
    Deadline,
    /// The connection limit is reached, and others wait.
    LimitReached,
}

/// What the worker has to do for the connection next.
#[derive(Debug)]
pub(super) enum Next {
    /// Wait for these events on the socket.
    Wait(EventFlags),
    /// Serve it again when the other connections have been served.
    Queue,
    /// Have this change saved.
    Commit(Change),
    /// Watch it for nothing until its change is saved: an event has come that would be reported in every pass.
    Unwatch,
    Close,
}

pub(super) struct Connection {
    socket: OwnedFd,
    /// The other end's address, if it is a TCP connection.
    peer: Option<SocketAddr>,
    /// The listener's own address is a loopback one.
    on_loopback: bool,
    parser: Parser,
    output: Output,
    state: State,
    /// When the state began, or the client last took some of the output.
    since: Instant,
    after: After,
    had_request: bool,
    /// The begin of the pass in which the last bytes were received.
    received: Instant,
    /// The name of the token of the request that is being answered, for the access log.
    token_name: Option<Arc<str>>,
    quota: Quota,
}

impl Connection {
    pub(super) fn new(socket: OwnedFd, peer: Option<SocketAddr>, on_loopback: bool, quota: Quota, now: Instant) -> Self {
        Self {
            socket,
            peer,
            on_loopback,
            parser: Parser::default(),
            output: Output::default(),
            state: State::Idle,
            since: now,
            after: After::NextRequest,
            had_request: false,
            received: now,
            token_name: None,
            quota,
        }
    }

    /// Does all there is to do after an event. `scratch` is where bytes are received to.
    pub(super) fn advance(&mut self, event: Event, shared: &Shared, now: Instant, scratch: &mut [u8]) -> Next {
        // An error means that the client has gone: nobody is left to tell.
        let next = self.handle(event, shared, now, scratch).unwrap_or(Next::Close);
        let committing = if let State::Committing(committing) = &self.state { committing.memory } else { 0 };
        self.quota.set_memory(self.parser.memory() + self.output.memory() + committing);
        next
    }

    /// When the connection has been in its state for too long, if there is such a time.
    pub(super) fn deadline(&self, shared: &Shared) -> Option<Instant> {
        let limits = &shared.limits;
        let time = match self.state {
            State::Idle if shared.is_stopping() => STOPPING_KEEP_ALIVE.min(limits.keep_alive),
            State::Idle if self.had_request => limits.keep_alive,
            State::Idle | State::Reading | State::Writing => limits.request_timeout,
            State::Committing(_) => return None,
            State::Lingering { .. } => LINGER_TIME,
        };
        Some(self.since + time)
    }

    /// Whether it may be closed in favor of others, and in which order: first those that are idle, then those that have owed something for
    /// at least `patience`; of each the longest waiting first.
    pub(super) fn may_make_room(&self, now: Instant, patience: Duration) -> Option<(bool, Instant)> {
        match self.state {
            State::Idle if self.had_request => Some((false, self.since)),
            State::Committing(_) => None,
            _ => (now.duration_since(self.since) >= patience).then_some((true, self.since)),
        }
    }

    /// Whether its output is sent from an old representation that has to be freed.
    pub(super) fn is_withdrawn(&self) -> bool {
        self.output.is_withdrawn()
    }

    fn handle(&mut self, event: Event, shared: &Shared, now: Instant, scratch: &mut [u8]) -> io::Result<Next> {
        match (event, &mut self.state) {
            (Event::Readable, State::Idle | State::Reading) => {
                self.received = now;
                if !self.receive(scratch)? {
                    self.refuse(&ProtocolError::UnexpectedEof, None, shared);
                }
                self.answer(shared, now)
            }
            (Event::Readable, &mut State::Lingering { left }) if left > 0 => self.linger(left, scratch),
            (Event::Resume, State::Idle | State::Reading) => {
                let before = self.quota.worker.counters.untimed.read();
                let next = self.answer(shared, now);
                self.quota.worker.counters.time_answers(before, self.received.elapsed());
                next
            }
            (Event::Readable | Event::Writable, State::Writing) => self.flush(!self.parser.is_idle(), now),
            (Event::Outcome(outcome), State::Committing(_)) => {
                if let State::Committing(committing) = replace(&mut self.state, State::Idle) {
                    let response = shared.service.complete(&committing.request, outcome);
                    self.respond(&committing.request, response, committing.begun, shared);
                }
                let next = self.flush(!self.parser.is_idle(), now);
                self.quota.worker.counters.durable.add(1, self.received.elapsed());
                next
            }
            (Event::Readable | Event::Writable, State::Committing(_)) => Ok(Next::Unwatch),
            (Event::Deadline, State::Writing) => self.flush_late(now),
            (Event::Deadline, State::Reading) => {
                self.refuse(&ProtocolError::Timeout, None, shared);
                self.flush(false, now)
            }
            (Event::LimitReached, State::Reading) => {
                self.refuse(&ProtocolError::Overloaded, None, shared);
                self.output.send(&self.socket).map(|_| Next::Close)
            }
            // what else can happen is an end: the client has gone, or its time is over
            _ => Ok(Next::Close),
        }
    }

    /// Receives some of what there is. False at an end in the middle of a request.
    /// An error means that the connection has ended, as it may between two requests.
    fn receive(&mut self, scratch: &mut [u8]) -> io::Result<bool> {
        let length = self.parser.missing().clamp(RECEIVE_BYTES, scratch.len());
        match rustix::net::recv(&self.socket, &mut scratch[..length], RecvFlags::DONTWAIT) {
            Ok((_, 0)) if self.parser.is_idle() => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((_, received)) => {
                self.parser.append(&scratch[..received]);
                Ok(received > 0)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// Answers the requests in the buffer, as many as may be answered in a row.
    fn answer(&mut self, shared: &Shared, now: Instant) -> io::Result<Next> {
        let mut answers = 0;
        while self.after == After::NextRequest {
            if answers == ANSWERS_IN_A_ROW || !self.output.has_room() {
                return self.flush(!self.parser.is_idle(), now);
            }
            match self.parser.next_request(shared.limits.content_max) {
                Ok(None) if self.quota.is_refused(self.parser.memory()) => self.refuse(&ProtocolError::Overloaded, None, shared),
                Ok(None) => {
                    if self.parser.take_expectation() {
                        self.output.push_continue();
                    }
                    break;
                }
                Ok(Some(request)) => {
                    answers += 1;
                    // what follows is another request, with a time of its own
                    (self.state, self.since, self.had_request) = (State::Idle, now, true);
                    if let Some(change) = self.answer_one(request, shared) {
                        self.output.send(&self.socket)?;
                        return Ok(Next::Commit(change));
                    }
                }
                Err(error) => self.refuse(&error, None, shared),
            }
        }
        self.flush(false, now)
    }

    /// Answers a request, unless that takes a change that has to be saved first.
    fn answer_one(&mut self, mut request: Request, shared: &Shared) -> Option<Change> {
        let begun = shared.access_log.then(Instant::now);
        self.token_name = begun.and_then(|_| shared.service.token_name(&request));
        let memory = request.memory();
        if self.quota.is_refused(memory) {
            self.refuse(&ProtocolError::Overloaded, Some(request), shared);
            return None;
        }
        match shared.service.respond(&request, self.on_loopback) {
            Answer::Now(response) => {
                self.quota.worker.counters.untimed.add(1);
                self.respond(&request, response, begun, shared);
                None
            }
            Answer::Commit(change) => {
                request.content = Vec::new();
                self.state = State::Committing(Box::new(Committing { request, memory, begun }));
                Some(change)
            }
        }
    }

    /// Puts the response to a request behind the output.
    fn respond(&mut self, request: &Request, response: Response, begun: Option<Instant>, shared: &Shared) {
        let is_last = !request.keep_alive || shared.is_stopping() || shared.limit_reached();
        let connection = if is_last {
            self.after = After::Close;
            Some("close")
        } else {
            // RFC 9112 §9.3: HTTP/1.0 has to be told that the connection stays
            (request.version < HTTPVersion(1, 1)).then_some("keep-alive")
        };
        if let Some(line) = &response.log {
            logging::client_warning(format_args!("{line}"));
        }
        if response.challenge == Some(Challenge::InvalidToken) {
            logging::client_warning(format_args!("a wrong token from {}", self.client(Some(request))));
        }
        self.push(response, Some(request), connection, begun);
    }

    /// Answers what cannot be read as a request, or cannot be served; nothing that follows it is read as a request.
    fn refuse(&mut self, error: &ProtocolError, request: Option<Request>, shared: &Shared) {
        let begun = shared.access_log.then(Instant::now);
        let unfinished = self.parser.refuse();
        let request = request.or(unfinished);
        self.push(shared.service.refuse(request.as_ref(), error), request.as_ref(), Some("close"), begun);
        self.after = After::Linger;
    }

    /// Puts a response behind the output, and logs it.
    fn push(&mut self, mut response: Response, request: Option<&Request>, connection: Option<&'static str>, begun: Option<Instant>) {
        let (status, reason) = (response.status, take(&mut response.reason));
        let is_head = request.is_some_and(|request| request.method == Method::Head);
        let bytes = self.output.push(response, is_head, connection);
        self.quota.worker.counters.count_response(request.map(|request| &request.method), status);
        let is_logged = begun.is_some() || (status.0 >= 400 && log::log_enabled!(log::Level::Debug));
        if is_logged {
            let what = request.map(|request| (&request.method, request.target.as_str()));
            let client = self.client(request);
            let client = self.token_name.take().map_or_else(|| client.to_string(), |name| format!("{name}@{client}"));
            logging::response(&client, what, status, &reason, bytes, begun);
        }
    }

    /// Sends what the socket has room for. `may_have_requests`: the buffer may have whole requests that are not answered yet.
    fn flush(&mut self, may_have_requests: bool, now: Instant) -> io::Result<Next> {
        if let Sent::Part { progress } = self.output.send(&self.socket)? {
            if progress || !matches!(self.state, State::Writing) {
                (self.state, self.since) = (State::Writing, now);
            }
            return Ok(Next::Wait(EventFlags::OUT));
        }
        if self.after != After::NextRequest {
            return self.finish(now);
        }
        let is_idle = self.parser.is_idle();
        match (&self.state, is_idle) {
            // the clock of a request goes on however often a byte of it arrives
            (State::Idle, true) | (State::Reading, false) => {}
            (_, true) => (self.state, self.since) = (State::Idle, now),
            (_, false) => (self.state, self.since) = (State::Reading, now),
        }
        Ok(if may_have_requests { Next::Queue } else { Next::Wait(EventFlags::IN) })
    }

    /// On a timeout in Writing: tries once more, since epoll reports room only when a third of the socket's buffer is free.
    fn flush_late(&mut self, now: Instant) -> io::Result<Next> {
        let before = self.since;
        let next = self.flush(!self.parser.is_idle(), now)?;
        Ok(if matches!(self.state, State::Writing) && self.since == before { Next::Close } else { next })
    }

    /// Ends the connection after its last response.
    fn finish(&mut self, now: Instant) -> io::Result<Next> {
        if self.after == After::Close && self.parser.is_idle() && self.drop_received(&mut [0; 1024])? == 0 {
            return Ok(Next::Close);
        }
        rustix::net::shutdown(&self.socket, Shutdown::Write)?;
        self.parser = Parser::default();
        (self.state, self.since) = (State::Lingering { left: LINGER_BYTES_MAX }, now);
        Ok(Next::Wait(EventFlags::IN))
    }

    /// Reads over what the client still sends. Closed with something unread, the connection would be reset.
    fn linger(&mut self, mut left: usize, scratch: &mut [u8]) -> io::Result<Next> {
        while left > 0 {
            match self.drop_received(scratch)? {
                0 => break,
                dropped => left = left.saturating_sub(dropped),
            }
        }
        self.state = State::Lingering { left };
        Ok(Next::Wait(if left > 0 { EventFlags::IN } else { EventFlags::empty() }))
    }

    /// Receives some bytes and drops them; gives how many.
    fn drop_received(&mut self, scratch: &mut [u8]) -> io::Result<usize> {
        match rustix::net::recv(&self.socket, scratch, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((_, received)) => Ok(received),
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    fn client(&self, request: Option<&Request>) -> Client {
        Client::of(self.peer, request.and_then(|request| request.fields.forwarded_for))
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
