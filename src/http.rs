//! HTTP/1.1 and HTTP/1.0 (RFC 9110, RFC 9112) without sockets: parses bytes to requests, and writes
//! the heads of responses as bytes.

mod chunked;
mod date;
mod head;
mod parser;
mod protocol_error;
mod request;
mod response;
mod syntax;

pub(crate) use date::{Date, rfc3339};
pub(crate) use parser::Parser;
pub(crate) use protocol_error::ProtocolError;
#[cfg(test)]
pub(crate) use request::RequestFields;
pub(crate) use request::{Credentials, METHODS, Request, is_safe};
pub(crate) use response::{Challenge, CommonFields, Content, MediaType, Response};
pub(crate) use syntax::{
    Host, has_valid_escapes, host_has_name, host_name, is_token, split_absolute_form,
};
