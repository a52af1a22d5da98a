//! Requests that change the list: their content becomes a change, and its outcome a response.

use std::borrow::Cow;

use tiny_http::{Method, StatusCode};

use super::respond::{Answer, Arrival, Service, condition_failed};
use crate::http::{Conditions, Content, Request, Response};
use crate::logging::{AccessLog, excerpt};
use crate::store::{Action, Change, Color, DatabaseError, JsonError, Outcome};

impl Service {
    /// The response to a request whose change was saved, or could not be.
    pub(crate) fn respond_to_outcome(&self, outcome: Result<Outcome, DatabaseError>) -> Response {
        let is_change = !matches!(outcome, Ok(Outcome::Unchanged(..)));
        let is_logged = self.access_log != AccessLog::None;
        // only for the log, since the value is parsed for it
        let logged = |detail: &dyn Fn() -> String| {
            Cow::Owned(if is_logged { detail() } else { String::new() })
        };
        let sent = |color: Color, detail| {
            self.store.list.note_sent(&color);
            let response = Response::new(StatusCode::OK, Content::Shared(color.json));
            Response { detail, is_change, ..response }
        };
        match outcome {
            Ok(Outcome::Created { color, is_first }) => {
                // RFC 9110 §10.2.2: Location names the created color, so there is none when an
                // earlier entry has its name
                let location = is_first.then(|| self.base.location_of(&color.name())).flatten();
                let fields = location.map(|path| ("Location", path.into())).into_iter().collect();
                let detail = logged(&|| format!("name {}", excerpt(&color.name())));
                Response { status: StatusCode::CREATED, fields, ..sent(color, detail) }
            }
            Ok(Outcome::Updated(color)) => {
                let detail = logged(&|| format!("value {}", excerpt(&color.fields().value)));
                sent(color, detail)
            }
            Ok(Outcome::Unchanged(color, why)) => sent(color, why.into()),
            Ok(Outcome::Deleted(color)) => sent(color, "".into()),
            Ok(Outcome::Replaced(list, before)) => {
                let detail = logged(&|| format!("{before} -> {} colors", list.len()));
                let content = Content::Shared(self.store.list.envelope_of(&list));
                Response { detail, is_change, ..Response::new(StatusCode::OK, content) }
            }
            Ok(Outcome::NotFound) => Response::no_such_color(),
            Ok(Outcome::ConditionFailed) => condition_failed(),
            Ok(Outcome::Contended) => {
                let message =
                    "others change the list all the time: try again, or leave out the condition";
                Response::error(StatusCode::SERVICE_UNAVAILABLE, message)
            }
            Err(error) => {
                // the writer logs it
                let message = format!("the change was not made, it could not be saved: {error}");
                Response::error(StatusCode::INTERNAL_SERVER_ERROR, message)
            }
        }
    }

    /// Makes a change of the color `name`, or of the list.
    pub(super) fn write(
        &self,
        request: &Request,
        name: Option<&str>,
        action: Result<Action, JsonError>,
        arrival: Arrival,
    ) -> Answer {
        match change_of(request, action) {
            Ok(change) if arrival.may_defer && self.store.would_take_long(&change) => {
                Answer::Deferred
            }
            Ok(change) => match self.store.change_in_memory(&change) {
                Some(outcome) => Answer::Now(self.respond_to_outcome(Ok(outcome))),
                None => Answer::Change(change),
            },
            // spec, Endpoints, rule 5: the answer for an unknown name is always the same, even with
            // invalid content
            Err(_) if name.is_some_and(|name| self.store.list.first(name).is_none()) => {
                Answer::Now(Response::no_such_color())
            }
            Err(refusal) => Answer::Now(refusal),
        }
    }
}

/// The change that a request asks for, unless its content or its conditions are malformed.
fn change_of(request: &Request, action: Result<Action, JsonError>) -> Result<Change, Response> {
    // what DELETE ignores may have any coding
    if let Some(coding) = &request.fields().content_coding
        && !request.content.is_empty()
        && request.method != Method::Delete
    {
        let message =
            format!("the content has the coding {}, send it without one", excerpt(coding));
        let error = Response::error(StatusCode::UNSUPPORTED_MEDIA_TYPE, message);
        // RFC 9110 §15.5.16: which content codings would have been accepted
        return Err(Response { fields: vec![("Accept-Encoding", "identity".into())], ..error });
    }
    let action =
        action.map_err(|error| Response::error(StatusCode::BAD_REQUEST, error.to_string()))?;
    Ok(Change { action, conditions: Conditions::of(request)? })
}
