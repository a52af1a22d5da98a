//! HTTP/1.1 and HTTP/1.0 (RFC 9110, RFC 9112) without sockets: parses bytes to requests, and writes
//! the heads of responses as bytes. `parser`, `head`, `protocol_error`, `chunked` and `syntax` know
//! how messages are framed; `request` and `fields` know what the service reads of them.

mod chunked;
mod date;
mod fields;
mod head;
mod parser;
mod protocol_error;
mod request;
mod response;
mod syntax;

pub(crate) use date::{Date, rfc3339};
pub(crate) use head::Head;
pub(crate) use parser::Parser;
pub(crate) use protocol_error::ProtocolError;
pub(crate) use request::{Credentials, METHODS, ReceivedRequest, Request, RequestFields, is_safe};
pub(crate) use response::{Challenge, CommonFields, Content, MediaType, Response};
pub(crate) use syntax::{
    Host, has_valid_escapes, host_has_name, host_name, is_token, split_absolute_form,
};
