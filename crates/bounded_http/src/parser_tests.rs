//! Tables of what is a request and what is not.

use super::*;
use crate::protocol_error::FIELD_LINES_MAX;

/// Method and target, the content, and whether the connection stays.
type Expected<'a> = Result<(&'a str, &'a str, bool), ProtocolError>;

const FIELD_NAME: ProtocolError =
    ProtocolError::malformed("a field name is malformed or followed by white space");

/// Feeds `bytes` at once and byte by byte; both must end in `expected`, and a whole request must
/// leave `left` bytes.
#[track_caller]
fn check_leaving(bytes: &[u8], left: usize, expected: Expected<'_>) {
    let label = String::from_utf8_lossy(bytes);
    let run = |size: usize| {
        let mut parser = Parser::default();
        for end in (size..=bytes.len()).step_by(size) {
            parser.append(&bytes[end - size..end]);
            if let Some((head, content)) = parser.next_request(16)? {
                let first = format!("{} {}", head.method(), head.target());
                let left = parser.received.len() - parser.start + bytes.len() - end;
                return Ok((first, String::from_utf8(content).unwrap(), head.keep_alive(), left));
            }
        }
        panic!("no whole request in {label:?}");
    };
    let expected = expected
        .map(|(head, content, keep_alive)| (head.to_owned(), content.to_owned(), keep_alive, left));
    for size in [bytes.len(), 1] {
        assert_eq!(run(size), expected, "{label:?} in pieces of {size}");
    }
}

#[track_caller]
fn check(bytes: impl AsRef<[u8]>, expected: Expected<'_>) {
    check_leaving(bytes.as_ref(), 0, expected);
}

#[track_caller]
fn refused(bytes: impl AsRef<[u8]>, error: ProtocolError) {
    check(bytes, Err(error));
}

/// A request with these lines, and what follows them.
fn post(rest: &str) -> String {
    format!("POST /a HTTP/1.1\r\nHost: h\r\n{rest}")
}

#[test]
fn a_plain_request_keeps_what_matters() {
    check("GET /a HTTP/1.1\r\nHost: h\r\n\r\n", Ok(("GET /a", "", true)));
    let lines = "\r\n".repeat(EMPTY_LINES_MAX);
    check(format!("{lines}GET /a HTTP/1.1\r\nHost: h\r\n\r\n"), Ok(("GET /a", "", true)));
    check("GET /\u{e9}?\u{e9} HTTP/1.1\r\nHost: h\r\n\r\n", Ok(("GET /\u{e9}?\u{e9}", "", true)));
    check("x-y /a HTTP/1.1\r\nhOsT:\th:80 \r\n\r\n", Ok(("x-y /a", "", true)));
    check("GET http://h/a HTTP/1.1\r\nHost: other\r\n\r\n", Ok(("GET http://h/a", "", true)));
    let fields =
        "Cookie: \u{e9}\ta\r\nIf-Match: \"a\"\r\nX-Empty:\r\nif-match:\t\"\u{e9}\"\r\n\r\n";
    check(post(fields), Ok(("POST /a", "", true)));
}

#[test]
fn the_version_and_connection_decide_whether_the_connection_stays() {
    let head = "GET /a";
    check("GET /a HTTP/1.0\r\n\r\n", Ok((head, "", false)));
    check("GET /a HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", Ok((head, "", true)));
    check("GET /a HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n", Ok((head, "", false)));
    check("GET /a HTTP/1.1\r\nHost: h\r\nConnection: x, CLOSE\r\n\r\n", Ok((head, "", false)));
    check("CONNECT h:1 HTTP/1.1\r\nHost: h:1\r\n\r\n", Ok(("CONNECT h:1", "", false)));
    check("GET /a HTTP/1.1\r\nHost: h\r\nConnection: not-close\r\n\r\n", Ok((head, "", true)));
    check(post("Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n"), Ok(("POST /a", "", true)));
}

#[test]
fn content_ends_where_its_framing_says() {
    for (rest, content, left) in [
        ("Content-Length: 3\r\n\r\nabcGET", "abc", 3),
        ("Transfer-Encoding: Chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nGET", "abc", 3),
        ("Content-Length: 0016\r\n\r\n0123456789abcdef", "0123456789abcdef", 0),
        ("Content-Length: 0\r\n\r\n", "", 0),
        ("\r\nabc", "", 3),
    ] {
        check_leaving(post(rest).as_bytes(), left, Ok(("POST /a", content, true)));
    }
}

#[test]
fn content_without_a_meaning_is_dropped_as_it_comes() {
    for method in ["GET", "HEAD", "OPTIONS", "DELETE"] {
        let plain = ("Content-Length: 200000", "x".repeat(1000), "");
        let chunk = format!("3e8\r\n{}\r\n", "x".repeat(1000));
        let chunked = ("Transfer-Encoding: chunked", chunk, "0\r\n\r\n");
        for (framing, thousand_bytes, end) in [plain, chunked] {
            let mut parser = Parser::default();
            let head = format!("{method} /a HTTP/1.1\r\nHost: h\r\n{framing}\r\n\r\n");
            let mut next = |bytes: &str| {
                parser.append(bytes.as_bytes());
                let next = parser.next_request(200_000).unwrap();
                assert!(parser.memory() < 4096, "{}", parser.memory());
                next
            };
            assert_eq!(next(&head), None);
            (1..200).for_each(|_| assert_eq!(next(&thousand_bytes), None));
            let (head, content) = next(&(thousand_bytes + end)).unwrap();
            assert_eq!((content, head.has_content()), (vec![], true));
            assert!(parser.is_idle());
        }
    }
    let chunks = "Transfer-Encoding: chunked\r\n\r\n8\r\n12345678\r\n9\r\n";
    refused(post(chunks).replace("POST", "GET"), ProtocolError::ContentTooLarge(16));
}

#[test]
fn lengths_that_could_be_misread_are_refused() {
    for length in
        ["+3", "-3", "3, 4", "3,3", "3 3", "abc", "", "0x3", "3.0", "10000000000000000000000000"]
    {
        let request = post(&format!("Content-Length: {length}\r\n\r\nabc"));
        refused(request, ProtocolError::CONTENT_LENGTH);
    }
    for (coding, error) in [
        ("chunked, chunked", ProtocolError::TRANSFER_ENCODING),
        ("gzip", ProtocolError::TRANSFER_ENCODING),
        ("chunked, gzip", ProtocolError::TRANSFER_ENCODING),
        ("xchunked", ProtocolError::TRANSFER_ENCODING),
        ("", ProtocolError::TRANSFER_ENCODING),
        ("gzip, chunked", ProtocolError::UNKNOWN_CODING),
    ] {
        refused(post(&format!("Transfer-Encoding: {coding}\r\n\r\n0\r\n\r\n")), error);
    }
    let twice = post("Content-Length: 3\r\ncontent-length: 3\r\n\r\nabc");
    refused(twice, ProtocolError::CONTENT_LENGTH);
    let both = post("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    refused(both, ProtocolError::TWO_LENGTHS);
    let chunked = post("Transfer-Encoding: chunked\r\n\r\n");
    refused(chunked.replace("/1.1", "/1.0"), ProtocolError::TRANSFER_ENCODING);
    refused(chunked.replace("Encoding:", "Encoding :"), FIELD_NAME);
}

#[test]
fn content_over_the_limit_is_refused_before_it_arrives() {
    let too_long = ProtocolError::ContentTooLarge(16);
    for length in
        ["17", "10000000000", "100000000000000", "9223372036854775808", "18446744073709551615"]
    {
        for expect in ["", "Expect: 100-continue\r\n"] {
            refused(post(&format!("{expect}Content-Length: {length}\r\n\r\n")), too_long);
        }
    }
    for size in ["11", "8\r\n12345678\r\n9", "8\r\n12345678\r\nffffffffffffffff", "100000001"] {
        refused(post(&format!("Transfer-Encoding: chunked\r\n\r\n{size}\r\n")), too_long);
    }
}

#[test]
fn a_host_is_given_once_and_well_formed() {
    refused("GET /a HTTP/1.1\r\n\r\n", ProtocolError::HOST);
    refused("GET /a HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", ProtocolError::HOST);
    refused("GET /a HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", ProtocolError::HOST);
    for host in [
        "", "a b", "a/b", "a@b", "a:b", "a:80:80", ":80", "[::1", "[::g]", "[::1]x", "::1", "a, b",
        "\u{e9}", "http://a", "a%zz", "a%2", "%", "a%2:80", "a%2%20",
    ] {
        refused(format!("GET /a HTTP/1.1\r\nHost: {host}\r\n\r\n"), ProtocolError::HOST);
    }
    let hosts = "a a: a.b:80 127.0.0.1:1 [::1] [2001:db8::1]:443 xn--caf-dma.example a_b a. a%20b \
                 %C3%A9:80";
    for host in hosts.split(' ') {
        check(format!("GET /a HTTP/1.1\r\nHost: {host}\r\n\r\n"), Ok(("GET /a", "", true)));
    }
    let authority = "the authority of the request target is not of the form host[:port]";
    let request = "GET http://a@b/ HTTP/1.1\r\nHost: a\r\n\r\n";
    refused(request, ProtocolError::malformed(authority));
}

#[test]
fn only_the_versions_1_0_and_1_1_are_served() {
    for version in ["HTTP/1.2", "HTTP/1.9", "HTTP/2.0", "HTTP/3.0", "HTTP/0.9", "HTTP/2.1"] {
        refused(format!("GET /a {version}\r\nHost: h\r\n\r\n"), ProtocolError::VERSION);
    }
    refused("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", ProtocolError::VERSION);
}

#[test]
fn malformed_lines_are_refused() {
    let line = ProtocolError::malformed(
        "the request line has to be method, target and HTTP/1.1, with one space between; a space \
         in the target is %20",
    );
    refused("\r\n".repeat(EMPTY_LINES_MAX + 1), line);
    for request in [
        "GET /a",
        "GET  /a HTTP/1.1",
        "GET /a HTTP/1.1 ",
        "GET /a b HTTP/1.1",
        "GET /a HTTP/11",
        "GET /a HTTP/1.2 ",
        "GET /a HTTP/1.1 HTTP/1.1",
        "GET /a HTTP/1.20",
        "GET /a http/1.2",
    ] {
        refused(request.to_owned() + "\r\n\r\n", line);
    }
    let target = ProtocolError::malformed(
        "the request target has a #, which belongs percent-encoded, as %23",
    );
    refused("GET /a#b HTTP/1.1\r\nHost: h\r\n\r\n", target);
    let encoding = ProtocolError::malformed(
        "the request line has bytes that are not UTF-8, as in Latin-1: percent-encode the UTF-8",
    );
    for target in [&b"/\xe9"[..], b"/a?\xe9", b"/\xc3", b"/\xed\xa0\x80"] {
        refused([b"GET ", target, b" HTTP/1.1\r\nHost: h\r\n\r\n"].concat(), encoding);
    }
    for begin in ["\x16\x03\x01", " GET", " GET /a HTTP/1.1\n"] {
        refused(begin, ProtocolError::malformed("this is not an HTTP request"));
    }
    refused("GET /a HTTP/1.1\nHost: h\n\n", ProtocolError::BARE_LINE_FEED);
    refused("GET /a HTTP/1.1\r\nHost: h\n\r\n", ProtocolError::BARE_LINE_FEED);
    for name in [" folded", "A b", ""] {
        refused(post(&format!("{name}: x\r\n\r\n")), FIELD_NAME);
    }
    let value = ProtocolError::malformed("a field value has a control character");
    refused(post("A: \0\r\n\r\n"), value);
}

#[test]
fn what_is_wrong_does_not_depend_on_what_has_arrived_beyond_it() {
    let request = "GET /a HTTP/1.1\r\nOrigin: b\nOrigin: c\r\n\r\n";
    for size in [request.len(), 1] {
        let mut parser = Parser::default();
        let refused = request.as_bytes().chunks(size).any(|piece| {
            parser.append(piece);
            parser.next_request(16) == Err(ProtocolError::BARE_LINE_FEED)
        });
        let told = parser.abandon().unwrap();
        assert_eq!((refused, told.target()), (true, "/a"), "in pieces of {size}");
        assert_eq!(Vec::from_iter(told.fields()), [(&b"Origin"[..], &b"b"[..])]);
    }
    for after in ["", " /a\n", " /a HTTP/1.1\r\nHost: h\r\n\r\n", " /a HTTP/1.1\r\nA b: x\r\n\r\n"]
    {
        refused("a".repeat(METHOD_BYTES_MAX + 1) + after, ProtocolError::METHOD_TOO_LONG);
    }
    refused("a".repeat(METHOD_BYTES_MAX) + "\n", ProtocolError::BARE_LINE_FEED);
}

#[test]
fn heads_without_end_are_refused_at_the_limit() {
    let head = |length| format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "a".repeat(length));
    refused(&head(HEAD_BYTES_MAX)[..HEAD_BYTES_MAX + 1], ProtocolError::TARGET_TOO_LONG);
    refused(&head(HEAD_BYTES_MAX - 20)[..HEAD_BYTES_MAX + 1], ProtocolError::HEAD_TOO_LARGE);
    let longest = head(HEAD_BYTES_MAX - 27);
    assert_eq!(longest.len(), HEAD_BYTES_MAX);
    check(&longest, Ok((&longest[..HEAD_BYTES_MAX - 22], "", true)));
    refused(head(HEAD_BYTES_MAX - 26), ProtocolError::HEAD_TOO_LARGE);
    // with Host
    let fields = |count| post(&("A: b\r\n".repeat(count - 1) + "\r\n"));
    check(fields(FIELD_LINES_MAX), Ok(("POST /a", "", true)));
    refused(fields(FIELD_LINES_MAX + 1), ProtocolError::HEAD_TOO_LARGE);
}

#[test]
fn a_client_that_waits_is_told_to_go_on_once() {
    for (expect, begin, waits) in [
        ("Expect: 100-Continue", "", true),
        // it has begun to send the content
        ("Expect: 100-continue", "{", false),
        ("Expect:", "", false),
        ("Expect: ,", "", false),
        ("Expect: , 100-continue", "", true),
        ("Expect: 100-continue\r\nExpect:", "", true),
    ] {
        let mut parser = Parser::default();
        parser.append(post(&format!("{expect}\r\nContent-Length: 2\r\n\r\n{begin}")).as_bytes());
        for waits in [waits, false] {
            let waiting = (parser.next_request(16), parser.take_expectation());
            assert_eq!(waiting, (Ok(None), waits), "{expect:?}");
        }
        parser.append(&b"{}"[begin.len()..]);
        assert!(matches!(parser.next_request(16), Ok(Some(_))));
        assert!(parser.is_idle() && !parser.take_expectation());
    }
    let other = "GET /a HTTP/1.1\r\nHost: h\r\nExpect: 200-ok\r\n\r\n";
    refused(other, ProtocolError::EXPECTATION);
    check(other.replace("/1.1", "/1.0"), Ok(("GET /a", "", false)));
}

#[test]
fn all_that_a_half_received_request_holds_is_counted() {
    let mut parser = Parser::default();
    let value = "a".repeat(60_000);
    parser.append(post(&format!("If-Match: {value}\r\nContent-Length: 9\r\n\r\n")).as_bytes());
    assert_eq!(parser.next_request(16), Ok(None));
    assert!((60_000..62_000).contains(&parser.memory()), "{}", parser.memory());
}
