//! What the server reads of a connection, in plain types.

use bounded_http::{Head, Parser};

#[derive(Debug, PartialEq, Eq)]
pub struct ParsedRequest {
    head: Head,
    content: Vec<u8>,
}

impl ParsedRequest {
    /// One of which no content is known.
    fn refused(head: Head) -> Self {
        Self { head, content: Vec::new() }
    }

    pub fn method(&self) -> &str {
        self.head.method().as_str()
    }

    pub fn target(&self) -> &str {
        self.head.target()
    }

    pub fn content(&self) -> &[u8] {
        &self.content
    }

    pub fn keep_alive(&self) -> bool {
        self.head.keep_alive()
    }

    /// Names and values.
    pub fn fields(&self) -> Vec<(&[u8], &[u8])> {
        self.head.fields().collect()
    }
}

/// How the bytes of a connection end.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    Idle,
    Closed,
    /// With what can be told of the request.
    CutShort(Option<ParsedRequest>),
    /// The same, and why.
    Refused(String, Option<ParsedRequest>),
}

/// The requests in these bytes, which arrive one piece after the other.
pub fn parse<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
    content_max: usize,
) -> (Vec<ParsedRequest>, End) {
    let mut parser = Parser::new(true);
    let mut requests = Vec::new();
    for piece in pieces {
        parser.append(piece);
        loop {
            match parser.next_request(content_max) {
                Ok(Some((head, content))) => requests.push(ParsedRequest { head, content }),
                Ok(None) => break,
                Err(error) => {
                    let refused = parser.abandon().map(ParsedRequest::refused);
                    return (requests, End::Refused(error.to_string(), refused));
                }
            }
            if requests.last().is_some_and(|request| !request.keep_alive()) {
                return (requests, End::Closed);
            }
        }
        assert!(parser.missing() <= content_max);
    }
    let is_idle = parser.is_idle();
    if is_idle {
        return (requests, End::Idle);
    }
    let cut_short = parser.abandon().map(ParsedRequest::refused);
    (requests, End::CutShort(cut_short))
}
