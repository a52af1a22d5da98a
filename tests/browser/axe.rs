//! What axe-core finds on the page, with its dialogs and in both schemes: nothing.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::browser::actions::{ESCAPE, F2};
use crate::browser::driver::{Browser, browse};
use crate::common::harness::{Scratch, Server, is_installed};

/// The version of axe-core that the findings are those of.
const AXE: &str = "axe-core@4.14.1";

#[test]
fn axe_finds_nothing_serious() {
    if !is_installed("npm") {
        return;
    }
    let Some(browser) = browse() else { return };
    let axe = axe();
    let scratch = Scratch::new();
    let file = scratch.write("new.json", r#"[{"name":"red","value":"red"}]"#);
    // of the 148 colors, each with its contrast; of a list of few, the dialogs as well
    let full = Server::start(&[]);
    let seed = r##"[{"name":"red","value":"#ff0000"},{"name":"red","value":"#00ff0080"},{"name":"","value":"no color"}]"##;
    let few = Server::with_seed(seed, &[]);
    // all of it, and of the other scheme what depends on that
    for (scheme, rules) in [("light", json!({})), ("dark", json!({"runOnly": ["color-contrast"]}))]
    {
        browser.prefer("prefers-color-scheme", scheme);
        let check = |what: &str| check(&browser, &rules, what);
        for server in [&full, &few] {
            browser.open(server);
            browser.expect_controls();
            browser.run("$('li .open').focus()");
            browser.press(&["c"]);
            browser.run(&axe);
            check("the list");
        }
        browser.click("#more");
        check("the menu");
        browser.press(&[ESCAPE]);
        browser.click("#showHelp");
        check("help");
        browser.press(&[ESCAPE]);
        browser.click("#add");
        check("adding");
        browser.press(&[ESCAPE]);
        for tile in ["li .open", "li:last-child .open"] {
            browser.click(tile);
            check("a color");
            browser.press(&[F2]);
            browser.expect_fields();
            check("changing");
            browser.press(&[ESCAPE]);
        }
        browser.give_file(&file);
        browser.until("return $('#incoming').open");
        check("a file");
        browser.press(&[ESCAPE]);
        browser.run("$('#asked').textContent = 'Changes need a token'; $('#asking').showModal()");
        check("the token");
    }
}

/// Runs axe, which has to find nothing.
#[track_caller]
fn check(browser: &Browser, rules: &Value, what: &str) {
    let run = "return axe.run(arguments[0]).then(({violations}) => violations.map(({id, impact, nodes}) => [id, impact, nodes[0].html]))";
    assert_eq!(browser.run_with(run, &json!([rules])), json!([]), "{what}");
}

/// The script of axe-core, from npm.
fn axe() -> String {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(AXE);
    let script = folder.join("node_modules/axe-core/axe.min.js");
    if !script.exists() {
        // beside it first, so that nobody finds half of it
        let beside = Scratch::new();
        let mut npm = Command::new("npm");
        npm.args(["install", "--silent", "--no-save", AXE, "--prefix"]).arg(&beside.0);
        assert!(npm.status().unwrap().success(), "npm installs {AXE}");
        // Another test may have been faster, with the same.
        let _ = fs::rename(&beside.0, &folder);
    }
    fs::read_to_string(script).unwrap()
}
