#![no_main]

use colors_fuzz::parsed::{End, parse};
use colors_fuzz::{CONTENT_MAX, fill, reference, sizes};

libfuzzer_sys::fuzz_target!(|data: &[u8]| check(data));

/// Chunked content decodes to what the reference makes of it, with not a byte more or less, or is
/// refused.
fn check(data: &[u8]) {
    const HEAD: &[u8] = b"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let coded = fill(data);
    let parse_first = |length: usize, size: usize| {
        parse([HEAD].into_iter().chain(coded[..length].chunks(size)), CONTENT_MAX)
    };
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
        assert_eq!((requests.len(), requests[0].content(), end), (1, &content[..], End::Idle));
    }
    let (requests, end) = parse_first(used - 1, used);
    assert!(requests.is_empty() && matches!(end, End::CutShort(Some(_))), "{end:?}");
}
