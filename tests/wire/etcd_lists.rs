//! Which list it is, where several etcds are named, or one was emptied or restored: no change goes to
//! another list than the one that was read.

use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Instant;

use rustix::process::Signal;

use crate::common::etcd::Etcd;
use crate::common::harness::{DEADLINE, Scratch, Server, stored, wait_until};
use crate::wire::durable::fail;
use crate::wire::etcd::{SEED, compact, pass_on, wait_until_unwell, wait_until_well};

const COLOR: &str = r#"{"name":"a","value":""}"#;

/// Two etcds of one member each that have the same cluster id, and a URL that names both.
fn two_clusters() -> Option<([Etcd; 2], String)> {
    // The id is made of these.
    let [own, all] = ["--initial-advertise-peer-urls", "--initial-cluster"];
    let same = [own, "http://localhost:1", all, "m0=http://localhost:1"];
    let etcds = [Etcd::start_with(1, &same)?, Etcd::start_with(1, &same)?];
    let both = format!("etcd://{},{}/colors", etcds[0].member(0), etcds[1].member(0));
    Some((etcds, both))
}

#[test]
fn members_that_have_different_lists_are_refused_by_a_start_and_by_a_check() {
    let Some((etcds, both)) = two_clusters() else { return };
    let reason = format!(
        "cannot use {both}: {} and {} do not have the same list: name the members of one etcd",
        etcds[0].member(0),
        etcds[1].member(0)
    );
    let refuse = |extra: &[&str]| {
        let error = fail(&[&["--data", &both], extra].concat());
        assert!(error.contains(&reason), "{error}");
    };
    // neither has one: only the first of them gets it
    refuse(&[]);
    assert_eq!(etcds[1].etcdctl(&["get", "--prefix", "colors/"]), "");
    refuse(&["--check"]);
    // each has one
    let other = Server::with_data(SEED, &etcds[1].url("colors"), &[]);
    refuse(&[]);
    refuse(&["--check"]);
    assert_eq!(stored(&etcds[1].url("colors")), other.list());
}

#[test]
fn a_member_with_another_list_gets_no_change() {
    let Some((mut etcds, both)) = two_clusters() else { return };
    // The last entries of both have the same number and the same revision.
    let there = Server::with_data(SEED, &etcds[1].url("colors"), &[]);
    there.ask("POST", "/colors", r#"{"name":"b","value":""}"#).expect_status(201);
    let other_list = there.list();
    there.stop();
    etcds[1].kill(0);
    let server = Server::with_data(SEED, &both, &[]);
    server.ask("POST", "/colors", COLOR).expect_status(201);
    etcds[1].start_member(0);
    etcds[1].wait_until_healthy(0);
    etcds[0].kill(0);
    let reason = format!("etcd has another list: {}", etcds[0].member(0));
    let said = format!("{} has another list; name the members", etcds[1].member(0));
    let message =
        "the change was not made: etcd has another list; /health and the log say what to do";
    wait_until("it is refused", || {
        let refused = server.ask("DELETE", "/colors/red", "");
        refused.status == 503 && refused.message() == message
    });
    wait_until_unwell(&server, &reason);
    wait_until_unwell(&server, &said);
    assert_eq!(stored(&etcds[1].url("colors")), other_list);
    let list = r##"{"data":[{"name":"red","value":"#f00"},{"name":"a","value":""}]}"##;
    assert_eq!(server.list(), list);
    etcds[0].start_member(0);
    wait_until_well(&server);
    server.ask("DELETE", "/colors/red", "").expect_status(200);
    assert_eq!(stored(&etcds[0].url("colors")), server.list());
    assert!(server.stop().contains("[ERROR] changes cannot be saved: etcd has another list"));
}

#[test]
fn an_etcd_that_was_emptied_has_another_list_once_that_is_made_anew() {
    let Some(etcd) = Etcd::start(1) else { return };
    let url = etcd.url("colors");
    let server = Server::with_data(SEED, &url, &[]);
    server.ask("POST", "/colors", COLOR).expect_status(201);
    let list = server.list();
    etcd.etcdctl(&["del", "--prefix", "colors/"]);
    let message = "the change was not made: etcd has no list; /health and the log say what to do";
    wait_until("a change is refused", || server.ask("DELETE", "/colors/a", "").status == 503);
    server.ask("DELETE", "/colors/a", "").expect_message(503, message);
    let missing = fail(&["--dump", "--data", &url]);
    assert!(missing.contains("etcd has no list there"), "{missing}");
    let other = Server::with_data("[]", &url, &[]);
    wait_until_unwell(&server, &format!("{} has another list", etcd.member(0)));
    other.ask("POST", "/colors", COLOR).expect_status(201);
    server.ask("DELETE", "/colors/a", "").expect_status(503);
    assert_eq!(server.list(), list);
    server.stop();
    let again = Server::start(&["--data", &url]);
    assert_eq!(again.list(), other.list());
    again.ask("DELETE", "/colors/a", "").expect_status(200);
    wait_until("both are one list", || other.list() == again.list());
}

#[test]
fn an_etcd_that_was_restored_has_an_older_list_also_once_that_was_changed() {
    let Some(mut etcd) = Etcd::start(1) else { return };
    let url = etcd.url("colors");
    let server = Server::with_data(SEED, &url, &[]);
    let scratch = Scratch::new();
    let snapshot = scratch.file("snapshot");
    etcd.etcdctl(&["snapshot", "save", &snapshot]);
    server.ask("POST", "/colors", COLOR).expect_status(201);
    let list = server.list();
    etcd.restore(&snapshot);
    wait_until("a change is refused", || server.ask("DELETE", "/colors/a", "").status == 503);
    wait_until_unwell(&server, "has an older list");
    // Its fence has the number and the revision of the change that is lost.
    let again = Server::start(&["--data", &url]);
    assert_eq!(again.list(), r##"{"data":[{"name":"red","value":"#f00"}]}"##);
    wait_until_unwell(&server, "has another list");
    server.ask("DELETE", "/colors/a", "").expect_status(503);
    assert_eq!(server.list(), list);
    again.ask("DELETE", "/colors/red", "").expect_status(200);
    wait_until_unwell(&server, "has another list");
}

#[test]
fn a_log_that_is_cut_while_a_start_reads_it_is_read_anew() {
    let Some(etcd) = Etcd::start(1) else { return };
    Server::with_data(SEED, &etcd.url("colors"), &[]).stop();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("etcd://{}/colors", listener.local_addr().unwrap());
    let is_cut = AtomicBool::new(false);
    // Before a read of the log, puts a snapshot, and has etcd forget what was there, as others may.
    let cut = |bytes: &[u8]| {
        let is_range = bytes.windows(9).any(|part| part == b"range_end");
        if is_range && !is_cut.swap(true, Relaxed) {
            etcd.txn(
                "mod(\"colors/list\") > \"0\"\n\n\
                 put colors/list {\"format\":1,\"number\":1,\"colors\":[[9,{\"name\":\"a\",\"value\":\"\"}]]}\n\
                 put colors/log/0000000000000001 {\"format\":1,\"id\":\"\",\"is_snapshot\":true,\"edits\":[]}\n\
                 del colors/log/0000000000000000\n\nget colors/list\n\n",
            );
            compact(&etcd);
        }
        true
    };
    thread::scope(|scope| {
        scope.spawn(|| pass_on(listener.accept().unwrap().0, etcd.member(0), cut));
        assert_eq!(stored(&url), format!("{{\"data\":[{COLOR}]}}"));
    });
    assert!(is_cut.into_inner());
}

#[test]
fn while_etcd_is_away_changes_are_refused_at_once() {
    let Some(etcd) = Etcd::start(1) else { return };
    let server = Server::with_data(SEED, &etcd.url("colors"), &[]);
    etcd.signal(0, Signal::STOP);
    // The signal is asynchronous, so some may be made before it.
    let create = |made| (made, server.ask("POST", "/colors", COLOR).status);
    let (made, first) = (0..).map(create).find(|(_, status)| *status != 201).unwrap();
    // 503 if the service was about to read when etcd was stopped
    assert!([500, 503].contains(&first), "{first}");
    let begun = Instant::now();
    let message =
        "the change was not made: etcd does not answer; /health and the log say what to do";
    for _ in 0..30 {
        server.ask("POST", "/colors", COLOR).expect_message(503, message);
    }
    // If each were sent, it would take some four seconds, and all of them two minutes.
    assert!(begun.elapsed() < DEADLINE);
    etcd.signal(0, Signal::CONT);
    wait_until_well(&server);
    // The first that was refused may have been made, and none of the others.
    let list = stored(&etcd.url("colors"));
    assert_eq!(server.list(), list);
    assert!([made, made + 1].contains(&list.matches(COLOR).count()), "{list}");
}
