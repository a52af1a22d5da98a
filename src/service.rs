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

use crate::blob::Blob;
use crate::http::Response;
use crate::metrics::Metrics;
use crate::options::Options;
use crate::server_state::ServerState;
use crate::store::{Change, DatabaseError, Outcome, Store};

/// What requests are answered from.
pub(crate) struct Service {
    pub(crate) store: Store,
    pub(crate) options: Arc<Options>,
    /// A write needs one of these; `None` when everybody may write.
    pub(crate) tokens: Option<Tokens>,
    /// The document that [`openapi::openapi`] returned for the base path.
    openapi: Arc<Blob>,
    page: Arc<Blob>,
    pub(crate) metrics: Metrics,
    pub(crate) server: Arc<ServerState>,
}

impl Service {
    pub(crate) fn new(
        store: Store,
        options: Arc<Options>,
        tokens: Option<Tokens>,
        server: Arc<ServerState>,
    ) -> Self {
        let metrics = Metrics::new(server.workers.len());
        let openapi = openapi::openapi(&options.base_path);
        let page = page::page(&options);
        Self { store, options, tokens, openapi, page, metrics, server }
    }
}

/// What the server knows of a request besides its bytes.
#[derive(Clone, Copy)]
pub(crate) struct RequestContext {
    /// A request for a foreign host name is refused.
    pub(crate) checks_host: bool,
    /// No other client waits meanwhile. Otherwise an answer that takes long is
    /// [`Answer::OnPool`].
    pub(crate) may_take_long: bool,
}

/// What comes of a request: a response, or what has to be done before there is one.
pub(crate) enum Answer {
    Ready(Response),
    /// The head of the request is refused.
    Refused(Response),
    /// What the client has is current, and it would rather wait for a change.
    Wait(Box<LongPoll>),
    /// Nothing was done, since it would take long: ask again with
    /// [`RequestContext::may_take_long`], on a thread that no other client waits for.
    OnPool,
    /// The writer has to save this change: [`Store::submit`].
    Save(Change),
    /// What the writer says of it. [`Service::respond_to_outcome`] makes the response.
    Saved(Result<Outcome, DatabaseError>),
}

/// A read that is to wait until its representation changes (RFC 7240 §4.3).
#[derive(Debug)]
pub(crate) struct LongPoll {
    /// What the client waits for.
    pub(crate) subject: Subject,
    /// How long it waits: at most 300 s.
    pub(crate) seconds: u16,
    /// The response when nothing changes.
    pub(crate) not_modified: Response,
}

/// What has to change for a client that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    List,
    /// The first color of this name.
    Color(Box<str>),
}
