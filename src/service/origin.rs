//! Protects against CSRF (a page of another origin has a visitor's browser send changes) and DNS
//! rebinding (a foreign host name leads to an address of this host). Browsers say which page a
//! request comes from. Other programs, such as curl, do not, and pass the check against CSRF. The
//! host is checked whoever asks.

use bounded_http::Head;
use tiny_http::StatusCode;

use crate::http::{RequestFields, Response, is_safe};
use crate::logging::excerpt;
use crate::options::Options;
use bounded_http::syntax::{host_has_name, host_name};

/// Refuses with 403 a request for a foreign host, if `checks_host`, and a change from a page of
/// another origin. `checks_host` is for listeners that DNS rebinding may reach.
pub(super) fn check(
    options: &Options,
    head: &Head,
    fields: &RequestFields,
    checks_host: bool,
) -> Result<(), Response> {
    if checks_host
        && head.needs_dns()
        && let Some(name) = head.host()
        && !options.allow_host.iter().any(|allowed| host_has_name(name, allowed))
    {
        return Err(foreign_host(host_name(name)));
    }
    // RFC 9110 §9.2.1: safe methods change nothing.
    if is_safe(head.method()) || may_change(options, head, fields) {
        Ok(())
    } else {
        Err(cross_origin(fields))
    }
}

/// The Origin of a request, if `--allow-origin` has it byte for byte.
pub(super) fn allowed_origin<'a>(options: &Options, fields: &'a RequestFields) -> Option<&'a str> {
    let origin = fields.origin.as_deref()?;
    options.allow_origin.iter().any(|allowed| allowed == origin).then_some(origin)
}

/// Whether a request is from a page of the service, from an allowed origin, from the user (`none`,
/// as when an address was typed), or from no browser. This follows `http.CrossOriginProtection` of
/// Go 1.25, which also takes an empty field for none; no browser sends one.
fn may_change(options: &Options, head: &Head, fields: &RequestFields) -> bool {
    match (given(&fields.sec_fetch_site), given(&fields.origin)) {
        (Some("same-origin" | "none"), _) | (None, None) => true,
        _ if allowed_origin(options, fields).is_some() => true,
        (None, Some(origin)) => {
            let host = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
            host.is_some() && host == head.host()
        }
        (Some(_), _) => false,
    }
}

/// The 403 for a change from a page of another origin. A page of the service may get it as well: if
/// the browser sends no Sec-Fetch-Site, and a proxy changes Host.
fn cross_origin(fields: &RequestFields) -> Response {
    let origin = given(&fields.origin).map_or("not given".to_owned(), excerpt);
    forbidden(
        "a page of another origin may not change the list; --allow-origin would allow that origin; \
         behind a proxy, have it keep Host",
        &format!("; the origin is {origin}"),
    )
}

/// The 403 for a foreign host name, which DNS rebinding may have led here.
fn foreign_host(host: &str) -> Response {
    forbidden(
        "the service does not have this host name; --allow-host would allow it",
        &format!("; the host is {}", excerpt(host)),
    )
}

/// A 403 with a message. Only the log has `detail` after it.
fn forbidden(message: &'static str, detail: &str) -> Response {
    let response = Response::error(StatusCode(403), message);
    Response { log_detail: format!("{message}{detail}").into(), ..response }
}

/// The value of a field, unless it is empty.
fn given(field: &Option<String>) -> Option<&str> {
    field.as_deref().filter(|value| !value.is_empty())
}

#[cfg(test)]
#[path = "origin_tests.rs"]
mod tests;
