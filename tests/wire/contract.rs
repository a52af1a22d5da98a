//! The HTTP contract on the wire: each operation, and each of its errors once. Its tables, row by
//! row, are in the unit tests.

use crate::common::harness::{SEED, Server};

#[test]
fn reads_answer_the_list_and_its_colors() {
    for server in Server::of_both_kinds(SEED) {
        let list = server.list();
        assert!(list.starts_with(r##"{"data":[{"name":"aliceblue","value":"#f0f8ff"},"##));
        let json: serde_json::Value = serde_json::from_str(&list).unwrap();
        assert_eq!(json["data"].as_array().unwrap().len(), 148);
        let purple = r##"{"name":"rebeccapurple","value":"#663399"}"##;
        server.ask("GET", "/colors/rebeccapurple", "").expect(200, purple);
        server.ask("GET", "/colors/nosuchcolor", "").expect(404, r#"{"error":true}"#);
    }
}

#[test]
fn head_is_get_without_content() {
    for server in Server::of_both_kinds(SEED) {
        for target in ["/colors", "/colors/red", "/colors/no", "/nowhere", "/colors/%", "/", "/?x"]
        {
            let mut client = server.connect();
            let mut ask = |method| client.ask_with(method, target, "Accept: text/html\r\n", "");
            let (get, head) = (ask("GET"), ask("HEAD"));
            let without_date = |fields: &[(String, String)]| {
                fields.iter().filter(|(name, _)| name != "Date").cloned().collect::<Vec<_>>()
            };
            let expected = (get.status, without_date(&get.fields));
            assert_eq!((head.status, without_date(&head.fields)), expected, "{target}");
            assert_eq!(head.content, "");
        }
    }
}

#[test]
fn a_color_lives_from_create_to_delete() {
    for server in Server::of_both_kinds("[]") {
        let mut client = server.connect();
        let made = client.ask("POST", "/colors", r##"{"value":"#111","name":"a b/ü","extra":1}"##);
        made.expect(201, r##"{"name":"a b/ü","value":"#111"}"##);
        let location = made.field("location").unwrap();
        assert_eq!(location, "/colors/a%20b%2F%C3%BC");
        let changed = client.ask("PUT", location, r##"{"value":"#222","name":"other"}"##);
        changed.expect(200, r##"{"name":"a b/ü","value":"#222"}"##);
        for unchanged in ["", "{}", r#"{"name":"x"}"#] {
            assert_eq!(client.ask("PUT", location, unchanged).content, changed.content);
        }
        assert_eq!(client.ask("GET", location, "").content, changed.content);
        client.ask("DELETE", location, "").expect(200, &changed.content);
        for method in ["GET", "PUT", "DELETE"] {
            assert_eq!(client.ask(method, location, "").content, r#"{"error":true}"#, "{method}");
        }
        assert_eq!(server.list(), r#"{"data":[]}"#);
    }
}

#[test]
fn with_a_base_path_nothing_is_elsewhere() {
    let server = Server::start(&["--base-path", "/api/v1/"]);
    server
        .ask("GET", "/api/v1/colors/red", "")
        .expect_content(r##"{"name":"red","value":"#ff0000"}"##);
    let made = server.ask("POST", "/api/v1/colors", r#"{"name":"new","value":"1"}"#);
    assert_eq!(made.field("location"), Some("/api/v1/colors/new"));
    let elsewhere = server.ask("GET", "/colors", "");
    elsewhere.expect_message(404, "no such resource, the list is at /api/v1/colors");
}

#[test]
fn content_that_is_no_color_is_400_and_changes_nothing() {
    for server in Server::of_both_kinds(SEED) {
        let before = server.list();
        let response = server.ask("POST", "/colors", r#"{"name":"a"}"#);
        response.expect_status(400);
        assert!(response.message().contains("value"), "the field that is missing: {response:?}");
        server.ask("PUT", "/colors/red", "{").expect_status(400);
        assert_eq!(server.ask("PUT", "/colors/nosuchcolor", "{").content, r#"{"error":true}"#);
        assert_eq!(server.list(), before);
    }
}
