//! Requests that wait for a change of what they name (RFC 7240 §4.3): parked, and received again.

use std::sync::Arc;
use std::time::Duration;

use super::Exchange;
use crate::http::Response;
use crate::service::{Subject, Waits};
use crate::store::SharedList;

impl Exchange {
    /// How long the request prefers to wait for a change.
    fn wait_time(&self) -> Duration {
        Duration::from_secs(self.request().fields.prefer_wait.unwrap_or(0).into())
    }

    /// Whether the request may be parked.
    pub(super) fn may_wait(&self) -> bool {
        !self.wait_time().is_zero() && !self.http.reason().is_final()
    }

    /// Whether what the request waits for has changed, if it waits.
    pub(super) fn is_changed(&self, list: &SharedList) -> bool {
        self.known.wait.as_ref().is_some_and(|wait| wait.is_changed(list.number()))
    }

    /// Notes that the request waits for a change of this subject since a version.
    pub(super) fn waiting(mut self, waits: &Arc<Waits>, subject: Subject, seen: u64) -> Self {
        let wait = waits.add(self.http.arrival().worker, self.http.id(), subject, seen);
        self.known.wait = Some(Box::new(wait));
        self
    }

    /// Has the request received again when what it waits for has changed, or its time is over.
    pub(super) fn park(self) {
        let time = self.wait_time();
        let Self { mut http, known } = self;
        let since = known.wait.as_ref().expect("it waits for something").since;
        // Many may wait, for long. What the service reads of the fields is in `RequestFields`.
        http.drop_fields();
        http.keep(known);
        http.park(since + time);
    }

    /// Notes in a response how long its request has waited for a change, and `wait` as applied.
    pub(super) fn note_wait(&self, response: &mut Response) {
        let Some(wait) = &self.known.wait else { return };
        let space = if response.log_detail.is_empty() { "" } else { ", " };
        let waited = wait.since.elapsed().as_secs_f32();
        response.log_detail = format!("{}{space}waited {waited:.3} s", response.log_detail).into();
        response.applied_wait = self.request().fields.prefer_wait;
    }
}
