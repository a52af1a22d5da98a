//! A synchronous HTTP/1.1 server in the shape of tiny_http, with limits of time, memory and
//! connections. Knows nothing of what is served.

mod accept;
mod buffer;
mod chunked;
mod connection;
mod date;
mod head;
mod inbox;
mod limits;
mod output;
mod parser;
mod pass;
mod policy;
mod protocol_error;
mod request;
mod response;
mod shared;
mod slot;
pub(crate) mod syntax;
mod worker;

pub(crate) use accept::Acceptor;
pub(crate) use head::Head;
pub(crate) use limits::{
    Limits, buffers_max, connections_max, control_group_limit, raise_descriptor_limit,
};
pub(crate) use parser::Parser;
pub(crate) use policy::{Arrival, Closing, Policy};
pub(crate) use protocol_error::ProtocolError;
pub(crate) use request::{Reason, Request, respond_all};
pub(crate) use response::{Content, Response, SharedContent, push};
pub(crate) use shared::{Handle, Phase};
pub(crate) use worker::Worker;
