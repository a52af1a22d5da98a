//! What a person does on the page: looks for a color, opens it, types, presses keys, drags. Knows
//! the page; `driver` knows the protocol.

use serde_json::{Value, json};

use crate::browser::driver::{Browser, ELEMENT};
use crate::common::harness::{DEADLINE, eventually, within};

/// Key codes (WebDriver §17.4.2).
pub(crate) const ALT: &str = "\u{e00a}";
pub(crate) const CONTROL: &str = "\u{e009}";
pub(crate) const TAB: &str = "\u{e004}";
pub(crate) const ENTER: &str = "\u{e007}";
pub(crate) const ESCAPE: &str = "\u{e00c}";
pub(crate) const END: &str = "\u{e010}";
pub(crate) const HOME: &str = "\u{e011}";
pub(crate) const LEFT: &str = "\u{e012}";
pub(crate) const RIGHT: &str = "\u{e014}";
pub(crate) const DOWN: &str = "\u{e015}";
pub(crate) const DELETE: &str = "\u{e017}";
pub(crate) const F2: &str = "\u{e032}";

/// The tile of a name, and of its number among those of that name.
const NTH_TILE: &str =
    "(name, nth) => $$('li').filter(li => li.querySelector('.name').textContent === name)[nth]";

/// A step of a pointer.
fn move_to(place: &Value) -> Value {
    json!({"type": "pointerMove", "x": place[0], "y": place[1], "duration": 0})
}

fn stroke((kind, key): (&str, &str)) -> Value {
    json!({"type": kind, "value": key})
}

impl Browser {
    /// The text of an element, without the marks around names and values in it.
    #[track_caller]
    pub(crate) fn text(&self, selector: &str) -> String {
        let text = self.run_with("return $(arguments[0]).textContent", &json!([selector]));
        text.as_str().unwrap().replace(['\u{2068}', '\u{2069}'], "")
    }

    #[track_caller]
    pub(crate) fn expect_text(&self, selector: &str, text: &str) {
        let has = r"const [selector, text] = arguments;
            return $(selector).textContent.replace(/[\u2068\u2069]/g, '') === text";
        let is_there = within(DEADLINE, || self.look(has, &json!([selector, text])));
        assert!(is_there.is_some(), "{selector} has {:?}, not {text:?}", self.text(selector));
    }

    /// The names in view, in the order of the page.
    #[track_caller]
    pub(crate) fn names(&self) -> Vec<String> {
        let names = self.run("return $$('li .name').map(name => name.textContent)");
        serde_json::from_value(names).unwrap()
    }

    /// Clicks an element as a person does: once it is seen, and it has to be on top.
    #[track_caller]
    pub(crate) fn click(&self, selector: &str) {
        self.click_on("$(arguments[0])", &json!([selector]));
    }

    #[track_caller]
    pub(crate) fn open_color(&self, name: &str) {
        self.open_nth_color(name, 0);
    }

    /// Opens a color where several have the name.
    #[track_caller]
    pub(crate) fn open_nth_color(&self, name: &str, nth: usize) {
        // tiles out of view come a moment after those in view
        self.click_on(&format!("({NTH_TILE})(...arguments)?.firstChild"), &json!([name, nth]));
        self.until("return $('#opened').open");
    }

    /// Opens the fields in which a color is changed, by key.
    #[track_caller]
    pub(crate) fn edit(&self, name: &str) {
        self.expect_controls();
        self.focus(name);
        self.press(&[F2]);
        self.expect_fields();
    }

    #[track_caller]
    pub(crate) fn change(&self, name: &str, value: &str) {
        self.edit(name);
        self.fill("#value", value);
        self.press(&[ENTER]);
        self.expect_text("#told", &format!("{name} is {value} now."));
    }

    #[track_caller]
    pub(crate) fn add(&self, name: &str, value: &str) {
        self.click("#add");
        self.type_text(name);
        self.fill("#value", value);
        self.press(&[ENTER]);
        self.expect_text("#told", &format!("Added {name} at the end."));
    }

    /// Deletes the color of a name by key.
    #[track_caller]
    pub(crate) fn delete(&self, name: &str) {
        self.focus(name);
        self.press(&[DELETE]);
        self.expect_text("#told", &format!("Deleted {name}."));
    }

    /// Takes the last change back by key.
    #[track_caller]
    pub(crate) fn undo(&self, change: &str) {
        self.press_with(CONTROL, "z");
        self.expect_text("#told", &format!("Undone: {change}"));
    }

    #[track_caller]
    pub(crate) fn value(&self, field: &str) -> Value {
        self.run_with("return $(arguments[0]).value", &json!([field]))
    }

    #[track_caller]
    pub(crate) fn expect_fields(&self) {
        self.until("return $('#opened').open && $('#fields').offsetParent");
    }

    #[track_caller]
    pub(crate) fn expect_closed(&self) {
        self.until("return !$('#opened').open");
    }

    #[track_caller]
    pub(crate) fn close(&self) {
        self.press(&[ESCAPE]);
        self.expect_closed();
    }

    /// Answers a question of the page, and gives it.
    #[track_caller]
    pub(crate) fn answer(&self, answer: &str) -> Value {
        let question = self.call("GET", "/alert/text", Value::Null);
        self.call("POST", &format!("/alert/{answer}"), json!({}));
        question
    }

    pub(crate) fn focus(&self, name: &str) {
        let script = format!("({NTH_TILE})(arguments[0], 0).firstChild.focus()");
        self.run_with(&script, &json!([name]));
    }

    /// Waits until a tile has the focus; a dialog gives it back a moment after it was closed.
    #[track_caller]
    pub(crate) fn expect_focus(&self, name: &str) {
        self.until(&format!("return document.activeElement.firstChild?.textContent === '{name}'"));
    }

    pub(crate) fn sort(&self, order: &str) {
        let choose = "const field = $('#order'); field.value = arguments[0]; field.onchange()";
        self.run_with(choose, &json!([order]));
    }

    /// Gives the page a file, as the dialog of the system does.
    #[track_caller]
    pub(crate) fn give_file(&self, path: &str) {
        let element = self.run("return $('#file')");
        let id = element[ELEMENT].as_str().expect("there is one");
        self.call("POST", &format!("/element/{id}/value"), json!({"text": path}));
    }

    /// Waits until it is shown what a file would change.
    #[track_caller]
    pub(crate) fn expect_comparison(&self, headline: &str) {
        self.until("return $('#incoming').open");
        self.expect_text("#becomes", headline);
    }

    /// Brings a file, to replace the list.
    #[track_caller]
    pub(crate) fn bring_to_replace(&self, path: &str, headline: &str) {
        self.give_file(path);
        self.until("return $('#incoming').open");
        self.click("#ways label:nth-of-type(2)");
        self.expect_comparison(headline);
    }

    #[track_caller]
    pub(crate) fn drag(&self, from: &str, to: &str) {
        let [from, to] = [from, to].map(|name| self.middle(name));
        let stray = json!({"type": "pointerMove", "origin": "pointer", "x": 9, "y": 9});
        self.press_button(&from, [stray, move_to(&to)]);
    }

    #[track_caller]
    pub(crate) fn middle(&self, name: &str) -> Value {
        let script = format!(
            "const {{x, y, width, height}} = ({NTH_TILE})(arguments[0], 0).getBoundingClientRect();
            return [x + width / 2, y + height / 2].map(Math.round)"
        );
        self.run_with(&script, &json!([name]))
    }

    /// Has a device act: `key` or `pointer`.
    #[track_caller]
    fn act(&self, device: &str, actions: impl IntoIterator<Item = Value>) {
        let actions: Vec<_> = actions.into_iter().collect();
        let device = json!({"type": device, "id": device, "actions": actions});
        self.call("POST", "/actions", json!({"actions": [device]}));
    }

    /// Presses the button of the mouse at a place, and releases it after these moves.
    #[track_caller]
    fn press_button(&self, place: &Value, moves: impl IntoIterator<Item = Value>) {
        let [down, up] =
            ["pointerDown", "pointerUp"].map(|kind| json!({"type": kind, "button": 0}));
        self.act("pointer", [move_to(place), down].into_iter().chain(moves).chain([up]));
    }

    #[track_caller]
    fn click_on(&self, element: &str, arguments: &Value) {
        let place = format!(
            "const element = {element};
            if (!element?.checkVisibility({{visibilityProperty: true}})) return false;
            element.scrollIntoView({{block: 'nearest', behavior: 'instant'}});
            const {{x, y, width, height}} = element.getBoundingClientRect();
            const place = [x + width / 2, y + height / 2].map(Math.round);
            return element.contains(document.elementFromPoint(...place)) && place"
        );
        // what a step before has changed is laid out in the next frame
        self.run("return new Promise(requestAnimationFrame)");
        let what = format!("{element} of {arguments} is seen and on top");
        let place = eventually(&what, || self.look(&place, arguments));
        self.press_button(&place, []);
    }

    /// Replaces what a field has.
    #[track_caller]
    pub(crate) fn fill(&self, selector: &str, text: &str) {
        let select = "const field = $(arguments[0]); field.focus(); field.select()";
        self.run_with(select, &json!([selector]));
        if text.is_empty() { self.press(&[DELETE]) } else { self.type_text(text) }
    }

    /// Types where the focus is: all at once, as an input method does. To press keys takes longer.
    #[track_caller]
    pub(crate) fn type_text(&self, text: &str) {
        self.devtools("Input.insertText", json!({"text": text}));
    }

    #[track_caller]
    pub(crate) fn press(&self, keys: &[&str]) {
        let strokes = keys.iter().flat_map(|key| [("keyDown", *key), ("keyUp", *key)]);
        self.act("key", strokes.map(stroke));
    }

    #[track_caller]
    pub(crate) fn press_with(&self, held: &str, key: &str) {
        let strokes = [("keyDown", held), ("keyDown", key), ("keyUp", key), ("keyUp", held)];
        self.act("key", strokes.map(stroke));
    }
}
