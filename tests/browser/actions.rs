//! What a person does on the page: looks for a color, opens it, types, presses keys, drags. Knows
//! the page; `driver` knows the protocol.

use serde_json::{Value, json};

use crate::browser::driver::{Browser, ELEMENT};
use crate::common::harness::{DEADLINE, within};

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

impl Browser {
    /// The text of an element.
    #[track_caller]
    pub(crate) fn text(&self, selector: &str) -> String {
        self.run_with("return $(arguments[0]).textContent", &json!([selector]))
            .as_str()
            .unwrap()
            .to_owned()
    }

    /// Waits until an element has this text.
    #[track_caller]
    pub(crate) fn expect_text(&self, selector: &str, text: &str) {
        let mut last = String::new();
        let is_there = within(DEADLINE, || {
            last = self.text(selector).replace(['\u{2068}', '\u{2069}'], "");
            (last == text).then_some(())
        });
        assert!(is_there.is_some(), "{selector} has {last:?}, not {text:?}");
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
        self.expect_seen(selector);
        self.click_on("return $(arguments[0])", &json!([selector]));
    }

    /// Opens a color.
    #[track_caller]
    pub(crate) fn open_color(&self, name: &str) {
        self.open_nth_color(name, 0);
    }

    /// The same where several colors have the name.
    #[track_caller]
    pub(crate) fn open_nth_color(&self, name: &str, nth: usize) {
        // tiles out of view come a moment after those in view
        self.until(&format!("return !!({NTH_TILE})({}, {nth})", json!(name)));
        self.click_on(
            &format!("const [name, nth] = arguments; return ({NTH_TILE})(name, nth).firstChild"),
            &json!([name, nth]),
        );
        self.until("return $('#opened').open");
    }

    /// Opens a color and the fields in which it is changed.
    #[track_caller]
    pub(crate) fn edit(&self, name: &str) {
        self.open_color(name);
        self.click("#change");
        self.expect_fields();
    }

    /// Changes the value of a color.
    #[track_caller]
    pub(crate) fn change(&self, name: &str, value: &str) {
        self.edit(name);
        self.fill("#value", value);
        self.press(&[ENTER]);
    }

    /// Deletes the color of a name by key.
    #[track_caller]
    pub(crate) fn delete(&self, name: &str) {
        self.focus(name);
        self.press(&[DELETE]);
        self.expect_text("#told", &format!("Deleted {name}."));
    }

    /// What a field has.
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

    /// Answers a question of the page, and gives it.
    #[track_caller]
    pub(crate) fn answer(&self, answer: &str) -> Value {
        let question = self.call("GET", "/alert/text", Value::Null);
        self.call("POST", &format!("/alert/{answer}"), json!({}));
        question
    }

    /// Puts the focus on the tile of a name.
    pub(crate) fn focus(&self, name: &str) {
        self.run_with(&format!("({NTH_TILE})(arguments[0], 0).firstChild.focus()"), &json!([name]));
    }

    /// Waits until a tile has the focus; a dialog gives it back a moment after it was closed.
    #[track_caller]
    pub(crate) fn expect_focus(&self, name: &str) {
        self.until(&format!("return document.activeElement.firstChild?.textContent === '{name}'"));
    }

    /// Shows the list in an order.
    pub(crate) fn sort(&self, order: &str) {
        self.run_with(
            "const field = $('#order'); field.value = arguments[0]; field.onchange()",
            &json!([order]),
        );
    }

    /// Gives the page a file, as the dialog of the system does.
    #[track_caller]
    pub(crate) fn give_file(&self, path: &str) {
        let element = self.run("return $('#file')");
        let id = element[ELEMENT].as_str().expect("there is one");
        self.call("POST", &format!("/element/{id}/value"), json!({"text": path}));
    }

    /// Drags one tile to where another one is.
    #[track_caller]
    pub(crate) fn drag(&self, from: &str, to: &str) {
        let middle = |name: &str| {
            let script = format!(
                "const {{x, y, width, height}} = ({NTH_TILE})(arguments[0], 0).getBoundingClientRect(); return [x + width / 2, y + height / 2]"
            );
            let place = self.run_with(&script, &json!([name]));
            [0, 1].map(|axis| place[axis].as_f64().unwrap().round())
        };
        let [[x, y], [end_x, end_y]] = [middle(from), middle(to)];
        let step = |x: f64, y: f64| json!({"type": "pointerMove", "x": x, "y": y, "duration": 0});
        let (down, up) = (
            json!({"type": "pointerDown", "button": 0}),
            json!({"type": "pointerUp", "button": 0}),
        );
        let actions = json!([step(x, y), down, step(x + 9.0, y + 9.0), step(end_x, end_y), up]);
        self.act("pointer", &actions);
    }

    /// Has a device act: `key` or `pointer`.
    #[track_caller]
    fn act(&self, device: &str, actions: &Value) {
        let device = json!({"type": device, "id": device, "actions": actions});
        self.call("POST", "/actions", json!({"actions": [device]}));
    }

    #[track_caller]
    fn click_on(&self, script: &str, arguments: &Value) {
        let element = self.run_with(script, arguments);
        let id = element[ELEMENT].as_str().unwrap_or_else(|| panic!("{arguments} is not there"));
        self.call("POST", &format!("/element/{id}/click"), json!({}));
    }

    /// Replaces what a field has by typing.
    #[track_caller]
    pub(crate) fn fill(&self, selector: &str, text: &str) {
        self.run_with(
            "const field = $(arguments[0]); field.focus(); field.select()",
            &json!([selector]),
        );
        self.press(&[DELETE]);
        self.type_text(text);
    }

    /// Types where the focus is.
    #[track_caller]
    pub(crate) fn type_text(&self, text: &str) {
        let keys: Vec<String> = text.chars().map(String::from).collect();
        self.press(&keys.iter().map(String::as_str).collect::<Vec<_>>());
    }

    /// Presses keys, one after the other.
    #[track_caller]
    pub(crate) fn press(&self, keys: &[&str]) {
        let actions: Vec<Value> = keys
            .iter()
            .flat_map(|key| {
                [json!({"type": "keyDown", "value": key}), json!({"type": "keyUp", "value": key})]
            })
            .collect();
        self.act("key", &json!(actions));
    }

    /// Presses a key while another one is held.
    #[track_caller]
    pub(crate) fn press_with(&self, held: &str, key: &str) {
        let actions = [("keyDown", held), ("keyDown", key), ("keyUp", key), ("keyUp", held)];
        let actions = actions.map(|(kind, value)| json!({"type": kind, "value": value}));
        self.act("key", &json!(actions));
    }
}
