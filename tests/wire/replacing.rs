//! `PUT /colors`: what counts as a list, who may replace it, and that it is one step for readers.
//! What the disk has of it is in `replacing_durably`.

use std::thread;

use crate::common::client::Response;
use crate::common::harness::{Server, assert_same_list};

const LIST: &str = r#"{"data":[{"name":"a","value":"1"},{"name":"b","value":"2"}]}"#;

/// A list of colors whose names and values are these; whole numbers, so that no escapes are needed.
pub(super) fn list_of(colors: impl IntoIterator<Item = (usize, usize)>) -> String {
    let colors =
        colors.into_iter().map(|(name, value)| format!(r#"{{"name":"{name}","value":"{value}"}}"#));
    format!(r#"{{"data":[{}]}}"#, colors.collect::<Vec<_>>().join(","))
}

#[test]
fn the_list_is_what_was_sent_in_order_with_duplicates_and_without_further_fields() {
    for server in Server::of_both_kinds(LIST) {
        let mut client = server.connect();
        for (content, list) in [
            (
                r#"[{"name":"z","value":"1"},{"name":"a","value":"2"},{"name":"z","value":"3"},{"name":"z","value":"1"}]"#,
                None,
            ),
            (
                " {\"x\":[7],\"data\" : [ {\"id\":1,\"value\":\"\\u0031\",\"name\":\"\",\"x\":{}} ],\n\"y\":null}\n",
                Some(r#"{"data":[{"name":"","value":"1"}]}"#),
            ),
            ("[]", None),
            (LIST, Some(LIST)),
            (r#"{"data":[]}"#, Some(r#"{"data":[]}"#)),
        ] {
            let list = list.map_or_else(|| format!(r#"{{"data":{content}}}"#), str::to_owned);
            let response = client.ask("PUT", "/colors", content);
            assert_eq!((response.status, response.content.as_str()), (200, list.as_str()));
            // RFC 9110 §9.3.4: what was sent is not what is kept, byte by byte, so there is no tag
            // of it
            assert_eq!((response.field("etag"), response.field("location")), (None, None));
            assert_eq!(server.list(), list);
        }
        assert_eq!(client.ask("GET", "/colors/a", "").status, 404);
        // an empty list is a list
        client.ask_with("PUT", "/colors", "If-Match: *\r\n", LIST).expect(200, LIST);
        client.ask("PUT", "/colors", r#"[{"name":"a","value":"1"},{"name":"a","value":"2"}]"#);
        assert_eq!(client.ask("GET", "/colors/a", "").content, r#"{"name":"a","value":"1"}"#);
        assert!(client.ask("GET", "/health", "").content.contains(r#""colors":2,"#));
    }
}

#[test]
fn a_list_that_is_longer_than_a_buffer_may_be_chunked_and_comes_back_whole() {
    for server in Server::of_both_kinds("[]") {
        let list = list_of((0..20_000).map(|number| (number, number)));
        let chunks: Vec<String> = list
            .as_bytes()
            .chunks(9999)
            .map(|c| format!("{:x}\r\n{}\r\n", c.len(), str::from_utf8(c).unwrap()))
            .collect();
        let mut client = server.connect();
        client.send(format!("PUT /colors HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n{}0\r\n\r\n", chunks.concat()));
        assert!(client.response().content == list);
        // on the same connection, at once
        assert!(client.ask("PUT", "/colors", &list).content == list);
        assert_same_list(&server.list(), &list);
    }
}

#[test]
fn what_is_no_list_is_refused_with_the_place_and_changes_nothing() {
    for server in Server::of_both_kinds(LIST) {
        let refused = server.ask("PUT", "/colors", "[\n{\"name\":\"a\",\"value\":\"1\"},\n{}\n]");
        let message = "color 2: missing field `name` at line 3 column 2";
        assert_eq!((refused.status, refused.message().as_str()), (400, message));
        assert_eq!(server.list(), LIST);
    }
}

#[test]
fn readers_have_the_old_list_or_the_new_one() {
    const COLORS: usize = 2000;
    for server in Server::of_both_kinds(&list_of((0..COLORS).map(|number| (number, 0)))) {
        let lists = [0, 1].map(|value| list_of((0..COLORS).map(|number| (number, value))));
        let mut writer = server.connect();
        thread::scope(|scope| {
            let writing = scope.spawn(|| {
                for step in 1..=60 {
                    let list = &lists[step % 2];
                    assert!(writer.ask("PUT", "/colors", list).content == *list);
                }
            });
            let (mut reader, mut versions) = (server.connect(), 0);
            let mut last = Response { status: 0, fields: Vec::new(), content: String::new() };
            while !writing.is_finished() {
                let list = reader.ask("GET", "/colors", "");
                assert!(lists.contains(&list.content));
                versions += usize::from(list.content != last.content);
                last = list;
                assert_eq!(reader.ask("GET", "/colors/1999", "").status, 200, "it is in both");
            }
            assert!(versions > 0);
        });
        assert!(!server.log().contains("another program"), "{}", server.log());
    }
}
