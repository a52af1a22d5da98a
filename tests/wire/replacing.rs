//! `PUT /colors`: what counts as a list, who may replace it, and that it is one step for readers.
//! What the disk has of it is in `replacing_durably`.

use std::thread;

use crate::common::client::{Response, request};
use crate::common::harness::{Scratch, Server, assert_same_list, colors, eventually, run};

const LIST: &str = r#"{"data":[{"name":"a","value":"1"},{"name":"b","value":"2"}]}"#;

/// A list of colors whose names and values are these; whole numbers, so that no escapes are needed.
pub(super) fn list_of(colors: impl IntoIterator<Item = (usize, usize)>) -> String {
    let colors =
        colors.into_iter().map(|(name, value)| format!(r#"{{"name":"{name}","value":"{value}"}}"#));
    format!(r#"{{"data":[{}]}}"#, colors.collect::<Vec<_>>().join(","))
}

/// The same service twice, with the list in memory alone and with a file.
fn of_both_kinds_with(arguments: &[&str]) -> [Server; 2] {
    [Server::with_seed(LIST, arguments), Server::durable(LIST, arguments)]
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
            assert_eq!(
                response
                    .fields
                    .iter()
                    .find(|(name, _)| ["ETag", "Location"].contains(&name.as_str())),
                None
            );
            assert_eq!(server.list(), list);
        }
        assert_eq!(client.ask("GET", "/colors/a", "").status, 404);
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
        assert!(
            client.ask("PUT", "/colors", &list).content == list,
            "on the same connection, at once"
        );
        assert_same_list(&server.list(), &list);
    }
}

#[test]
fn conditions_are_compared_with_the_tag_of_the_list() {
    for server in Server::of_both_kinds(LIST) {
        let mut client = server.connect();
        let tag = |target: &str| server.ask("GET", target, "").field("etag").unwrap().to_owned();
        let (list, color) = (tag("/colors"), tag("/colors/a"));
        for refused in [
            "If-Match: \"x\"",
            &format!("If-Match: {color}"),
            &format!("If-Match: W/{list}"),
            "If-None-Match: *",
            &format!("If-None-Match: W/{list}, \"x\""),
        ] {
            let response = client.ask_with("PUT", "/colors", &format!("{refused}\r\n"), "[]");
            let message = "the condition does not hold, read the current state and decide again";
            assert_eq!((response.status, response.message().as_str()), (412, message), "{refused}");
        }
        for malformed in ["If-Match: x", "If-None-Match: \"x", "If-Match: *, \"x\""] {
            let response = client.ask_with("PUT", "/colors", &format!("{malformed}\r\n"), "[]");
            assert_eq!(response.status, 400, "{malformed}");
        }
        // a list that is wrong is wrong whatever the conditions (RFC 9110 §13.2.1)
        assert_eq!(client.ask_with("PUT", "/colors", "If-Match: \"x\"\r\n", "[7]").status, 400);
        assert_eq!((server.list().as_str(), tag("/colors")), (LIST, list.clone()));
        for met in ["If-Match: *", &format!("If-Match: \"x\", {list}"), "If-None-Match: \"x\""] {
            assert_eq!(
                client.ask_with("PUT", "/colors", &format!("{met}\r\n"), LIST).content,
                LIST,
                "{met}"
            );
        }
        // the same colors have the same tag
        assert_eq!(tag("/colors"), list);
        assert_eq!(client.ask_with("PUT", "/colors", "If-Match: *\r\n", "[]").status, 200);
        assert_eq!(
            client.ask_with("PUT", "/colors", "If-Match: *\r\n", LIST).content,
            LIST,
            "an empty list is a list"
        );
    }
}

#[test]
fn of_clients_that_read_edit_and_write_back_none_undoes_what_another_did() {
    const CLIENTS: usize = 6;
    for server in Server::of_both_kinds("[]") {
        let mut made: Vec<String> = thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|number| {
                    let mut client = server.connect();
                    scope.spawn(move || {
                        let mut made = Vec::new();
                        for step in 0..30 {
                            let read = client.ask("GET", "/colors", "");
                            let condition =
                                format!("If-Match: {}\r\n", read.field("etag").unwrap());
                            let (color, rest) = (
                                format!(r#"{{"name":"{number}","value":"{step}"}}"#),
                                &read.content[r#"{"data":["#.len()..],
                            );
                            let comma = if rest.starts_with(']') { "" } else { "," };
                            match client
                                .ask_with(
                                    "PUT",
                                    "/colors",
                                    &condition,
                                    &format!(r#"{{"data":[{color}{comma}{rest}"#),
                                )
                                .status
                            {
                                200 => made.push(color),
                                status => assert_eq!(status, 412),
                            }
                        }
                        made
                    })
                })
                .collect();
            clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
        });
        let list = server.list();
        let mut found: Vec<String> = list["{\"data\":[".len()..list.len() - 2]
            .split_inclusive('}')
            .map(|c| c.trim_start_matches(',').to_owned())
            .collect();
        made.sort();
        found.sort();
        assert!(made.len() >= 30, "{}", made.len());
        assert_eq!(found, made);
    }
}

/// What is sent for a list and is none, and the message for it; `{form}` and `{color}` stand for
/// what is expected.
const MISTAKES: [(&str, &str); 20] = [
    ("", "this is not JSON; send JSON, without a byte order mark: {form}"),
    ("name,value\nred,1\n", "this is not JSON; send JSON, without a byte order mark: {form}"),
    ("\u{feff}[]", "this is not JSON; send JSON, without a byte order mark: {form}"),
    (r##"{"red":"#f00"}"##, "this is no list of colors; send {form} at line 1 column 14"),
    (r#"{"name":"a","value":"1"}"#, "this is no list of colors; send {form} at line 1 column 24"),
    ("{}", "this is no list of colors; send {form} at line 1 column 2"),
    ("7", "invalid type: integer `7`, expected {form} at line 1 column 1"),
    (r#""red""#, "invalid type: string \"red\", expected {form} at line 1 column 5"),
    ("null", "invalid type: null, expected {form} at line 1 column 4"),
    (
        r##"["red","#f00"]"##,
        "color 1: invalid type: string \"red\", expected {color} at line 1 column 6",
    ),
    (r##"[["red","#f00"]]"##, "color 1: this is an array; send {color} at line 1 column 2"),
    (
        "[\n {\"name\":\"a\",\"value\":\"1\"},\n {\"name\":\"b\"}\n]",
        "color 2: missing field `value` at line 3 column 13",
    ),
    (
        r#"{"data":[{"name":"a","value":"1"},{"name":"b","value":"1"},{"name":null,"value":"1"}]}"#,
        "color 3: invalid type: null, expected a string in field \"name\" at line 1 column 71",
    ),
    (
        r#"[{"name":"a","value":"1","value":"2"}]"#,
        "color 1: duplicate field `value` at line 1 column 32",
    ),
    (
        r#"[{"name":"a","value":"1"},]"#,
        "color 2: not valid JSON: trailing comma at line 1 column 27",
    ),
    (
        r#"[{"name":"a","value":"1"}"#,
        "color 2: not valid JSON: EOF while parsing a list at line 1 column 25",
    ),
    (r#"[{"name":"a","value":"1"}]]"#, "not valid JSON: trailing characters at line 1 column 27"),
    (r#"{"data":[],"data":[]}"#, "duplicate field `data` at line 1 column 17"),
    (
        r#"{"data":{"name":"a","value":"1"}}"#,
        "invalid type: map, expected an array of colors at line 1 column 8",
    ),
    (
        r#"{"data":[{"name":"a","value":"1"}],"x":}"#,
        "not valid JSON: expected value at line 1 column 40",
    ),
];

#[test]
fn what_is_no_list_is_refused_with_the_place_and_changes_nothing() {
    let form = r##"an array of colors, as in [{"name":"red","value":"#f00"}], or an object with it as "data""##;
    let color = r##"an object, as in {"name":"red","value":"#f00"}"##;
    let long = format!(
        r#"[{{"name":"{}","value":""}},{{"name":"{}","value":""}}]"#,
        "x".repeat(4096),
        "é".repeat(2049)
    );
    let too_long = (
        long.as_str(),
        "color 2: field \"name\" has 4098 bytes, at most 4096 are allowed at line 1 column 8228",
    );
    for server in Server::of_both_kinds(LIST) {
        let mut client = server.connect();
        for (content, message) in MISTAKES.into_iter().chain([too_long]) {
            let response = client.ask("PUT", "/colors", content);
            assert_eq!(
                (response.status, response.message()),
                (400, message.replace("{form}", form).replace("{color}", color)),
                "{content}"
            );
        }
        client.send(
            b"PUT /colors HTTP/1.1\r\nHost: localhost\r\nContent-Length: 30\r\n\r\n[{\"name\":\"a\",\"value\":\"\xff\xff\xff\xff\xff\"}]",
        );
        assert_eq!(
            client.response().message(),
            "not valid JSON: it is not UTF-8 at line 1 column 23"
        );
        assert_eq!(server.list(), LIST);
        assert_eq!(
            client
                .ask("PUT", "/colors", &long.replace(&"é".repeat(2049), &"é".repeat(2048)))
                .status,
            200
        );
    }
}

#[test]
fn a_seed_is_told_the_same() {
    let scratch = Scratch::new();
    for (content, message) in [MISTAKES[0], MISTAKES[3], MISTAKES[11]] {
        let seed = scratch.write("seed.json", content);
        let (code, _, log) = run(&mut colors(&["--listen", "127.0.0.1:0", "--seed", &seed]));
        // it begins with the file, the line and the column
        let message = message.split(['{', ';']).next().unwrap().split(" at line ").next().unwrap();
        assert!(code == Some(1) && log.contains(&format!(": {message}")), "{message}: {log}");
    }
}

#[test]
fn who_may_not_change_the_list_may_not_replace_it() {
    let scratch = Scratch::new();
    let tokens = scratch.write_tokens("a-token-0123456789");
    for server in of_both_kinds_with(&["--token-file", &tokens]) {
        let mut client = server.connect();
        for (fields, status) in
            [("", 401), ("Authorization: Bearer another-token-0123456789\r\n", 401)]
        {
            // also before what is wrong with it
            for content in ["[]", "[7]"] {
                assert_eq!(client.ask_with("PUT", "/colors", fields, content).status, status);
            }
        }
        assert_eq!(server.list(), LIST);
        assert_eq!(
            client
                .ask_with("PUT", "/colors", "Authorization: Bearer a-token-0123456789\r\n", "[]")
                .status,
            200
        );
    }
    let read_only = Server::with_seed(LIST, &["--read-only"]);
    let response = read_only.ask("PUT", "/colors", "[]");
    assert_eq!(
        (response.status, response.field("allow"), read_only.list().as_str()),
        (405, Some("GET, HEAD, OPTIONS"), LIST)
    );
    for server in of_both_kinds_with(&["--allow-origin", "https://friend.example"]) {
        let mut client = server.connect();
        for fields in [
            "Host: localhost\r\nOrigin: https://evil.example\r\n",
            "Host: localhost\r\nSec-Fetch-Site: cross-site\r\n",
            "Host: evil.example\r\n",
        ] {
            client.send(request("PUT", "/colors", fields, "[]"));
            assert_eq!(client.response().status, 403, "{fields}");
        }
        assert_eq!(server.list(), LIST);
        let origin = "Origin: https://friend.example\r\n";
        let preflight = client.ask_with(
            "OPTIONS",
            "/colors",
            &format!("{origin}Access-Control-Request-Method: PUT\r\n"),
            "",
        );
        let allowed = (preflight.field("access-control-allow-methods"), preflight.field("allow"));
        assert_eq!(
            (preflight.status, allowed),
            (204, (Some("GET, HEAD, POST, PUT, DELETE"), Some("GET, HEAD, POST, PUT, OPTIONS")))
        );
        let response = client.ask_with("PUT", "/colors", origin, "[]");
        assert_eq!(
            (response.status, response.field("access-control-allow-origin")),
            (200, Some("https://friend.example"))
        );
    }
}

#[test]
fn a_list_over_the_limit_is_refused_with_the_option_that_raises_it() {
    let list = list_of((0..50_000).map(|number| (number, number)));
    for server in of_both_kinds_with(&[]) {
        let mut client = server.connect();
        client.send(format!(
            "PUT /colors HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
            list.len()
        ));
        let response = client.response();
        let message = "the content is longer than the limit of 1048576 bytes; --max-body sets it";
        assert_eq!(
            (response.status, response.message().as_str(), response.closes()),
            (413, message, true)
        );
        assert_eq!(server.list(), LIST);
    }
    for server in of_both_kinds_with(&["--max-body", "2MiB"]) {
        assert!(server.ask("PUT", "/colors", &list).content == list);
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
                    assert!(
                        writer.ask("PUT", "/colors", &lists[step % 2]).content == lists[step % 2]
                    );
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
    }
}

#[test]
fn the_access_log_has_a_line_for_it() {
    for server in of_both_kinds_with(&["--access-log"]) {
        let mut client = server.connect();
        client.ask("PUT", "/colors?x", "[]");
        client.ask("PUT", "/colors", "[7]");
        let log = eventually("two lines", || {
            Some(server.log()).filter(|log| log.matches("PUT").count() == 2)
        });
        let lines: Vec<&str> = log.lines().filter(|line| line.contains("PUT")).collect();
        assert!(
            lines[0].contains(r#" PUT "/colors" 200 "#) && lines[0].ends_with("us 2 -> 0 colors"),
            "{log}"
        );
        assert!(
            lines[1].contains(r#" PUT "/colors" 400 "#)
                && lines[1].contains("us color 1: invalid type: integer `7`"),
            "{log}"
        );
    }
}

#[test]
fn other_changes_go_on_from_the_new_list() {
    for server in Server::of_both_kinds(LIST) {
        let mut client = server.connect();
        for round in 0..2 {
            assert_eq!(
                client.ask("PUT", "/colors", r#"[{"name":"x","value":"1"},{"name":"y","value":"2"},{"name":"x","value":"3"}]"#).status,
                200
            );
            for (method, target, content, status) in [
                ("POST", "/colors", r#"{"name":"z","value":"4"}"#, 201),
                ("PUT", "/colors/x", r#"{"value":"5"}"#, 200),
                ("DELETE", "/colors/y", "", 200),
                ("DELETE", "/colors/x", "", 200),
                ("POST", "/colors", r#"{"name":"x","value":"6"}"#, 201),
                ("DELETE", "/colors/a", "", 404),
            ] {
                assert_eq!(
                    client.ask(method, target, content).status,
                    status,
                    "{round} {method} {target}"
                );
            }
            let list = r#"{"data":[{"name":"x","value":"3"},{"name":"z","value":"4"},{"name":"x","value":"6"}]}"#;
            assert_eq!(server.list(), list);
        }
    }
}
