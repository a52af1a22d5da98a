//! What a client gets that is refused, cut off, slow to read, or asks before it sends content.

use super::*;
use crate::connection::receiving::RECEIVE_BYTES;
use crate::protocol_error::ProtocolError;
use crate::response::keep_alive;

/// A head with this line, and what follows it.
fn head(method: &str, rest: &str) -> String {
    format!("{method} /a HTTP/1.1\r\nHost: a\r\n{rest}")
}

#[test]
fn nothing_behind_a_refused_request_is_read_as_another() {
    let post = post("/forbidden", 100);
    for (refused, expected) in [
        ("nonsense\r\n\r\n", "400 refused close"),
        (&head("POST", "Content-Length: 3, 4\r\n\r\n{}"), "400 refused Host Content-Length close"),
        (
            &head("POST", "Transfer-Encoding: chunked\r\n\r\n2\r\n{}0\r\n\r\n"),
            "400 refused Host Transfer-Encoding close",
        ),
        (&head("GET", "X: a\nContent-Length: 3\r\n\r\n"), "400 refused Host X close"),
        (&"A".repeat(40), "501 refused close"),
        (&post[..post.len() - 60], "403 close"),
    ] {
        for version in ["HTTP/1.1", "HTTP/1.0"] {
            let mut pair = Pair::new();
            pair.send(1, &(refused.replace("HTTP/1.1", version) + &get("/away")));
            pair.send(1, &get("/away"));
            assert_eq!(pair.client.received(), [expected], "{version} {refused:?}");
            assert_eq!(pair.application.away.len(), 0, "{version} {refused:?}");
        }
    }
}

#[test]
fn a_refusal_of_head_has_no_content_whatever_is_refused() {
    for (rest, expected) in [
        ("Content-Length: x\r\n\r\n", "400 close"),
        ("Content-Length: 1001\r\n\r\n", "413 close"),
        ("Expect: wonders\r\n\r\n", "417 close"),
        ("Transfer-Encoding: chunked\r\n\r\nnonsense\r\n", "400 close"),
        ("Content-Length: 3\r\n\r\n{}", "408 close"),
        ("Fie", "408 close"),
    ] {
        let mut pair = Pair::new();
        pair.send(1, &head("HEAD", rest));
        pair.begin(100);
        pair.handle(Event::Overdue);
        assert_eq!(pair.client.received(), [expected], "{rest:?}");
    }
}

#[test]
fn a_head_that_is_too_long_is_refused_with_all_of_its_whole_fields() {
    let begin = "GET / HTTP/1.1\r\nHost: a\r\nLong: ";
    // one byte more than is allowed, with the line
    let value = "x".repeat(64 * 1024 + 1 - begin.len() - 2);
    let mut pair = Pair::new();
    pair.send(1, &format!("{begin}{value}\r\n"));
    assert_eq!(pair.client.received().len(), 0, "it comes in parts");
    for _ in 0..64 * 1024 / RECEIVE_BYTES {
        pair.handle(Event::Socket);
    }
    assert_eq!(pair.client.received(), ["431 refused Host Long close"]);
}

#[test]
fn a_request_that_is_cut_off_at_any_byte_is_refused_and_not_handed_out() {
    let mut silent = Pair::new();
    silent.client.0.shutdown(Shutdown::Write).unwrap();
    assert_eq!((silent.handle(Event::Socket), silent.client.received()), (Next::Close, vec![]));
    let chunked = "Transfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\n0\r\nA: b\r\n\r\n";
    for request in [post("/away", 3), head("POST", chunked).replace("/a ", "/away ")] {
        for end in 1..request.len() {
            let mut pair = Pair::new();
            pair.send(1, &request[..end]);
            pair.client.0.shutdown(Shutdown::Write).unwrap();
            pair.handle(Event::Socket);
            let received = pair.client.received();
            let is_refusal = |text: &String| text.starts_with("400 ") && text.ends_with("close");
            assert!(received.len() == 1 && is_refusal(&received[0]), "{end}: {received:?}");
            assert_eq!(pair.application.away.len(), 0, "{end}");
        }
    }
    let reason = "the connection ended in the middle of the request";
    assert_eq!(ProtocolError::UNEXPECTED_EOF.to_string(), reason);
}

#[test]
fn a_client_that_asks_before_it_sends_content_is_told_to_go_on_unless_it_is_refused() {
    let ask = |target: &str, length: usize| {
        let mut pair = Pair::new();
        let rest = format!("Expect: 100-continue\r\nContent-Length: {length}\r\n\r\n");
        pair.send(1, &head("POST", &rest).replace("/a ", target));
        pair
    };
    let mut pair = ask("/a ", 3);
    assert_eq!(pair.client.receive(), b"HTTP/1.1 100 Continue\r\n\r\n");
    pair.send(2, "abc");
    assert_eq!(pair.client.received(), ["200 /a"]);
    assert_eq!(ask("/forbidden ", 3).client.received(), ["403 close"]);
    let too_long = "413 refused Host Expect Content-Length close";
    assert_eq!(ask("/a ", 1_001).client.received(), [too_long]);
}

#[test]
fn after_a_refusal_16_mib_are_dropped_and_no_more() {
    const PIECE: usize = 64 * 1024;
    let mut pair = Pair::in_state("lingering");
    for piece in 1..=16 * 1024 * 1024 / PIECE {
        let next = pair.send(11, &"x".repeat(PIECE));
        let is_last = piece == 16 * 1024 * 1024 / PIECE;
        assert_eq!(next, if is_last { NOTHING } else { READ }, "{piece}");
    }
}

/// One that sends as fast as the server reads lets others have their turn.
#[test]
fn in_one_turn_64_kib_are_received_and_no_more() {
    let mut pair = Pair::in_state("lingering");
    pair.client.send(&"x".repeat(64 * 1024 + 1));
    assert_eq!(pair.handle(Event::Socket), READ);
    assert_eq!(rustix::io::ioctl_fionread(&pair.connection.socket), Ok(1));
}

/// Long answers are sent first, for as long as the client takes some of them.
#[test]
fn answers_before_a_refused_request_are_all_sent_to_a_client_that_reads_slowly() {
    let mut pair = Pair::new();
    let mut next = pair.send(1, &(get("/current").repeat(2) + "nonsense\r\n\r\n"));
    let (mut received, mut seconds) = (Vec::new(), 1);
    while next != READ {
        received.extend(pair.client.receive());
        // it is overdue each time, and the socket has room
        seconds += 30;
        pair.begin(seconds);
        next = pair.handle(if next == Next::Queue { Event::Turn } else { Event::Overdue });
        assert_ne!(next, Next::Close, "{seconds}");
    }
    received.extend(pair.client.receive());
    assert_eq!(describe(&received), ["200 current", "200 current", "400 refused close"]);
}

/// Some clients take a Keep-Alive of 0 for no limit.
#[test]
fn responses_promise_whole_seconds_and_at_least_one() {
    for (milliseconds, seconds) in [(75_000, 75), (1_999, 1), (200, 1)] {
        let limits = Limits { keep_alive: Duration::from_millis(milliseconds), ..LIMITS };
        assert_eq!(Handle::new(1, limits).unwrap().0.keep_alive, keep_alive(seconds));
    }
    let mut pair = Pair::new();
    pair.send(1, &get("/a"));
    let response = String::from_utf8(pair.client.receive()).unwrap();
    let promise = "\r\nConnection: keep-alive\r\nKeep-Alive: timeout=75\r\n";
    assert!(response.contains(promise), "{response}");
}
