//! The HTTP contract: requests in, answers out. No sockets.

mod admission;
mod matcher;
mod monitoring;
mod openapi;
mod origin;
mod page;
mod respond;
#[cfg(test)]
#[path = "service/contract_tests.rs"]
mod tests;
mod token;

use std::sync::Arc;

pub(crate) use token::{LoadedTokens, Tokens, only_token};

use crate::follow_status::FollowStatus;
use crate::http::Response;
use crate::metrics::Metrics;
use crate::options::Options;
use crate::representation::Representation;
use crate::server_state::ServerState;
use crate::store::{Change, Store};

/// What requests are answered from. The server uses the same options, list, metrics and state.
pub(crate) struct Service {
    pub(crate) options: Arc<Options>,
    pub(crate) store: Store,
    /// A write needs one of these; `None` when everybody may write.
    pub(crate) tokens: Option<Tokens>,
    /// The service whose list this one has, if it follows one.
    followed: Option<Arc<FollowStatus>>,
    pub(crate) metrics: Metrics,
    pub(crate) state: Arc<ServerState>,
    /// The document that [`openapi::openapi`] returned for the base path.
    openapi: Arc<Representation>,
    page: Arc<Representation>,
}

impl Service {
    pub(crate) fn new(
        options: Arc<Options>,
        store: Store,
        tokens: Option<Tokens>,
        followed: Option<Arc<FollowStatus>>,
        state: Arc<ServerState>,
    ) -> Self {
        let metrics = Metrics::new(state.workers.len());
        let openapi = openapi::openapi(&options.base_path);
        let page = page::page(&options);
        Self { options, store, tokens, followed, metrics, state, openapi, page }
    }
}

/// What the server knows of a request besides its bytes.
#[derive(Clone, Copy)]
pub(crate) struct RequestContext {
    /// A request for a foreign host name is refused.
    pub(crate) checks_host: bool,
    /// No other client waits meanwhile. Otherwise an answer that takes long is
    /// [`Answer::TakesLong`].
    pub(crate) may_take_long: bool,
}

/// What comes of a request: a response, or what has to be done before there is one.
pub(crate) enum Answer {
    Ready(Response),
    /// The head of the request is refused.
    Refused(Response),
    /// What the client has is current, and it would rather wait for a change of this (RFC 7240
    /// §4.3). The response is a 304, for when nothing changes.
    Wait(Subject, Response),
    /// Nothing was done, since it would take long: ask again with
    /// [`RequestContext::may_take_long`], on a thread that no other client waits for.
    TakesLong,
    /// The writer has to save this change: [`Store::submit`]. [`Service::respond_to_outcome`] makes
    /// the response of what comes of it.
    Save(Change),
}

/// What has to change for a client that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    List,
    /// The first color of this name.
    Color(Box<str>),
}
