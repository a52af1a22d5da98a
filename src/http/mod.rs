//! RFC 9110 and 9112 on values: bytes become requests, responses become bytes. Knows no sockets and no colors.

mod chunked;
pub(crate) mod conditional;
mod date;
mod error;
mod head;
mod parser;
mod request;
mod response;

pub(crate) use error::ProtocolError;
pub(crate) use head::split_absolute_form;
pub(crate) use parser::{Parser, Step};
pub(crate) use request::{Credentials, Fields, Request};
pub(crate) use response::{Challenge, Content, Cors, EntityTag, Representation, Response};
