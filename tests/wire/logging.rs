//! The log: what a line says, and that neither a client nor a reader who has stopped reading can do
//! harm through it.

use std::io::{BufRead as _, BufReader};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Stdio;

use rustix::process::Signal;

use crate::common::client::Client;
use crate::common::harness::{
    Scratch, Server, at_once, colors, colors_from_shell, eventually, is_installed, own_environment,
    run, signal_child, wait_until,
};

/// The text of a line, without time and level.
#[track_caller]
fn text(line: &str) -> &str {
    line.split_once("] ").unwrap_or_else(|| panic!("no level: {line:?}")).1
}

#[test]
fn a_log_that_nobody_reads_stalls_no_request_and_says_later_what_is_missing() {
    let scratch = Scratch::new();
    let socket = scratch.file("s");
    let (log, theirs) = std::io::pipe().unwrap();
    let mut command = colors(&["--listen", &format!("unix:{socket}"), "--access-log"]);
    let mut child = command.stderr(theirs).spawn().unwrap();
    // it holds the other end of the pipe as well
    drop(command);
    eventually("it listens", || UnixStream::connect(&socket).ok());
    let mut client = Client::on_unix(&socket);
    let target = format!("/colors/{}", "x".repeat(150));
    let asked = 6_000; // some 1.2 MB of lines, more than the pipe and the queue take together
    for _ in 0..asked {
        assert_eq!(client.ask("GET", &target, "").status, 404);
    }
    // room for more, once somebody reads again
    let mut lines = BufReader::new(log).lines();
    assert!(lines.next().unwrap().unwrap().contains("listening on"));
    let (mut received, mut lost) = (0, 0);
    let dropped = " log lines were dropped: standard error was not read fast enough";
    while received + lost < asked {
        let line = lines.next().unwrap().unwrap();
        match text(&line).strip_suffix(dropped) {
            Some(count) => {
                assert!(line.contains(" [WARN] "), "{line}");
                lost += count.parse::<usize>().unwrap();
            }
            None => {
                assert!(line.contains(&target) && line.ends_with("us no such color"), "{line}");
                received += 1;
            }
        }
    }
    assert_eq!(received + lost, asked);
    assert!(lost > 0 && received > 300, "{lost} lost, {received} received");
    assert_eq!(client.ask("GET", "/colors/red", "").status, 200);
    assert!(lines.next().unwrap().unwrap().contains("/colors/red"));
    let metrics = client.ask("GET", "/metrics", "").content;
    assert!(metrics.contains(&format!("\ncolors_log_lines_dropped_total {lost}\n")), "{metrics}");
    // nor does the end wait for it
    (0..3_000).for_each(|_| client.expect_open());
    signal_child(&child, Signal::TERM);
    assert!(eventually("the service ends", || child.try_wait().unwrap()).success());
}

#[test]
fn a_change_is_logged_with_what_it_has_made() {
    let scratch = Scratch::new();
    let tokens = scratch.write_tokens("alice a-token-0123456789");
    let file = scratch.file("colors.db");
    for data in [&[][..], &["--data", &file]] {
        let server = Server::start(
            &[&["--access-log", "--private", "--token-file", &tokens], data].concat(),
        );
        let mut client = server.connect();
        let long = "x".repeat(300);
        let mut check = |method: &str, target: &str, fields: &str, content: &str, end: &str| {
            let fields = format!("Authorization: Bearer a-token-0123456789\r\n{fields}");
            let response = client.ask_with(method, target, &fields, content);
            let (status, bytes) = (response.status, response.field("content-length").unwrap());
            let address = client.stream.local_addr().unwrap();
            let start = format!("@{address} {method} \"{target}\" {status} {bytes} ");
            let line = eventually("the line", || {
                server.log().lines().find(|line| line.contains(&start)).map(str::to_owned)
            });
            assert_eq!(line.split_once("us").unwrap().1, end, "{line}");
            assert!(text(&line).starts_with("alice@") && !line.contains("a-token"), "{line}");
        };
        let (condition, secret) = ("If-Match: \"x\"\r\n", r#"{"name":"secret","value":"1"}"#);
        let refusal = " the condition does not hold, read the current state and decide again";
        check("POST", "/colors", condition, secret, refusal);
        check("POST", "/colors", "", r#"{"name":"a\"\n","value":"1"}"#, r#" name "a\"\n""#);
        let (content, end) =
            (format!(r#"{{"value":"{long}"}}"#), format!(r#" value "{}"…"#, &long[..200]));
        check("PUT", "/colors/red", "", &content, &end);
        check("PUT", "/colors/blue", "", r##"{"value":"#0000ff"}"##, " unchanged");
        let no_value = " unchanged, the content has no field \"value\"";
        check("PUT", "/colors/lime", "", "{}", no_value);
        check("PUT", "/colors/no", "", r#"{"value":"1"}"#, " no such color");
        check("GET", "/colors/red", "", "", "");
        check("DELETE", "/colors/red", "", "", "");
    }
}

#[test]
fn a_refused_request_is_logged_with_what_was_read_of_its_head() {
    let scratch = Scratch::new();
    let socket = scratch.0.join("s");
    let listen = format!("unix:{}", socket.display());
    let server = Server::start(&["--listen", &listen, "--access-log"]);
    for (bytes, line) in [
        (
            "POST /colors HTTP/1.1\r\nX-Forwarded-For: 203.0.113.9\r\nHost: a\r\nContent-Length: 1048577\r\n\r\n",
            "203.0.113.9 POST \"/colors\" 413 ",
        ),
        (
            "PUT /colors/a?token HTTP/1.1\r\nExpect: tea\r\nX-Forwarded-For: 203.0.113.9\r\n\r\n",
            "203.0.113.9 PUT \"/colors/a\" 417 ",
        ),
        ("GET /colors/c HTTP/2.0\r\n\r\n", "unix GET \"/colors/c\" 505 "),
        ("nonsense\r\n\r\n", "unix - 400 "),
    ] {
        Client::on_unix(&socket).send(bytes).response();
        wait_until("the line", || {
            server.log().lines().any(|logged| text(logged).starts_with(line))
        });
    }
}

#[test]
fn a_flood_of_one_warning_hides_neither_another_nor_a_fault_of_the_service() {
    let scratch = Scratch::new();
    let (file, tokens) = (scratch.file("colors.db"), scratch.write_tokens("a-token-0123456789"));
    let server = Server::start(&["--data", &file, "--token-file", &tokens]);
    let mut client = server.connect();
    let mut delete = |fields| client.ask_with("DELETE", "/colors/red", fields, "").status;
    (0..400).for_each(|_| assert_eq!(delete("Authorization: Bearer wrong\r\n"), 401));
    std::fs::remove_file(&file).unwrap();
    assert_eq!(delete("Authorization: Bearer a-token-0123456789\r\n"), 500);
    assert_eq!(delete("Sec-Fetch-Site: cross-site\r\n"), 403);
    let refused = "a page of another origin may not change the list";
    let log = server.log_when("the last is logged", |log| log.contains(refused));
    assert!(log.contains("[ERROR] changes cannot be saved: colors.db was removed"), "{log}");
}

#[test]
fn a_failure_to_start_is_said_at_any_level() {
    for level in ["off", "error", "debug"] {
        let (code, _, log) =
            run(&mut colors(&["--log-level", level, "--seed", "no/such/file.json"]));
        assert_eq!((code, log.lines().count()), (Some(1), 1), "{level}: {log}");
        assert!(log.contains("[ERROR] cannot read the seed no/such/file.json"), "{log}");
    }
}

#[test]
fn a_start_that_the_system_refuses_threads_is_one_line_and_leaves_no_file() {
    if !is_installed("prlimit") || !rustix::process::geteuid().is_root() {
        return;
    }
    let scratch = Scratch::for_all_users();
    // root has no such limit; the processes of this user are those of this test
    let user = 0x4000_0000 + 3 * std::process::id();
    std::os::unix::fs::chown(&scratch.0, Some(user), Some(user)).unwrap();
    let check = |user: u32, threads: u32, arguments: &[&str], reason: &str| {
        let mut command = own_environment("prlimit");
        command.args([&format!("--nproc={threads}"), "./colors"]).args(arguments);
        command.current_dir(&scratch.0).stdin(Stdio::null());
        let (code, _, log) = run(command.uid(user).gid(user));
        assert_eq!((code, log.lines().count()), (Some(1), 1), "{threads} threads: {log}");
        assert!(log.contains(&format!("the system refuses a thread{reason}")), "{log}");
        assert_eq!(scratch.names(), ["colors"], "{threads} threads");
    };
    // the main one, that of the log, three of the pool, and the writer
    for threads in 1..=5 {
        let list = ["--workers", "2", "--listen", "unix:s", "--data", "list.db"];
        check(user, threads, &list, "; ");
    }
    // that for names, for which a start tries again and again
    let places = [["--follow", "http://localhost:1"], ["--data", "etcd://localhost:1/colors"]];
    at_once((user + 1..).zip(places), |(user, place)| {
        let arguments = [&["--listen", "127.0.0.1:0"], &place[..]].concat();
        check(user, 2, &arguments, " (raise the limit");
    });
}

#[test]
fn the_first_line_says_where_what_and_whether_it_lasts() {
    let scratch = Scratch::new();
    let seed = scratch.write("mine.json", r#"[{"name":"a","value":"b"}]"#);
    let (root, elsewhere) = (Path::new(env!("CARGO_MANIFEST_DIR")), &*scratch.0);
    let in_memory =
        |seed| format!("148 colors from {seed}, in memory: changes are lost when it stops");
    let kept = |origin: &str| format!("1 color kept in colors.db, {origin}");
    let both = ["--seed", &seed, "--data", "colors.db"];
    for (directory, arguments, base, details) in [
        (root, &["--base-path", "/api"][..], "/api", in_memory("seed/colors.json")),
        (elsewhere, &[], "", in_memory("the built-in seed")),
        (elsewhere, &both, "", kept(&format!("which was made now from {seed}"))),
        (elsewhere, &both, "", kept("which was there: --seed is not read")),
        (elsewhere, &both[2..], "", kept("which was there")),
    ] {
        let mut command = colors(&["--listen", "127.0.0.1:0"]);
        command.args(arguments).current_dir(directory);
        let server = Server::spawn(command);
        let (address, version) = (server.address, env!("BUILD_VERSION"));
        let expected =
            format!("[INFO] listening on http://{address}{base} (colors {version}, {details})");
        let log = server.stop();
        assert!(log.lines().next().unwrap().ends_with(&expected), "{log}");
    }
}

#[test]
fn with_the_value_changes_the_access_log_has_what_changed_the_list_and_debug_lines_what_did_not() {
    for start in [Server::with_seed, Server::durable] {
        let options = ["--access-log=changes", "--log-level", "debug"];
        let server = start(r#"[{"name":"a","value":"1"}]"#, &options);
        for (method, target, content) in [
            ("GET", "/colors", ""),
            ("PUT", "/colors/a", r#"{"Value":"2"}"#),
            ("PUT", "/colors/a", r#"{"value":"1"}"#),
            ("DELETE", "/colors/b", ""),
            ("PUT", "/colors/a", r#"{"value":"2"}"#),
            ("POST", "/colors", r#"{"name":"b","value":"3"}"#),
            ("PUT", "/colors", "[]"),
        ] {
            server.ask(method, target, content);
        }
        let log = server.stop();
        let behind = |text: &str| -> Vec<&str> {
            log.lines().filter_map(|line| Some(line.split_once(text)?.1)).collect()
        };
        assert_eq!(behind("us "), [r#"value "2""#, r#"name "b""#, "2 -> 0 colors"], "{log}");
        let no_value = r#"200: unchanged, the content has no field "value""#;
        let expected = [no_value, "200: unchanged", "404: no such color"];
        assert_eq!(behind(" with "), expected, "{log}");
        let verbs =
            ["answered", "refused"].map(|verb| log.matches(&format!("[DEBUG] {verb} ")).count());
        assert_eq!(verbs, [2, 1], "{log}");
    }
}

#[test]
fn lines_to_a_journal_have_a_priority_and_neither_time_nor_level() {
    for (journal, part, at) in [
        (
            "$(stat --dereference --format=%d:%i /proc/self/fd/2)",
            "<6>listening on http://127.0.0.1:",
            0,
        ),
        // the variable is inherited by what runs inside a service and logs elsewhere
        ("8:1", "Z [INFO] listening on http://127.0.0.1:", "2026-11-29T18:00:00.000".len()),
    ] {
        let before = format!("JOURNAL_STREAM={journal}");
        let log = Server::spawn(colors_from_shell(&before, &["--listen", "127.0.0.1:0"])).log();
        assert_eq!(log.find(part), Some(at), "{log}");
    }
}
