//! Every rule of the HTTP contract: a request in, a response out. No sockets, no clock, no log.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::change::{Action, Change, Outcome};
use crate::color::{self, JsonError};
use crate::conditions::{self, Conditions};
use crate::message::{Content, EntityTag, Method, Request, Response, Status};
use crate::origin::{self, Exemptions};
use crate::page;
use crate::palette::tag_of;
use crate::resource::{self, BasePath, Resource, TargetError};
use crate::store::Store;

/// The OpenAPI 3.1 document of the service. Its one server is ".", so it is right below any base path and behind any proxy: a relative
/// server URL is resolved against the address that the document was read from (OpenAPI 3.1, Server Object).
const OPENAPI: &str = include_str!("openapi.json");

/// What requests are answered from.
#[derive(Debug)]
pub(crate) struct Service {
    /// The list.
    pub(crate) store: Store,
    /// The path that all resources sit below.
    pub(crate) base: BasePath,
    /// Whether the methods that change the list are not allowed.
    pub(crate) read_only: bool,
    /// Whether the service is ending.
    pub(crate) is_stopping: AtomicBool,
    /// Whose pages and by which names the service may be used.
    pub(crate) exemptions: Exemptions,
}

/// Answers a request; never fails, a refusal is a response.
pub(crate) fn respond(service: &Service, request: &Request<'_>) -> Response {
    let mut response = match origin::check(&service.exemptions, request) {
        Ok(()) => act(service, request),
        Err(intrusion) => Response { remark: Some(intrusion.explanation()), ..Response::error(Status::Forbidden, intrusion.message()) },
    };
    response.cors = origin::cors(&service.exemptions, request);
    response.varies_by_origin = !service.exemptions.origins.is_empty();
    response
}

/// Answers a panic like any failure of ours; the list is as it was, since a change is made in one step or not at all.
pub(crate) fn respond_or_500(respond: impl FnOnce() -> Response) -> Response {
    catch_unwind(AssertUnwindSafe(respond))
        .unwrap_or_else(|_| Response::error(Status::InternalServerError, "the service failed on this request, its log says where"))
}

/// Does what a request asks for.
fn act(service: &Service, request: &Request<'_>) -> Response {
    let resource = match resource::find(request.target, &service.base) {
        Ok(resource) => resource,
        Err(error) => return target_error(&error, &service.base),
    };
    let allow = allowed(&resource, service.read_only);
    let varies_by_accept = matches!(resource, Resource::Page);
    // the table of the specification's Endpoints
    let mut response = match (resource, request.method) {
        (Resource::Page, _) if !request.fields.asks_for_html => target_error(&TargetError::Unknown, &service.base),
        (Resource::Service, method) if method != Method::Options => target_error(&TargetError::Form, &service.base),
        (_, Method::Options) => Response { allow: Some(allow), ..Response::new(Status::NoContent, Content::None) },
        (Resource::Health, Method::Get | Method::Head) => health(service),
        (Resource::OpenApi, Method::Get | Method::Head) => read(request, tag_of(OPENAPI.as_bytes()), Content::Fixed(OPENAPI)),
        (Resource::Page, Method::Get | Method::Head) => {
            Response { further: page::FIELDS, ..read(request, tag_of(page::PAGE.as_bytes()), Content::Page(page::PAGE)) }
        }
        (Resource::Colors, Method::Get | Method::Head) => read_all(service, request),
        (Resource::Color(name), Method::Get | Method::Head) => read_one(service, request, &name),
        (Resource::Colors, Method::Post) if !service.read_only => create(service, request),
        (Resource::Color(name), Method::Put) if !service.read_only => update(service, request, &name),
        (Resource::Color(name), Method::Delete) if !service.read_only => change(service, request, Action::Delete(name.into_owned())),
        // RFC 9110 §15.5.6: a 405 MUST carry Allow
        _ => Response {
            allow: Some(allow),
            ..Response::error(Status::MethodNotAllowed, format!("the method is not allowed here, only {allow}"))
        },
    };
    response.varies_by_accept = varies_by_accept;
    response
}

/// The value of Allow: the methods of a resource (RFC 9110 §10.2.1).
fn allowed(resource: &Resource<'_>, read_only: bool) -> &'static str {
    match resource {
        Resource::Health | Resource::OpenApi | Resource::Page => "GET, HEAD, OPTIONS",
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
        TargetError::Unknown => Response::error(Status::NotFound, format!("no such resource, the list is at {base}/colors")),
        TargetError::Escape => {
            Response::error(Status::BadRequest, "the path has a bad percent escape, or one that does not decode to UTF-8")
        }
        TargetError::Form => Response::error(Status::BadRequest, format!("the request target has to be a path, as in {base}/colors")),
    }
}

/// Whether the service does what it is for: 200, or 503 with what keeps it from that.
fn health(service: &Service) -> Response {
    let status = |status, text: &str| Response::json(status, &serde_json::json!({ "status": text }));
    if service.is_stopping.load(Relaxed) {
        return status(Status::ServiceUnavailable, "stopping");
    }
    if service.store.has_failed() {
        return status(Status::ServiceUnavailable, "the last change could not be saved");
    }
    status(Status::Ok, "ok")
}

/// Read all: the whole list (spec, Endpoints, rule 1).
fn read_all(service: &Service, request: &Request<'_>) -> Response {
    let listing = service.store.listing();
    read(request, listing.tag, Content::Shared(listing.json))
}

/// Read one: the first color of the name.
fn read_one(service: &Service, request: &Request<'_>, name: &str) -> Response {
    let Some(color) = service.store.first(name) else { return Response::no_such_color() };
    let json = color.to_json();
    read(request, tag_of(&json), Content::Own(json))
}

/// A representation with its tag, or 304 for a client that has it (RFC 9110 §15.4.5).
fn read(request: &Request<'_>, tag: EntityTag, content: Content) -> Response {
    let response = if conditions::is_current(request.fields, tag) {
        Response::new(Status::NotModified, Content::None)
    } else {
        Response::new(Status::Ok, content)
    };
    Response { tag: Some(tag), ..response }
}

/// Create: append the color of the content (spec, Endpoints, rule 2).
fn create(service: &Service, request: &Request<'_>) -> Response {
    match color::from_create(request.content) {
        Ok(color) => change(service, request, Action::Create(color)),
        Err(error) => content_error(&error),
    }
}

/// Update: change the value, if the content has one (spec, Endpoints, rule 3).
fn update(service: &Service, request: &Request<'_>, name: &str) -> Response {
    match color::from_update(request.content) {
        Ok(value) => change(service, request, Action::Update(name.to_owned(), value)),
        // spec, Endpoints, rule 5: a name that no entry has is that answer, whatever the content was
        Err(_) if service.store.first(name).is_none() => Response::no_such_color(),
        Err(error) => content_error(&error),
    }
}

/// Makes a change and says what came of it.
fn change(service: &Service, request: &Request<'_>, action: Action) -> Response {
    let change = Change { action, conditions: Conditions::of(request.fields) };
    match service.store.commit(change) {
        Ok(Outcome::Created(color, is_first)) => {
            // RFC 9110 §10.2.2: Location names the created color, so there is none when an earlier entry has its name
            let location = is_first.then(|| service.base.color(&color.name));
            Response { location, ..Response::new(Status::Created, Content::Own(color.to_json())) }
        }
        Ok(Outcome::Updated(color) | Outcome::Deleted(color)) => Response::new(Status::Ok, Content::Own(color.to_json())),
        Ok(Outcome::NotFound) => Response::no_such_color(),
        Ok(Outcome::ConditionFailed) => {
            Response::error(Status::PreconditionFailed, "the condition does not hold, read the current state and decide again")
        }
        Err(error) => Response {
            remark: Some(format!("a change was not made since it could not be saved: {error}")),
            ..Response::error(Status::InternalServerError, format!("the change was not made, it could not be saved: {error}"))
        },
    }
}

/// The answer to content that is not what it has to be; names the field or the place.
fn content_error(error: &JsonError) -> Response {
    Response::error(Status::BadRequest, error.to_string())
}

#[cfg(test)]
#[path = "respond_tests.rs"]
mod tests;
