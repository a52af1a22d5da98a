//! A synchronous HTTP/1.1 server in the shape of [tiny_http], with limits of time, memory and
//! connections. It knows nothing of what is served.
//!
//! ```no_run
//! use bounded_http::{Response, Server};
//!
//! let server = Server::http("127.0.0.1:8080")?;
//! loop {
//!     let request = server.recv()?;
//!     let text = format!("{} {}\n", request.method(), request.url());
//!     request.respond(Response::from_string(text))?;
//! }
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! ```
//!
//! # Requests are pulled
//!
//! A program with several threads gives each its own [`Worker`] ([`Handle::start`]), and the thread
//! takes requests from it: by [`Worker::recv`], or, where it does something once for many requests,
//! by [`Worker::try_recv`] until that has none, and then [`Worker::wait`]. Inside, the thread runs
//! an epoll loop over its own connections: there is no hand-off, and no thread for a connection. A
//! [`Request`] is given out once all of it has arrived. It may go to any thread, and is answered
//! there by the same [`Request::respond`]. One that has to wait is parked ([`Request::park`]), and
//! is received again, with a [`Reason`].
//!
//! # What is limited
//!
//! No client can stop the others, or have memory grow without bound ([`Limits`]):
//!
//! - A request that does not arrive in time is refused with 408. A client that does not read, or
//!   that sends no further request, is disconnected.
//! - A head has at most 64 KiB and 100 fields (431), a content at most [`Limits::content_max`]
//!   (413).
//! - All buffers together take at most [`Limits::buffers_max`]: beyond it, requests get a 503, and
//!   clients that do not read are disconnected. Small requests are served nevertheless.
//! - Above [`Limits::connections_max`], connections that have stalled for half a second make room
//!   for new ones; until then, a few more are served and closed.
//!
//! What is not HTTP/1.1 or 1.0 (RFC 9112) is refused: no field is read in two ways. A [`Policy`]
//! may refuse a request by its head, before its content is received.
//!
//! # Inside
//!
//! - `accept` takes connections from the kernel, `worker` has the event loop, and `inbox` is how
//!   other threads reach it. `server` has all three in one, as in tiny_http.
//! - `connection` is the state machine of a connection, with its deadlines; `pass` is what it needs
//!   of its worker, `output` what it has to send.
//! - `request` and `response` are what the application gets and gives; `slot` is where a connection
//!   finds the answer.
//! - `parser` makes heads (`head`) and contents (`chunked`) of bytes, or a `protocol_error`;
//!   `syntax` has pieces of the grammar.
//! - `limits` is what clients may use, and each connection's part of it; `policy` is what the
//!   application decides; `shared` is what all share, with the locks; `buffer` and `date` save
//!   work.
//!
//! Linux alone: it needs epoll(7) and eventfd(2).
//!
//! [tiny_http]: https://docs.rs/tiny_http

#![forbid(unsafe_code)]

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
mod server;
mod shared;
mod slot;
pub mod syntax;
#[cfg(test)]
mod test_application;
mod worker;

pub use accept::Acceptor;
pub use head::Head;
pub use limits::{
    Limits, buffers_within, connections_within, control_group_limit, raise_descriptor_limit,
};
// Not for applications, and may change: for fuzzing, and for tests that need a `Head`.
#[doc(hidden)]
pub use parser::Parser;
pub use policy::{Arrival, Closing, Policy};
#[doc(hidden)]
pub use protocol_error::ProtocolError;
pub use request::{Reason, Request, respond_all};
pub use response::{Content, Response, ResponseBox, SharedContent};
pub use server::Server;
pub use shared::{Handle, Phase};
pub use tiny_http::{Header, HeaderField, Method, StatusCode};
pub use worker::Worker;
