//! Moving colors: by key, with the mouse and by touch, and what happens when somebody else changes
//! the list meanwhile.

use serde_json::json;

use crate::browser::actions::{ALT, RIGHT};
use crate::browser::undoing::{hold, names_of, open};

#[test]
fn alt_and_arrow_keys_move_a_color_in_one_change_and_undo_moves_it_back() {
    let Some((browser, server)) = open() else { return };
    // the color rests when the test says so, however long the presses take
    browser.run("const set = setTimeout; window.setTimeout = (action, time) => time === 500 ? window.rest = action : set(action, time)");
    browser.focus("red");
    for _ in 0..3 {
        browser.press_with(ALT, RIGHT);
    }
    assert_eq!(browser.names(), ["ink", "lime", "snow", "red", "gold"], "at once");
    browser.run("rest()");
    browser.expect_text("#told", "Moved red to place 4.");
    assert_eq!(browser.text("#said"), "", "it is read out once");
    assert_eq!(names_of(&server), ["ink", "lime", "snow", "red", "gold"]);
    let log = server.log_when("it is logged", |log| log.contains(" PUT "));
    assert_eq!(log.matches(" PUT ").count(), 1, "{log}");
    browser.expect_focus("red");
    browser.undo("Moved red to place 4.");
    assert_eq!(names_of(&server), ["red", "ink", "lime", "snow", "gold"]);
    // taken back before it was sent
    browser.press_with(ALT, RIGHT);
    browser.undo("Moved red to place 2.");
    assert_eq!(names_of(&server), ["red", "ink", "lime", "snow", "gold"]);
}

#[test]
fn a_tile_is_dragged_to_where_another_one_is_unless_the_order_is_not_that_of_the_list() {
    let Some((browser, server)) = open() else { return };
    browser.drag("gold", "ink");
    browser.expect_text("#told", "Moved gold to place 2.");
    assert_eq!(browser.names(), ["red", "gold", "ink", "lime", "snow"]);
    assert_eq!(names_of(&server), ["red", "gold", "ink", "lime", "snow"]);
    // a drag is no click
    browser.expect_closed();
    browser.click("#takeBack");
    browser.expect_text("#told", "Undone: Moved gold to place 2.");
    assert_eq!(names_of(&server), ["red", "ink", "lime", "snow", "gold"]);
    browser.sort("hue");
    browser.focus("red");
    browser.press_with(ALT, RIGHT);
    browser.expect_text("#told", "To move colors, sort by list order.");
    browser.sort("list");
    browser.fill("#query", "e");
    browser.drag("red", "lime");
    browser.expect_text("#told", "To move colors, clear the search.");
    assert_eq!(names_of(&server), ["red", "ink", "lime", "snow", "gold"]);
}

#[test]
fn a_tile_that_is_touched_moves_once_it_is_held() {
    let Some((browser, server)) = open() else { return };
    browser.resize_as(390, 844, true);
    let touch = |kind: &str, points: &serde_json::Value| {
        browser.devtools("Input.dispatchTouchEvent", json!({"type": kind, "touchPoints": points}));
    };
    let [from, to] = ["red", "gold"].map(|name| browser.middle(name));
    let [from, to] = [from, to].map(|place| json!([{"x": place[0], "y": place[1]}]));
    touch("touchStart", &from);
    browser.until("return $('.carried')");
    touch("touchMove", &to);
    browser.until("return $('li:last-child .name').textContent === 'red'");
    touch("touchEnd", &json!([]));
    browser.expect_text("#told", "Moved red to place 5.");
    assert_eq!(names_of(&server), ["ink", "lime", "snow", "gold", "red"]);
}

#[test]
fn a_move_goes_beside_the_same_neighbor_in_a_list_that_has_changed_unless_the_color_has_gone() {
    let Some((browser, server)) = open() else { return };
    browser.expect("412 (Precondition Failed)");
    // somebody deletes a color before the service is told
    let move_and_delete = |moved: &str, deleted: &str| {
        hold(&browser, "PUT");
        browser.focus(moved);
        browser.press_with(ALT, RIGHT);
        browser.until("return sent");
        server.ask("DELETE", &format!("/colors/{deleted}"), "").expect_status(200);
    };
    move_and_delete("ink", "red");
    server.ask("POST", "/colors", r##"{"name":"new","value":"#333333"}"##);
    browser.run("release()");
    browser.expect_text("#told", "Moved ink to place 3. The list had changed meanwhile.");
    assert_eq!(names_of(&server), ["lime", "ink", "snow", "gold", "new"]);
    browser.undo("Moved ink to place 3.");
    assert_eq!(names_of(&server), ["ink", "lime", "snow", "gold", "new"]);
    move_and_delete("lime", "lime");
    browser.run("release()");
    browser
        .expect_text("#told", "Somebody was faster: lime is no longer there. Nothing was changed.");
    assert_eq!(browser.names(), ["ink", "snow", "gold", "new"]);
    assert_eq!(names_of(&server), ["ink", "snow", "gold", "new"]);
}
