//! The HTTP contract: requests in, answers out. No sockets.

mod access_log;
mod admission;
mod matcher;
mod monitoring;
mod openapi;
mod origin;
mod page;
mod policy;
mod respond;
mod token;
mod waits;

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use bounded_http::Handle;

pub(crate) use policy::{FAILED, limits};
pub(crate) use token::{Tokens, only_token};
pub(crate) use waits::{Wait, Waits};

use crate::follow_status::FollowStatus;
use crate::http::Response;
use crate::metrics::Metrics;
use crate::options::Options;
use crate::representation::Representation;
use crate::store::{Change, SharedList, StorageStatus};

/// What requests are answered from, and what the loop needs to have them answered.
pub(crate) struct Service {
    pub(crate) options: Arc<Options>,
    pub(crate) list: Arc<SharedList>,
    /// Whether changes can be saved. `None` for a list that is in memory alone.
    pub(crate) storage: Option<Arc<StorageStatus>>,
    /// The tokens of `--token-file`. `None` without it: then no request needs a token.
    pub(crate) tokens: Option<Tokens>,
    /// The service whose list this one has, if it follows one.
    pub(crate) followed: Option<Arc<FollowStatus>>,
    pub(crate) metrics: Metrics,
    /// For its state, which `/health` and `/metrics` tell, and to notify workers.
    pub(crate) server: Handle,
    pub(crate) waits: Arc<Waits>,
    /// Whether requests for foreign host names are refused, by the number of the listener.
    pub(crate) checks_host: Vec<bool>,
    pub(crate) documents: Documents,
}

/// What stays the same from the start to the end. Each is made when it is first asked for, in less
/// than a millisecond: without a browser, a service never needs the memory, some 215 KiB in all.
#[derive(Default)]
pub(crate) struct Documents {
    openapi: OnceLock<Representation>,
    page: OnceLock<Representation>,
    /// The script with which the page reads and writes files.
    page_files: OnceLock<Representation>,
}

#[cfg(any(test, fuzzing))]
impl Service {
    /// With a list in memory and one listener, whose host is not checked.
    pub(crate) fn in_memory(
        list: Arc<SharedList>,
        options: Options,
        tokens: Option<Tokens>,
        waits: Arc<Waits>,
        server: Handle,
    ) -> Self {
        Self {
            documents: Documents::default(),
            options: options.into(),
            list,
            storage: None,
            tokens,
            followed: None,
            metrics: Metrics::new(waits.workers()),
            server,
            waits,
            checks_host: vec![false],
        }
    }
}

/// Which thread asks the service.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Thread {
    /// A worker, for which others wait: what would take long is [`Decision::TakesLong`].
    Worker,
    /// The thread for answers that take long. An envelope that was read from the list since the
    /// request was queued is new enough.
    LongAnswers { queued_at: Instant },
}

/// What is to be done next with a request.
pub(crate) enum Decision {
    Respond(Response),
    /// What the client has is current, and it prefers to wait until this changes (RFC 7240 §4.3).
    Wait {
        subject: Subject,
        /// The number of the version of the list in which it is current.
        seen: u64,
        /// A 200 with what the client has; [`Response::into_not_modified`] makes it the 304.
        current: Response,
    },
    /// Nothing was done, since it would take long: ask again on [`Thread::LongAnswers`].
    TakesLong,
    /// The writer has to save this change: [`Store::submit`](crate::store::Store::submit).
    /// [`Service::response_to`] makes the response from the outcome.
    Save(Change),
}

/// What a client waits to see changed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Subject {
    List,
    /// The first color of this name.
    Color(Arc<str>),
}

#[cfg(test)]
#[path = "service/contract_tests.rs"]
mod tests;
