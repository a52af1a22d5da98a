//! The page in browsers that lack what came in the last three years, or refuse what they have.
//!
//! Chromium is made to look like Chromium 109 by taking functions away. No test runs in Safari, in
//! Firefox, or in a Chromium that old: what their style sheets lack is not seen here.

use crate::browser::actions::ESCAPE;
use crate::browser::changing::SEED;
use crate::browser::driver::browse;
use crate::common::harness::Server;

/// What Safari 16, Firefox 115 or Chromium 109 lack of what a script can use, and what a browser
/// may refuse to a page.
const TAKEN: &str = "
    delete AbortSignal.any;
    delete Map.groupBy;
    delete Object.groupBy;
    delete Promise.withResolvers;
    for (const name of ['toSorted', 'toSpliced', 'toReversed', 'with']) delete Array.prototype[name];
    for (const name of ['hidePopover', 'showPopover', 'togglePopover']) delete HTMLElement.prototype[name];
    delete URLSearchParams.prototype.size;
    const supports = CSS.supports;
    CSS.supports = (name, value) => !/from|light-dark/.test(value) && supports.call(CSS, name, value);
    for (const name of ['sessionStorage', 'localStorage']) Object.defineProperty(window, name, {get() { throw new DOMException('refused', 'SecurityError') }});
    window.BroadcastChannel = function () { throw new DOMException('refused', 'SecurityError') };";

#[test]
fn the_page_works_without_what_is_younger_than_three_years_and_without_storage() {
    let Some(browser) = browse() else { return };
    browser.on_each_page(TAKEN);
    let server = browser.show(Server::with_seed(SEED, &[]));
    browser.expect_controls();
    browser.add("sea", "oklch(70% 0.2 150)");
    browser.open_color("sea");
    browser.expect_text("#formats :nth-child(2) code", "#00bf54");
    browser.press(&[ESCAPE]);
    browser.change("red", "rgb(1 2 3 / 50%)");
    browser.delete("sea");
    browser.undo("Deleted sea.");
    browser.fill("#query", "ink");
    browser.until("return location.hash === '#q=ink'");
    browser.fill("#query", "");
    for button in ["#saveCss", "#saveJson"] {
        browser.click("#more");
        browser.expect_seen(button);
        browser.click("#more");
        browser.until(&format!("return !$('{button}').checkVisibility()"));
    }
    let paste = "const data = new DataTransfer(); data.setData('text/plain', 'x,y,hex\\na,b,#fff');
        document.body.dispatchEvent(new ClipboardEvent('paste', {clipboardData: data, bubbles: true}))";
    browser.run(paste);
    browser.expect_text("#becomes", "4 colors become 5");
    browser.click("#replace");
    browser.expect_text("#told", "Added 1 color.");
    server.ask("DELETE", "/colors/ink", "");
    browser.expect_text("#count", "4 colors");
}

#[test]
fn a_browser_that_is_too_old_is_told_what_the_page_needs() {
    let Some(browser) = browse() else { return };
    let server = Server::start(&["--base-path", "/api"]);
    // as the script ends there, or later
    for taken in ["window.ResizeObserver = undefined", "window.URLSearchParams = undefined"] {
        browser.expect("is not a");
        browser.expect("undefined");
        let script = browser.on_each_page(taken);
        browser.go_without_waiting(&format!("http://{}/api", server.address));
        browser.expect_seen("#needs");
        let text = "This page needs Chromium 109, Firefox 115 or Safari 16, or a later one. The list without it: /api/colors";
        assert_eq!(browser.text("#needs"), text);
        browser.expect_value("return $('#needs a').getAttribute('href')", "/api/colors");
        browser.devtools("Page.removeScriptToEvaluateOnNewDocument", script);
    }
}
