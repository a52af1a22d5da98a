//! `/health` and `/metrics`: how the service is.

use std::sync::Arc;

use tiny_http::StatusCode;

use super::Service;
use super::respond::read;
use crate::blob::Blob;
use crate::http::{Content, MediaType, Request, Response, rfc3339};
use crate::metrics::{DatabaseMetrics, Gauges};
use crate::server_state::Phase;
use crate::store::{DatabaseStatus, Followed};

impl Service {
    /// 200, or 503 with what is wrong. Tells what is known, and waits for nothing.
    pub(super) fn health(&self, request: &Request) -> Response {
        let store = &self.store;
        let is_stopping = self.server.phase() == Phase::Stopping;
        let stopping = || is_stopping.then(|| "stopping".to_owned());
        let followed = store.followed.as_deref();
        let fault = store.status().and_then(DatabaseStatus::fault);
        let fault = fault.or_else(|| followed.and_then(Followed::fault)).or_else(stopping);
        let mut health = serde_json::json!({
            "status": fault.as_deref().unwrap_or("ok"),
            "version": env!("BUILD_VERSION"),
            "colors": store.list.version().len(),
        });
        if let Some(status) = store.status() {
            health["saved"] = status.now().saved.map(rfc3339).into();
        }
        if let Some(followed) = followed {
            health["follows"] = followed.url.as_str().into();
            health["answered"] = followed.answered().map(rfc3339).into();
        }
        let text = format!("{health}\n").into_bytes();
        // RFC 9110 §13.2.1: conditions count only where the response would be a success without
        // them.
        match fault {
            None => read(request, &Arc::new(Blob::new(text))),
            Some(_) => Response::new(StatusCode(503), Content::Own(text)),
        }
    }

    pub(super) fn metrics(&self) -> Response {
        let status = self.store.status();
        let followed = self.store.followed.as_deref();
        let no_saves = DatabaseMetrics::default();
        let version = self.store.list.version();
        let text = self.metrics.exposition(&Gauges {
            connections: self.server.connections(),
            connections_max: self.server.connections_max,
            waiting: self.server.waiting(),
            colors: version.len(),
            list_bytes: version.envelope_len(),
            saves: status.map_or(&no_saves, |status| &status.metrics),
            answered: followed.and_then(Followed::answered),
            is_followed_up: followed.map(|followed| followed.fault().is_none()),
        });
        Response {
            media_type: MediaType::Metrics,
            ..Response::new(StatusCode(200), Content::Own(text.into_bytes()))
        }
    }
}
