//! The page on the wire: who gets it, with which fields. What it does is in `tests/browser`.

use crate::common::client::Response;
use crate::common::harness::Server;

/// What Chromium sends when it opens an address.
const BROWSER: &str = "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r\n";

fn ask(server: &Server, method: &str, target: &str, fields: &str) -> Response {
    server.ask_with(method, target, fields, "")
}

#[test]
fn a_client_that_asks_for_html_gets_the_page_at_the_base_path() {
    for (base, targets) in
        [("", &["/", "/?x"][..]), ("/api/v1", &["/api/v1", "/api/v1/", "/api/v1?x", "/%61pi/v1/"])]
    {
        let server = Server::start(&["--base-path", base]);
        for target in targets {
            let page = ask(&server, "GET", target, BROWSER);
            page.expect_field(200, "content-type", Some("text/html; charset=utf-8"));
            assert_eq!(page.field("vary"), Some("Accept"));
            assert_eq!(page.field("referrer-policy"), Some("no-referrer"));
            let condition = format!("{BROWSER}If-None-Match: {}\r\n", page.field("etag").unwrap());
            let current = ask(&server, "GET", target, &condition);
            current.expect_field(304, "etag", page.field("etag"));
            assert_eq!(current.field("vary"), Some("Accept"));
        }
    }
}

#[test]
fn everybody_gets_the_script_that_reads_files() {
    for (base, target) in [("", "/page/files.js"), ("/api/v1", "/api/v1/page/files.js?1")] {
        let server = Server::start(&["--base-path", base]);
        let script = ask(&server, "GET", target, "");
        script.expect_field(200, "content-type", Some("text/javascript; charset=utf-8"));
        assert!(script.content.contains("\nexport const read ="));
        let page = ask(&server, "GET", if base.is_empty() { "/" } else { base }, BROWSER);
        for field in ["content-security-policy", "referrer-policy", "cache-control"] {
            assert_eq!(script.field(field), page.field(field));
        }
    }
}

#[test]
fn the_policy_allows_nothing_but_the_page_itself() {
    let page = ask(&Server::start(&[]), "GET", "/", BROWSER);
    let policy = page.field("content-security-policy").unwrap();
    let directives: Vec<&str> = policy.split("; ").collect();
    assert!(!policy.contains("unsafe") && !policy.contains('*'), "{policy}");
    for directive in [
        "default-src 'none'",
        "require-trusted-types-for 'script'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ] {
        assert!(directives.contains(&directive), "{policy}");
    }
    assert_eq!(page.content.matches("<script").count(), 1);
    assert_eq!(page.content.matches("<style").count(), 1);
}

#[test]
fn everybody_else_gets_the_404_that_was_there_before() {
    let server = Server::start(&[]);
    for fields in ["", "Accept: */*\r\n", "Accept: application/json\r\n", "Accept: text/*\r\n"] {
        for method in ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"] {
            let response = ask(&server, method, "/", fields);
            response.expect_field(404, "vary", Some("Accept"));
            if method != "HEAD" {
                response.expect_message(404, "no such resource, the list is at /colors");
            }
        }
    }
    assert_eq!(ask(&server, "GET", "//", BROWSER).status, 404);
    assert_eq!(ask(&server, "GET", "/index.html", BROWSER).field("vary"), None);
    let below = Server::start(&["--base-path", "/api"]);
    ask(&below, "GET", "/", BROWSER).expect_status(404);
}
