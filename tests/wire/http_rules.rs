//! Rules of RFC 9110 and 9112 that clients seldom try, and what errors advise.

use crate::common::harness::{Server, eventually};

#[test]
fn a_created_color_whose_url_many_clients_fail_on_has_no_location() {
    let server = Server::with_seed(r#"[{"name":"","value":"1"}]"#, &[]);
    // the URL standard takes `%2E` in a path for a dot segment, so that `/colors/%2E` would be
    // `/colors/`: another color
    for (name, location) in [
        (".", None),
        ("..", None),
        ("...", Some("/colors/...")),
        (".a", Some("/colors/.a")),
        ("%2E", Some("/colors/%252E")),
    ] {
        let made = server.ask("POST", "/colors", &format!(r#"{{"name":"{name}","value":"2"}}"#));
        assert_eq!((made.status, made.field("location")), (201, location), "{name}");
        assert_eq!(
            server.ask("GET", &format!("/colors/{}", name.replace('%', "%25")), "").content,
            made.content
        );
    }
    for (name, path, has_location) in [
        ("x".repeat(3492), format!("/colors/{}", "x".repeat(3492)), true),
        ("x".repeat(3493), format!("/colors/{}", "x".repeat(3493)), false),
        ("é".repeat(582), format!("/colors/{}", "%C3%A9".repeat(582)), true),
        ("é".repeat(583), format!("/colors/{}", "%C3%A9".repeat(583)), false),
    ] {
        let made = server.ask("POST", "/colors", &format!(r#"{{"name":"{name}","value":"2"}}"#));
        assert_eq!(
            (made.status, made.field("location")),
            (201, has_location.then_some(path.as_str())),
            "{} bytes",
            path.len()
        );
        assert_eq!(server.ask("GET", &path, "").content, made.content);
    }
}

#[test]
fn options_of_a_uri_without_a_path_is_about_the_service_itself() {
    let server = Server::start(&["--base-path", "/api"]);
    for target in ["*", "http://localhost", "http://localhost:80"] {
        let response = server.ask("OPTIONS", target, "");
        assert_eq!(
            (response.status, response.field("allow")),
            (204, Some("GET, HEAD, POST, PUT, DELETE, OPTIONS")),
            "{target}"
        );
    }
    assert_eq!(server.ask("OPTIONS", "http://localhost/", "").status, 404);
    assert_eq!(server.ask("GET", "*", "").status, 400);
}

#[test]
fn an_empty_expectation_is_none() {
    let server = Server::with_seed("[]", &[]);
    let content = r#"{"name":"a","value":"b"}"#;
    for (fields, waits) in [
        ("Expect:", false),
        ("Expect: ,", false),
        ("Expect: , 100-continue", true),
        ("Expect: 100-continue\r\nExpect:", true),
    ] {
        let mut client = server.connect();
        client.send(format!(
            "POST /colors HTTP/1.1\r\nHost: localhost\r\n{fields}\r\nContent-Length: {}\r\n\r\n",
            content.len()
        ));
        if waits {
            assert_eq!(client.response().status, 100, "{fields}");
        }
        assert_eq!(client.send(content).response().status, 201, "{fields}");
    }
}

mod conditions {
    use super::*;

    const COLOR: &str = r#"{"name":"a","value":"b"}"#;
    const WRITES: [(&str, &str); 3] =
        [("POST", "/colors"), ("PUT", "/colors/red"), ("DELETE", "/colors/red")];
    const FAILED: &str = "the condition does not hold, read the current state and decide again";

    #[test]
    fn a_read_whose_if_match_is_false_is_412() {
        let server = Server::start(&[]);
        let mut client = server.connect();
        for target in ["/colors", "/colors/red", "/openapi.json", "/health", "/"] {
            let accept = "Accept: text/html\r\n";
            let tag = client.ask_with("GET", target, accept, "").field("etag").unwrap().to_owned();
            for (fields, status) in [
                ("If-Match: \"x\"\r\n", 412),
                ("If-Match: W/T\r\n", 412),
                ("If-Match:\r\n", 412),
                ("If-Match: *\r\n", 200),
                ("If-Match: T\r\n", 200),
                ("If-Match: \"x\"\r\nIf-Match: T\r\n", 200),
                // RFC 9110 §13.2.2: If-Match is evaluated first
                ("If-None-Match: T\r\nIf-Match: \"x\"\r\n", 412),
                ("If-None-Match: T\r\nIf-Match: T\r\n", 304),
            ] {
                for method in ["GET", "HEAD"] {
                    let response = client.ask_with(
                        method,
                        target,
                        &(accept.to_owned() + &fields.replace('T', &tag)),
                        "",
                    );
                    assert_eq!(response.status, status, "{method} {target} {fields:?}");
                    assert!(
                        method == "HEAD" || status != 412 || response.message() == FAILED,
                        "{response:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn what_else_is_wrong_comes_first() {
        let server = Server::start(&[]);
        for (method, target, status) in [
            ("GET", "/colors/no", 404),
            ("HEAD", "/colors/no", 404),
            ("PUT", "/colors/no", 404),
            ("DELETE", "/colors/no", 404),
            ("GET", "/nowhere", 404),
            ("GET", "/colors/%", 400),
            ("PATCH", "/colors/red", 405),
            ("OPTIONS", "/colors/red", 204),
        ] {
            for condition in ["If-Match: \"x\"", "If-Match: x", "If-None-Match: x"] {
                let response =
                    server.connect().ask_with(method, target, &format!("{condition}\r\n"), "");
                assert_eq!(response.status, status, "{method} {target} {condition}");
            }
        }
    }

    #[test]
    fn a_malformed_one_on_a_write_is_400_and_changes_nothing() {
        let server = Server::start(&[]);
        let before = server.list();
        for field in ["If-Match", "If-None-Match"] {
            for value in [
                "x",
                "\"x",
                "x\"",
                "w/\"x\"",
                "W/x",
                "\"x\", *",
                "*, \"x\"",
                "*, *",
                "\"x\" \"y\"",
                "\"a b\"",
                "\"x\"; y",
            ] {
                for (method, target) in WRITES {
                    let response = server.connect().ask_with(
                        method,
                        target,
                        &format!("{field}: {value}\r\n"),
                        COLOR,
                    );
                    let message = format!(
                        "the field {field} has to be \"*\" or entity tags in quotes, separated by commas"
                    );
                    assert_eq!(
                        (response.status, response.message()),
                        (400, message),
                        "{method} {field}: {value}"
                    );
                }
            }
            for (method, target) in WRITES {
                let response = server.connect().ask_with(
                    method,
                    target,
                    &format!("{field}: *\r\n{field}: *\r\n"),
                    COLOR,
                );
                assert_eq!(response.status, 400, "{method} {field}");
            }
        }
        assert_eq!(server.list(), before);
    }

    #[test]
    fn a_read_is_answered_in_full_under_a_malformed_if_none_match_but_not_under_a_malformed_if_match()
     {
        let server = Server::start(&[]);
        let mut client = server.connect();
        for target in ["/colors", "/colors/red", "/openapi.json"] {
            for method in ["GET", "HEAD"] {
                assert_eq!(
                    client.ask_with(method, target, "If-None-Match: x\r\n", "").status,
                    200,
                    "{method} {target}"
                );
                assert_eq!(
                    client.ask_with(method, target, "If-Match: x\r\n", "").status,
                    400,
                    "{method} {target}"
                );
            }
        }
    }
}

#[test]
fn later_minor_versions_of_1_are_served_as_1_1() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    for version in ["HTTP/1.1", "HTTP/1.2", "HTTP/1.9"] {
        client.send(format!("GET /colors/red {version}\r\nHost: localhost\r\n\r\n"));
        assert_eq!(client.response().status, 200, "{version}");
        client.send(format!("PUT /colors/red {version}\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n"));
        assert_eq!(client.response().status, 200, "{version}");
        client.expect_open();
    }
    for (line, status) in [
        ("GET /colors HTTP/1.2\r\n\r\n", 400),
        ("GET /colors HTTP/1.2 HTTP/1.2\r\nHost: localhost\r\n\r\n", 400),
        ("GET /colors HTTP/1.2 \r\nHost: localhost\r\n\r\n", 400),
        ("GET /colors HTTP/1.20\r\nHost: localhost\r\n\r\n", 400),
        ("GET /colors HTTP/1.10\r\nHost: localhost\r\n\r\n", 400),
        ("GET /colors http/1.2\r\nHost: localhost\r\n\r\n", 400),
        ("GET /colors HTTP/0.9\r\nHost: localhost\r\n\r\n", 505),
        ("GET /colors HTTP/2.0\r\nHost: localhost\r\n\r\n", 505),
        ("GET /colors HTTP/2.1\r\nHost: localhost\r\n\r\n", 505),
    ] {
        let mut client = server.connect();
        client.send(line);
        assert_eq!(client.response().status, status, "{line:?}");
        client.expect_close();
    }
}

#[test]
fn a_host_may_end_in_the_dot_of_the_root_but_not_have_a_bad_escape() {
    let server = Server::start(&["--allow-host", "own.example", "--allow-host", "Root.example."]);
    for (host, status) in [
        ("localhost.", 200),
        ("LOCALHOST.:80", 200),
        ("a.localhost.", 200),
        ("own.example.", 200),
        ("own.example", 200),
        ("root.example", 200),
        ("root.example.:80", 200),
        ("localhost..", 403),
        ("own.example..", 403),
        (".", 403),
        ("a%20b", 403),
        ("a%zz", 400),
        ("a%2", 400),
        ("a%", 400),
        ("%:80", 400),
    ] {
        let mut client = server.connect();
        client.send(format!("GET /colors HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(client.response().status, status, "{host}");
        let mut client = server.connect();
        client.send(format!("GET http://{host}/colors HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        assert_eq!(client.response().status, status, "http://{host}");
    }
}

mod advice {
    use super::*;

    /// Checks the message to a request with these fields.
    #[track_caller]
    fn check(server: &Server, fields: &str, status: u16, message: &str) {
        let mut client = server.connect();
        client.send(format!("DELETE /colors/no HTTP/1.1\r\n{fields}\r\n"));
        let response = client.response();
        assert_eq!((response.status, response.message().as_str()), (status, message), "{fields:?}");
    }

    #[test]
    fn a_refusal_names_the_option_that_would_allow_the_request() {
        let server = Server::start(&["--max-body", "100"]);
        check(
            &server,
            "Host: localhost\r\nContent-Length: 101\r\n",
            413,
            "the content is longer than the limit of 100 bytes; --max-body sets it",
        );
        let page = "a page of another origin may not change the list; --allow-origin with it would allow that";
        let unsure = "a page of another origin may not change the list; behind a proxy, have it keep Host (Apache: ProxyPreserveHost On); \
                      otherwise --allow-origin with it would allow that";
        check(&server, "Host: 127.0.0.1:8080\r\nOrigin: http://colors.example\r\n", 403, unsure);
        check(
            &server,
            "Host: localhost\r\nSec-Fetch-Site: same-site\r\nOrigin: http://evil.example:3000\r\n",
            403,
            page,
        );
        check(
            &server,
            "Host: evil.example:80\r\n",
            403,
            "the service does not have this host name; --allow-host with it would allow that",
        );
    }

    #[test]
    fn a_refusal_names_no_option_that_would_not_help() {
        let server = Server::start(&[]);
        let page = "a page of another origin may not change the list";
        for fields in [
            "Origin: null\r\n",
            "Sec-Fetch-Site: cross-site\r\n",
            "Origin: http://a.example\r\nOrigin: http://a.example\r\n",
        ] {
            check(&server, &format!("Host: localhost\r\n{fields}"), 403, page);
        }
        check(&server, "Host: a!b\r\n", 403, "the service does not have this host name");
        let log = eventually("the last is logged", || {
            Some(server.log()).filter(|log| log.contains("a!b"))
        });
        assert!(!log.contains("--allow-"), "{log}");
    }
}

#[test]
fn the_log_quotes_the_start_of_what_clients_send() {
    let server = Server::start(&[]);
    let mut client = server.connect();
    let long = "a".repeat(60_000);
    for fields in
        [format!("Host: localhost\r\nOrigin: http://{long}\r\n"), format!("Host: {long}\r\n")]
    {
        client.send(format!("DELETE /colors/red HTTP/1.1\r\n{fields}\r\n"));
        assert_eq!(client.response().status, 403);
    }
    let log = eventually("both are logged", || {
        Some(server.log()).filter(|log| log.matches("aaa\"…").count() == 2)
    });
    assert!(log.lines().all(|line| line.len() < 400), "{log}");
}
