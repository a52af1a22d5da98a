//! What a person changes on the page, and what the page says when that is refused.

use serde_json::{Value, json};

use crate::browser::actions::{DELETE, ENTER, ESCAPE, F2, RIGHT};
use crate::browser::driver::{Browsing, browse, browse_to, browse_to_change};
use crate::browser::tokens::CONTROLS;
use crate::browser::undoing::{hold, names_of};
use crate::common::harness::Server;

pub(super) const SEED: &str = r##"[{"name":"red","value":"#ff0000"},
    {"name":"ink","value":"#191970"},{"name":"red","value":"#ee0000"}]"##;

/// What the console says of a response with this status.
const FASTER: &str = "412 (Precondition Failed)";

fn open() -> Option<(Browsing, Server)> {
    browse_to_change(Server::with_seed(SEED, &[]))
}

#[test]
fn a_form_asks_before_it_loses_what_was_typed_and_wants_a_name_and_a_value() {
    let Some((browser, _server)) = open() else { return };
    browser.click("#add");
    let has_color = "return $('#picker').className";
    assert_eq!(browser.run(has_color), "ground", "as what is no color");
    let wants = "return [document.activeElement.id, document.activeElement.validity.valueMissing]";
    for (field, text) in [("name", "new"), ("value", "")] {
        browser.press(&[ENTER]);
        browser.expect_value(wants, json!([field, true]));
        browser.type_text(text);
    }
    // twice, as browsers themselves ask only once
    let leaves = "return dispatchEvent(new Event('beforeunload', {cancelable: true}))";
    for answer in ["dismiss", "dismiss", "accept"] {
        browser.expect_value(leaves, false);
        assert_eq!(browser.run("return $('#opened').open"), true);
        browser.press(&[ESCAPE]);
        assert_eq!(browser.answer(answer), "Discard what you typed?");
    }
    browser.expect_closed();
    browser.edit("ink");
    assert_eq!(browser.run(has_color), "");
    browser.expect_value(leaves, true);
    browser.fill("#value", "tan");
    browser.expect_value(leaves, false);
    browser.run("window.confirm = () => !(window.isAsked = !location.hash); history.back()");
    browser.until("return window.isAsked && location.hash");
    assert_eq!(browser.value("#value"), "tan");
    browser.fill("#value", "#191970");
    browser.close();
}

#[test]
fn a_color_is_saved_once_and_shown_where_the_search_hides_it() {
    let Some((browser, server)) = open() else { return };
    browser.fill("#query", "ink");
    hold(&browser, "POST");
    browser.click("#add");
    browser.type_text("sea");
    browser.fill("#value", "teal");
    browser.press(&[ENTER, ENTER]);
    browser.expect_text("#save", "Saving…");
    browser.until("return sent");
    browser.click("#cancel");
    browser.press(&[ESCAPE]);
    browser.expect_value("return $('#opened').open", true);
    browser.run("release()");
    browser.expect_closed();
    assert_eq!(names_of(&server), ["red", "ink", "red", "sea"]);
    browser.expect_focus("sea");
    assert_eq!(browser.value("#query"), "");
}

#[test]
fn a_value_is_changed_as_text_and_with_the_picker() {
    let Some((browser, server)) = open() else { return };
    browser.edit("ink");
    assert_eq!(browser.value("#value"), "#191970");
    browser.fill("#value", "midnightblue");
    browser.click("#save");
    browser.expect_closed();
    browser.expect_text("#told", "ink is midnightblue now.");
    server.ask("GET", "/colors/ink", "").expect_content(r#"{"name":"ink","value":"midnightblue"}"#);
    browser.until("return $('li:nth-child(2) .value').textContent === 'midnightblue'");

    browser.edit("ink");
    // the picker is a window of the system, which a test cannot reach; this is what it does
    let picks = "const picker = $('#picker'); picker.value = '#0b0b45'; picker.dispatchEvent(new Event('input'))";
    for (typed, picker, after) in
        [("rgb(1 2 3 / 50%)", "#010203", "#0b0b4580"), ("red", "#ff0000", "#0b0b45")]
    {
        browser.fill("#value", typed);
        assert_eq!(browser.value("#picker"), picker);
        browser.run(picks);
        assert_eq!(browser.value("#value"), after);
    }
    browser.click("#save");
    browser.expect_closed();
    server.ask("GET", "/colors/ink", "").expect_content(r##"{"name":"ink","value":"#0b0b45"}"##);
}

#[test]
fn somebody_who_was_faster_is_told_of_before_a_value_is_replaced() {
    let Some((browser, server)) = open() else { return };
    browser.expect(FASTER);
    hold(&browser, "PUT");
    browser.edit("ink");
    browser.fill("#value", "#111111");
    browser.click("#save");
    browser.until("return sent");
    server.ask("PUT", "/colors/ink", r##"{"value":"#222222"}"##);
    browser.run("release()");
    let refusal = "Somebody was faster: ink is #222222 now. Nothing was changed.";
    browser.expect_text("#refusal", refusal);
    assert_eq!(browser.value("#value"), "#111111", "what was typed stays");
    server.ask("GET", "/colors/ink", "").expect_content(r##"{"name":"ink","value":"#222222"}"##);
    browser.expect_text("#save", "Overwrite #222222");
    let above = "const [reason, save] = ['refusal', 'save'].map(id => document.getElementById(id));
        return save.getBoundingClientRect().top - reason.getBoundingClientRect().top - reason.scrollHeight";
    assert!((0.0..20.0).contains(&browser.run(above).as_f64().unwrap()), "the reason is above it");
    // what is seen before the click is asked about
    server.ask("PUT", "/colors/ink", r##"{"value":"#333333"}"##);
    browser.expect_text("#save", "Overwrite #333333");
    for answer in ["dismiss", "accept"] {
        browser.click("#save");
        let asked =
            "Somebody has changed \u{2068}ink\u{2069} to \u{2068}#333333\u{2069}. Overwrite that?";
        assert_eq!(browser.answer(answer), asked);
    }
    browser.expect_closed();
    server.ask("GET", "/colors/ink", "").expect_content(r##"{"name":"ink","value":"#111111"}"##);
}

#[test]
fn an_open_color_follows_the_changes_of_others() {
    let Some((browser, server)) = open() else { return };
    browser.open_color("ink");
    server.ask("PUT", "/colors/ink", r##"{"value":"#222222"}"##);
    browser.expect_text("#formats code", "#222222");
    server.ask("DELETE", "/colors/ink", "");
    browser.expect_text("#note", "Deleted elsewhere.");
    let buttons = "return ['delete', 'change', 'again'].filter(id => document.getElementById(id).checkVisibility()).join()";
    browser.press(&[F2, DELETE]);
    browser.expect_value(buttons, "again");
    browser.click("#again");
    browser.expect_text("#told", "Added ink at the end.");
    browser.expect_value(buttons, "delete,change");
    browser.expect_text("#refusal", "");
    assert!(server.list().ends_with(r##"{"name":"ink","value":"#222222"}]}"##));
    // the same while fields are open
    browser.click("#change");
    browser.fill("#value", "half ty");
    browser.expect_text("#note", "Not a CSS color. It is kept as text.");
    browser.fill("#value", "red");
    server.ask("PUT", "/colors/ink", r##"{"value":"#333333"}"##);
    browser.expect_text("#note", "Changed elsewhere: it is #333333 now.");
    server.ask("DELETE", "/colors/ink", "");
    browser.expect_text("#note", "Deleted elsewhere.");
    let typed = "const {id, value} = document.activeElement; return [id, value]";
    browser.expect_value(typed, json!(["value", "red"]));
    // and after an edit that is given up
    browser.click("#cancel");
    browser.expect_text("#note", "Deleted elsewhere.");
    browser.expect_value(buttons, "again");
    browser.press(&[RIGHT]);
    browser.expect_text("#title", "red");
}

#[test]
fn a_color_of_the_same_name_that_came_first_is_told_of() {
    let Some((browser, server)) = open() else { return };
    browser.click("#add");
    browser.type_text("new");
    browser.fill("#value", "#111111");
    browser.expect(FASTER);
    hold(&browser, "POST");
    browser.click("#save");
    browser.until("return sent");
    // another change of the list is no obstacle, this one is
    server.ask("PUT", "/colors/ink", r##"{"value":"#222222"}"##);
    server.ask("POST", "/colors", r##"{"name":"new","value":"#333333"}"##);
    browser.run("release()");
    let refusal = "Somebody was faster: there is 1 of this name now. Nothing was added.";
    browser.expect_text("#refusal", refusal);
    assert_eq!(server.list().matches(r#""new""#).count(), 1);
    browser.expect_text("#save", "Add one more");
    browser.click("#save");
    browser.expect_closed();
    let end = r##"{"name":"new","value":"#333333"},{"name":"new","value":"#111111"}]}"##;
    assert!(server.list().ends_with(end));
}

#[test]
fn of_two_colors_with_the_same_name_either_is_changed_and_says_which_it_is() {
    let Some((browser, server)) = open() else { return };
    let marks = browser.run("return $$('li .open span').map(mark => mark.textContent)");
    assert_eq!(marks, json!(["1 of 2", "", "2 of 2"]));
    browser.open_nth_color("red", 1);
    let first = "Programs that ask by name get the first.";
    browser.expect_text("#note", &format!("Number 2 of 2 with this name. {first}"));
    browser.click("#change");
    browser.fill("#value", "#dd0000");
    browser.press(&[ENTER]);
    browser.expect_text("#told", "red is #dd0000 now.");
    assert!(server.list().ends_with(r##",{"name":"red","value":"#dd0000"}]}"##));
    browser.open_nth_color("red", 0);
    browser.click("#delete");
    browser.expect_text("#count", "2 colors");
    browser.expect_text("#told", "Deleted red.");
    let left = r##"{"data":[{"name":"ink","value":"#191970"},{"name":"red","value":"#dd0000"}]}"##;
    assert_eq!(server.list(), left);
    browser.until("return $('li:last-child .open span').textContent === ''");
    browser.click("#add");
    browser.type_text("ink");
    browser.expect_text("#note", &format!("There is one of this name already. {first}"));
}

#[test]
fn a_color_is_renamed_where_it_is_and_keeps_its_value() {
    let Some((browser, server)) = open() else { return };
    browser.open_color("ink");
    browser.click("#rename");
    browser.type_text("sea & <sky>");
    browser.press(&[ENTER]);
    browser.expect_text("#told", "Renamed ink to sea & <sky>.");
    browser.expect_closed();
    assert_eq!(browser.names(), ["red", "sea & <sky>", "red"]);
    assert!(server.list().contains(r##"},{"name":"sea & <sky>","value":"#191970"},{"##));
    browser.undo("Renamed ink to sea & <sky>.");
    assert!(server.list().contains(r##"},{"name":"ink","value":"#191970"},{"##));
    // in a list that somebody has changed meanwhile
    browser.expect(FASTER);
    hold(&browser, "PUT");
    browser.edit("ink");
    browser.fill("#name", "sea");
    browser.press(&[ENTER]);
    browser.until("return sent");
    server.ask("POST", "/colors", r##"{"name":"new","value":"#333333"}"##);
    browser.run("release()");
    browser.expect_text("#told", "Renamed ink to sea. The list had changed meanwhile.");
    assert_eq!(browser.names(), ["red", "sea", "red", "new"]);
    assert_eq!(names_of(&server), ["red", "sea", "red", "new"]);
}

#[test]
fn refusals_are_shown_in_the_words_of_the_service() {
    let server = Server::with_seed(SEED, &["--max-body", "100"]);
    let Some((browser, server)) = browse_to(server) else { return };
    browser.expect("413 (Content Too Large)");
    browser.edit("ink");
    let value = "x".repeat(101);
    browser.fill("#value", &value);
    browser.click("#save");
    let message = server.ask("PUT", "/colors/ink", &format!(r#"{{"value":"{value}"}}"#)).message();
    browser.expect_text("#refusal", &message);
}

#[test]
fn a_read_only_service_shows_no_controls() {
    let server = Server::with_seed(SEED, &["--read-only"]);
    let Some((browser, _server)) = browse_to(server) else { return };
    browser.expect_seen("#readOnly");
    browser.open_color("ink");
    assert_eq!(browser.run(CONTROLS), 0);
    browser.press(&[F2, DELETE, "C"]);
    browser.expect_text("#said", "Copied #191970");
    assert_eq!(browser.run("return $('#fields').offsetParent"), Value::Null);
    browser.press(&[ESCAPE, F2, DELETE]);
    browser.expect_text("#told", "This list is read-only.");
    assert_eq!(browser.run("return $('#opened').open"), false);
    let _server = browser.show(Server::with_seed(SEED, &[]));
    browser.until(CONTROLS);
}

#[test]
fn a_copy_says_of_which_list_it_is_one_and_that_it_may_be_old() {
    let Some(browser) = browse() else { return };
    let writer = Server::with_seed(SEED, &[]);
    let address = writer.address.to_string();
    let url = format!("http://{address}");
    browser.expect("503 (Service Unavailable)");
    let _copy = browser.show(Server::start(&["--follow", &url]));
    browser.expect_text("#readOnly", &format!("Follows {url}, read-only"));
    assert_eq!(browser.run(CONTROLS), 0);
    browser.focus("red");
    browser.press(&[DELETE]);
    browser.expect_text("#told", "This is a copy.");
    writer.ask("DELETE", "/colors/ink", "").expect_status(200);
    browser.expect_text("#count", "2 colors");
    drop(writer);
    let begin = format!("This copy may be old: cannot follow {url} since ");
    browser.until(&format!("return $('#away').textContent.startsWith('{begin}')"));
    let _writer = Server::start(&["--listen", &address]);
    browser.expect_text("#away", "");
}
