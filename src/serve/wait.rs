//! Requests that wait for a change of what they name (RFC 7240 §4.3): parked, and received again.

use std::sync::Arc;
use std::time::Duration;

use super::{Answered, Asked, Desk};
use crate::http::{RequestFields, Response};
use crate::service::{Subject, Thread, Wait};

/// What is kept of a request that is parked.
pub(super) struct Kept {
    fields: Option<Box<RequestFields>>,
    wait: Box<Wait>,
}

impl Kept {
    pub(super) fn with(self, http: bounded_http::Request) -> Asked {
        let Self { fields, wait } = self;
        Asked { http, fields, wait: Some(wait) }
    }
}

impl Desk {
    /// Has a request wait until what it names changes. Responds with 304 instead if it prefers no
    /// wait, or is received for the last time.
    pub(super) fn wait_for_change(
        self: &Arc<Self>,
        asked: Asked,
        subject: Subject,
        seen: u64,
        current: Response,
        thread: Thread,
    ) -> Answered {
        let seconds = asked.request().fields.prefer_wait.unwrap_or(0);
        if seconds == 0 || asked.http.reason().is_final() {
            return self.respond(asked, current.into_not_modified(), thread);
        }
        let Asked { mut http, fields, wait: Some(wait) } = asked else {
            let waits = &self.service.waits[asked.http.arrival().worker];
            let wait = waits.add(subject, asked.http.id(), seen);
            // A change may have come before it was added, so ask again.
            return self.answer(Asked { wait: Some(Box::new(wait)), ..asked }, thread);
        };
        let until = wait.since + Duration::from_secs(seconds.into());
        // Many may wait, for long. What the service reads of the fields is in `RequestFields`.
        http.drop_fields();
        http.keep(Kept { fields, wait });
        http.park(until);
        Answered::Later
    }
}

/// Notes in a response how long its request has waited for a change, and `wait` as applied.
pub(super) fn note_wait(asked: &Asked, response: Response) -> Response {
    let Some(wait) = &asked.wait else { return response };
    let space = if response.log_detail.is_empty() { "" } else { ", " };
    let waited = wait.since.elapsed().as_secs_f32();
    let log_detail = format!("{}{space}waited {waited:.3} s", response.log_detail).into();
    Response { log_detail, applied_wait: asked.request().fields.prefer_wait, ..response }
}
