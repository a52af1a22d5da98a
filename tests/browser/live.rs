//! What happens while one looks: changes of others, a hidden page, a service that goes away.

use serde_json::json;

use crate::browser::actions::ENTER;
use crate::browser::changing::SEED;
use crate::browser::driver::{PLAIN_HOST, browse, browse_to, browse_to_change};
use crate::browser::with_colors;
use crate::common::harness::{Server, colors, wait_until};
use crate::wire::recipes::own_address;

/// What the page says then.
const AWAY: &str = "The service does not answer – trying again…";

#[test]
fn an_open_color_stands_still_while_others_change_it_and_the_list() {
    let Some(browser) = browse() else { return };
    browser.resize(844, 390);
    let server = browser.show(Server::start(&[]));
    browser.open_color("olive");
    browser.expect_text("#place", "104 of 148");
    browser.run("$('#panel').scrollTop = 60; getSelection().selectAllChildren($('#formats :nth-child(3) code'))");
    let state = "return [$('#panel').scrollTop, String(getSelection())]";
    let before = json!([60, "hsl(60 100% 25.1%)"]);
    browser.expect_value(state, before.clone());
    server.ask("DELETE", "/colors/aqua", "");
    browser.expect_text("#place", "103 of 147");
    browser.expect_value(state, before.clone());
    // only what differs is set
    server.ask("PUT", "/colors/olive", r##"{"value":"olive"}"##);
    browser.expect_text("#formats code", "olive");
    browser.run("getSelection().selectAllChildren($('#title'))");
    server.ask("PUT", "/colors/olive", r##"{"value":"#808001"}"##);
    browser.expect_text("#formats code", "#808001");
    browser.expect_value(state, json!([60, "olive"]));
}

#[test]
fn changes_of_others_are_read_out_once_in_five_seconds_and_hits_after_a_search() {
    let Some((browser, server)) = browse_to(Server::start(&[])) else { return };
    browser.run(
        "const set = setTimeout;
        window.sayings = [];
        window.searches = [];
        window.setTimeout = (action, time) => time === 5000 ? sayings.push(action) : time === 600 ? searches.push(action) : set(action, time)",
    );
    for number in 1..=3 {
        server.ask("POST", "/colors", r##"{"name":"new","value":"#123456"}"##);
        browser.expect_text("#count", &format!("{} colors", 148 + number));
    }
    browser.until("return sayings.length");
    assert_eq!(browser.text("#said"), "");
    browser.run("sayings[0]()");
    browser.expect_text("#said", "Changed elsewhere: 3 colors. There are 151 now.");
    browser.expect_value("return sayings.length", 1);
    server.ask("PUT", "/colors/aqua", r#"{"value":"teal"}"#);
    browser.until("return sayings.length === 2");
    browser.run("sayings[1]()");
    browser.expect_text("#said", "Changed elsewhere: aqua, teal.");
    for (query, hits) in [("orch", "3 of 151 colors"), ("#ff6347", "1 of 151 colors, and 12 near")]
    {
        let before = browser.text("#said");
        browser.fill("#query", query);
        browser.expect_value("return $('#query').value", query);
        assert_eq!(browser.text("#said"), before, "nothing while one types");
        browser.run("searches.at(-1)()");
        browser.expect_text("#said", hits);
    }
}

#[test]
fn a_change_keeps_the_place_in_a_list_of_5000_whether_or_not_the_tile_with_the_focus_goes() {
    let server = with_colors((0..5000).map(|number| (number, "#99cccc")));
    let Some((browser, server)) = browse_to(server) else { return };
    let columns = browser.run("return Math.round($('#list').clientWidth / $('li').clientWidth)");
    let columns = columns.as_u64().unwrap();
    browser.focus("0");
    browser.run("scrollTo(0, 20000)");
    let place = "const tile = document.elementFromPoint(20, 200).closest('li'); return tile && [tile.textContent, tile.getBoundingClientRect().top]";
    let before = browser.until(place);
    for (row, focus) in [(0, columns), (1, 2 * columns)] {
        for number in row * columns..(row + 1) * columns {
            server.ask("DELETE", &format!("/colors/{number}"), "");
        }
        browser.expect_text("#count", &format!("4,{} colors", 1000 - focus));
        assert_eq!(browser.run(place), before);
        browser.expect_focus(&focus.to_string());
    }
    // the same with the focus in view, while tiles go that are in view above it
    browser.run("[...document.querySelectorAll('#list li')].find(tile => tile.getBoundingClientRect().top > innerHeight / 2).firstChild.focus()");
    let focused = "const tile = document.activeElement.closest('li'); return [parseInt(tile.textContent), tile.getBoundingClientRect().top]";
    let before = browser.run(focused);
    let number = before[0].as_u64().unwrap();
    for number in number - columns..number {
        server.ask("DELETE", &format!("/colors/{number}"), "");
    }
    browser.expect_text("#count", &format!("4,{} colors", 1000 - 3 * columns));
    assert_eq!(browser.run(focused), before);
}

/// How many requests wait at a service, and how many GETs of the list it has answered.
pub(super) fn requests(server: &Server) -> (usize, usize) {
    let waiting = server.metric("colors_requests_waiting") as usize;
    (waiting, server.log().matches(" GET \"/colors\"").count())
}

#[test]
fn a_visible_page_has_one_request_that_waits_and_a_hidden_one_none() {
    /// Notes for each request whether the page is hidden.
    const NOTED: &str = "const ask = window.fetch;
        window.asked = [];
        window.fetch = (...request) => { asked.push(document.hidden); return ask(...request) }";
    let Some(browser) = browse() else { return };
    browser.on_each_page(NOTED);
    let server = browser.show(Server::start(&["--access-log"]));
    wait_until("the page waits", || requests(&server) == (1, 1));
    server.ask("PUT", "/colors/aliceblue", r##"{"value":"#000001"}"##);
    wait_until("it waits again", || requests(&server) == (1, 2));
    let tab = browser.hide();
    wait_until("it does not wait", || requests(&server).0 == 0);
    server.ask("PUT", "/colors/aliceblue", r##"{"value":"#000002"}"##);
    browser.switch(&tab);
    browser.expect_text("li .value", "#000002");
    browser.expect_value("return asked.includes(true)", false);
}

#[test]
fn one_of_seven_windows_waits_and_tells_the_others() {
    let Some(browser) = browse() else { return };
    // without TLS, there is less of what windows have to speak with each other
    let server = Server::with_seed(SEED, &["--access-log", "--allow-host", PLAIN_HOST]);
    let windows = [(); 7].map(|()| {
        let new = browser.call("POST", "/window/new", json!({"type": "window"}));
        browser.switch(&new["handle"]);
        browser.go(&format!("http://{PLAIN_HOST}:{}/", server.address.port()));
        new["handle"].clone()
    });
    browser.change("ink", "tan");
    for window in &windows {
        browser.switch(window);
        browser.expect_text("li:nth-child(2) .value", "tan");
        browser.expect_value("return document.visibilityState", "visible");
    }
    // each asks once when it opens, and once or twice for the change
    let asked = requests(&server).1;
    assert!(asked <= 35, "{asked}: {}", server.log());
    wait_until("one waits", || requests(&server).0 == 1);
    // when the one that waits is closed, another one does
    for window in &windows[..6] {
        browser.switch(window);
        browser.call("DELETE", "/window", json!(null));
    }
    browser.switch(&windows[6]);
    wait_until("the last one waits", || requests(&server).0 == 1);
    server.ask("PUT", "/colors/ink", r#"{"value":"teal"}"#);
    browser.expect_text("li:nth-child(2) .value", "teal");
}

#[test]
fn behind_a_proxy_that_passes_no_wait_or_no_tag_the_page_asks_once_a_second() {
    const DROPS: &str = "delete init.headers.Prefer; return ask(path, init)";
    const LATE: &str =
        "return init.headers.Prefer ? new Response('', {status: 504}) : ask(path, init)";
    const NO_TAG: &str = "const answer = await ask(path, init);
        const headers = [...answer.headers].filter(([name]) => name !== 'etag');
        return new Response(await answer.text() || null, {status: answer.status, headers})";
    let Some(browser) = browse() else { return };
    // after a wait that was none, how often the page asks before it rests again
    for (proxy, count) in [(DROPS, 1), (LATE, 2), (NO_TAG, 1)] {
        // the clock stands still, and a rest of a second ends when the test says so
        let source = format!(
            "const [ask, set] = [window.fetch, setTimeout];
            window.asked = window.sayings = 0;
            performance.now = () => 0;
            window.setTimeout = (action, time, ...rest) => {{
                sayings += time === 5000;
                return time === 1000 ? window.goOn = action : set(action, time, ...rest);
            }};
            window.fetch = async (path, init) => {{ asked++; {proxy} }}"
        );
        let script = browser.on_each_page(&source);
        let server = browser.show(Server::with_seed(SEED, &[]));
        let go_on = "asked = 0; const {goOn} = window; window.goOn = undefined; goOn()";
        for _ in 0..3 {
            browser.until("return !!window.goOn");
            browser.run(go_on);
            browser.until("return !!window.goOn");
            browser.expect_value("return asked", count);
        }
        assert_eq!(browser.text("#away"), "", "{proxy}");
        browser.expect_value("return sayings", 0);
        server.ask("PUT", "/colors/red", r##"{"value":"#000001"}"##);
        browser.run(go_on);
        browser.expect_text("li .value", "#000001");
        browser.devtools("Page.removeScriptToEvaluateOnNewDocument", script);
    }
}

#[test]
fn the_list_is_asked_for_first_and_the_page_says_that_it_loads() {
    const HELD: &str = "const ask = window.fetch;
        const isReleased = new Promise(resolve => window.release = resolve);
        window.asked = [];
        window.fetch = async (path, init) => { asked.push(init.method); await isReleased; return ask(path, init) }";
    let Some(browser) = browse() else { return };
    let server = Server::start(&[]);
    browser.on_each_page(HELD);
    browser.go_without_waiting(&format!("http://{}/", server.address));
    browser.until("return asked.length === 2");
    browser.expect_value("return asked", json!(["GET", "OPTIONS"]));
    browser.expect_seen("#why");
    assert_eq!(browser.text("#why"), "Loading…");
    browser.run("release()");
    browser.expect_text("#count", "148 colors");
    assert_eq!(browser.text("#why"), "");
}

#[test]
fn while_the_service_is_away_the_page_says_so_and_no_longer_when_it_is_back() {
    let server = Server::spawn(colors(&["--listen", &own_address(0)]));
    let Some((browser, server)) = browse_to_change(server) else { return };
    let address = server.address.to_string();
    let top = "return $('li').getBoundingClientRect().top";
    let before = browser.run(top);
    drop(server);
    browser.expect_text("#away", AWAY);
    assert_eq!(browser.run(top), before, "it pushes nothing down");
    assert_eq!(browser.names().len(), 148);
    browser.edit("azure");
    browser.fill("#value", "red");
    browser.press(&[ENTER]);
    browser.expect_text("#refusal", "The service does not answer");
    let seed = r##"[{"name":"azure","value":"#f0ffff"}]"##;
    let server = Server::with_seed(seed, &["--listen", &address]);
    browser.expect_text("#count", "1 color");
    browser.expect_text("#refusal", "");
    browser.expect_text("#away", "");
    browser.expect_text("#told", "The service is back.");
    drop(server);
    browser.expect_text("#away", AWAY);
    assert_eq!(browser.text("#told"), "");
}
