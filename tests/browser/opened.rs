//! A color opened: its forms and its contrast; and the page on paper.

use serde_json::{Value, json};

use crate::browser::actions::{DOWN, ESCAPE, F2, LEFT, RIGHT};
use crate::browser::changing::SEED;
use crate::browser::driver::{browse, browse_to, browse_to_change};
use crate::browser::with_colors;
use crate::common::harness::Server;

/// Figures of CSS Color 4 and of WCAG 2.2. What sRGB does not have is the nearest there (~). The
/// last two are rounded to 8 bits first, and brighter than white.
const CASES: &str = r##"[
["#663399", ["rgb(102 51 153)", "hsl(270 50% 40%)", "oklch(44.03% 0.1603 303.37)"], "8.40 2.49"],
["cyan", ["#00ffff", "rgb(0 255 255)", "hsl(180 100% 50%)", "oklch(90.54% 0.15455 194.77)"], "1.25 16.74"],
["#ff000080", ["rgb(255 0 0 / 0.502)", "hsl(0 100% 50% / 0.502)", "oklch(62.8% 0.25768 29.23 / 0.502)"], ""],
["rgb(40% 20% 60%)", ["#663399", "rgb(102 51 153)", "hsl(270 50% 40%)", "oklch(44.03% 0.1603 303.37)"], "8.40 2.49"],
["oklch(70% 0.2 150)", ["~#00bf54", "~rgb(0 191 84)", "~hsl(146.4 100% 37.5%)"], "2.46 8.51"],
["color(display-p3 1 0 0)", ["~#ff0000", "~rgb(255 0 0)", "~hsl(0 100% 50%)", "oklch(64.86% 0.29947 28.96)"], "3.76 5.57"],
["oklch(100% 0 0)", ["#ffffff", "rgb(255 255 255)", "hsl(0 0% 100%)"], "1.00 21.00"],
["rgb(254.6 0 0)", ["#ff0000", "rgb(255 0 0)", "hsl(0 100% 50%)", "oklch(62.72% 0.25738 29.23)"], "4.01 5.23"],
["rgb(255 0 0 / 50%)", ["#ff000080", "hsl(0 100% 50% / 0.5)", "oklch(62.8% 0.25768 29.23 / 0.5)"], ""],
["color(srgb 2 2 2)", ["~#ffffff", "~rgb(255 255 255)", "~hsl(0 0% 100%)"], "1.00 21.00"]
]"##;

#[test]
fn a_color_is_shown_as_it_is_stored_and_in_the_forms_of_css_with_its_contrast() {
    let Some(browser) = browse() else { return };
    let cases: Value = serde_json::from_str(CASES).unwrap();
    let cases = cases.as_array().unwrap();
    let names = cases.iter().map(|case| case[0].as_str().unwrap());
    let _server = browser.show(with_colors(names.map(|name| (name, name))));
    browser.open_color("#663399");
    for case in cases {
        browser.expect_text("#title", case[0].as_str().unwrap());
        let ratios = case[2].as_str().unwrap().split_once(' ');
        let contrast =
            ratios.map(|(white, black)| format!("{white} : 1 with white{black} : 1 with black"));
        let forms = "return $$('#formats button').map(row => (row.lastChild.textContent === 'nearest in sRGB' ? '~' : '') + row.querySelector('code').textContent)";
        let mut shown = browser.run(forms);
        assert_eq!(shown.as_array_mut().unwrap().remove(0), case[0], "as it is stored");
        assert_eq!(shown, case[1]);
        // the browser takes each for the same color
        let different = "return new Set($$('#formats code').map(form => {
            const pen = document.createElement('canvas').getContext('2d');
            pen.fillStyle = form.textContent;
            pen.fillRect(0, 0, 1, 1);
            return pen.getImageData(0, 0, 1, 1).data.join();
        })).size";
        assert_eq!(browser.run(different), 1, "{case}");
        let shown =
            "const {hidden, textContent} = $('#contrast'); return hidden ? '' : textContent";
        browser.expect_value(shown, contrast.unwrap_or_default());
        browser.press(&[RIGHT]);
    }
    browser.expect_text("#title", "#663399");
}

#[test]
fn colors_of_the_scheme_change_with_it() {
    let Some(browser) = browse() else { return };
    browser.prefer("prefers-color-scheme", "light");
    let colors = [("ink", "light-dark(#123456, white)"), ("ground", "Canvas")];
    let _server = browser.show(with_colors(colors));
    let inks = "return $$('li').map(tile => tile.style.color)";
    let (white, black) = ("rgb(255, 255, 255)", "rgb(0, 0, 0)");
    browser.open_color("ink");
    browser.expect_text("#formats :nth-child(2) code", "#123456");
    assert_eq!(browser.run(inks), json!([white, black]));
    browser.prefer("prefers-color-scheme", "dark");
    browser.expect_text("#formats :nth-child(2) code", "#ffffff");
    assert_eq!(browser.run(inks), json!([black, white]));
}

#[test]
fn arrow_keys_lead_from_color_to_color() {
    let Some((browser, _server)) = browse_to(Server::start(&[])) else { return };
    let names = browser.names();
    browser.open_color(&names[4]);
    browser.expect_text("#place", "5 of 148");
    browser.press(&[RIGHT]);
    browser.expect_text("#title", &names[5]);
    browser.click("#previous");
    browser.expect_text("#title", &names[4]);
    browser.press(&[DOWN]);
    let columns = "const tops = $$('li').map(li => li.getBoundingClientRect().top); return tops.filter(top => top === tops[0]).length";
    let columns = usize::try_from(browser.run(columns).as_u64().unwrap()).unwrap();
    browser.expect_text("#title", &names[4 + columns]);
    // the focus is where one has looked last
    browser.click("#opened .close");
    browser.expect_focus(&names[4 + columns]);
    // from one that the search hides
    for (key, place) in [(LEFT, "32 of 32"), (RIGHT, "1 of 32")] {
        browser.run("location.hash = '#q=blue&color=tomato'");
        browser.expect_text("#title", "tomato");
        browser.press(&[key]);
        browser.expect_text("#place", place);
    }
}

#[test]
fn an_open_color_has_an_address_that_a_link_opens_and_back_closes() {
    let Some(browser) = browse() else { return };
    let seed = r#"[{"name":"a & b","value":"red"},{"name":"ink","value":"navy"},{"name":"ink","value":"black"}]"#;
    let server = Server::with_seed(seed, &[]);
    browser.go(&format!("http://{}/#q=n&color=ink&nth=2", server.address));
    browser.expect_text("#formats code", "black");
    browser.expect_value("return document.title", "ink – Colors");
    browser.press(&[ESCAPE]);
    browser.until("return location.hash === '#q=n'");
    browser.expect_value("return document.title", "Colors");
    browser.run("location.hash = '#color=nobody'");
    browser.expect_text("#told", "There is no color nobody.");
    browser.click("#dismiss");
    browser.open_color("ink");
    browser.run("location.hash = '#color=nobody'");
    browser.expect_text("#told", "There is no color nobody.");
    browser.click("#dismiss");
    browser.press(&[ESCAPE]);
    browser.until("return !location.hash");
    // a step is no further page to go back through, but it is read out
    let entry = || browser.run("return navigation.currentEntry.index");
    let list = entry();
    for closes in ["history.back()", "$('#opened .close').click()"] {
        browser.open_color("ink");
        browser.expect_value("return location.hash", "#color=ink");
        browser.press(&[RIGHT]);
        browser.expect_value("return location.hash", "#color=ink&nth=2");
        browser.expect_text("#said", "ink, black, 3 of 3");
        browser.press(&[RIGHT]);
        browser.expect_value("return location.hash", "#color=a+%26+b");
        browser.run(closes);
        browser.until("return !location.hash && !$('#opened').open");
        assert_eq!(entry(), list);
    }
    // to open another one at once is faster than to go back
    browser.click("li .open");
    browser.run(
        "const opened = $('#opened'); opened.close();
        opened.addEventListener('close', () => $('li:last-child .open').click(), {once: true})",
    );
    browser.until("return location.hash === '#color=ink&nth=2'");
    assert_eq!(browser.text("#formats code"), "black");
}

#[test]
fn every_pointer_is_told_how_to_copy_and_keys_that_copy_type_in_a_field_and_are_not_shown_there() {
    const SEEN: &str = "const {content} = getComputedStyle($('#formats'), '::before');
        return [$('#formats kbd').checkVisibility(), content]";
    let Some((browser, server)) = browse_to_change(Server::with_seed(SEED, &[])) else { return };
    browser.open_color("red");
    assert_eq!(browser.run(SEEN), json!([true, "\"Click to copy, or press the number\""]));
    let room = "const [code, key] = ['code', 'kbd'].map(part => $(`#formats :nth-child(4) ${part}`).getBoundingClientRect()); return key.left - code.right";
    assert!(browser.run(room).as_f64().unwrap() >= 8.0);
    browser.press(&[F2]);
    browser.expect_fields();
    assert_eq!(browser.run(SEEN), json!([false, "\"Click to copy\""]));
    for field in ["name", "value"] {
        browser.fill(&format!("#{field}"), "");
        browser.press(&["1", "5", "c", "/"]);
        browser.expect_value(&format!("return $('#{field}').value"), "15c/");
    }
    assert_eq!(browser.text("#said"), "");
    let fonts = "return new Set(['#value', '#formats code'].map(text => getComputedStyle($(text)).fontFamily)).size";
    assert_eq!(browser.run(fonts), 1);
    browser.resize_as(390, 844, true);
    browser.open(&server);
    browser.open_color("red");
    assert_eq!(browser.run(SEEN), json!([false, "\"Tap to copy\""]));
}

#[test]
fn on_paper_every_color_is_there_and_no_page_is_empty() {
    let many = with_colors((0..1001).map(|number| (format!("color-{number}"), "#99cccc")));
    let Some((browser, _server)) = browse_to(many) else { return };
    let pdf = browser.data("Page.printToPDF", json!({"paperWidth": 8.27, "paperHeight": 11.69}));
    // 4 columns and 16 rows on A4, one row fewer below the header
    let text = String::from_utf8_lossy(&pdf);
    assert_eq!(text.matches("/Type /Page\n").count(), 16);
}
