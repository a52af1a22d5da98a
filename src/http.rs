//! Requests and responses as the service sees them, in the terms of RFC 9110.

mod date;
mod fields;
mod request;
mod response;

pub(crate) use date::rfc3339;
#[cfg(test)]
pub(crate) use request::TestRequest;
pub(crate) use request::{Credentials, METHODS, Request, RequestFields, is_safe};
pub(crate) use response::{Challenge, CommonFields, MediaType, Response};
