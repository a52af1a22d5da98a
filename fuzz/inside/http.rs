//! What the fuzz targets `parser` and `chunked` check.

pub(crate) mod reference;

use tiny_http::Method;

use self::reference::{PlainEnd, PlainRequest};
use super::parser::ProtocolError;
use super::{Parser, Request};

/// Small, so that inputs reach it.
const CONTENT_MAX: usize = 100; // bytes

/// What stands for [`FILLING`], and how often one input may have that.
const FILLER: &[u8] = b"\xff\x01";
const FILLING: &[u8] = &[b'a'; 16_000];
const FILLINGS_MAX: usize = 6;

/// How the bytes of a connection ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Idle,
    Closed,
    /// With what can be told of the request.
    CutShort(Option<Request>),
    Refused(ProtocolError, Option<Request>),
}

/// Puts 16,000 letters in the place of the bytes 255 and 1, so that short inputs reach the limits.
pub(crate) fn fill(mut data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..FILLINGS_MAX {
        let Some(end) = data.windows(FILLER.len()).position(|window| window == FILLER) else {
            break;
        };
        bytes.extend_from_slice(&data[..end]);
        bytes.extend_from_slice(FILLING);
        data = &data[end + FILLER.len()..];
    }
    bytes.extend_from_slice(data);
    bytes
}

/// Sizes of the pieces that bytes are split into; many bytes are not split into single ones, which
/// would take long.
fn sizes(bytes: &[u8]) -> impl Iterator<Item = usize> {
    let is_long = bytes.len() > 4096;
    [1, 2, 3, 17, 61, 4096].into_iter().filter(move |size| !is_long || *size > 17)
}

/// Any bytes are the same requests and the same end however they are split, and those that the
/// reference finds.
pub fn parser(data: &[u8]) {
    let bytes = fill(data);
    let whole = parse([&bytes[..]]);
    for size in sizes(&bytes) {
        assert_eq!(parse(bytes.chunks(size)), whole, "in pieces of {size}");
    }
    // in two pieces: all ways if there are few
    for first in (1..bytes.len()).step_by(1 + bytes.len() / 64) {
        let (before, after) = bytes.split_at(first);
        assert_eq!(parse([before, after]), whole, "the first piece has {first} bytes");
    }
    let (requests, end) = whole;
    let (expected, expected_end) = reference::requests(&bytes, CONTENT_MAX);
    assert_eq!(requests.len(), expected.len(), "{requests:?} and {expected:?}");
    requests.iter().zip(&expected).for_each(|(request, expected)| compare(request, expected));
    let end = match end {
        End::Idle => PlainEnd::Clean,
        End::Closed => PlainEnd::Closed,
        End::CutShort(request) | End::Refused(_, request) => PlainEnd::Refused {
            is_head: request.is_some_and(|request| request.method == Method::Head),
        },
    };
    assert_eq!(end, expected_end);
}

fn parse<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Request>, End) {
    let (mut parser, mut requests) = (Parser::default(), Vec::new());
    for piece in pieces {
        parser.append(piece);
        loop {
            match parser.next_request(CONTENT_MAX) {
                Ok(Some(request)) => {
                    let keep_alive = request.keep_alive;
                    requests.push(request);
                    if !keep_alive {
                        return (requests, End::Closed);
                    }
                }
                Ok(None) => break,
                Err(error) => return (requests, End::Refused(error, parser.refuse())),
            }
        }
        assert!(parser.missing() <= CONTENT_MAX);
    }
    let end = if parser.is_idle() { End::Idle } else { End::CutShort(parser.refuse()) };
    (requests, end)
}

fn compare(request: &Request, expected: &PlainRequest) {
    assert_eq!(request.method.as_str(), expected.method);
    assert_eq!(request.target, expected.target);
    assert_eq!(request.content, expected.content);
    assert_eq!(request.keep_alive, expected.keep_alive);
    let joined = |name: &str| {
        let values: Vec<_> =
            expected.values(name).into_iter().map(String::from_utf8_lossy).collect();
        (!values.is_empty()).then(|| values.join(", "))
    };
    assert_eq!(request.fields().if_match, joined("if-match"));
    assert_eq!(request.fields().if_none_match, joined("if-none-match"));
    assert_eq!(request.fields().origin, joined("origin"));
    assert_eq!(request.fields().sec_fetch_site, joined("sec-fetch-site"));
    let authorization = expected.values("authorization").first().map(|value| value.to_vec());
    assert_eq!(
        request.fields().authorization.as_ref().map(|credentials| credentials.0.to_vec()),
        authorization
    );
}

/// Chunked content decodes to what the reference makes of it, with not a byte more or less, or is
/// refused.
pub fn chunked(data: &[u8]) {
    const HEAD: &[u8] = b"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let coded = fill(data);
    let parse_first =
        |length: usize, size: usize| parse([HEAD].into_iter().chain(coded[..length].chunks(size)));
    let Some((content, used)) = reference::chunked(&coded, CONTENT_MAX) else {
        for size in sizes(&coded) {
            let (requests, end) = parse_first(coded.len(), size);
            assert!(
                requests.is_empty() && matches!(end, End::CutShort(_) | End::Refused(..)),
                "{requests:?}"
            );
        }
        return;
    };
    for size in sizes(&coded) {
        let (requests, end) = parse_first(used, size);
        assert_eq!((requests.len(), &requests[0].content, end), (1, &content, End::Idle));
    }
    let (requests, end) = parse_first(used - 1, used);
    assert!(requests.is_empty() && matches!(end, End::CutShort(Some(_))), "{end:?}");
}
