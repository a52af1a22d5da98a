//! A blocking HTTP client for requests that wrk cannot send: one to look at, or an exact number. Follows and retries nothing.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

use crate::failure::Failure;

/// How long an answer may take; under callgrind, a list takes a while.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// A keep-alive connection.
#[derive(Debug)]
pub(crate) struct Client {
    /// The server's address.
    address: SocketAddr,
    /// The connection; what the server sends is read ahead.
    stream: BufReader<TcpStream>,
}

/// A response.
#[derive(Debug, PartialEq)]
pub(crate) struct Answer {
    /// Its status.
    pub(crate) status: u16,
    /// Its content.
    pub(crate) content: Vec<u8>,
}

impl Answer {
    /// The content as JSON; null if it is none.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.content).unwrap_or_default()
    }
}

impl Client {
    /// Connects to a server.
    pub(crate) fn connect(address: SocketAddr) -> Result<Self, Failure> {
        let connect = || {
            let stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(ANSWER_MAX))?;
            Ok(Self { address, stream: BufReader::with_capacity(64 * 1024, stream) }) // bytes; 148 colors fit
        };
        connect().map_err(|error| Failure::Connection(address, error))
    }

    /// Sends a request and receives its answer.
    pub(crate) fn ask(&mut self, request: &[u8]) -> Result<Answer, Failure> {
        self.send(request)?;
        self.receive()
    }

    /// Sends a request.
    pub(crate) fn send(&mut self, request: &[u8]) -> Result<(), Failure> {
        self.stream.get_mut().write_all(request).map_err(|error| Failure::Connection(self.address, error))
    }

    /// Receives the answer to the earliest request that has none yet.
    pub(crate) fn receive(&mut self) -> Result<Answer, Failure> {
        receive(&mut self.stream).map_err(|broken| match broken {
            Broken::Connection(error) => Failure::Connection(self.address, error),
            Broken::Form(what) => Failure::Malformed(self.address, what),
        })
    }
}

/// A request, with content if it has any.
pub(crate) fn request(method: &str, target: &str, content: Option<&str>) -> Vec<u8> {
    let content_fields = |text: &str| format!("Content-Type: application/json\r\nContent-Length: {}\r\n", text.len());
    let fields = content.map(content_fields).unwrap_or_default();
    let head = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n{fields}\r\n");
    (head + content.unwrap_or_default()).into_bytes()
}

/// Why a response cannot be received.
#[derive(Debug)]
enum Broken {
    /// When the connection fails or ends.
    Connection(io::Error),
    /// When its bytes are not those of a response with a `Content-Length`.
    Form(&'static str),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Self::Connection(error)
    }
}

/// Receives one response (RFC 9112 §2.1) with a `Content-Length`, which all servers here send.
fn receive(stream: &mut impl BufRead) -> Result<Answer, Broken> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let status = line.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok()).ok_or(Broken::Form("no status line"))?;
    let mut length = None;
    loop {
        line.clear();
        if stream.read_line(&mut line)? == 0 {
            return Err(Broken::Form("no end of its head"));
        }
        let Some((name, value)) = line.split_once(':') else { break };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().ok();
        }
    }
    let mut content = vec![0; length.ok_or(Broken::Form("no Content-Length"))?];
    stream.read_exact(&mut content)?;
    Ok(Answer { status, content })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_announces_its_content() {
        let head = "PUT /colors/red HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n";
        assert_eq!(request("PUT", "/colors/red", None), format!("{head}\r\n").into_bytes());
        let fields = "Content-Type: application/json\r\nContent-Length: 2\r\n";
        assert_eq!(request("PUT", "/colors/red", Some("{}")), format!("{head}{fields}\r\n{{}}").into_bytes());
    }

    #[test]
    fn responses_on_one_connection_are_told_apart() {
        let mut bytes = &b"HTTP/1.1 200 OK\r\ncontent-LENGTH: 2\r\n\r\n{}HTTP/1.1 404 Not Found\r\nContent-Length: 1\r\n\r\n7"[..];
        assert_eq!(receive(&mut bytes).unwrap(), Answer { status: 200, content: b"{}".into() });
        assert_eq!(receive(&mut bytes).unwrap(), Answer { status: 404, content: b"7".into() });
        assert!(matches!(receive(&mut bytes), Err(Broken::Form("no status line"))));
    }

    #[test]
    fn what_is_cut_short_is_no_response() {
        for bytes in ["HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{"] {
            assert!(receive(&mut bytes.as_bytes()).is_err(), "{bytes:?}");
        }
    }
}
