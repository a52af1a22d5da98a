//! Every rule of the HTTP contract: a request in, an answer out. No sockets, no clock, no log.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tiny_http::{Method, StatusCode};

use super::origin::{self, Exemptions};
use super::target::{self, BasePath, Resource, TargetError};
use super::token::Tokens;
use crate::http::conditional::{self, Conditions};
use crate::http::{Content, EntityTag, Request, Response};
use crate::store::{Action, Change, JsonError, NotSaved, Outcome, Store, color, tag_of};

/// The OpenAPI 3.1 document of the service. Its one server is ".", so it is right below any base path and behind any proxy: a relative
/// server URL is resolved against the address that the document was read from (OpenAPI 3.1, Server Object).
const OPENAPI: &str = include_str!("openapi.json");

/// What requests are answered from.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) store: Store,
    pub(crate) base: BasePath,
    /// POST, PUT and DELETE are not allowed.
    pub(crate) read_only: bool,
    pub(crate) is_stopping: AtomicBool,
    pub(crate) exemptions: Exemptions,
    /// Those that a write needs one of; `None` when everybody may write.
    pub(crate) tokens: Option<Tokens>,
}

/// What comes of a request.
#[derive(Debug)]
pub(crate) enum Answer {
    Now(Response),
    /// A change that has to be saved first: [`Service::complete`] gives the response when its outcome is known.
    Commit(Change),
}

impl Service {
    /// Answers a request; never fails, a refusal is a response. `on_loopback`: it came in on a listener whose own address is a loopback one.
    pub(crate) fn respond(&self, request: &Request, on_loopback: bool) -> Answer {
        // A panic changes nothing: a change is made in one step or not at all.
        let answer = catch_unwind(AssertUnwindSafe(|| match origin::check(&self.exemptions, request, on_loopback) {
            Ok(()) => act(self, request),
            Err(intrusion) => Answer::Now(Response {
                remark: Some(intrusion.explanation()),
                ..Response::error(StatusCode::FORBIDDEN, intrusion.message())
            }),
        }));
        match answer {
            Ok(Answer::Now(response)) => Answer::Now(self.with_cors(request, response)),
            Ok(commit) => commit,
            Err(_) => {
                Answer::Now(Response::error(StatusCode::INTERNAL_SERVER_ERROR, "the service failed on this request, its log says where"))
            }
        }
    }

    /// The response to a request whose change has been saved or refused.
    pub(crate) fn complete(&self, request: &Request, outcome: Result<Outcome, NotSaved>) -> Response {
        self.with_cors(request, changed(self, outcome))
    }

    fn with_cors(&self, request: &Request, response: Response) -> Response {
        let cors = origin::cors(&self.exemptions, request);
        let is_private = self.tokens.as_ref().is_some_and(|tokens| tokens.private);
        Response { cors, varies_by_origin: !self.exemptions.origins.is_empty(), is_private, ..response }
    }
}

/// Does what a request asks for.
fn act(service: &Service, request: &Request) -> Answer {
    let resource = match target::find(&request.target, &service.base) {
        Ok(resource) => resource,
        Err(error) => return Answer::Now(target_error(&error, &service.base)),
    };
    if let Some(refusal) = check_token(service, &resource, request) {
        return Answer::Now(refusal);
    }
    let allow = allowed(&resource, service.read_only);
    // the table of the specification's Endpoints
    match (resource, &request.method) {
        (Resource::Service, method) if *method != Method::Options => Answer::Now(target_error(&TargetError::Form, &service.base)),
        (_, Method::Options) => Answer::Now(Response { allow: Some(allow), ..Response::new(StatusCode::NO_CONTENT, Content::None) }),
        (Resource::Health, Method::Get | Method::Head) => Answer::Now(health(service)),
        (Resource::OpenApi, Method::Get | Method::Head) => Answer::Now(read(request, tag_of(OPENAPI.as_bytes()), Content::Fixed(OPENAPI))),
        (Resource::Colors, Method::Get | Method::Head) => Answer::Now(read_all(service, request)),
        (Resource::Color(name), Method::Get | Method::Head) => Answer::Now(read_one(service, request, &name)),
        (Resource::Colors, Method::Post) if !service.read_only => create(service, request),
        (Resource::Color(name), Method::Put) if !service.read_only => update(service, request, &name),
        (Resource::Color(name), Method::Delete) if !service.read_only => change(service, request, Action::Delete(name.into_owned())),
        // RFC 9110 §15.5.6: a 405 MUST carry Allow
        _ => Answer::Now(Response {
            allow: Some(allow),
            ..Response::error(StatusCode::METHOD_NOT_ALLOWED, format!("the method is not allowed here, only {allow}"))
        }),
    }
}

/// The refusal of a request that needs a token and has none that counts. It says nothing of the colors that exist, so it comes before 404 and
/// 412; methods that the resource does not have need none.
fn check_token(service: &Service, resource: &Resource<'_>, request: &Request) -> Option<Response> {
    let tokens = service.tokens.as_ref()?;
    let is_needed = match (resource, &request.method) {
        (Resource::Colors, Method::Post) | (Resource::Color(_), Method::Put | Method::Delete) => !service.read_only,
        (Resource::Colors | Resource::Color(_), Method::Get | Method::Head) => tokens.private,
        _ => false,
    };
    let challenge = if is_needed { tokens.check(request.fields.authorization.as_ref()).err()? } else { return None };
    Some(Response { challenge: Some(challenge), ..Response::error(StatusCode::UNAUTHORIZED, challenge.message()) })
}

/// The value of Allow: the methods of a resource (RFC 9110 §10.2.1).
fn allowed(resource: &Resource<'_>, read_only: bool) -> &'static str {
    match resource {
        Resource::Health | Resource::OpenApi => "GET, HEAD, OPTIONS",
        Resource::Colors | Resource::Color(_) | Resource::Service if read_only => "GET, HEAD, OPTIONS",
        Resource::Colors => "GET, HEAD, POST, OPTIONS",
        Resource::Color(_) => "GET, HEAD, PUT, DELETE, OPTIONS",
        Resource::Service => "GET, HEAD, POST, PUT, DELETE, OPTIONS",
    }
}

/// The answer to a target that names nothing.
fn target_error(error: &TargetError, base: &BasePath) -> Response {
    let base = base.as_str();
    match error {
        TargetError::Unknown => Response::error(StatusCode::NOT_FOUND, format!("no such resource, the list is at {base}/colors")),
        TargetError::Escape => {
            Response::error(StatusCode::BAD_REQUEST, "the path has a bad percent escape, or one that does not decode to UTF-8")
        }
        TargetError::Form => Response::error(StatusCode::BAD_REQUEST, format!("the request target has to be a path, as in {base}/colors")),
    }
}

/// Whether the service does what it is for: 200, or 503 with what keeps it from that.
fn health(service: &Service) -> Response {
    let status = |status, text: &str| Response::json(status, &serde_json::json!({ "status": text }));
    if service.is_stopping.load(Relaxed) {
        return status(StatusCode::SERVICE_UNAVAILABLE, "stopping");
    }
    if service.store.has_failed() {
        return status(StatusCode::SERVICE_UNAVAILABLE, "the last change could not be saved");
    }
    status(StatusCode::OK, "ok")
}

/// Read all: the whole list (spec, Endpoints, rule 1).
fn read_all(service: &Service, request: &Request) -> Response {
    let listing = service.store.listing();
    read(request, listing.tag, Content::Shared(listing.json))
}

/// Read one: the first color of the name.
fn read_one(service: &Service, request: &Request, name: &str) -> Response {
    let Some(color) = service.store.first(name) else { return Response::no_such_color() };
    let json = color.to_json();
    read(request, tag_of(&json), Content::Own(json))
}

/// A representation with its tag, or 304 for a client that has it (RFC 9110 §15.4.5).
fn read(request: &Request, tag: EntityTag, content: Content) -> Response {
    let response = if conditional::is_current(&request.fields, tag) {
        Response::new(StatusCode::NOT_MODIFIED, Content::None)
    } else {
        Response::new(StatusCode::OK, content)
    };
    Response { tag: Some(tag), ..response }
}

/// Create: append the color of the content (spec, Endpoints, rule 2).
fn create(service: &Service, request: &Request) -> Answer {
    match color::from_create(&request.content) {
        Ok(color) => change(service, request, Action::Create(color)),
        Err(error) => Answer::Now(content_error(&error)),
    }
}

/// Update: change the value, if the content has one (spec, Endpoints, rule 3).
fn update(service: &Service, request: &Request, name: &str) -> Answer {
    match color::from_update(&request.content) {
        Ok(value) => change(service, request, Action::Update(name.to_owned(), value)),
        // spec, Endpoints, rule 5: a name that no entry has is that answer, whatever the content was
        Err(_) if service.store.first(name).is_none() => Answer::Now(Response::no_such_color()),
        Err(error) => Answer::Now(content_error(&error)),
    }
}

fn change(service: &Service, request: &Request, action: Action) -> Answer {
    let change = Change { action, conditions: Conditions::of(&request.fields) };
    if service.store.is_durable() { Answer::Commit(change) } else { Answer::Now(changed(service, Ok(service.store.apply(&change)))) }
}

/// What is answered to a write.
fn changed(service: &Service, outcome: Result<Outcome, NotSaved>) -> Response {
    match outcome {
        Ok(Outcome::Created(color, is_first)) => {
            // RFC 9110 §10.2.2: Location names the created color, so there is none when an earlier entry has its name
            let location = is_first.then(|| service.base.color(&color.name));
            Response { location, ..Response::new(StatusCode::CREATED, Content::Own(color.to_json())) }
        }
        Ok(Outcome::Updated(color) | Outcome::Deleted(color)) => Response::new(StatusCode::OK, Content::Own(color.to_json())),
        Ok(Outcome::NotFound) => Response::no_such_color(),
        Ok(Outcome::ConditionFailed) => {
            Response::error(StatusCode::PRECONDITION_FAILED, "the condition does not hold, read the current state and decide again")
        }
        Err(error) => Response {
            remark: Some(format!("a change was not made since it could not be saved: {error}")),
            ..Response::error(StatusCode::INTERNAL_SERVER_ERROR, format!("the change was not made, it could not be saved: {error}"))
        },
    }
}

/// The answer to content that is not what it has to be; names the field or the place.
fn content_error(error: &JsonError) -> Response {
    Response::error(StatusCode::BAD_REQUEST, error.to_string())
}

#[cfg(test)]
#[path = "respond_tests.rs"]
mod tests;
