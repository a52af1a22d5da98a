//! `State::AwaitingAnswer` and `State::Watching`: answers that come later. They come from the
//! writer, from the pool, or when what the request names has changed or the time for that is over
//! (RFC 7240 §4.3).

use std::io;
use std::mem::replace;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;

use super::{Connection, Next, RECEIVE_BYTES, State, Transition};
use crate::http::{ReceivedRequest, Response};
use crate::server::Phase;
use crate::server::loop_context::{LoopContext, catch_panic};
use crate::server::output::Sent;
use crate::service::{Decision, RequestContext, Subject, Thread, Watch};
use crate::store::{Outcome, StorageError};

/// A request that has no answer yet.
pub(super) struct Pending {
    pub(super) request: Arc<ReceivedRequest>,
    /// When the request came. A wait for a change counts from here.
    pub(super) since: Instant,
    /// `None` unless the request has waited for a change. In a box, since few requests wait, and
    /// the state of a connection is moved at each event.
    wait: Option<Box<Watch>>,
    /// Bytes of memory that the request counts for until it is answered.
    pub(super) counted_bytes: usize,
    /// Its change went to the writer, so its time counts in `WorkerCounters::durable`.
    by_writer: bool,
}

impl Pending {
    pub(super) fn new(mut request: ReceivedRequest, now: Instant, counted_bytes: usize) -> Self {
        // Many requests may wait for long, and no limit counts the memory of their heads.
        if request.request().fields.prefer_wait.is_some() {
            request.head.drop_fields();
        }
        let request = Arc::new(request);
        Self { request, since: now, wait: None, counted_bytes, by_writer: false }
    }

    /// How long the request prefers to wait for a change.
    fn wait_time(&self) -> Duration {
        Duration::from_secs(self.request.request().fields.prefer_wait.unwrap_or(0).into())
    }

    /// When a wait for a change ends.
    pub(super) fn wait_end(&self) -> Instant {
        self.since + self.wait_time()
    }
}

impl Connection {
    /// Goes on with the request whose answer another thread has made.
    pub(in crate::server) fn handle_decision(
        &mut self,
        decision: Decision,
        context: &mut LoopContext<'_>,
    ) -> Next {
        let Some(pending) = self.take_pending() else { return Next::Close };
        let transition = self.carry_out(pending, decision, context);
        self.enter_state(transition, context)
    }

    /// Goes on with the request on whose change the writer has decided.
    pub(in crate::server) fn handle_outcome(
        &mut self,
        outcome: Result<Outcome, StorageError>,
        context: &mut LoopContext<'_>,
    ) -> Next {
        let Some(pending) = self.take_pending() else { return Next::Close };
        let transition = self.act_on_outcome(pending, outcome, context);
        self.enter_state(transition, context)
    }

    /// The request that awaits an answer. `None` should not happen: only the answer ends
    /// [`State::AwaitingAnswer`].
    fn take_pending(&mut self) -> Option<Pending> {
        match replace(&mut self.state, State::Closed) {
            State::AwaitingAnswer(pending) => Some(pending),
            _ => None,
        }
    }

    /// Does what the service has decided for a request that was not answered at once.
    pub(super) fn carry_out(
        &mut self,
        pending: Pending,
        decision: Decision,
        context: &mut LoopContext<'_>,
    ) -> io::Result<Transition> {
        match decision {
            Decision::Respond(response) | Decision::Refuse(response) => {
                return self.respond_late(pending, response, context);
            }
            Decision::WaitForChange { subject, seen, current } => {
                return self.begin_watch(pending, subject, seen, current, context);
            }
            Decision::AnswerOnPool => {
                self.output.flush(&self.socket)?;
                let request = Arc::clone(&pending.request);
                let request_context = RequestContext {
                    listener: self.listener,
                    thread: Thread::Pool { queued_at: Instant::now() },
                };
                context.answer_on_pool(move |service| {
                    service.decide(&request.request(), request_context)
                });
            }
            Decision::Save(change) => {
                // Before the change is submitted, send the responses to earlier requests. If the
                // client has gone, this fails, and the change is not made.
                self.output.flush(&self.socket)?;
                context.changes.push((context.id, change));
            }
        }
        Ok(Self::await_answer(pending))
    }

    /// Goes on with the outcome of the request's change.
    fn act_on_outcome(
        &mut self,
        mut pending: Pending,
        outcome: Result<Outcome, StorageError>,
        context: &mut LoopContext<'_>,
    ) -> io::Result<Transition> {
        pending.by_writer = true;
        if matches!(outcome, Ok(Outcome::ReplacedAll { .. })) {
            // The JSON of the new list may have to be made, which takes long.
            context
                .answer_on_pool(|service| Decision::Respond(service.respond_to_outcome(outcome)));
            return Ok(Self::await_answer(pending));
        }
        let service = context.shared.service();
        let decision = catch_panic(|| Decision::Respond(service.respond_to_outcome(outcome)));
        self.carry_out(pending, decision, context)
    }

    /// Waits for an answer of another thread.
    fn await_answer(pending: Pending) -> Transition {
        // Epoll goes on watching for IN: few clients send more before they have the answer, and to
        // stop watching costs a system call. If a client does send more, `Event::Socket` stops it.
        Transition(State::AwaitingAnswer(pending), Next::Epoll(EventFlags::IN))
    }

    /// Appends the response to a request whose answer came later, sends it, and notes how long it
    /// took.
    fn respond_late(
        &mut self,
        mut pending: Pending,
        response: Response,
        context: &mut LoopContext<'_>,
    ) -> io::Result<Transition> {
        let request = &pending.request;
        let response = match (pending.wait.take(), request.request().fields.prefer_wait) {
            (Some(_), Some(seconds)) => note_wait(response, seconds, context.now - pending.since),
            _ => response,
        };
        let then = self.append_response(request, response, context);
        let transition = self.begin_sending(then, context.now, context);
        let counters = context.counters();
        let durations = if pending.by_writer { &counters.durable } else { &counters.immediate };
        durations.observe(self.received_at.elapsed());
        transition
    }

    /// Has a request wait until what it names changes. Responds with 304 instead if the request
    /// prefers no wait, the client has sent more, earlier responses are unsent, or in a stop.
    fn begin_watch(
        &mut self,
        mut pending: Pending,
        subject: Subject,
        seen: u64,
        current: Response,
        context: &mut LoopContext<'_>,
    ) -> io::Result<Transition> {
        let holds = !pending.wait_time().is_zero()
            && self.parser.is_idle()
            && context.phase != Phase::Stopping;
        if !holds || self.output.flush(&self.socket)? != Sent::All {
            return self.respond_late(pending, current.into_not_modified(), context);
        }
        if pending.wait.is_none() {
            let watch = context.watches().add(subject, context.id, seen);
            pending.wait = Some(Box::new(watch));
        }
        // A change may have come before the watch was added, or while the pool made an answer, so
        // ask again (`Event::Turn`).
        Ok(Transition(State::Watching(pending), Next::Queue))
    }

    /// Asks the service again, and goes on waiting if the answer is still 304.
    pub(super) fn ask_again(
        &mut self,
        pending: Pending,
        context: &mut LoopContext<'_>,
    ) -> io::Result<Transition> {
        match self.decide_again(&pending, context) {
            Decision::WaitForChange { .. } => {
                Ok(Transition(State::Watching(pending), Next::Epoll(EventFlags::IN)))
            }
            decision => {
                self.received_at = context.now;
                self.carry_out(pending, decision, context)
            }
        }
    }

    /// Asks the service again. A change and a change back end a wait, too, unless all that is known
    /// of what others have changed is where it has led.
    fn decide_again(&self, pending: &Pending, context: &LoopContext<'_>) -> Decision {
        // Before the service looks: a later change marks the connection once more.
        let number = context.shared.service().store.list.number();
        let is_changed = pending.wait.as_ref().is_some_and(|watch| watch.is_changed(number));
        match context.decide(&pending.request.request(), self.listener) {
            Decision::WaitForChange { current, .. } if is_changed => Decision::Respond(current),
            decision => decision,
        }
    }

    /// Ends a wait, with 304 if nothing has changed. This asks the service, since a change may have
    /// come for which the connection has not had its turn yet.
    pub(super) fn end_watch(
        &mut self,
        pending: Pending,
        context: &mut LoopContext<'_>,
    ) -> io::Result<Transition> {
        self.received_at = context.now;
        let decision = match self.decide_again(&pending, context) {
            Decision::WaitForChange { current, .. } => {
                Decision::Respond(current.into_not_modified())
            }
            decision => decision,
        };
        self.carry_out(pending, decision, context)
    }

    /// Ends a wait if the client has sent another request, or has closed its half of the
    /// connection. Then it may still read; if it has gone, nobody reads the 304.
    pub(super) fn receive_while_watching(
        &mut self,
        pending: Pending,
        context: &mut LoopContext<'_>,
    ) -> io::Result<Transition> {
        match context.receive(&self.socket, RECEIVE_BYTES)? {
            Some(received) => {
                self.parser.append(received);
                self.end_watch(pending, context)
            }
            // Nothing has arrived after all.
            None => self.ask_again(pending, context),
        }
    }
}

/// Notes in a response how long its request has waited for a change, and `wait` as applied.
fn note_wait(response: Response, seconds: u16, waited: Duration) -> Response {
    let space = if response.log_detail.is_empty() { "" } else { ", " };
    let log_detail =
        format!("{}{space}waited {:.3} s", response.log_detail, waited.as_secs_f32()).into();
    Response { log_detail, applied_wait: Some(seconds), ..response }
}
