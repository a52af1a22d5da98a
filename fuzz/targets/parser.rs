#![no_main]

use colors::fuzzing::{End, ParsedRequest, parse};
use colors_fuzz::reference::{self, PlainEnd, PlainRequest};
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
    let end = match end {
        End::Idle => PlainEnd::Clean,
        End::Closed => PlainEnd::Closed,
        End::CutShort(request) | End::Refused(_, request) => {
            PlainEnd::Refused { is_head: request.is_some_and(|request| request.method() == "HEAD") }
        }
    };
    assert_eq!(end, expected_end);
}

fn compare(request: &ParsedRequest, expected: &PlainRequest) {
    assert_eq!(request.method(), expected.method);
    assert_eq!(request.target(), expected.target);
    let is_ignored = ["GET", "HEAD", "OPTIONS", "DELETE"].contains(&&expected.method[..]);
    assert_eq!(request.content(), if is_ignored { b"" } else { &expected.content[..] });
    assert_eq!(request.keep_alive(), expected.keep_alive);
    for name in ["origin", "sec-fetch-site"] {
        let values = expected.values(name);
        let mut joined = values.join(&b", "[..]);
        // Bytes outside ASCII become question marks.
        joined.iter_mut().filter(|byte| !byte.is_ascii()).for_each(|byte| *byte = b'?');
        let joined = (!values.is_empty()).then_some(&joined[..]);
        assert_eq!(request.field(name), joined, "{name}");
    }
}
