//! A blocking HTTP client. Follows and retries nothing.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) method: &'static str,
    pub(crate) target: String,
    /// JSON; empty for none.
    pub(crate) content: String,
}

impl Request {
    pub(crate) fn new(
        method: &'static str,
        target: impl Into<String>,
        content: impl Into<String>,
    ) -> Self {
        Self { method, target: target.into(), content: content.into() }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let Self { method, target, content } = self;
        let fields = if content.is_empty() {
            String::new()
        } else {
            format!("Content-Type: application/json\r\nContent-Length: {}\r\n", content.len())
        };
        format!(
            "{method} {target} HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n{fields}\r\n{content}"
        )
        .into_bytes()
    }
}

/// A command as Redis receives it.
pub(crate) fn redis_command(words: &[&str]) -> Vec<u8> {
    let word = |word: &&str| format!("${}\r\n{word}\r\n", word.len());
    format!("*{}\r\n{}", words.len(), words.iter().map(word).collect::<String>()).into_bytes()
}

/// The status line and the fields of a response, with the empty line at their end; and its content.
pub(crate) struct Response(pub(crate) Vec<u8>, pub(crate) Vec<u8>);

pub(crate) struct Client(BufReader<TcpStream>);

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(Self(BufReader::with_capacity(64 * 1024, stream))) // bytes; 148 colors fit
    }

    pub(crate) fn ask(&mut self, request: &Request) -> Result<Response> {
        self.send(request)?;
        self.receive().with_context(|| format!("{} {}", request.method, request.target))
    }

    pub(crate) fn send(&mut self, request: &Request) -> Result<()> {
        self.send_bytes(&request.bytes())
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.0.get_mut().write_all(bytes)?)
    }

    /// Receives one response, with a `Content-Length`, which all servers here send. Fails unless it
    /// tells of success.
    pub(crate) fn receive(&mut self) -> Result<Response> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            ensure!(
                self.0.read_until(b'\n', &mut head)? > 0,
                "the connection ended within a response"
            );
        }
        let text = String::from_utf8_lossy(&head).to_ascii_lowercase();
        let length: Option<usize> =
            text.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
        let length = length.context("a response without Content-Length")?;
        let mut content = vec![0; length];
        self.0.read_exact(&mut content)?;
        ensure!(text.starts_with("http/1.1 20"), "answered with {:?}", text.lines().next());
        Ok(Response(head, content))
    }

    /// Receives a response. Fails if any part of it takes longer than this.
    pub(crate) fn receive_within(&mut self, time: Duration) -> Result<Response> {
        self.0.get_ref().set_read_timeout(Some(time))?;
        self.receive()
    }

    /// Receives a line, with its end.
    pub(crate) fn receive_line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        Ok(line)
    }

    /// Receives a line, with its end; an empty one if the connection has ended. Fails if any part
    /// of it takes longer than this.
    pub(crate) fn receive_line_within(&mut self, time: Duration) -> Result<String> {
        self.0.get_ref().set_read_timeout(Some(time.max(Duration::from_millis(1))))?;
        self.receive_line()
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.get_ref().as_fd()
    }
}
