//! What undo takes back: nothing that a person did gets lost.

use serde_json::{Value, json};

use crate::browser::actions::{CONTROL, DELETE, ESCAPE};
use crate::browser::driver::{Browser, Browsing, browse_to_change};
use crate::common::harness::{Scratch, Server};

pub(super) const SEED: &str = r##"[{"name":"red","value":"#ff0000"},{"name":"ink","value":"#191970"},{"name":"lime","value":"#00ff00"},
    {"name":"snow","value":"#fffafa"},{"name":"gold","value":"#ffd700"}]"##;

/// What the menu offers to undo, and to redo.
const STEPS: &str = "return ['#undo', '#redo'].map(item => $(item).textContent)";

/// Opens the page of a service with five colors, when they may be changed.
pub(crate) fn open() -> Option<(Browsing, Server)> {
    browse_to_change(Server::with_seed(SEED, &["--access-log"]))
}

/// Has the service answer requests of a method only after `release` was called in the page, and
/// counts them in `sent`.
pub(crate) fn hold(browser: &Browser, method: &str) {
    browser.run(&format!(
        "const fetch = window.fetch;
        const isReleased = new Promise(resolve => window.release = resolve);
        window.sent = 0;
        window.fetch = async (path, init) => {{
            if (init.method !== '{method}') return fetch(path, init);
            sent++;
            await isReleased;
            return fetch(path, init);
        }}"
    ));
}

pub(crate) fn names_of(server: &Server) -> Vec<String> {
    let list: Value = serde_json::from_str(&server.list()).unwrap();
    let colors = list["data"].as_array().unwrap().iter();
    colors.map(|color| color["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn presses_delete_one_color_each_and_undo_puts_them_back_where_they_were() {
    let Some((browser, server)) = open() else { return };
    assert_eq!(browser.run("return $('#undo').disabled"), json!(true), "nothing to undo yet");
    let is_quiet = "const [undo, save] = ['#undo', '#saveJson'].map(item => getComputedStyle($(item)).color); return undo !== save";
    browser.expect_value(is_quiet, true);
    hold(&browser, "DELETE");
    browser.focus("ink");
    // a key that is held is one press
    for repeat in 0..9 {
        let key = json!({"type": "rawKeyDown", "key": "Delete", "code": "Delete", "windowsVirtualKeyCode": 46, "autoRepeat": repeat > 0});
        browser.devtools("Input.dispatchKeyEvent", key);
    }
    browser.press(&[DELETE, DELETE]);
    assert_eq!(browser.names(), ["red", "gold"], "they go at once");
    browser.run("release()");
    browser.expect_text("#told", "Deleted snow.");
    assert_eq!(names_of(&server), ["red", "gold"]);
    // other changes are taken back before them
    browser.change("gold", "gold");
    browser.click("#takeBack");
    browser.expect_text("#told", "Undone: gold is gold now.");
    // from the menu, too, and by key
    browser.click("#more");
    browser.expect_text("#undo", "Undo: Deleted snow.");
    browser.click("#undo");
    browser.expect_text("#told", "Undone: Deleted snow.");
    browser.expect_focus("snow");
    assert_eq!(names_of(&server), ["red", "snow", "gold"]);
    for name in ["lime", "ink"] {
        browser.undo(&format!("Deleted {name}."));
        browser.expect_focus(name);
    }
    assert_eq!(names_of(&server), ["red", "ink", "lime", "snow", "gold"]);
    let buttons = "return [$('#takeBack').textContent, $('#undo').disabled]";
    browser.expect_value(buttons, json!(["Redo", true]));
    // and back again, until something else is changed
    let again = || {
        let key = json!({"type": "rawKeyDown", "key": "Z", "code": "KeyZ", "modifiers": 2 | 8});
        browser.devtools("Input.dispatchKeyEvent", key);
    };
    again();
    browser.expect_text("#told", "Deleted ink.");
    assert_eq!(names_of(&server), ["red", "lime", "snow", "gold"]);
    browser.undo("Deleted ink.");
    browser.delete("red");
    again();
    // with a color open, too, and by button
    browser.open_color("gold");
    browser.undo("Deleted red.");
    assert_eq!(names_of(&server), ["red", "ink", "lime", "snow", "gold"]);
    browser.press(&[ESCAPE]);
    browser.click("#takeBack");
    browser.expect_text("#told", "Deleted red.");
    browser.undo("Deleted red.");
    browser.press_with(CONTROL, "y");
    browser.expect_text("#told", "Deleted red.");
    browser.click("#more");
    browser.click("#undo");
    browser.expect_text("#redo", "Redo: Deleted red.");
}

#[test]
fn colors_of_one_name_are_deleted_and_come_back_one_by_one() {
    let seed = r##"[{"name":"red","value":"1"},{"name":"red","value":"2"},{"name":"red","value":"3"},{"name":"ink","value":"4"}]"##;
    let Some((browser, server)) = browse_to_change(Server::with_seed(seed, &[])) else { return };
    let before = server.list();
    browser.focus("red");
    browser.press(&[DELETE]);
    browser.expect_text("#count", "3 colors");
    browser.press(&[DELETE]);
    browser.expect_text("#undo", "Undo: Deleted red.");
    browser.expect_text("#count", "2 colors");
    browser.press_with(CONTROL, "z");
    browser.press_with(CONTROL, "z");
    browser.expect_text("#count", "4 colors");
    browser.until("return $('#undo').disabled && $('#told').textContent.startsWith('Undone')");
    assert_eq!(server.list(), before);
}

#[test]
fn undo_says_so_when_a_change_of_somebody_else_makes_it_impossible() {
    let Some((browser, server)) = open() else { return };
    browser.delete("ink");
    browser.press(&[DELETE]);
    browser.expect_text("#told", "Deleted lime.");
    server.ask("POST", "/colors", r##"{"name":"lime","value":"#00ee00"}"##);
    browser.expect_text("#count", "4 colors");
    browser.click("#takeBack");
    let why = "Somebody was faster: there is 1 of this name now. Nothing was added.";
    browser.expect_text("#told", why);
    assert_eq!(names_of(&server), ["red", "snow", "gold", "lime"]);
    browser.undo("Deleted ink.");
    assert_eq!(names_of(&server), ["red", "ink", "snow", "gold", "lime"]);
}

#[test]
fn in_a_list_too_long_to_be_sent_nothing_is_moved_and_a_deleted_color_comes_back_at_the_end() {
    let server = Server::with_seed(SEED, &["--max-body", "100"]);
    let Some((browser, server)) = browse_to_change(server) else { return };
    browser.expect("413 (Content Too Large)");
    browser.drag("gold", "ink");
    let why = "The list is too long to be sent, so that no color can be moved.";
    browser.expect_text("#told", why);
    browser.focus("ink");
    browser.press(&[DELETE]);
    browser.expect_text("#told", "Deleted ink.");
    browser.undo("Deleted ink. It is at the end: the list is too long to send.");
    assert_eq!(names_of(&server), ["red", "lime", "snow", "gold", "ink"]);
}

#[test]
fn what_could_not_be_done_is_shown_no_longer_and_can_be_tried_again() {
    let Some((browser, server)) = open() else { return };
    browser.expect("404 (Not Found)");
    hold(&browser, "DELETE");
    browser.focus("ink");
    browser.press(&[DELETE]);
    browser.until("return sent === 1");
    server.ask("PUT", "/colors/ink", r##"{"value":"#222222"}"##);
    browser.expect("412 (Precondition Failed)");
    browser.run("release()");
    browser.expect_text("#told", "Somebody was faster: ink is #222222 now. Nothing was changed.");
    assert_eq!(browser.names(), ["red", "ink", "lime", "snow", "gold"]);
    // the same for an undo that was not sent
    browser.delete("ink");
    browser.run("const fetch = window.fetch; window.fetch = () => Promise.reject(); window.reconnect = () => window.fetch = fetch");
    browser.press_with(CONTROL, "z");
    browser.expect_text("#told", "The service does not answer");
    browser.run("reconnect()");
    browser.expect_text("#told", "The service is back.");
    browser.undo("Deleted ink.");
    assert_eq!(names_of(&server), ["red", "ink", "lime", "snow", "gold"]);
}

#[test]
fn undo_outlives_a_reload_if_the_list_is_the_one_that_was_left() {
    let Some((browser, server)) = open() else { return };
    let before = server.list();
    let undo = |change: &str| {
        browser.reload();
        // the list may come later than what may be done with it
        browser.until("return $('#undo:enabled') !== null");
        browser.expect_controls();
        browser.undo(change);
    };
    browser.delete("ink");
    browser.change("gold", "gold");
    browser.drag("gold", "red");
    browser.expect_text("#told", "Moved gold to place 1.");
    let scratch = Scratch::new();
    let file = scratch.write("new.json", r#"[{"name":"sea","value":"teal"}]"#);
    browser.bring_to_replace(&file, "4 colors become 1");
    browser.click("#replace");
    browser.expect_text("#told", "Replaced 4 colors with 1.");
    browser.add("new", "tan");
    undo("Added new at the end.");
    undo("Replaced 4 colors with 1.");
    undo("Moved gold to place 1.");
    undo("gold is gold now.");
    undo("Deleted ink.");
    browser.expect_focus("ink");
    assert_eq!(server.list(), before);
    browser.reload();
    browser.expect_controls();
    browser.until("return !$('#redo').disabled");
    browser.click("#more");
    browser.click("#redo");
    browser.expect_text("#told", "Deleted ink.");
    assert_eq!(names_of(&server), ["red", "lime", "snow", "gold"]);
    // not that of another list
    browser.go_without_waiting("about:blank");
    server.ask("POST", "/colors", r##"{"name":"new","value":"#333333"}"##);
    browser.open(&server);
    browser.expect_value(STEPS, json!(["Undo", "Redo"]));
}

#[test]
fn what_is_too_long_to_be_undone_after_a_reload_is_told() {
    let Some((browser, _server)) = open() else { return };
    let scratch = Scratch::new();
    let long = json!([{"name": "long", "value": "x".repeat(3000)}]).to_string();
    browser.give_file(&scratch.write("long.json", long));
    browser.until("return $('#incoming').open");
    browser.click("#replace");
    browser.expect_text("#told", "Added 1 color.");
    browser.delete("ink");
    // a browser keeps 5 MiB, of which this leaves little
    browser.run("sessionStorage.setItem('full', 'x'.repeat(5 * 2 ** 20 - 1000))");
    browser.reload();
    browser.expect_text("#told", "Not all can be undone any more: it was too long to keep.");
    let kept = json!(["Undo: Deleted \u{2068}ink\u{2069}.", "Redo"]);
    browser.expect_value(STEPS, kept.clone());
    // where only a redo is too long, undo stays
    browser.delete("long");
    browser.undo("Deleted long.");
    browser.reload();
    browser.expect_text("#told", "Not all can be undone any more: it was too long to keep.");
    browser.expect_value(STEPS, kept);
}
