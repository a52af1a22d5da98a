//! The page for everybody: by keyboard alone, on a phone, with preferences, and with the texts
//! of strangers.

use serde_json::json;

use crate::browser::actions::{ALT, DELETE, DOWN, END, ENTER, ESCAPE, F2, HOME, RIGHT, TAB};
use crate::browser::changing::SEED;
use crate::browser::driver::{browse, browse_to, browse_to_change};
use crate::browser::tiles::FITS;
use crate::browser::undoing::names_of;
use crate::browser::with_colors;
use crate::common::harness::Server;

/// What the focus is on: the id of the element, or the name of a tile.
const FOCUS: &str = "const {id, parentElement} = document.activeElement; return id || parentElement.querySelector('.name').textContent";

#[test]
fn everything_can_be_done_with_the_keyboard_alone() {
    let Some((browser, server)) = browse_to_change(Server::start(&[])) else { return };
    let focus = || browser.run(FOCUS).as_str().unwrap().to_owned();
    let mut path = Vec::new();
    for _ in 0..8 {
        browser.press(&[TAB]);
        path.push(focus());
    }
    assert_eq!(path.join(" "), "query order add more showHelp addFirst bring aliceblue");
    for (key, expected) in
        [(RIGHT, "antiquewhite"), (HOME, "aliceblue"), (END, "yellowgreen"), (HOME, "aliceblue")]
    {
        browser.press(&[key]);
        assert_eq!(focus(), expected);
    }
    browser.press(&[DOWN]);
    let below = focus();
    let tops = "const [first, focused] = [$('li'), document.activeElement.parentElement].map(li => li.getBoundingClientRect());
        return [focused.left === first.left, focused.top > first.top]";
    assert_eq!(browser.run(tops), json!([true, true]), "{below}");
    browser.press(&[HOME, "C"]);
    browser.expect_text("#said", "Copied #f0f8ff");
    // open, and look around
    browser.press(&[ENTER]);
    browser.expect_text("#title", "aliceblue");
    browser.press(&[RIGHT, RIGHT]);
    browser.expect_text("#title", "aqua");
    // change
    browser.press(&[F2]);
    browser.expect_fields();
    assert_eq!(focus(), "value");
    browser.fill("#value", "#eeeeee");
    browser.press(&[ENTER]);
    browser.expect_text("#told", "aqua is #eeeeee now.");
    // where one has looked last
    browser.expect_focus("aqua");
    // move
    browser.press_with(ALT, RIGHT);
    browser.expect_text("#told", "Moved aqua to place 4.");
    assert_eq!(focus(), "aqua");
    // delete, with the focus on the next color, and undo
    browser.press(&[DELETE]);
    browser.expect_text("#told", "Deleted aqua.");
    browser.expect_text("#count", "147 colors");
    assert_eq!(focus(), "azure");
    browser.press(&[TAB]);
    assert_eq!(focus(), "takeBack");
    browser.press(&[ENTER]);
    browser.expect_text("#count", "148 colors");
    // add
    browser.run("$('#add').focus()");
    browser.press(&[ENTER]);
    browser.expect_fields();
    browser.type_text("ink");
    browser.press(&[TAB]);
    browser.type_text("#191970");
    browser.press(&[ENTER]);
    browser.expect_text("#told", "Added ink at the end.");
    assert_eq!(focus(), "ink");
    browser.run("$('#add').focus()");
    assert!(server.list().ends_with(r##",{"name":"ink","value":"#191970"}]}"##));
    // the menu and help
    browser.press(&[TAB, ENTER, TAB]);
    assert_eq!(focus(), "undo");
    browser.press(&[ESCAPE, TAB, ENTER]);
    browser.until("return $('#help').open");
}

#[test]
fn the_focus_is_seen_and_never_behind_the_header() {
    let Some(browser) = browse() else { return };
    browser.resize(800, 500);
    let _server = browser.show(Server::start(&[]));
    browser.run("$('li .open').focus()");
    browser.press(&[END]);
    let ring = "const {outlineStyle, outlineWidth} = getComputedStyle(document.activeElement); return [outlineStyle, outlineWidth]";
    browser.expect_value(ring, json!(["solid", "3px"]));
    browser.run("window.behind = [];
        onkeyup = () => {
            const {top, bottom} = document.activeElement.getBoundingClientRect();
            if (top < $('header').offsetHeight || bottom > innerHeight) behind.push([top, bottom, scrollY, document.activeElement.textContent].join());
        }");
    browser.press(&["\u{e013}"; 40]); // up
    let seen = "const [top, focused] = [$('li .open'), document.activeElement].map(tile => tile.getBoundingClientRect().top);
        return [focused === top, behind]";
    browser.expect_value(seen, json!([true, []]));
}

#[test]
fn the_focus_never_falls_to_the_body_when_what_has_it_goes() {
    let seed = r#"[{"name":"red","value":"red"}]"#;
    let Some((browser, server)) = browse_to_change(Server::with_seed(seed, &[])) else { return };
    let expect =
        |focus: &str| browser.until(&format!("return document.activeElement.matches('{focus}')"));
    browser.delete("red");
    expect("#query");
    browser.click("#takeBack");
    browser.expect_text("#told", "Undone: Deleted red.");
    expect(".open");
    browser.click("#dismiss");
    expect(".open");
    browser.edit("red");
    browser.click("#cancel");
    expect("#next");
    server.ask("DELETE", "/colors/red", "");
    browser.expect_text("#note", "Deleted elsewhere.");
    expect("#next");
    browser.close();
    expect("#query");
    for name in ["a", "b", "c"] {
        server.ask("POST", "/colors", &format!(r#"{{"name":"{name}","value":"tan"}}"#));
    }
    browser.expect_text("#count", "3 colors");
    browser.run("$('li:nth-child(2) .open').focus()");
    browser.click("li:nth-child(2) .copy");
    for (gone, left) in [("b", "c"), ("c", "a"), ("a", "")] {
        server.ask("DELETE", &format!("/colors/{gone}"), "");
        browser.until(&format!("return (document.activeElement.querySelector('.name')?.textContent ?? '') === '{left}' && !$('#list').textContent.includes('{gone}  tan')"));
    }
    browser.click("#way");
    browser.type_text("ink");
    browser.fill("#value", "navy");
    browser.press(&[ENTER]);
    browser.expect_closed();
    expect(".open");
}

#[test]
fn a_message_does_not_go_while_it_has_the_focus() {
    let Some((browser, _server)) = browse_to_change(Server::with_seed(SEED, &[])) else { return };
    browser.run("const set = setTimeout; window.setTimeout = (action, time) => time === 12000 ? window.end = action : set(action, time)");
    browser.delete("red");
    for (focus, told) in [("#takeBack", "Deleted red."), ("#query", "")] {
        browser.run(&format!("$('{focus}').focus(); end()"));
        browser.expect_text("#told", told);
    }
}

#[test]
fn what_is_told_stays_in_its_place_and_covers_neither_the_focus_nor_what_can_be_pressed() {
    const COVERED: &str = "const told = $('#message').getBoundingClientRect();
        const isCovered = part => {
            const {left, right, top, bottom} = part.getBoundingClientRect();
            return left < told.right && right > told.left && top < told.bottom && bottom > told.top && part.checkVisibility();
        };
        const frame = $('dialog[open] #panel') ?? $('dialog[open]') ?? document.activeElement;
        return [frame, ...frame.querySelectorAll('button, label')].filter(part => part.id !== 'dismiss' && part.id !== 'takeBack')
            .filter(isCovered).map(part => part.id || part.className || part.textContent)";
    let place = "const {x, y, width, height} = $('#message').getBoundingClientRect(); return [x, y, width, height]";
    let Some(browser) = browse() else { return };
    for (width, height, is_touch) in [(1024, 600, false), (844, 390, true), (360, 740, true)] {
        browser.resize_as(width, height, is_touch);
        let _server = browser.show(Server::start(&[]));
        browser.expect_controls();
        browser.run("$('li .open').focus()");
        browser.press(&[END, DELETE]);
        browser.expect_text("#told", "Deleted yellowgreen.");
        browser.until(&format!("return !(() => {{ {COVERED} }})().length"));
        let room = "scrollTo(0, 1e6); const [list, message] = ['list', 'message'].map(id => document.getElementById(id).getBoundingClientRect()); return list.bottom <= message.top";
        browser.expect_value(room, true);
        let before = browser.run(place);
        browser.press(&[ENTER]);
        browser.until("return $('#opened').open");
        for fields in [false, true] {
            if fields {
                browser.press(&[F2]);
                browser.expect_fields();
            }
            assert_eq!(browser.run(place), before, "{width}");
            assert_eq!(browser.run(COVERED), json!([]), "{width}, fields {fields}");
        }
        browser.close();
        browser.click("#showHelp");
        assert_eq!(browser.run(place), before, "{width}");
        assert_eq!(browser.run(COVERED), json!([]), "{width}, help");
    }
}

#[test]
fn texts_of_strangers_are_text() {
    let Some(browser) = browse() else { return };
    let long = "x".repeat(4096);
    let texts = [
        "<img src=x onerror=alert(1)>",
        "<script>alert(1)</script>",
        "\"'><svg onload=alert(1)>",
        "javascript:alert(1)",
        "&amp; &lt;b&gt;",
        "\u{202e}from right to left",
        "\u{5e9}\u{5dc}\u{5d5}\u{5dd}",
        "line\nbreak\ttab\u{0}nul",
        "",
        ".",
        "..",
        "a/b?c#d%41 +",
        &long,
    ];
    let server = with_colors(texts.map(|text| (text, text)));
    browser.resize(320, 900);
    browser.open(&server);
    browser.expect_controls();
    assert_eq!(browser.names(), texts);
    let markup = "return $$('li *:not(button, span, bdi)').length + document.scripts.length";
    assert_eq!(browser.run(markup), 1, "the page's own script");
    // a field loses a line break, but what nobody types anew stays
    browser.edit("line\nbreak\ttab\u{0}nul");
    browser.click("#save");
    browser.expect_closed();
    assert!(server.list().contains(r#""value":"line\nbreak"#));
    for text in texts {
        browser.edit(text);
        assert_eq!(browser.run(FITS), true, "{text:?}");
        let in_view = "const {top, bottom} = $('#opened').getBoundingClientRect(); return top >= 0 && bottom <= innerHeight";
        assert_eq!(browser.run(in_view), true, "{text:?}");
        browser.fill("#value", "#000000");
        browser.press(&[ENTER]);
        browser.expect_closed();
    }
    assert_eq!(names_of(&server), texts);
    assert_eq!(server.list().matches(r##","value":"#000000"}"##).count(), texts.len());
    browser.delete("..");
    browser.fill("#query", "<img");
    browser.expect_text("#count", "1 of 12 colors");
}

#[test]
fn nothing_shifts_while_the_page_loads() {
    // answers come when the page without them has been shown
    const SLOW: &str = "const ask = window.fetch;
        const shown = () => new Promise(resolve => requestAnimationFrame(() => requestAnimationFrame(resolve)));
        window.fetch = async (...request) => { await shown(); return ask(...request) };
        // a slow machine may show a part of the header before all of it is parsed
        const hidden = new CSSStyleSheet();
        hidden.replaceSync('html { visibility: hidden }');
        document.adoptedStyleSheets = [hidden];
        addEventListener('DOMContentLoaded', () => document.adoptedStyleSheets = []);
        window.shifts = [];
        const name = node => node && `${node.nodeName} ${node.id} ${node.parentNode?.id}`;
        const place = ({x, y, width, height}) => [x, y, width, height];
        const told = ({node, previousRect, currentRect}) => [name(node), place(previousRect), place(currentRect)];
        new PerformanceObserver(list => shifts.push(...list.getEntries().map(({value, sources}) => [value, sources.map(told)])))
            .observe({type: 'layout-shift', buffered: true})";
    let Some(browser) = browse() else { return };
    browser.on_each_page(SLOW);
    let servers =
        [Server::start(&[]), Server::start(&["--read-only"]), Server::with_seed("[]", &[])];
    for (width, height, is_touch) in [(1350, 940, false), (412, 823, true)] {
        browser.resize_as(width, height, is_touch);
        for (number, server) in servers.iter().enumerate() {
            browser.open(server);
            let after_a_frame = "return new Promise(resolve => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(() => resolve(shifts)))))";
            let shifts = browser.run(after_a_frame);
            let sizes = shifts.as_array().unwrap().iter().map(|shift| shift[0].as_f64().unwrap());
            let sum: f64 = sizes.sum();
            // what Lighthouse rounds to 0: text that is measured anew may move by less than a pixel
            assert!(sum < 0.001, "{width}, server {number}: {shifts}");
        }
    }
}

#[test]
fn without_javascript_a_link_leads_to_the_list_and_no_control_is_seen() {
    let Some(browser) = browse() else { return };
    let server = Server::start(&[]);
    browser.devtools("Emulation.setScriptExecutionDisabled", json!({"value": true}));
    browser.go_without_waiting(&format!("http://{}/", server.address));
    let mut parts = browser.read_out();
    browser.devtools("Emulation.setScriptExecutionDisabled", json!({"value": false}));
    parts.retain(|[role, _]| ["button", "searchbox", "combobox", "link"].contains(&role.as_str()));
    assert_eq!(parts, [["link", "/colors"]]);
}

#[test]
fn what_is_there_and_what_happens_is_read_out() {
    let Some((browser, _server)) = browse_to(Server::start(&[])) else { return };
    let roles = "return ['message', 'said', 'note', 'away', 'refusal'].map(id => document.getElementById(id).role)";
    assert_eq!(browser.run(roles), json!(["status", "status", "status", "alert", "alert"]));
    let tile = "const li = $('li:nth-child(3)'); return [li.ariaSetSize, li.ariaPosInSet]";
    assert_eq!(browser.run(tile), json!(["148", "3"]));
    let parts = browser.read_out();
    let named = |role: &str, name: &str| parts.contains(&[role.to_owned(), name.to_owned()]);
    assert!(named("list", "Colors") && named("searchbox", "Search name or color"));
    assert!(named("combobox", "Sort by"));
    // Safari takes a list without bullets for none unless it says so
    let said = "return [$('#list').getAttribute('role'), $('#count').role, $('li .open').ariaKeyShortcuts]";
    browser.until("return $('li .open').ariaKeyShortcuts !== 'C'");
    browser.expect_value(said, json!(["list", null, "C F2 Delete"]));
    assert!(named("button", "aqua #00ffff") || named("button", "aqua#00ffff"));
    // marks and keys are no part of the names
    browser.open_color("aqua");
    let parts = browser.read_out();
    let names: Vec<_> = parts.iter().map(|[_, name]| name.replace(' ', "")).collect();
    assert!(names.iter().any(|name| name == "value#00ffff"), "{names:?}");
    assert!(!names.iter().any(|name| name.contains(['●', '✓']) || name == "Aa"), "{names:?}");
    let others =
        "return [$('#formats button').ariaKeyShortcuts, $$('svg:not([aria-hidden=true])').length]";
    browser.expect_value(others, json!(["1", 0]));
    let _read_only = browser.show(Server::start(&["--read-only"]));
    browser.expect_seen("#readOnly");
    browser.expect_value(said, json!(["list", null, "C"]));
}
