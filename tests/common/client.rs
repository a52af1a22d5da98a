//! Speaks HTTP to the service byte by byte. Every response passes the checks that hold for all.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::common::harness::DEADLINE;

/// A client's end of a connection.
pub(crate) struct Client<S = TcpStream> {
    pub(crate) stream: S,
    received: Vec<u8>,
}

/// A response that passed the checks which hold for every one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) content: String,
}

impl Response {
    /// The value of a field, by its name in any case.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.fields.iter();
        let (_, value) = fields.find(|(field, _)| field.eq_ignore_ascii_case(name))?;
        Some(value)
    }

    /// Whether the service announced that it closes the connection.
    pub(crate) fn closes(&self) -> bool {
        self.field("connection") == Some("close")
    }

    /// Checks the status; shows all of the response if it is another one.
    #[track_caller]
    pub(crate) fn expect_status(&self, status: u16) {
        assert_eq!(self.status, status, "{self:?}");
    }

    /// Checks the content as well.
    #[track_caller]
    pub(crate) fn expect(&self, status: u16, content: &str) {
        assert_eq!((self.status, self.content.as_str()), (status, content));
    }

    /// Checks the content of a response with any status.
    #[track_caller]
    pub(crate) fn expect_content(&self, content: &str) {
        assert_eq!(self.content, content, "{}", self.status);
    }

    /// Checks status and a field, or that there is no such field.
    #[track_caller]
    pub(crate) fn expect_field(&self, status: u16, field: &str, value: Option<&str>) {
        assert_eq!((self.status, self.field(field)), (status, value), "{self:?}");
    }

    /// Checks status and message of a refusal.
    #[track_caller]
    pub(crate) fn expect_message(&self, status: u16, message: &str) {
        assert_eq!((self.status, self.message().as_str()), (status, message));
    }

    /// The message of an Error body; the empty string when there is only `{"error":true}`.
    #[track_caller]
    pub(crate) fn message(&self) -> String {
        let json: serde_json::Value = serde_json::from_str(&self.content).unwrap();
        assert_eq!(json["error"], true, "{self:?}");
        json["message"].as_str().unwrap_or_default().to_owned()
    }
}

/// A request with these field lines, each ended by CR LF, and a Content-Length if there is content.
pub(crate) fn request(method: &str, target: &str, fields: &str, content: &str) -> String {
    let length = format!("Content-Length: {}\r\n", content.len());
    let length = if content.is_empty() { "" } else { &length };
    format!("{method} {target} HTTP/1.1\r\n{fields}{length}\r\n{content}")
}

impl Client<TcpStream> {
    pub(crate) fn new(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_write_timeout(Some(DEADLINE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, received: Vec::new() }
    }

    /// Sends a request and reads the response; `None` when the connection ends in its place.
    pub(crate) fn try_ask(&mut self, request: &str) -> Option<Response> {
        self.stream.write_all(request.as_bytes()).ok()?;
        loop {
            match self.stream.peek(&mut [0]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                peeked => return peeked.is_ok_and(|length| length > 0).then(|| self.response()),
            }
        }
    }

    /// Whether something has come that was not read yet.
    pub(crate) fn has_answer(&self) -> bool {
        self.stream.set_nonblocking(true).unwrap();
        let peeked = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false).unwrap();
        peeked.is_ok()
    }
}

impl Client<UnixStream> {
    pub(crate) fn on_unix(path: impl AsRef<Path>) -> Self {
        let stream = UnixStream::connect(path).expect("the service listens");
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_write_timeout(Some(DEADLINE)).unwrap();
        Self { stream, received: Vec::new() }
    }
}

impl<S: Read + Write> Client<S> {
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        self.stream.write_all(bytes.as_ref()).unwrap();
        self
    }

    /// Sends a request that keeps the connection, and reads the response.
    pub(crate) fn ask(&mut self, method: &str, target: &str, content: &str) -> Response {
        self.ask_with(method, target, "", content)
    }

    /// The same with further field lines, each ended by CR LF.
    pub(crate) fn ask_with(
        &mut self,
        method: &str,
        target: &str,
        fields: &str,
        content: &str,
    ) -> Response {
        self.send(request(method, target, &format!("Host: localhost\r\n{fields}"), content));
        self.response_to(method)
    }

    /// Reads a response to a request of any method but HEAD.
    pub(crate) fn response(&mut self) -> Response {
        self.response_to("GET")
    }

    /// Reads a response; that to HEAD has no content.
    #[track_caller]
    pub(crate) fn response_to(&mut self, method: &str) -> Response {
        let end = loop {
            match self.received.windows(4).position(|four| four == b"\r\n\r\n") {
                Some(end) => break end,
                None => assert!(self.receive(), "cut off: {}", self.received.escape_ascii()),
            }
        };
        let head = String::from_utf8(self.received.drain(..end + 4).collect()).unwrap();
        let mut lines = head.trim_end().split("\r\n");
        let status_line = lines.next().unwrap();
        let status = status_line.strip_prefix("HTTP/1.1 ").unwrap()[..3].parse().unwrap();
        let fields: Vec<_> = lines
            .map(|line| line.split_once(": ").map(|(n, v)| (n.to_owned(), v.to_owned())).unwrap())
            .collect();
        let mut response = Response { status, fields, content: String::new() };
        if status != 100 {
            check_head(&response);
            let length = response.field("content-length").filter(|_| method != "HEAD");
            let length = length.map_or(0, |length| length.parse().unwrap());
            while self.received.len() < length {
                assert!(self.receive(), "closed in the middle of a content: {response:?}");
            }
            response.content = String::from_utf8(self.received.drain(..length).collect()).unwrap();
            // every JSON content ends with a line feed, which all comparisons leave out
            if response.field("content-type") == Some("application/json") && length > 0 {
                assert_eq!(response.content.pop(), Some('\n'), "{response:?}");
                assert!(!response.content.contains('\n'), "{response:?}");
            }
            check_content(&response, method);
        }
        response
    }

    /// Everything that comes until the connection is closed or reset.
    pub(crate) fn whatever_comes(&mut self) -> String {
        while self.receive() {}
        String::from_utf8(std::mem::take(&mut self.received)).unwrap()
    }

    /// Checks that the service closes the connection and that nothing comes before that.
    #[track_caller]
    pub(crate) fn expect_close(&mut self) {
        assert_eq!(self.whatever_comes(), "", "before the close");
    }

    /// Checks that the connection is still good for a request.
    #[track_caller]
    pub(crate) fn expect_open(&mut self) {
        self.ask("HEAD", "/colors", "").expect_status(200);
    }

    /// Receives some bytes; false at the end of the connection, a reset included.
    fn receive(&mut self) -> bool {
        let mut bytes = [0; 64 * 1024];
        match self.stream.read(&mut bytes) {
            Ok(length) => {
                self.received.extend_from_slice(&bytes[..length]);
                length > 0
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => false,
            // signal(7): as a read with a time-out is when the process was stopped and goes on
            Err(error) if error.kind() == ErrorKind::Interrupted => true,
            Err(error) => panic!("neither answer nor end: {error}"),
        }
    }
}

/// The head of a request; `None` if the connection ends before.
pub(crate) fn read_head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        head.extend(byte);
    }
    Some(String::from_utf8(head).unwrap())
}

/// What holds for status and fields of every response.
#[track_caller]
fn check_head(response: &Response) {
    const STATUSES: [u16; 22] = [
        200, 201, 204, 304, 400, 401, 403, 404, 405, 408, 409, 412, 413, 414, 415, 417, 431, 500,
        501, 503, 505, 507,
    ];
    const FIELDS: &str = "Accept-Encoding Access-Control-Allow-Headers Access-Control-Allow-Methods \
        Access-Control-Allow-Origin Access-Control-Expose-Headers Access-Control-Max-Age Allow \
        Cache-Control Connection Content-Length Content-Security-Policy Content-Type \
        Cross-Origin-Resource-Policy Date ETag Keep-Alive Link Location Preference-Applied \
        Referrer-Policy Vary WWW-Authenticate X-Content-Type-Options X-Frame-Options";
    assert!(STATUSES.contains(&response.status), "{response:?}");
    for (position, (name, _)) in response.fields.iter().enumerate() {
        assert!(FIELDS.split(' ').any(|known| known == name), "{name}");
        let is_second = response.fields[..position].iter().any(|(before, _)| before == name);
        assert!(!is_second, "{name} twice: {response:?}");
    }
    let has_content = !matches!(response.status, 204 | 304);
    let media_type = match response.field("content-type") {
        Some(METRICS) if response.status == 200 => METRICS,
        Some(SCRIPT) if is_page(response) => SCRIPT,
        _ if is_page(response) => "text/html; charset=utf-8",
        _ => "application/json",
    };
    assert_eq!(response.field("content-type"), has_content.then_some(media_type), "{response:?}");
    assert_eq!(response.field("referrer-policy").is_some(), is_page(response), "{response:?}");
    assert_eq!(response.field("content-length").is_some(), has_content, "{response:?}");
    let cache_control = response.field("cache-control").unwrap();
    let is_private = cache_control == "private, no-cache";
    let is_challenged = response.field("www-authenticate").is_some();
    let is_kept = is_private || cache_control == "no-cache";
    assert!(if is_challenged { cache_control == "no-store" } else { is_kept }, "{response:?}");
    // RFC 9110 §15.5.2: a 401 MUST say how to authenticate; §11.6.1: others may, as to OPTIONS
    assert!(response.status == 204 || is_challenged == (response.status == 401), "{response:?}");
    assert_eq!(response.field("x-content-type-options"), Some("nosniff"));
    assert_eq!(response.field("cross-origin-resource-policy"), Some("same-origin"));
    assert_eq!(response.field("x-frame-options"), Some("DENY"));
    assert!(httpdate::parse_http_date(response.field("date").unwrap()).is_ok());
    let codings = (response.status == 415).then_some("identity");
    assert_eq!(response.field("accept-encoding"), codings, "{response:?}");
    assert_eq!(response.field("allow").is_some(), matches!(response.status, 204 | 405));
    // RFC 7240 §2: a cache has to know that the response depends on Prefer
    let varies = response.field("vary").unwrap_or_default().contains("Prefer");
    assert_eq!(varies, response.field("preference-applied").is_some(), "{response:?}");
    // the service says when it closes the connection, or for how many seconds it does not
    let connection = if response.field("keep-alive").is_some() { "keep-alive" } else { "close" };
    assert_eq!(response.field("connection"), Some(connection), "{response:?}");
}

/// The media type of `/metrics`: Prometheus' text format.
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The media type of the script that reads and writes files.
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Whether this is a part of the page, or tells that the client has it.
fn is_page(response: &Response) -> bool {
    response.field("content-security-policy").is_some()
}

/// What holds for the content of every response.
#[track_caller]
fn check_content(response: &Response, method: &str) {
    if method == "HEAD" || matches!(response.status, 204 | 304) {
        return;
    }
    if response.field("content-type") == Some(METRICS) {
        assert!(response.content.starts_with("# HELP "), "{response:?}");
        assert!(response.content.ends_with('\n'), "{response:?}");
        return;
    }
    if is_page(response) {
        assert_eq!(response.status, 200, "{response:?}");
        let is_script = response.field("content-type") == Some(SCRIPT);
        let begin = if is_script { "/*" } else { "<!doctype html>" };
        assert!(response.content.starts_with(begin), "{response:?}");
        return;
    }
    let json: BTreeMap<&str, serde::de::IgnoredAny> =
        serde_json::from_str(&response.content).expect("every content is a JSON object");
    let keys: Vec<_> = json.into_keys().collect();
    match response.status {
        404 if keys == ["error"] => assert_eq!(response.content, r#"{"error":true}"#),
        503 if keys.contains(&"status") => {}
        400.. => {
            assert_eq!(keys, ["error", "message"], "{response:?}");
            let message = response.message();
            let first = message.chars().next().unwrap();
            let is_lower = !message.ends_with('.') && !first.is_uppercase();
            let is_field = ["Content-Length", "Transfer"].iter().any(|it| message.starts_with(it));
            assert!(is_lower || is_field, "{message}");
        }
        _ => {}
    }
}

/// Makes the next close of a stream a reset.
pub(crate) fn reset_on_close(stream: &TcpStream) {
    rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO)).unwrap();
}

/// Checks that two lists are the same. Prints where they differ, and not all of them.
#[track_caller]
pub(crate) fn assert_same_list(actual: &str, expected: &str) {
    let same = actual.bytes().zip(expected.bytes()).take_while(|(one, other)| one == other).count();
    let [is, should] = [actual, expected].map(|list| {
        let end = list.len().min(same + 60);
        list.as_bytes()[same.saturating_sub(60)..end].escape_ascii().to_string()
    });
    let is_same = actual == expected;
    assert!(is_same, "the list differs from byte {same} on:\n    is: {is}\nshould: {should}");
}
