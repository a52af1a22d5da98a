//! A list in etcd when etcd fails: connections that break, members that are gone, answers that are
//! none.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use crate::common::etcd::Etcd;
use crate::common::harness::{Server, at_once, colors, run, wait_until};

const SEED: &str = r##"[{"name":"red","value":"#f00"}]"##;

/// Passes requests on to etcd, but no watch, and none that come while it `holds`.
fn hold_requests(listener: &TcpListener, etcd: SocketAddr, holds: &'static AtomicBool) {
    for client in listener.incoming() {
        let (mut client, mut upstream) = (client.unwrap(), TcpStream::connect(etcd).unwrap());
        let mut answers = (upstream.try_clone().unwrap(), client.try_clone().unwrap());
        thread::spawn(move || std::io::copy(&mut answers.0, &mut answers.1));
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = client.read(&mut bytes) {
                if !holds.load(Relaxed) && !bytes.starts_with(b"POST /v3/watch") {
                    // The service sees what comes of it.
                    let _ = upstream.write_all(&bytes[..length]);
                }
            }
        });
    }
}

#[test]
fn the_log_is_cut_and_compacted_and_a_service_that_missed_that_loses_no_change() {
    static HOLDS: AtomicBool = AtomicBool::new(false);
    let Some(etcd) = Etcd::start(1) else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let behind = format!("etcd://{}/colors", listener.local_addr().unwrap());
    let member = etcd.member(0);
    thread::spawn(move || hold_requests(&listener, member, &HOLDS));
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
    wait_until("the reason is told", || {
        let health = server.ask("GET", "/health", "");
        health.expect_status(503);
        health.content.contains(reason)
    });
    wait_until("a check says so", || {
        let (code, _, error) = run(&mut colors(&["--check", "--data", &url]));
        assert_eq!(code, Some(1), "{error}");
        error.contains(reason)
    });
    etcd.kill(2);
    wait_until("the reason is another", || {
        server.ask("GET", "/health", "").content.contains("refuses the connection")
    });
    (0..3).for_each(|member| etcd.start_member(member));
    wait_until("it works again", || server.ask("GET", "/health", "").status == 200);
    server.ask("POST", "/colors", r#"{"name":"a","value":""}"#).expect_status(201);
    let log = server.stop();
    assert!(log.contains("[ERROR] changes cannot be saved: etcd has no leader"), "{log}");
    assert!(log.contains("[INFO] changes are saved again"), "{log}");
}

/// Answers each request with this, and closes the connection. `None`: does not answer.
fn answer_all(answer: Option<String>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let mut held = Vec::new();
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let Some(answer) = &answer else {
                held.push(client);
                continue;
            };
            let _ = client.read(&mut [0; 4096]);
            let _ = client.write_all(answer.as_bytes());
            let _ = client.shutdown(Shutdown::Both);
        }
    });
    address
}

#[test]
fn what_is_no_gateway_of_etcd_is_said_to_be_none_and_another_member_is_asked() {
    let Some(etcd) = Etcd::start(1) else { return };
    let Some(plain) = Etcd::start_with(1, &["--enable-grpc-gateway=false"]) else { return };
    let json = |length, content: &str| {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length:";
        format!("{head} {length}\r\n\r\n{content}")
    };
    let tls = "(the service speaks none: add a URL without it to --listen-client-urls of etcd, \
               such as http://127.0.0.1:2379)";
    let closes = format!("closes the connection without an answer, as a port with TLS does {tls}");
    let tls = format!("wants TLS {tls}");
    let other = "answers what etcd does not (another server may have this port)".to_owned();
    let unknown =
        "answers 200 and what etcd does not (another server may have this port)".to_owned();
    let gateway = "has no JSON gateway at this port (give the one for clients, 2379 and not \
                   2380, and start etcd without --enable-grpc-gateway=false)"
        .to_owned();
    let answered = [
        // as etcd does where it wants TLS
        (String::new(), closes),
        // an alert: unexpected_message
        ("\x15\x03\x01\0\x02\x02\x0a".to_owned(), tls),
        ("x".repeat(1000), other),
        (json(5, "[1,2]"), unknown),
        (json(50, r#"{"header":"#), "breaks the connection".to_owned()),
    ]
    .map(|(answer, reason)| (answer_all(Some(answer)), reason));
    let silent = (answer_all(None), "does not answer in time".to_owned());
    let ports = [plain.member(0), plain.peer(0)].map(|address| (address, gateway.clone()));
    let etcd = etcd.member(0);
    at_once(answered.into_iter().chain([silent]).chain(ports), |(address, reason)| {
        let error = format!("etcd does not answer: {address} {reason}\n");
        wait_until(&error, || {
            let place = format!("etcd://{address}/a");
            let (code, _, log) = run(&mut colors(&["--check", "--data", &place]));
            assert_eq!(code, Some(1), "{log}");
            log.ends_with(&error)
        });
        let both = format!("etcd://{address},{etcd}/colors");
        let server = Server::with_data(SEED, &both, &[]);
        server.ask("PUT", "/colors/red", "{}").expect_status(200);
    });
}
