//! What a head keeps of its bytes. What is a head and what is not is in the tests of the parser.

use super::*;

/// The fields that httparse finds up to the error, if there is one.
fn parsed_fields(head: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut headers = [httparse::EMPTY_HEADER; FIELD_LINES_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    let _ = parsed.parse(head);
    let lines = parsed.headers.iter().filter(|line| !line.name.is_empty());
    lines.map(|line| (line.name.as_bytes().to_vec(), line.value.to_vec())).collect()
}

fn fields(head: &Head) -> Vec<(Vec<u8>, Vec<u8>)> {
    head.fields().map(|(name, value)| (name.to_vec(), value.to_vec())).collect()
}

#[test]
fn the_fields_are_those_that_httparse_finds() {
    const PIECES: [&[u8]; 14] = [
        b"A", b"Host", b":", b": ", b" ", b"\t", b"\r\n", b"\r\n", b"\r", b"\xff", b"=", b"\0",
        b"x:y\r\n", b"E:\r\n",
    ];
    let mut random = fastrand::Rng::with_seed(1);
    let (mut whole, mut in_part) = (0, 0);
    for _ in 0..100_000 {
        let mut bytes = b"GET /a:b HTTP/1.1\r\nHost: h\r\n".to_vec();
        bytes.truncate(bytes.len() - random.usize(..bytes.len()) * random.usize(..2));
        (0..random.usize(..12)).for_each(|_| bytes.extend(*random.choice(&PIECES).unwrap()));
        bytes.extend(*random.choice(&[&b""[..], b"\n", b"\r\n\r\n"]).unwrap());
        let expected = parsed_fields(&bytes);
        let label = bytes.escape_ascii();
        if let Some(head) = parse_in_part(&bytes) {
            in_part += usize::from(!expected.is_empty());
            assert_eq!(fields(&head), expected, "{label}");
        }
        if let Ok(incoming) = parse(&bytes, 0, true) {
            whole += 1;
            assert_eq!(fields(&incoming.head), expected, "{label}");
        }
    }
    assert!(whole > 1000 && in_part > 1000, "{whole} {in_part}");
}

#[test]
fn a_refused_head_has_the_target_and_the_fields_before_the_error() {
    let line = "a".repeat(1000) + ": b\r\n";
    let long = "GET /a HTTP/1.1\r\n".to_owned() + &line.repeat(FIELD_LINES_MAX + 1);
    for (bytes, target) in [
        ("GET", None),
        ("GET ", Some("")),
        ("GET /a:b", Some("")),
        ("GET /a b:c xx: y\r\nD: e\r\n", Some("/a")),
        ("GET /a HTTP/2.0\r\nA: b\r\n", Some("/a")),
        ("GET /a HTTP/1.1\n", Some("/a")),
        ("GET /a HTTP/1.1\r\nA:b\r\nC:\r\nD: \0\r\nE: f\r\n", Some("/a")),
        ("GET /a HTTP/1.1\r\nA: b\r\nC: d", Some("/a")),
        (&long, Some("/a")),
    ] {
        let head = parse_in_part(bytes.as_bytes());
        assert_eq!(head.as_ref().map(Head::target), target, "{bytes:?}");
        let found = head.map(|head| fields(&head)).unwrap_or_default();
        assert_eq!(found, parsed_fields(bytes.as_bytes()), "{bytes:?}");
    }
}

#[test]
fn target_and_host_stay_without_the_fields() {
    for (bytes, target, host) in [
        ("GET /a HTTP/1.1\r\nA: b\r\nHost: c:1\r\nD: e\r\n\r\n", "/a", Some("c:1")),
        ("GET http://c:1/a HTTP/1.1\r\nHost: d\r\n\r\n", "http://c:1/a", Some("c:1")),
        ("GET /a HTTP/1.0\r\nA: b\r\n\r\n", "/a", None),
    ] {
        let mut head = parse(bytes.as_bytes(), 0, false).unwrap().head;
        assert_eq!((head.target(), head.host(), head.needs_dns()), (target, host, host.is_some()));
        head.drop_fields();
        assert_eq!((head.target(), head.host(), head.needs_dns()), (target, host, host.is_some()));
        let length = target.len() + host.map_or(0, str::len);
        assert_eq!((head.fields().next(), head.memory()), (None, length));
    }
}

#[test]
fn a_head_says_whether_it_has_fields_that_the_server_does_not_use() {
    for (lines, expected) in [
        ("", false),
        ("content-length: 1\r\nConnection: close\r\nExpect: 100-continue\r\n", false),
        ("Transfer-Encoding: chunked\r\n", false),
        ("Content-Lengths: 1\r\n", true),
        ("Accept: a\r\nConnection: close\r\n", true),
    ] {
        let bytes = format!("PUT / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
        let mut head = parse(bytes.as_bytes(), 1, false).unwrap().head;
        assert_eq!(head.has_other_fields(), expected, "{lines}");
        head.drop_fields();
        assert!(!head.has_other_fields(), "{lines}");
    }
}
