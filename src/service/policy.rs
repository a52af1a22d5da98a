//! The service as the policy of the server: makes the server's own refusals, and counts and logs
//! responses.

use std::borrow::Cow;
use std::fmt;

use bounded_http::{Arrival, Closing, Head, Limits, Policy};
use tiny_http::StatusCode;

use super::{Service, access_log};
use crate::http::{Request, RequestFields, Response};
use crate::logging;
use crate::metrics::closing_label;
use crate::options::Options;

/// The message of a 500: when the service panics on a request, or drops it without an answer.
pub(crate) const FAILED: &str = "the service failed on this request, its log says where; a change \
    may have been made";

/// Memory of a content that becomes a list, as a multiple of its length: the content itself, the
/// colors (the shortest takes 97 bytes, and its JSON 23), what sorts their names, and the envelope.
const LIST_FACTOR: usize = 8;

/// What clients may use, by the options and what the process may use.
pub(crate) fn limits(options: &Options, connections_max: usize, buffers_max: usize) -> Limits {
    Limits {
        connections_max,
        buffers_max,
        request_timeout: options.request_timeout,
        keep_alive: options.keep_alive,
        content_max: options.max_body,
        content_factor: LIST_FACTOR,
    }
}

impl Service {
    /// Counts and logs a response, and makes it what the server sends. `request`: what could be
    /// parsed of it.
    pub(crate) fn finish(
        &self,
        request: Option<&Request<'_>>,
        arrival: Arrival,
        response: Response,
    ) -> bounded_http::Response {
        let method = request.map(|request| request.head.method());
        self.metrics.workers[arrival.worker].responses(method, response.status.0).inc();
        access_log::log(self, request, arrival, &response);
        response.into_sent(&self.common_fields(request))
    }

    /// The same for a refusal of what may not have arrived as a whole.
    fn finish_refusal(
        &self,
        head: Option<&Head>,
        arrival: Arrival,
        response: Response,
    ) -> bounded_http::Response {
        let fields = head.and_then(RequestFields::read);
        let request = head.map(|head| Request::new(head, fields.as_deref(), &[], arrival.listener));
        self.finish(request.as_ref(), arrival, response)
    }
}

impl Policy for Service {
    fn check_head(&self, head: &Head, arrival: Arrival) -> Result<(), bounded_http::Response> {
        let fields = RequestFields::read(head);
        let request = Request::new(head, fields.as_deref(), &[], arrival.listener);
        match Self::admit(self, &request) {
            Ok(_) => Ok(()),
            Err(refusal) => Err(self.finish_refusal(Some(head), arrival, refusal)),
        }
    }

    fn refuse(
        &self,
        head: Option<&Head>,
        arrival: Arrival,
        status: StatusCode,
        message: Cow<'static, str>,
    ) -> bounded_http::Response {
        let message = match status.0 {
            413 => format!("{message}; --max-body sets it").into(),
            500 => FAILED.into(),
            503 => "the service is overloaded, try again later".into(),
            _ => message,
        };
        self.finish_refusal(head, arrival, Response::error(status, message))
    }

    fn closed(&self, arrival: Arrival, reason: Closing) {
        self.metrics.workers[arrival.worker].closed(reason).inc();
        log::debug!("closed {}: {}", access_log::client(arrival.peer, None), closing_label(reason));
    }

    fn warn(&self, what: fmt::Arguments<'_>) {
        logging::CONNECTIONS.log(what);
    }
}
