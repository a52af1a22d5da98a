//! A request, and how it is answered from any thread.

use std::any::Any;
use std::fmt;
use std::io::{self, Cursor, Read};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Arc;
use std::time::Instant;

use tiny_http::{Method, StatusCode};

use super::head::Head;
use super::inbox::Mail;
use super::limits::Limits;
use super::output::AfterSend;
use super::policy::Arrival;
use super::response::{Content, Response};
use super::shared::Phase;
use super::slot::{Settled, Slot};

/// Why a request is received. All but the first are for requests that were parked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// For the first time.
    New,
    /// [`Worker::wake`](super::Worker::wake) was called for its connection.
    Woken,
    /// The time is over for which it was parked.
    TimeOver,
    /// The client has sent more, has ended its half of the connection, or does not read the
    /// responses before this one.
    ClientGoesOn,
    /// The server stops.
    Stopping,
    /// Its connection is needed for others, and closes after the response.
    Evicted,
}

impl Reason {
    /// Whether the request has to be answered now: all but [`Reason::New`] and [`Reason::Woken`].
    /// To park it closes the connection.
    pub fn is_final(self) -> bool {
        !matches!(self, Self::New | Self::Woken)
    }
}

/// A request that has arrived as a whole. It may be answered on any thread, and has no deadline: it
/// takes memory ([`Limits::buffers_max`](super::Limits::buffers_max)) and its connection until it
/// is answered. If it is dropped without an answer, as in a panic, the client gets a 500
/// ([`Policy::refuse`](super::Policy::refuse)).
pub struct Request {
    head: Head,
    content: Cursor<Vec<u8>>,
    reason: Reason,
    received_at: Instant,
    kept: Option<Box<dyn Any + Send>>,
    /// `None` once it is answered or parked.
    slot: Option<Arc<Slot>>,
}

impl Request {
    pub(super) fn new(head: Head, content: Vec<u8>, slot: Arc<Slot>, received_at: Instant) -> Self {
        Self {
            head,
            content: Cursor::new(content),
            reason: Reason::New,
            received_at,
            kept: None,
            slot: Some(slot),
        }
    }

    /// The head: method, target, host and fields.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// The method, as in tiny_http.
    pub fn method(&self) -> &Method {
        self.head.method()
    }

    /// The request target as received (RFC 9112 §3.2), as in tiny_http.
    pub fn url(&self) -> &str {
        self.head.target()
    }

    /// The content, without its transfer coding. Empty for GET, HEAD, DELETE and OPTIONS, for which
    /// content has no meaning (RFC 9110 §9.3).
    pub fn content(&self) -> &[u8] {
        self.content.get_ref()
    }

    /// Reads the content, as in tiny_http. It has arrived: this waits for nothing.
    pub fn as_reader(&mut self) -> &mut dyn Read {
        &mut self.content
    }

    /// The client's address, if it is a TCP connection.
    pub fn remote_addr(&self) -> Option<&SocketAddr> {
        self.slot().peer.as_ref()
    }

    /// Where and when it has arrived.
    pub fn arrival(&self) -> Arrival {
        self.slot().arrival(self.received_at)
    }

    /// The number of its connection, for [`Worker::wake`](super::Worker::wake). All requests of the
    /// connection have it, and no other connection ever does.
    pub fn id(&self) -> u64 {
        self.slot().id
    }

    /// Why it is received: for the first time, or why again.
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// Whether its connection is still open. A client that has gone is noticed only when something
    /// is sent or received.
    pub fn is_open(&self) -> bool {
        !self.slot().is_closed()
    }

    /// Frees the memory of the fields, before the request is parked for long. [`Head::fields`] then
    /// has none; method, target and host stay.
    pub fn drop_fields(&mut self) {
        self.head.drop_fields();
    }

    /// Keeps a value with the request, for when it is received again, in place of one that it keeps
    /// already. It is dropped with the request. Its memory does not count against any limit.
    pub fn keep(&mut self, value: impl Any + Send) {
        self.kept = Some(Box::new(value));
    }

    /// Takes what [`Request::keep`] has kept. `None` if it kept nothing, or another type.
    pub fn take_kept<T: Any>(&mut self) -> Option<Box<T>> {
        self.kept.take()?.downcast().ok()
    }

    /// Answers the request, and waits for nothing. The worker of the connection sends the response:
    /// now if its thread is in [`Worker::recv`] or [`Worker::wait`], otherwise when the thread
    /// calls [`Worker::recv`] or [`Worker::try_recv`] again, as it does after its own answers.
    ///
    /// # Errors
    ///
    /// If the connection is known to be closed. Otherwise the client may still go before it has the
    /// response, and nobody is told.
    ///
    /// [`Worker::recv`]: super::Worker::recv
    /// [`Worker::try_recv`]: super::Worker::try_recv
    /// [`Worker::wait`]: super::Worker::wait
    pub fn respond(mut self, response: Response) -> io::Result<()> {
        let (slot, answer) = self.answer(response);
        slot.settle(answer).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    /// Has the request received again, by the same worker: at this time, or earlier, as soon as
    /// there is another [`Reason`]. Meanwhile it takes its memory and its connection, but no
    /// thread.
    ///
    /// A request whose reason [is final](Reason::is_final) cannot be parked again: its connection
    /// closes without a response ([`Closing::NoRoom`](super::Closing::NoRoom)).
    pub fn park(mut self, until: Instant) {
        // Without it: whoever drops a parked request, as a connection that ends, answers nothing.
        let slot = self.slot.take().expect("it is there until it is settled");
        // Fails if the connection is closed: then it is dropped.
        let _ = slot.settle(Settled::Parked(Box::new(self), until));
    }

    /// For a request that was parked.
    pub(super) fn receive_again(&mut self, reason: Reason, slot: Arc<Slot>, now: Instant) {
        self.slot = Some(slot);
        self.reason = reason;
        self.received_at = now;
    }

    /// Bytes of memory that it counts for once it was parked.
    pub(super) fn memory(&self, limits: &Limits) -> usize {
        self.head.memory() + limits.content_factor * self.content().len()
    }

    /// Takes the slot, and makes what settles it.
    fn answer(&mut self, response: Response) -> (Arc<Slot>, Settled) {
        let slot = self.slot.take().expect("it is there until it is settled");
        let then = match slot.quota.shared.phase() {
            _ if response.is_last() => AfterSend::Linger,
            _ if !self.head.keep_alive() || self.reason == Reason::Evicted => AfterSend::Close,
            // The client does not know yet that this is the last response, and may be sending its
            // next request.
            Phase::AboveLimit | Phase::Stopping => AfterSend::Linger,
            Phase::Serving => AfterSend::Resume,
        };
        (slot, Settled::Answer { response, is_head: self.head.is_head(), then })
    }

    fn slot(&self) -> &Arc<Slot> {
        self.slot.as_ref().expect("it is there until it is settled")
    }
}

/// Answers several requests, as [`Request::respond`] does, but ignores clients that have gone.
/// Wakes a worker only once for those of its requests that come one after the other.
pub fn respond_all(answers: impl IntoIterator<Item = (Request, Response)>) {
    let mut posts = Posts(Vec::new());
    for (mut request, response) in answers {
        let (slot, answer) = request.answer(response);
        let Ok(Some(mail)) = slot.settle_without_post(answer) else { continue };
        match posts.0.last_mut() {
            Some((last, mails)) if ptr::eq(last.inbox(), slot.inbox()) => mails.push(mail),
            _ => posts.0.push((slot, vec![mail])),
        }
    }
}

/// Mail for the workers of these connections. It is posted when this is dropped, also by a panic of
/// whoever makes the answers.
struct Posts(Vec<(Arc<Slot>, Vec<Mail>)>);

impl Drop for Posts {
    fn drop(&mut self) {
        self.0.drain(..).for_each(|(slot, mails)| slot.inbox().post_all(mails));
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        let Some(slot) = self.slot.as_ref().filter(|slot| !slot.is_closed()) else { return };
        let Some(policy) = slot.quota.shared.policy() else { return };
        let arrival = slot.arrival(self.received_at);
        let message = "the server failed on this request".into();
        let head = Some(&self.head);
        // A panic may have dropped the request: a second one would end the process.
        let refuse = || policy.refuse(head, arrival, StatusCode(500), message);
        let response = catch_unwind(AssertUnwindSafe(refuse))
            .unwrap_or_else(|_| Response::new(StatusCode(500), Content::None));
        let (slot, answer) = self.answer(response);
        // Fails if the connection is closed: then nobody waits for it.
        let _ = slot.settle(answer);
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method(), self.url())
    }
}
