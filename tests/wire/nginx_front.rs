//! In front of the service, nginx: HTTP/2, compression, long names, services on other hosts, and
//! what nginx refuses by itself. All by curl.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use crate::common::harness::Server;
use crate::common::proxy::{CLOSED, HOST, Proxy, field};

const VERSIONS: [&str; 2] = ["--http1.1", "--http2"];

/// What curl shows behind the fields.
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
            let (target, color) =
                (format!("/colors/{escaped}"), format!(r#"{{"name":"{name}","value":"1"}}"#));
            let file = format!("@{}", proxy.scratch.write("color.json", &color));
            let (status, text) = proxy.curl_by(version, "/colors", &["--json", &file]);
            assert_eq!((status, content(&text)), (201, color.as_str()), "{version}");
            assert_eq!(
                field(&text, "Location"),
                (target.len() <= 3500).then_some(target.as_str()),
                "{version}"
            );
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
fn what_is_long_is_compressed_and_the_tag_that_a_client_gets_for_it_holds_in_conditions() {
    let Some(proxy) = Proxy::start() else { return };
    let long = "x".repeat(2000);
    let seed = proxy.scratch.write(
        "seed.json",
        format!(r#"[{{"name":"long","value":"{long}"}},{{"name":"short","value":"1"}}]"#),
    );
    let server = proxy.service(&["--seed", &seed]);
    for version in VERSIONS {
        let (_, plain) = proxy.curl_by(version, "/colors/long", &[]);
        let strong = field(&plain, "ETag").unwrap().to_owned();
        assert_eq!(
            (strong.starts_with('"'), field(&plain, "Content-Encoding")),
            (true, None),
            "{plain}"
        );
        let (status, text) = proxy.curl_by(version, "/colors/long", &["--compressed"]);
        assert_eq!(
            (status, field(&text, "Content-Encoding"), field(&text, "Vary")),
            (200, Some("gzip"), Some("Accept-Encoding")),
            "{text}"
        );
        assert_eq!(content(&text), content(&plain));
        let weak = field(&text, "ETag").unwrap().to_owned();
        assert_eq!(weak, format!("W/{strong}"));
        let (_, short) = proxy.curl_by(version, "/colors/short", &["--compressed"]);
        assert_eq!(field(&short, "Content-Encoding"), None);
        for tag in [&strong, &weak] {
            let condition = format!("If-None-Match: {tag}");
            let asked = proxy.curl_by(version, "/colors/long", &["--compressed", "-H", &condition]);
            assert_eq!(asked.0, 304, "{tag}");
        }
        // each of them holds until the color is another
        for tag in [&strong, &weak] {
            let put = |tag: &str, value: &str| {
                let (condition, content) =
                    (format!("If-Match: {tag}"), format!(r#"{{"value":"{value}"}}"#));
                proxy
                    .curl_by(
                        version,
                        "/colors/long",
                        &["-X", "PUT", "-H", &condition, "--json", &content],
                    )
                    .0
            };
            assert_eq!(
                (put(tag, "2"), put(tag, "3"), put("W/\"x\"", "3")),
                (200, 412, 412),
                "{version} {tag}"
            );
            assert!(server.list().contains(r#""value":"2""#));
            server
                .ask("PUT", "/colors/long", &format!(r#"{{"value":"{long}"}}"#))
                .expect_status(200);
        }
        let (_, list) = proxy.curl_by(version, "/colors", &["--compressed"]);
        assert_eq!(content(&list), server.list());
        let condition = format!("If-Match: {}", field(&list, "ETag").unwrap());
        for status in [201, 412] {
            let create = ["-H", &condition, "--json", r#"{"name":"new","value":"1"}"#];
            assert_eq!(proxy.curl_by(version, "/colors", &create).0, status, "{condition}");
        }
        server.ask("DELETE", "/colors/new", "").expect_status(200);
    }
}

/// Checks that this is an error of nginx, in the form of the service's.
#[track_caller]
fn check_error((status, text): (u16, String), expected: u16, message: &str) {
    let what = format!("{expected}: {text}");
    assert_eq!(
        (status, content(&text)),
        (expected, format!(r#"{{"error":true,"message":"{message}"}}"#).as_str()),
        "{what}"
    );
    assert_eq!(
        (field(&text, "Content-Type"), field(&text, "Server")),
        (Some("application/json"), Some("nginx")),
        "{what}"
    );
    assert!(field(&text, "Strict-Transport-Security").is_some(), "{what}");
}

#[test]
fn what_nginx_refuses_by_itself_is_an_error_in_json() {
    let Some(proxy) = Proxy::start_with(CLOSED) else { return };
    let long = "x".repeat(20_000);
    let content_file = format!("@{}", proxy.scratch.write("content", "x".repeat(3_000_000)));
    for version in VERSIONS {
        check_error(proxy.curl_by(version, "/colors/red", &[]), 502, "the service does not answer");
        check_error(proxy.curl_by(version, "/health", &[]), 502, "the service does not answer");
        check_error(
            proxy.curl_by(version, "/colors/a.html", &["-X", "DELETE"]),
            403,
            "nginx lets nobody change the list",
        );
        // a name that is a path to nginx
        let hidden =
            proxy.curl_by(version, "/colors/..%2Fhealth", &["--path-as-is", "-X", "DELETE"]);
        check_error(hidden, 403, "nginx lets nobody change the list");
        check_error(
            proxy.curl_by(version, "/colors", &["--json", &content_file]),
            413,
            "the content is longer than nginx takes",
        );
        check_error(proxy.curl_by(version, "/colors/%00", &[]), 400, "the request is malformed");
        check_error(
            proxy.curl_by(version, "/colors", &["-X", "TRACE"]),
            405,
            "nginx does not have the method",
        );
    }
    let target = format!("/colors/{long}");
    check_error(
        proxy.curl_by("--http1.1", &target, &[]),
        414,
        "the request line is longer than nginx takes",
    );
    check_error(
        proxy.curl_by("--http1.1", "/colors", &["-H", &format!("X: {long}")]),
        431,
        "a field is longer than nginx takes",
    );
    let mut stream = TcpStream::connect(proxy.address).unwrap();
    stream
        .write_all(
            format!("GET /colors HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n").as_bytes(),
        )
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(
        text.starts_with("HTTP/1.1 400 ")
            && text.ends_with("{\"error\":true,\"message\":\"the request is malformed\"}\n"),
        "{text}"
    );
    let _server = proxy.service(&[]);
    // its own errors are as they were
    let (status, text) = proxy.curl("/colors/no", &[]);
    assert_eq!((status, content(&text)), (404, r#"{"error":true}"#));
    let (status, text) = proxy.curl("/nowhere", &[]);
    assert_eq!(
        (status, content(&text)),
        (404, r#"{"error":true,"message":"no such resource, the list is at /colors"}"#)
    );
}

#[test]
fn the_metrics_are_nobodys_but_a_color_of_that_name_is_everybodys() {
    let Some(proxy) = Proxy::start() else { return };
    let server = proxy.service(&["--base-path", "/api"]);
    for target in [
        "/metrics",
        "/api/metrics",
        "/api/%6Detrics",
        "/api/metrics?x",
        "//metrics",
        "/api/v1/metrics",
    ] {
        check_error(proxy.curl(target, &["--path-as-is"]), 404, "no such resource");
    }
    for name in ["metrics", "health", "a%2Fmetrics"] {
        let content = format!(r#"{{"name":"{}","value":"1"}}"#, name.replace("%2F", "/"));
        server.ask("POST", "/api/colors", &content).expect_status(201);
        assert!(
            proxy.curl(&format!("/api/colors/{name}"), &[]).1.ends_with(&format!("{content}\n")),
            "{name}"
        );
    }
}

#[test]
fn a_base_path_with_a_segment_colors_has_its_metrics_where_the_file_says_so() {
    for base in ["/colors", "/api/colors"] {
        let line = format!("    \"{base}/metrics\" 1;\n");
        let edits = [
            (CLOSED, "            allow all;\n"),
            ("    #\"/api/colors/metrics\" 1;\n", line.as_str()),
        ];
        let Some(proxy) = Proxy::start_edited(&edits) else { return };
        let server = proxy.service(&["--base-path", base]);
        server
            .ask("POST", &format!("{base}/colors"), r#"{"name":"metrics","value":"1"}"#)
            .expect_status(201);
        check_error(proxy.curl(&format!("{base}/metrics"), &[]), 404, "no such resource");
        assert_eq!(proxy.curl(&format!("{base}/colors/metrics"), &[]).0, 200);
    }
}

#[test]
fn a_service_on_another_host_is_reached_by_the_line_for_that() {
    const LINE: &str = "    #server 192.0.2.7:8080;\n";
    for (arguments, status) in [
        (&["--listen", "127.0.0.1:0"][..], 403),
        (&["--listen", "127.0.0.1:0", "--allow-host", HOST], 200),
        (&["--listen", "0.0.0.0:0", "--read-only"], 200),
    ] {
        let mut command = crate::common::harness::colors(arguments);
        command.args(["--seed", "seed/colors.json"]);
        let server = Server::spawn(command);
        let line = format!("    server 127.0.0.1:{};\n", server.address.port());
        let here = (
            "    server unix:/run/colors/colors.sock;\n",
            "    #server unix:/run/colors/colors.sock;\n",
        );
        let Some(proxy) = Proxy::start_edited(&[here, (LINE, &line)]) else { return };
        assert_eq!(proxy.curl("/colors/red", &[]).0, status, "{arguments:?}");
    }
}
