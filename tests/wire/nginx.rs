//! Behind nginx: what clients see through it, and who may write.

use std::fs;
use std::process::{Command, Stdio};
use std::thread;

use crate::common::client::Client;
use crate::common::harness::{run, wait_until};
use crate::common::proxy::{CLOSED, HOST, Proxy, field};
use crate::wire::waiting::waiting;

const TOKEN: &str = "a-token-0123456789+/==";

#[test]
fn every_method_and_target_passes_as_it_came() {
    let Some(proxy) = Proxy::start() else { return };
    let tokens = proxy.scratch.write_tokens(TOKEN);
    let server = proxy.service(&["--access-log", "--token-file", &tokens]);
    let token = format!("Authorization: Bearer {TOKEN}");
    let (target, color) = ("/colors/a%2Fb%20c", r#"{"name":"a/b c","value":"1"}"#);
    let (status, text) = proxy.curl("/colors", &["--json", color]);
    let challenge = field(&text, "WWW-Authenticate");
    assert_eq!((status, challenge), (401, Some(r#"Bearer realm="colors""#)), "{text}");
    let (status, text) = proxy.curl("/colors", &["--json", color, "-H", &token]);
    assert_eq!((status, field(&text, "Location")), (201, Some(target)), "{text}");
    let (status, text) = proxy.curl(&format!("{target}?query"), &[]);
    assert!(status == 200 && text.ends_with(&format!("{color}\n")), "{text}");
    assert_eq!(field(&text, "Cache-Control"), Some("no-cache"), "{text}");
    assert_eq!(proxy.curl("/colors/a/b%20c", &[]).0, 404);
    let tag = field(&text, "ETag").unwrap();
    let [current, unchanged] = ["If-Match", "If-None-Match"].map(|name| format!("{name}: {tag}"));
    let change = ["-X", "PUT", "--json", r#"{"value":"2"}"#];
    let own_origin = format!("Origin: https://{HOST}:{}", proxy.address.port());
    for (status, arguments, condition) in [
        (304, &[][..], unchanged.as_str()),
        (412, &change, "If-Match: \"another\""),
        (200, &change, &current),
        (403, &["-X", "DELETE"], "Origin: http://evil.example"),
        (200, &["-X", "DELETE"], &own_origin),
    ] {
        let arguments = [arguments, &["-H", &token, "-H", condition]].concat();
        assert_eq!(proxy.curl(target, &arguments).0, status, "{arguments:?}");
    }
    // one that waits is told of the change
    let tag = server.ask("GET", "/colors", "").field("etag").unwrap().to_owned();
    let unchanged = format!("If-None-Match: {tag}");
    let fields = ["-H", &unchanged, "-H", "Prefer: wait=60", "-H", "X-Forwarded-For: 203.0.113.9"];
    let (status, text) = thread::scope(|scope| {
        let told = scope.spawn(|| proxy.curl("/colors", &fields));
        wait_until("the request waits", || waiting(&server) == 1);
        server.ask_with("DELETE", "/colors/red", &(token + "\r\n"), "").expect_status(200);
        told.join().unwrap()
    });
    assert!(status == 200 && text.ends_with(&(server.list() + "\n")), "{text}");
    // the log has the client of nginx, and not what that says of itself
    let log = server.log_when("it is logged", |log| log.contains("127.0.0.1 GET \"/colors\" 200"));
    assert!(!log.contains("203.0.113.9"), "{log}");
}

#[test]
fn a_color_that_nginx_does_not_reach_has_no_location() {
    let Some(proxy) = Proxy::start() else { return };
    let server = proxy.service(&[]);
    for (name, escaped, status) in [
        ("../metrics", "..%2Fmetrics", 404),
        ("a/../../../b", "a%2F..%2F..%2F..%2Fb", 400),
        ("a//..b/", "a%2F%2F..b%2F", 200),
        ("...", "...", 200),
    ] {
        let color = format!(r#"{{"name":"{name}","value":"1"}}"#);
        let target = format!("/colors/{escaped}");
        let created = server.ask("POST", "/colors", &color);
        created.expect_field(201, "location", (status == 200).then_some(target.as_str()));
        assert_eq!(server.ask("GET", &target, "").content, color);
        assert_eq!(proxy.curl(&target, &["--path-as-is"]).0, status, "{target}");
    }
}

/// What curl needs for each of four writes to a seed's colors.
const WRITES: [(&str, &[&str]); 4] = [
    ("/colors", &["--json", r#"{"name":"ink","value":"1"}"#]),
    ("/colors/red", &["-X", "PUT", "--json", r#"{"value":"1"}"#]),
    ("/colors/blue", &["-X", "DELETE"]),
    ("/colors", &["-X", "PUT", "--json", LIST]),
];

const LIST: &str = r##"[{"name":"red","value":"1"},{"name":"green","value":"#008000"}]"##;

/// What nginx answers to each of them with these further arguments of curl.
fn statuses(proxy: &Proxy, further: &[&str]) -> [u16; 4] {
    WRITES.map(|(target, arguments)| proxy.curl(target, &[arguments, further].concat()).0)
}

#[test]
fn nobody_may_write_as_the_file_stands() {
    let Some(proxy) = Proxy::start_with(CLOSED) else { return };
    let server = proxy.service(&[]);
    let before = server.list();
    assert_eq!(statuses(&proxy, &[]), [403; 4]);
    assert_eq!(proxy.curl("/colors", &["-X", "PATCH"]).0, 403);
    assert_eq!(server.list(), before);
    assert_eq!(proxy.curl("/colors/red", &["-X", "OPTIONS"]).0, 204);
    let (status, text) = proxy.curl("/colors/red", &[]);
    assert_eq!(status, 200, "{text}");
    assert!(field(&text, "Strict-Transport-Security").is_some(), "{text}");
    assert!(text.ends_with("{\"name\":\"red\",\"value\":\"#ff0000\"}\n"), "{text}");
}

#[test]
fn without_tls_only_a_certificate_can_be_asked_for_and_broken_versions_of_it_are_refused() {
    let Some(proxy) = Proxy::start_with(CLOSED) else { return };
    let ask = |request: &str| {
        let request = format!("{request} HTTP/1.0\r\nHost: {HOST}\r\n\r\n");
        Client::on_unix(proxy.scratch.0.join("redirect")).send(request).whatever_comes()
    };
    fs::create_dir_all(proxy.scratch.0.join(".well-known/acme-challenge")).unwrap();
    proxy.scratch.write(".well-known/acme-challenge/name", "the answer");
    let text = ask("GET /.well-known/acme-challenge/name");
    assert!(text.starts_with("HTTP/1.1 200 ") && text.ends_with("\r\n\r\nthe answer"), "{text}");
    let text = ask("PUT /colors/a%2Fb?c");
    assert!(text.starts_with("HTTP/1.1 308 "), "{text}");
    assert!(text.contains("\r\nLocation: https://colors.example.org/colors/a%2Fb?c\r\n"), "{text}");
    for (version, is_good) in [("-tls1_1", false), ("-tls1_2", true), ("-tls1_3", true)] {
        let mut command = Command::new("openssl");
        command.args(["s_client", version, "-cipher", "ALL:@SECLEVEL=0", "-connect"]);
        let (code, _, error) = run(command.arg(proxy.address.to_string()).stdin(Stdio::null()));
        assert_eq!(code == Some(0), is_good, "{version}: {error}");
    }
}

#[test]
fn nginx_itself_asks_for_name_and_password_with_the_lines_that_the_file_has_for_that() {
    let lines = "            auth_basic \"colors\";\n            auth_basic_user_file /etc/nginx/colors.htpasswd;\n";
    let site = include_str!("../../packaging/nginx/colors.conf");
    let commented = |line: &str| line.replace("            ", "            #");
    assert!(lines.lines().all(|line| site.contains(&commented(line))));
    assert!(site.contains("            #allow all;\n"));
    let Some(proxy) = Proxy::start_with(lines) else { return };
    let server = proxy.service(&[]);
    let hash = Command::new("openssl").args(["passwd", "-apr1", "secret"]).output().unwrap().stdout;
    proxy.scratch.write("colors.htpasswd", format!("me:{}", String::from_utf8(hash).unwrap()));
    let before = server.list();
    assert_eq!(statuses(&proxy, &[]), [401; 4]);
    assert_eq!(statuses(&proxy, &["-u", "me:guess"]), [401; 4]);
    assert_eq!(server.list(), before);
    assert_eq!(statuses(&proxy, &["-u", "me:secret"]), [201, 200, 200, 200]);
    assert_eq!(proxy.curl("/colors/green", &[]).0, 200);
}
