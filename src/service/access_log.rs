//! What the log says of a response: a line of the access log, and a warning about a wrong token or
//! a 403.

use std::net::{IpAddr, SocketAddr};

use bounded_http::Arrival;
use tiny_http::{Method, StatusCode};

use super::Service;
use crate::http::{Challenge, Request, Response};
use crate::logging::{self, excerpt};
use crate::options::AccessLog;

/// Logs a response. With the access log: the name of the token, client, method, path, status, bytes
/// of content, microseconds since it was received, and the reason of an error or what a change has
/// made. What the access log leaves out is logged at debug if it is an error, or a PUT that has
/// changed nothing.
///
/// `request`: `None` if not even the method is known.
pub(super) fn log(
    service: &Service,
    request: Option<&Request<'_>>,
    arrival: Arrival,
    response: &Response,
) {
    let peer = arrival.peer;
    let client = || client(peer, request.and_then(|request| request.fields.forwarded_for));
    let status = response.status.0;
    let detail = &response.log_detail;
    if matches!(response.challenge, Some(Challenge::InvalidToken | Challenge::SeveralWords)) {
        logging::WRONG_TOKENS.log(format_args!("a wrong token from {}", client()));
    } else if response.status == StatusCode(403) {
        logging::FORBIDDEN.log(format_args!("{detail}"));
    }
    let is_logged = match service.options.access_log {
        AccessLog::All => true,
        AccessLog::Changes => response.is_change,
        AccessLog::None => false,
    };
    let is_error = status >= 400;
    let is_put = || request.is_some_and(|request| *request.head.method() == Method::Put);
    let is_debugged = log::log_enabled!(log::Level::Debug)
        && (is_error || status == 200 && !response.is_change && is_put());
    if !is_logged && !is_debugged {
        return;
    }
    // The query is left out: it may have a token (RFC 6750 §2.3), which does not belong in a log.
    let path = |request: &Request| {
        let path = request.head.target().split('?').next().unwrap_or_default();
        format!("{} {}", request.head.method(), excerpt(path))
    };
    let what = request.map_or_else(|| "-".to_owned(), path);
    if !is_logged {
        let verb = if is_error { "refused" } else { "answered" };
        return log::debug!("{verb} {} {what} with {status}: {detail}", client());
    }
    let taken = arrival.received_at.elapsed().as_micros();
    let token = request.and_then(|request| service.token_name(request));
    let token = token.map(|name| format!("{name}@")).unwrap_or_default();
    let space = if detail.is_empty() { "" } else { " " };
    let is_head = request.is_some_and(|request| request.head.is_head());
    let bytes = if is_head { 0 } else { response.content.bytes().len() };
    log::info!("{token}{} {what} {status} {bytes} {taken}us{space}{detail}", client());
}

/// Whom a request is from. Every client can send X-Forwarded-For, so this field counts only on a
/// unix socket, whose permissions let the proxy alone connect.
pub(super) fn client(peer: Option<SocketAddr>, forwarded_for: Option<IpAddr>) -> String {
    match (peer, forwarded_for) {
        (Some(peer), _) => peer.to_string(),
        (None, Some(address)) => address.to_string(),
        (None, None) => "unix".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_unix_socket_is_believed() {
        let (peer, forwarded_for) =
            ("198.51.100.7:50000".parse().unwrap(), "203.0.113.9".parse().unwrap());
        assert_eq!(client(Some(peer), Some(forwarded_for)), "198.51.100.7:50000");
        assert_eq!(client(None, Some(forwarded_for)), "203.0.113.9");
        assert_eq!(client(None, None), "unix");
    }
}
