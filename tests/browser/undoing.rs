//! Deletions and how they are taken back, and saves that take long: nothing that a person did or typed gets lost.

use serde_json::json;

use crate::browser::driver::{Browser, DELETE, ENTER, ESCAPE, browse};
use crate::common::harness::Server;

const SEED: &str = r##"[{"name":"red","value":"#ff0000"},{"name":"ink","value":"#191970"},{"name":"lime","value":"#00ff00"},
    {"name":"snow","value":"#fffafa"},{"name":"gold","value":"#ffd700"}]"##;

/// Has the service answer requests of a method only after `release` was called in the page, and counts them in `sent`.
fn hold(browser: &Browser, method: &str) {
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

fn focus(browser: &Browser, name: &str) {
    let script =
        "[...document.querySelectorAll('li')].find(li => li.querySelector('.name').textContent === arguments[0]).firstChild.focus()";
    browser.run_with(script, &json!([name]));
}

fn names_of(server: &Server) -> Vec<String> {
    let list: serde_json::Value = serde_json::from_str(&server.list()).unwrap();
    list["data"].as_array().unwrap().iter().map(|color| color["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_delete_key_that_is_held_deletes_one_color() {
    browse(|browser| {
        let server = Server::start(&["--access-log"]);
        browser.open(&server);
        focus(browser, "azure");
        for repeat in 0..30 {
            let key =
                json!({"type": "rawKeyDown", "key": "Delete", "code": "Delete", "windowsVirtualKeyCode": 46, "autoRepeat": repeat > 0});
            browser.devtools("Input.dispatchKeyEvent", key);
        }
        browser.devtools("Input.dispatchKeyEvent", json!({"type": "keyUp", "key": "Delete", "code": "Delete"}));
        browser.expect_text("#told", "Deleted azure. Undo creates it again, at the end.");
        // this is done after what the other key presses would have asked for
        browser.click("#undo");
        browser.expect_text("#told", "Created azure again, at the end.");
        assert_eq!(server.log().matches(" DELETE ").count(), 1, "{}", server.log());
        assert_eq!(server.list().matches("name").count(), 148);
    });
}

#[test]
fn quick_presses_delete_one_color_each_and_undo_takes_back_the_last_first() {
    browse(|browser| {
        let server = Server::with_seed(SEED, &[]);
        browser.open(&server);
        hold(browser, "DELETE");
        focus(browser, "ink");
        browser.press(&[DELETE, DELETE, DELETE]);
        assert_eq!(browser.names(), ["red", "gold"], "they go at once");
        browser.run("release()");
        browser.expect_text("#told", "Deleted snow. Undo creates it again, at the end.");
        assert_eq!(names_of(&server), ["red", "gold"]);
        assert_eq!(browser.text("#undo"), "Undo deletion (3)");
        // neither other changes nor what the page says of them take it away
        browser.edit("gold");
        browser.fill("#value", "gold");
        browser.press(&[ENTER]);
        browser.expect_text("#told", "gold is gold now.");
        for name in ["snow", "lime"] {
            browser.click("#undo");
            browser.expect_text("#told", &format!("Created {name} again, at the end."));
        }
        assert_eq!(browser.text("#undo"), "Undo deletion");
        // by key, too, and where the message was dismissed
        browser.click("#dismiss");
        browser.press_with_control("z");
        browser.expect_text("#told", "Created ink again, at the end.");
        assert_eq!(names_of(&server), ["red", "gold", "snow", "lime", "ink"]);
        assert_eq!(browser.run("return document.querySelector('#undo').offsetParent"), json!(null));
    });
}

#[test]
fn colors_of_one_name_are_deleted_and_created_again_one_by_one() {
    browse(|browser| {
        let seed = r##"[{"name":"red","value":"1"},{"name":"red","value":"2"},{"name":"red","value":"3"},{"name":"ink","value":"4"}]"##;
        let server = Server::with_seed(seed, &[]);
        browser.open(&server);
        focus(browser, "red");
        browser.press(&[DELETE, DELETE]);
        browser.until("return document.querySelector('#undo').textContent === 'Undo deletion (2)'");
        assert_eq!(server.list(), r##"{"data":[{"name":"red","value":"3"},{"name":"ink","value":"4"}]}"##);
        browser.click("#undo");
        browser.click("#undo");
        browser.until("return document.querySelectorAll('li').length === 4");
        assert!(server.list().ends_with(r##"{"name":"red","value":"2"},{"name":"red","value":"1"}]}"##), "{}", server.list());
    });
}

#[test]
fn undo_says_so_when_a_change_of_somebody_else_makes_it_impossible() {
    browse(|browser| {
        browser.expect("412 (Precondition Failed)");
        let server = Server::with_seed(SEED, &[]);
        browser.open(&server);
        focus(browser, "ink");
        browser.press(&[DELETE, DELETE]);
        browser.until("return document.querySelector('#undo').textContent === 'Undo deletion (2)'");
        server.ask("POST", "/colors", r##"{"name":"lime","value":"#00ee00"}"##);
        browser.click("#undo");
        browser.expect_text("#told", "lime was not created again: by now another color has this name.");
        assert_eq!(names_of(&server), ["red", "snow", "gold", "lime"]);
        browser.click("#undo");
        browser.expect_text("#told", "Created ink again, at the end.");
    });
}

#[test]
fn a_color_that_could_not_be_deleted_comes_back() {
    browse(|browser| {
        browser.expect("404 (Not Found)");
        let server = Server::with_seed(SEED, &[]);
        browser.open(&server);
        hold(browser, "DELETE");
        focus(browser, "ink");
        browser.press(&[DELETE]);
        browser.until("return sent === 1");
        server.ask("PUT", "/colors/ink", r##"{"value":"#222222"}"##);
        browser.expect("412 (Precondition Failed)");
        browser.run("release()");
        browser.expect_text("#told", "Somebody was faster: ink is #222222 now. Nothing was changed.");
        assert_eq!(browser.names(), ["red", "ink", "lime", "snow", "gold"]);
    });
}

#[test]
fn the_answer_to_a_slow_save_leaves_the_editor_of_another_color_open() {
    browse(|browser| {
        let server = Server::with_seed(SEED, &[]);
        browser.open(&server);
        hold(browser, "PUT");
        browser.edit("ink");
        browser.fill("#value", "#111111");
        browser.press(&[ENTER]);
        browser.until("return sent");
        browser.press(&[ESCAPE]);
        browser.expect_no_editor();
        browser.edit("lime");
        browser.fill("#value", "half ty");
        browser.run("release()");
        browser.expect_text("#told", "ink is #111111 now.");
        let editor = "return [document.querySelector('#editor').open, document.querySelector('#title').textContent, document.querySelector('#value').value]";
        assert_eq!(browser.run(editor), json!([true, "\u{2068}lime\u{2069}", "half ty"]));
        browser.click("#save");
        browser.expect_text("#told", "lime is half ty now.");
        browser.expect_no_editor();
    });
}

#[test]
fn a_slow_save_is_sent_once_and_its_failure_is_not_told_in_the_editor_of_another_color() {
    browse(|browser| {
        browser.expect("412 (Precondition Failed)");
        let server = Server::with_seed(SEED, &[]);
        browser.open(&server);
        hold(browser, "PUT");
        browser.edit("ink");
        browser.fill("#value", "#111111");
        browser.press(&[ENTER, ENTER, ENTER]);
        browser.until("return sent");
        server.ask("PUT", "/colors/ink", r##"{"value":"#222222"}"##);
        browser.press(&[ESCAPE]);
        browser.edit("lime");
        browser.run("release()");
        browser.expect_text("#told", "Somebody was faster: ink is #222222 now. Nothing was changed.");
        assert_eq!(browser.text("#refusal"), "");
        assert_eq!(browser.run("return sent"), 1);
    });
}
