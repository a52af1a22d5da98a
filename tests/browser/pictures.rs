//! README's picture of the page, and how fast the page is with 10,000 colors.

use std::fs;

use crate::browser::driver::browse;
use crate::browser::with_colors;
use crate::common::harness::{Server, figures};

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
    let picture = browser.picture();
    // its bytes depend on the fonts of the machine, so that a test cannot compare them
    if std::env::var_os("WRITE_DOCUMENTS").is_some() {
        fs::write(file, picture).unwrap();
    }
    let picture = fs::read(file).expect("WRITE_DOCUMENTS=1 cargo test readmes_picture makes it");
    assert!(picture.len() <= PICTURE_BYTES_MAX, "{} bytes", picture.len());
    assert!(include_str!("../../README.md").contains("](docs/page.webp)"));
}

#[test]
fn ten_thousand_colors_are_shown_searched_and_scrolled_without_delay() {
    /// Milliseconds; many times what a loaded machine needs.
    const LONGEST: f64 = 20_000.0;
    let Some(browser) = browse() else { return };
    let mut random = fastrand::Rng::with_seed(3);
    let color = |number| (format!("color-{number}"), format!("#{:06x}", random.u32(..1 << 24)));
    let _server = browser.show(with_colors((0..10_000).map(color)));
    let shown = browser.run("return performance.now()").as_f64().unwrap();
    let tiles = browser.run("return document.querySelectorAll('li').length").as_u64().unwrap();
    assert!(tiles < 400, "only what is in view has a tile: {tiles}");
    let until_painted = |action: &str| -> Vec<f64> {
        let times = browser.await_script(&format!(
            "const done = arguments[0];
            const field = document.querySelector('#query');
            const order = document.querySelector('#order');
            const times = [];
            (async () => {{
                for (let round = 0; round < 10; round++) {{
                    const begun = performance.now();
                    {action};
                    await new Promise(resolve => requestAnimationFrame(() => setTimeout(resolve)));
                    times.push(performance.now() - begun);
                }}
                done(times);
            }})()"
        ));
        let mut times: Vec<f64> = serde_json::from_value(times).unwrap();
        times.sort_by(f64::total_cmp);
        times
    };
    let mut report = format!("10,000 colors: shown {shown:.0} ms");
    for (what, action) in [
        ("search", "field.value = `${round}9`; field.oninput()"),
        (
            "sort",
            "field.value = ''; order.value = ['hue', 'name', 'lightness'][round % 3]; order.onchange()",
        ),
        ("scroll a row", "scrollBy(0, 100)"),
        ("scroll far", "scrollTo(0, round * 9000)"),
    ] {
        let times = until_painted(action);
        report += &format!(", {what} {:.0} ms (worst {:.0})", times[5], times[9]);
        assert!(times[9] < LONGEST, "{report}");
    }
    figures(&report);
    assert!(shown < LONGEST, "{report}");
}
