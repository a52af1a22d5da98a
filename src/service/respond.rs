//! The rules of the HTTP contract: a request in, an answer out. No sockets; logs nothing.

use std::sync::Arc;

use tiny_http::{Method, StatusCode};

use super::matcher::{self, BasePath, Resource, TargetError};
use super::origin::{self, Allowlist};
use super::page;
use super::token::Tokens;
use super::write::write;
use crate::http::rfc3339;
use crate::http::{CommonFields, Conditions, Content, Representation, Request, Response};
use crate::logging::AccessLog;
use crate::metrics::Metrics;
use crate::store::{Action, Change, Color, Store, json};

/// Prometheus' text format, by its version.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Content that takes longer to read than a request without it takes in all.
const LONG_CONTENT_BYTES: usize = 16 * 1024;

/// What requests are answered from.
pub(crate) struct Service {
    pub(crate) store: Store,
    pub(crate) base: BasePath,
    /// The document that [`openapi`] returned for `base`.
    pub(crate) openapi: Arc<Representation>,
    /// POST, PUT and DELETE are not allowed.
    pub(crate) read_only: bool,
    pub(crate) access_log: AccessLog,
    pub(crate) allowlist: Allowlist,
    /// A write needs one of these; `None` when everybody may write.
    pub(crate) tokens: Option<Tokens>,
    pub(crate) metrics: Metrics,
}

/// What the server knows of a request besides its bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Arrival {
    /// A request for a foreign host name is refused.
    pub(crate) checks_host: bool,
    /// The service takes no further connections.
    pub(crate) is_stopping: bool,
    /// Other clients wait for the answer, so one that takes long should be [`Answer::Deferred`].
    pub(crate) may_defer: bool,
}

#[derive(Debug)]
pub(crate) enum Answer {
    Now(Response),
    /// A change that has to be saved first: [`Service::respond_to_outcome`] has the response then.
    Change(Change),
    /// It would take long: ask again where nobody waits, with [`Arrival::may_defer`] unset.
    Deferred,
}

/// The OpenAPI 3.1 document of a service below `base`. Its server is that path: clients resolve it
/// against the address that they read the document from (OpenAPI 3.1, Server Object). Scheme and
/// host are left to them, since a proxy in front may have others.
pub(crate) fn openapi(base: &BasePath) -> Arc<Representation> {
    let server = format!(r#""url": "/{}""#, base.as_str().trim_start_matches('/'));
    let mut json: String = include_str!("openapi.json")
        .replacen(r#""url": "/""#, &server, 1)
        .lines()
        .map(str::trim_start)
        .collect();
    json.push('\n');
    Arc::new(Representation::new(json.into_bytes()))
}

#[cfg(any(test, fuzzing))]
impl Service {
    /// A service of these colors in memory that nothing is set for, for tests; it has one worker.
    pub(crate) fn plain(colors: crate::store::Colors) -> Self {
        let base = BasePath::default();
        Self {
            store: Store::in_memory(colors, 32 << 20),
            openapi: openapi(&base),
            base,
            read_only: false,
            access_log: AccessLog::None,
            allowlist: Allowlist::default(),
            tokens: None,
            metrics: Metrics::new(Arc::new(crate::connection_counts::ConnectionCounts::new(1, 10))),
        }
    }
}

impl Service {
    /// Answers a request; an error is a response too.
    pub(crate) fn respond(&self, request: &Request, arrival: Arrival) -> Answer {
        if let Err(forbidden) = origin::check(&self.allowlist, request, arrival.checks_host) {
            let response = Response::error(StatusCode::FORBIDDEN, forbidden.message);
            return Answer::Now(Response { detail: forbidden.log.into(), ..response });
        }
        route(self, request, arrival)
    }

    /// The name of the token that a request has, for the log.
    pub(crate) fn token_name(&self, request: &Request) -> Option<Arc<str>> {
        self.tokens.as_ref()?.name(request.fields().authorization.as_ref())
    }

    /// For whom the response is, and the fields for pages of allowed origins. `request` is the part
    /// that could be parsed.
    pub(crate) fn common_fields<'a>(
        &self,
        request: Option<&'a Request>,
        date: &'a str,
        connection: &'a str,
    ) -> CommonFields<'a> {
        CommonFields {
            date,
            connection,
            cors: request.and_then(|request| origin::cors(&self.allowlist, request)),
            varies_by_origin: !self.allowlist.origins.is_empty(),
            is_private: self.tokens.as_ref().is_some_and(|tokens| tokens.private),
        }
    }
}

fn route(service: &Service, request: &Request, arrival: Arrival) -> Answer {
    let found = matcher::find(&request.method, &request.target, &service.base);
    let is_page = matches!(found, Ok(Resource::Page));
    let mut answer = match found {
        // a preflight has the Accept of no request (Fetch standard, CORS-preflight fetch)
        Ok(Resource::Page) if !request.fields().asks_for_html && !request.is_preflight() => {
            Answer::Now(target_error(&TargetError::Unknown, &service.base))
        }
        Ok(resource) => operate(service, request, resource, arrival),
        Err(error) => Answer::Now(target_error(&error, &service.base)),
    };
    if is_page && let Answer::Now(response) = &mut answer {
        response.varies_by_accept = true;
    }
    answer
}

/// Answers a request for a resource that exists.
fn operate(
    service: &Service,
    request: &Request,
    resource: Resource<'_>,
    arrival: Arrival,
) -> Answer {
    let allow = methods(&resource, service.read_only);
    if !allow.contains(&request.method) {
        let allow = names(allow);
        let message = format!("the method is not allowed here, only {allow}");
        let error = Response::error(StatusCode::METHOD_NOT_ALLOWED, message);
        // RFC 9110 §15.5.6: a 405 MUST carry Allow
        return Answer::Now(Response { fields: vec![("Allow", allow.into())], ..error });
    }
    if let Some(refusal) = check_token(service, &resource, request) {
        return Answer::Now(refusal);
    }
    if arrival.may_defer && !request.is_safe() && request.content.len() > LONG_CONTENT_BYTES {
        return Answer::Deferred;
    }
    // the table of the specification's Endpoints; the methods that a resource does not have are
    // refused above
    match (resource, &request.method) {
        (resource, Method::Options) => {
            Answer::Now(options(service, &resource, request, names(allow)))
        }
        (Resource::Colors, Method::Post) => {
            let color = json::from_create(&request.content).map(Action::Create);
            write(service, request, None, color, arrival)
        }
        (Resource::Colors, Method::Put) => {
            let list = json::from_list(&request.content).map(Action::ReplaceAll);
            write(service, request, None, list, arrival)
        }
        (Resource::Colors, _) if arrival.may_defer => match service.store.list.ready_envelope() {
            Some(envelope) => Answer::Now(read(request, &envelope)),
            None => Answer::Deferred,
        },
        (Resource::Colors, _) => Answer::Now(read(request, &service.store.list.envelope())),
        (Resource::Color(name), Method::Put) => {
            let update = json::from_update(&request.content).map(|value| {
                let color = value.map(|value| Color::new(&name, &value));
                Action::Update(name.to_string(), color)
            });
            write(service, request, Some(&name), update, arrival)
        }
        (Resource::Color(name), Method::Delete) => {
            write(service, request, Some(&name), Ok(Action::Delete(name.to_string())), arrival)
        }
        (Resource::Color(name), _) => Answer::Now(
            service
                .store
                .list
                .first(&name)
                .map_or_else(Response::no_such_color, |color| read(request, &color.json)),
        ),
        (Resource::Health, _) => Answer::Now(health(service, request, arrival.is_stopping)),
        (Resource::Metrics, _) => Answer::Now(metrics(service)),
        (Resource::OpenApi, _) => Answer::Now(read(request, &service.openapi)),
        (Resource::Page, _) => {
            let mut response = read(request, &page::PAGE);
            // an error has no tag, and stays JSON
            if response.tag.is_some() {
                response.media_type = "text/html; charset=utf-8";
                response.fields.push(("Content-Security-Policy", page::POLICY.into()));
                response.fields.push(("Referrer-Policy", "no-referrer".into()));
            }
            Answer::Now(response)
        }
        (Resource::Asterisk, _) => Answer::Now(target_error(&TargetError::Form, &service.base)),
    }
}

/// Returns the 401 if the request needs a valid token and has none. It comes before 404 and 412,
/// which would reveal which colors exist, and after 405: a method that the resource does not have
/// needs no token.
fn check_token(service: &Service, resource: &Resource<'_>, request: &Request) -> Option<Response> {
    let tokens = service.tokens.as_ref()?;
    let tells_of_colors =
        matches!(resource, Resource::Colors | Resource::Color(_) | Resource::Metrics);
    let is_needed = tells_of_colors
        && request.method != Method::Options
        && (tokens.private || !request.is_safe());
    if !is_needed {
        return None;
    }
    let challenge = tokens.check(request.fields().authorization.as_ref()).err()?;
    Some(Response {
        challenge: Some(challenge),
        ..Response::error(StatusCode::UNAUTHORIZED, challenge.message())
    })
}

/// The methods of a resource. Where writes need a token that the request does not have, a challenge
/// says so, for the page to ask for one: credentials would make a difference (RFC 9110 §11.6.1).
fn options(
    service: &Service,
    resource: &Resource<'_>,
    request: &Request,
    allow: String,
) -> Response {
    let is_written =
        matches!(resource, Resource::Colors | Resource::Color(_)) && !service.read_only;
    let tokens = service.tokens.as_ref().filter(|_| is_written);
    let challenge =
        tokens.and_then(|tokens| tokens.check(request.fields().authorization.as_ref()).err());
    Response {
        fields: vec![("Allow", allow.into())],
        challenge,
        ..Response::new(StatusCode::NO_CONTENT, Content::None)
    }
}

/// The methods of a resource.
fn methods(resource: &Resource<'_>, read_only: bool) -> &'static [Method] {
    use Method::{Delete, Get, Head, Options, Post, Put};
    match resource {
        Resource::Health | Resource::Metrics | Resource::OpenApi | Resource::Page => {
            &[Get, Head, Options]
        }
        Resource::Colors | Resource::Color(_) | Resource::Asterisk if read_only => {
            &[Get, Head, Options]
        }
        Resource::Colors => &[Get, Head, Post, Put, Options],
        Resource::Color(_) => &[Get, Head, Put, Delete, Options],
        Resource::Asterisk => &[Get, Head, Post, Put, Delete, Options],
    }
}

/// Methods as Allow lists them (RFC 9110 §10.2.1).
fn names(methods: &[Method]) -> String {
    methods.iter().map(Method::as_str).collect::<Vec<_>>().join(", ")
}

fn target_error(error: &TargetError, base: &BasePath) -> Response {
    let base = base.as_str();
    match error {
        TargetError::Unknown => Response::error(
            StatusCode::NOT_FOUND,
            format!("no such resource, the list is at {base}/colors"),
        ),
        TargetError::Escape => Response::error(
            StatusCode::BAD_REQUEST,
            "the path has a bad percent escape, or one that does not decode to UTF-8",
        ),
        TargetError::Form => Response::error(
            StatusCode::BAD_REQUEST,
            format!("the request target has to be a path, as in {base}/colors"),
        ),
    }
}

/// 200, or 503 with what is wrong. Tells what is known, and waits for nothing.
fn health(service: &Service, request: &Request, is_stopping: bool) -> Response {
    let Service { store, .. } = service;
    let fault = store.status.fault().or_else(|| is_stopping.then(|| "stopping".to_owned()));
    let mut health = serde_json::json!({
        "status": fault.as_deref().unwrap_or("ok"),
        "version": env!("BUILD_VERSION"),
        "colors": store.list.size().0,
    });
    let times = store.status.current();
    if store.is_durable() {
        health["saved"] = times.saved.map(rfc3339).into();
    }
    if let Some(file) = &store.follows {
        health["follows"] = file.as_str().into();
        health["read"] = times.read.map(rfc3339).into();
        health["changed"] = times.changed.map(rfc3339).into();
    }
    // RFC 9110 §13.2.1: conditions count only where the response would be a success without them
    match fault {
        None => read(request, &Arc::new(Representation::new(format!("{health}\n").into_bytes()))),
        Some(_) => Response::json(StatusCode::SERVICE_UNAVAILABLE, &health),
    }
}

fn metrics(service: &Service) -> Response {
    let text = service.metrics.exposition(service.store.list.size(), &service.store.status);
    Response {
        media_type: METRICS_TYPE,
        ..Response::new(StatusCode::OK, Content::Own(text.into_bytes()))
    }
}

/// A representation with its tag, if the conditions hold; they are evaluated in the order of RFC
/// 9110 §13.2.2.
fn read(request: &Request, representation: &Arc<Representation>) -> Response {
    let tag = representation.tag();
    let mut response = match Conditions::of(request) {
        Err(error) => return Response::error(StatusCode::BAD_REQUEST, error.to_string()),
        Ok(conditions) if !conditions.if_match_holds(|| tag) => return condition_failed(),
        Ok(conditions) if !conditions.if_none_match_holds(|| tag) => {
            Response::new(StatusCode::NOT_MODIFIED, Content::None)
        }
        Ok(_) => Response::new(StatusCode::OK, Content::Shared(Arc::clone(representation))),
    };
    response.tag = Some(tag);
    response
}

pub(super) fn condition_failed() -> Response {
    Response::error(
        StatusCode::PRECONDITION_FAILED,
        "the condition does not hold, read the current state and decide again",
    )
}

#[cfg(test)]
#[path = "respond_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "conditional_tests.rs"]
mod conditional_tests;

#[cfg(test)]
#[path = "mistake_tests.rs"]
mod mistake_tests;
