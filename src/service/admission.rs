//! What the head of a request decides: which operation it asks for, and whether that is allowed.

use std::sync::Arc;

use bounded_http::Content;
use tiny_http::{Method, StatusCode};

use super::matcher::{self, Operation, Target};
use super::{Service, origin};
use crate::http::{Challenge, METHODS, Request, RequestFields, Response, is_safe};
use bounded_http::syntax::is_token;

/// For how many seconds a browser may use the response to a preflight again.
const PREFLIGHT_SECONDS: &str = "600";

impl Service {
    /// Checks the head of a request: Authorization given once, Host and Origin, the target, the
    /// method, and the token if one is needed. The content need not have arrived. Fails with the
    /// response that refuses the request.
    pub(crate) fn admit<'a>(&self, request: &Request<'a>) -> Result<Operation<'a>, Response> {
        let (head, fields) = (request.head, request.fields);
        // RFC 9110 §11.6.2: the field is no list. If the service took one of two, a proxy might
        // have checked the other.
        if fields.repeats_authorization {
            let message = "the field Authorization may be given only once";
            return Err(Response::error(StatusCode(400), message));
        }
        origin::check(&self.options, head, fields, self.checks_host[request.listener])?;
        let target = matcher::parse(head.method(), head.target_bytes(), &self.options.base_path)
            .map_err(|malformed| Response::error(StatusCode(400), malformed))?;
        self.find_operation(&target, head.method(), fields)
            .map_err(|refusal| Response { varies_by_accept: target.is_page(), ..refusal })
    }

    /// Refuses with 404 a target that is no resource, then with 405 a method that the resource does
    /// not have, then with 401 a request that needs a valid token and has none. The operation comes
    /// after all of these, since its 404 or 412 would reveal which colors exist.
    fn find_operation<'a>(
        &self,
        target: &Target<'a>,
        method: &Method,
        fields: &RequestFields,
    ) -> Result<Operation<'a>, Response> {
        // The Accept of a preflight is `*/*`, whatever the request has that it asks for (Fetch
        // standard, CORS-preflight fetch).
        if target.is_page() && !fields.asks_for_html && !is_preflight(method, fields) {
            return Err(self.unknown());
        }
        let operation = match target.operation(method) {
            Some(operation) if self.allows(method) => operation,
            _ if target.operation(&Method::Get).is_none() => return Err(self.unknown()),
            refused => {
                let allow = self.allow(target);
                let message = match (refused, &self.options.follow) {
                    (Some(_), Some(url)) => format!("this is a copy, change the list at {url}"),
                    _ => format!("the method is not allowed here, only {allow}"),
                };
                let error = Response::error(StatusCode(405), message);
                // RFC 9110 §15.5.6: a 405 MUST carry Allow.
                return Err(Response { fields: vec![("Allow", allow.into())], ..error });
            }
        };
        let needs_token = !is_safe(method) || (self.options.private && operation.is_private());
        if needs_token && let Some(challenge) = self.challenge(fields) {
            let error = Response::error(StatusCode(401), challenge.message());
            return Err(Response { challenge: Some(challenge), ..error });
        }
        Ok(operation)
    }

    /// The response to OPTIONS. If a change of the target would need a token that this request does
    /// not have, the response has a challenge: then the page asks for a token (RFC 9110 §11.6.1).
    pub(super) fn allowed_methods(&self, target: &Target<'_>, request: &Request<'_>) -> Response {
        let allow = self.allow(target);
        let is_written = self.methods(target).any(|method| !is_safe(method));
        let asked = request.fields;
        let mut fields = vec![("Allow", allow.clone().into())];
        if is_preflight(request.head.method(), asked)
            && origin::allowed_origin(&self.options, asked).is_some()
        {
            fields.extend([
                ("Access-Control-Allow-Methods", allow.into()),
                ("Access-Control-Max-Age", PREFLIGHT_SECONDS.into()),
            ]);
            // Whatever fields a page sends, those that the service does not know do nothing.
            let names = asked.preflight_fields.as_deref().unwrap_or_default();
            let names: Vec<_> =
                names.split(',').map(str::trim).filter(|name| is_token(name)).collect();
            if !names.is_empty() {
                fields.push(("Access-Control-Allow-Headers", names.join(", ").into()));
            }
        }
        Response {
            fields,
            varies_by_accept: target.is_page(),
            challenge: self.challenge(asked).filter(|_| is_written),
            ..Response::new(StatusCode(204), Content::None)
        }
    }

    /// Whether the service takes this method at all. With `--read-only` or `--follow`, it takes
    /// only methods that change nothing.
    fn allows(&self, method: &Method) -> bool {
        is_safe(method) || !(self.options.read_only || self.options.follow.is_some())
    }

    /// The methods of a target that the service takes. The target `*` has all methods.
    fn methods(&self, target: &Target<'_>) -> impl Iterator<Item = &'static Method> {
        let has = |method: &Method| self.allows(method) && target.operation(method).is_some();
        METHODS.iter().filter(move |method| has(method))
    }

    /// The value of Allow (RFC 9110 §10.2.1).
    fn allow(&self, target: &Target<'_>) -> String {
        self.methods(target).map(Method::as_str).collect::<Vec<_>>().join(", ")
    }

    /// The response where there is no resource.
    fn unknown(&self) -> Response {
        let message =
            format!("no such resource, the list is at {}/colors", self.options.base_path.as_str());
        Response::error(StatusCode(404), message)
    }

    /// The name of the token of a request, for the log. `None` if the token is not valid, or has no
    /// name.
    pub(crate) fn token_name(&self, request: &Request<'_>) -> Option<Arc<str>> {
        self.tokens.as_ref()?.name(request.fields.authorization.as_ref())
    }

    /// The challenge for a request without a valid token. `None` if it has one, or if the service
    /// has no tokens.
    fn challenge(&self, fields: &RequestFields) -> Option<Challenge> {
        self.tokens.as_ref()?.check(fields.authorization.as_ref()).err()
    }
}

/// Whether this is a CORS preflight, by which a browser asks what a page of another origin may send
/// (Fetch standard, CORS protocol).
fn is_preflight(method: &Method, fields: &RequestFields) -> bool {
    *method == Method::Options && fields.preflight_method.is_some()
}
