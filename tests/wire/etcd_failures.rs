//! A list in etcd when etcd fails: connections that break, members that are gone, bad answers.

use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use crate::common::etcd::Etcd;
use crate::common::harness::{Server, at_once, wait_until};
use crate::wire::durable::fail;
use crate::wire::etcd::{SEED, pass_on, wait_until_unwell, wait_until_well};
use crate::wire::following_strangers::{goes_on, listen, response, sends};

#[test]
fn the_log_is_cut_and_compacted_and_a_service_that_missed_that_loses_no_change() {
    static HOLDS: AtomicBool = AtomicBool::new(false);
    let Some(etcd) = Etcd::start(1) else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let behind = format!("etcd://{}/colors", listener.local_addr().unwrap());
    let member = etcd.member(0);
    // no watch is passed on, and nothing while it holds
    let passes = |bytes: &[u8]| !HOLDS.load(Relaxed) && !bytes.starts_with(b"POST /v3/watch");
    thread::spawn(move || {
        for client in listener.incoming() {
            thread::spawn(move || pass_on(client.unwrap(), member, passes));
        }
    });
    let server = Server::with_data(SEED, &etcd.url("colors"), &[]);
    let late = Server::start(&["--data", &behind]);
    // Without a watch, it mostly knows nothing of the color when it is asked.
    server.ask("POST", "/colors", r#"{"name":"b","value":""}"#).expect_status(201);
    late.ask("DELETE", "/colors/b", "").expect_status(200);
    HOLDS.store(true, Relaxed);
    let mut client = server.connect();
    for number in 0..2100 {
        let content = format!(r#"{{"value":"{number}"}}"#);
        wait_until("it is made", || client.ask("PUT", "/colors/red", &content).status == 200);
    }
    let keys = etcd.etcdctl(&["get", "--prefix", "--keys-only", "colors/log/"]);
    let entries = keys.split_whitespace().count();
    assert!((1001..1500).contains(&entries), "{entries}");
    let (code, _, error) = etcd.run(&["get", "--rev=100", "colors/list"]);
    assert!(code == Some(1) && error.contains("has been compacted"), "{error}");
    wait_until("a poll has failed", || late.ask("GET", "/health", "").status == 503);
    // Mostly before the next poll.
    HOLDS.store(false, Relaxed);
    wait_until("it is made", || {
        let create = late.ask_with("PUT", "/colors/a", "If-None-Match: *\r\n", r#"{"value":""}"#);
        // 412: by a try before, in whose time etcd did not answer
        [201, 412].contains(&create.status)
    });
    let list = r#"{"data":[{"name":"red","value":"2099"},{"name":"a","value":""}]}"#;
    wait_until("it is at the other service", || server.list() == list);
    assert_eq!(late.list(), list);
    assert_eq!(Server::start(&["--data", &etcd.url("colors")]).list(), list);
}

#[test]
fn without_a_majority_reads_go_on_and_changes_fail_until_there_is_one() {
    let Some(mut etcd) = Etcd::start(3) else { return };
    let url = etcd.url("colors");
    let server = Server::with_data(SEED, &url, &[]);
    let list = server.list();
    etcd.kill(0);
    etcd.kill(1);
    let reason = "etcd has no leader, since most of its members do not answer";
    // A member that does not know yet that it has none does not answer: then a change is in doubt.
    for target in ["/colors/red", "/colors/no"] {
        wait_until("a change is refused", || {
            let refused = server.ask("DELETE", target, "");
            assert!([500, 503].contains(&refused.status), "{refused:?}");
            refused.message().starts_with(&format!("the change was not made: {reason}"))
        });
    }
    assert_eq!(server.list(), list);
    wait_until_unwell(&server, reason);
    wait_until("a check says so", || fail(&["--check", "--data", &url]).contains(reason));
    etcd.kill(2);
    wait_until_unwell(&server, "refuses the connection");
    (0..3).for_each(|member| etcd.start_member(member));
    wait_until_well(&server);
    server.ask("POST", "/colors", r#"{"name":"a","value":""}"#).expect_status(201);
    let log = server.stop();
    assert!(log.contains("[ERROR] changes cannot be saved: etcd has no leader"), "{log}");
    assert!(log.contains("[INFO] changes are saved again"), "{log}");
}

#[test]
fn what_is_no_gateway_of_etcd_is_said_to_be_none_and_another_member_is_asked() {
    let Some(etcd) = Etcd::start(1) else { return };
    let Some(plain) = Etcd::start_with(1, &["--enable-grpc-gateway=false"]) else { return };
    let tls = "(the service speaks none: add a URL without it to --listen-client-urls of etcd, \
               such as http://127.0.0.1:2379)";
    let closes = format!("closes the connection without an answer, as a port with TLS does {tls}");
    let tls = format!("wants TLS {tls}");
    let other = "answers what etcd does not (another server may have this port)";
    let unknown = other.replace("answers", "answers 200 and");
    let gateway = "has no JSON gateway at this port (give the one for clients, 2379 and not \
                   2380, and start etcd without --enable-grpc-gateway=false)";
    let json = response("200 OK", "Content-Type: application/json\r\n", "[1,2]");
    let part = "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{".to_owned();
    let answers = [
        // as etcd does where it wants TLS
        (sends(String::new(), true), closes.as_str()),
        // an alert: unexpected_message
        (sends("\x15\x03\x01\0\x02\x02\x0a".to_owned(), true), &tls),
        (sends("x".repeat(1000), true), other),
        (sends(json, true), &unknown),
        (sends(part, true), "breaks the connection"),
        (goes_on("", "", Duration::MAX), "does not answer in time"),
    ];
    let answers = answers.map(|(answer, reason)| (listen(answer).0, reason));
    let ports = [plain.member(0), plain.peer(0)].map(|address| (address, gateway));
    let etcd = etcd.member(0);
    at_once(answers.into_iter().chain(ports), |(address, reason)| {
        let error = format!("etcd does not answer: {address} {reason}\n");
        wait_until(&error, || {
            fail(&["--check", "--data", &format!("etcd://{address}/a")]).ends_with(&error)
        });
        let both = format!("etcd://{address},{etcd}/colors");
        let server = Server::with_data(SEED, &both, &[]);
        server.ask("PUT", "/colors/red", "{}").expect_status(200);
    });
}
