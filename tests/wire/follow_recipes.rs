//! The programs of the documents that follow a color, each as it stands there: they live on while
//! the service is away, and show what is new once. Lamps are what stands for the devices.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::common::client::read_head;
use crate::common::harness::{Scratch, Server, at_once, eventually, is_installed, run, wait_until};
use crate::wire::following::serve;
use crate::wire::following_strangers::response;
use crate::wire::recipes::{block, own_address};
use crate::wire::systemd::check_unit;
use crate::wire::waiting::waiting;

const LAMPS: &str = include_str!("../../docs/lamps.md");
const HTTP: &str = include_str!("../../docs/http.md");
const README: &str = include_str!("../../README.md");
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/follow/follow-colors");

/// A program that follows `/colors/red` and prints what is new, in a directory of its own; killed
/// when dropped, with all that it has started.
struct Follower {
    child: Child,
    scratch: Scratch,
}

impl Drop for Follower {
    fn drop(&mut self) {
        // The group lives while the child is not waited for.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }
}

impl Follower {
    fn start(mut command: Command, scratch: Scratch) -> Self {
        let printed = fs::File::create(scratch.file("printed")).unwrap();
        command.current_dir(&scratch.0).stdin(Stdio::null()).stdout(printed).stderr(Stdio::null());
        Self { child: command.process_group(0).spawn().unwrap(), scratch }
    }

    /// The values that it has printed.
    fn printed(&self) -> Vec<String> {
        let text = fs::read_to_string(self.scratch.file("printed")).unwrap();
        let line_of = |line: &str| match line.split_once(r#""value":""#) {
            Some((_, rest)) => rest.trim_end_matches("\"}").to_owned(),
            None => line.to_owned(),
        };
        text.lines().map(line_of).collect()
    }

    #[track_caller]
    fn wait_for(&self, values: &[&str]) {
        wait_until(&format!("it shows {values:?}: {:?}", self.printed()), || {
            self.printed() == values
        });
    }
}

fn shell(program: &str, commands: &str) -> Command {
    let mut command = Command::new(program);
    command.args(["-c", commands]);
    command
}

/// The programs, by language; `None` if what runs it is not installed.
fn follower(language: &str, address: &str) -> Option<Follower> {
    let scratch = Scratch::new();
    let program = |program: &str, file: &str| {
        let text = block(HTTP, language, "wait=60").replace("localhost:8080", address);
        let mut command = Command::new(program);
        command.arg(scratch.write(file, text));
        command
    };
    let script = block(README, "sh", "follow-colors")
        .replace("packaging/follow/follow-colors", SCRIPT)
        .replace("localhost:8080/colors/lamp", &format!("{address}/colors/red"));
    let command = match language {
        "python" if is_installed("python3") => program("python3", "follow.py"),
        "js" if is_installed("node") => program("node", "follow.mjs"),
        "sh" if is_installed("jq") => shell("sh", &script),
        "busybox" if is_installed(language) => {
            // a host that has no other programs but curl
            fs::create_dir(scratch.0.join("bin")).unwrap();
            let links = "busybox --install -s bin && ln -sf \"$(command -v curl)\" bin/curl";
            let linked = shell("sh", links).current_dir(&scratch.0).status().unwrap();
            assert!(linked.success(), "{linked}");
            let sed = README.split('`').find(|word| word.starts_with("sed ")).unwrap();
            let mut command = shell(&scratch.file("bin/sh"), &script.replace("jq -r .value", sed));
            command.env("PATH", scratch.file("bin"));
            command
        }
        _ => return None,
    };
    Some(Follower::start(command, scratch))
}

/// What follows a color, each by the name of its language or shell.
const LANGUAGES: [&str; 4] = ["python", "js", "sh", "busybox"];

#[test]
fn a_program_that_follows_a_color_outlives_the_service_and_the_color() {
    at_once(LANGUAGES, |language| {
        let scratch = Scratch::new();
        let file = scratch.file("colors.db");
        let server = serve(&own_address(0), &file, &[]);
        let address = server.address.to_string();
        let Some(follower) = follower(language, &address) else { return };
        follower.wait_for(&["#ff0000"]);
        wait_until("it waits", || waiting(&server) == 1);
        // by SIGKILL
        drop(server);
        let server = serve(&address, &file, &[]);
        wait_until("it waits again", || waiting(&server) == 1);
        server.ask("PUT", "/colors/red", r#"{"value":"changed"}"#).expect_status(200);
        follower.wait_for(&["#ff0000", "changed"]);
        wait_until("it waits for more", || waiting(&server) == 1);
        server.ask("DELETE", "/colors/red", "").expect_status(200);
        wait_until("it is told", || waiting(&server) == 0);
        server.ask("POST", "/colors", r#"{"name":"red","value":"new"}"#).expect_status(201);
        follower.wait_for(&["#ff0000", "changed", "new"]);
        server.stop();
    });
}

/// What stands for a service or a device, and its address.
fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

/// Reads a request with its content, and answers it with this.
fn receive(listener: &TcpListener, answer: &str) -> (String, String) {
    let mut connection = eventually("a request comes", || Some(listener.accept().ok()?.0));
    connection.set_nonblocking(false).unwrap();
    let head = read_head(&mut connection).unwrap().to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut content = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    connection.read_exact(&mut content).unwrap();
    connection.write_all(answer.as_bytes()).unwrap();
    (head, String::from_utf8(content).unwrap())
}

/// An answer with these fields after which the connection ends.
fn last(status: &str, fields: &str, content: &str) -> String {
    response(status, &format!("Connection: close\r\n{fields}"), content)
}

#[test]
fn a_program_that_follows_a_color_shows_whole_answers_and_pauses_after_others() {
    at_once(LANGUAGES, |language| {
        let (listener, address) = listen();
        let Some(follower) = follower(language, &address) else { return };
        let color = |value: &str| format!(r#"{{"name":"red","value":"{value}"}}"#) + "\n";
        let whole = |tag: &str| last("200 OK", &format!("ETag: \"{tag}\"\r\n"), &color(tag));
        let error = |status: &str| last(status, "", "{\"error\":true}\n");
        let begun = Instant::now();
        let answers = [
            // most of it is missing
            whole("part").replace("Content-Length: ", "Content-Length: 9"),
            error("503 Service Unavailable"),
            whole("first"),
            // at the connection limit a wait may end early
            "HTTP/1.1 304 Not Modified\r\nETag: \"first\"\r\nConnection: close\r\n\r\n".to_owned(),
            error("404 Not Found"),
            whole("second"),
            whole("third"),
            // by proxies that alter tags so that the service does not know them, or remove them
            whole("third"),
            last("200 OK", "", &color("bare")),
            last("200 OK", "", &color("bare")),
            whole("last"),
        ];
        let conditions = answers.map(|answer| {
            let (head, _) = receive(&listener, &answer);
            let condition = head.lines().find_map(|line| line.strip_prefix("if-none-match: "));
            // without the field it is answered at once, too
            condition.unwrap_or(r#""""#).to_owned()
        });
        let [none, first, second, third] = [r#""""#, r#""first""#, r#""second""#, r#""third""#];
        let expected = [none, none, none, first, first, first, second, third, third, none, none];
        assert_eq!(conditions, expected);
        follower.wait_for(&["first", "second", "third", "bare", "last"]);
        // 1 s and 2 s, twice, and three times 1 s
        assert!(begun.elapsed() >= Duration::from_secs(9), "{:?}", begun.elapsed());
    });
}

#[test]
fn the_unit_that_follows_the_list_is_sound_and_makes_its_file_after_each_change() {
    let scratch = Scratch::new();
    let unit = include_str!("../../packaging/follow/colors-follow.service");
    if is_installed("systemd-analyze") {
        scratch.write("colors-follow.service", unit);
        check_unit(&scratch.0, "colors-follow.service");
    }
    if !is_installed("jq") {
        return;
    }
    let server = Server::start(&[]);
    let command = unit.split_once("ExecStart=").unwrap().1.split_once("\nRuntime").unwrap().0;
    let command = command
        .replace("/usr/share/doc/colors/examples/follow-colors", SCRIPT)
        .replace("localhost:8080", &server.address.to_string());
    let follower = Follower::start(shell("sh", &command), scratch);
    let names = || fs::read_to_string(follower.scratch.file("names.txt")).unwrap_or_default();
    wait_until("the file is made", || names().contains("red\n"));
    server.ask("DELETE", "/colors/red", "").expect_status(200);
    wait_until("it is made again", || !names().lines().any(|name| name == "red"));
}

/// A service with a lamp that the commands of the document have made.
fn service_with_lamp() -> Server {
    let server = Server::start(&[]);
    let address = server.address.to_string();
    let create = block(LAMPS, "sh", "curl -sS -X PUT").replace("SERVICE:8080", &address);
    let color = "{\"name\":\"lamp\",\"value\":\"#ffd27f\"}\n".to_owned();
    assert_eq!(run(&mut shell("sh", &create)), (Some(0), color, String::new()));
    server
}

#[test]
fn a_device_with_wled_is_told_of_each_change_and_again_after_it_was_away() {
    if !is_installed("jq") {
        return;
    }
    let server = service_with_lamp();
    let (device, address) = listen();
    let commands = block(LAMPS, "sh", "follow-colors")
        .replace("packaging/follow/follow-colors", SCRIPT)
        .replace("SERVICE:8080", &server.address.to_string())
        .replace("WLED", &address);
    let follower =
        Follower::start(shell("sh", &format!("{} 2>&1", commands.trim_end())), Scratch::new());
    let expect = |status: &str, color: &str| {
        let (head, content) = receive(&device, &last(status, "", "{}"));
        assert!(head.starts_with("post /json/state http/1.1\r\n"), "{head}");
        assert!(head.contains("content-type: application/json\r\n"), "{head}");
        let compact: String = content.split_whitespace().collect();
        assert_eq!(compact, format!(r#"{{"on":true,"seg":[{{"col":["{color}"]}}]}}"#));
    };
    expect("200 OK", "ffd27f");
    wait_until("it waits", || waiting(&server) == 1);
    server.ask("PUT", "/colors/lamp", r##"{"value":"#111111"}"##).expect_status(200);
    expect("503 Service Unavailable", "111111");
    expect("200 OK", "111111");
    for value in NO_COLORS {
        wait_until("it waits", || waiting(&server) == 1);
        server.ask("PUT", "/colors/lamp", &format!(r#"{{"value":"{value}"}}"#)).expect_status(200);
        wait_until("it is skipped", || {
            follower.printed().last() == Some(&format!("no #rrggbb: {value}"))
        });
    }
    wait_until("it waits", || waiting(&server) == 1);
    server.ask("PUT", "/colors/lamp", r##"{"value":"#AAbb22"}"##).expect_status(200);
    expect("200 OK", "AAbb22");
}

/// Values of which digits could be taken for others.
const NO_COLORS: [&str; 6] = ["orange", "112233", "#123", "#11223344", "#+1+1+1", "#fade0g"];

#[test]
fn home_assistant_would_read_and_set_the_lamp() {
    let server = service_with_lamp();
    let configuration = block(LAMPS, "yaml", "rest_command");
    let setting = |name: &str| {
        let mut lines = configuration.lines().map(str::trim);
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).unwrap()
    };
    let path = |name: &str| setting(name).strip_prefix("http://SERVICE:8080").unwrap();
    let payload = setting("payload").trim_matches('\'').replace("{{ value }}", "#222222");
    let color = r##"{"name":"lamp","value":"#222222"}"##;
    let method = setting("method").to_uppercase();
    let kind = format!("Content-Type: {}\r\n", setting("content_type"));
    server.connect().ask_with(&method, path("url"), &kind, &payload).expect_content(color);
    server.ask("GET", path("resource"), "").expect_content(color);
    assert_eq!(setting("value_template"), r#""{{ value_json.value }}""#);
}

/// What stands for the modules of MicroPython, and for rpi_ws281x, in CPython.
const MODULES: [(&str, &str); 5] = [
    ("machine", "Pin = int"),
    (
        "network",
        "
STA_IF = 0
class WLAN:
    def __init__(self, interface): pass
    def active(self, is_active): pass
    def connect(self, name, password): pass
",
    ),
    (
        "neopixel",
        "
class NeoPixel:
    def __init__(self, pin, count): pass
    def fill(self, color): self.color = bytes(color)
    def write(self): print(self.color.hex(), flush=True)
",
    ),
    (
        "requests",
        "
import json, urllib.error, urllib.request
class Answer:
    def __init__(self, answer):
        self.status_code, self.content = answer.status, answer.read()
        # as they come through some proxies, one of which removes the tag
        self.headers = {name.lower(): value for name, value in answer.headers.items()}
        if b'#111111' in self.content: del self.headers['etag']
    def json(self): return json.loads(self.content)
    def close(self): pass
def get(url, headers, timeout):
    try:
        request = urllib.request.Request(url, headers=headers)
        return Answer(urllib.request.urlopen(request, timeout=timeout))
    except urllib.error.HTTPError as error:
        return Answer(error)
",
    ),
    (
        "rpi_ws281x",
        "
def Color(*color): return bytes(color).hex()
class PixelStrip:
    def __init__(self, count, pin): self.colors = [None] * count
    def begin(self): pass
    def numPixels(self): return len(self.colors)
    def setPixelColor(self, led, color): self.colors[led] = color
    def show(self): print(*set(self.colors), flush=True)
",
    ),
];

#[test]
fn strips_of_leds_show_each_change_and_skip_what_is_no_color() {
    if !is_installed("python3") {
        return;
    }
    let of_raspberry = LAMPS.split('`').find(|text| text.ends_with("strip.py")).unwrap();
    for (file, program, commands) in [
        ("main.py", block(LAMPS, "python", "neopixel"), "python3 main.py"),
        ("strip.py", block(LAMPS, "python", "rpi_ws281x"), of_raspberry),
    ] {
        let (server, scratch) = (service_with_lamp(), Scratch::new());
        let address = server.address.to_string();
        for (name, module) in MODULES {
            scratch.write(&format!("{name}.py"), module);
        }
        scratch.write(file, program.replace("SERVICE:8080", &address));
        let commands = commands
            .replace('\n', " ")
            .replace("packaging/follow/follow-colors", SCRIPT)
            .replace("SERVICE:8080", &address);
        let commands = format!("{commands} 2>&1");
        let follower = Follower::start(shell("sh", &commands), scratch);
        let colors = ["#ffd27f", "#111111"].map(|color| (color, color[1..].to_owned()));
        let others = NO_COLORS.map(|value| (value, format!("no #rrggbb: {value}")));
        let last = [("#AAbb22", "aabb22".to_owned())];
        let mut expected = Vec::new();
        for (value, shown) in colors.into_iter().chain(others).chain(last) {
            let content = format!(r#"{{"value":"{value}"}}"#);
            server.ask("PUT", "/colors/lamp", &content).expect_status(200);
            expected.push(shown);
            wait_until("it is shown, or skipped", || {
                let mut printed = follower.printed();
                // without a tag, the same color is shown each second
                printed.dedup();
                printed == expected
            });
        }
    }
}
