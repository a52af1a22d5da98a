//! The contract: requests in, answers out. No sockets.

mod origin;
mod respond;
mod target;
mod token;

pub(crate) use origin::{Exemptions, parse_host, parse_origin};
pub(crate) use respond::{Answer, Service};
pub(crate) use target::BasePath;
pub(crate) use token::{TokenFileError, Tokens};
