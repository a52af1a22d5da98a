//! The five operations of the specification: one table of requests and answers, for the service and
//! for the plain design of it in `examples/`. And how much memory `PUT /colors` takes.

use std::process::Stdio;

use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::common::client::request;
use crate::common::harness::{Scratch, Server, at_once, own_environment};
use crate::wire::readme::README;

const SEED: &str = r##"[{"name":"red","value":"#f00"},{"name":"ink","value":"#00f"},{"name":"red","value":"#e00"}]"##;

const FIRST_LIST: &str = r##"{"data":[{"name":"red","value":"#f00"},{"name":"ink","value":"#00f"},{"name":"red","value":"#e00"}]}"##;

const LAST_LIST: &str = r##"{"data":[{"name":"ink","value":"#00f"},{"name":"sky","value":"1"},{"name":"sky","value":""},{"name":"","value":""},{"name":"a/ü+","value":"\n"}]}"##;

const NO_COLOR: &str = r#"{"error":true}"#;

/// Stands for an error with a message, whose wording may change.
const MESSAGE: &str = "an error with a message";

/// Requests in their order, each with the status and the content of its answer.
const TABLE: [(&str, &str, &str, u16, &str); 49] = [
    // Read all
    ("GET", "/colors", "", 200, FIRST_LIST),
    // Read one: the first with exactly this name
    ("GET", "/colors/red", "", 200, r##"{"name":"red","value":"#f00"}"##),
    ("GET", "/colors/r%65d?query", "", 200, r##"{"name":"red","value":"#f00"}"##),
    ("GET", "/colors/Red", "", 404, NO_COLOR),
    ("GET", "/colors/red%20", "", 404, NO_COLOR),
    ("GET", "/colors/", "", 404, NO_COLOR),
    // Create: at the end, duplicates as well, of `name` and `value` alone
    ("POST", "/colors", r#"{"name":"sky","value":"1"}"#, 201, r#"{"name":"sky","value":"1"}"#),
    (
        "POST",
        "/colors",
        r#" {"value":"","id":7,"name":"sky"}"#,
        201,
        r#"{"name":"sky","value":""}"#,
    ),
    ("GET", "/colors/sky", "", 200, r#"{"name":"sky","value":"1"}"#),
    ("POST", "/colors", r#"{"name":"","value":""}"#, 201, r#"{"name":"","value":""}"#),
    ("GET", "/colors/", "", 200, r#"{"name":"","value":""}"#),
    ("POST", "/colors", r#"{"name":"a/ü+","value":"\n"}"#, 201, r#"{"name":"a/ü+","value":"\n"}"#),
    ("GET", "/colors/a%2F%C3%BC+", "", 200, r#"{"name":"a/ü+","value":"\n"}"#),
    ("POST", "/colors", "", 400, MESSAGE),
    ("POST", "/colors", "nonsense", 400, MESSAGE),
    ("POST", "/colors", "{", 400, MESSAGE),
    ("POST", "/colors", "{}", 400, MESSAGE),
    ("POST", "/colors", r#"{"name":"a"}"#, 400, MESSAGE),
    ("POST", "/colors", r#"{"value":"a"}"#, 400, MESSAGE),
    ("POST", "/colors", r#"{"name":"a","value":1}"#, 400, MESSAGE),
    ("POST", "/colors", r#"{"name":"a","value":null}"#, 400, MESSAGE),
    ("POST", "/colors", r#"{"name":"a","name":"a","value":"b"}"#, 400, MESSAGE),
    ("POST", "/colors", r#"{"name":"a","value":"b"} {}"#, 400, MESSAGE),
    ("POST", "/colors", r#"["a","b"]"#, 400, MESSAGE),
    // Update: only the value of the first, if there is one
    ("PUT", "/colors/red", r##"{"value":"#3"}"##, 200, r##"{"name":"red","value":"#3"}"##),
    ("PUT", "/colors/red", r#"{"name":"ink","id":7}"#, 200, r##"{"name":"red","value":"#3"}"##),
    ("PUT", "/colors/red", "{}", 200, r##"{"name":"red","value":"#3"}"##),
    ("PUT", "/colors/red", "", 200, r##"{"name":"red","value":"#3"}"##),
    ("PUT", "/colors/red", "{", 400, MESSAGE),
    ("PUT", "/colors/red", r#"{"value":null}"#, 400, MESSAGE),
    ("PUT", "/colors/red", r#"{"value":1}"#, 400, MESSAGE),
    ("PUT", "/colors/red", r#"{"value":"a","value":"b"}"#, 400, MESSAGE),
    ("PUT", "/colors/red", r#"["a"]"#, 400, MESSAGE),
    ("PUT", "/colors/no", r#"{"value":"a"}"#, 404, NO_COLOR),
    ("PUT", "/colors/no", "{", 404, NO_COLOR),
    ("GET", "/colors/no", "", 404, NO_COLOR),
    // Delete: the first alone
    ("DELETE", "/colors/red", "", 200, r##"{"name":"red","value":"#3"}"##),
    ("DELETE", "/colors/red", "", 200, r##"{"name":"red","value":"#e00"}"##),
    ("DELETE", "/colors/red", "", 404, NO_COLOR),
    ("GET", "/colors/red", "", 404, NO_COLOR),
    ("PUT", "/colors/red", r##"{"value":"#3"}"##, 404, NO_COLOR),
    // no such resource, no such method, no such path
    ("GET", "/colours", "", 404, MESSAGE),
    ("GET", "/colors/sky/", "", 404, MESSAGE),
    ("DELETE", "/colors", "", 405, MESSAGE),
    ("POST", "/colors/sky", r#"{"name":"a","value":"b"}"#, 405, MESSAGE),
    ("GET", "/colors/%zz", "", 400, MESSAGE),
    ("GET", "/colors/sky%2", "", 400, MESSAGE),
    ("GET", "/colors/%ff", "", 400, MESSAGE),
    ("GET", "/colors", "", 200, LAST_LIST),
];

/// Asks all of the table; `ask` gives status, value of `Content-Type` and content.
fn check(mut ask: impl FnMut(&str, &str, &str) -> (u16, String, String)) {
    for (method, target, content, status, answer) in TABLE {
        let (status_here, media_type, answer_here) = ask(method, target, content);
        assert_eq!(media_type, "application/json", "{method} {target} {content}");
        let json: serde_json::Value = serde_json::from_str(&answer_here).unwrap();
        let has_message = json["error"] == true && json["message"].is_string();
        let answer_here = if has_message { MESSAGE } else { &answer_here };
        assert_eq!((status_here, answer_here), (status, answer), "{method} {target} {content}");
    }
}

#[test]
fn the_service_answers_as_specified() {
    for server in Server::of_all_kinds(SEED) {
        check(|method, target, content| {
            let response = server.ask(method, target, content);
            let media_type = response.field("content-type").unwrap_or_default().to_owned();
            (response.status, media_type, response.content)
        });
    }
}

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

/// Neither do clients that stall stop it. On tiny_http, as many as there are threads do.
#[test]
fn the_plain_design_answers_as_the_service_does() {
    // the command of README, on a free port
    let scratch = Scratch::new();
    let seed = scratch.write("seed.json", SEED);
    let command = "cargo run --release --example plain ";
    let shown = README.split('`').find_map(|word| word.strip_prefix(command));
    assert_eq!(shown, Some("-- seed/colors.json"));
    let mut cargo = own_environment(env!("CARGO"));
    cargo.args(["run", "--quiet", "--example", "plain", "--", &seed, "0"]);
    cargo.current_dir(env!("CARGO_MANIFEST_DIR")).stdin(Stdio::null()).stderr(Stdio::piped());
    let server = Server::spawn(cargo);
    let head = "PUT /colors/red HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n";
    let half_a_content = head.to_owned() + "{";
    let mut stalled: Vec<_> = (0..100).map(|_| server.connect()).collect();
    for (number, client) in stalled.iter_mut().enumerate() {
        client.send(if number % 2 == 0 { &head[..20] } else { &half_a_content });
    }
    check(|method, target, content| {
        let fields = "Host: localhost\r\nConnection: close\r\n";
        let request = request(method, target, fields, content);
        let response = server.connect().send(request).whatever_comes();
        let (head, content) = response.split_once("\r\n\r\n").unwrap();
        let media_type = head.lines().find_map(|line| line.strip_prefix("Content-Type: "));
        let content = content.strip_suffix('\n').expect("a line feed is at the end").to_owned();
        (head[9..12].parse().unwrap(), media_type.unwrap_or_default().to_owned(), content)
    });
}

/// What docs/limits.md says, for the shortest colors, and 8 MiB for all else.
#[test]
fn a_list_and_the_one_that_it_replaces_take_twelve_times_the_content() {
    const CONTENT: usize = 2 * 1024 * 1024;
    let color = r#"{"name":"","value":""}"#;
    // one color fewer each time, so that the lists differ
    let list = |step: usize| {
        format!(r#"{{"data":[{}]}}"#, vec![color; CONTENT / (color.len() + 1) - step].join(","))
    };
    let limit = Some((12 * CONTENT + 8 * 1024 * 1024) as u64);
    at_once([Server::with_seed, Server::durable], |start| {
        // each worker has a stack besides
        let server = start(SEED, &["--workers", "1", "--max-body", "3000000"]);
        let pid = Pid::from_raw(server.pid() as i32);
        prlimit(pid, Resource::Data, Rlimit { current: limit, maximum: limit }).unwrap();
        for step in 0..3 {
            server.ask("PUT", "/colors", &list(step)).expect(200, &list(step));
        }
    });
}
