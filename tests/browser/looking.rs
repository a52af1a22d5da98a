//! What the page shows: swatches, search, order, copies; and README's picture of it.

use std::fs;

use serde_json::json;

use crate::browser::actions::{CONTROL, DOWN, ENTER, ESCAPE, RIGHT};
use crate::browser::driver::{PLAIN_HOST, browse, browse_to, browse_to_change};
use crate::browser::with_colors;
use crate::common::harness::Server;

const SMALL: &str = r##"[{"name":"red","value":"#ff0000"},{"name":"ink","value":"#191970"},{"name":"snow","value":"rgb(255 250 250)"},
    {"name":"gray","value":"gray"},{"name":"Brand","value":"see the book"},{"name":"lime","value":"#0f0"}]"##;

#[test]
fn above_the_seed_a_line_says_what_colors_are_for_and_leads_on_until_something_is_changed() {
    let Some((browser, server)) = browse_to_change(Server::start(&[])) else { return };
    let line = "Programs and lamps read these colors by name, and follow each change. Add one of yours or bring a file";
    let is_seen = "return $('#first').checkVisibility()";
    browser.expect_text("#first", line);
    browser.expect_value("const line = $('#first'); return line.offsetHeight < 30", true);
    browser.run("$('#file').click = () => window.isAsked = true");
    browser.click("#bring");
    browser.expect_value("return window.isAsked", true);
    browser.click("#addFirst");
    browser.expect_fields();
    browser.close();
    browser.expect_value(is_seen, true);
    server.ask("DELETE", "/colors/aqua", "");
    browser.expect_text("#count", "147 colors");
    browser.expect_value(is_seen, false);
    // who may change nothing is not told to
    let _server = browser.show(Server::start(&["--read-only"]));
    browser.expect_seen("#readOnly");
    browser.expect_value("return $('#first').innerText", line.split("Add").next().unwrap());
}

#[test]
fn a_slash_leads_to_the_search_which_is_in_the_address_as_the_order_is_and_survives_a_reload() {
    let Some((browser, _server)) = browse_to_change(Server::start(&[])) else { return };
    browser.sort("lightness");
    // but not while one types
    browser.press(&["/", "a", "/", "b"]);
    let typed = "const {id, value} = document.activeElement; return [id, value]";
    browser.expect_value(typed, json!(["query", "a/b"]));
    browser.fill("#query", "sea & gr");
    browser.click("#add");
    browser.press(&["/"]);
    browser.expect_value(typed, json!(["name", "/"]));
    browser.press(&[ESCAPE]);
    assert_eq!(browser.answer("accept"), "Discard what you typed?");
    browser.expect_closed();
    browser.fill("#query", "sea");
    browser.expect_text("#count", "5 of 148 colors");
    assert_eq!(browser.run("return location.hash"), "#sort=lightness&q=sea");
    let names = browser.names();
    browser.reload();
    browser.expect_text("#count", "5 of 148 colors");
    assert_eq!(browser.names(), names);
    // another address in the same tab, and one that makes no sense
    browser.run("location.hash = '#q=orch'");
    browser.expect_text("#count", "3 of 148 colors");
    assert_eq!(browser.value("#order"), "list");
    browser.run("location.hash = '#sort=taste&q='");
    browser.expect_text("#count", "148 colors");
    assert_eq!(browser.value("#order"), "list");
}

#[test]
fn names_are_readable_on_every_color() {
    // WCAG 2.2: relative luminance, contrast ratio, 1.4.3
    const CONTRASTS: &str = "
        const parse = color => color.match(/[\\d.]+/g).map(Number);
        const channel = c => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
        const luminance = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
        return $$('li').map(li => {
            // a name on a color with alpha has a ground of its own
            const name = getComputedStyle(li.querySelector('.name'));
            const {backgroundColor} = li.className.includes('alpha') ? name : getComputedStyle(li);
            const [ground, ink] = [backgroundColor, name.color].map(color => luminance(parse(color)));
            return (Math.max(ground, ink) + 0.05) / (Math.min(ground, ink) + 0.05);
        })";
    let Some(browser) = browse() else { return };
    let mut random = fastrand::Rng::with_seed(7);
    let opaque = (0..150).map(|_| format!("#{:06x}", random.u32(..1 << 24))).collect::<Vec<_>>();
    let translucent = (0..100).map(|_| format!("#{:08x}", random.u32(..)));
    let server = with_colors(opaque.into_iter().chain(translucent).map(|value| ("any", value)));
    for scheme in ["light", "dark"] {
        browser.prefer("prefers-color-scheme", scheme);
        browser.open(&server);
        browser.until("return $$('li').length === 250");
        let contrasts: Vec<f64> = serde_json::from_value(browser.run(CONTRASTS)).unwrap();
        assert_eq!(contrasts.len(), 250);
        let least = contrasts.into_iter().fold(21.0, f64::min);
        assert!(least >= 4.5, "{scheme}: {least}");
    }
}

#[test]
fn search_finds_words_in_any_order_and_below_a_heading_what_is_nearest_to_a_color() {
    let seed = r##"[{"name":"crimson","value":"#dc143c"},{"name":"Bored Blue","value":"#0000ff"},{"name":"red","value":"#ff0000"},
        {"name":"rot","value":"rgb(255 0 0)"},{"name":"none","value":"see the book"},{"name":"soup of Teal","value":"#010101"},
        {"name":"duck","value":"#008080"},{"name":"teal","value":"gold"},{"name":"TEAL","value":"#111111"}]"##;
    let Some((browser, _server)) = browse_to(Server::with_seed(seed, &[])) else { return };
    // what has the text, and the first of what is near
    for (query, having, near) in [
        ("edb  LUE", &["Bored Blue"][..], &[][..]),
        ("blue BORED", &["Bored Blue"], &[]),
        ("SeeThe book", &["none"], &[]),
        ("bored duck", &[], &[]),
        ("#F00", &["red", "rot"], &["crimson"]),
        ("rgb(255 0 0)", &["red", "rot"], &["crimson"]),
        ("rgba(100%, 0%, 0%, 1)", &["red", "rot"], &["crimson"]),
        ("255, 0,0", &["red", "rot"], &["crimson"]),
        ("(255,0,0)", &["red", "rot"], &["crimson"]),
        ("f00000", &[], &["red", "rot", "crimson"]),
        ("111", &["TEAL"], &["soup of Teal"]),
        ("bed", &[], &[]),
        ("#ff000080", &[], &["red", "rot", "crimson"]),
        ("red", &["red", "rot", "Bored Blue"], &["crimson"]),
        ("Teal", &["teal", "TEAL", "duck", "soup of Teal"], &["Bored Blue"]),
    ] {
        browser.fill("#query", query);
        let names = browser.names();
        assert_eq!(names[..having.len() + near.len()], [having, near].concat(), "{query}");
        // all that are colors, as there are fewer than twelve
        let count = if near.is_empty() { having.len() } else { names.len() };
        let hidden = if near.is_empty() || having.contains(&"none") { 0 } else { 1 };
        assert!(near.is_empty() || count == 9 - hidden, "{query}: {names:?}");
        browser.expect_text("#count", &format!("{} of 9 colors", having.len()));
        let heading =
            "const {hidden, textContent} = $('#nearing'); return hidden ? '' : textContent";
        let expected = if near.is_empty() { String::new() } else { format!("Near {query}") };
        browser.expect_value(heading, expected);
    }
    let order = "const [tile, heading, near] = ['li:nth-child(4)', '#nearing', 'li:nth-child(5)'].map(part => $(part).getBoundingClientRect());
        return [tile.bottom <= heading.top, heading.bottom <= near.top, near.left]";
    browser.expect_value(order, json!([true, true, 0]));
    browser.press(&[DOWN]);
    browser.expect_focus("teal");
    browser.click("#query");
    browser.press(&[ENTER]);
    browser.expect_text("#title", "teal");
}

#[test]
fn twelve_are_near_a_color_alpha_breaks_ties_and_few_hits_do_not_fill_the_screen() {
    let Some((browser, _server)) = browse_to(Server::start(&[])) else { return };
    assert_eq!(browser.run("return $('#query').placeholder"), "Name or color");
    for (query, first, equal) in [("#ff634780", "tomato", 0), ("hsl(9 100% 64%)", "tomato", 1)] {
        browser.fill("#query", query);
        browser.expect_text("#count", &format!("{equal} of 148 colors"));
        assert_eq!((browser.names().len(), browser.names()[0].as_str()), (12 + equal, first));
    }
    browser.fill("#query", "blue dark");
    browser.expect_text("#count", "2 of 148 colors");
    assert_eq!(browser.names(), ["darkblue", "darkslateblue"]);
    let size = "const {width, height} = $('li').getBoundingClientRect(); return [width <= 360, height <= 160]";
    browser.expect_value(size, json!([true, true]));
}

#[test]
fn the_list_is_shown_by_name_hue_and_lightness_and_as_it_is() {
    let Some((browser, server)) = browse_to(Server::with_seed(SMALL, &[])) else { return };
    let before = server.list();
    for (order, names) in [
        ("Name", ["Brand", "gray", "ink", "lime", "red", "snow"]),
        // grays behind the hues, and what is no color last
        ("Hue", ["red", "lime", "ink", "snow", "gray", "Brand"]),
        ("Lightness", ["snow", "lime", "red", "gray", "ink", "Brand"]),
        ("List order", ["red", "ink", "snow", "gray", "Brand", "lime"]),
    ] {
        browser.click("#order");
        browser.press(&[&order[..1], &order[1..2], ENTER]);
        browser.until(&format!("return $('li .name').textContent === '{}'", names[0]));
        assert_eq!(browser.names(), names, "{order}");
    }
    assert_eq!(server.list(), before);
}

#[test]
fn on_a_phone_all_is_large_enough_to_be_touched_and_help_the_count_and_the_menu_fit() {
    // with 44 pixels, and 16 in fields, where Safari would zoom in
    const TOO_SMALL: &str = "const isSmall = target => {
            const {width, height} = target.getBoundingClientRect();
            const isField = target.matches('input, select');
            return width && (Math.min(width, height) < 44 || isField && parseFloat(getComputedStyle(target).fontSize) < 16);
        };
        const isPhone = innerWidth < 1440;
        return $$('button, input, select, a').filter(target => isPhone && isSmall(target)).map(({outerHTML}) => outerHTML)";
    const SCROLL: &str = "return getComputedStyle(document.documentElement).overflowY";
    let Some(browser) = browse() else { return };
    let check = |what: &str| assert_eq!(browser.run(TOO_SMALL), json!([]), "{what}");
    let server = with_colors((0..10_000).map(|number| (number, "#99cccc")));
    // the first page of a tab does not learn that it is touched
    for (width, height) in [(1440, 900), (320, 568), (390, 844)] {
        browser.resize_as(width, height, width < 1440);
        browser.open(&server);
        browser.expect_controls();
        let lines = "const count = $('#count'); return count.clientHeight / parseFloat(getComputedStyle(count).lineHeight)";
        assert!(browser.run(lines).as_f64().unwrap() < 1.5, "{width}");
        check("the list");
        browser.click("#more");
        check("the menu");
        let offset = "const [menu, more] = ['#menu', '#more'].map(part => $(part).getBoundingClientRect());
            return [menu.left >= 0, Math.abs(menu.right - more.right) < 1, menu.top > more.bottom && menu.top < more.bottom + 12]";
        assert_eq!(browser.run(offset), json!([true, true, true]), "{width}");
        browser.press(&[ESCAPE]);
        browser.click("#showHelp");
        let is_whole = "const help = $('#help'); return help.scrollHeight <= help.clientHeight";
        assert_eq!(browser.run(is_whole), true, "{width}");
        let keys = "return $$('#help kbd').filter(key => key.checkVisibility()).length > 0";
        assert_eq!(browser.run(keys), width == 1440, "a phone has no keys");
        browser.press(&[ESCAPE]);
    }
    // nothing scrolls behind a dialog
    browser.expect_value(SCROLL, "scroll");
    browser.open_color("1");
    browser.expect_value(SCROLL, "hidden");
    check("a color");
    browser.click("#change");
    check("changing");
}

#[test]
fn with_forced_colors_every_tile_has_an_edge() {
    let Some(browser) = browse() else { return };
    let server = with_colors([("sky", "rgb(30 144 255)")]);
    for (forced, expected) in [("none", "none"), ("active", "solid")] {
        browser.prefer("forced-colors", forced);
        browser.open(&server);
        let drawn = "const {backgroundColor, outlineStyle} = getComputedStyle($('li')); return [backgroundColor, outlineStyle]";
        browser.expect_value(drawn, json!(["color(srgb 0.117647 0.564706 1)", expected]));
    }
    // what a color is does not depend on what the system draws
    browser.open_color("sky");
    browser.expect_text("#formats :nth-child(2) code", "#1e90ff");
    browser.expect_text("#contrast :first-child span", "3.23 : 1 with white");
}

#[test]
fn a_key_copies_the_value_and_each_form_and_says_so() {
    let Some(browser) = browse() else { return };
    let server = Server::with_seed(SMALL, &["--allow-host", PLAIN_HOST]);
    for origin in [
        format!("http://{}", server.address),
        format!("http://{PLAIN_HOST}:{}", server.address.port()),
    ] {
        browser.go(&format!("{origin}/"));
        // pasted with the keyboard, so that no permission plays a part
        let pasted = || {
            browser.click("#query");
            browser.press_with(CONTROL, "v");
            let text = browser.until("return $('#query').value");
            browser.fill("#query", "");
            text
        };
        browser.focus("snow");
        browser.press(&["c"]);
        browser.expect_text("#said", "Copied rgb(255 250 250)");
        assert_eq!(pasted(), "rgb(255 250 250)", "{origin}");
        // in one click on a tile that has the focus, or the pointer
        let is_seen = "return $('li:last-child .copy').checkVisibility({visibilityProperty: true})";
        assert_eq!(browser.run(is_seen), false);
        browser.run("$('li:last-child .open').focus()");
        browser.click("li:last-child .copy");
        browser.expect_text("#said", "Copied #0f0");
        browser.run("document.activeElement.blur()");
        assert_eq!(browser.run(is_seen), true, "the pointer is there");
        assert_eq!(pasted(), "#0f0", "{origin}");
        let forms =
            ["rgb(255 250 250)", "#fffafa", "hsl(0 100% 99%)", "oklch(98.89% 0.00534 17.25)"];
        browser.open_color("snow");
        for (key, form) in ["1", "2", "3", "4"].into_iter().zip(forms) {
            browser.press(&[key]);
            browser.expect_text("#said", &format!("Copied {form}"));
        }
        browser.close();
        assert_eq!(pasted(), forms[3], "{origin}");
        browser.open_color("snow");
        browser.click("#formats button");
        browser.press(&[ESCAPE]);
        assert_eq!(pasted(), forms[0], "by a tap");
    }
}

#[test]
fn a_value_that_would_keep_the_browser_busy_is_drawn_as_no_color_and_says_why() {
    let Some(browser) = browse() else { return };
    let mixed = |times: usize| "color-mix(in srgb,red,".repeat(times) + "red" + &")".repeat(times);
    let values = [
        (mixed(100), false),
        (mixed(11), false),
        ("rgb(from ".repeat(15_000), false),
        ("x".repeat(5_000), false),
        (format!("rgb(1 {} 2 3)", " ".repeat(255)), false),
        (mixed(10), true),
        ("oklch(from rgb(255 0 0) l c calc((h + (10 * (2 + 1)))))".to_owned(), true),
    ];
    let _server = browser.show(with_colors(values.iter().map(|(value, _)| ("a", value))));
    browser.open_color("a");
    for (nth, (value, is_color)) in (1..).zip(&values) {
        browser.expect_text("#place", &format!("{nth} of 7"));
        let why = "It is kept as text.";
        let start = value.chars().take(40).collect::<String>();
        assert_eq!(browser.text("#note").contains(why), !is_color, "{start}");
        let is_long = value.len() > 255;
        assert_eq!(browser.text("#note").contains("Not a CSS color."), !is_color && !is_long);
        assert_eq!(browser.run("return !$('#contrast').hidden"), *is_color);
        browser.press(&[RIGHT]);
    }
}

/// Bytes of README's picture.
const PICTURE_BYTES_MAX: usize = 60 * 1024;

#[test]
fn readmes_picture_is_small_and_made_here() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/page.webp");
    let Some(browser) = browse() else { return };
    browser.resize(1120, 600);
    let server = Server::start(&[]);
    browser.go(&format!("http://{}/#sort=hue", server.address));
    browser.expect_controls();
    let picture = browser.data("Page.captureScreenshot", json!({"format": "webp", "quality": 82}));
    // its bytes depend on the fonts of the machine, so that a test cannot compare them
    if std::env::var_os("WRITE_DOCUMENTS").is_some() {
        fs::write(file, picture).unwrap();
    }
    let picture = fs::read(file).expect("WRITE_DOCUMENTS=1 cargo test readmes_picture makes it");
    assert!(picture.len() <= PICTURE_BYTES_MAX, "{} bytes", picture.len());
    assert!(include_str!("../../README.md").contains("](docs/page.webp)"));
}
