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
//!     // Fails if the client has gone, which does not concern the others.
//!     let _ = request.respond(Response::from_string(text));
//! }
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! ```
//!
//! # Several threads
//!
//! A [`Handle`] is a server of several threads. [`Handle::start`] gives a [`Worker`] for each of
//! them, and an [`Acceptor`], which passes new connections to the worker that has the fewest. This
//! program serves with four threads until `stop` is written to or dropped:
//!
//! ```
//! use std::net::TcpListener;
//! use std::os::fd::AsFd;
//! use std::os::unix::net::UnixStream;
//! use std::sync::Arc;
//! use std::thread;
//! use std::time::{Duration, Instant};
//!
//! use bounded_http::{Handle, Limits, Response, Worker};
//!
//! # fn main() -> std::io::Result<()> {
//! let listener = TcpListener::bind("127.0.0.1:0")?;
//! listener.set_nonblocking(true)?;
//! # let address = listener.local_addr()?;
//! let (acceptor, workers) =
//!     Handle::new(4, Limits::default())?.start(Arc::new(()), vec![listener])?;
//! let serve = |mut worker: Worker| {
//!     thread::spawn(move || {
//!         while let Some(request) = worker.recv() {
//!             let response = Response::from_string(format!("thread {}\n", worker.number()));
//!             let _ = request.respond(response);
//!         }
//!     })
//! };
//! let threads: Vec<_> = workers.into_iter().map(serve).collect();
//!
//! let (stop, stopped) = UnixStream::pair()?;
//! # let client = thread::spawn(move || {
//! #     use std::io::{Read, Write};
//! #     let mut socket = std::net::TcpStream::connect(address).unwrap();
//! #     socket.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
//! #     let mut response = String::new();
//! #     socket.read_to_string(&mut response).unwrap();
//! #     assert!(response.ends_with("\r\n\r\nthread 0\n"), "{response}");
//! #     drop(stop);
//! # });
//! while !acceptor.accept(&[stopped.as_fd()], None)?[0] {}
//! let connections_left = acceptor.stop(Instant::now() + Duration::from_secs(5));
//! // A request without an answer keeps its worker: then exit without waiting for the threads.
//! if connections_left == 0 {
//!     threads.into_iter().for_each(|thread| thread.join().expect("it did not panic"));
//! }
//! # client.join().unwrap();
//! # assert_eq!(connections_left, 0);
//! # Ok(())
//! # }
//! ```
//!
//! # Requests are pulled
//!
//! A worker runs an epoll loop over connections of its own, inside [`Worker::recv`]: there is no
//! hand-off, and no thread for a connection. It gives out a [`Request`] once all of it has arrived.
//!
//! - While a thread works on a request, the other connections of its worker wait, and the response
//!   is sent by the next call of `recv`. What takes long belongs on another thread: a request may
//!   go to any, and is answered there by the same [`Request::respond`].
//! - A request that has to wait for an event is parked ([`Request::park`]), which takes no thread,
//!   and received again with a [`Reason`].
//! - To do something once for many requests, such as a commit, take them by [`Worker::try_recv`]
//!   until there are none, and then [`Worker::wait`].
//!
//! # What is limited
//!
//! No client can stop the others, or have memory grow without bound ([`Limits`]):
//!
//! - A request that does not arrive in time is refused with 408. A client that does not read, or
//!   that sends no further request, is disconnected.
//! - A head has at most 64 KiB and 100 fields (431, or 414 for the request line), a content at most
//!   [`Limits::content_max`] (413).
//! - All buffers together take at most [`Limits::buffers_max`]: beyond it, requests get a 503, and
//!   clients that do not read are disconnected. Requests of up to 4 KiB are served nevertheless.
//! - Above [`Limits::connections_max`], connections that have stalled for half a second make room
//!   for new ones; until then, a few more are served and closed.
//!
//! What is not HTTP/1.1 or 1.0 (RFC 9112) is refused: no field is read in two ways. A [`Policy`]
//! words these refusals, may refuse a request by its head before its content is received, and hears
//! why connections are closed.
//!
//! # From tiny_http
//!
//! These are the same, so that many a program changes only its `use`:
//!
//! - of [`Server`]: `http`, `from_listener` with the limits in place of TLS, `recv` and
//!   `num_connections`;
//! - of [`Request`]: `method`, `url`, `remote_addr`, `as_reader` and `respond`;
//! - of [`Response`]: `from_data`, `from_string`, `empty`, `with_status_code`, `with_header` and
//!   `boxed`; and [`Header`], [`Method`] and [`StatusCode`] themselves.
//!
//! `headers` is [`Head::fields`] here. Whoever needs `try_recv`, `unblock`, `server_addr` or a unix
//! socket uses a [`Handle`]. There are no iterators over requests, files, streams, upgrades or TLS.
//!
//! Linux alone: it needs epoll(7) and eventfd(2).
//!
//! [tiny_http]: https://docs.rs/tiny_http

// The files:
//
// - `accept` takes connections from the kernel, `worker` has the event loop, `busy_poll` says when
//   it looks for events before it sleeps, and `inbox` is how other threads reach it. `server` has
//   all of these in one, as in tiny_http.
// - `connection` is the state machine of a connection, with its deadlines; `pass` is what it needs
//   of its worker, `output` what it has to send.
// - `request` and `response` are what the application gets and gives; `slot` is where a connection
//   finds the answer.
// - `parser` makes heads (`head`) and contents (`chunked`) of bytes, or a `protocol_error`;
//   `syntax` has pieces of the grammar.
// - `limits` is what clients may use, and each connection's part of it; `policy` is what the
//   application decides; `shared` is what all share, with the locks; `buffer` and `date` save
//   work.

#![forbid(unsafe_code)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod accept;
mod buffer;
mod busy_poll;
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
#[path = "tests/application.rs"]
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
