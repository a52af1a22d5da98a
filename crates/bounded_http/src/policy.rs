//! What the application decides for the server, and what the server tells it.

use std::borrow::Cow;
use std::fmt;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use tiny_http::StatusCode;

use super::head::Head;
use super::response::{Content, Response};

/// Where and when a request has arrived.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// The number of the worker.
    pub worker: usize,
    /// The other end's address, if it is a TCP connection.
    pub peer: Option<SocketAddr>,
    /// The number of the listener that has accepted the connection.
    pub listener: usize,
    /// When the pass began in which the last bytes were received, or in which a parked request was
    /// received again. The application is not to blame for the time before that.
    pub received_at: Instant,
}

/// Why the server has closed a connection. Connections that their clients close, or that end with
/// their last response, have no reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// Its next request did not begin within the keep-alive time, or its first one in time.
    Idle,
    /// A request did not arrive as a whole in time.
    RequestTimeout,
    /// The client did not read a response in time.
    Unread,
    /// It was still being sent a content that nothing else refers to any more, when these took too
    /// much memory.
    OrphanedContent,
    /// The limit of connections or that of memory was reached, or epoll did not take the socket.
    NoRoom,
}

impl Closing {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; Self::NoRoom as usize + 1] =
        [Self::Idle, Self::RequestTimeout, Self::Unread, Self::OrphanedContent, Self::NoRoom];
}

/// The application, as far as the server asks it. The server calls it on the threads of workers,
/// on that of the acceptor, and where a request is dropped; it may have a lock meanwhile, for which
/// no thread waits. All of it may be left as it is: `()` is a policy.
pub trait Policy: Send + Sync {
    /// Looks at the head of a request whose content has not arrived, or for which there is no
    /// memory. If this fails, the response is sent, and the content is not read.
    fn check_head(&self, _head: &Head, _arrival: Arrival) -> Result<(), Response> {
        Ok(())
    }

    /// Makes the response with which the server refuses what has arrived. `head`: what could be
    /// parsed of it.
    fn refuse(
        &self,
        _head: Option<&Head>,
        _arrival: Arrival,
        status: StatusCode,
        message: Cow<'static, str>,
    ) -> Response {
        let mut response = Response::new(status, Content::Own(message.into_owned().into_bytes()));
        response.add_field_lines(["\r\nContent-Type: text/plain; charset=utf-8"]);
        response
    }

    /// A connection is closed.
    fn closed(&self, _arrival: Arrival, _reason: Closing) {}

    /// The system has refused something. Many such calls may come in a row.
    fn warn(&self, what: fmt::Arguments<'_>) {
        log::warn!("{what}");
    }
}

impl Policy for () {}

/// Tells the application something. If it panics, the thread that tells it goes on.
pub(super) fn tell(tell: impl FnOnce()) {
    // The panic hook has reported it.
    let _ = catch_unwind(AssertUnwindSafe(tell));
}
