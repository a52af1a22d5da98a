//! A list in etcd (`--data etcd://`): what services that share it see of each other, and what they
//! say of an etcd that has no room, or something else at the key.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread;

use crate::common::etcd::Etcd;
use crate::common::harness::{Scratch, Server, colors, run, stored, wait_until};
use crate::wire::durable::fail;
use crate::wire::waiting::wait_on;

pub(super) const SEED: &str = r##"[{"name":"red","value":"#f00"}]"##;
const LIST: &str = r##"{"data":[{"name":"red","value":"#f00"}]}"##;

#[track_caller]
pub(super) fn wait_until_well(server: &Server) {
    wait_until("it is well", || server.ask("GET", "/health", "").status == 200);
}

/// Waits until the service says this of why it is not well.
#[track_caller]
pub(super) fn wait_until_unwell(server: &Server, reason: &str) {
    wait_until(reason, || {
        let health = server.ask("GET", "/health", "");
        health.status == 503 && health.content.contains(reason)
    });
}

/// Has etcd forget all values of before.
pub(super) fn compact(etcd: &Etcd) {
    let status = etcd.etcdctl(&["endpoint", "status", "--write-out=fields"]);
    let revision = status.lines().find_map(|line| line.strip_prefix("\"Revision\" : "));
    etcd.etcdctl(&["compact", "--physical", revision.unwrap()]);
}

/// Passes on to etcd what a client sends, if `passes` says so, and all that etcd answers.
pub(super) fn pass_on(mut client: TcpStream, etcd: SocketAddr, passes: impl Fn(&[u8]) -> bool) {
    let mut upstream = TcpStream::connect(etcd).unwrap();
    let mut answers = (upstream.try_clone().unwrap(), client.try_clone().unwrap());
    thread::spawn(move || std::io::copy(&mut answers.0, &mut answers.1));
    let mut bytes = [0; 4096];
    while let Ok(length @ 1..) = client.read(&mut bytes) {
        if passes(&bytes[..length]) {
            // The service sees what comes of it.
            let _ = upstream.write_all(&bytes[..length]);
        }
    }
}

#[test]
fn two_first_starts_at_once_make_one_list() {
    let Some(etcd) = Etcd::start(1) else { return };
    for round in 0..3 {
        let url = etcd.url(&format!("round/{round}"));
        let start = |name: &str| {
            Server::with_data(&format!(r#"[{{"name":"{name}","value":""}}]"#), &url, &[])
        };
        let servers = thread::scope(|scope| {
            let starts = ["a", "b"].map(|name| scope.spawn(move || start(name)));
            starts.map(|start| start.join().unwrap())
        });
        assert_eq!(servers[0].list(), servers[1].list());
        // No service knows that it has made it if etcd has answered late.
        let made = servers.iter().filter(|server| server.log().contains("was made now")).count();
        assert!(made <= 1, "{made}");
    }
}

#[test]
fn a_change_is_told_to_who_waits_at_another_service() {
    let Some(etcd) = Etcd::start(1) else { return };
    let url = etcd.url("colors");
    let one = Server::with_data(SEED, &url, &[]);
    let other = Server::with_data("[]", &url, &["--read-only"]);
    assert!(other.log().contains("which was there: --seed is not read"), "{}", other.log());
    let mut list = wait_on(&other, "GET", "/colors");
    let mut red = wait_on(&other, "GET", "/colors/red");
    one.ask("POST", "/colors", r#"{"name":"a","value":"1"}"#).expect_status(201);
    let changed = r##"{"data":[{"name":"red","value":"#f00"},{"name":"a","value":"1"}]}"##;
    list.response().expect(200, changed);
    // The other waits for another color, and is answered with that.
    one.ask("PUT", "/colors/red", r#"{"value":"2"}"#).expect_status(200);
    red.response().expect(200, r#"{"name":"red","value":"2"}"#);
    other.ask("DELETE", "/colors/a", "").expect_status(405);
    for list in ["[]", SEED] {
        one.ask("PUT", "/colors", list).expect_status(200);
        let list = format!("{{\"data\":{list}}}");
        wait_until("the list is there", || other.list() == list);
    }
    let entries = || etcd.etcdctl(&["get", "--prefix", "--keys-only", "colors/log/"]).len();
    let before = entries();
    assert_eq!(stored(&url), LIST);
    let check = run(&mut colors(&["--check", "--data", &url]));
    assert_eq!(check.1, format!("the options are fine: 1 color kept in {url}\n"));
    Server::with_data("[]", &url, &["--read-only"]).stop();
    assert_eq!(entries(), before, "a start that may not write puts no fence");
    Server::with_data("[]", &url, &[]).stop();
    assert!(entries() > before, "one that may puts a fence");
    assert!(one.ask("GET", "/health", "").content.contains(r#""saved":""#));
    wait_until("all saves are counted", || one.metric("colors_saves_total") == 4.0);
    one.stop();
    other.stop();
}

#[test]
fn a_key_may_be_that_of_the_log_of_another_list() {
    let Some(etcd) = Etcd::start(1) else { return };
    let one = Server::with_data(SEED, &etcd.url("colors"), &[]);
    let other = Server::with_data("[]", &etcd.url("colors/log"), &[]);
    for server in [&one, &other] {
        server.ask("POST", "/colors", r#"{"name":"a","value":"1"}"#).expect_status(201);
    }
    assert_eq!(stored(&etcd.url("colors")), one.list());
    assert_eq!(stored(&etcd.url("colors/log")), other.list());
}

#[test]
fn what_does_not_fit_into_etcd_is_refused_alone() {
    let Some(etcd) = Etcd::start(1) else { return };
    let url = etcd.url("colors");
    let server = Server::with_data("[]", &url, &["--max-body", "4M"]);
    let long = format!(r#"{{"name":"long","value":"{}"}}"#, "x".repeat(700_000));
    let list = format!("[{long},{long}]");
    let message = "the list would become longer than its storage takes";
    server.ask("POST", "/colors", &long).expect_status(201);
    server.ask("POST", "/colors", &long).expect_message(507, message);
    server.ask("PUT", "/colors", &list).expect_message(507, message);
    server.ask("POST", "/colors", r#"{"name":"a","value":"1"}"#).expect_status(201);
    server.ask("GET", "/health", "").expect_status(200);
    // Edits of the same color count once.
    for value in ["y", "z"] {
        let content = format!(r#"{{"value":"{}"}}"#, value.repeat(700_000));
        server.ask("PUT", "/colors/long", &content).expect_status(200);
    }
    server.ask("PUT", "/colors", SEED).expect_status(200);
    assert_eq!(stored(&url), LIST);
    let scratch = Scratch::new();
    let seed = scratch.write("seed.json", list);
    let error = fail(&["--seed", &seed, "--data", &etcd.url("other")]);
    assert!(error.contains("etcd takes lists of at most some 1350000 bytes"), "{error}");
}

#[test]
fn an_etcd_without_room_refuses_changes_until_there_is_some() {
    let Some(etcd) = Etcd::start_with(1, &["--quota-backend-bytes=2000000"]) else { return };
    let server = Server::with_data(SEED, &etcd.url("colors"), &[]);
    let other = Server::with_data(SEED, &etcd.url("other"), &[]);
    let message =
        "the change could not be saved: etcd has no room; /health and the log say what to do";
    wait_until("etcd is full", || {
        let value = "x".repeat(200_000);
        let change = format!(r#"{{"value":"{value}{}"}}"#, fastrand::u64(..));
        let response = other.ask("PUT", "/colors/red", &change);
        response.status == 500 && response.message() == message
    });
    drop(other);
    server.ask("DELETE", "/colors/red", "").expect_message(500, message);
    wait_until_unwell(&server, "changes cannot be saved: etcd has no room: compact");
    // The service tries to save each second, and is not well meanwhile.
    let failures = || server.metric("colors_save_failures_total");
    let before = failures();
    wait_until("it fails again", || failures() > before + 1.0);
    server.ask("GET", "/health", "").expect_status(503);
    etcd.etcdctl(&["del", "--prefix", "other/"]);
    // as docs/replicas.md says
    compact(&etcd);
    etcd.etcdctl(&["defrag"]);
    etcd.etcdctl(&["alarm", "disarm"]);
    wait_until_well(&server);
    assert_eq!(server.list(), LIST);
    server.ask("DELETE", "/colors/red", "").expect_status(200);
}

#[test]
fn what_somebody_has_put_by_hand_is_said_and_never_taken() {
    let Some(etcd) = Etcd::start(1) else { return };
    let url = etcd.url("colors");
    let server = Server::with_data(SEED, &url, &[]);
    let next = "colors/log/0000000000000001";
    for value in ["", "{}", r#"{"format":1,"id":"","is_snapshot":false,"edits":[[7]]}"#] {
        etcd.etcdctl(&["put", next, value]);
        let refused = server.ask("DELETE", "/colors/red", "");
        assert!(refused.message().contains("what etcd has in place of the list"), "{refused:?}");
        let said = format!("changes cannot be saved: {next} in etcd is not what colors puts there");
        wait_until_unwell(&server, &said);
        assert!(fail(&["--data", &url]).contains(&format!("{next} in etcd is not what")));
        etcd.etcdctl(&["del", next]);
        wait_until_well(&server);
    }
    etcd.etcdctl(&["put", next, r#"{"format":2}"#]);
    let newer = "a newer version of colors has saved the list in etcd";
    assert!(fail(&["--data", &url]).contains(newer));
    etcd.etcdctl(&["del", next]);
    // A running service has the list, and writes the snapshot anew when it is due. A start does not.
    let other = r#"{"format":1,"number":0,"colors":[]}"#;
    for (command, key) in [
        (&["put", "colors/list", "x"][..], "colors/list"),
        // It is not that of the entry of its number.
        (&["put", "colors/list", other], "colors/log/0000000000000000"),
        (&["del", "colors/list"], "colors/list"),
    ] {
        etcd.etcdctl(command);
        for mode in [&["--data", &url][..], &["--data", &url, "--check"]] {
            let said = fail(mode);
            assert!(said.contains(&format!("{key} in etcd is not what colors puts")), "{said}");
        }
    }
    // It may still learn that there was an entry of a later version.
    wait_until("a change is made", || {
        server.ask("PUT", "/colors/red", r#"{"value":"1"}"#).status == 200
    });
}
