//! What a person changes on the page, and what the page says when that is refused.

use crate::browser::driver::{DELETE, ENTER, F2, browse};
use crate::browser::tokens::{TOKEN, guarded};
use crate::common::harness::{Scratch, Server};

const SEED: &str = r##"[{"name":"red","value":"#ff0000"},{"name":"ink","value":"#191970"},{"name":"red","value":"#ee0000"}]"##;

/// What the console says of a response with this status.
const FASTER: &str = "412 (Precondition Failed)";

fn seeded() -> Server {
    Server::with_seed(SEED, &["--access-log"])
}

#[test]
fn a_color_is_added_at_the_end() {
    browse(|browser| {
        let server = seeded();
        browser.open(&server);
        browser.click("#add");
        browser.type_text("pale \"teal\" <b>");
        browser.fill("#value", "#99cccc");
        assert_eq!(browser.run("return document.querySelector('#picker').value"), "#99cccc");
        browser.press(&[ENTER]);
        browser.expect_no_editor();
        browser.expect_text("#told", "Added pale \"teal\" <b> at the end.");
        browser.expect_text("li:last-child .name", "pale \"teal\" <b>");
        assert!(server.list().ends_with(r##",{"name":"pale \"teal\" <b>","value":"#99cccc"}]}"##));
    });
}

#[test]
fn a_value_is_changed_as_text_and_with_the_picker() {
    browse(|browser| {
        let server = seeded();
        browser.open(&server);
        browser.edit("ink");
        assert_eq!(browser.run("return document.querySelector('#value').value"), "#191970");
        browser.fill("#value", "midnightblue");
        browser.click("#save");
        browser.expect_no_editor();
        browser.expect_text("#told", "ink is midnightblue now.");
        assert_eq!(server.ask("GET", "/colors/ink", "").content, r#"{"name":"ink","value":"midnightblue"}"#);
        browser.until("return document.querySelector('li:nth-child(2) .value').textContent === 'midnightblue'");

        browser.edit("ink");
        // the picker is a window of the system, which a test cannot reach; this is what it does
        browser.run("const picker = document.querySelector('#picker'); picker.value = '#0b0b45'; picker.dispatchEvent(new Event('input'))");
        assert_eq!(browser.run("return document.querySelector('#value').value"), "#0b0b45");
        browser.click("#save");
        browser.expect_no_editor();
        assert_eq!(server.ask("GET", "/colors/ink", "").content, r##"{"name":"ink","value":"#0b0b45"}"##);
    });
}

#[test]
fn a_deleted_color_is_created_again_at_the_end_by_undo() {
    browse(|browser| {
        let server = seeded();
        browser.open(&server);
        browser.edit("ink");
        browser.click("#delete");
        browser.expect_text("#told", "Deleted ink. Undo creates it again, at the end.");
        browser.expect_no_editor();
        browser.expect_text("#count", "2 colors");
        assert_eq!(server.list(), r##"{"data":[{"name":"red","value":"#ff0000"},{"name":"red","value":"#ee0000"}]}"##);
        browser.click("#undo");
        browser.expect_text("#told", "Created ink again, at the end.");
        browser.expect_text("li:last-child .name", "ink");
        assert!(server.list().ends_with(r##",{"name":"ink","value":"#191970"}]}"##));
    });
}

#[test]
fn somebody_who_was_faster_is_told_of_before_a_value_is_replaced() {
    browse(|browser| {
        browser.expect(FASTER);
        let server = seeded();
        browser.open(&server);
        browser.edit("ink");
        browser.fill("#value", "#111111");
        server.ask("PUT", "/colors/ink", r##"{"value":"#222222"}"##);
        browser.click("#save");
        browser.expect_text("#refusal", "Somebody was faster: ink is #222222 now. Nothing was changed.");
        assert_eq!(browser.run("return document.querySelector('#value').value"), "#111111", "what was typed stays");
        assert_eq!(server.ask("GET", "/colors/ink", "").content, r##"{"name":"ink","value":"#222222"}"##);
        browser.click("#save");
        browser.expect_no_editor();
        assert_eq!(server.ask("GET", "/colors/ink", "").content, r##"{"name":"ink","value":"#111111"}"##);
    });
}

#[test]
fn somebody_who_was_faster_is_told_of_before_a_color_is_deleted() {
    browse(|browser| {
        browser.expect(FASTER);
        browser.expect("404 (Not Found)");
        let server = seeded();
        browser.open(&server);
        browser.edit("ink");
        server.ask("PUT", "/colors/ink", r##"{"value":"#222222"}"##);
        browser.click("#delete");
        browser.expect_text("#refusal", "Somebody was faster: ink is #222222 now. Nothing was changed.");
        server.ask("DELETE", "/colors/ink", "");
        browser.click("#save");
        browser.expect_text("#refusal", "there is no such color any more");
    });
}

#[test]
fn a_color_of_the_same_name_that_came_first_is_told_of() {
    browse(|browser| {
        let server = seeded();
        browser.open(&server);
        browser.click("#add");
        browser.type_text("new");
        browser.fill("#value", "#111111");
        // another change of the list is no obstacle, this one is
        let mut other = server.connect();
        other.ask("PUT", "/colors/ink", r##"{"value":"#222222"}"##);
        other.ask("POST", "/colors", r##"{"name":"new","value":"#333333"}"##);
        browser.expect(FASTER);
        browser.click("#save");
        let refused = browser.until("return document.querySelector('#refusal').textContent || !document.querySelector('#editor').open");
        // unless the page had seen it before the click
        if refused != true {
            assert_eq!(refused, "Somebody was faster: there are 1 of this name now. Nothing was added.");
            assert_eq!(server.list().matches(r#""new""#).count(), 1);
            browser.click("#save");
            browser.expect_no_editor();
        }
        assert!(server.list().ends_with(r##"{"name":"new","value":"#333333"},{"name":"new","value":"#111111"}]}"##));
    });
}

#[test]
fn every_change_carries_if_match() {
    browse(|browser| {
        let server = seeded();
        browser.open(&server);
        browser.run(
            "window.sent = []; const fetch = window.fetch;
            window.fetch = (path, init) => { if (init.method !== 'GET') sent.push([init.method, !!init.headers['If-Match']]); return fetch(path, init) }",
        );
        browser.click("#add");
        browser.type_text("a");
        browser.press(&[ENTER]);
        browser.expect_no_editor();
        browser.edit("ink");
        browser.fill("#value", "#000000");
        browser.press(&[ENTER]);
        browser.expect_no_editor();
        browser.edit("ink");
        browser.click("#delete");
        browser.expect_no_editor();
        browser.click("#undo");
        browser.expect_text("#told", "Created ink again, at the end.");
        let expected = serde_json::json!([["POST", true], ["PUT", true], ["DELETE", true], ["POST", true]]);
        assert_eq!(browser.run("return sent"), expected);
    });
}

#[test]
fn of_two_colors_with_the_same_name_a_path_means_the_first() {
    browse(|browser| {
        let server = seeded();
        browser.open(&server);
        let marks = browser.run("return [...document.querySelectorAll('li .copy span')].map(mark => mark.textContent)");
        assert_eq!(marks, serde_json::json!(["1 of 2", "", "2 of 2"]));
        browser.click_nth_tile("red", 1, ".edit");
        browser.expect_text("#note", "This is number 2 of 2 with its name. A path means the first.");
        assert_eq!(browser.run("return document.querySelector('#save').offsetParent"), serde_json::Value::Null);
        browser.click("#editor .close");
        browser.click_nth_tile("red", 0, ".edit");
        browser.expect_text("#note", "This is the first of 2 with its name. A path means the first.");
        browser.click("#delete");
        browser.expect_text("#count", "2 colors");
        assert_eq!(server.list(), r##"{"data":[{"name":"ink","value":"#191970"},{"name":"red","value":"#ee0000"}]}"##);
        browser.until("return document.querySelector('li:last-child .copy span').textContent === ''");
        browser.click("#add");
        browser.type_text("ink");
        browser.expect_text("#note", "There is one of this name already. A path means the first.");
    });
}

#[test]
fn names_that_a_browser_cannot_ask_for_are_shown_and_left_alone() {
    browse(|browser| {
        let seed = r##"[{"name":".","value":"#111111"},{"name":"..","value":"#222222"},{"name":"","value":"#333333"}]"##;
        let server = Server::with_seed(seed, &[]);
        browser.open(&server);
        for name in [".", ".."] {
            browser.edit(name);
            browser.expect_text("#note", "Browsers take this name for a step in the path, so this color cannot be changed here.");
            browser.click("#editor .close");
        }
        browser.run("document.querySelector('li .copy').focus()");
        browser.press(&[DELETE]);
        browser.expect_editor();
        browser.click("#editor .close");
        // the empty name is a path like any other
        browser.edit("");
        browser.fill("#value", "#444444");
        browser.press(&[ENTER]);
        browser.expect_no_editor();
        assert!(server.list().ends_with(r##"{"name":"","value":"#444444"}]}"##));
    });
}

#[test]
fn a_value_with_line_breaks_stays_as_it_was_unless_it_is_typed_anew() {
    browse(|browser| {
        let server = Server::with_seed(r#"[{"name":"a","value":"1\n2"}]"#, &[]);
        browser.open(&server);
        browser.edit("a");
        browser.click("#save");
        browser.expect_no_editor();
        assert_eq!(server.list(), r#"{"data":[{"name":"a","value":"1\n2"}]}"#);
    });
}

#[test]
fn refusals_are_shown_in_the_words_of_the_service() {
    browse(|browser| {
        browser.expect("413 (Content Too Large)");
        let server = Server::with_seed(SEED, &["--max-body", "100"]);
        browser.open(&server);
        browser.edit("ink");
        let value = "x".repeat(101);
        browser.fill("#value", &value);
        browser.click("#save");
        let message = server.ask("PUT", "/colors/ink", &format!(r#"{{"value":"{value}"}}"#)).message();
        browser.expect_text("#refusal", &message);
    });
}

#[test]
fn a_read_only_service_shows_no_controls() {
    browse(|browser| {
        let server = Server::start(&["--read-only"]);
        browser.open(&server);
        let controls = "return [...document.querySelectorAll('#add, .edit')].filter(control => control.checkVisibility({visibilityProperty: true})).length";
        assert_eq!(browser.run(controls), 0);
        browser.run("document.querySelector('li .copy').focus()");
        browser.press(&[F2, DELETE, ENTER]);
        browser.expect_text("#said", "Copied #f0f8ff");
        assert_eq!(browser.run("return document.querySelector('#editor').open"), false);
        let server = Server::start(&[]);
        browser.open(&server);
        browser.until(controls);
    });
}

#[test]
fn a_token_is_asked_for_once_and_kept_for_the_session() {
    browse(|browser| {
        browser.expect("401 (Unauthorized)");
        let scratch = Scratch::new();
        let server = guarded(&scratch, &[]);
        browser.open(&server);
        browser.edit("aqua");
        browser.fill("#value", "#00eeee");
        browser.click("#save");
        browser.until("return document.querySelector('#asking').open");
        browser.type_text("wrong");
        browser.press(&[ENTER]);
        browser.until("return document.querySelector('#asking').open && document.querySelector('#token').value === ''");
        browser.type_text(TOKEN);
        browser.press(&[ENTER]);
        browser.expect_no_editor();
        assert_eq!(server.ask("GET", "/colors/aqua", "").content, r##"{"name":"aqua","value":"#00eeee"}"##);
        browser.edit("azure");
        browser.click("#delete");
        browser.expect_no_editor();
        assert_eq!(browser.run("return [localStorage.length, sessionStorage.length, document.cookie]"), serde_json::json!([0, 1, ""]));
    });
}
