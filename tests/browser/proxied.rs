//! The page where the service is not at the root of an address of its own: below a base path,
//! behind nginx.

use std::fs;

use serde_json::json;

use crate::browser::changing::SEED;
use crate::browser::driver::{Browser, browse};
use crate::browser::live::requests;
use crate::common::harness::{Server, wait_until};
use crate::common::proxy::{HOST, Proxy};

/// Adds, changes and deletes a color, with what others see of it.
#[track_caller]
fn try_out(browser: &Browser, list: impl Fn() -> String) {
    let before = browser.text("#count");
    browser.add("a/b c?", "#123456");
    browser.click("#dismiss");
    browser.change("a/b c?", "#abcdef");
    browser.click("#dismiss");
    assert!(list().ends_with(r##"{"name":"a/b c?","value":"#abcdef"}]}"##));
    browser.open_color("a/b c?");
    browser.click("#delete");
    browser.expect_text("#told", "Deleted a/b c?.");
    browser.expect_text("#count", &before);
    assert!(!list().contains("a/b c?"));
}

#[test]
fn the_page_works_below_a_base_path_with_and_without_a_slash() {
    let Some(browser) = browse() else { return };
    let server = Server::with_seed(SEED, &["--base-path", "/api/v1"]);
    // the script makes all addresses of one, which is that of the first link
    for path in ["/api/v1/?from=somewhere", "/api/v1/", "/api/v1"] {
        browser.go(&format!("http://{}{path}", server.address));
        let noscript = browser.text("noscript");
        assert!(noscript.ends_with(r#"<a href="/api/v1/colors">/api/v1/colors</a>"#), "{noscript}");
        let links = "return $$('#menu a').map(link => link.getAttribute('href'))";
        browser.expect_value(links, json!(["/api/v1/colors", "/api/v1/openapi.json"]));
    }
    try_out(&browser, || server.ask("GET", "/api/v1/colors", "").content);
}

#[test]
fn the_page_works_behind_nginx() {
    let Some(nginx) = Proxy::start() else { return };
    let Some(browser) = browse() else { return };
    browser.expect("status of 502");
    let server = nginx.service(&[]);
    browser.go(&format!("https://{HOST}:{}/", nginx.address.port()));
    try_out(&browser, || server.list());
    server.ask("PUT", "/colors/aliceblue", r##"{"value":"#000001"}"##);
    browser.expect_text("li .value", "#000001");
    // nginx itself answers while the service is away
    drop(server);
    fs::remove_file(nginx.scratch.0.join("service")).unwrap();
    browser.expect_text("#away", "The service does not answer – trying again…");
    let _server = nginx.service(&[]);
    browser.expect_text("#away", "");
}

#[test]
fn the_page_works_where_a_proxy_alters_tags_or_takes_them_away() {
    const ALTERED: &str = "if (tag) headers.set('ETag', `W/${tag.replace(/.$/, '-gzip\"')}`)";
    let Some(browser) = browse() else { return };
    for proxy in [ALTERED, "headers.delete('ETag')"] {
        let script = browser.on_each_page(&format!(
            "const ask = window.fetch;
            window.fetch = async (path, init) => {{
                const answer = await ask(path, init);
                const headers = new Headers(answer.headers);
                const tag = headers.get('ETag');
                {proxy};
                return new Response(await answer.text() || null, {{status: answer.status, headers}});
            }}"
        ));
        let server = browser.show(Server::with_seed(SEED, &["--access-log"]));
        try_out(&browser, || server.list());
        assert!(!server.log().contains(" 412 "), "{}", server.log());
        if proxy == ALTERED {
            wait_until("the page waits", || requests(&server).0 == 1);
        }
        server.ask("PUT", "/colors/red", r##"{"value":"#000001"}"##);
        browser.expect_text("li .value", "#000001");
        browser.devtools("Page.removeScriptToEvaluateOnNewDocument", script);
    }
}
