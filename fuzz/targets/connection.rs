#![no_main]

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use colors::fuzzing::{Access, SteppedConnection};
use colors_fuzz::fill;
use colors_fuzz::reference::{self, PlainEnd, PlainRequest};
use log::{Log, Metadata, Record};
use serde_json::Value;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check(data));

const CONTENT_MAX: usize = 20_000; // bytes; the filling of an input is a little shorter

/// Bytes that the client writes at a time, at most.
const WRITE_BYTES: usize = 16 * 1024;

/// Passes without output after which a connection waits for bytes. One may receive, one have its
/// turn in the run queue, one await an answer that takes long, and one send it.
const IDLE_PASSES: u32 = 5;

/// Those that a response may have.
const FIELDS: &str = "\
    Access-Control-Allow-Headers Access-Control-Allow-Methods Access-Control-Allow-Origin \
    Access-Control-Expose-Headers Access-Control-Max-Age Allow Cache-Control Accept-Encoding \
    Connection Keep-Alive Content-Length Content-Security-Policy Content-Type \
    Cross-Origin-Resource-Policy Date ETag Location Preference-Applied Referrer-Policy Vary \
    WWW-Authenticate X-Content-Type-Options X-Frame-Options";

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
fn check(data: &[u8]) {
    // It is set already from the second input on.
    let _ = log::set_logger(&CheckingLog).map(|()| log::set_max_level(log::LevelFilter::Trace));
    let bytes = fill(data);
    let (requests, end) = reference::requests(&bytes, CONTENT_MAX);
    let whole = talk(Access::Open, [&bytes[..]]);
    let responses = check_output(&whole, &requests, end);
    let split = talk(Access::Open, pieces(&bytes));
    assert_eq!(check_output(&split, &requests, end), responses, "in pieces");
    check_output(&talk(Access::Strict, [&bytes[..]]), &requests, end);
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

/// Two colors of one name, and one that is sent from where it is kept.
fn list() -> String {
    let long = "x".repeat(2000);
    format!(
        r#"[{{"name":"a","value":"1"}},{{"name":"a","value":"2"}},{{"name":"b","value":"{long}"}}]"#
    )
}

/// Sends the pieces one after the other, each when the one before was served, and then ends. Gives
/// all that was received.
fn talk<'a>(access: Access, pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let (mut client, socket) = UnixStream::pair().expect("the process has descriptors");
    client.set_nonblocking(true).expect("it is a socket");
    let mut connection = SteppedConnection::new(socket, list().as_bytes(), CONTENT_MAX, access);
    let mut output = Vec::new();
    let mut is_open = true;
    for mut piece in pieces {
        while !piece.is_empty() && is_open {
            let sent = client.write(&piece[..piece.len().min(WRITE_BYTES)]);
            piece =
                &piece[sent.expect("the connection is open, and has read what was sent before")..];
            is_open = serve(&mut connection, &mut client, &mut output);
        }
    }
    if is_open {
        client.shutdown(Shutdown::Write).expect("it is open");
        is_open = serve(&mut connection, &mut client, &mut output);
        assert!(!is_open, "the connection stays open after its end");
    }
    drop(connection);
    let is_whole = receive(&mut client, &mut output);
    assert!(is_whole, "the connection has no end");
    output
}

/// Has the connection served until nothing comes of it any more, or it is closed; whether it is
/// open.
fn serve(
    connection: &mut SteppedConnection,
    client: &mut UnixStream,
    output: &mut Vec<u8>,
) -> bool {
    let mut idle = 0;
    while idle < IDLE_PASSES {
        let before = output.len();
        let is_open = connection.pass();
        let _ = receive(client, output);
        if !is_open {
            return false;
        }
        idle = if output.len() > before { 0 } else { idle + 1 };
    }
    true
}

/// Receives what there is; whether that was all.
fn receive(client: &mut UnixStream, output: &mut Vec<u8>) -> bool {
    match client.read_to_end(output) {
        Ok(_) => true,
        Err(error) if error.kind() == ErrorKind::WouldBlock => false,
        Err(error) => panic!("{error}: the connection was closed with something unread"),
    }
}

/// Checks that there is one response for each request, and one for what is refused, and gives them.
fn check_output(mut output: &[u8], requests: &[PlainRequest], end: PlainEnd<'_>) -> Vec<Received> {
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
    if let PlainEnd::Refused(rest) = end {
        let refusal = response(&mut output, rest.starts_with(b"HEAD "));
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
    let mut headers = [httparse::EMPTY_HEADER; 32];
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
            [
                200, 201, 204, 304, 400, 401, 403, 404, 405, 408, 412, 413, 414, 415, 417, 431,
                501, 505
            ]
            .contains(&self.status),
            "{self:?}"
        );
        let is_known = |name: &str| FIELDS.split(' ').any(|known| known == name);
        assert!(self.fields.iter().all(|(name, _)| is_known(name)), "{self:?}");
        if self.field("Content-Type") == Some("application/json") && !is_head {
            let content: Value =
                serde_json::from_slice(&self.content).expect("the content is JSON");
            assert_eq!(content["error"] == true, self.status >= 400, "{self:?}");
        }
    }
}
