#![no_main]

use colors_fuzz::parsed::{End, ParsedRequest, parse};
use colors_fuzz::reference::{self, FIELD_LINES_MAX, HEAD_BYTES_MAX, PlainEnd, PlainRequest};
use colors_fuzz::{CONTENT_MAX, fill, sizes};

libfuzzer_sys::fuzz_target!(|data: &[u8]| check(data));

/// Any bytes are the same requests and the same end however they are split, and those that the
/// reference finds.
fn check(data: &[u8]) {
    let bytes = fill(data);
    let whole = parse([&bytes[..]], CONTENT_MAX);
    for size in sizes(&bytes) {
        assert_eq!(parse(bytes.chunks(size), CONTENT_MAX), whole, "in pieces of {size}");
    }
    // in two pieces: all ways if there are few
    for first in (1..bytes.len()).step_by(1 + bytes.len() / 64) {
        let (before, after) = bytes.split_at(first);
        assert_eq!(parse([before, after], CONTENT_MAX), whole, "the first piece has {first} bytes");
    }
    let (requests, end) = whole;
    let (expected, expected_end) = reference::requests(&bytes, CONTENT_MAX);
    assert_eq!(requests.len(), expected.len(), "{requests:?} and {expected:?}");
    requests.iter().zip(&expected).for_each(|(request, expected)| compare(request, expected));
    match (end, expected_end) {
        (End::Idle, PlainEnd::Clean) | (End::Closed, PlainEnd::Closed) => {}
        (End::CutShort(request) | End::Refused(_, request), PlainEnd::Refused(rest)) => {
            compare_refused(request.as_ref(), rest);
        }
        (end, expected) => panic!("{end:?}, not {expected:?}"),
    }
}

fn compare(request: &ParsedRequest, expected: &PlainRequest) {
    assert_eq!(request.method(), expected.method);
    assert_eq!(request.target(), expected.target);
    let is_ignored = ["GET", "HEAD", "OPTIONS", "DELETE"].contains(&&expected.method[..]);
    assert_eq!(request.content(), if is_ignored { b"" } else { &expected.content[..] });
    assert_eq!(request.keep_alive(), expected.keep_alive);
    let lower = |name: &[u8]| String::from_utf8_lossy(name).to_ascii_lowercase();
    let fields = request.fields().into_iter();
    let fields: Vec<_> = fields.map(|(name, value)| (lower(name), value.to_vec())).collect();
    assert_eq!(fields, expected.fields);
}

/// What is told of a refused request has the fields that httparse finds before the error. `rest`:
/// its bytes, and what follows them.
fn compare_refused(request: Option<&ParsedRequest>, rest: &[u8]) {
    let is_head = request.is_some_and(|request| request.method() == "HEAD");
    assert_eq!(is_head, rest.starts_with(b"HEAD "));
    let Some(request) = request else { return };
    // A line that ends in LF alone is the last one that is read.
    let bare = (0..rest.len()).find(|end| rest[*end] == b'\n' && !rest[..*end].ends_with(b"\r"));
    let end = bare.map_or(rest.len(), |end| end + 1).min(HEAD_BYTES_MAX + 1);
    let mut headers = [httparse::EMPTY_HEADER; FIELD_LINES_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    // The result does not matter: whatever was parsed is in `parsed`.
    let _ = parsed.parse(&rest[..end]);
    assert_eq!(request.target(), parsed.path.unwrap_or_default());
    let lines = parsed.headers.iter().filter(|line| !line.name.is_empty());
    let expected: Vec<_> = lines.map(|line| (line.name.as_bytes(), line.value)).collect();
    assert_eq!(request.fields(), expected);
}
