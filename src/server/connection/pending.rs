//! Answers that come later: from the writer, from the pool, or when what a request names has
//! changed (RFC 7240 §4.3).

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;

use super::sending::panicked;
use super::{Connection, LoopContext, Next, RECEIVE_BYTES, State, Transition, receive};
use crate::http::{Request, Response};
use crate::server::output::Sent;
use crate::server::watches::Watch;
use crate::server_state::Phase;
use crate::service::{Answer, NotModified, RequestContext, Service};
use crate::store::{DatabaseError, Outcome};

/// A request that waits for a change.
pub(super) struct Waiting {
    pub(super) request: Arc<Request>,
    pub(super) wait: Wait,
    /// The response when nothing changes.
    not_modified: Response,
    watch: Watch,
}

/// Since when a request waits for a change, and for how many seconds.
#[derive(Clone, Copy)]
pub(super) struct Wait {
    pub(super) begun: Instant,
    seconds: u16,
}

impl Wait {
    pub(super) fn end(&self) -> Instant {
        self.begun + Duration::from_secs(self.seconds.into())
    }

    /// The response that ends the wait.
    fn end_with(&self, response: Response, now: Instant) -> Response {
        let waited = (now - self.begun).as_secs_f32();
        let space = if response.log_detail.is_empty() { "" } else { ", " };
        let log_detail = format!("{}{space}waited {waited:.3} s", response.log_detail).into();
        Response { log_detail, ..response.with_wait(self.seconds) }
    }
}

/// How the duration of a request is measured.
#[derive(Clone, Copy)]
pub(super) enum Timing {
    /// From the start to the end of the pass that receives and answers it.
    Pass,
    /// From its last byte to the answer, which takes long.
    Long,
    /// The same, for a change that the writer had.
    Durable,
    /// From the start to the end of the pass that ends its wait for a change. The wait itself is
    /// not the service's own time.
    Waited(Wait),
}

impl Connection {
    /// Goes on with what the service, the pool or the writer has answered to a request.
    pub(super) fn handle_answer(
        &mut self,
        request: Arc<Request>,
        answer: Answer,
        timing: Timing,
        context: &mut LoopContext<'_>,
    ) -> io::Result<Transition> {
        match answer {
            Answer::Now(response) | Answer::Refused(response) => {
                let response = match timing {
                    Timing::Waited(wait) => wait.end_with(response, context.now),
                    _ => response,
                };
                let transition = self.finish(&request, response, context);
                match timing {
                    Timing::Pass | Timing::Waited(_) => context.answered += 1,
                    Timing::Long => {
                        context.counters().immediate.observe(self.received_at.elapsed())
                    }
                    Timing::Durable => {
                        context.counters().durable.observe(self.received_at.elapsed())
                    }
                }
                return transition;
            }
            Answer::MayWait(current) => {
                return self.begin_wait(request, *current, timing, context);
            }
            Answer::Saving => {}
            Answer::Deferred => {
                let request_context =
                    RequestContext { may_take_long: true, ..self.request_context(context) };
                let asked = Arc::clone(&request);
                let ask = move |service: &Service| service.respond(&asked, request_context);
                context.inbox.defer(context.id, ask);
            }
        }
        let timing = if matches!(timing, Timing::Pass) { Timing::Long } else { timing };
        self.output.send(&self.socket)?;
        // Epoll goes on to watch for IN: few clients send more before their answer, and to stop
        // watching costs a system call. If a client does send more, `Ready` stops it.
        Ok(Transition(State::AwaitingAnswer { request, timing }, Next::Wait(EventFlags::IN)))
    }

    /// Responds with what came of a change that the writer had.
    pub(super) fn handle_outcome(
        &mut self,
        request: Arc<Request>,
        outcome: Result<Outcome, DatabaseError>,
        context: &mut LoopContext<'_>,
    ) -> io::Result<Transition> {
        let timing = Timing::Durable;
        // The JSON of a new list has to be made, which takes long.
        if matches!(outcome, Ok(Outcome::Replaced(..))) {
            let respond = move |service: &Service| Answer::Now(service.respond_to_outcome(outcome));
            context.inbox.defer(context.id, respond);
            let state = State::AwaitingAnswer { request, timing };
            return Ok(Transition(state, Next::Wait(EventFlags::IN)));
        }
        let respond = || context.shared().service.respond_to_outcome(outcome);
        let response = catch_unwind(AssertUnwindSafe(respond)).unwrap_or_else(|_| panicked());
        self.handle_answer(request, Answer::Now(response), timing, context)
    }

    /// Has a request wait until what it names changes, unless the client has sent more, or has not
    /// received what came before.
    pub(super) fn begin_wait(
        &mut self,
        request: Arc<Request>,
        current: NotModified,
        timing: Timing,
        context: &mut LoopContext<'_>,
    ) -> io::Result<Transition> {
        let NotModified { subject, seconds, response: not_modified } = current;
        let may_wait = seconds > 0 && self.parser.is_idle() && context.phase == Phase::Serving;
        if !may_wait || self.output.send(&self.socket)? != Sent::All {
            return self.handle_answer(request, Answer::Now(not_modified), timing, context);
        }
        let wait = match timing {
            Timing::Waited(wait) => wait,
            _ => Wait { begun: context.now, seconds },
        };
        let watch = context.inbox.watches.add(&subject, context.id);
        // A change may have come between the first look and the watch.
        self.ask_again(Box::new(Waiting { request, wait, not_modified, watch }), context)
    }

    /// Asks again for what may have changed, and goes on waiting if it has not.
    pub(super) fn ask_again(
        &mut self,
        waiting: Box<Waiting>,
        context: &mut LoopContext<'_>,
    ) -> io::Result<Transition> {
        match self.ask_service(&waiting.request, context) {
            Answer::MayWait(_) => Ok(go_on_waiting(waiting)),
            answer => self.end_wait(*waiting, Some(answer), context),
        }
    }

    /// Ends a wait with this answer, or without one because nothing has changed.
    pub(super) fn end_wait(
        &mut self,
        waiting: Waiting,
        answer: Option<Answer>,
        context: &mut LoopContext<'_>,
    ) -> io::Result<Transition> {
        let Waiting { request, wait, not_modified, watch } = waiting;
        drop(watch);
        let answer = answer.unwrap_or(Answer::Now(not_modified));
        self.handle_answer(request, answer, Timing::Waited(wait), context)
    }

    /// Ends a wait when the client sends another request, or has gone.
    pub(super) fn receive_while_waiting(
        &mut self,
        waiting: Box<Waiting>,
        context: &mut LoopContext<'_>,
    ) -> io::Result<Transition> {
        match receive(&self.socket, &mut context.scratch[..RECEIVE_BYTES])? {
            Some([]) => return Ok(Transition::close()),
            Some(received) => self.parser.append(received),
            None => return Ok(go_on_waiting(waiting)),
        }
        let transition = self.end_wait(*waiting, None, context);
        // Only now, since the 304 is timed by when its own request was received.
        self.received_at = context.now;
        transition
    }
}

fn go_on_waiting(waiting: Box<Waiting>) -> Transition {
    Transition(State::Waiting(waiting), Next::Wait(EventFlags::IN))
}
