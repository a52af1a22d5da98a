//! What the fuzz target `connection` checks: bytes in, bytes out, by a real connection over a pair
//! of sockets, with a list in memory.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use log::{Log, Metadata, Record};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use serde_json::Value;
use threadpool::ThreadPool;

use super::Shared;
use super::connection::{Connection, Event, LoopContext, Next};
use super::inbox::{Inbox, Mail};
use super::limits::{Limits, Quota};
use crate::http::fuzzing::fill;
use crate::http::fuzzing::reference::{self, PlainEnd, PlainRequest};
use crate::metrics::{Closing, Metrics};
use crate::service::{AccessLog, Allowlist, BasePath, Phase, Service, ServiceOptions, Tokens};
use crate::store::{Colors, Store, json};

const CONTENT_MAX: usize = 20_000; // bytes; the filling of an input is a little shorter

/// Bytes that the client writes at a time, at most.
const WRITE_BYTES: usize = 16 * 1024;

const FIELDS: [&str; 22] = [
    "Access-Control-Allow-Headers",
    "Access-Control-Allow-Methods",
    "Access-Control-Allow-Origin",
    "Access-Control-Expose-Headers",
    "Access-Control-Max-Age",
    "Allow",
    "Cache-Control",
    "Accept-Encoding",
    "Connection",
    "Keep-Alive",
    "Content-Length",
    "Content-Security-Policy",
    "Content-Type",
    "Cross-Origin-Resource-Policy",
    "Date",
    "ETag",
    "Location",
    "Preference-Applied",
    "Referrer-Policy",
    "Vary",
    "WWW-Authenticate",
    "X-Frame-Options",
];

/// A response without what differs from one to the next: its Date, and the figures of the metrics.
#[derive(Debug, PartialEq, Eq)]
struct Received {
    status: u16,
    fields: Vec<(String, String)>,
    content: Vec<u8>,
}

/// Formats every line, and checks that none of it ends the line or steers a terminal.
struct CheckingLog;

impl Log for CheckingLog {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let line = record.args().to_string();
        assert!(!line.contains(char::is_control), "{line:?}");
    }

    fn flush(&self) {}
}

/// Whatever a client sends, in whatever pieces, the service answers each request of it, says the
/// same, and closes cleanly.
pub fn connection(data: &[u8]) {
    // It is set already from the second input on.
    let _ = log::set_logger(&CheckingLog).map(|()| log::set_max_level(log::LevelFilter::Trace));
    let bytes = fill(data);
    let (requests, end) = reference::requests(&bytes, CONTENT_MAX);
    let whole = talk(&open_service(), [&bytes[..]], false);
    let responses = check(&whole, &requests, end);
    let split = talk(&open_service(), pieces(&bytes), false);
    assert_eq!(check(&split, &requests, end), responses, "in pieces");
    check(&talk(&strict_service(), [&bytes[..]], true), &requests, end);
}

/// The bytes in pieces of 1 to 64 bytes, or of more if there are many. The sizes follow from the
/// bytes.
fn pieces(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut state = bytes
        .iter()
        .fold(bytes.len(), |state, byte| state.wrapping_mul(31).wrapping_add(usize::from(*byte)));
    let mut rest = bytes;
    std::iter::from_fn(move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let size = 1 + (state >> 33) % 64.max(bytes.len() / 100);
        let piece;
        (piece, rest) = rest.split_at(size.min(rest.len()));
        (!piece.is_empty()).then_some(piece)
    })
}

fn open_service() -> Arc<Shared> {
    service("", Allowlist { origins: vec!["http://a".to_owned()], hosts: vec![] }, None)
}

/// On a loopback address, below a base path, and with tokens of which nobody has one.
fn strict_service() -> Arc<Shared> {
    service("/a", Allowlist::default(), Some(Tokens::new(Path::new("/dev/null"), true)))
}

fn service(base: &str, allowlist: Allowlist, tokens: Option<Tokens>) -> Arc<Shared> {
    let options = ServiceOptions {
        base: BasePath::parse(base).expect("it is one"),
        read_only: false,
        access_log: AccessLog::All,
        allowlist,
        tokens,
    };
    let store = Store::in_memory(list(), 32 << 20);
    let service = Service::new(store, options, Metrics::new(1, 10));
    let time = Duration::from_secs(60);
    let limits = Limits {
        content_max: CONTENT_MAX,
        request_timeout: time,
        keep_alive: time,
        memory_max: 32 << 20,
    };
    Arc::new(Shared::new(service, limits))
}

/// Two colors of one name, and one that is sent from where it is kept.
fn list() -> Colors {
    let file = format!(
        r#"[{{"name":"a","value":"1"}},{{"name":"a","value":"2"}},{{"name":"b","value":"{}"}}]"#,
        "x".repeat(2000)
    );
    json::from_list(file.as_bytes()).expect("these are colors")
}

/// Sends the pieces one after the other, each when the one before was served, and then ends. Gives
/// all that was received.
fn talk<'a>(
    shared: &Arc<Shared>,
    pieces: impl IntoIterator<Item = &'a [u8]>,
    on_loopback: bool,
) -> Vec<u8> {
    let (client, socket) = UnixStream::pair().expect("the process has descriptors");
    // small, so that it fills up
    rustix::net::sockopt::set_socket_send_buffer_size(&socket, 1).expect("it is a socket");
    let quota = Quota::new(Arc::clone(shared), 0);
    let connection =
        Connection::new(OwnedFd::from(socket), None, on_loopback, quota, Instant::now());
    let inbox = Inbox::new(0, Arc::clone(shared), ThreadPool::new(1));
    let inbox = &Arc::new(inbox.expect("the process has descriptors"));
    let (mut connection, mut output) = (Some(connection), Vec::new());
    for mut piece in pieces {
        while !piece.is_empty() && connection.is_some() {
            let sent = send(
                &client,
                &piece[..piece.len().min(WRITE_BYTES)],
                SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
            );
            piece =
                &piece[sent.expect("the connection is open, and has read what was sent before")..];
            connection = serve(connection, inbox, &client, &mut output);
        }
    }
    if connection.is_some() {
        shutdown(&client, Shutdown::Write).expect("it is open");
        let connection = serve(connection, inbox, &client, &mut output);
        assert!(connection.is_none(), "the connection stays open after its end");
    }
    let is_whole = receive(&client, &mut output);
    assert!(is_whole, "the connection has no end");
    output
}

/// Does what a worker does until nothing is left to receive. `None` when the connection is closed.
fn serve(
    connection: Option<Connection>,
    inbox: &Arc<Inbox>,
    client: &UnixStream,
    output: &mut Vec<u8>,
) -> Option<Connection> {
    let (mut connection, mut event, now) = (connection?, Event::Ready, Instant::now());
    let (shared, scratch) = (&inbox.shared, &mut [0; 8192]);
    let counters = &shared.service.metrics.workers[0];
    let (id, date, answered) = (1, "", 0);
    let phase = Phase::Serving;
    let mut context =
        LoopContext { shared, inbox, id, counters, phase, now, date, scratch, answered };
    loop {
        let next = connection.advance(event, &mut context);
        let before = output.len();
        let _ = receive(client, output);
        event = match next {
            Next::Queue => Event::Resume,
            Next::Wait(EventFlags::OUT) => {
                assert!(output.len() > before, "the connection waits for room that it has");
                Event::Ready
            }
            Next::Wait(EventFlags::IN) if is_readable(&connection.socket) => Event::Ready,
            // nobody changes the list meanwhile
            Next::Wait(EventFlags::IN)
                if shared.service.metrics.workers[0].waiting.load(Relaxed) > 0 =>
            {
                Event::Overdue(Closing::Idle)
            }
            Next::Wait(EventFlags::IN) => return Some(connection),
            Next::Wait(_) => {
                inbox.pool.join();
                let Some(Mail::Event(_, event)) = inbox.take().pop() else { return None };
                event
            }
            Next::Close => return None,
        };
    }
}

fn is_readable(socket: impl AsFd) -> bool {
    recv(socket, &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT).is_ok()
}

/// Receives what there is; whether that was all.
fn receive(client: &UnixStream, output: &mut Vec<u8>) -> bool {
    let mut some = [0; 8192];
    loop {
        match recv(client, &mut some[..], RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return true,
            Ok((_, received)) => output.extend_from_slice(&some[..received]),
            Err(Errno::AGAIN) => return false,
            Err(error) => panic!("{error}: the connection was closed with something unread"),
        }
    }
}

/// Checks that there is one response for each request, and one for what is refused, and gives them.
fn check(mut output: &[u8], requests: &[PlainRequest], end: PlainEnd) -> Vec<Received> {
    let mut responses = Vec::new();
    for request in requests {
        let response = response(&mut output, request.method == "HEAD");
        let closes = response.field("Connection") == Some("close");
        let is_refused = matches!(response.status, 400 | 401 | 403 | 404 | 405);
        responses.push(response);
        if closes && request.keep_alive && request.announces_content() {
            assert!(is_refused, "{request:?}");
            // by its head: what follows is not read
            assert_eq!(output, b"", "after {} responses", responses.len());
            return responses;
        }
        assert_eq!(closes, !request.keep_alive);
    }
    if let PlainEnd::Refused { is_head } = end {
        let refusal = response(&mut output, is_head);
        assert!(
            refusal.status >= 400 && refusal.field("Connection") == Some("close"),
            "{refusal:?}"
        );
        responses.push(refusal);
    }
    assert_eq!(output, b"", "after {} responses", responses.len());
    responses
}

/// Takes the next final response off the output.
fn response(output: &mut &[u8], is_head: bool) -> Received {
    while let Some(rest) = output.strip_prefix(b"HTTP/1.1 100 Continue\r\n\r\n") {
        *output = rest;
    }
    let mut headers = [httparse::EMPTY_HEADER; FIELDS.len()];
    let mut parsed = httparse::Response::new(&mut headers);
    let Ok(httparse::Status::Complete(length)) = parsed.parse(output) else {
        panic!("no response: {:?}", output.escape_ascii())
    };
    *output = &output[length..];
    let value =
        |value: &[u8]| str::from_utf8(value).expect("the value of a field is text").to_owned();
    let fields = parsed.headers.iter().map(|header| (header.name.to_owned(), value(header.value)));
    let fields: Vec<_> = fields.filter(|(name, _)| name != "Date").collect();
    let mut received =
        Received { status: parsed.code.expect("it is complete"), fields, content: Vec::new() };
    let length: usize = received
        .field("Content-Length")
        .map_or(0, |length| length.parse().expect("it is a number"));
    assert_eq!(
        received.field("Content-Length").is_none(),
        matches!(received.status, 204 | 304),
        "{received:?}"
    );
    if !is_head {
        received.content = output[..length].to_vec();
        *output = &output[length..];
    }
    received.check(is_head);
    if received.field("Content-Type").is_some_and(|value| value.starts_with("text/plain")) {
        received.fields.retain(|(name, _)| name != "Content-Length");
        received.content.clear();
    }
    received
}

impl Received {
    /// The value of a field, which is there at most once.
    fn field(&self, name: &str) -> Option<&str> {
        let mut values =
            self.fields.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str());
        let value = values.next();
        assert!(values.next().is_none(), "{name} is given twice");
        value
    }

    /// What holds of every response.
    fn check(&self, is_head: bool) {
        assert!(
            [200, 201, 204, 304, 400, 401, 403, 404, 405, 408, 412, 413, 415, 417, 431, 501, 505]
                .contains(&self.status),
            "{self:?}"
        );
        let is_known = |name: &str| name == "X-Content-Type-Options" || FIELDS.contains(&name);
        assert!(self.fields.iter().all(|(name, _)| is_known(name)), "{self:?}");
        if self.field("Content-Type") == Some("application/json") && !is_head {
            let content: Value =
                serde_json::from_slice(&self.content).expect("the content is JSON");
            assert_eq!(content["error"] == true, self.status >= 400, "{self:?}");
        }
    }
}
