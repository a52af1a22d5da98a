use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use super::*;
use crate::color::Color;
use crate::context::{Limits, Signs};
use crate::inlet::Inlet;
use crate::origin::Exemptions;
use crate::palette::Palette;
use crate::resource::BasePath;
use crate::respond::Service;
use crate::seats::Seats;
use crate::store::Store;

const REQUEST: &[u8] = b"GET /colors/red HTTP/1.1\r\nHost: localhost\r\n\r\n";

fn context() -> Context {
    let palette = Palette::new(vec![Color { name: "red".into(), value: "#f00".into() }]);
    let service = Service {
        store: Store::in_memory(palette),
        base: BasePath::default(),
        read_only: false,
        is_stopping: AtomicBool::new(false),
        exemptions: Exemptions::default(),
    };
    let hour = Duration::from_secs(3600);
    let limits = Limits { content_max: 1000, request_timeout: hour, keep_alive: hour, workers_max: 4 };
    Context { service, limits, access_log: false, signs: Signs::default() }
}

/// A connection and its client, which has sent these bytes.
fn connection(seats: &Arc<Seats>, sent: &[u8]) -> (Connection, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.write_all(sent).unwrap();
    let inlet = Inlet::accept(&tiny_http::Listener::Tcp(listener)).unwrap();
    (Connection::new(inlet, true, seats.take()), client)
}

/// Attends to one connection until nobody is left; gives what those who went on elsewhere wait for.
fn attend_to(connection: Connection) -> Vec<Wait> {
    let circles = Circles::new(4).unwrap();
    let unattended = circles.join(connection).unwrap().expect("nobody attends to it yet");
    let left = Mutex::new(Vec::new());
    circles.attend(unattended, &context(), &|connection| left.lock().unwrap().push(connection.waits().what));
    assert_eq!(circles.members.load(Relaxed), 0);
    assert!(circles.all.iter().all(|circle| circle.members.load(Relaxed) == 0 && !circle.door().is_attended));
    left.into_inner().unwrap()
}

#[test]
fn no_more_than_half_of_the_workers_attend_to_circles() {
    for (workers, circles) in [(1, 1), (2, 1), (3, 1), (4, 2)] {
        assert_eq!(Circles::new(workers).unwrap().count(), circles, "{workers} workers");
    }
}

#[test]
fn each_joins_the_circle_with_the_fewest_members_and_the_first_calls_a_worker() {
    let (circles, seats) = (Circles::new(4).unwrap(), Seats::new().unwrap());
    let clients: Vec<_> = (0..4).map(|_| connection(&seats, b"")).collect();
    let (connections, _clients): (Vec<_>, Vec<_>) = clients.into_iter().unzip();
    let called: Vec<_> =
        connections.into_iter().map(|connection| circles.join(connection).unwrap().map(|Unattended(index)| index)).collect();
    assert_eq!(called, [Some(0), Some(1), None, None]);
    assert!(circles.all.iter().all(|circle| circle.members.load(Relaxed) == 2));
}

#[test]
fn a_member_is_answered_and_leaves_when_it_is_silent() {
    let seats = Seats::new().unwrap();
    for requests in [1, 2, 100] {
        let (connection, mut client) = connection(&seats, &REQUEST.repeat(requests));
        assert_eq!(attend_to(connection), [Wait::Request]);
        let mut answers = String::new();
        client.read_to_string(&mut answers).unwrap();
        assert_eq!(answers.matches("HTTP/1.1 200 OK\r\n").count(), requests);
        assert_eq!(seats.taken(), 0);
    }
}

#[test]
fn a_member_whose_request_does_not_get_on_leaves() {
    let seats = Seats::new().unwrap();
    let (connection, _client) = connection(&seats, &REQUEST[..20]);
    assert_eq!(attend_to(connection), [Wait::Rest]);
}

#[test]
fn a_member_whose_client_has_gone_is_closed() {
    let seats = Seats::new().unwrap();
    let (connection, client) = connection(&seats, REQUEST);
    drop(client);
    assert_eq!(attend_to(connection), []);
    assert_eq!(seats.taken(), 0);
}
