//! A restart while the parent process holds the sockets, as systemd does it: nobody is refused and
//! no request is lost.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::common::client::Client;
use crate::common::harness::{Scratch, Server, colors_inheriting, wait_until};

/// A client that says nothing for longer may be disconnected by a service that stops: it looks
/// idle.
const BUSY: Duration = Duration::from_millis(200);

/// Asks until told to stop, reconnecting when told to; counts the answers.
fn keep_asking(address: SocketAddr, stop: &AtomicBool, answered: &AtomicUsize) {
    let requests = [
        ("GET /colors/red HTTP/1.1\r\nHost: localhost\r\n\r\n", 200),
        (
            "POST /colors HTTP/1.1\r\nHost: localhost\r\nContent-Length: 26\r\n\r\n{\"name\":\"ink\",\"value\":\"1\"}",
            201,
        ),
        ("GET /colors HTTP/1.1\r\nHost: localhost\r\n\r\n", 200),
    ];
    while !stop.load(Relaxed) {
        let mut client =
            Client::new(TcpStream::connect(address).expect("no connection is refused"));
        for (request, status) in requests.iter().cycle() {
            let begun = Instant::now();
            let Some(response) = client.try_ask(request) else {
                assert!(begun.elapsed() > BUSY, "closed in the middle of a dialogue");
                break;
            };
            assert_eq!(response.status, *status);
            answered.fetch_add(1, Relaxed);
            if response.closes() || stop.load(Relaxed) {
                break;
            }
        }
    }
}

#[test]
fn clients_of_a_restarted_service_are_never_refused_and_lose_no_request() {
    let scratch = Scratch::new();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let unix = UnixListener::bind(scratch.0.join("s")).unwrap();
    let start = || {
        Server::spawn(colors_inheriting(tcp.try_clone().unwrap(), unix.try_clone().unwrap(), &[]))
    };
    let (stop, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..6)
            .map(|_| scope.spawn(|| keep_asking(tcp.local_addr().unwrap(), &stop, &answered)))
            .collect();
        let mut server = start();
        for _ in 0..4 {
            let before = answered.load(Relaxed);
            wait_until("the service is under load", || {
                answered.load(Relaxed) > before + 300
                    || clients.iter().any(|client| client.is_finished())
            });
            let log = server.stop();
            assert!(!log.contains("WARN"), "{log}");
            server = start();
        }
        stop.store(true, Relaxed);
        clients.into_iter().for_each(|client| client.join().expect("a client is content"));
    });
    assert!(answered.load(Relaxed) > 1200);
}
