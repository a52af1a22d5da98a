//! From the command line to the first request, and everything that keeps it from getting there.

use std::fs;
use std::process::Stdio;

use crate::common::client::request;
use crate::common::harness::{Scratch, Server, colors, own_environment, run, wait_until};

/// The text of the one log line, without time and level.
#[track_caller]
fn only_line(log: &str) -> &str {
    assert_eq!(log.lines().count(), 1, "{log}");
    log.trim_end().split_once("[ERROR] ").unwrap().1
}

#[test]
fn an_address_in_use_is_one_clear_line_and_leaves_no_file() {
    let scratch = Scratch::new();
    let server = Server::start(&[]);
    let address = server.address.to_string();
    let socket = format!("unix:{}", scratch.file("s"));
    let (empty, list) = (scratch.write("empty.db", ""), scratch.file("list.db"));
    Server::with_data("[]", &list, &[]).stop();
    let before = fs::read(&list).unwrap();
    for file in [&scratch.file("colors.db"), &empty, &list] {
        let (code, _, log) =
            run(&mut colors(&["--listen", &socket, "--listen", &address, "--data", file]));
        let expected = format!(
            "cannot listen on http://{address}: Address already in use (os error 98); choose another address, port or path with --listen"
        );
        assert_eq!((code, only_line(&log)), (Some(1), expected.as_str()));
        assert_eq!(scratch.names(), ["empty.db", "list.db"]);
        assert_eq!(fs::read_to_string(&empty).unwrap(), "");
        assert!(fs::read(&list).unwrap() == before);
    }
}

#[test]
fn too_few_descriptors_for_a_client_are_refused_with_the_number_that_is_needed() {
    let scratch = Scratch::new();
    let start = |descriptors: &str| {
        let mut command = own_environment("sh");
        let script = format!("ulimit -n {descriptors} && exec \"$0\" \"$@\"");
        command.args(["-c", &script]).arg(colors(&[]).get_program());
        command.args(["--listen", "127.0.0.1:0", "--workers", "2", "--data"]);
        command.arg(scratch.file("colors.db")).stderr(Stdio::piped());
        command
    };
    let (code, _, log) = run(&mut start("38"));
    let expected = "cannot go on: the process may have 38 descriptors and needs 39; raise the limit (ulimit -n, LimitNOFILE=)";
    assert_eq!((code, only_line(&log)), (Some(1), expected));
    assert_eq!(scratch.names(), [""; 0]);
    Server::spawn(start("39")).ask("DELETE", "/colors/red", "").expect_status(200);
}

#[test]
fn help_and_version_go_to_standard_output() {
    let (code, help, error) = run(&mut colors(&["--help"]));
    assert_eq!((code, error.as_str()), (Some(0), ""));
    assert!(help.contains("--listen"), "{help}");
    let expected = (Some(0), format!("colors {}\n", env!("BUILD_VERSION")), String::new());
    assert_eq!(run(&mut colors(&["--version"])), expected);
}

#[test]
fn the_access_log_has_a_line_for_every_request() {
    let server = Server::start(&["--access-log"]);
    let mut client = server.connect();
    let address = client.stream.local_addr().unwrap();
    let fields = "Host: localhost\r\nX-Forwarded-For: 203.0.113.9\r\nConnection: close\r\n";
    client.send(request("GET", "/colors/a%0A\"?b", fields, ""));
    client.response().expect_status(404);
    let length = "{\"error\":true}\n".len();
    let expected = format!(r#"[INFO] {address} GET "/colors/a%0A\"" 404 {length} "#);
    server.log_when("the line", |log| log.contains(&expected));
}

#[test]
fn with_the_value_changes_the_access_log_has_what_changed_the_list() {
    for start in [Server::with_seed, Server::durable] {
        let server = start(r#"[{"name":"a","value":"1"}]"#, &["--access-log=changes"]);
        for (method, target, content) in [
            ("GET", "/colors", ""),
            ("PUT", "/colors/a", r#"{"values":"2"}"#),
            ("PUT", "/colors/a", r#"{"value":"1"}"#),
            ("DELETE", "/colors/b", ""),
            ("PUT", "/colors/a", r#"{"value":"2"}"#),
            ("POST", "/colors", r#"{"name":"b","value":"3"}"#),
            ("PUT", "/colors", "[]"),
        ] {
            server.ask(method, target, content);
        }
        let log = server.stop();
        let lines: Vec<_> = log.lines().filter_map(|line| line.split_once("us ")).collect();
        let details: Vec<&str> = lines.iter().map(|(_, detail)| *detail).collect();
        assert_eq!(details, [r#"value "2""#, r#"name "b""#, "2 -> 0 colors"], "{log}");
    }
}

/// The first line that the service logs when `JOURNAL_STREAM` is what the shell makes of `value`.
fn first_line_with_journal(value: &str) -> String {
    let mut command = own_environment("sh");
    let script = format!("JOURNAL_STREAM={value} exec \"$0\" --listen 127.0.0.1:0");
    command
        .args(["-c", &script])
        .arg(colors(&[]).get_program())
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    command.stderr(Stdio::piped());
    Server::spawn(command).log()
}

#[test]
fn lines_to_a_journal_have_a_priority_and_neither_time_nor_level() {
    let log = first_line_with_journal("$(stat --dereference --format=%d:%i /proc/self/fd/2)");
    assert!(log.starts_with("<6>listening on http://127.0.0.1:"), "{log}");
    // the variable is inherited by what runs inside a service and logs elsewhere
    let log = first_line_with_journal("8:1");
    assert!(log.contains("Z [INFO] listening on "), "{log}");
}

#[test]
fn threads_have_names_that_tell_them_apart() {
    let writer = Server::start(&[]);
    let url = format!("http://{}", writer.address);
    let scratch = Scratch::new();
    let data = scratch.file("colors.db");
    let server = Server::start(&["--workers", "2", "--data", &data, "--follow", &url]);
    let mut expected = ["follower", "log", "pool", "worker-0", "worker-1", "writer"].to_vec();
    wait_until("all threads have begun", || {
        let tasks = fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
        let names: Vec<String> =
            tasks.flat_map(|task| fs::read_to_string(task.unwrap().path().join("comm"))).collect();
        expected.retain(|name| !names.iter().any(|other| other.trim_end() == *name));
        expected.is_empty()
    });
}
