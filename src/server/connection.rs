//! One connection: a state machine that receives, answers and sends, and never waits for its client. Knows nothing of other connections.

use std::io;
use std::mem::take;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown};
use tiny_http::Method;

use super::output::{Output, Sent};
use super::shared::{Quota, Shared};
use crate::http::{CLOSES, Challenge, Parser, ProtocolError, Request, Response};
use crate::logging::{self, Topic};
use crate::service::Answer;
use crate::store::{Change, DatabaseError, Outcome};

/// Bytes received at a time: a request of curl takes 84, and a pipelining client has no more in its buffer.
const RECEIVE_BYTES: usize = 4096;

/// Requests answered in a row before other connections are served, so that one client that pipelines does not hold up the others.
const ANSWERS_IN_A_ROW: usize = 16;

/// How long, and how many bytes, a client may go on sending after its last response. If the connection were closed at once, the kernel would
/// reset it, and the client could lose the response.
const LINGER_TIME: Duration = Duration::from_secs(2);
const LINGER_BYTES_MAX: usize = 1024 * 1024;

/// At the connection limit, a connection without progress for this long may be closed.
const STALL_TIME: Duration = Duration::from_secs(2);

/// How much longer than the keep-alive time an idle connection stays open: a request that the client sends just before that time is over
/// still arrives. The field Keep-Alive says a second at least, however short the time is, so the field never promises too much.
const KEEP_ALIVE_GRACE: Duration = Duration::from_secs(1);

/// The keep-alive time when the service is stopping; a busy client sends its next request sooner.
const STOPPING_KEEP_ALIVE: Duration = Duration::from_secs(1);

/// What a connection waits for.
#[derive(Debug)]
enum State {
    /// The first byte of a request.
    Idle,
    /// The rest of a request.
    Reading,
    /// The answer of the service. That to a change comes when it is saved; until then, request and change take `memory` bytes. Nothing is
    /// received meanwhile, so that requests are answered in order, and no timeout closes the connection, so that the memory stays counted.
    /// `detail` is what the access log will say of the change.
    Answering { memory: usize, detail: Option<String> },
    /// Room in the socket for more of the output.
    Writing,
    /// The end of the client's side, after the last response. Up to `left` bytes are received and dropped.
    Lingering { left: usize },
}

/// What follows when the output is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    NextRequest,
    Close,
    /// The same, but the client may still be sending the request that was refused.
    Linger,
}

#[derive(Debug)]
pub(super) enum Event {
    /// There is something to receive, or the connection has ended.
    Readable,
    Writable,
    /// The other connections have been served: go on with the requests in the buffer.
    Resume,
    Outcome(Result<Outcome, DatabaseError>),
    /// [`Connection::deadline`] has passed.
    Deadline,
    /// The connection limit is reached, and others wait.
    LimitReached,
    /// [`Connection::advance`] has panicked.
    Panicked,
}

/// What the worker has to do for the connection next.
#[derive(Debug)]
pub(super) enum Next {
    /// Wait for these events on the socket.
    Wait(EventFlags),
    /// Send [`Event::Resume`] when the other connections have been served.
    Queue,
    /// Pass this change to the writer, and send [`Event::Outcome`].
    Commit(Change),
    /// Remove the socket from epoll until the outcome is known: it is ready, and epoll would report that in every pass.
    Unwatch,
    Close,
}

pub(super) struct Connection {
    pub(super) socket: OwnedFd,
    /// The other end's address, if it is a TCP connection.
    peer: Option<SocketAddr>,
    /// Requests for foreign host names are refused.
    checks_host: bool,
    parser: Parser,
    pub(super) output: Output,
    state: State,
    /// When the state began, or the client last took some of the output.
    since: Instant,
    after: After,
    had_request: bool,
    /// When the pass began in which the last bytes were received.
    received: Instant,
    /// The request that is being answered.
    request: Option<Request>,
    /// For the access log: when the service began to answer, and the name of the request's token.
    begun: Option<Instant>,
    token_name: Option<Arc<str>>,
    quota: Quota,
}

impl Connection {
    pub(super) fn new(socket: OwnedFd, peer: Option<SocketAddr>, checks_host: bool, quota: Quota, now: Instant) -> Self {
        Self {
            socket,
            peer,
            checks_host,
            parser: Parser::default(),
            output: Output::default(),
            state: State::Idle,
            since: now,
            after: After::NextRequest,
            had_request: false,
            received: now,
            request: None,
            begun: None,
            token_name: None,
            quota,
        }
    }

    /// Receives, answers and sends as far as possible; `scratch` is the receive buffer. If it panics, call it again with [`Event::Panicked`].
    pub(super) fn advance(&mut self, event: Event, shared: &Shared, now: Instant, scratch: &mut [u8]) -> Next {
        // An error means that the client has gone, so there is no response.
        let next = self.handle(event, shared, now, scratch).unwrap_or(Next::Close);
        let change = if let State::Answering { memory, .. } = self.state { memory } else { 0 };
        self.quota.set_memory(self.parser.memory() + self.output.memory() + change);
        next
    }

    /// `None` while the service answers.
    pub(super) fn deadline(&self, shared: &Shared) -> Option<Instant> {
        let limits = &shared.limits;
        let time = match self.state {
            State::Idle if shared.is_stopping() => STOPPING_KEEP_ALIVE.min(limits.keep_alive),
            State::Idle if self.had_request => limits.keep_alive + KEEP_ALIVE_GRACE,
            State::Idle | State::Reading | State::Writing => limits.request_timeout,
            State::Answering { .. } => return None,
            State::Lingering { .. } => LINGER_TIME,
        };
        Some(self.since + time)
    }

    /// Sort key for eviction at the connection limit: idle connections first, then those without progress for [`STALL_TIME`]; the longest
    /// first. `None` if it has to stay.
    pub(super) fn eviction_rank(&self, now: Instant) -> Option<(bool, Instant)> {
        match self.state {
            State::Idle if self.had_request => Some((false, self.since)),
            State::Answering { .. } => None,
            _ => (now.duration_since(self.since) >= STALL_TIME).then_some((true, self.since)),
        }
    }

    fn handle(&mut self, event: Event, shared: &Shared, now: Instant, scratch: &mut [u8]) -> io::Result<Next> {
        match (event, &mut self.state) {
            (Event::Readable, State::Idle | State::Reading) => {
                self.received = now;
                let length = self.parser.missing().clamp(RECEIVE_BYTES, scratch.len());
                match receive(&self.socket, &mut scratch[..length])? {
                    Some([]) if self.parser.is_idle() => return Ok(Next::Close),
                    Some([]) => return self.refuse(&ProtocolError::UnexpectedEof, shared, now),
                    Some(received) => self.parser.append(received),
                    None => {}
                }
                self.answer(shared, now)
            }
            (Event::Readable, State::Lingering { left }) if *left > 0 => {
                while *left > 0 {
                    match receive(&self.socket, scratch)? {
                        Some([]) => return Ok(Next::Close),
                        Some(dropped) => *left = left.saturating_sub(dropped.len()),
                        None => return Ok(Next::Wait(EventFlags::IN)),
                    }
                }
                Ok(Next::Wait(EventFlags::empty()))
            }
            (Event::Resume, State::Idle | State::Reading) => {
                let before = self.quota.worker.counters.untimed.read();
                let next = self.answer(shared, now);
                self.quota.worker.counters.time_answers(before, self.received.elapsed());
                next
            }
            (Event::Readable | Event::Writable, State::Writing) => self.flush(!self.parser.is_idle(), now),
            (Event::Outcome(outcome), State::Answering { detail, .. }) => {
                let detail = detail.take();
                self.state = State::Idle;
                if let Some(request) = &self.request {
                    self.respond(shared.service.complete(request, outcome, detail), shared);
                }
                let next = self.flush(!self.parser.is_idle(), now);
                self.quota.worker.counters.durable.add(1, self.received.elapsed());
                next
            }
            (Event::Readable | Event::Writable, State::Answering { .. }) => Ok(Next::Unwatch),
            // epoll reports room only when a third of the socket's buffer is free, so there may be some
            (Event::Deadline | Event::LimitReached, State::Writing) => match self.flush(!self.parser.is_idle(), now)? {
                Next::Wait(EventFlags::OUT) if self.since != now => Ok(Next::Close),
                next => Ok(next),
            },
            (Event::Deadline, State::Reading) => self.refuse(&ProtocolError::Timeout, shared, now),
            (Event::LimitReached, State::Reading) => self.refuse(&ProtocolError::Overloaded, shared, now).map(|_| Next::Close),
            // in other states half of a response may be in the output, or the change may be made
            (Event::Panicked, State::Answering { .. }) => self.refuse(&ProtocolError::Panicked, shared, now),
            // all others end the connection: the client has gone, or its time is over
            _ => Ok(Next::Close),
        }
    }

    /// Answers the requests in the buffer, up to [`ANSWERS_IN_A_ROW`].
    fn answer(&mut self, shared: &Shared, now: Instant) -> io::Result<Next> {
        let mut answers = 0;
        while self.after == After::NextRequest {
            if answers == ANSWERS_IN_A_ROW || !self.output.has_room() {
                return self.flush(!self.parser.is_idle(), now);
            }
            let request = match self.parser.next_request(shared.limits.content_max) {
                Ok(Some(request)) => self.request.insert(request),
                Ok(None) if self.quota.is_refused(self.parser.memory()) => return self.refuse(&ProtocolError::Overloaded, shared, now),
                Ok(None) => {
                    if self.parser.take_expectation() {
                        self.output.push_continue();
                    }
                    break;
                }
                Err(error) => return self.refuse(&error, shared, now),
            };
            answers += 1;
            // what follows is another request, with a time of its own
            (self.state, self.since, self.had_request) = (State::Answering { memory: 0, detail: None }, now, true);
            if shared.service.access_log {
                (self.begun, self.token_name) = (Some(Instant::now()), shared.service.token_name(request));
            }
            let memory = request.memory();
            if self.quota.is_refused(memory + self.output.memory()) {
                return self.refuse(&ProtocolError::Overloaded, shared, now);
            }
            match shared.service.respond(request, self.checks_host) {
                Answer::Now(response) => {
                    self.quota.worker.counters.untimed.add(1);
                    self.respond(response, shared);
                }
                Answer::Overloaded => return self.refuse(&ProtocolError::Overloaded, shared, now),
                Answer::Commit(change, detail) => {
                    // the change has its own copy of what it needs
                    request.content = Vec::new();
                    self.state = State::Answering { memory, detail };
                    self.output.send(&self.socket)?;
                    return Ok(Next::Commit(change));
                }
            }
        }
        self.flush(false, now)
    }

    /// Responds to the request that is being answered.
    fn respond(&mut self, response: Response, shared: &Shared) {
        let Some(request) = &self.request else { return };
        self.state = State::Idle;
        let is_last = !request.keep_alive || shared.is_stopping() || shared.limit_reached();
        let connection = if is_last {
            self.after = After::Close;
            CLOSES
        } else {
            &shared.stays_open
        };
        if let Some(line) = &response.log {
            logging::client_warning(Topic::Forbidden, format_args!("{line}"));
        }
        if response.challenge == Some(Challenge::InvalidToken) {
            let client = client(self.peer, request.fields.forwarded_for);
            logging::client_warning(Topic::WrongTokens, format_args!("a wrong token from {client}"));
        }
        self.push(response, connection);
    }

    /// Responds with an error to what cannot be read as a request, or cannot be served. Nothing that follows is read as a request.
    fn refuse(&mut self, error: &ProtocolError, shared: &Shared, now: Instant) -> io::Result<Next> {
        let unfinished = self.parser.refuse();
        self.request = self.request.take().or(unfinished);
        self.begun = self.begun.or_else(|| shared.service.access_log.then(Instant::now));
        self.push(shared.service.refuse(self.request.as_ref(), error), CLOSES);
        self.after = After::Linger;
        self.flush(false, now)
    }

    /// Appends a response to the output, and logs it.
    fn push(&mut self, mut response: Response, connection: &str) {
        let (begun, token_name) = (self.begun.take(), self.token_name.take());
        let request = &self.request;
        let (status, detail) = (response.status, take(&mut response.detail));
        let is_head = request.as_ref().is_some_and(|request| request.method == Method::Head);
        let bytes = self.output.push(response, is_head, connection);
        self.quota.worker.counters.count_response(request.as_ref().map(|request| &request.method), status);
        let is_logged = begun.is_some() || (status.0 >= 400 && log::log_enabled!(log::Level::Debug));
        if is_logged {
            let what = request.as_ref().map(|request| (&request.method, request.target.as_str()));
            let client = client(self.peer, request.as_ref().and_then(|request| request.fields.forwarded_for));
            let client = token_name.map_or_else(|| client.clone(), |name| format!("{name}@{client}"));
            logging::access(&client, what, status, &detail, bytes, begun);
        }
        self.request = None;
    }

    /// Sends what the socket has room for. `may_have_requests`: the buffer may have whole requests that are not answered yet.
    fn flush(&mut self, may_have_requests: bool, now: Instant) -> io::Result<Next> {
        let sent = self.output.send(&self.socket)?;
        if sent != Sent::All {
            if sent == Sent::Some || !matches!(self.state, State::Writing) {
                (self.state, self.since) = (State::Writing, now);
            }
            return Ok(Next::Wait(EventFlags::OUT));
        }
        if self.after == After::NextRequest {
            match (&self.state, self.parser.is_idle()) {
                // more bytes of a request do not give it more time
                (State::Idle, true) | (State::Reading, false) => {}
                (_, true) => (self.state, self.since) = (State::Idle, now),
                (_, false) => (self.state, self.since) = (State::Reading, now),
            }
            return Ok(if may_have_requests { Next::Queue } else { Next::Wait(EventFlags::IN) });
        }
        let is_done = self.after == After::Close && self.parser.is_idle();
        if is_done && receive(&self.socket, &mut [0; 1024])?.is_none_or(|received| received.is_empty()) {
            return Ok(Next::Close);
        }
        rustix::net::shutdown(&self.socket, Shutdown::Write)?;
        self.parser = Parser::default();
        (self.state, self.since) = (State::Lingering { left: LINGER_BYTES_MAX }, now);
        Ok(Next::Wait(EventFlags::IN))
    }
}

/// Receives up to a buffer of bytes: none at the end, `None` if there is nothing yet.
fn receive<'a>(socket: &OwnedFd, buffer: &'a mut [u8]) -> io::Result<Option<&'a [u8]>> {
    match rustix::net::recv(socket, &mut *buffer, RecvFlags::DONTWAIT) {
        Ok((_, received)) => Ok(Some(&buffer[..received])),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Whom a request is from, for the log. Every client can send X-Forwarded-For, so it counts only on a unix socket, which its permissions leave
/// to the proxy.
fn client(peer: Option<SocketAddr>, forwarded_for: Option<IpAddr>) -> String {
    match (peer, forwarded_for) {
        (Some(peer), _) => peer.to_string(),
        (None, Some(address)) => address.to_string(),
        (None, None) => "unix".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_unix_socket_is_believed() {
        let (peer, forwarded_for) = ("198.51.100.7:50000".parse().unwrap(), "203.0.113.9".parse().unwrap());
        assert_eq!(client(Some(peer), Some(forwarded_for)), "198.51.100.7:50000");
        assert_eq!(client(None, Some(forwarded_for)), "203.0.113.9");
        assert_eq!(client(None, None), "unix");
    }
}
