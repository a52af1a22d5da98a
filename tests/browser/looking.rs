//! What the page shows: swatches, search, order, copies.

use serde_json::json;

use crate::browser::driver::{PLAIN_HOST, browse};
use crate::common::harness::Server;

const SMALL: &str = r##"[{"name":"red","value":"#ff0000"},{"name":"ink","value":"#191970"},{"name":"snow","value":"rgb(255 250 250)"},
    {"name":"gray","value":"gray"},{"name":"Brand","value":"see the book"},{"name":"lime","value":"#0f0"}]"##;

#[test]
fn swatches_show_names_and_values_in_list_order() {
    browse(|browser| {
        let server = Server::start(&[]);
        browser.open(&server);
        assert_eq!(browser.text("#count"), "148 colors");
        let names = browser.names();
        assert_eq!((names.len(), names[0].as_str(), names[147].as_str()), (148, "aliceblue", "yellowgreen"));
        assert_eq!(browser.text("li .value"), "#f0f8ff");
        let ground = browser.run("return getComputedStyle(document.querySelector('li')).backgroundColor");
        assert_eq!(ground, "rgb(240, 248, 255)");
    });
}

#[test]
fn what_is_no_color_is_text_on_a_hatched_ground() {
    browse(|browser| {
        let values = ["see the book", "", "inherit", "var(--text)", "red; color: blue", "url(x)", "#12345", "red blue"];
        let colors: Vec<_> = values.iter().map(|value| json!({"name": value, "value": value})).collect();
        let server = Server::with_seed(&json!(colors).to_string(), &[]);
        browser.open(&server);
        let grounds = browser.run("return [...document.querySelectorAll('li')].map(li => getComputedStyle(li).backgroundImage)");
        let grounds = grounds.as_array().unwrap();
        assert_eq!(grounds.len(), values.len());
        for ground in grounds {
            assert!(ground.as_str().unwrap().starts_with("repeating-linear-gradient"), "{ground}");
        }
    });
}

#[test]
fn names_are_readable_on_every_color() {
    // WCAG 2.2: relative luminance, contrast ratio, 1.4.3
    const CONTRASTS: &str = "
        const parse = color => color.match(/[\\d.]+/g).map(Number);
        const channel = c => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
        const luminance = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
        return [...document.querySelectorAll('li')].map(li => {
            // a name on a color with alpha has a ground of its own
            const name = getComputedStyle(li.querySelector('.name'));
            const {backgroundColor} = li.className.includes('alpha') ? name : getComputedStyle(li);
            const [ground, ink] = [backgroundColor, name.color].map(color => luminance(parse(color)));
            return (Math.max(ground, ink) + 0.05) / (Math.min(ground, ink) + 0.05);
        })";
    browse(|browser| {
        let mut random = fastrand::Rng::with_seed(7);
        let mut colors: Vec<_> = (0..150).map(|_| json!({"name": "random", "value": format!("#{:06x}", random.u32(..1 << 24))})).collect();
        colors.extend((0..100).map(|_| json!({"name": "translucent", "value": format!("#{:08x}", random.u32(..))})));
        let server = Server::with_seed(&json!(colors).to_string(), &[]);
        for scheme in ["light", "dark"] {
            browser.prefer("prefers-color-scheme", scheme);
            browser.resize(3840, 2160);
            browser.open(&server);
            let contrasts: Vec<f64> = serde_json::from_value(browser.run(CONTRASTS)).unwrap();
            assert_eq!(contrasts.len(), 250);
            let least = contrasts.into_iter().fold(21.0, f64::min);
            assert!(least >= 4.5, "{scheme}: {least}");
        }
    });
}

#[test]
fn search_finds_names_and_values_as_one_types() {
    browse(|browser| {
        let server = Server::start(&[]);
        browser.open(&server);
        browser.click("#query");
        browser.type_text("ORCH");
        assert_eq!(browser.names(), ["darkorchid", "mediumorchid", "orchid"]);
        assert_eq!(browser.text("#count"), "3 of 148 colors");
        browser.fill("#query", "#6633");
        assert_eq!(browser.names(), ["rebeccapurple"]);
        browser.fill("#query", "nothing like that");
        assert_eq!((browser.names().len(), browser.text("#why").as_str()), (0, "No color has this in its name or value."));
        browser.fill("#query", "");
        assert_eq!(browser.names().len(), 148);
    });
}

#[test]
fn the_list_is_shown_by_name_hue_and_lightness_and_as_it_is() {
    browse(|browser| {
        let server = Server::with_seed(SMALL, &[]);
        browser.open(&server);
        let before = server.list();
        for (order, names) in [
            ("Name", ["Brand", "gray", "ink", "lime", "red", "snow"]),
            // grays behind the hues, and what is no color last
            ("Hue", ["red", "lime", "ink", "snow", "gray", "Brand"]),
            ("Lightness", ["snow", "lime", "red", "gray", "ink", "Brand"]),
            ("List order", ["red", "ink", "snow", "gray", "Brand", "lime"]),
        ] {
            browser.click("#order");
            browser.type_text(&order[..2]);
            browser.press(&[crate::browser::driver::ENTER]);
            browser.until(&format!("return document.querySelector('li .name').textContent === '{}'", names[0]));
            assert_eq!(browser.names(), names, "{order}");
        }
        assert_eq!(server.list(), before);
    });
}

#[test]
fn a_click_copies_the_value_and_says_so() {
    browse(|browser| {
        let server = Server::with_seed(SMALL, &["--allow-host", PLAIN_HOST]);
        for origin in [format!("http://{}", server.address), format!("http://{PLAIN_HOST}:{}", server.address.port())] {
            browser.go(&format!("{origin}/"));
            browser.click_tile("snow", ".copy");
            browser.expect_text("#said", "Copied rgb(255 250 250)");
            // pasted with the keyboard, so that no permission plays a part
            browser.click("#query");
            browser.press_with_control("v");
            assert_eq!(browser.run("return document.querySelector('#query').value"), "rgb(255 250 250)", "{origin}");
        }
    });
}
