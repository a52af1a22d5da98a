//! One connection: a state machine that receives, answers and sends, and never waits for its
//! client. Touches no other connection.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown};
use tiny_http::Method;

use super::inbox::Inbox;
use super::limits::{Quota, memory_of};
use super::output::{Output, Sent};
use super::{Shared, access_log};
use crate::http::{CLOSES, Parser, ProtocolError, Request, Response};
use crate::metrics::{Closing, WorkerCounters};
use crate::service::{Answer, Arrival, Phase};

/// Bytes received at a time: a request of curl takes 84, and a pipelining client has no more in its
/// buffer.
const RECEIVE_BYTES: usize = 4096;

/// Requests answered in a row before other connections are served, so that one client that
/// pipelines does not hold up the others.
const ANSWERS_IN_A_ROW: usize = 16;

/// How long, and how many bytes, a client may go on sending after its last response. If the
/// connection were closed at once, the kernel would reset it, and the client could lose the
/// response.
const LINGER_TIME: Duration = Duration::from_secs(2);
const LINGER_BYTES_MAX: usize = 1024 * 1024;

/// How much longer than the keep-alive time an idle connection stays open, so that a request that
/// is sent just before that is over still arrives. The field Keep-Alive has whole seconds, at least
/// one: with this it never promises too much, unless the service stops.
const KEEP_ALIVE_GRACE: Duration = Duration::from_secs(1);

/// How long an old representation may be sent after there are too many of them.
const OLD_TIME: Duration = Duration::from_millis(100);

/// The keep-alive time when the service is stopping; a busy client sends its next request sooner.
const STOPPING_KEEP_ALIVE: Duration = Duration::from_secs(1);

/// What a connection waits for.
#[derive(Debug)]
enum State {
    /// The first byte of its first request.
    New,
    /// The first byte of another request.
    Idle,
    /// The rest of a request.
    Reading,
    /// The response to this request, which takes long, or whose change has to be saved first.
    /// Nothing is received meanwhile, so that requests are answered in order, and no timeout closes
    /// the connection, so that its memory stays counted.
    Answering(Arc<Request>),
    /// Room in the socket for more of the output. When all of it is sent, this follows.
    Writing(After),
    /// The end of the client's side, after the last response. About `left` bytes more are received
    /// and dropped.
    Lingering { left: usize },
}

/// What follows when the output is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    /// There may be whole requests in the buffer: answer them.
    Answer,
    /// There is none: receive more.
    Receive,
    /// The client has said that it sends nothing more.
    Close,
    /// The client may still be sending: another request, or the one that was refused.
    Linger,
}

pub(super) enum Event {
    /// What [`Next::Wait`] waits for is there, or the connection has ended.
    Ready,
    /// The other connections have been served: go on with the output, or the requests in the
    /// buffer.
    Resume,
    /// What [`State::Answering`] waits for. `durable`: the writer had the change.
    Response { response: Result<Box<Response>, ProtocolError>, durable: bool },
    /// [`Connection::deadline`] has passed, or its place is needed: to be closed, for this reason.
    Overdue(Closing),
}

/// What the worker has to do for the connection next.
pub(super) enum Next {
    /// Wait for these events on the socket. Without any, it is taken out of epoll, which would
    /// report in every pass that the client has gone.
    Wait(EventFlags),
    /// Send [`Event::Resume`] when the other connections have been served.
    Queue,
    Close,
}

/// One pass of a worker over the connections that are ready.
pub(super) struct Pass<'a> {
    pub(super) shared: &'a Shared,
    /// The worker's inbox.
    pub(super) inbox: &'a Arc<Inbox>,
    /// The id of the connection that is served.
    pub(super) id: u64,
    /// The worker's counters.
    pub(super) counters: &'a WorkerCounters,
    /// When the pass began, the service was in this phase.
    pub(super) phase: Phase,
    /// When the pass began.
    pub(super) now: Instant,
    /// The value of Date in responses of this pass.
    pub(super) date: &'a str,
    /// The receive buffer of all connections.
    pub(super) scratch: &'a mut [u8],
    /// Requests that were answered without a save, and are to be timed at its end.
    pub(super) answered: u64,
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
    /// When the pass began in which the last bytes were received.
    received: Instant,
    quota: Quota,
}

impl Connection {
    pub(super) fn new(
        socket: OwnedFd,
        peer: Option<SocketAddr>,
        checks_host: bool,
        quota: Quota,
        now: Instant,
    ) -> Self {
        Self {
            socket,
            peer,
            checks_host,
            parser: Parser::default(),
            output: Output::default(),
            state: State::New,
            since: now,
            received: now,
            quota,
        }
    }

    /// Receives, answers and sends as far as possible.
    pub(super) fn advance(&mut self, event: Event, pass: &mut Pass<'_>) -> Next {
        let next = self.handle(event, pass).unwrap_or_else(|error| match error.kind() {
            // by TCP_USER_TIMEOUT
            io::ErrorKind::TimedOut => self.close(Closing::Unread, pass),
            // the client has gone
            _ => Next::Close,
        });
        let request =
            if let State::Answering(request) = &self.state { memory_of(request) } else { 0 };
        self.quota.set_memory(self.parser.memory() + self.output.memory() + request);
        next
    }

    /// When the connection is to be closed, and what is the reason then; `None` while an answer is
    /// waited for.
    pub(super) fn deadline(&self, pass: &Pass<'_>) -> Option<(Instant, Closing)> {
        let limits = &pass.shared.limits;
        let is_stopping = pass.phase == Phase::Stopping;
        let (time, reason) = match &self.state {
            State::Answering(_) => return None,
            State::New | State::Idle if is_stopping => {
                (STOPPING_KEEP_ALIVE.min(limits.keep_alive), Closing::Idle)
            }
            State::New => (limits.request_timeout, Closing::Idle),
            State::Idle => (limits.keep_alive + KEEP_ALIVE_GRACE, Closing::Idle),
            State::Reading => (limits.request_timeout, Closing::Request),
            State::Writing(_) => (limits.request_timeout, Closing::Unread),
            State::Lingering { .. } => (LINGER_TIME, Closing::Idle),
        };
        Some((self.since + time, reason))
    }

    /// Since when the client has made no progress; `None` while an answer is waited for.
    pub(super) fn stands_still_since(&self) -> Option<Instant> {
        (!matches!(self.state, State::Answering(_))).then_some(self.since)
    }

    /// When the worker has to look at the connection at the latest, although nothing has happened
    /// to it. One that sends a shared representation is looked at often, since that may be old.
    pub(super) fn next_check(&self, pass: &Pass<'_>) -> Option<Instant> {
        if self.output.shared_content().is_some() {
            Some(pass.now + OLD_TIME)
        } else {
            self.deadline(pass).map(|(deadline, _)| deadline)
        }
    }

    fn handle(&mut self, event: Event, pass: &mut Pass<'_>) -> io::Result<Next> {
        match (event, &self.state) {
            (Event::Ready, State::New | State::Idle | State::Reading) => {
                self.receive_requests(pass)
            }
            (Event::Ready, &State::Lingering { left }) => self.drop_received(left, pass.scratch),
            (Event::Resume, State::New | State::Idle | State::Reading) => {
                self.answer_requests(pass)
            }
            (Event::Response { response, durable }, State::Answering(request)) => {
                let times = if durable { &pass.counters.durable } else { &pass.counters.immediate };
                let request = Arc::clone(request);
                let next = self.take_response(&request, response, pass);
                times.add(1, self.received.elapsed());
                next
            }
            // the client sent more, or has ended; epoll would report that in every pass
            (Event::Ready, State::Answering(_)) => Ok(Next::Wait(EventFlags::empty())),
            (Event::Ready | Event::Resume, &State::Writing(after)) => self.send(after, pass),
            // epoll reports room only when a third of the socket's buffer is free, so there may be
            // some
            (Event::Overdue(reason), &State::Writing(after)) => match self.send(after, pass)? {
                Next::Wait(EventFlags::OUT) if self.since != pass.now => {
                    Ok(self.close(reason, pass))
                }
                next => Ok(next),
            },
            (Event::Overdue(Closing::NoRoom), State::Reading) => {
                self.refuse(None, &ProtocolError::Overloaded, pass)?;
                Ok(Next::Close)
            }
            (Event::Overdue(reason), State::Reading) => {
                pass.counters.count_closed(reason, 1);
                self.refuse(None, &ProtocolError::Timeout, pass)
            }
            (Event::Overdue(reason), State::New | State::Idle) => Ok(self.close(reason, pass)),
            (Event::Overdue(_), State::Lingering { .. }) => Ok(Next::Close),
            _ => unreachable!("no such event comes in this state"),
        }
    }

    /// Closes the connection; counts and logs the reason.
    fn close(&self, reason: Closing, pass: &Pass<'_>) -> Next {
        pass.counters.count_closed(reason, 1);
        log::debug!("closed {}: {}", access_log::client(self.peer, None), reason.label());
        Next::Close
    }

    fn receive_requests(&mut self, pass: &mut Pass<'_>) -> io::Result<Next> {
        self.received = pass.now;
        let length = self.parser.missing().clamp(RECEIVE_BYTES, pass.scratch.len());
        match receive(&self.socket, &mut pass.scratch[..length])? {
            Some([]) if self.parser.is_idle() => return Ok(Next::Close),
            Some([]) => return self.refuse(None, &ProtocolError::UnexpectedEof, pass),
            Some(received) => self.parser.append(received),
            None => {}
        }
        self.answer_requests(pass)
    }

    /// Answers the requests in the buffer, up to [`ANSWERS_IN_A_ROW`].
    fn answer_requests(&mut self, pass: &mut Pass<'_>) -> io::Result<Next> {
        for _ in 0..ANSWERS_IN_A_ROW {
            if !self.output.has_room() || self.parser.is_idle() {
                break;
            }
            let content_max = pass.shared.limits.content_max;
            let checks_host = self.checks_host;
            // nothing is kept of a content that the head has refused, however much has arrived
            let head = match self.parser.next_head(content_max) {
                Ok(head) => head,
                Err(error) => return self.refuse(None, &error, pass),
            };
            let admit = |head| pass.shared.service.admit(head, checks_host).err();
            if let Some(refusal) = head.and_then(admit) {
                return self.refuse_with(None, refusal, pass);
            }
            let request = match self.parser.next_request(content_max) {
                Ok(Some(request)) => request,
                Ok(None) => {
                    if self.quota.is_refused(self.parser.memory()) {
                        return self.refuse(None, &ProtocolError::Overloaded, pass);
                    }
                    if self.parser.take_expectation() {
                        self.output.push_continue();
                    }
                    return self.send(After::Receive, pass);
                }
                Err(error) => return self.refuse(None, &error, pass),
            };
            // what follows is another request, with a time of its own
            (self.state, self.since) = (State::Idle, pass.now);
            if self.quota.is_refused(request.memory() + self.output.memory()) {
                return self.refuse(Some(&request), &ProtocolError::Overloaded, pass);
            }
            let (service, inbox) = (&pass.shared.service, pass.inbox);
            let arrival = Arrival {
                checks_host: self.checks_host,
                may_defer: true,
                make_reply: &|| inbox.make_reply(pass.id),
            };
            // after a panic the list is consistent: a change is made as a whole or not at all
            let answer = catch_unwind(AssertUnwindSafe(|| service.respond(&request, arrival)));
            match answer {
                Ok(Answer::Now(response)) => {
                    pass.answered += 1;
                    let after = self.append_answer(&request, response, pass);
                    if after != After::Answer {
                        return self.send(after, pass);
                    }
                }
                Ok(Answer::Saving) => return self.wait_for_answer(Arc::new(request)),
                Ok(Answer::Deferred) => {
                    let request = Arc::new(request);
                    inbox.defer(pass.id, Arc::clone(&request), self.checks_host);
                    return self.wait_for_answer(request);
                }
                Err(_) => return self.refuse(Some(&request), &ProtocolError::Panicked, pass),
            }
        }
        self.send(After::Answer, pass)
    }

    /// Sends what the socket has room for, and waits for the response to a request.
    fn wait_for_answer(&mut self, request: Arc<Request>) -> io::Result<Next> {
        self.state = State::Answering(request);
        self.output.send(&self.socket)?;
        // epoll watches for the same as before: epoll_ctl takes time, and few clients send more
        Ok(Next::Wait(EventFlags::IN))
    }

    /// Goes on with the response to a request that was waited for.
    fn take_response(
        &mut self,
        request: &Request,
        response: Result<Box<Response>, ProtocolError>,
        pass: &mut Pass<'_>,
    ) -> io::Result<Next> {
        // the time until the next request begins now
        (self.state, self.since) = (State::Idle, pass.now);
        match response {
            Ok(response) => {
                let after = self.append_answer(request, *response, pass);
                self.send(after, pass)
            }
            Err(error) => self.refuse(Some(request), &error, pass),
        }
    }

    /// Appends the response to a request to the output. Returns what follows.
    fn append_answer(&mut self, request: &Request, response: Response, pass: &Pass<'_>) -> After {
        let after = match pass.phase {
            _ if !request.keep_alive => After::Close,
            // the client does not know, and may be sending its next request
            Phase::Full | Phase::Stopping => After::Linger,
            Phase::Serving => After::Answer,
        };
        let stays_open = pass.shared.stays_open.as_str();
        let connection = if after == After::Answer { stays_open } else { CLOSES };
        self.append(Some(request), response, connection, pass);
        after
    }

    /// Responds with an error to a request that cannot be served, or, without one, to what cannot
    /// be read as one. Nothing that follows is read as a request.
    fn refuse(
        &mut self,
        request: Option<&Request>,
        error: &ProtocolError,
        pass: &mut Pass<'_>,
    ) -> io::Result<Next> {
        if *error == ProtocolError::Overloaded {
            pass.counters.count_closed(Closing::NoRoom, 1);
        }
        let response = Response::error(error.status(), error.to_string());
        self.refuse_with(request, response, pass)
    }

    /// The same with this response.
    fn refuse_with(
        &mut self,
        request: Option<&Request>,
        response: Response,
        pass: &mut Pass<'_>,
    ) -> io::Result<Next> {
        let unfinished = self.parser.refuse();
        self.append(request.or(unfinished.as_ref()), response, CLOSES, pass);
        self.send(After::Linger, pass)
    }

    /// Appends a response to the output, counts it, and logs it.
    fn append(
        &mut self,
        request: Option<&Request>,
        mut response: Response,
        connection: &str,
        pass: &Pass<'_>,
    ) {
        let service = &pass.shared.service;
        let is_head = request.is_some_and(|request| request.method == Method::Head);
        let common = service.common_fields(request, pass.date, connection);
        let bytes = self.output.push(&mut response, is_head, &common);
        pass.counters.count_response(request.map(|request| &request.method), response.status);
        access_log::log(service, self.peer, self.received, request, &response, bytes);
    }

    /// Sends what the socket has room for, and goes on when that is all of the output.
    fn send(&mut self, after: After, pass: &Pass<'_>) -> io::Result<Next> {
        let sent = self.output.send(&self.socket)?;
        if sent == Sent::All {
            return self.go_on(after, pass.now);
        }
        if sent != Sent::Nothing || !matches!(self.state, State::Writing(_)) {
            self.since = pass.now;
        }
        self.state = State::Writing(after);
        Ok(if sent == Sent::Turn { Next::Queue } else { Next::Wait(EventFlags::OUT) })
    }

    /// Goes on after the output is sent.
    fn go_on(&mut self, after: After, now: Instant) -> io::Result<Next> {
        if matches!(after, After::Answer | After::Receive) {
            match (&self.state, self.parser.is_idle()) {
                // more bytes of a request do not give it more time
                (State::New | State::Idle, true) | (State::Reading, false) => {}
                (_, true) => (self.state, self.since) = (State::Idle, now),
                (_, false) => (self.state, self.since) = (State::Reading, now),
            }
            let may_answer = after == After::Answer && !self.parser.is_idle();
            return Ok(if may_answer { Next::Queue } else { Next::Wait(EventFlags::IN) });
        }
        let is_done = after == After::Close && self.parser.is_idle();
        if is_done
            && receive(&self.socket, &mut [0; 1024])?.is_none_or(|received| received.is_empty())
        {
            return Ok(Next::Close);
        }
        rustix::net::shutdown(&self.socket, Shutdown::Write)?;
        self.parser = Parser::default();
        (self.state, self.since) = (State::Lingering { left: LINGER_BYTES_MAX }, now);
        Ok(Next::Wait(EventFlags::IN))
    }

    fn drop_received(&mut self, left: usize, scratch: &mut [u8]) -> io::Result<Next> {
        let dropped = receive(&self.socket, scratch)?.map(|received| received.len());
        let left = left.saturating_sub(dropped.unwrap_or(0));
        self.state = State::Lingering { left };
        Ok(match dropped {
            Some(0) => Next::Close,
            _ if left == 0 => Next::Wait(EventFlags::empty()),
            _ => Next::Wait(EventFlags::IN),
        })
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
