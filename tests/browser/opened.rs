//! A color opened: its forms, its contrast and its neighbors; and the page on paper.

use base64::Engine as _;
use serde_json::{Value, json};

use crate::browser::actions::{DOWN, F2, RIGHT};
use crate::browser::driver::browse;
use crate::common::harness::Server;

#[test]
fn a_color_is_shown_in_the_forms_of_css_with_its_contrast() {
    let Some(browser) = browse() else { return };
    // figures of CSS Color 4 and of WCAG 2.2
    let cases = [
        (
            "#663399",
            ["#663399", "rgb(102 51 153)", "hsl(270 50% 40%)", "oklch(44% 0.16 303.4)"],
            "8.40 : 1 with white2.49 : 1 with black",
        ),
        (
            "white",
            ["#ffffff", "rgb(255 255 255)", "hsl(0 0% 100%)", "oklch(100% 0 0)"],
            "1.00 : 1 with white21.00 : 1 with black",
        ),
        (
            "lime",
            ["#00ff00", "rgb(0 255 0)", "hsl(120 100% 50%)", "oklch(86.6% 0.295 142.5)"],
            "1.37 : 1 with white15.30 : 1 with black",
        ),
        (
            "#ff000080",
            [
                "#ff000080",
                "rgb(255 0 0 / 0.5)",
                "hsl(0 100% 50% / 0.5)",
                "oklch(62.8% 0.258 29.2 / 0.5)",
            ],
            "",
        ),
    ];
    let seed: Vec<Value> =
        cases.iter().map(|(value, ..)| json!({"name": value, "value": value})).collect();
    let _server = browser.show(Server::with_seed(&json!(seed).to_string(), &[]));
    browser.open_color(cases[0].0);
    for (value, forms, contrast) in cases {
        assert_eq!(browser.text("#title"), value);
        assert_eq!(browser.run("return [...document.querySelectorAll('#formats code')].map(form => form.textContent)"), json!(forms));
        // the browser takes each for the same color
        let rounded = "return new Set([...document.querySelectorAll('#formats code')].map(form => {
            const pen = document.createElement('canvas').getContext('2d');
            pen.fillStyle = form.textContent;
            pen.fillRect(0, 0, 1, 1);
            return [...pen.getImageData(0, 0, 1, 1).data].map(channel => Math.round(channel / 4)).join();
        })).size";
        assert_eq!(browser.run(rounded), 1, "{value}");
        browser.expect_value("const contrast = document.querySelector('#contrast'); return contrast.hidden ? '' : contrast.textContent", contrast);
        browser.press(&[RIGHT]);
    }
    assert_eq!(browser.text("#title"), cases[0].0, "after the last one comes the first");
}

#[test]
fn what_is_no_color_is_opened_without_forms() {
    let Some(browser) = browse() else { return };
    let _server =
        browser.show(Server::with_seed(r#"[{"name":"Brand","value":"see the book"}]"#, &[]));
    browser.open_color("Brand");
    let seen = "return ['stored', 'formats', 'contrast', 'near'].map(id => document.getElementById(id).checkVisibility())";
    assert_eq!(browser.run(seen), json!([true, false, false, false]));
}

#[test]
fn arrow_keys_lead_from_color_to_color() {
    let Some(browser) = browse() else { return };
    let _server = browser.show(Server::start(&[]));
    let names = browser.names();
    browser.open_color(&names[4]);
    browser.expect_text("#place", "5 of 148");
    browser.press(&[RIGHT]);
    browser.expect_text("#title", &names[5]);
    browser.click("#previous");
    browser.expect_text("#title", &names[4]);
    browser.press(&[DOWN]);
    let columns = "const tops = [...document.querySelectorAll('li')].map(li => li.getBoundingClientRect().top); return tops.filter(top => top === tops[0]).length";
    let columns = usize::try_from(browser.run(columns).as_u64().unwrap()).unwrap();
    browser.expect_text("#title", &names[4 + columns]);
    // the focus is where one has looked last
    browser.click("#opened .close");
    browser.expect_value(
        "return document.activeElement.firstChild.textContent",
        json!(names[4 + columns]),
    );
}

#[test]
fn neighbors_are_the_nearest_in_hue_and_lead_there() {
    let Some(browser) = browse() else { return };
    let _server = browser.show(Server::start(&[]));
    let purples = [
        "mediumpurple",
        "blueviolet",
        "indigo",
        "rebeccapurple",
        "darkviolet",
        "darkorchid",
        "mediumorchid",
    ];
    let around =
        "return [...document.querySelectorAll('#neighbors button')].map(button => button.title)";
    browser.open_color("rebeccapurple");
    assert_eq!(
        (browser.run(around), browser.text("#nearby").as_str()),
        (json!(purples), "Neighbors in hue")
    );
    browser.click("#neighbors button:nth-child(5)");
    browser.expect_text("#title", "darkviolet");
    browser.click("#opened .close");
    // grays have no hue
    let grays =
        ["slategray", "slategrey", "dimgray", "dimgrey", "darkslategray", "darkslategrey", "black"];
    browser.open_color("black");
    assert_eq!(
        (browser.run(around), browser.text("#nearby").as_str()),
        (json!(grays), "Neighbors in lightness")
    );
    // on a round, pink and red are neighbors
    let seed = r##"[{"name":"pink","value":"oklch(0.7 0.1 355)"},{"name":"green","value":"lime"},{"name":"red","value":"oklch(0.7 0.1 5)"}]"##;
    browser.open(&Server::with_seed(seed, &[]));
    browser.open_color("red");
    assert_eq!(browser.run(around), json!(["pink", "red", "green"]));
}

#[test]
fn keys_that_copy_a_form_type_in_a_field_and_are_not_shown_there_nor_to_those_who_tap() {
    const SEEN: &str =
        "const {content} = getComputedStyle(document.querySelector('#formats'), '::before');
        return [document.querySelector('#formats kbd').checkVisibility(), content]";
    let Some(browser) = browse() else { return };
    let server = browser.show_to_change(Server::start(&[]));
    browser.open_color("red");
    assert_eq!(browser.run(SEEN), json!([true, "none"]));
    browser.press(&[F2]);
    browser.expect_fields();
    assert_eq!(browser.run(SEEN), json!([false, "none"]));
    for field in ["name", "value"] {
        browser.fill(&format!("#{field}"), "1234");
        browser.expect_value(&format!("return document.querySelector('#{field}').value"), "1234");
    }
    assert_eq!(browser.text("#heard"), "");
    let fonts = "return new Set(['#value', '#stored'].map(text => getComputedStyle(document.querySelector(text)).fontFamily)).size";
    assert_eq!(browser.run(fonts), 1);
    browser.resize_as(390, 844, true);
    browser.open(&server);
    browser.open_color("red");
    assert_eq!(browser.run(SEEN), json!([false, "\"Tap a value to copy it\""]));
}

#[test]
fn tiles_move_when_they_are_sorted_unless_somebody_prefers_that_they_do_not() {
    let Some(browser) = browse() else { return };
    for (motion, moves) in [("reduce", false), ("no-preference", true)] {
        let server = Server::start(&[]);
        browser.prefer("prefers-reduced-motion", motion);
        browser.open(&server);
        let moving = "const order = document.querySelector('#order'); order.value = 'hue'; order.onchange(); return document.getAnimations().length > 100";
        assert_eq!(browser.run(moving), moves);
        browser.until("return !document.getAnimations().length");
    }
}

#[test]
fn on_paper_every_color_is_there_and_no_page_is_empty() {
    let Some(browser) = browse() else { return };
    let many: Vec<Value> = (0..1100)
        .map(|number| json!({"name": format!("color-{number}"), "value": "#99cccc"}))
        .collect();
    // 4 columns and 16 rows on A4, one row fewer below the header
    for (server, pages) in
        [(Server::start(&[]), 3), (Server::with_seed(&json!(many).to_string(), &[]), 18)]
    {
        browser.open(&server);
        let pdf =
            browser.devtools("Page.printToPDF", json!({"paperWidth": 8.27, "paperHeight": 11.69}));
        let pdf = base64::engine::general_purpose::STANDARD
            .decode(pdf["data"].as_str().unwrap())
            .unwrap();
        let text = String::from_utf8_lossy(&pdf);
        assert_eq!(text.matches("/Type /Page\n").count(), pages);
    }
}
