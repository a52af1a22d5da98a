//! The HTTP contract on the wire, beyond the table of `operations`. Its tables, row by row, are in
//! the unit tests.

use crate::common::harness::{SEED, Server};

#[test]
fn head_is_get_without_content() {
    for server in Server::of_all_kinds(SEED) {
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
fn a_create_says_where_the_color_is() {
    for server in Server::of_all_kinds("[]") {
        let made = server.ask("POST", "/colors", r##"{"value":"#111","name":"a b/ü"}"##);
        assert_eq!(made.field("location"), Some("/colors/a%20b%2F%C3%BC"));
        assert_eq!(server.ask("GET", "/colors/a%20b%2F%C3%BC", "").content, made.content);
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
