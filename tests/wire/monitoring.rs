//! What the service tells of itself at `/metrics`, in which Prometheus' own checks find no fault.
//! And `--health`, by which a container finds out whether its service is well.

use std::fs;
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::process::Command;
use std::thread;

use crate::common::client::read_head;
use crate::common::harness::{
    self, Scratch, Server, colors, eventually, is_installed, long_list, refusing, value, wait_until,
};
use crate::wire::recipes::own_address;

fn page(server: &Server) -> String {
    let response = server.ask("GET", "/metrics", "");
    assert_eq!((response.status, response.field("etag")), (200, None));
    response.content
}

#[track_caller]
fn check(page: &str, sample: &str, expected: f64) {
    assert_eq!(value(page, sample), expected, "{sample}");
}

fn requests(method: &str, status: &str) -> String {
    format!("colors_http_requests_total{{method=\"{method}\",status=\"{status}\"}}")
}

const IMMEDIATE: &str = "colors_http_request_duration_seconds_count{durable=\"false\"}";
const DURABLE: &str = "colors_http_request_duration_seconds_count{durable=\"true\"}";

#[test]
fn every_request_is_counted_once_by_method_and_class_of_status() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    for (method, target, times) in [
        ("GET", "/colors/red", 5),
        ("GET", "/colors/no", 3),
        ("HEAD", "/colors", 2),
        ("OPTIONS", "*", 1),
        ("BREW", "/colors", 2),
        ("get", "/", 1),
    ] {
        for _ in 0..times {
            client.ask(method, target, "");
        }
    }
    client.ask("POST", "/colors", r#"{"name":"ink","value":"1"}"#);
    client.ask("PUT", "/colors/ink", "{");
    client.ask("DELETE", "/colors/ink", "");
    client.ask_with("GET", "/colors/red", "If-None-Match: *\r\n", "");
    // pipelined requests, more than are answered in a row
    client.send("GET /colors/red HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(40));
    (0..40).for_each(|_| client.response().expect_status(200));
    // refused by its head
    server.connect().ask("BREW", "/colors", "[]").expect_status(405);
    // what is no request
    server.connect().send("\r\n\r\nnonsense\r\n\r\n").response().expect_status(400);
    // a request is timed after it was counted, and pages are requests as well
    let answered = |page: &str| {
        value(page, &requests("GET", "2xx")) + 1.0 + 3.0 + 2.0 + 1.0 + 1.0 + 1.0 + 1.0 + 4.0
    };
    let page = eventually("all requests are timed", || {
        Some(page(&server)).filter(|page| value(page, IMMEDIATE) == answered(page))
    });
    for (method, status, count) in [
        ("GET", "3xx", 1.0),
        ("GET", "4xx", 3.0),
        ("HEAD", "2xx", 2.0),
        ("OPTIONS", "2xx", 1.0),
        ("POST", "2xx", 1.0),
        ("PUT", "4xx", 1.0),
        ("DELETE", "2xx", 1.0),
        ("other", "2xx", 0.0),
        ("other", "4xx", 5.0),
    ] {
        check(&page, &requests(method, status), count);
    }
    assert!(value(&page, &requests("GET", "2xx")) >= 45.0);
    check(&page, DURABLE, 0.0);
    check(&page, "colors_saves_total", 0.0);
    let processors = std::thread::available_parallelism().map_or(1, |number| number.get());
    check(&page, "colors_workers", (processors - 1).max(1) as f64);
    check(&page, r#"colors_connections_closed_total{reason="no_room"}"#, 0.0);
    let series = page.matches("\ncolors_http_requests_total{").count();
    assert_eq!(series, 28, "other methods have no series of their own");
    assert!(!page.contains("BREW"));
    // this client's and the one that asks, once those before them are closed
    wait_until("two connections", || server.metric("colors_connections") == 2.0);
}

#[test]
fn durable_changes_and_their_saves_are_apart() {
    let (scratch, file, server) = Server::kept("[]");
    let mut client = server.connect();
    // its content is read in, and its answer made, where no other client waits
    client.ask("PUT", "/colors", &long_list(40_000)).expect_status(200);
    for value in 1..=2 {
        client.ask("PUT", "/colors/red", &format!(r#"{{"value":"{value}"}}"#)).expect_status(200);
    }
    // decided by the writer, but nothing to save
    client.ask("DELETE", "/colors/no", "").expect_status(404);
    client.ask("PUT", "/colors/red", r#"{"value":"2"}"#).expect_status(200);
    // a change is timed after its answer was handed to the socket
    let page = eventually("all changes are timed", || {
        let counts = |page: &str| [value(page, DURABLE), value(page, IMMEDIATE)];
        let gets = |page: &str| value(page, &requests("GET", "2xx"));
        Some(page(&server)).filter(|page| counts(page) == [5.0, gets(page)])
    });
    check(&page, "colors_saves_total", 3.0);
    check(&page, "colors_save_duration_seconds_count", 3.0);
    let sum = |times: &str| value(&page, &format!("colors_{times}"));
    let durable = sum("http_request_duration_seconds_sum{durable=\"true\"}");
    assert!(durable > sum("save_duration_seconds_sum"));
    // and those that fail
    fs::rename(file, scratch.file("elsewhere")).unwrap();
    client.ask("PUT", "/colors/red", r#"{"value":"1"}"#).expect_status(500);
    wait_until("it is counted", || server.metric(&requests("PUT", "5xx")) == 1.0);
    assert!(server.metric("colors_save_failures_total") >= 1.0);
    assert_eq!(server.metric("colors_saves_total"), 3.0);
}

#[test]
fn the_list_is_told_by_its_size_alone() {
    let server = Server::with_seed(r#"[{"name":"hidden","value":"secret"}]"#, &[]);
    for (method, target, content) in [
        ("GET", "/colors", ""),
        ("POST", "/colors", r#"{"name":"second","value":"2"}"#),
        ("PUT", "/colors/hidden", r#"{"value":"longer secret"}"#),
        ("DELETE", "/colors/second", ""),
        ("DELETE", "/colors/hidden", ""),
    ] {
        server.ask(method, target, content);
        // before the list is asked for: its length is known without making it
        let page = page(&server);
        assert!(!page.contains("hidden") && !page.contains("secret"));
        let list = server.list();
        check(&page, "colors_colors", list.matches("\"name\"").count() as f64);
        check(&page, "colors_list_bytes", (list + "\n").len() as f64);
    }
}

#[test]
fn promtool_finds_nothing_to_complain_about() {
    if !is_installed("promtool") {
        return;
    }
    let scratch = Scratch::new();
    let page = scratch.write("page", page(&Server::start(&[])));
    for command in
        ["check metrics <$0", "check rules colors.rules.yml", "test rules colors.rules.test.yml"]
    {
        let mut promtool = Command::new("sh");
        promtool.args(["-c", &format!("promtool {command}"), &page]);
        promtool.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/prometheus"));
        let (code, said, error) = harness::run(&mut promtool);
        assert_eq!((code, error.as_str()), (Some(0), ""), "{command}: {said}");
    }
}

/// Exit code, standard output, and what was logged.
#[track_caller]
fn ask_health(arguments: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String, String) {
    let mut command = colors(&["--health"]);
    harness::run(command.args(arguments).envs(variables.iter().copied()))
}

#[test]
fn a_service_is_found_by_its_url_its_socket_and_its_variables() {
    let scratch = Scratch::new();
    let tokens = scratch.write_tokens("a-token-0123456789");
    let socket = format!("unix:{}", scratch.file("s"));
    let both = ["--listen", &socket, "--base-path", "/api", "--private", "--token-file", &tokens];
    let server = Server::start(&both);
    let health = server.ask("GET", "/api/health", "").content;
    let well = (Some(0), format!("{health}\n"), String::new());
    let address = server.address;
    let base = ("COLORS_BASE_PATH", "/api");
    // It needs no token, though the variable without the option would not start a service.
    let private = ("COLORS_PRIVATE", "yes");
    assert_eq!(ask_health(&[&format!("http://{address}/api/")], &[]), well);
    assert_eq!(
        ask_health(&[&format!("http://localhost:{}/api", address.port())], &[private]),
        well
    );
    assert_eq!(ask_health(&[&socket], &[base]), well);
    assert_eq!(ask_health(&["--listen", &socket], &[base]), well);
    for listen in [&address.to_string(), &format!("[::]:{}", address.port()), &socket] {
        assert_eq!(ask_health(&[], &[("COLORS_LISTEN", listen), base]), well, "{listen}");
    }
    let missing = ask_health(&[&format!("http://{address}")], &[]);
    assert_eq!((missing.0, missing.1.as_str()), (Some(1), ""), "{missing:?}");
}

#[test]
fn what_is_not_well_is_one_line_and_exit_code_1() {
    let listener = TcpListener::bind(own_address(0)).unwrap();
    let address = listener.local_addr().unwrap();
    let answers = ["HTTP/1.1 503 No\r\n\r\n{\"status\":\"stopping\"}\n", "SSH-2.0\r\n", ""];
    let server = thread::spawn(move || {
        for answer in answers {
            let mut client = listener.accept().unwrap().0;
            // to close before all is read would reset the connection
            read_head(&mut client).unwrap();
            client.write_all(answer.as_bytes()).unwrap();
        }
    });
    let check = |address: SocketAddr, reason: &str| {
        let place = format!("http://{address}");
        let (code, out, log) = ask_health(&[&place], &[]);
        let expected = format!("[ERROR] no healthy service at {place}: {reason}\n");
        assert_eq!((code, out.as_str()), (Some(1), ""));
        assert!(log.ends_with(&expected) && log.lines().count() == 1, "{log}");
    };
    check(address, r#"503 "{\"status\":\"stopping\"}""#);
    check(address, "the answer is not HTTP");
    check(address, "the answer is not HTTP");
    server.join().unwrap();
    let (_bound, address) = refusing();
    check(address, "Connection refused (os error 111)");
    assert_eq!(ask_health(&["https://a"], &[]).0, Some(2));
    assert_eq!(ask_health(&["--check"], &[]).0, Some(2));
}
