//! Tokens: who may change the list, and with `--private` read it; how they get in, and that they
//! never get out.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use rustix::process::Signal;

use crate::common::client::{Client, Response, request};
use crate::common::harness::{Scratch, Server, colors, run, value, wait_until};

pub(super) const TOKEN: &str = "first-token-0123456789+/==";
const SECOND: &str = "2nd.token~abcdefghijkl";

pub(super) struct Guarded {
    pub(super) server: Server,
    scratch: Scratch,
}

impl Guarded {
    pub(super) fn start(arguments: &[&str]) -> Self {
        let scratch = Scratch::new();
        let file = scratch.write_tokens(&format!("# of the tests\n\n{TOKEN}\n  {SECOND}\r\n"));
        let server = Server::start(&[&["--token-file", &file], arguments].concat());
        Self { server, scratch }
    }

    /// One request with this value of Authorization, if it is not empty.
    pub(super) fn ask(
        &self,
        method: &str,
        target: &str,
        authorization: &str,
        content: &str,
    ) -> Response {
        self.server.ask_with(method, target, &field(authorization), content)
    }
}

/// The field line of this value of Authorization; none for none.
fn field(authorization: &str) -> String {
    if authorization.is_empty() {
        return String::new();
    }
    format!("Authorization: {authorization}\r\n")
}

#[test]
fn a_bad_token_file_stops_the_start_and_is_not_shown() {
    let scratch = Scratch::new();
    let bad = scratch.write_tokens("first-token-0123456789\nsecret-too-sho\n");
    let long = scratch.write("long", format!("#{}\n{TOKEN}", "#".repeat(65_536)));
    for (file, reason) in [
        (bad.as_str(), "line 2: a token has 16 to 512 characters"),
        (&long, "it has more than 64 KiB"),
        ("no/such/file", "No such file or directory (os error 2)"),
    ] {
        for mode in [&["--check"][..], &["--listen", "127.0.0.1:0"]] {
            let (code, _, log) = run(&mut colors(&[mode, &["--token-file", file]].concat()));
            let expected = format!("cannot use the token file {file}: {reason}\n");
            assert_eq!((code, log.split_once("[ERROR] ").unwrap().1), (Some(1), &*expected));
        }
    }
}

fn warnings(log: &str) -> Vec<&str> {
    log.lines().filter_map(|line| Some(line.split_once("[WARN] ")?.1)).collect()
}

#[test]
fn a_token_file_that_others_can_use_is_a_warning() {
    let scratch = Scratch::new();
    let file = scratch.write_tokens(TOKEN);
    for (mode, is_open) in
        [(0o600, false), (0o400, false), (0o640, true), (0o604, true), (0o620, true)]
    {
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        let log = Server::start(&["--token-file", &file]).stop();
        let warning = format!(
            "[WARN] others can use the token file {file}, its mode is {mode:04o}; run chmod 600 on it\n"
        );
        assert_eq!((log.contains(&warning), log.contains("WARN")), (is_open, is_open), "{log}");
    }
    // a credential of systemd has an access control list, whose mask shows as the group's mode
    let mut command = colors(&["--listen", "127.0.0.1:0", "--token-file", &file]);
    command.env("CREDENTIALS_DIRECTORY", &scratch.0);
    assert!(!Server::spawn(command).stop().contains("WARN"));
}

#[test]
fn a_credential_that_is_to_protect_and_no_token_file_never_start() {
    let (credentials, scratch) = (Scratch::new(), Scratch::new());
    let file = credentials.write_tokens(TOKEN);
    let start =
        |arguments: &[&str]| run(colors(arguments).env("CREDENTIALS_DIRECTORY", &credentials.0));
    let expected = format!(
        "error: the unit has the credential \"tokens\", but no token file is named, so no change \
         would need a token: add the line Environment=COLORS_TOKEN_FILE={file} to the unit\n"
    );
    // With --check first: without the refusal, the others would not end.
    for arguments in [&["--check"][..], &["--check", "--private"], &["--listen", "127.0.0.1:0"]] {
        let (code, out, error) = start(arguments);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{arguments:?}: {error}");
        assert!(error.starts_with(&expected), "{error}");
    }
    // another file may be named, and --dump and --health serve nobody
    let (other, data) = (scratch.write_tokens(TOKEN), scratch.file("list.db"));
    let server = Server::start(&["--data", &data]);
    let health = format!("--health=http://{}", server.address);
    for arguments in
        [&["--check", "--token-file", &other][..], &["--dump", "--data", &data], &[&health]]
    {
        let (code, _, error) = start(arguments);
        assert_eq!((code, error.as_str()), (Some(0), ""), "{arguments:?}");
    }
    // what cannot be looked for may be there
    let code = run(colors(&["--check"]).env("CREDENTIALS_DIRECTORY", &file)).0;
    assert_eq!(code, Some(2));
    fs::remove_file(&file).unwrap();
    assert_eq!(start(&["--check"]).0, Some(0));
    std::os::unix::fs::symlink("gone", file).unwrap();
    assert_eq!(start(&["--check"]).0, Some(2));
}

#[test]
fn a_start_that_lets_everybody_write_is_a_warning() {
    let scratch = Scratch::new();
    let (file, socket) = (scratch.write_tokens(TOKEN), format!("unix:{}/s", scratch.0.display()));
    for (arguments, warned) in [
        (&["--listen", "0.0.0.0:0"][..], true),
        (&["--listen", "127.0.0.1:0", "--listen", "[::]:0"], true),
        (&["--listen", "0.0.0.0:0", "--read-only"], false),
        (&["--listen", "0.0.0.0:0", "--token-file", &file], false),
        (&["--listen", "127.0.0.1:0", "--listen", "[::1]:0", "--listen", &socket], false),
    ] {
        let log = Server::spawn(colors(arguments)).stop();
        let warnings = warnings(&log);
        assert_eq!(warnings.len(), usize::from(warned), "{log}");
        let expected = " may change the list: --token-file, --read-only or a loopback address would prevent that";
        assert!(warnings.iter().all(|text| text.starts_with("whoever reaches http://") && text.ends_with(expected)), "{log}");
    }
}

#[test]
fn a_hangup_reads_the_tokens_again_and_a_bad_file_leaves_the_old_ones() {
    let guarded = Guarded::start(&["--private"]);
    let (server, scratch) = (&guarded.server, &guarded.scratch);
    let write =
        |token: &str| guarded.ask("PUT", "/colors/red", &format!("Bearer {token}"), "").status;
    let file = scratch.file("tokens");
    let reload = |content: Option<&str>, expected: &str| {
        let before = server.log().len();
        match content {
            Some(content) => drop(scratch.write_tokens(content)),
            None => fs::remove_file(&file).unwrap(),
        }
        server.signal(Signal::HUP);
        let line = format!("] {expected}\n");
        server.log_when(expected, |log| log[before..].contains(&line));
    };
    let loaded = format!("[INFO] 2 tokens loaded from {file}\n");
    server.log_when("a line on the start", |log| log.contains(&loaded));
    let bearer = format!("Bearer {TOKEN}");
    let list = guarded.ask("GET", "/colors", &bearer, "");
    let tag = list.field("etag").unwrap();
    let fields = format!("Host: localhost\r\nIf-None-Match: {tag}\r\nPrefer: wait=300\r\n");
    let mut waiting = server.connect();
    waiting.send(request("GET", "/colors", &(fields + &field(&bearer)), ""));
    wait_until("it waits", || {
        let metrics = guarded.ask("GET", "/metrics", &bearer, "");
        value(&metrics.content, "colors_requests_waiting") == 1.0
    });
    let new = "the-third-token-0123456789";
    reload(Some(&format!("{SECOND}\n{new}")), &format!("2 tokens loaded from {file}"));
    assert_eq!((write(TOKEN), write(SECOND), write(new)), (401, 200, 200));
    // whoever waits is refused once the token is withdrawn
    waiting.response().expect_field(401, "preference-applied", Some("wait=300"));
    let bad = |reason: &str| {
        format!("cannot use the token file {file}: {reason}; the previous tokens stay")
    };
    reload(Some(&format!("{TOKEN}\nbad")), &bad("line 2: a token has 16 to 512 characters"));
    assert_eq!((write(TOKEN), write(new)), (401, 200));
    reload(None, &bad("No such file or directory (os error 2)"));
    assert_eq!((write(TOKEN), write(new)), (401, 200));
    reload(Some(TOKEN), &format!("1 token loaded from {file}"));
    assert_eq!((write(TOKEN), write(new)), (200, 401));
    server.signal(Signal::TERM);
    assert_eq!(guarded.server.wait().0.code(), Some(0));
}

#[test]
fn wrong_tokens_are_logged_with_the_address() {
    let scratch = Scratch::new();
    let socket = scratch.file("s");
    let guarded = Guarded::start(&["--listen", &format!("unix:{socket}")]);
    let wrong =
        || assert_eq!(guarded.ask("PUT", "/colors/red", "Bearer secret-guess", "").status, 401);
    let right = || {
        assert_eq!(guarded.ask("PUT", "/colors/red", &format!("Bearer {TOKEN}"), "").status, 200)
    };
    right();
    assert!(!guarded.server.log().contains("WARN"), "{}", guarded.server.log());
    for _ in 0..3 {
        wrong();
        // these are no attempts
        assert_eq!(guarded.ask("GET", "/colors/red", "Bearer secret-guess", "").status, 200);
        assert_eq!(guarded.ask("PUT", "/colors/red", "", "").status, 401);
    }
    // that of the client which the proxy names
    let fields = format!("X-Forwarded-For: 203.0.113.9\r\n{}", field("Bearer secret-guess"));
    Client::on_unix(&socket).ask_with("PUT", "/colors/red", &fields, "").expect_status(401);
    let log = guarded.server.stop();
    let mut warnings = warnings(&log);
    assert_eq!(warnings.pop(), Some("a wrong token from 203.0.113.9"), "{log}");
    let is_expected = |text: &&str| text.starts_with("a wrong token from 127.0.0.1:");
    assert!(warnings.len() == 3 && warnings.iter().all(is_expected), "{log}");
}

#[test]
fn no_token_gets_into_a_log_an_answer_or_the_process_list() {
    let guarded = Guarded::start(&["--access-log", "--log-level", "debug", "--private"]);
    let mut answers = String::new();
    for authorization in [
        format!("Bearer {TOKEN}"),
        format!("Bearer {TOKEN}x"),
        format!("Basic {TOKEN}"),
        TOKEN.to_owned(),
    ] {
        for _ in 0..6 {
            answers +=
                &format!("{:?}", guarded.ask("PUT", "/colors/red", &authorization, "not JSON"));
            answers += &format!("{:?}", guarded.ask("GET", "/colors/red", &authorization, ""));
        }
        let twice = field(&authorization).repeat(2);
        answers += &format!("{:?}", guarded.server.ask_with("GET", "/colors/red", &twice, ""));
        let bad = format!("GET /colors HTTP/1.1\r\n{twice}bad\r\n\r\n");
        answers += &format!("{:?}", guarded.server.connect().send(bad).response());
    }
    guarded.scratch.write_tokens(&format!("{TOKEN} bad"));
    guarded.server.signal(Signal::HUP);
    guarded.server.log_when("the reload", |log| log.contains("the previous tokens stay"));
    let pid = guarded.server.pid();
    let of_process: String = ["cmdline", "environ"]
        .map(|file| fs::read(format!("/proc/{pid}/{file}")).unwrap())
        .iter()
        .map(|bytes| String::from_utf8_lossy(bytes))
        .collect();
    let log = guarded.server.stop();
    assert!(log.contains("a wrong token from") && log.matches("PUT").count() == 24, "{log}");
    for text in [&answers, &of_process, &log] {
        assert!(!text.contains("first-token") && !text.contains("0123456789+/="), "{text}");
    }
}
