//! A color opened: its forms, its contrast and its neighbors; and the page on paper.

use base64::Engine as _;
use serde_json::{Value, json};

use crate::browser::actions::{DOWN, RIGHT};
use crate::browser::driver::browse;
use crate::common::harness::Server;

#[test]
fn a_color_is_shown_in_the_forms_of_css_with_its_contrast() {
    browse(|browser| {
        // figures of CSS Color 4 and of WCAG 2.2
        let cases = [
            (
                "#663399",
                ["#663399", "rgb(102 51 153)", "hsl(270 50% 40%)", "oklch(44% 0.16 303.4)"],
                "8.40 : 1 with white2.49 : 1 with black",
            ),
            ("white", ["#ffffff", "rgb(255 255 255)", "hsl(0 0% 100%)", "oklch(100% 0 0)"], "1.00 : 1 with white21.00 : 1 with black"),
            (
                "lime",
                ["#00ff00", "rgb(0 255 0)", "hsl(120 100% 50%)", "oklch(86.6% 0.295 142.5)"],
                "1.37 : 1 with white15.30 : 1 with black",
            ),
            ("#ff000080", ["#ff000080", "rgb(255 0 0 / 0.5)", "hsl(0 100% 50% / 0.5)", "oklch(62.8% 0.258 29.2 / 0.5)"], ""),
        ];
        let seed: Vec<Value> = cases.iter().map(|(value, ..)| json!({"name": value, "value": value})).collect();
        let server = Server::with_seed(&json!(seed).to_string(), &[]);
        browser.open(&server);
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
            assert_eq!(
                browser.run("const contrast = document.querySelector('#contrast'); return contrast.hidden ? '' : contrast.textContent"),
                contrast
            );
            browser.press(&[RIGHT]);
        }
        assert_eq!(browser.text("#title"), cases[0].0, "after the last one comes the first");
    });
}

#[test]
fn what_is_no_color_is_opened_without_forms() {
    browse(|browser| {
        let server = Server::with_seed(r#"[{"name":"Brand","value":"see the book"}]"#, &[]);
        browser.open(&server);
        browser.open_color("Brand");
        let seen = "return ['stored', 'formats', 'contrast', 'near'].map(id => document.getElementById(id).checkVisibility())";
        assert_eq!(browser.run(seen), json!([true, false, false, false]));
    });
}

#[test]
fn arrow_keys_and_neighbors_lead_from_color_to_color() {
    browse(|browser| {
        let server = Server::start(&[]);
        browser.open(&server);
        let names = browser.names();
        browser.open_color(&names[4]);
        browser.expect_text("#place", "5 of 148");
        let around = "return [...document.querySelectorAll('#neighbors button')].map(button => button.title)";
        assert_eq!(browser.run(around), json!(names[1..8]));
        browser.press(&[RIGHT]);
        browser.expect_text("#title", &names[5]);
        browser.click("#previous");
        browser.expect_text("#title", &names[4]);
        browser.click("#neighbors button:nth-child(7)");
        browser.expect_text("#title", &names[7]);
        browser.press(&[DOWN]);
        let columns = "const tops = [...document.querySelectorAll('li')].map(li => li.getBoundingClientRect().top); return tops.filter(top => top === tops[0]).length";
        let columns = usize::try_from(browser.run(columns).as_u64().unwrap()).unwrap();
        browser.expect_text("#title", &names[7 + columns]);
        // the focus is where one has looked last
        browser.click("#opened .close");
        assert_eq!(browser.run("return document.activeElement.firstChild.textContent"), json!(names[7 + columns]));
    });
}

#[test]
fn tiles_move_when_they_are_sorted_unless_somebody_prefers_that_they_do_not() {
    browse(|browser| {
        for (motion, moves) in [("reduce", false), ("no-preference", true)] {
            let server = Server::start(&[]);
            browser.prefer("prefers-reduced-motion", motion);
            browser.open(&server);
            let moving = "const order = document.querySelector('#order'); order.value = 'name'; order.onchange(); return document.getAnimations().length > 100";
            assert_eq!(browser.run(moving), moves);
            browser.until("return !document.getAnimations().length");
        }
    });
}

#[test]
fn on_paper_every_color_is_there_and_no_page_is_empty() {
    browse(|browser| {
        let many: Vec<Value> = (0..1100).map(|number| json!({"name": format!("color-{number}"), "value": "#99cccc"})).collect();
        // 4 columns and 16 rows on A4, one row fewer below the header
        for (server, pages) in [(Server::start(&[]), 3), (Server::with_seed(&json!(many).to_string(), &[]), 18)] {
            browser.open(&server);
            let pdf = browser.devtools("Page.printToPDF", json!({"paperWidth": 8.27, "paperHeight": 11.69}));
            let pdf = base64::engine::general_purpose::STANDARD.decode(pdf["data"].as_str().unwrap()).unwrap();
            let text = String::from_utf8_lossy(&pdf);
            assert_eq!(text.matches("/Type /Page\n").count(), pages);
        }
    });
}
