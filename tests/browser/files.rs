//! Files in and out: what a file would change is shown before it changes anything.

use std::fs;

use serde_json::{Value, json};

use crate::browser::actions::ESCAPE;
use crate::browser::changing::SEED;
use crate::browser::driver::{Browser, browse, browse_to, browse_to_change};
use crate::browser::undoing::{SEED as PLAIN, hold, names_of};
use crate::common::harness::{Scratch, Server, wait_until};

/// Files of each form with what is to be read, and colors that are hard to write.
const SAMPLES: &str = include_str!("samples.json");

/// What is said to be read.
const READ: &str = "JSON, scripts, CSS, SCSS, Less, GTK, tables (CSV, GDAL, GMT), XML (Android, Windows, LibreOffice, Scribus, CorelDRAW, QGIS, iTerm), YAML, LaTeX, .gpl, .pal, .act, .ase, .aco, paint.net and lines as “sky #87ceeb” are read.";

const NEW: &str = r##"{"data":[{"name":"sea","value":"teal"},{"name":"ink","value":"#000000"},{"name":"red","value":"#ff0000","more":1}]}"##;

#[test]
fn a_file_replaces_the_list_after_it_was_shown_what_that_changes_and_undo_brings_the_old_one_back()
{
    let scratch = Scratch::new();
    let Some((browser, server)) = browse_to_change(Server::with_seed(SEED, &[])) else { return };
    let before = server.list();
    for leaves in [".close", "#replace"] {
        browser.bring_to_replace(&scratch.write("new.json", NEW), "3 colors become 3");
        assert_eq!(browser.text("#reading"), "JSON: 3 colors.");
        assert_eq!(browser.text("#summary"), "Unchanged: 1 color, in the order of the file.");
        let captions =
            [browser.text("#both p"), browser.text("#source"), browser.text("#differences + p")];
        assert_eq!(captions, ["Now", "new.json", "You can undo this."]);
        let differences = "New (1)sea tealChanged (1)ink #191970 → #000000Removed (1)red #ee0000";
        assert_eq!(browser.text("#differences"), differences);
        let is_above = "return [['#both p', '#before'], ['#source', '#after']].map(pair => {
            const [caption, picture] = pair.map(part => $(part).getBoundingClientRect());
            return caption.left === picture.left && caption.bottom <= picture.top && picture.top - caption.bottom < 12;
        })";
        browser.expect_value(is_above, json!([true, true]));
        browser.expect_value("return getComputedStyle($('#after')).boxShadow !== 'none'", true);
        assert_eq!(server.list(), before);
        browser.click(&format!("#incoming {leaves}"));
    }
    browser.expect_text("#told", "Replaced 3 colors with 3.");
    let expected = json!({"data": [{"name": "sea", "value": "teal"}, {"name": "ink", "value": "#000000"}, {"name": "red", "value": "#ff0000"}]});
    assert_eq!(serde_json::from_str::<Value>(&server.list()).unwrap(), expected);
    browser.undo("Replaced 3 colors with 3.");
    assert_eq!(server.list(), before);
}

#[test]
fn a_file_that_cannot_be_read_is_refused_with_the_reason() {
    let scratch = Scratch::new();
    let Some((browser, _server)) = browse_to_change(Server::with_seed(SEED, &[])) else { return };
    browser.give_file(&scratch.write("bad.json", "[null]"));
    browser.expect_text("#told", &format!("No colors were found in bad.json. {READ}"));
    assert_eq!(browser.run("return $('#incoming').open"), false);
    drop_made(&browser, "':root { --base: 249 22 12 }'");
    browser.expect_text("#told", "No color in made is certain. base: its numbers may be red, green, blue, or hue, saturation, lightness.");
    // a part of the page that did not come is asked for again
    browser.reload();
    browser.expect_controls();
    browser.devtools("Network.enable", json!({}));
    browser.devtools("Network.setBlockedURLs", json!({"urls": ["*files.js*"]}));
    browser.give_file(&scratch.write("bad.json", "[null]"));
    browser.expect_text("#told", "The service is back.");
    browser.devtools("Network.setBlockedURLs", json!({"urls": []}));
    // what was wrong with the last file is not wrong with this one
    browser.bring_to_replace(&scratch.write("good.json", NEW), "3 colors become 3");
    assert_eq!(browser.text("#told"), "");
}

#[test]
fn files_are_read_by_what_is_in_them() {
    let Some((browser, _server)) = browse_to(Server::start(&[])) else { return };
    let samples: Value = serde_json::from_str(SAMPLES).unwrap();
    let read = browser.run_with(
        "const [files] = arguments;
        const bytesOf = ({text, base64}) => base64 ? Uint8Array.from(atob(base64), byte => byte.charCodeAt()) : new TextEncoder().encode(text);
        return import('/page/files.js').then(({read}) => files.map(file => {
            const steps = read(bytesOf(file));
            let step;
            while (!(step = steps.next()).done);
            const {form, colors = [], skipped = [], rough = []} = step.value ?? {};
            return {form, colors: colors.map(({name, value}) => [name, value]), skipped: skipped.map(({name, why}) => `${name}: ${why}`), rough};
        }))",
        &json!([samples["files"]]),
    );
    for (sample, read) in samples["files"].as_array().unwrap().iter().zip(read.as_array().unwrap())
    {
        for part in ["form", "colors", "skipped", "rough"] {
            let nothing = if part == "form" { Value::Null } else { json!([]) };
            assert_eq!(&read[part], sample.get(part).unwrap_or(&nothing), "{part} of {sample}");
        }
    }
}

const CSS_LOST: &str = "(empty): left out, since it has no name. a, a: left out, since an earlier color has this name. \
    (blank): left out, since it has a NUL. é, (blank): left out, since its value is no CSS color. \
    __proto__: left out, since its value has line breaks, comments, or blanks at its ends.";
const GPL_LOST: &str = "(empty): left out, since it has no name. \
    (blank), a\nb,  lead and 2 more: left out, since its name has line breaks, or blanks at its ends. \
    a, value, constructor and 1 more: written as hex digits. DEFAULT: written as hex digits, without alpha. \
    (blank): left out, since it has a NUL. é, (blank): left out, since its value is no CSS color.";

#[test]
fn what_is_saved_comes_in_again_and_what_a_form_cannot_have_is_told() {
    let Some(browser) = browse() else { return };
    let scratch = Scratch::new();
    let download = json!({"behavior": "allow", "downloadPath": scratch.0});
    browser.devtools("Browser.setDownloadBehavior", download);
    let samples: Value = serde_json::from_str(SAMPLES).unwrap();
    // what each form lacks of the colors that are hard to write, and how many it has as they are
    let forms = [
        ("#saveJson", "colors.json", "", 42),
        ("#saveCsv", "colors.csv", "(blank): left out, since it has a NUL.", 41),
        ("#saveCss", "colors.css", CSS_LOST, 35),
        ("#saveTailwind", "theme.css", CSS_LOST, 35),
        ("#saveGpl", "colors.gpl", GPL_LOST, 28),
    ];
    for seed in [PLAIN, &samples["hostile"].to_string()] {
        let server = browser.show(Server::with_seed(seed, &[]));
        browser.expect_controls();
        for (button, file, lost, kept) in forms {
            // Chromium would choose another name
            let _ = fs::remove_file(scratch.file(file));
            browser.click("#more");
            browser.click(button);
            wait_until(file, || fs::metadata(scratch.file(file)).is_ok_and(|file| file.len() > 0));
            let is_whole = seed == PLAIN || lost.is_empty();
            let saved = fs::read_to_string(scratch.file(file)).unwrap();
            match button {
                "#saveJson" => assert_eq!(Server::with_seed(&saved, &[]).list(), server.list()),
                "#saveCss" if !is_whole => check_css(&browser, &saved),
                _ => {}
            }
            if !is_whole {
                browser.expect_text("#told", &format!("{file} differs from the list. {lost}"));
            }
            browser.give_file(&scratch.file(file));
            browser.until("return $('#incoming').open");
            browser.click("#ways label:nth-of-type(2)");
            let summary = if is_whole {
                "The same colors in the same order.".to_owned()
            } else {
                format!("Unchanged: {kept} colors, in the order of the file.")
            };
            browser.expect_text("#summary", &summary);
            browser.press(&[ESCAPE]);
        }
    }
}

/// Checks that a browser takes what was saved, which says what it lacks.
#[track_caller]
fn check_css(browser: &Browser, css: &str) {
    for line in [
        "\n  /* --a is left out: an earlier color has this name */\n",
        "\n  /* -- is left out: it has no name */\n",
        "is left out: it has a NUL */\n",
        "is left out: its value is no CSS color */\n",
    ] {
        assert!(css.contains(line), "{css}");
    }
    let count = "const sheet = new CSSStyleSheet(); sheet.replaceSync(arguments[0]);
        return [...sheet.cssRules[0].style].filter(name => name.startsWith('--')).length";
    assert_eq!(browser.run_with(count, &json!([css])), 35);
}

#[test]
fn a_file_is_added_and_it_is_asked_once_what_becomes_of_other_values() {
    let Some((browser, server)) = browse_to_change(Server::with_seed(SEED, &[])) else { return };
    let scratch = Scratch::new();
    let before = server.list();
    let more = r##"{"sea":"teal","ink":"#000000","red":"#ff0000","":"tan"}"##;
    for (choice, told, names) in [
        ("keep", "Added 2 colors.", "red #ff0000, ink #191970, red #ee0000, sea teal,  tan"),
        (
            "overwrite",
            "Added 2 colors and changed 1 color.",
            "red #ff0000, ink #000000, red #ee0000, sea teal,  tan",
        ),
        (
            "both",
            "Added 3 colors.",
            "red #ff0000, ink #191970, red #ee0000, sea teal, ink #000000,  tan",
        ),
    ] {
        browser.give_file(&scratch.write("more.json", more));
        // whatever was chosen for the last file
        browser.expect_comparison("3 colors become 5");
        browser.expect_text("#clashes", "1 name has another value here");
        let choose = "const field = $('#clash'); field.value = arguments[0]; field.dispatchEvent(new Event('change', {bubbles: true}))";
        browser.run_with(choose, &json!([choice]));
        browser.click("#replace");
        browser.expect_text("#told", told);
        let list: Value = serde_json::from_str(&server.list()).unwrap();
        let colors = list["data"].as_array().unwrap().iter();
        let text = |color: &Value| {
            format!("{} {}", color["name"].as_str().unwrap(), color["value"].as_str().unwrap())
        };
        assert_eq!(colors.map(text).collect::<Vec<_>>().join(", "), names);
        browser.undo(told);
        assert_eq!(server.list(), before);
    }
    // on a narrow screen nothing of it is out of view
    browser.resize(360, 740);
    browser.give_file(&scratch.file("more.json"));
    browser.expect_comparison("3 colors become 5");
    let excess =
        "const {scrollWidth, clientWidth} = $('#incoming'); return scrollWidth - clientWidth";
    browser.expect_value(excess, 0);
}

#[test]
fn what_is_dropped_or_pasted_is_shown_as_a_file_is() {
    let Some((browser, _server)) = browse_to_change(Server::with_seed(SEED, &[])) else { return };
    assert_eq!(drop_made(&browser, "'sea,teal'"), json!([false, false]));
    browser.expect_comparison("3 colors become 4");
    assert_eq!(browser.text("#source"), "made");
    browser.press(&[ESCAPE]);
    let paste = "const data = new DataTransfer(); data.setData('text/plain', arguments[1]);
        $(arguments[0]).dispatchEvent(new ClipboardEvent('paste', {clipboardData: data, bubbles: true, cancelable: true}))";
    // into a field, it is only text
    browser.run_with(paste, &json!(["#query", "#123456"]));
    browser.run_with(paste, &json!(["body", "tomato\n#123456"]));
    browser.expect_comparison("3 colors become 5");
    let said = [browser.text("#source"), browser.text("#reading")];
    assert_eq!(said, ["Pasted", "List of colors: 2 colors."]);
    browser.press(&[ESCAPE]);
    let _copy = browser.show(Server::with_seed(SEED, &["--read-only"]));
    browser.expect_seen("#readOnly");
    drop_made(&browser, "'sea,teal'");
    browser.expect_text("#told", "This list is read-only.");
}

#[test]
fn a_list_that_the_service_would_not_take_is_said_before_it_is_sent() {
    let server = Server::with_seed(SEED, &["--max-body", "200"]);
    let Some((browser, _server)) = browse_to_change(server) else { return };
    let scratch = Scratch::new();
    let obstacle = |colors: usize| {
        let all: Vec<_> =
            (0..colors).map(|i| json!({"name": format!("{i}"), "value": "#000000"})).collect();
        browser.give_file(&scratch.write("long.json", json!(all).to_string()));
        browser.expect_comparison(&format!("3 colors become {}", 3 + colors));
        let is_disabled = browser.run("return $('#replace').disabled");
        browser.press(&[ESCAPE]);
        (browser.text("#obstacle"), is_disabled == true)
    };
    let raise =
        "0.3 kB, and this service takes 0.1 kB at a time. Who runs it can raise --max-body.";
    assert_eq!(obstacle(4), (raise.to_owned(), true));
    // one more is sent by itself
    assert_eq!(obstacle(1), (String::new(), false));
}

/// Drops a file that the page makes of an expression. Gives what the browser would do by itself
/// with that.
fn drop_made(browser: &Browser, text: &str) -> Value {
    browser.run(&format!(
        "const files = new DataTransfer(); files.items.add(new File([{text}], 'made'));
        return ['dragover', 'drop'].map(type => document.body.dispatchEvent(new DragEvent(type, {{dataTransfer: files, bubbles: true, cancelable: true}})))"
    ))
}

#[test]
fn the_page_answers_while_it_reads_a_file_and_reading_can_be_stopped() {
    let Some((browser, _server)) = browse_to_change(Server::with_seed(SEED, &[])) else { return };
    browser.run(
        "window.MessageChannel = class extends MessageChannel { constructor() { super(); window.tasks++ } }; window.frames = 0; (function count() { window.frames++; requestAnimationFrame(count) })()",
    );
    // quotes without an end take longest: each may be the begin of a field
    drop_made(&browser, "'\"'.repeat(2 ** 25)");
    browser.expect_seen("#stop");
    browser.run("window.frames = 0");
    browser.until("return frames > 20");
    browser.fill("#query", "ink");
    browser.expect_text("#count", "1 of 3 colors");
    assert_eq!(browser.text("#reads"), "Reading made…");
    browser.click("#stop");
    browser.expect_text("#told", "Stopped reading.");
    browser.until("return !$('#stop').checkVisibility()");
    browser.run("window.frames = window.tasks = 0");
    browser.until("return frames > 20");
    browser.expect_value("return tasks", 0);
    // another file takes the place of one that is being read
    drop_made(&browser, "'\"'.repeat(2 ** 25)");
    browser.expect_seen("#stop");
    drop_made(&browser, "'sea,teal'");
    browser.expect_comparison("3 colors become 4");
    browser.press(&[ESCAPE]);
    drop_made(&browser, "'\"'.repeat(2 ** 25 + 1)");
    browser.expect_text("#told", "made has more than 32 MB.");
}

#[test]
fn hostile_files_take_few_steps() {
    let Some((browser, _server)) = browse_to(Server::start(&[])) else { return };
    // blocks that overlap, so that each has the same long name, and texts that are tried at each
    // character, or from each to the end
    let steps = browser.run(
        "const ase = new DataView(new ArrayBuffer(2 ** 20));
        [0x41534546, 0x10000, 1e5].forEach((number, i) => ase.setUint32(4 * i, number));
        for (let at = 12; at < 2 ** 20 - 8; at += 6) ase.setUint16(at, 1);
        const files = [ase, 'a={'.repeat(4000), '$'.repeat(60000), '$a:('.repeat(15000), '['.repeat(60000), '\"'.repeat(9999), '<a b=\"'.repeat(9999), '\\\\a'.repeat(30000), '--'.repeat(30000), ' '.repeat(60000), '{\"a\":'.repeat(9999)];
        return import('/page/files.js').then(({read}) => Promise.all(files.map(async file => {
            const steps = read(new Uint8Array(await new Blob([file]).arrayBuffer()));
            for (let count = 1; ; count++) if (steps.next().done) return count;
        })))",
    );
    for count in steps.as_array().unwrap() {
        assert!(count.as_u64().unwrap() < 200_000, "{steps}");
    }
}

#[test]
fn a_list_that_changes_while_a_file_is_compared_is_compared_anew() {
    let Some((browser, server)) = browse_to_change(Server::with_seed(SEED, &[])) else { return };
    browser.expect("412 (Precondition Failed)");
    let scratch = Scratch::new();
    browser.bring_to_replace(&scratch.write("new.json", NEW), "3 colors become 3");
    server.ask("POST", "/colors", r##"{"name":"new","value":"#333333"}"##);
    browser.expect_text("#becomes", "4 colors become 3");
    browser.expect_text("#obstacle", "The list has just changed. This is what would change now.");
    // too late to be seen before the click
    hold(&browser, "PUT");
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
    browser.expect_comparison("4 colors become 5");
    browser.click("#replace");
    browser.expect_text("#told", "Replaced 4 colors with 5.");
    assert_eq!(names_of(&server), ["red", "ink", "red", "new", "newer"]);
}
