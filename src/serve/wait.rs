//! Requests that wait for a change of what they name (RFC 7240 §4.3): parked, and received again.

use std::sync::Arc;
use std::time::Duration;

use super::{Answered, Asked};
use crate::http::{RequestFields, Response};
use crate::service::{Subject, Wait, Waits};

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

impl Asked {
    /// How long the request prefers to wait for a change.
    fn wait_time(&self) -> Duration {
        Duration::from_secs(self.request().fields.prefer_wait.unwrap_or(0).into())
    }

    /// Whether the request prefers to wait, and may be parked.
    pub(super) fn may_wait(&self) -> bool {
        !self.wait_time().is_zero() && !self.http.reason().is_final()
    }

    /// Notes that the request waits for a change of this subject since a version.
    pub(super) fn waiting(self, waits: &Arc<Waits>, subject: Subject, seen: u64) -> Self {
        let wait = waits.add(subject, self.http.id(), seen);
        Self { wait: Some(Box::new(wait)), ..self }
    }

    /// Has the request received again when what it waits for has changed, or its time is over.
    pub(super) fn park(self) -> Answered {
        let time = self.wait_time();
        let Self { mut http, fields, wait } = self;
        let wait = wait.expect("it waits for something");
        let until = wait.since + time;
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
