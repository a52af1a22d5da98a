//! The rules of the HTTP contract: [`Service::decide`] answers a request, and
//! [`Service::response_to`] one whose change the writer has decided. No sockets; logs
//! nothing.

use std::borrow::Cow;
use std::fmt::Display;

use bounded_http::Content;
use tiny_http::StatusCode;

use super::matcher::{Operation, location_of};
use super::{Decision, Service, Subject, Thread, openapi, origin, page};
use crate::conditions::Tag;
use crate::http::{CommonFields, MediaType, Request, Response};
use crate::logging::excerpt;
use crate::options::AccessLog;
use crate::store::{
    Action, Certainty, Change, Color, ColorJson, JsonError, Outcome, StorageError, json,
};

/// What the log says of a change that leaves everything as it is.
const UNCHANGED: &str = "unchanged";
const NO_VALUE: &str = "unchanged, the content has no field \"value\"";

/// Longest content, in bytes, of a write that may be parsed on a worker. To parse more takes more
/// time than the rest of a request.
const PARSED_AT_ONCE_BYTES_MAX: usize = 16 * 1024;

impl Service {
    /// What to do next with a request; an error is a response, too. Checks the head each time: the
    /// token may have been withdrawn while the request waited for a change.
    pub(crate) fn decide(&self, request: &Request<'_>, thread: Thread) -> Decision {
        match self.admit(request) {
            Ok(operation) => self.operate(operation, request, thread),
            // The client sees the same as if the content that the head announces had not arrived.
            Err(refusal) => {
                let closes = request.head.has_content();
                Decision::Respond(Response { closes, ..refusal })
            }
        }
    }

    /// Does what the table in docs/http.md, Resources, says of the operation.
    fn operate(&self, operation: Operation<'_>, request: &Request<'_>, thread: Thread) -> Decision {
        let content = &request.content;
        // ReplaceAll frees the list before it, which may be long.
        let takes_long =
            content.len() > PARSED_AT_ONCE_BYTES_MAX || operation == Operation::ReplaceAll;
        if thread == Thread::Worker && takes_long {
            return Decision::TakesLong;
        }
        let find = |name: &str| self.list.find(name);
        let write = |action| self.write(self.change_of(request, action), thread);
        match operation {
            Operation::ReadAll => self.read_all(request, thread),
            Operation::Create => write(json::from_create(content).map(Action::Create)),
            Operation::ReplaceAll => write(json::from_list(content).map(Action::ReplaceAll)),
            Operation::ReadOne(name) => match find(&name) {
                Some((seen, color)) => {
                    let tag = color.json.tag();
                    let subject = || Subject::Color((*name).into());
                    read_or_wait(request, content_of(color), tag, seen, subject)
                }
                None => Decision::Respond(no_such_color()),
            },
            Operation::Update(name) if request.fields.conditions.requires_absence() => {
                let create = json::from_create_named(&name, content).map(Action::CreateAbsent);
                let change = self.change_of(request, create).map_err(|refusal| match find(&name) {
                    // If the color is there, 412 comes before what else is wrong with the request.
                    Some(_) => condition_failed(),
                    None => refusal,
                });
                self.write(change, thread)
            }
            Operation::Update(name) => {
                let update = json::from_update(content).map(|value| match value {
                    Some(value) => Action::Update(Color::new(&name, &value)),
                    None => Action::Keep(name.to_string()),
                });
                self.write_color(&name, self.change_of(request, update), thread)
            }
            Operation::Delete(name) => {
                let delete = Ok(Action::Delete(name.to_string()));
                self.write_color(&name, self.change_of(request, delete), thread)
            }
            Operation::Health => Decision::Respond(self.health(request)),
            Operation::Metrics => Decision::Respond(self.metrics()),
            Operation::OpenApi => {
                let openapi = || openapi::openapi(&self.options.base_path);
                let document = self.documents.openapi.get_or_init(openapi);
                Decision::Respond(read(request, document.content(), document.tag()))
            }
            Operation::Page => {
                let page = self.documents.page.get_or_init(|| page::page(&self.options));
                Decision::Respond(Response {
                    varies_by_accept: true,
                    ..page::respond(request, page, MediaType::Html)
                })
            }
            Operation::PageFiles => {
                let files = self.documents.page_files.get_or_init(page::files);
                Decision::Respond(page::respond(request, files, MediaType::JavaScript))
            }
            Operation::Options(target) => Decision::Respond(self.allowed_methods(&target, request)),
        }
    }

    fn read_all(&self, request: &Request<'_>, thread: Thread) -> Decision {
        let list = &self.list;
        let (seen, envelope) = match list.ready_envelope() {
            Some(ready) => ready,
            None => match thread {
                Thread::LongAnswers { queued_at } => list.envelope_since(queued_at),
                Thread::Worker => return Decision::TakesLong,
            },
        };
        let (content, tag) = (envelope.content(), envelope.tag());
        let mut decision = read_or_wait(request, content, tag, seen, || Subject::List);
        let link = self.followed.as_ref().map(|followed| ("Link", followed.link.clone().into()));
        match &mut decision {
            Decision::Respond(response) | Decision::Wait { current: response, .. }
                if matches!(response.status.0, 200 | 304) =>
            {
                response.fields.extend(link);
            }
            _ => {}
        }
        decision
    }

    /// The change that a request asks for. Fails with 415 if the content has a coding, and with 400
    /// if content or conditions are malformed.
    fn change_of(
        &self,
        request: &Request<'_>,
        action: Result<Action, JsonError>,
    ) -> Result<Change, Response> {
        if let Some(coding) = &request.fields.content_coding
            && !request.content.is_empty()
        {
            let message =
                format!("the content has the coding {}, send it without one", excerpt(coding));
            let error = Response::error(StatusCode(415), message);
            // RFC 9110 §15.5.16: Accept-Encoding says which content codings would have been
            // accepted.
            return Err(Response { fields: vec![("Accept-Encoding", "identity".into())], ..error });
        }
        let action = action.map_err(bad_request)?;
        let conditions = request.fields.conditions.checked().map_err(bad_request)?;
        Ok(Change::new(action, conditions.clone()))
    }

    /// Makes the change if the list is in memory; otherwise it has to be saved. `change` may be a
    /// refusal instead: then that is the response.
    fn write(&self, change: Result<Change, Response>, thread: Thread) -> Decision {
        let change = match change {
            Ok(change) => change,
            Err(refusal) => return Decision::Respond(refusal),
        };
        if self.storage.is_some() {
            return Decision::Save(change);
        }
        let list = &self.list;
        if thread == Thread::Worker && list.takes_long(&change) {
            return Decision::TakesLong;
        }
        Decision::Respond(self.response_to(Ok(list.change(&change))))
    }

    /// Makes a change of the color `name`. If there is no such color, the answer is the 404 for
    /// that, even if content or conditions are malformed (docs/http.md, Errors).
    fn write_color(
        &self,
        name: &str,
        change: Result<Change, Response>,
        thread: Thread,
    ) -> Decision {
        let change = change.map_err(|refusal| match self.list.find(name) {
            Some(_) => refusal,
            None => no_such_color(),
        });
        self.write(change, thread)
    }

    /// The response to a request by what came of its change.
    pub(crate) fn response_to(&self, outcome: Result<Outcome, StorageError>) -> Response {
        let is_logged = self.options.access_log != AccessLog::None;
        // Made only if it is logged, since the JSON of a color is parsed for it.
        let detail =
            |text: &dyn Fn() -> String| Cow::Owned(if is_logged { text() } else { String::new() });
        let changed = |color: Color, log_detail| {
            let response = Response::new(StatusCode(200), content_of(color));
            Response { log_detail, is_change: true, ..response }
        };
        match outcome {
            Ok(Outcome::Created { color, is_first }) => {
                // RFC 9110 §10.2.2: Location names the created color. So there is none when an
                // earlier color has its name: the path leads to that one.
                let location =
                    is_first.then(|| location_of(&self.options.base_path, &color.name())).flatten();
                let fields = location.map(|path| ("Location", path.into())).into_iter().collect();
                let log_detail = detail(&|| format!("name {}", excerpt(&color.name())));
                Response { status: StatusCode(201), fields, ..changed(color, log_detail) }
            }
            Ok(Outcome::Updated(color)) => {
                let log_detail = detail(&|| match color.json.bytes().len() {
                    0..=PARSED_AT_ONCE_BYTES_MAX => {
                        format!("value {}", excerpt(&color.fields().value))
                    }
                    length => format!("value of some {length} bytes"),
                });
                changed(color, log_detail)
            }
            Ok(Outcome::Unchanged(color)) => {
                Response { is_change: false, ..changed(color, UNCHANGED.into()) }
            }
            Ok(Outcome::NoValue(color)) => {
                Response { is_change: false, ..changed(color, NO_VALUE.into()) }
            }
            Ok(Outcome::Deleted(color)) => changed(color, "".into()),
            Ok(Outcome::ReplacedAll { list, before }) => {
                let log_detail = detail(&|| match before {
                    Some(before) => format!("{before} -> {} colors", list.len()),
                    None => UNCHANGED.to_owned(),
                });
                let is_change = before.is_some();
                let content = list.envelope().content();
                Response { log_detail, is_change, ..Response::new(StatusCode(200), content) }
            }
            Ok(Outcome::NotFound) => no_such_color(),
            Ok(Outcome::ConditionFailed) => condition_failed(),
            // Not 413: a short content may be what is too much.
            Ok(Outcome::TooLong) => {
                let message = "the list would become longer than its storage takes";
                Response::error(StatusCode(507), message)
            }
            Ok(Outcome::Refused(reason)) => Response::error(StatusCode(409), reason),
            Ok(Outcome::Contended) => {
                let message = "others change the list all the time: try again";
                Response::error(StatusCode(503), message)
            }
            Err(error) => {
                // The error itself is for the operator: the log and `/health` have it.
                let cause = error.for_clients;
                let (status, said, doubt) = match error.certainty {
                    Certainty::NotAsked => (503, "was not made", ""),
                    Certainty::NotMade => (500, "could not be saved", ""),
                    Certainty::InDoubt => {
                        (500, "could not be saved", ", and the change may be in the list")
                    }
                };
                let message = format!(
                    "the change {said}: {cause}{doubt}; /health and the log say what to do"
                );
                Response::error(StatusCode(status), message)
            }
        }
    }

    /// The [`CommonFields`] of a response. `request`: what could be parsed of the request.
    pub(crate) fn common_fields<'a>(&self, request: Option<&Request<'a>>) -> CommonFields<'a> {
        let fields = request.map(|request| request.fields);
        CommonFields {
            allowed_origin: fields.and_then(|fields| origin::allowed_origin(&self.options, fields)),
            varies_by_origin: !self.options.allow_origin.is_empty(),
            is_private: self.options.private,
        }
    }
}

fn bad_request(error: impl Display) -> Response {
    Response::error(StatusCode(400), error.to_string())
}

fn content_of(color: Color) -> Content {
    match color.json {
        ColorJson::Short(json) => Content::Copied(json),
        ColorJson::Long(json) => json.content(),
    }
}

/// The response to a GET or HEAD of this content, by the conditions in the order of RFC 9110
/// §13.2.2: 200, 304 or 412; 400 if they are malformed.
pub(super) fn read(request: &Request<'_>, content: Content, tag: Tag) -> Response {
    let mut response = match request.fields.conditions.checked() {
        Err(malformed) => return bad_request(malformed),
        Ok(conditions) if !conditions.if_match_holds(|| tag) => return condition_failed(),
        Ok(conditions) if !conditions.if_none_match_holds(|| tag) => {
            Response::new(StatusCode(304), Content::None)
        }
        Ok(_) => Response::new(StatusCode(200), content),
    };
    response.tag = Some(tag);
    response
}

/// The answer to a read whose client may want to wait until the representation changes. `seen`: the
/// number of the version that the content is of.
fn read_or_wait(
    request: &Request<'_>,
    content: Content,
    tag: Tag,
    seen: u64,
    subject: impl FnOnce() -> Subject,
) -> Decision {
    if request.fields.prefer_wait.is_none() {
        return Decision::Respond(read(request, content, tag));
    }
    let response = read(request, content.clone(), tag);
    if response.status != StatusCode(304) || !request.is_short() {
        return Decision::Respond(response);
    }
    let current = Response { status: StatusCode(200), content, ..response };
    Decision::Wait { subject: subject(), seen, current }
}

/// The answer when no color has the requested name: the Error body without a message (docs/http.md,
/// Errors).
fn no_such_color() -> Response {
    let content = Content::Own(b"{\"error\":true}\n".to_vec());
    Response { log_detail: "no such color".into(), ..Response::new(StatusCode(404), content) }
}

fn condition_failed() -> Response {
    Response::error(
        StatusCode(412),
        "the condition does not hold, read the current state and decide again",
    )
}
