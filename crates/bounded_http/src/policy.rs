//! What the application decides for the server, and what the server tells it.

use std::borrow::Cow;
use std::fmt;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use tiny_http::StatusCode;

use super::head::Head;
use super::response::{Content, Response};

/// Where and when a request has arrived. In [`Policy::closed`], that of the last one.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// The number of the worker: [`Worker::number`](super::Worker::number).
    pub worker: usize,
    /// The client's address, if it is a TCP connection.
    pub peer: Option<SocketAddr>,
    /// The number of the listener that has accepted the connection, by the order in
    /// [`Handle::start`](super::Handle::start).
    pub listener: usize,
    /// When its last bytes were received, or when it was received again. This is when the worker
    /// began its pass, so the request may have waited in the kernel's buffer before.
    pub received_at: Instant,
}

/// Why the server closes a connection, as [`Policy::closed`] is told. There is no reason if the
/// client has closed it, or if it ends with its last response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// No request has begun within [`Limits::keep_alive`](super::Limits::keep_alive), or, on a new
    /// connection, within [`Limits::request_timeout`](super::Limits::request_timeout).
    Idle,
    /// A request did not arrive as a whole within
    /// [`Limits::request_timeout`](super::Limits::request_timeout). It was refused with 408.
    RequestTimeout,
    /// The client has read nothing of a response for
    /// [`Limits::request_timeout`](super::Limits::request_timeout).
    Unread,
    /// The client was too slow to read a [`SharedContent`](super::SharedContent) that the
    /// application has dropped, while such contents took too much memory.
    OrphanedContent,
    /// The limit of connections or that of memory was reached, epoll(7) did not take the socket, or
    /// a request was parked that may not be.
    NoRoom,
}

impl Closing {
    /// All of them: `ALL[reason as usize]` is `reason`, for a table of counters.
    pub const ALL: [Self; Self::NoRoom as usize + 1] =
        [Self::Idle, Self::RequestTimeout, Self::Unread, Self::OrphanedContent, Self::NoRoom];
}

/// What the application decides besides its answers to requests. All methods have defaults, and
/// `()` is the policy that has them all.
///
/// The server calls them on the threads of workers, on that of the acceptor, and where a request is
/// dropped. They have to be quick: connections wait meanwhile.
pub trait Policy: Send + Sync {
    /// May refuse a request by its head, before its content takes time and memory. Then the
    /// response is sent, the rest of the request is dropped, and the connection closes.
    ///
    /// This is no access control. It is called only for a request whose content is still arriving,
    /// or for which there is no memory. A request that has arrived as a whole is received without
    /// it, so whatever is checked here has to be checked again there.
    fn check_head(&self, _head: &Head, _arrival: Arrival) -> Result<(), Response> {
        Ok(())
    }

    /// Makes the response with which the server itself refuses what has arrived: 400, 408, 413,
    /// 414, 417, 431, 501, 503 or 505, or 500 for a request that is dropped without an answer. By
    /// default, its content is the message.
    ///
    /// `head`: what could be parsed of it. `message`: for the author of the client, in lower case
    /// and without a full stop.
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

    /// The server closes a connection, for this reason. By default, does nothing.
    fn closed(&self, _arrival: Arrival, _reason: Closing) {}

    /// The system has refused something, such as to accept a connection. Many such calls may come
    /// in a row. By default, logs a warning.
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
