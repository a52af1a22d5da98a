//! What happens while one looks: changes of others, a hidden page, a service that goes away.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::browser::actions::ESCAPE;
use crate::browser::driver::browse;
use crate::browser::proxied::Front;
use crate::common::harness::{Server, eventually, figures, wait_until, within};

#[test]
fn changes_of_others_appear_by_themselves() {
    let Some(browser) = browse() else { return };
    let server = browser.show(Server::start(&[]));
    let mut worst = Duration::ZERO;
    for round in 0..5 {
        server.ask("PUT", "/colors/aliceblue", &format!(r##"{{"value":"#00000{round}"}}"##));
        let begun = Instant::now();
        browser.until(&format!(
            "return document.querySelector('li .value').textContent === '#00000{round}'"
        ));
        worst = worst.max(begun.elapsed());
    }
    figures(&format!("changes of others appeared after {worst:?} at most"));
    server.ask("POST", "/colors", r##"{"name":"new","value":"#123456"}"##);
    server.ask("DELETE", "/colors/aqua", "");
    browser.until("return !document.querySelector('#list').textContent.includes('aqua#00')");
    browser.expect_text("li:last-child .name", "new");
}

#[test]
fn a_change_leaves_focus_scroll_place_and_half_typed_values() {
    let Some(browser) = browse() else { return };
    browser.resize(800, 500);
    let server = browser.show(Server::start(&[]));
    // far down, with the focus on a tile
    browser.run("scrollTo(0, 1200)");
    browser.until("return [...document.querySelectorAll('li .name')].some(name => name.textContent === 'olive')");
    browser.focus("olive");
    let place = "const olive = [...document.querySelectorAll('li')].find(li => li.querySelector('.name').textContent === 'olive');
        return [document.activeElement === olive.firstChild, Math.round(olive.getBoundingClientRect().top)]";
    let before = browser.run(place);
    assert_eq!(before[0], true);
    // whole rows above it go
    let columns =
        browser.run("return Math.round(document.querySelector('#list').clientWidth / document.querySelector('li').clientWidth)");
    let names =
        "aliceblue antiquewhite aqua aquamarine azure beige bisque black blanchedalmond blue";
    for name in names.split(' ').take(usize::try_from(columns.as_u64().unwrap()).unwrap()) {
        server.ask("DELETE", &format!("/colors/{name}"), "");
    }
    browser.until(&format!(
        "return document.querySelector('#count').textContent === '{} colors'",
        148 - columns.as_u64().unwrap()
    ));
    assert_eq!(browser.run(place), before);

    browser.edit("olive");
    browser.fill("#value", "half ty");
    server.ask("PUT", "/colors/olive", r##"{"value":"#808001"}"##);
    browser.until("return document.querySelector('#list').textContent.includes('#808001')");
    let field = "const field = document.querySelector('#value'); return [field.value, document.activeElement === field]";
    assert_eq!(browser.run(field), json!(["half ty", true]));
}

#[test]
fn a_hidden_page_asks_for_nothing_and_a_visible_one_for_no_content() {
    let Some(browser) = browse() else { return };
    let server = browser.show(Server::start(&["--access-log"]));
    let count = |part: &str| {
        server
            .log()
            .lines()
            .filter(|line| line.contains(" GET \"/colors\"") && line.contains(part))
            .count()
    };
    wait_until("a 304", || count(" 304 ") >= 2);
    assert_eq!(count(" 200 "), 1, "{}", server.log());
    let tab = browser.hide();
    // a page that is seen asks every second; one request may have been under way
    eventually("a hidden page asks for nothing", || {
        let before = count("");
        within(Duration::from_secs(3), || (count("") > before).then_some(()))
            .is_none()
            .then_some(())
    });
    let before = count("");
    browser.switch(&tab);
    wait_until("the page asks again", || count("") > before);
}

#[test]
fn while_the_service_is_away_the_page_says_so_and_goes_on_when_it_is_back() {
    let Some(browser) = browse() else { return };
    let front = Front::start();
    let server = Server::start(&[]);
    front.lead_to(&server);
    browser.go(&front.address());
    drop(server);
    front.lead_nowhere();
    browser.expect_text("#away", "The service does not answer – trying again…");
    assert_eq!(browser.names().len(), 148);
    browser.change("azure", "red");
    browser.expect_text("#refusal", "The service does not answer");
    browser.press(&[ESCAPE]);
    browser.expect_closed();
    let server = Server::with_seed(r##"[{"name":"only","value":"#111111"}]"##, &["--read-only"]);
    front.lead_to(&server);
    browser.expect_text("#count", "1 color");
    browser.expect_text("#told", "The service is back.");
    assert_eq!(browser.text("#away"), "");
    browser.until(
        "return !document.querySelector('#add').checkVisibility({visibilityProperty: true})",
    );
}

#[test]
fn no_message_of_an_outage_stays_when_the_service_is_back() {
    let Some(browser) = browse() else { return };
    let front = Front::start();
    let server = Server::start(&[]);
    front.lead_to(&server);
    browser.go(&front.address());
    browser.edit("azure");
    browser.fill("#value", "red");
    drop(server);
    front.lead_nowhere();
    browser.click("#save");
    browser.expect_text("#refusal", "The service does not answer");
    browser.expect_text("#away", "The service does not answer – trying again…");
    let server = Server::start(&[]);
    front.lead_to(&server);
    browser.expect_text("#refusal", "");
    browser.expect_text("#away", "");
    browser.expect_text("#told", "The service is back.");
}
