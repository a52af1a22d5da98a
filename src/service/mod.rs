//! The HTTP contract: requests in, answers out. No sockets.

mod matcher;
mod origin;
mod page;
mod respond;
mod token;

pub(crate) use matcher::BasePath;
pub(crate) use origin::{Allowlist, parse_host, parse_origin};
pub(crate) use respond::{Answer, Arrival, Service, openapi};
pub(crate) use token::{Loaded, Tokens};
