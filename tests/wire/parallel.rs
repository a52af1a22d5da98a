//! Many clients at once: nothing is lost, nothing is half done, and each client's order is kept.

use std::collections::HashMap;
use std::thread;

use crate::common::client::request;
use crate::common::harness::Server;

#[test]
fn every_create_of_every_client_is_there_in_its_order() {
    const CLIENTS: usize = 16;
    const EACH: usize = 100;
    for server in Server::of_both_kinds("[]") {
        thread::scope(|scope| {
            for number in 0..CLIENTS {
                let mut client = server.connect();
                scope.spawn(move || {
                    for step in 0..EACH {
                        let content = format!(r#"{{"name":"client-{number}","value":"{step}"}}"#);
                        assert_eq!(client.ask("POST", "/colors", &content).status, 201);
                    }
                });
            }
        });
        let list: serde_json::Value = serde_json::from_str(&server.list()).unwrap();
        let mut next: HashMap<String, usize> = HashMap::new();
        for color in list["data"].as_array().unwrap() {
            let step = next.entry(color["name"].as_str().unwrap().to_owned()).or_default();
            assert_eq!(color["value"].as_str().unwrap(), step.to_string(), "{color}");
            *step += 1;
        }
        assert_eq!(next.len(), CLIENTS);
        assert!(next.values().all(|steps| *steps == EACH), "{next:?}");
    }
}

#[test]
fn increments_under_if_match_are_never_lost() {
    const CLIENTS: usize = 32;
    const EACH: usize = 200;
    for server in Server::of_both_kinds(r#"[{"name":"count","value":"0"}]"#) {
        let made: usize = thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|_| {
                    let mut client = server.connect();
                    scope.spawn(move || {
                        let mut made = 0;
                        for _ in 0..EACH {
                            let read = client.ask("GET", "/colors/count", "");
                            let color: serde_json::Value =
                                serde_json::from_str(&read.content).unwrap();
                            let value: u64 = color["value"].as_str().unwrap().parse().unwrap();
                            let condition =
                                format!("If-Match: {}\r\n", read.field("etag").unwrap());
                            let written = client.ask_with(
                                "PUT",
                                "/colors/count",
                                &condition,
                                &format!(r#"{{"value":"{}"}}"#, value + 1),
                            );
                            match written.status {
                                200 => made += 1,
                                412 => {}
                                status => panic!("{status}"),
                            }
                        }
                        made
                    })
                })
                .collect();
            clients.into_iter().map(|client| client.join().unwrap()).sum()
        });
        assert!(made > 0);
        assert_eq!(
            server.ask("GET", "/colors/count", "").content,
            format!(r#"{{"name":"count","value":"{made}"}}"#)
        );
    }
}

#[test]
fn readers_see_only_whole_lists() {
    for server in Server::of_both_kinds("[]") {
        thread::scope(|scope| {
            let mut writer = server.connect();
            let mut reader = server.connect();
            let writing = scope.spawn(move || {
                for _ in 0..300 {
                    assert_eq!(
                        writer.ask("POST", "/colors", r#"{"name":"a","value":"1"}"#).status,
                        201
                    );
                    assert_eq!(writer.ask("DELETE", "/colors/a", "").status, 200);
                }
            });
            while !writing.is_finished() {
                let list = reader.ask("GET", "/colors", "").content;
                assert!(
                    [r#"{"data":[]}"#, r#"{"data":[{"name":"a","value":"1"}]}"#]
                        .contains(&list.as_str()),
                    "{list}"
                );
            }
        });
    }
}

#[test]
fn a_change_waits_for_no_more_than_one_that_takes_long() {
    const LONG: usize = 60;
    let colors =
        (0..3000).map(|number| format!(r#"{{"name":"{number}","value":"{number:03000}"}}"#));
    let seed = format!("[{}]", colors.collect::<Vec<_>>().join(","));
    for server in Server::of_both_kinds(&seed) {
        let mut clients: Vec<_> = (0..LONG).map(|_| server.connect()).collect();
        let fields = format!("Host: localhost\r\nIf-None-Match: \"{}\"\r\n", "0".repeat(32));
        for client in &mut clients {
            client.send(request("POST", "/colors", &fields, r#"{"name":"new","value":""}"#));
        }
        // the others have arrived with it
        assert_eq!(clients[0].response().status, 201);
        assert_eq!(server.ask("PUT", "/colors/7", r#"{"value":"seven"}"#).status, 200);
        let unanswered = clients[1..].iter().filter(|client| !client.has_answer()).count();
        assert!(unanswered > 0, "it was made after all of them");
        clients[1..].iter_mut().for_each(|client| assert_eq!(client.response().status, 201));
    }
}
