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
        let is_logged = self.access_log != AccessLog::None;
        // only for the log, since the value is parsed for it
        let logged = |detail: &dyn Fn() -> String| match is_logged {
            true => Cow::Owned(detail()),
            false => Cow::Borrowed(""),
        };
        let sent = |color: Color| {
            self.store.list.note_sent(&color);
            color.json
        };
        let is_change = !matches!(outcome, Ok(Outcome::Unchanged(..)));
        let (status, content, location, detail) = match outcome {
            Ok(Outcome::Created { color, is_first }) => {
                // RFC 9110 §10.2.2: Location names the created color, so there is none when an
                // earlier entry has its name
                let location = is_first.then(|| self.base.location_of(&color.name())).flatten();
                let detail = logged(&|| format!("name {}", excerpt(&color.name())));
                (StatusCode::CREATED, sent(color), location, detail)
            }
            Ok(Outcome::Updated(color)) => {
                let detail = logged(&|| format!("value {}", excerpt(&color.fields().value)));
                (StatusCode::OK, sent(color), None, detail)
            }
            Ok(Outcome::Unchanged(color, why)) => (StatusCode::OK, sent(color), None, why.into()),
            Ok(Outcome::Deleted(color)) => (StatusCode::OK, sent(color), None, "".into()),
            Ok(Outcome::Replaced(list, before)) => {
                let detail = logged(&|| format!("{before} -> {} colors", list.len()));
                (StatusCode::OK, self.store.list.envelope_of(&list), None, detail)
            }
            Ok(Outcome::NotFound) => return Response::no_such_color(),
            Ok(Outcome::ConditionFailed) => return condition_failed(),
            Ok(Outcome::Contended) => {
                let message =
                    "others change the list all the time: try again, or leave out the condition";
                return Response::error(StatusCode::SERVICE_UNAVAILABLE, message);
            }
            Err(error) => {
                // the writer logs it
                let message = format!("the change was not made, it could not be saved: {error}");
                return Response::error(StatusCode::INTERNAL_SERVER_ERROR, message);
            }
        };
        let fields = location.map(|path| ("Location", path.into())).into_iter().collect();
        let response = Response::new(status, Content::Shared(content));
        Response { fields, detail, is_change, ..response }
    }
}

/// Makes a change of the color `name`, or of the list.
pub(super) fn write(
    service: &Service,
    request: &Request,
    name: Option<&str>,
    action: Result<Action, JsonError>,
    arrival: Arrival,
) -> Answer {
    let checked = check_coding(request).and_then(|()| {
        let action = action.map_err(|error| (StatusCode::BAD_REQUEST, error.to_string()))?;
        let conditions = Conditions::of(request)
            .map_err(|error| (StatusCode::BAD_REQUEST, error.to_string()))?;
        Ok(Change { action, conditions })
    });
    match checked {
        Ok(change) if arrival.may_defer && service.store.would_take_long(&change) => {
            Answer::Deferred
        }
        Ok(change) => match service.store.change_in_memory(&change) {
            Some(outcome) => Answer::Now(service.respond_to_outcome(Ok(outcome))),
            None => Answer::Change(change),
        },
        // spec, Endpoints, rule 5: the answer for an unknown name is always the same, even with
        // invalid content
        Err(_) if name.is_some_and(|name| service.store.list.first(name).is_none()) => {
            Answer::Now(Response::no_such_color())
        }
        Err((status, message)) => Answer::Now(Response::error(status, message)),
    }
}

/// RFC 9110 §15.5.16: a content coding that the service does not have is a 415. What DELETE ignores
/// may have any.
fn check_coding(request: &Request) -> Result<(), (StatusCode, String)> {
    match &request.fields().content_coding {
        Some(coding) if !request.content.is_empty() && request.method != Method::Delete => {
            let message =
                format!("the content has the coding {}, send it without one", excerpt(coding));
            Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, message))
        }
        _ => Ok(()),
    }
}
