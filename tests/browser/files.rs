//! Files in and out: what a file would change is shown before it changes anything.

use std::fs;

use serde_json::{Value, json};

use crate::browser::actions::{CONTROL, ESCAPE};
use crate::browser::changing::SEED;
use crate::browser::driver::{Browser, browse};
use crate::browser::undoing::names_of;
use crate::common::harness::{Scratch, Server, eventually, wait_until};

const NEW: &str = r##"{"data":[{"name":"sea","value":"teal"},{"name":"ink","value":"#000000"},{"name":"red","value":"#ff0000","more":1}]}"##;

#[track_caller]
fn expect_comparison(browser: &Browser, headline: &str) {
    browser.until("return document.querySelector('#incoming').open");
    browser.expect_text("#becomes", headline);
}

#[test]
fn a_file_replaces_the_list_after_it_was_shown_what_that_changes_and_undo_brings_the_old_one_back()
{
    let Some(browser) = browse() else { return };
    let (scratch, server) = (Scratch::new(), Server::with_seed(SEED, &[]));
    let before = server.list();
    browser.open(&server);
    browser.expect_controls();
    for is_wanted in [false, true] {
        browser.give_file(&scratch.write("new.json", NEW));
        expect_comparison(&browser, "3 colors become 3");
        assert_eq!(browser.text("#summary"), "Unchanged: 1 color, in the order of the file.");
        let differences = browser.text("#differences").replace(['\u{2068}', '\u{2069}'], "");
        let captions =
            [browser.text("#both p"), browser.text("#source"), browser.text("#differences + p")];
        assert_eq!(captions, ["Now", "new.json", "You can undo this."]);
        assert_eq!(differences, "New (1)seaChanged (1)inkRemoved (1)red");
        let is_above = "return [['#both p', '#before'], ['#source', '#after']].map(pair => {
            const [caption, picture] = pair.map(part => document.querySelector(part).getBoundingClientRect());
            return caption.left === picture.left && caption.bottom <= picture.top && picture.top - caption.bottom < 12;
        })";
        browser.expect_value(is_above, json!([true, true]));
        let edge = "return getComputedStyle(document.querySelector('#after')).boxShadow !== 'none'";
        browser.expect_value(edge, true);
        assert_eq!(server.list(), before);
        if is_wanted {
            browser.click("#replace");
        } else {
            browser.press(&[ESCAPE]);
        }
    }
    browser.expect_text("#told", "Replaced 3 colors with 3.");
    let expected = json!({"data": [{"name": "sea", "value": "teal"}, {"name": "ink", "value": "#000000"}, {"name": "red", "value": "#ff0000"}]});
    assert_eq!(serde_json::from_str::<Value>(&server.list()).unwrap(), expected);
    browser.press_with(CONTROL, "z");
    browser.expect_text("#told", "Undone: Replaced 3 colors with 3.");
    assert_eq!(server.list(), before);
}

#[test]
fn a_file_that_is_no_list_of_colors_is_refused_with_what_to_fix() {
    let Some(browser) = browse() else { return };
    let (scratch, server) = (Scratch::new(), Server::with_seed(SEED, &[]));
    browser.open(&server);
    browser.expect_controls();
    for (content, message) in [
        (
            "name,value",
            "This file has no list of colors in JSON: an array of objects with name and value.",
        ),
        (
            r##"{"red":"#f00"}"##,
            "This file has no list of colors in JSON: an array of objects with name and value.",
        ),
        (
            r#"[{"name":"a","value":"b"},{"name":"c"}]"#,
            "Color 2 of this file has no text as its value.",
        ),
        (r#"[null]"#, "Color 1 of this file has no text as its name."),
    ] {
        browser.give_file(&scratch.write("bad.json", content));
        wait_until(message, || browser.text("#told").starts_with(message));
    }
    assert_eq!(browser.run("return document.querySelector('#incoming').open"), false);
    // what was wrong with the last file is not wrong with this one
    browser.give_file(&scratch.write("good.json", NEW));
    expect_comparison(&browser, "3 colors become 3");
    assert_eq!(browser.text("#told"), "");
}

#[test]
fn a_list_that_changes_while_a_file_is_compared_is_compared_anew() {
    let Some(browser) = browse() else { return };
    browser.expect("412 (Precondition Failed)");
    let (scratch, server) = (Scratch::new(), Server::with_seed(SEED, &[]));
    browser.open(&server);
    browser.expect_controls();
    browser.give_file(&scratch.write("new.json", NEW));
    expect_comparison(&browser, "3 colors become 3");
    server.ask("POST", "/colors", r##"{"name":"new","value":"#333333"}"##);
    browser.expect_text("#becomes", "4 colors become 3");
    browser.expect_text("#obstacle", "The list has just changed. This is what would change now.");
    // too late to be seen before the click
    crate::browser::undoing::hold(&browser, "PUT");
    browser.click("#replace");
    browser.until("return sent");
    server.ask("POST", "/colors", r##"{"name":"newer","value":"#444444"}"##);
    browser.run("release()");
    browser.expect_text("#becomes", "5 colors become 3");
    assert_eq!(names_of(&server).len(), 5);
    browser.click("#replace");
    browser.expect_text("#told", "Replaced 5 colors with 3.");
    // undo would take a change of somebody else away, so it shows what
    server.ask("POST", "/colors", r##"{"name":"newest","value":"#555555"}"##);
    browser.expect_text("#count", "4 colors");
    browser.click("#takeBack");
    expect_comparison(&browser, "4 colors become 5");
    browser.click("#replace");
    browser.expect_text("#told", "Replaced 4 colors with 5.");
    assert_eq!(names_of(&server), ["red", "ink", "red", "new", "newer"]);
}

#[test]
fn the_list_is_saved_as_json_that_is_a_seed_and_as_custom_properties() {
    let Some(browser) = browse() else { return };
    let seed = r##"[{"name":"ink","value":"#191970"},{"name":"pale teal; }","value":"rgb(0 128 128 / 50%)"},{"name":"ink","value":"#000000"},
        {"name":"1st","value":"no color; }"},{"name":"","value":"red"},{"name":"*/open","value":"rgb(1 2 3"},{"name":"note","value":"red /*"},{"name":"2nd","value":"lime"},
        {"name":"\u0000","value":"#111111"},{"name":"\ufffd","value":"#222222"}]"##;
    let (scratch, server) = (Scratch::new(), Server::with_seed(seed, &[]));
    browser.devtools(
        "Browser.setDownloadBehavior",
        json!({"behavior": "allow", "downloadPath": scratch.0}),
    );
    browser.open(&server);
    let saved = |button: &str, file: &str| {
        browser.click("#more");
        browser.click(button);
        // Chromium makes an empty file of this name first, and renames the full one to it
        let full = |text: &String| !text.is_empty();
        eventually(file, || fs::read_to_string(scratch.file(file)).ok().filter(full))
    };
    let json = saved("#saveJson", "colors.json");
    assert_eq!(Server::with_seed(&json, &[]).list(), server.list());
    let css = saved("#saveCss", "colors.css");
    assert_eq!(
        css,
        [
            ":root {\n",
            "  --ink: #191970;\n",
            "  --pale\\ teal\\;\\ \\}: rgb(0 128 128 / 50%);\n",
            "  /* --ink is left out: an earlier color has this name */\n",
            "  /* --1st is left out: its value is no CSS color */\n",
            "  /* -- is left out: it has no name */\n",
            "  /* --\\*\\/open is left out: its value is no CSS color */\n",
            "  /* --note is left out: its value is no CSS color */\n",
            "  --2nd: lime;\n",
            "  --\u{fffd}: #111111;\n",
            "  /* --\u{fffd} is left out: an earlier color has this name */\n",
            "}\n",
        ]
        .concat()
    );
    let property = "const sheet = new CSSStyleSheet(); sheet.replaceSync(arguments[0]); document.adoptedStyleSheets = [sheet];
        return ['--ink', '--pale teal; }', '--2nd'].map(name => getComputedStyle(document.documentElement).getPropertyValue(name))";
    assert_eq!(
        browser.run_with(property, &json!([css])),
        json!(["#191970", "rgb(0 128 128 / 50%)", "lime"])
    );
}
