//! Tiles: every text is whole, there or in the open color, and large enough to read.

use serde_json::json;

use crate::browser::actions::{CONTROL, ESCAPE};
use crate::browser::changing::SEED;
use crate::browser::driver::{browse, browse_to};
use crate::browser::with_colors;
use crate::common::harness::Server;

/// Texts of which a part is not seen, if all tiles are drawn.
const CUT: &str = "const drawn = new CSSStyleSheet();
    drawn.replaceSync('.open { content-visibility: visible !important }');
    document.adoptedStyleSheets = [drawn];
    return $$('li .name, li .value').filter(text => {
        const range = document.createRange();
        range.selectNodeContents(text);
        const [all, seen] = [range.getBoundingClientRect(), text.getBoundingClientRect()];
        return text.scrollWidth > text.clientWidth || text.scrollHeight > text.clientHeight + 1 || all.right > seen.right + 1;
    }).map(text => text.textContent)";

/// Whether the page is no wider than what is seen of it.
pub(super) const FITS: &str = "return document.documentElement.scrollWidth <= innerWidth";

#[test]
fn long_texts_end_in_an_ellipsis_and_are_whole_in_the_open_color() {
    let Some(browser) = browse() else { return };
    let long = "a long name ".repeat(340);
    let value = "see the book ".repeat(80);
    let server = with_colors([("short", "tan"), (&long, &value), ("after", "tan")]);
    for (width, height) in [(1024, 600), (320, 640)] {
        browser.resize(width, height);
        browser.open(&server);
        assert_eq!(browser.run(CUT), json!([long, value]));
        let clamp = "const {webkitLineClamp, overflow} = getComputedStyle($('li:nth-child(2) .name')); return [webkitLineClamp, overflow]";
        assert_eq!(browser.run(clamp), json!(["2", "hidden"]), "which makes the ellipsis");
        browser.open_color(&long);
        assert_eq!(browser.text("#title"), long);
        let seen = "return ['title', 'formats', 'contrast'].map(id => document.getElementById(id).checkVisibility())";
        browser.expect_value(seen, json!([true, true, false]));
        let code = "const code = $('#formats code'); code.scrollTo(0, 1e6);
            return [code.scrollWidth <= code.clientWidth, code.scrollTop > 0 && code.scrollTop + code.clientHeight >= code.scrollHeight - 1]";
        browser.expect_value(code, json!([true, true]));
        let reach = "const title = $('#title'); title.scrollTo(0, 1e6); const {bottom} = title.getBoundingClientRect();
            return [title.scrollWidth <= title.clientWidth, title.scrollTop + title.clientHeight >= title.scrollHeight - 1, bottom <= innerHeight]";
        assert_eq!(browser.run(reach), json!([true, true, true]));
        browser.click("#formats :only-child");
        browser.until("return $('#said').textContent.startsWith('Copied ')");
    }
}

#[test]
fn alpha_is_on_a_checkerboard_with_a_ground_for_its_texts_and_what_is_no_color_is_hatched() {
    let Some(browser) = browse() else { return };
    let translucent = ["transparent", "#ff000080"];
    let opaque = ["#ff0000", "#ffffff"];
    let none = "see the book||inherit|var(--text)|red; color: blue|red srgb 1 0 0) /*|\
                rgb(255 0 0|url(x)|#12345|red blue";
    let values = translucent.into_iter().chain(opaque).chain(none.split('|'));
    let _server = browser.show(with_colors(values.map(|value| (value, value))));
    let grounds = "return $$('li').map(li => [getComputedStyle(li).backgroundImage.match(/repeating-[a-z]+|none/)[0],
        getComputedStyle(li.querySelector('.name')).backgroundColor !== 'rgba(0, 0, 0, 0)'])";
    let mut expected = vec![json!(["repeating-conic", true]); 2];
    expected.extend(vec![json!(["none", false]); 2]);
    expected.extend(vec![json!(["repeating-linear", false]); 10]);
    browser.expect_value(grounds, expected);
    browser.edit("#ff000080");
    let checkered = "return getComputedStyle($('#swatch')).backgroundImage.includes('conic')";
    browser.expect_value(checkered, true);
}

#[test]
fn sorted_by_hue_grays_and_near_blacks_are_at_the_end_from_light_to_dark() {
    // OKLCH hues: 29, 29, 71, 110, 142, 264, 264, 328, 352; and grays
    let sorted = [
        "#ff0000", "#800000", "#ffa500", "#ffff00", "#00ff00", "#0000ff", "#000080", "#800080",
        "#ff69b4", "#ffffff", "#fffafa", "#808080", "#708090", "#1a1a1c", "#0a0000", "#000000",
    ];
    let server = with_colors(sorted.iter().rev().map(|value| (value, value)));
    let Some((browser, _server)) = browse_to(server) else { return };
    browser.sort("hue");
    assert_eq!(browser.names(), sorted);
}

#[test]
fn a_thousand_colors_are_all_in_the_document_and_found_by_the_search_of_the_browser() {
    let many = |count| (1..=count).map(|number| (format!("color {number}"), "#99cccc"));
    let Some((browser, _server)) = browse_to(with_colors(many(1000))) else { return };
    browser.until("return $$('li').length === 1000");
    let parts = browser.read_out();
    let is_tile = |[role, name]: &&[String; 2]| role == "button" && name.starts_with("color ");
    assert_eq!(parts.iter().filter(is_tile).count(), 1000);
    assert_eq!(browser.run("return find('color 987')"), true);
    browser.until("return $('li:nth-child(987)').getBoundingClientRect().top < innerHeight");
    let _server = browser.show(with_colors(many(1001)));
    let tiles = browser.run("return $$('li').length").as_u64().unwrap();
    assert!(tiles < 400, "{tiles}");
    browser.press_with(CONTROL, "f");
    assert_eq!(browser.run("return find('color 987')"), true);
    let found = "return $('li:nth-child(987)').getBoundingClientRect().top < innerHeight";
    browser.until(found);
}

#[test]
fn the_header_stands_still_whether_or_not_the_list_scrolls_and_tiles_out_of_view_cost_nothing() {
    let many =
        (0..999).map(|number| (format!("color {number}"), format!("#{:06x}", 9999 * number)));
    let Some((browser, _server)) = browse_to(with_colors(many)) else { return };
    let place = "return [innerWidth - document.documentElement.clientWidth, $('#showHelp').getBoundingClientRect().right]";
    let before = browser.run(place);
    assert_eq!(before[0], 15, "there is a scroll bar");
    browser.until("return getComputedStyle($('li:last-child .open')).contentVisibility === 'auto'");
    // a sort and a dialog wait for none of them, and they come back
    browser.expect_controls();
    let open = ["li .open", "#add"].map(|part| format!("$('{part}').click()"));
    for action in [open[0].as_str(), &open[1], "order.value = 'hue'; order.onchange()"] {
        browser.until("return $$('li').length === 999");
        let opens = format!("const order = $('#order'); {action}; return $$('li').length < 400");
        browser.expect_value(&opens, true);
        browser.close();
    }
    browser.sort("list");
    for query in ["color 998", "nothing like that"] {
        browser.fill("#query", query);
        browser.until("return $$('li').length < 2");
        assert_eq!(browser.run(place)[1], before[1], "{query}");
    }
    // what is beside the list is as dark as it behind a dialog
    for scheme in ["light", "dark"] {
        browser.prefer("prefers-color-scheme", scheme);
        browser.click("#showHelp");
        let picture = browser.devtools("Page.captureScreenshot", json!({"format": "png"}));
        let pixels = browser.run_with("const [data] = arguments;
            return createImageBitmap(new Blob([Uint8Array.fromBase64(data)])).then(image => {
                const pen = new OffscreenCanvas(image.width, image.height).getContext('2d', {willReadFrequently: true});
                pen.drawImage(image, 0, 0);
                return [20, 5].map(right => [...pen.getImageData(image.width - right, image.height - 300, 1, 1).data].join());
            })", &json!([picture["data"]]));
        assert_eq!(pixels[0], pixels[1], "{scheme}");
        browser.press(&[ESCAPE]);
    }
}

#[test]
fn a_copy_is_told_on_the_tile_and_to_screen_readers() {
    let Some((browser, _server)) = browse_to(Server::with_seed(SEED, &[])) else { return };
    // what is there for a moment is noted, since a slow machine may look too late
    browser.run(
        "window.marks = [];
        window.texts = 0;
        const tile = $('li:nth-child(2)');
        new MutationObserver(() => marks.push(getComputedStyle(tile, '::after').content)).observe(tile, {attributeFilter: ['class']});
        new MutationObserver(() => texts++).observe($('#said'), {childList: true})",
    );
    for times in 1..=2 {
        browser.focus("ink");
        browser.press(&["c"]);
        browser.until(&format!("return texts === {times}"));
        browser.until("return marks.at(-1) === 'none'");
        browser.run("marks.push('')");
    }
    let marks = ["\"✓ Copied\"", "none", ""];
    browser.expect_value("return marks", json!([marks, marks].concat()));
    browser.expect_value("return $('#said').textContent", "Copied \u{2068}#191970\u{2069}");
}

#[test]
fn texts_are_drawn_on_tiles_that_come_into_view() {
    let Some(browser) = browse() else { return };
    browser.resize(360, 740);
    let _server = browser.show(Server::start(&[]));
    let expect_drawn = |what: &str| {
        let empty = "return $$('li').filter(li => {
            const {top, bottom} = li.getBoundingClientRect();
            return top < innerHeight && bottom > 0 && !li.querySelector('.name').getBoundingClientRect().width;
        }).map(li => li.textContent)";
        browser.expect_value("return $$('li').length > 12", true);
        assert_eq!(browser.run(empty), json!([]), "{what}");
    };
    expect_drawn("the list");
    for order in ["hue", "lightness", "list"] {
        browser.sort(order);
        expect_drawn(order);
    }
    browser.fill("#query", "#ff6347");
    expect_drawn("what is searched for");
    browser.fill("#query", "");
    browser.run("scrollTo(0, 2000)");
    let scrolled = "return $$('li .name').some(name => name.textContent === 'olive' && name.getBoundingClientRect().width)";
    browser.until(scrolled);
}

#[test]
fn names_from_right_to_left_are_on_the_same_side_on_one_line_and_on_two() {
    let Some(browser) = browse() else { return };
    let server =
        with_colors(["אדום", &"שם ארוך מאוד ".repeat(4), "left"].map(|name| (name, "#99cccc")));
    browser.resize(390, 844);
    browser.open(&server);
    let place = "return $$('li .name').map(name => {
        const range = document.createRange();
        range.selectNodeContents(name);
        const rects = [...range.getClientRects()];
        return [Math.round(Math.min(...rects.map(rect => rect.left)) - name.closest('li').getBoundingClientRect().left), new Set(rects.map(rect => rect.top)).size];
    })";
    let place = browser.run(place);
    assert!(place[1][1].as_u64().unwrap() >= 2, "{place}");
    assert_eq!((&place[0][0], &place[1][0]), (&place[2][0], &place[2][0]), "{place}");
}

#[test]
fn names_and_values_that_show_nothing_are_marked() {
    let seed = r#"[{"name":"","value":"red"},{"name":"   ","value":" "},{"name":"\u200b","value":""},{"name":"a b","value":"red"}]"#;
    let Some((browser, _server)) = browse_to(Server::with_seed(seed, &[])) else { return };
    let marks = "return $$('li bdi').map(text => getComputedStyle(text, '::before').content)";
    let expected = ["(empty)", "", "(blank)", "(blank)", "(blank)", "(empty)", "", ""]
        .map(|mark| format!("{mark:?}"));
    assert_eq!(browser.run(marks), json!(expected));
    browser.open_color("");
    assert_eq!(browser.text("#title"), "(empty)");
}

#[test]
fn an_empty_list_leads_to_adding_and_no_hits_to_all_colors() {
    let Some((browser, _server)) = browse_to(Server::with_seed("[]", &[])) else { return };
    let texts = ["#why", "#way"].map(|part| browser.text(part));
    assert_eq!(texts, ["The list is empty.", "Add color"]);
    browser.until("return $('#way').offsetParent");
    let overflow = "return getComputedStyle(document.documentElement).overflowY";
    browser.expect_value(overflow, "scroll");
    browser.click("#way");
    assert_eq!(browser.text("#save"), "Add");
    browser.type_text("ink");
    browser.fill("#value", "navy");
    browser.click("#save");
    browser.expect_text("#count", "1 color");
    // it is shown at once, and the dialog keeps the focus until it is saved
    browser.until("return !$('#opened').open");
    let fills = "const {right, bottom} = $('li').getBoundingClientRect(); return [innerWidth - right <= 15, bottom === innerHeight]";
    browser.expect_value(fills, json!([true, true]));
    browser.fill("#query", "nothing like that");
    browser.expect_text("#way", "Clear search");
    browser.click("#way");
    assert_eq!(browser.names(), ["ink"]);
    let search = "return [$('#query').value, document.activeElement.id]";
    browser.expect_value(search, json!(["", "query"]));
    browser.edit("ink");
    assert_eq!(browser.text("#save"), "Save");
    let _read_only = browser.show(Server::with_seed("[]", &["--read-only"]));
    assert_eq!(browser.run("return $('#way').offsetParent"), json!(null));
}

/// What is wrong with the layout of the list, whatever the size of the window.
const FLAWS: &str = "const {clientWidth} = document.documentElement;
    const rectOf = part => part.getBoundingClientRect();
    const outside = $$('header *, li').filter(part => rectOf(part).left < 0 || rectOf(part).right > clientWidth + 0.5);
    // what is seen of Copy is below the name
    const covered = $$('.copy').filter(copy => copy.offsetWidth
        && rectOf(copy).top + copy.clientTop < rectOf(copy.parentNode.querySelector('.name')).bottom - 1);
    const hidden = $$('li .value').filter(value => !value.checkVisibility());
    // a field shows what fits, so that its placeholder becomes its value for this
    const query = $('#query');
    query.value = query.placeholder;
    const cut = $$('header :is(button, input, p)').filter(text => text.scrollWidth > text.clientWidth);
    query.value = '';
    const tiny = $$('body *:not(script, style)').filter(part => parseFloat(getComputedStyle(part).fontSize) < 12);
    // WCAG 2.2, 2.5.8
    const small = $$('button, input, select').filter(target => rectOf(target).width && Math.min(rectOf(target).width, rectOf(target).height) < 24);
    const lines = name => name.clientHeight / parseFloat(getComputedStyle(name).lineHeight);
    const long = innerWidth < 390 ? [] : $$('li .name').filter(name => lines(name) >= 1.5);
    const parts = $$('header > *').filter(part => part.checkVisibility());
    const isOneRow = Math.max(...parts.map(part => part.offsetTop)) < Math.min(...parts.map(part => part.offsetTop + part.offsetHeight));
    const rows = innerWidth < 768 || isOneRow ? [] : parts;
    // a laptop shows all of them at once
    const below = innerWidth < 1366 ? [] : $$('li').filter(li => rectOf(li).bottom > innerHeight);
    const flaws = Object.entries({outside, covered, hidden, cut, tiny, small, long, rows, below});
    return flaws.filter(([, parts]) => parts.length).map(([what, parts]) => [what, parts[0].outerHTML])";

#[test]
fn nothing_is_cut_off_between_320_pixels_and_4k() {
    let Some(browser) = browse() else { return };
    let server = Server::start(&[]);
    // A browser that was touched may keep thinking so: touch comes last.
    for (width, height, is_touch) in [
        (320, 256, false),
        (800, 700, false),
        (1366, 768, false),
        (1920, 1080, false),
        (3840, 2160, false),
        (390, 844, true),
        (768, 1024, true),
    ] {
        browser.resize_as(width, height, is_touch);
        browser.open(&server);
        if is_touch {
            browser.until("return matchMedia('(pointer: coarse)').matches");
        }
        browser.expect_controls();
        browser.until("return $$('li').length === 148");
        assert_eq!(browser.run(FITS), true, "{width}");
        assert_eq!(browser.run(CUT), json!([]), "{width}");
        assert_eq!(browser.run(FLAWS), json!([]), "{width}");
        if width <= 760 {
            browser.click("li .open");
            browser.expect_value("return $('#swatch').getBoundingClientRect().right", width);
        }
    }
}
