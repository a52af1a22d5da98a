//! Tiles: every text is whole, there or in the open color, whatever it is, and large enough to
//! read.

use serde_json::json;

use crate::browser::actions::{CONTROL, ESCAPE};
use crate::browser::driver::browse;
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
fn a_long_name_ends_in_an_ellipsis_and_is_whole_in_the_open_color() {
    let Some(browser) = browse() else { return };
    let long = "a long name ".repeat(340);
    let server = with_colors(["short", &long, "after"].map(|name| (name, "#99cccc")));
    for (width, height) in [(1024, 600), (320, 640)] {
        browser.resize(width, height);
        browser.open(&server);
        assert_eq!(browser.run(CUT), json!([long]));
        let clamp = "const {webkitLineClamp, overflow} = getComputedStyle($('li:nth-child(2) .name')); return [webkitLineClamp, overflow]";
        assert_eq!(browser.run(clamp), json!(["2", "hidden"]), "which makes the ellipsis");
        browser.open_color(&long);
        assert_eq!(browser.text("#title"), long);
        let reach = "const title = $('#title'); title.scrollTo(0, 1e6); const {bottom} = title.getBoundingClientRect();
            return [title.scrollWidth <= title.clientWidth, title.scrollTop + title.clientHeight >= title.scrollHeight - 1, bottom <= innerHeight]";
        assert_eq!(browser.run(reach), json!([true, true, true]));
    }
}

#[test]
fn a_color_with_alpha_is_on_a_checkerboard_and_its_texts_on_a_ground_of_their_own() {
    let Some(browser) = browse() else { return };
    let seed = r##"[{"name":"clear","value":"transparent"},{"name":"half","value":"#ff000080"},{"name":"red","value":"#ff0000"},{"name":"white","value":"#ffffff"}]"##;
    let _server = browser.show(Server::with_seed(seed, &[]));
    let grounds = "return $$('li').map(li => [getComputedStyle(li).backgroundImage.includes('repeating-conic-gradient'),
        getComputedStyle(li.querySelector('.name')).backgroundColor !== 'rgba(0, 0, 0, 0)'])";
    browser
        .expect_value(grounds, json!([[true, true], [true, true], [false, false], [false, false]]));
    browser.edit("half");
    assert_eq!(
        browser.run("return getComputedStyle($('#swatch')).backgroundImage.includes('conic')"),
        true
    );
}

#[test]
fn sorted_by_hue_grays_and_near_blacks_are_at_the_end_from_light_to_dark() {
    let Some(browser) = browse() else { return };
    let values = [
        "#000000", "#0a0000", "#ff0000", "#fffafa", "#808080", "#1a1a1c", "#ffa500", "#000080",
        "#800000", "#00ff00", "#708090", "#ffffff", "#0000ff", "#ffff00", "#ff69b4", "#800080",
    ];
    let _server = browser.show(with_colors(values.map(|value| (value, value))));
    browser.sort("hue");
    // OKLCH hues: 29, 29, 71, 110, 142, 264, 264, 328, 352
    let hues = [
        "#ff0000", "#800000", "#ffa500", "#ffff00", "#00ff00", "#0000ff", "#000080", "#800080",
        "#ff69b4",
    ];
    let grays = ["#ffffff", "#fffafa", "#808080", "#708090", "#1a1a1c", "#0a0000", "#000000"];
    assert_eq!(browser.names(), [&hues[..], &grays[..]].concat());
}

#[test]
fn a_thousand_colors_are_all_in_the_document_and_found_by_the_search_of_the_browser() {
    let Some(browser) = browse() else { return };
    let many = |count| (1..=count).map(|number| (format!("color {number}"), "#99cccc"));
    let _server = browser.show(with_colors(many(1000)));
    browser.until("return $$('li').length === 1000");
    let tree = browser.devtools("Accessibility.getFullAXTree", json!({}));
    let buttons = tree["nodes"].as_array().unwrap().iter().filter(|node| {
        node["role"]["value"] == "button"
            && node["name"]["value"].as_str().is_some_and(|name| name.starts_with("color "))
    });
    assert_eq!(buttons.count(), 1000);
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
    let Some(browser) = browse() else { return };
    let many =
        (0..999).map(|number| (format!("color {number}"), format!("#{:06x}", 9999 * number)));
    let _server = browser.show(with_colors(many));
    let place = "return [innerWidth - document.documentElement.clientWidth, $('#showHelp').getBoundingClientRect().right]";
    let before = browser.run(place);
    assert_eq!(before[0], 15, "there is a scroll bar");
    browser.until("return getComputedStyle($('li:last-child .open')).contentVisibility === 'auto'");
    // a sort and a dialog wait for none of them, and they come back
    browser.expect_controls();
    let open = ["li .open", "#add"].map(|part| format!("$('{part}').click()"));
    for action in [open[0].as_str(), &open[1], "order.value = 'hue'; order.onchange()"] {
        browser.until("return $$('li').length === 999");
        browser.expect_value(
            &format!("const order = $('#order'); {action}; return $$('li').length < 400"),
            true,
        );
        browser.press(&[ESCAPE]);
        browser.expect_closed();
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
        let pixels = browser.await_script_with("const [data, done] = arguments;
            createImageBitmap(new Blob([Uint8Array.fromBase64(data)])).then(image => {
                const pen = new OffscreenCanvas(image.width, image.height).getContext('2d', {willReadFrequently: true});
                pen.drawImage(image, 0, 0);
                done([20, 5].map(right => [...pen.getImageData(image.width - right, image.height - 300, 1, 1).data].join()));
            })", &json!([picture["data"]]));
        assert_eq!(pixels[0], pixels[1], "{scheme}");
        browser.press(&[ESCAPE]);
    }
}

#[test]
fn a_copy_is_told_on_the_tile_and_to_screen_readers() {
    let Some(browser) = browse() else { return };
    let _server = browser.show(Server::start(&[]));
    // what is there for a moment is noted, since a slow machine may look too late
    browser.run(
        "window.marks = [];
        window.texts = 0;
        const tile = $('li:nth-child(5)');
        new MutationObserver(() => marks.push(getComputedStyle(tile, '::after').content)).observe(tile, {attributeFilter: ['class']});
        new MutationObserver(() => texts++).observe($('#said'), {childList: true})",
    );
    for times in 1..=2 {
        browser.focus("azure");
        browser.press(&["c"]);
        browser.until(&format!("return texts === {times}"));
        browser.until("return marks.at(-1) === 'none'");
        browser.run("marks.push('')");
    }
    browser.expect_value(
        "return marks",
        json!(["\"✓ Copied\"", "none", "", "\"✓ Copied\"", "none", ""]),
    );
    assert_eq!(browser.text("#said"), "Copied \u{2068}#f0ffff\u{2069}");
    assert_eq!(browser.run("return $('#said').role"), "status");
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
    let Some(browser) = browse() else { return };
    let seed = r#"[{"name":"","value":"red"},{"name":"   ","value":" "},{"name":"\u200b","value":""},{"name":"a b","value":"red"}]"#;
    let _server = browser.show(Server::with_seed(seed, &[]));
    let marks = "return $$('li bdi').map(text => getComputedStyle(text, '::before').content)";
    let expected = ["(empty)", "", "(blank)", "(blank)", "(blank)", "(empty)", "", ""]
        .map(|mark| format!("{mark:?}"));
    assert_eq!(browser.run(marks), json!(expected));
    browser.open_color("");
    assert_eq!(browser.text("#title"), "(empty)");
}

#[test]
fn an_empty_list_leads_to_adding_and_no_hits_to_all_colors() {
    let Some(browser) = browse() else { return };
    let _server = browser.show(Server::with_seed("[]", &[]));
    assert_eq!(
        (browser.text("#why").as_str(), browser.text("#way").as_str()),
        ("The list is empty.", "Add color")
    );
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
    browser.expect_value(
        "return [$('#query').value, document.activeElement.id]",
        json!(["", "query"]),
    );
    browser.edit("ink");
    assert_eq!(browser.text("#save"), "Save");
    let _read_only = browser.show(Server::with_seed("[]", &["--read-only"]));
    assert_eq!(browser.run("return $('#way').offsetParent"), json!(null));
}

#[test]
fn nothing_is_cut_off_between_320_pixels_and_4k() {
    let Some(browser) = browse() else { return };
    let server = Server::start(&[]);
    // A browser that was touched may keep thinking so: touch comes last.
    for (width, height, is_touch) in [
        (320, 256, false),
        (320, 640, false),
        (800, 700, false),
        (1366, 768, false),
        (1440, 900, false),
        (1920, 1080, false),
        (3840, 2160, false),
        (390, 844, true),
        (768, 1024, true),
        (1024, 768, true),
    ] {
        browser.resize_as(width, height, is_touch);
        browser.open(&server);
        if is_touch {
            browser.until("return matchMedia('(pointer: coarse)').matches");
        }
        browser.expect_controls();
        assert_eq!(browser.run(FITS), true, "{width}");
        let outside = "return $$('header *, li').filter(element => {
            const {left, right} = element.getBoundingClientRect();
            return left < 0 || right > document.documentElement.clientWidth + 0.5;
        }).length";
        assert_eq!(browser.run(outside), 0, "{width}");
        assert_eq!(browser.run(CUT), json!([]), "{width}");
        let lines = "return Math.max(...$$('li .name').map(name => name.clientHeight / parseFloat(getComputedStyle(name).lineHeight)))";
        assert!(width < 390 || browser.run(lines).as_f64().unwrap() < 1.5, "{width}");
        let is_one_row = "const parts = $$('header > *').filter(part => part.checkVisibility());
            return Math.max(...parts.map(part => part.offsetTop)) < Math.min(...parts.map(part => part.offsetTop + part.offsetHeight))";
        assert!(width < 768 || browser.run(is_one_row) == true, "{width}");
        // what is seen of Copy is below the name
        let covered = "return $$('.copy').some(copy => copy.offsetWidth
            && copy.getBoundingClientRect().top + copy.clientTop < copy.parentNode.querySelector('.name').getBoundingClientRect().bottom - 1)";
        assert_eq!(browser.run(covered), false, "{width}");
        browser.click("li .open");
        let swatch = "const {right} = $('#swatch').getBoundingClientRect(); return right";
        assert!(width > 760 || browser.run(swatch) == width, "{width}");
        browser.press(&[ESCAPE]);
        browser.expect_closed();
        let hidden = "return $$('li .value').filter(value => !value.checkVisibility()).length";
        assert_eq!(browser.run(hidden), 0, "{width}");
        // a field shows what fits, so that its placeholder becomes its value for this
        let cut = "const query = $('#query');
            query.value = query.placeholder;
            const cut = $$('header :is(button, input, p)').filter(text => text.scrollWidth > text.clientWidth);
            query.value = '';
            return cut.map(text => text.id)";
        assert_eq!(browser.run(cut), json!([]), "{width}");
        let tiny = "return $$('body *:not(script, style)').filter(element => parseFloat(getComputedStyle(element).fontSize) < 12).length";
        assert_eq!(browser.run(tiny), 0, "{width}");
        // WCAG 2.2, 2.5.8
        let small = "return $$('button, input, select').filter(target => {
            const {width, height} = target.getBoundingClientRect();
            return width && (width < 24 || height < 24);
        }).length";
        assert_eq!(browser.run(small), 0, "{width}");
        let all =
            "return $$('li').filter(li => li.getBoundingClientRect().bottom <= innerHeight).length";
        assert!(
            width < 1366 || browser.run(all) == 148,
            "a laptop shows all of them at once: {width}"
        );
    }
}
