//! HTTP/1.1 (RFC 9110, RFC 9112) on values: bytes become requests, responses become bytes. Knows no
//! sockets.

mod chunked;
mod conditional;
mod date;
mod error;
#[cfg(fuzzing)]
#[path = "../../fuzz/inside/http.rs"]
pub(crate) mod fuzzing;
mod head;
mod host;
mod parser;
mod request;
mod response;
mod syntax;

pub(crate) use conditional::Conditions;
pub(crate) use date::Date;
pub(crate) use error::ProtocolError;
pub(crate) use host::Host;
pub(crate) use parser::Parser;
#[cfg(test)]
pub(crate) use request::Fields;
pub(crate) use request::{Credentials, Request};
pub(crate) use response::{
    CLOSES, Challenge, CommonFields, Content, Representation, Response, stays_open,
};
pub(crate) use syntax::{has_valid_escapes, split_absolute_form};
