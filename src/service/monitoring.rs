//! `/health` and `/metrics`: how the service is.

use std::sync::Arc;
use std::time::SystemTime;

use time::format_description::well_known::Rfc3339;

use super::Service;
use super::respond::read;
use crate::blob::Blob;
use crate::http::{Content, MediaType, Request, Response, StatusCode, utc};
use crate::metrics::{DatabaseMetrics, Gauges};
use crate::server_state::Phase;
use crate::store::DatabaseStatus;

impl Service {
    /// 200, or 503 with what is wrong. Tells what is known, and waits for nothing.
    pub(super) fn health(&self, request: &Request) -> Response {
        let store = &self.store;
        let is_stopping = self.server.phase() == Phase::Stopping;
        let stopping = || is_stopping.then(|| "stopping".to_owned());
        let fault = store.status().and_then(DatabaseStatus::fault).or_else(stopping);
        let mut health = serde_json::json!({
            "status": fault.as_deref().unwrap_or("ok"),
            "version": env!("BUILD_VERSION"),
            "colors": store.list.version().len(),
        });
        if let Some(status) = store.status() {
            health["saved"] = status.now().saved.map(rfc3339).into();
        }
        let text = format!("{health}\n").into_bytes();
        // RFC 9110 §13.2.1: conditions count only where the response would be a success without
        // them.
        match fault {
            None => read(request, &Arc::new(Blob::new(text))),
            Some(_) => Response::new(StatusCode::ServiceUnavailable, Content::Own(text)),
        }
    }

    pub(super) fn metrics(&self) -> Response {
        let status = self.store.status();
        let no_saves = DatabaseMetrics::default();
        let version = self.store.list.version();
        let text = self.metrics.exposition(&Gauges {
            connections: self.server.connections(),
            connections_max: self.server.connections_max,
            waiting: self.server.waiting(),
            colors: version.len(),
            list_bytes: version.envelope_len(),
            saves: status.map_or(&no_saves, |status| &status.metrics),
        });
        Response {
            media_type: MediaType::Metrics,
            ..Response::new(StatusCode::Ok, Content::Own(text.into_bytes()))
        }
    }
}

/// A time in UTC and whole seconds, as in `1994-11-06T08:49:37Z`.
fn rfc3339(time: SystemTime) -> String {
    let time = utc(time).truncate_to_second();
    time.format(&Rfc3339).expect("its year has four digits")
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn a_time_of_json_is_utc_in_seconds() {
        let time = UNIX_EPOCH + Duration::from_millis(784_111_777_900);
        assert_eq!(rfc3339(time), "1994-11-06T08:49:37Z");
    }
}
