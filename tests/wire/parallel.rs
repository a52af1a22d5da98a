//! Many clients at once wait for each other no longer than they have to. That nothing is lost or half
//! done is in `histories`.

use crate::common::client::request;
use crate::common::harness::Server;

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
        clients[0].response().expect_status(201);
        server.ask("PUT", "/colors/7", r#"{"value":"seven"}"#).expect_status(200);
        let unanswered = clients[1..].iter().filter(|client| !client.has_answer()).count();
        assert!(unanswered > 0, "it was made after all of them");
        clients[1..].iter_mut().for_each(|client| client.response().expect_status(201));
    }
}
