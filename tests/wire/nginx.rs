//! Behind the nginx of `packaging/nginx/colors.conf`: what clients see through it, and what its cache serves while the service is down.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal};

use crate::harness::{DEADLINE, Scratch, Server, eventually, is_installed, long_list};

/// A running nginx; stopped when dropped.
struct Proxy {
    child: Child,
    scratch: Scratch,
}

/// What nginx answers.
#[derive(Debug)]
struct Answer {
    status: u16,
    /// What the cache had to do with it: MISS, HIT, EXPIRED, REVALIDATED, UPDATING, STALE or BYPASS.
    cache: String,
    head: String,
    content: String,
}

impl Proxy {
    /// Starts nginx with the configuration of the tree, its paths moved into a directory of its own; `None` when it is not installed.
    fn start() -> Option<Self> {
        if !is_installed("nginx") {
            return None;
        }
        let scratch = Scratch::new();
        let root = scratch.0.display();
        let mut site = include_str!("../../packaging/nginx/colors.conf").to_owned();
        for (path, here) in [
            ("/run/colors/colors.sock", format!("{root}/service")),
            ("listen 80;", format!("listen unix:{root}/front;")),
            ("/var/lib/nginx/colors", format!("{root}/cache")),
        ] {
            assert_eq!(site.matches(path).count(), 1, "{path}");
            site = site.replace(path, &here);
        }
        scratch.write("colors.conf", site);
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(|name| format!("{name}_temp_path {root}/{name};"));
        let main = format!(
            "daemon off; user root root; pid {root}/pid; error_log {root}/error.log; worker_processes 2; events {{}}\n\
             http {{ access_log off; {} include {root}/colors.conf; }}",
            temporary.join(" ")
        );
        let file = scratch.write("nginx.conf", main);
        let mut command = Command::new("nginx");
        command.args(["-e", &format!("{root}/error.log"), "-p", &root.to_string(), "-c", &file]);
        let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let proxy = Self { child, scratch };
        eventually("nginx listens", || UnixStream::connect(proxy.scratch.0.join("front")).ok());
        Some(proxy)
    }

    /// Starts the service behind it.
    fn service(&self, arguments: &[&str]) -> Server {
        let endpoint = format!("unix:{}/service", self.scratch.0.display());
        Server::start(&[&["--listen", &endpoint], arguments].concat())
    }

    /// One request through nginx.
    fn ask(&self, method: &str, target: &str, fields: &str, content: &str) -> Answer {
        let mut stream = UnixStream::connect(self.scratch.0.join("front")).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let length = if content.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", content.len()) };
        let head = format!("{method} {target} HTTP/1.1\r\nHost: colors.example.org:81\r\nConnection: close\r\n{fields}{length}\r\n");
        stream.write_all((head + content).as_bytes()).unwrap();
        let mut text = String::new();
        while stream.read_to_string(&mut text).is_err_and(|error| error.kind() == std::io::ErrorKind::Interrupted) {}
        let (head, content) = text.split_once("\r\n\r\n").expect("a whole head");
        let cache = head.lines().find_map(|line| line.strip_prefix("X-Cache: ")).unwrap_or_default().to_owned();
        Answer { status: head[9..12].parse().unwrap(), cache, head: head.to_owned(), content: content.to_owned() }
    }

    /// A read through nginx.
    fn read(&self, target: &str) -> Answer {
        self.ask("GET", target, "", "")
    }

    /// Reads until the cache has this to do with it.
    #[track_caller]
    fn read_until(&self, target: &str, cache: &str) -> Answer {
        eventually(cache, || Some(self.read(target)).filter(|answer| answer.cache == cache))
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

/// Stops the service in good order.
fn stop(server: Server) {
    server.signal(Signal::TERM);
    assert!(server.wait().0.success());
}

#[test]
fn every_method_and_target_passes_as_it_came() {
    let Some(proxy) = Proxy::start() else { return };
    let server = proxy.service(&[]);
    let created = proxy.ask("POST", "/colors", "", r#"{"name":"a/b c","value":"1"}"#);
    assert_eq!((created.status, created.content.as_str()), (201, r#"{"name":"a/b c","value":"1"}"#));
    assert!(created.head.lines().any(|line| line == "Location: /colors/a%2Fb%20c"), "{created:?}");
    assert_eq!(server.ask("GET", "/colors/a%2Fb%20c", "").content, created.content);
    let read = proxy.read("/colors/a%2Fb%20c?query");
    assert_eq!((read.status, read.content.as_str(), read.cache.as_str()), (200, created.content.as_str(), "MISS"));
    assert!(read.head.contains("Cache-Control: no-cache"), "{read:?}");
    assert_ne!(proxy.read("/colors/a%2Fb%20c?another").cache, "MISS");
    assert_eq!(proxy.read("/colors/a/b%20c").status, 404);
    let tag = read.head.lines().find_map(|line| line.strip_prefix("ETag: ")).unwrap().to_owned();
    let target = "/colors/a%2Fb%20c";
    assert_eq!(proxy.ask("GET", target, &format!("If-None-Match: {tag}\r\n"), "").status, 304);
    assert_eq!(proxy.ask("PUT", target, "If-Match: \"another\"\r\n", r#"{"value":"2"}"#).status, 412);
    assert_eq!(proxy.ask("PUT", target, &format!("If-Match: {tag}\r\n"), r#"{"value":"2"}"#).status, 200);
    assert_eq!(proxy.ask("DELETE", target, "", "").content, r#"{"name":"a/b c","value":"2"}"#);
    assert_eq!(proxy.ask("DELETE", target, "Origin: http://evil.example\r\n", "").status, 403);
    assert_eq!(proxy.ask("DELETE", target, "Origin: http://colors.example.org:81\r\n", "").status, 404);
    assert_eq!(proxy.ask("POST", "/colors", "", &format!(r#"{{"name":"{}"}}"#, "x".repeat(70_000))).status, 413);
    assert_eq!((proxy.read("/health").status, proxy.read("/health").cache), (200, String::new()));
}

#[test]
fn connections_to_the_service_are_kept_and_a_long_list_passes_whole() {
    let Some(proxy) = Proxy::start() else { return };
    let entry = |number| format!(r##"{{"name":"color-{number}","value":"#{number:06x}"}}"##);
    let colors = long_list(900_000);
    let seed = proxy.scratch.write("seed.json", &colors);
    let server = proxy.service(&["--seed", &seed, "--access-log"]);
    assert!(proxy.read("/colors").content == format!(r#"{{"data":{colors}}}"#));
    for number in 0..50 {
        assert_eq!(proxy.read(&format!("/colors/color-{number}")).content, entry(number));
    }
    let log = eventually("a line for each request", || Some(server.log()).filter(|log| log.matches("] unix GET").count() == 51));
    assert!(!log.contains("WARN"), "{log}");
}

#[test]
fn reads_are_served_from_the_cache_while_the_service_is_down() {
    let Some(proxy) = Proxy::start() else { return };
    let server = proxy.service(&[]);
    let (red, list) = (proxy.read("/colors/red").content, proxy.read("/colors").content);
    assert_eq!(red, r##"{"name":"red","value":"#ff0000"}"##);
    stop(server);
    for _ in 0..3 {
        assert_eq!(proxy.read_until("/colors/red", "STALE").content, red);
        assert_eq!(proxy.read_until("/colors", "STALE").content, list);
    }
    assert_eq!(proxy.read("/colors/blue").status, 502, "what nobody read before is not there");
    assert_eq!(proxy.read("/health").status, 502);
    assert_eq!(proxy.ask("PUT", "/colors/red", "", r#"{"value":"1"}"#).status, 502);
    assert_eq!(proxy.ask("GET", "/colors/red", "Cache-Control: no-cache\r\n", "").status, 502);
    let _server = proxy.service(&[]);
    assert_eq!(proxy.read_until("/colors/red", "REVALIDATED").content, red);
}

#[test]
fn what_the_service_was_asked_about_is_never_stale() {
    let Some(proxy) = Proxy::start() else { return };
    let mut server = proxy.service(&[]);
    for round in 0..2 {
        let content = format!(r#"{{"name":"red","value":"{round}"}}"#);
        assert_eq!(server.ask("PUT", "/colors/red", &content).content, content);
        // until the service is asked, what the cache has may be a second old
        let answer = eventually("the service is asked", || {
            let answer = proxy.read("/colors/red");
            (!matches!(answer.cache.as_str(), "HIT" | "UPDATING")).then_some(answer)
        });
        assert_eq!(answer.content, content, "{answer:?}");
        assert_eq!(proxy.read("/colors/red").content, content);
        // neither does an older one come back when nobody can be asked
        stop(server);
        assert_eq!(proxy.read_until("/colors/red", "STALE").content, content);
        server = proxy.service(&[]);
        assert_eq!(server.ask("PUT", "/colors/red", &content).content, content);
        assert_eq!(proxy.read_until("/colors/red", "REVALIDATED").content, content);
    }
}

#[test]
fn a_color_found_gone_is_not_shown_again_while_the_service_is_down() {
    let Some(proxy) = Proxy::start() else { return };
    let server = proxy.service(&[]);
    assert_eq!(proxy.read("/colors/red").status, 200);
    assert_eq!(proxy.ask("DELETE", "/colors/red", "", "").status, 200);
    assert_eq!(proxy.ask("GET", "/colors/red", "Cache-Control: no-cache\r\n", "").status, 404);
    assert_eq!(proxy.read("/colors/red").content, r#"{"error":true}"#);
    stop(server);
    let stale = proxy.read_until("/colors/red", "STALE");
    assert_eq!((stale.status, stale.content.as_str()), (404, r#"{"error":true}"#));
    assert!(fs::exists(proxy.scratch.0.join("cache")).unwrap());
}
