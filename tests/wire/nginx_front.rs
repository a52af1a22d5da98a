//! In front of the service, nginx: HTTP/2, compression, long names, services on other hosts, and
//! what nginx refuses by itself. All by curl.

use std::net::TcpStream;

use crate::common::client::Client;
use crate::common::harness::{Server, colors};
use crate::common::proxy::{CLOSED, HOST, Proxy, field};

const VERSIONS: [&str; 2] = ["--http1.1", "--http2"];

fn content(text: &str) -> &str {
    let content = text.split_once("\r\n\r\n").expect("a whole head").1;
    content.strip_suffix('\n').unwrap_or(content)
}

#[test]
fn every_name_that_the_service_takes_passes_both_ways() {
    let Some(proxy) = Proxy::start() else { return };
    let server = proxy.service(&[]);
    let list = server.list();
    for version in VERSIONS {
        for (name, escaped) in [
            ("x".repeat(4096), "x".repeat(4096)),
            ("é".repeat(2048), "%C3%A9".repeat(2048)),
            ("é".repeat(580), "%C3%A9".repeat(580)),
        ] {
            let target = format!("/colors/{escaped}");
            let color = format!(r#"{{"name":"{name}","value":"1"}}"#);
            let file = format!("@{}", proxy.scratch.write("color.json", &color));
            let (status, text) = proxy.curl_by(version, "/colors", &["--json", &file]);
            assert_eq!((status, content(&text)), (201, color.as_str()), "{version}");
            let location = (target.len() <= 3500).then_some(target.as_str());
            assert_eq!(field(&text, "Location"), location, "{version}");
            let read = proxy.curl_by(version, &target, &[]);
            assert_eq!((read.0, content(&read.1)), (200, color.as_str()), "{version}");
            for change in [&["-X", "PUT", "--json", r#"{"value":"2"}"#][..], &["-X", "DELETE"]] {
                assert_eq!(proxy.curl_by(version, &target, change).0, 200, "{version}");
            }
        }
    }
    assert_eq!(server.list(), list);
}

#[test]
fn what_is_long_is_compressed_and_the_tag_that_a_client_gets_for_it_tells_whether_it_has_changed() {
    let Some(proxy) = Proxy::start() else { return };
    let long = "x".repeat(2000);
    let seed = proxy.scratch.write(
        "seed.json",
        format!(r#"[{{"name":"long","value":"{long}"}},{{"name":"short","value":"1"}}]"#),
    );
    let _server = proxy.service(&["--seed", &seed]);
    for version in VERSIONS {
        let (_, plain) = proxy.curl_by(version, "/colors/long", &[]);
        let strong = field(&plain, "ETag").unwrap().to_owned();
        assert!(strong.starts_with('"'), "{plain}");
        assert_eq!(field(&plain, "Content-Encoding"), None, "{plain}");
        let (status, text) = proxy.curl_by(version, "/colors/long", &["--compressed"]);
        assert_eq!((status, field(&text, "Content-Encoding")), (200, Some("gzip")), "{text}");
        assert_eq!(field(&text, "Vary"), Some("Accept-Encoding"), "{text}");
        assert_eq!(content(&text), content(&plain));
        let weak = field(&text, "ETag").unwrap().to_owned();
        assert_eq!(weak, format!("W/{strong}"));
        let (_, short) = proxy.curl_by(version, "/colors/short", &["--compressed"]);
        assert_eq!(field(&short, "Content-Encoding"), None);
        for tag in [&strong, &weak] {
            let condition = format!("If-None-Match: {tag}");
            let asked = proxy.curl_by(version, "/colors/long", &["--compressed", "-H", &condition]);
            assert_eq!(asked.0, 304, "{tag}");
            // no weak tag holds (RFC 9110 §13.1.1), so nginx restores it
            let change = ["-X", "PUT", "-d", "{}", "-H", &format!("If-Match: {tag}")];
            assert_eq!(proxy.curl_by(version, "/colors/long", &change).0, 200, "{tag}");
        }
    }
}

/// Checks that this is an error of nginx, in the form of the service's.
#[track_caller]
fn check_error((status, text): (u16, String), expected: u16, message: &str) {
    let error = format!(r#"{{"error":true,"message":"{message}"}}"#);
    assert_eq!((status, content(&text)), (expected, error.as_str()), "{text}");
    let fields = (field(&text, "Content-Type"), field(&text, "Server"));
    assert_eq!(fields, (Some("application/json"), Some("nginx")), "{text}");
    assert!(field(&text, "Strict-Transport-Security").is_some(), "{text}");
}

#[test]
fn what_nginx_refuses_by_itself_is_an_error_in_json() {
    let Some(proxy) = Proxy::start_with(CLOSED) else { return };
    let long = "x".repeat(20_000);
    let content_file = format!("@{}", proxy.scratch.write("content", "x".repeat(3_000_000)));
    let down = "the service does not answer";
    let closed = "nginx lets nobody change the list";
    for version in VERSIONS {
        for (target, arguments, status, message) in [
            ("/colors/red", &[][..], 502, down),
            ("/health", &[], 502, down),
            ("/colors/a.html", &["-X", "DELETE"], 403, closed),
            // a name that is a path to nginx
            ("/colors/..%2Fhealth", &["--path-as-is", "-X", "DELETE"], 403, closed),
            ("/colors", &["--json", &content_file], 413, "the content is longer than nginx takes"),
            ("/colors/%00", &[], 400, "the request is malformed"),
            ("/colors", &["-X", "TRACE"], 405, "nginx does not have the method"),
        ] {
            check_error(proxy.curl_by(version, target, arguments), status, message);
        }
    }
    let refused = proxy.curl_by("--http1.1", &format!("/colors/{long}"), &[]);
    check_error(refused, 414, "the request line is longer than nginx takes");
    let refused = proxy.curl_by("--http1.1", "/colors", &["-H", &format!("X: {long}")]);
    check_error(refused, 431, "a field is longer than nginx takes");
    let mut plain = Client::new(TcpStream::connect(proxy.address).unwrap());
    plain.send(format!("GET /colors HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n"));
    let text = plain.whatever_comes();
    let error = "\r\n\r\n{\"error\":true,\"message\":\"the request is malformed\"}\n";
    assert!(text.starts_with("HTTP/1.1 400 ") && text.ends_with(error), "{text}");
    let _server = proxy.service(&[]);
    // its own errors are as they were
    let unknown = r#"{"error":true,"message":"no such resource, the list is at /colors"}"#;
    for (target, expected) in [("/colors/no", r#"{"error":true}"#), ("/nowhere", unknown)] {
        let (status, text) = proxy.curl(target, &[]);
        assert_eq!((status, content(&text)), (404, expected));
    }
}

#[test]
fn the_metrics_are_nobodys_but_a_color_of_that_name_is_everybodys() {
    let Some(proxy) = Proxy::start() else { return };
    let server = proxy.service(&["--base-path", "/api"]);
    let targets = "/metrics /api/metrics /api/%6Detrics /api/metrics?x //metrics /api/v1/metrics";
    for target in targets.split(' ') {
        check_error(proxy.curl(target, &["--path-as-is"]), 404, "no such resource");
    }
    for name in ["metrics", "health", "a%2Fmetrics"] {
        let content = format!(r#"{{"name":"{}","value":"1"}}"#, name.replace("%2F", "/"));
        server.ask("POST", "/api/colors", &content).expect_status(201);
        let text = proxy.curl(&format!("/api/colors/{name}"), &[]).1;
        assert!(text.ends_with(&format!("{content}\n")), "{text}");
    }
}

#[test]
fn a_base_path_with_a_segment_colors_has_its_metrics_where_the_file_says_so() {
    let edits = [
        (CLOSED, "            allow all;\n"),
        ("    #\"/api/colors/metrics\" 1;\n", "    \"/api/colors/metrics\" 1;\n"),
    ];
    let Some(proxy) = Proxy::start_edited(&edits) else { return };
    let server = proxy.service(&["--base-path", "/api/colors"]);
    let color = r#"{"name":"metrics","value":"1"}"#;
    server.ask("POST", "/api/colors/colors", color).expect_status(201);
    check_error(proxy.curl("/api/colors/metrics", &[]), 404, "no such resource");
    assert_eq!(proxy.curl("/api/colors/colors/metrics", &[]).0, 200);
}

#[test]
fn a_service_on_another_host_is_reached_by_the_line_for_that() {
    const LINE: &str = "    #server 192.0.2.7:8080;\n";
    for (arguments, status) in [
        (&["--listen", "127.0.0.1:0"][..], 403),
        (&["--listen", "127.0.0.1:0", "--allow-host", HOST], 200),
        (&["--listen", "0.0.0.0:0", "--read-only"], 200),
    ] {
        let server = Server::spawn(colors(arguments));
        let line = format!("    server 127.0.0.1:{};\n", server.address.port());
        const HERE: &str = "    server unix:/run/colors/colors.sock;\n";
        let commented = HERE.replace("server", "#server");
        let edits = [(HERE, commented.as_str()), (LINE, &line)];
        let Some(proxy) = Proxy::start_edited(&edits) else { return };
        assert_eq!(proxy.curl("/colors/red", &[]).0, status, "{arguments:?}");
    }
}
