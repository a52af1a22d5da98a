//! One connection's life on a worker: receive, hand to tiny_http, answer, and say what to wait for next. Never waits long for a client.
//!
//! Most workers attend to many connections by turns ([`crate::circle`]), so that one wake-up of a thread does for several requests. A
//! change that has to be saved is left to a worker that has nothing else to do and may wait for the disk.

use std::io;
use std::mem::replace;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::net::{RecvFlags, Shutdown};

use crate::context::Context;
use crate::date;
use crate::framing::{Intake, Step};
use crate::head::Call;
use crate::inlet::{self, Inlet};
use crate::logging;
use crate::message::{Content, Method, Request, Response};
use crate::refusal::Refusal;
use crate::respond::{respond, respond_or_500};
use crate::seats::Seat;
use crate::unsent::Unsent;
use crate::wait::{Wait, Waits};

/// Bytes asked of the socket at a time: a request of curl is a tenth of it, the largest request thirty times.
const RECEIVE_BYTES: usize = 4096;

/// Requests of one connection answered in a row, before the others of its circle have their turn.
const ANSWERS_IN_A_ROW: usize = 16;

/// Bytes of requests that wait for workers of their own; beyond them only short ones may join.
const QUEUED_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Bytes that a short request takes at most: all connections may have one.
const SHORT_CALL_BYTES: usize = 4096;

/// Bytes that are read and thrown away behind the last request, so that the client gets to read the last response (RFC 9112 §9.6).
const DRAIN_BYTES_MAX: usize = 1024 * 1024;

/// How long what comes behind the last request is read and thrown away.
pub(crate) const DRAIN_TIME: Duration = Duration::from_secs(1);

/// What a worker may wait for while it attends to a connection.
#[derive(Clone, Copy)]
pub(crate) struct Manner<'a> {
    /// For the client's next bytes, a moment; asked before each wait.
    pub(crate) may_wait: &'a dyn Fn() -> bool,
    /// For the disk.
    pub(crate) may_save: bool,
}

/// How far a connection is from its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Requests are answered.
    Open,
    /// The response under way is the last one, as the client knows.
    Closing,
    /// The response under way refuses what the client may still be sending.
    Refusing,
    /// Nothing more is sent, and so many bytes at most are still read to be thrown away.
    Draining(usize),
}

/// How a turn has gone so far.
struct Course {
    /// Whether the worker may wait for the client: one that keeps sending a little is heard when it has sent something.
    is_patient: bool,
    /// Whether anything was received.
    has_received: bool,
    /// Requests answered without waiting for the client.
    answers: usize,
}

/// A client's connection.
pub(crate) struct Connection {
    /// The socket, by way of tiny_http.
    inlet: Inlet,
    /// Received bytes that no request was made of yet.
    intake: Intake,
    /// The request that a worker of its own has to answer next.
    call: Option<Call>,
    /// The response that the client has not taken all of yet.
    unsent: Option<Unsent>,
    /// How far it is from its end.
    stage: Stage,
    /// What it waits for, and since when.
    waits: Waits,
    /// Bytes sent and not taken by the client, when it was last looked at, since it waits for room.
    undelivered: usize,
    /// Whether it came in on a listener whose own address is a loopback one.
    is_on_loopback: bool,
    /// Counts the connection; below the socket, so that it is counted until that is closed.
    _seat: Seat,
}

impl Connection {
    /// A connection that has just been accepted.
    pub(crate) fn new(inlet: Inlet, is_on_loopback: bool, seat: Seat) -> Self {
        let waits = Waits::new(Instant::now());
        Self {
            inlet,
            intake: Intake::default(),
            call: None,
            unsent: None,
            stage: Stage::Open,
            waits,
            undelivered: 0,
            is_on_loopback,
            _seat: seat,
        }
    }

    /// What the connection waits for, and since when.
    pub(crate) fn waits(&self) -> &Waits {
        &self.waits
    }

    /// Bytes of received requests, and of a long response of its own, that it keeps while it waits.
    pub(crate) fn held(&self) -> usize {
        self.intake.held() + self.call.as_ref().map_or(0, Call::held) + self.unsent.as_ref().map_or(0, Unsent::held)
    }

    /// Gives back the memory that it does not need while it waits.
    pub(crate) fn shrink(&mut self) {
        self.intake.shrink();
    }

    /// The kept representation that its response under way is sent from, by address, and the bytes of that.
    pub(crate) fn pinned(&self) -> Option<(usize, usize)> {
        self.unsent.as_ref()?.pinned()
    }

    /// Whether the client has taken all that was sent.
    pub(crate) fn is_delivered(&self) -> bool {
        self.inlet.undelivered() == 0
    }

    /// Whether a client that was slow to take a response has taken some of it after all; if so, it is given as much time again.
    pub(crate) fn has_taken_some(&mut self, now: Instant) -> bool {
        let before = replace(&mut self.undelivered, self.inlet.undelivered());
        let has_taken_some = self.undelivered < before;
        if has_taken_some {
            self.waits.renew(now);
        }
        has_taken_some
    }

    /// Does all there is to do at the moment; says what it waits for then. `now` spares a look at the clock, if one has just been taken.
    ///
    /// # Errors
    /// When the connection is over, be it as agreed, because the client has gone, or because of a panic.
    pub(crate) fn turn(&mut self, context: &Context, manner: Manner<'_>, now: Option<Instant>) -> io::Result<Wait> {
        let wait = catch_unwind(AssertUnwindSafe(|| self.work(context, manner))).unwrap_or_else(|_| Err(io::Error::other("a panic")))?;
        self.waits.go_on(wait, now.unwrap_or_else(Instant::now));
        if wait == Wait::Room {
            self.undelivered = self.inlet.undelivered();
        }
        Ok(wait)
    }

    /// Answers requests until there is something to wait for; see [`Connection::turn`].
    fn work(&mut self, context: &Context, manner: Manner<'_>) -> io::Result<Wait> {
        let mut course = Course { is_patient: matches!(self.waits.what, Wait::First | Wait::Request), has_received: false, answers: 0 };
        loop {
            if !self.send_rest()? {
                return Ok(Wait::Room);
            }
            match self.stage {
                Stage::Open => {}
                Stage::Closing => {
                    self.close()?;
                    continue;
                }
                Stage::Refusing => {
                    self.drain()?;
                    continue;
                }
                Stage::Draining(left) => return self.throw_away(left),
            }
            if course.answers >= ANSWERS_IN_A_ROW && !self.intake.is_idle() {
                return Ok(Wait::Turn);
            }
            let step = self.call.take().map_or_else(|| self.intake.step(context.limits.content_max), |call| Ok(Step::Whole(call)));
            match step {
                Ok(Step::Whole(call)) if !manner.may_save && context.service.store.is_durable() && !call.is_safe() => {
                    self.call = Some(call);
                    self.shrink();
                    if self.held() <= SHORT_CALL_BYTES || context.signs.queued_bytes.load(Relaxed) <= QUEUED_BYTES_MAX {
                        return Ok(Wait::Saver);
                    }
                    self.refuse(&Refusal::NoRoom, context);
                }
                Ok(Step::Whole(call)) => {
                    self.answer(call, context)?;
                    // what follows is another request, with a time of its own
                    self.waits.what = Wait::Request;
                    course.is_patient = true;
                    course.answers += 1;
                }
                Ok(Step::Continue) => self.unsent = Some(Unsent::new(b"HTTP/1.1 100 Continue\r\n\r\n".to_vec(), Content::None)),
                Ok(Step::More) => {
                    if let Some(wait) = self.receive_more(&mut course, context, manner)? {
                        return Ok(wait);
                    }
                }
                Err(refusal) => self.refuse(&refusal, context),
            }
        }
    }

    /// Receives some more of a request, or the beginning of one; gives what the connection has to wait for if that is not there yet.
    fn receive_more(&mut self, course: &mut Course, context: &Context, manner: Manner<'_>) -> io::Result<Option<Wait>> {
        let wait = if self.intake.is_idle() { Wait::Request } else { Wait::Rest };
        // whoever looks for those that are late overlooks one that has just sent something, which may be so each time
        if wait == Wait::Rest && self.is_late(context) {
            self.refuse(&Refusal::Timeout, context);
            return Ok(None);
        }
        let may_stay = course.is_patient && !(wait == Wait::Request && context.is_stopping()) && (manner.may_wait)();
        if course.has_received && !may_stay {
            return Ok(Some(wait));
        }
        match self.receive(may_stay) {
            Ok(true) => course.is_patient &= wait == Wait::Request,
            Ok(false) => return Ok(Some(wait)),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && wait == Wait::Rest => self.refuse(&Refusal::CutOff, context),
            Err(error) => return Err(error),
        }
        course.has_received = true;
        if may_stay {
            // nobody else had to wait meanwhile
            course.answers = 0;
        }
        Ok(None)
    }

    /// Whether the request under way should be whole by now.
    fn is_late(&self, context: &Context) -> bool {
        self.waits.what == Wait::Rest && self.waits.since.elapsed() >= context.limits.request_timeout
    }

    /// Receives what there is; waits for it up to the socket's time-out if told to `stay`. Says whether anything came.
    fn receive(&mut self, stay: bool) -> io::Result<bool> {
        let flags = if stay { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
        match rustix::net::recv(&self.inlet, spare_capacity(self.intake.room(RECEIVE_BYTES)), flags) {
            Ok((_, 0)) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => Ok(true),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Answers one request.
    fn answer(&mut self, call: Call, context: &Context) -> io::Result<()> {
        let begun = context.access_log.then(Instant::now);
        let Call { head, fields, content, keep_alive, says_keep_alive } = call;
        let request = self.inlet.request(head).ok_or(io::ErrorKind::InvalidData)?;
        let method = inlet::method(&request);
        let response = {
            let asked = Request { method, target: request.url(), fields: &fields, content: &content, is_on_loopback: self.is_on_loopback };
            respond_or_500(|| respond(&context.service, &asked))
        };
        let is_last = !keep_alive || context.is_stopping() || context.is_crowded();
        self.stage = if is_last { Stage::Closing } else { Stage::Open };
        let connection = match (is_last, says_keep_alive) {
            (true, _) => Some("close"),
            (false, true) => Some("keep-alive"),
            (false, false) => None,
        };
        let mut head = Vec::with_capacity(512); // bytes; head and content of one color take 300
        date::now(|date| response.spell_head(&mut head, date, connection));
        if let Some(remark) = response.remark {
            logging::client_warning(format_args!("{remark}"));
        }
        // RFC 9110 §9.3.2: a response to HEAD MUST NOT have content
        let unsent = Unsent::new(head, if method == Method::Head { Content::None } else { response.content });
        if let Some(begun) = begun {
            let what = format_args!("{} {}", request.method(), logging::excerpt(request.url()));
            logging::access(request.remote_addr().copied(), &what, response.status, unsent.len(), begun);
        }
        // tiny_http's way to the socket waits for a client that takes nothing; without this it would answer 500 by that way
        drop(request.into_writer());
        self.unsent = Some(unsent);
        Ok(())
    }

    /// Has the response be one that says why a request cannot be answered, and no byte of the connection be read as a request any more.
    fn refuse(&mut self, refusal: &Refusal, context: &Context) {
        let begun = Instant::now();
        let response = Response::error(refusal.status(), refusal.to_string());
        let mut head = Vec::with_capacity(512); // bytes; the longest refusal takes 400
        date::now(|date| response.spell_head(&mut head, date, Some("close")));
        // RFC 9110 §9.3.2: a response to HEAD MUST NOT have content
        let is_head = self.call.as_ref().map_or_else(|| self.intake.asks_for_head_alone(), Call::is_head);
        let unsent = Unsent::new(head, if is_head { Content::None } else { response.content });
        if context.access_log {
            let client = rustix::net::getpeername(&self.inlet).ok().flatten().and_then(|address| SocketAddr::try_from(address).ok());
            logging::access(client, &"-", response.status, unsent.len(), begun);
        }
        (self.intake, self.call) = (Intake::default(), None);
        (self.unsent, self.stage) = (Some(unsent), Stage::Refusing);
    }

    /// Ends a connection that waits; a client in the middle of a request is told why, if it takes that at once, and given back to be drained.
    pub(crate) fn end(mut self, why: &Refusal, context: &Context) -> Option<Self> {
        if self.waits.what != Wait::Rest {
            return None;
        }
        self.refuse(why, context);
        if !self.send_rest().ok()? {
            return None;
        }
        self.drain().ok()?;
        self.waits.go_on(Wait::Drain, Instant::now());
        Some(self)
    }

    /// Ends a connection with its last response.
    ///
    /// # Errors
    /// When nothing has come in behind the request: the connection may be closed at once. Else it has to be drained.
    fn close(&mut self) -> io::Result<()> {
        if self.intake.is_idle() && !self.receive(false)? {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        self.drain()
    }

    /// Has nothing more be sent, and what still comes in be thrown away.
    fn drain(&mut self) -> io::Result<()> {
        self.intake = Intake::default();
        self.stage = Stage::Draining(DRAIN_BYTES_MAX);
        rustix::net::shutdown(&self.inlet, Shutdown::Write).map_err(io::Error::from)
    }

    /// Sends what is left of the response; says whether all of it is gone.
    fn send_rest(&mut self) -> io::Result<bool> {
        let Some(unsent) = &mut self.unsent else { return Ok(true) };
        let is_sent = unsent.send(&self.inlet)?;
        if is_sent {
            self.unsent = None;
        }
        Ok(is_sent)
    }

    /// Reads over what follows the last request, so that the kernel does not answer it with a reset that overtakes the last response.
    fn throw_away(&mut self, left: usize) -> io::Result<Wait> {
        let mut left = match (self.waits.what, self.waits.since) {
            // the client has ended its side, or there would be nothing to wake up for: what it has sent fits into the socket's buffer
            (Wait::Delivery, _) => usize::MAX,
            (Wait::Drain, since) if since.elapsed() >= DRAIN_TIME => 0,
            _ => left,
        };
        let mut bytes = [0; 16 * 1024];
        while left > 0 {
            match rustix::net::recv(&self.inlet, &mut bytes[..], RecvFlags::DONTWAIT) {
                Ok((_, 0)) => return Err(io::ErrorKind::ConnectionAborted.into()),
                Ok((_, received)) => left = left.saturating_sub(received),
                Err(rustix::io::Errno::AGAIN) if self.waits.what == Wait::Delivery => return Ok(Wait::Delivery),
                Err(rustix::io::Errno::AGAIN) => {
                    self.stage = Stage::Draining(left);
                    return Ok(Wait::Drain);
                }
                Err(error) => return Err(error.into()),
            }
        }
        // closed with something unread, the connection would be reset, and the client lose what it has not taken
        self.stage = Stage::Draining(0);
        if self.is_delivered() { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(Wait::Delivery) }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inlet.as_fd()
    }
}
