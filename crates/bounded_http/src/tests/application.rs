//! A small application for the tests of the server, and a client of it.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tiny_http::StatusCode;

use crate::head::Head;
use crate::limits::Limits;
use crate::policy::{Arrival, Closing, Policy};
use crate::request::{Reason, Request};
use crate::response::{Content, Response, SharedContent};
use crate::worker::QUEUE_TIME;

pub(super) const LIMITS: Limits = Limits {
    connections_max: 10,
    buffers_max: 10_000,
    request_timeout: Duration::from_secs(30),
    keep_alive: Duration::from_secs(75),
    content_max: 1_000,
    content_factor: 8,
};

/// How many bytes the content of `/current` has: more than a socket takes at once.
pub(super) const LONG: usize = 1_000_000;

/// Why connections were closed, and how often the system has refused something.
#[derive(Default)]
pub(super) struct Notes {
    closed: Mutex<Vec<Closing>>,
    pub(super) warnings: AtomicUsize,
    /// It panics whatever it is told.
    pub(super) panics: AtomicBool,
}

impl Notes {
    pub(super) fn closed(&self) -> Vec<Closing> {
        self.closed.lock().unwrap().clone()
    }

    fn panic_if_told(&self) {
        assert!(!self.panics.load(Relaxed), "on purpose");
    }
}

impl Policy for Notes {
    fn check_head(&self, head: &Head, _: Arrival) -> Result<(), Response> {
        match head.target() {
            "/forbidden" => Err(Response::empty(403)),
            "/panic" => panic!("on purpose"),
            _ => Ok(()),
        }
    }

    /// The content has the names of the fields.
    fn refuse(
        &self,
        head: Option<&Head>,
        _: Arrival,
        status: StatusCode,
        _: Cow<'static, str>,
    ) -> Response {
        self.panic_if_told();
        let mut text = "refused".to_owned();
        for (name, _) in head.iter().flat_map(|head| head.fields()) {
            text.push(' ');
            text.push_str(str::from_utf8(name).unwrap());
        }
        Response::from_data(text).with_status_code(status)
    }

    fn closed(&self, _: Arrival, reason: Closing) {
        self.closed.lock().unwrap().push(reason);
        self.panic_if_told();
    }

    fn warn(&self, _: fmt::Arguments<'_>) {
        self.warnings.fetch_add(1, Relaxed);
        self.panic_if_told();
    }
}

pub(super) struct Application {
    pub(super) notes: Arc<Notes>,
    /// The content of `/current`, in one line and many empty ones.
    pub(super) current: SharedContent,
    /// The requests for `/away` that are not answered yet.
    pub(super) away: Vec<Request>,
}

impl Application {
    pub(super) fn new() -> Self {
        let mut content = b"current".to_vec();
        content.resize(LONG, b'\n');
        let (notes, current) = (Arc::default(), SharedContent::new(content));
        Self { notes, current, away: Vec::new() }
    }

    /// Does with a request what its target says.
    pub(super) fn answer(&mut self, request: Request) {
        let is_new = request.reason() == Reason::New;
        let until = request.arrival().received_at + Duration::from_secs(60);
        let response = match request.url() {
            "/park" if is_new => return request.park(until),
            "/park-again" => return request.park(until),
            "/away" => return self.away.push(request),
            "/drop" => return drop(request),
            "/current" => Response::new(StatusCode(200), Content::Shared(self.current.clone())),
            "/slow" => {
                let begun = Instant::now();
                while begun.elapsed() <= QUEUE_TIME {}
                Response::empty(200)
            }
            "/last" => Response::from_data("last").closing(),
            "/lines" => Response::from_data([b'\n'; 1_000]),
            "/more-lines" => Response::from_data([b'\n'; 8_000]),
            _ => return respond(request).unwrap(),
        };
        request.respond(response).unwrap();
    }
}

/// Responds with the target, and with the reason unless the request is new.
pub(super) fn respond(request: Request) -> io::Result<()> {
    let text = match request.reason() {
        Reason::New => request.url().to_owned(),
        reason => format!("{} {reason:?}", request.url()),
    };
    request.respond(Response::from_data(text))
}

/// The other end of the socket of a connection. It never blocks.
pub(super) struct Client(pub(super) UnixStream);

impl Client {
    /// The socket is for the server.
    pub(super) fn new() -> (Self, OwnedFd) {
        let (client, socket) = UnixStream::pair().unwrap();
        client.set_nonblocking(true).unwrap();
        (Self(client), socket.into())
    }

    pub(super) fn send(&mut self, bytes: &str) {
        self.0.write_all(bytes.as_bytes()).unwrap();
    }

    /// What has come since the last call.
    pub(super) fn receive(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // It fails when there is nothing more yet.
        let _ = self.0.read_to_end(&mut bytes);
        bytes
    }

    /// The same, as [`describe`] does.
    pub(super) fn received(&mut self) -> Vec<String> {
        describe(&self.receive())
    }
}

/// Describes each response: its status, the first line of its content, and whether it is the last.
pub(super) fn describe(responses: &[u8]) -> Vec<String> {
    let responses = str::from_utf8(responses).unwrap().split("HTTP/1.1 ").skip(1);
    let describe = |response: &str| {
        let (head, content) = response.split_once("\r\n\r\n").unwrap();
        let is_last = head.contains("\r\nConnection: close");
        let last = if is_last { "close" } else { "" };
        let parts = [&head[..3], content.lines().next().unwrap_or_default(), last];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
    };
    responses.map(describe).collect()
}

pub(super) fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n")
}

/// A request with a content of this length.
pub(super) fn post(target: &str, length: usize) -> String {
    let content = "x".repeat(length);
    format!("POST {target} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{content}")
}
