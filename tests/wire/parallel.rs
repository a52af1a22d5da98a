//! Many clients at once wait for each other no longer than they have to. That nothing is lost or half
//! done is in `histories`.

use rustix::process::Signal;

use crate::common::client::{Client, request};
use crate::common::harness::Server;

#[test]
fn a_change_waits_for_no_more_than_one_that_takes_long() {
    let colors =
        (0..3000).map(|number| format!(r#"{{"name":"{number}","value":"{number:03000}"}}"#));
    let seed = format!("[{}]", colors.collect::<Vec<_>>().join(","));
    let short = r#"{"name":"short","value":""}"#;
    for start in [Server::with_seed, Server::durable] {
        // which receives them in their order
        let server = start(&seed, &["--workers", "1"]);
        let mut clients: Vec<_> = (0..61).map(|_| server.connect()).collect();
        clients.iter_mut().for_each(Client::expect_open);
        let fields = format!("Host: localhost\r\nIf-None-Match: \"{}\"\r\n", "0".repeat(32));
        // all of them have arrived when it goes on, however busy the machine is
        server.pause();
        for client in &mut clients[1..] {
            client.send(request("POST", "/colors", &fields, r#"{"name":"long","value":""}"#));
        }
        clients[0].send(request("POST", "/colors", "Host: localhost\r\n", short));
        server.signal(Signal::CONT);
        clients.iter_mut().for_each(|client| client.response().expect_status(201));
        let list = server.list();
        let before = list.split(short).next().unwrap().matches(r#""long""#).count();
        assert!(before < 30, "{before} of 60 were made before it");
    }
}
