//! The dialog for tokens.

use serde_json::json;

use crate::browser::actions::{ALT, DELETE, ENTER, ESCAPE, F2, RIGHT};
use crate::browser::changing::SEED;
use crate::browser::driver::{Browser, browse, browse_to};
use crate::browser::undoing::hold;
use crate::common::harness::{Scratch, Server};

/// How many of the controls that change something are seen.
pub(super) const CONTROLS: &str = "const controls = $$('#add, #change, #delete, #choose, #undo');
    return controls.filter(control => control.checkVisibility({visibilityProperty: true})).length";

pub(crate) const TOKEN: &str = "the-right-token-of-32-characters";

/// A service that needs a token.
pub(crate) fn guarded(arguments: &[&str]) -> Server {
    let scratch = Scratch::new();
    let file = scratch.write_tokens(TOKEN);
    Server::with_seed(SEED, &[&["--token-file", &file], arguments].concat())
}

/// Types a token into the dialog.
fn give(browser: &Browser, token: &str) {
    browser.type_text(token);
    browser.press(&[ENTER]);
}

#[track_caller]
fn expect_dialog(browser: &Browser, headline: &str) {
    browser.until("return $('#asking').open");
    assert_eq!(browser.text("#asked"), headline);
}

#[test]
fn a_token_with_a_character_that_no_field_can_have_is_refused_in_the_dialog() {
    let Some((browser, _server)) = browse_to(guarded(&[])) else { return };
    browser.click("#give");
    expect_dialog(&browser, "Changes need a token");
    assert_eq!(browser.text("#asking .main"), "Enter token");
    let reason = "A token has only letters, digits and - . _ ~ + /, and = at its end. This one has something else.";
    for bad in ["\u{201c}the-right-token\u{201d}", "pässword", "two words", "a\u{2060}b", "=a"] {
        // pasted, which a test does by setting what the field has
        browser.run_with("$('#token').value = arguments[0]", &json!([bad]));
        browser.press(&[ENTER]);
        browser.expect_text("#reason", reason);
        let state = browser.run("return [$('#asking').open, sessionStorage.length]");
        assert_eq!(state, json!([true, 0]), "{bad}");
    }
    // white space around it is not part of it
    browser.run_with("$('#token').value = arguments[0]", &json!([format!("  {TOKEN} ")]));
    browser.press(&[ENTER]);
    browser.expect_controls();
    let kept = "The tabs of this page keep yours until you close them.";
    assert!(browser.text("#kept").ends_with(kept));
}

#[test]
fn after_cancel_a_button_leads_back_to_the_dialog() {
    let Some(browser) = browse() else { return };
    browser.expect("401 (Unauthorized)");
    let server = guarded(&["--private"]);
    browser.go_without_waiting(&format!("http://{}/", server.address));
    expect_dialog(&browser, "These colors are private");
    browser.run("const set = setTimeout; window.pauses = 0; window.setTimeout = (...timer) => { pauses++; return set(...timer) }");
    browser.press(&[ESCAPE]);
    browser.expect_text("#why", "These colors are private.");
    browser.until("return document.activeElement.id === 'way'");
    browser.until("return document.body.classList.contains('guarded')");
    browser.expect_value("return $('#give').checkVisibility()", false);
    // there is no pause, after which the page would ask again without a token
    browser.expect_value("return pauses", 1);
    assert_eq!(browser.text("#way"), "Enter token");
    browser.click("#way");
    expect_dialog(&browser, "These colors are private");
    give(&browser, "wrong-token-of-some-32-characters");
    browser.expect_text("#reason", "The service did not accept this token.");
    expect_dialog(&browser, "These colors are private");
    give(&browser, TOKEN);
    browser.expect_text("#count", "3 colors");
    browser.expect_text("#away", "");
    browser.expect_controls();
    // as well if it is given at once; what asks for one goes before it is known what may be changed
    browser.run("sessionStorage.clear()");
    browser.reload();
    expect_dialog(&browser, "These colors are private");
    browser.until("return document.body.classList.contains('guarded')");
    hold(&browser, "OPTIONS");
    give(&browser, TOKEN);
    browser.expect_text("#count", "3 colors");
    let is_seen = "return $('#give').checkVisibility({visibilityProperty: true})";
    browser.expect_value(is_seen, false);
    browser.run("release()");
    browser.expect_controls();
    // and not at all where another tab has it
    browser.hide();
    browser.open(&server);
    browser.expect_controls();
}

#[test]
fn a_visitor_without_a_token_sees_no_control_that_would_fail() {
    let Some((browser, _server)) = browse_to(guarded(&[])) else { return };
    browser.expect("401 (Unauthorized)");
    browser.expect_seen("#give");
    browser.resize(320, 568);
    let rows = "return new Set($$('header > button').filter(part => part.checkVisibility()).map(part => part.offsetTop)).size";
    browser.expect_value(rows, 1);
    browser.resize(1440, 900);
    browser.open_color("ink");
    assert_eq!(browser.run(CONTROLS), json!(0));
    browser.expect_seen(".guards");
    assert_eq!(browser.text(".guards p"), "Changes need a token.");
    browser.click("#unlock");
    expect_dialog(&browser, "Changes need a token");
    browser.press(&[ESCAPE]);
    for (keys, is_open) in
        [(&[F2][..], true), (&[DELETE], true), (&[ESCAPE, F2], false), (&[DELETE], false)]
    {
        browser.press(keys);
        browser.expect_text("#told", "Changes need a token.");
        browser.click("#dismiss");
        browser.expect_value("return $('#opened').open", is_open);
        // the button that goes gives the focus on when a frame is drawn
        browser.until("return document.activeElement.matches('.open, #next')");
    }
    browser.focus("ink");
    browser.press_with(ALT, RIGHT);
    browser.expect_text("#told", "Changes need a token.");
    assert_eq!(browser.names(), ["red", "ink", "red"]);
    browser.click("#give");
    expect_dialog(&browser, "Changes need a token");
    give(&browser, "wrong-token-of-some-32-characters");
    browser.expect_text("#reason", "The service did not accept this token.");
    browser.press(&[ESCAPE]);
    assert_eq!(browser.run(CONTROLS), json!(0));
    browser.click("#give");
    give(&browser, TOKEN);
    browser.expect_controls();
    browser.change("ink", "#00eeee");
    let kept = "return [localStorage.length, sessionStorage.length, document.cookie]";
    browser.expect_value(kept, json!([0, 1, ""]));
    // one that is no longer accepted is asked for again
    browser.edit("ink");
    browser.fill("#value", "#00dddd");
    browser.run("sessionStorage.setItem('token for /colors', 'wrong-token-of-some-32-characters')");
    browser.click("#save");
    expect_dialog(&browser, "Changes need a token");
    browser.press(&[ESCAPE]);
    browser.expect_text("#refusal", "This needs a token");
    browser.click("#save");
    expect_dialog(&browser, "Changes need a token");
    give(&browser, TOKEN);
    browser.expect_text("#told", "ink is #00dddd now.");
}
