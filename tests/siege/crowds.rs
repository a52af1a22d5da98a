//! More clients at once than the service has threads, most of them up to no good: those that mean well are served, and soon.
//!
//! Times are bounds that a slow machine keeps, not the figures that an idle one reaches; those are in README.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::flood::{CONTENT, Drippers, FIELDS, REQUEST, Target, drip, narrow, pour, reset_on_close, throw};
use crate::harness::{Client, Server, eventually, many_colors};

/// How often drippers send a byte.
const BEAT: Duration = Duration::from_millis(300);

#[test]
fn thousands_of_idle_connections_take_no_threads_and_end_in_time() {
    let target = Target::start(&["--request-timeout", "7", "--keep-alive", "7"]);
    let mut streams = target.connections(2000);
    for stream in streams.iter_mut().step_by(2) {
        stream.write_all(REQUEST.as_bytes()).unwrap();
    }
    assert!(target.time(50).worst() < Duration::from_secs(1));
    target.wait_for_few_threads();
    assert_eq!(target.open_connections(), streams.len());
    target.wait_until_all_are_closed();
    drop(streams);
    target.check_recovery();
}

#[test]
fn thousands_of_dripping_connections_keep_nobody_waiting() {
    for workers in ["256", "64"] {
        let target = Target::start(&["--workers", workers, "--request-timeout", "2"]);
        let drippers = Drippers::start(target.server.address, 3000, BEAT);
        let times = target.time_for(Duration::from_secs(3));
        assert!(times.worst() < Duration::from_secs(1), "{:?} with {workers} workers", times.worst());
        drop(drippers);
        target.check_recovery();
    }
}

#[test]
fn some_hundred_dripping_connections_are_not_noticed() {
    let target = Target::start(&[]);
    let drippers = Drippers::start(target.server.address, 200, BEAT);
    let times = target.time(200);
    assert!(times.median() < Duration::from_millis(50), "{:?}", times.median());
    drop(drippers);
    target.check_recovery();
}

#[test]
fn clients_that_take_a_long_response_slowly_keep_nobody_waiting() {
    let target = Target::of(|| Server::with_seed(&many_colors(60_000), &["--workers", "4"]));
    let (stop, stopped) = channel::<()>();
    let mut streams = target.connections(100);
    for stream in &mut streams {
        stream.write_all("GET /colors HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(20).as_bytes()).unwrap();
        stream.set_nonblocking(true).unwrap();
    }
    let readers = thread::spawn(move || {
        let mut bytes = vec![0; 128 * 1024];
        while stopped.recv_timeout(BEAT / 3) == Err(RecvTimeoutError::Timeout) {
            for stream in &mut streams {
                let _ = stream.read(&mut bytes);
            }
        }
    });
    let times = target.time_for(Duration::from_secs(3));
    // the start takes a while: the kernel takes 4 MB for each of them
    assert!(times.worst() < Duration::from_secs(2), "{:?}", times.worst());
    drop(stop);
    readers.join().unwrap();
    target.check_recovery();
}

#[test]
fn a_burst_of_connections_is_served_at_once() {
    let target = Target::start(&[]);
    let begun = Instant::now();
    let mut clients: Vec<Client> = target.connections(256).into_iter().map(Client::new).collect();
    for client in &mut clients {
        client.send(REQUEST);
    }
    for client in &mut clients {
        assert_eq!(client.response().status, 200);
    }
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    drop(clients);
    target.check_recovery();
}

#[test]
fn connections_reset_at_once_leave_nothing_behind() {
    let target = Target::start(&[]);
    for number in 0..5000 {
        let mut stream = TcpStream::connect(target.server.address).unwrap();
        reset_on_close(&stream);
        stream.write_all([b"", FIELDS.as_bytes(), REQUEST.as_bytes()][number % 3]).unwrap();
    }
    target.check_recovery();
}

#[test]
fn few_descriptors_mean_few_connections_and_nothing_worse() {
    let target = Target::of(|| Server::with_descriptors(64, &[]));
    let mut clients: Vec<_> = target.connections(200).into_iter().map(Client::new).collect();
    for client in &mut clients {
        let _ = client.stream.write_all(REQUEST.as_bytes());
    }
    for client in &mut clients {
        assert_eq!(client.response().status, 200);
    }
    assert!(!target.server.log().contains("WARN"), "{}", target.server.log());
    drop(clients);
    // more connections than there can be, none of which ever sends anything
    let silent = target.connections(30);
    assert!(target.time(3).worst() < Duration::from_secs(8));
    drop(silent);
    target.check_recovery();
}

#[test]
fn a_full_house_of_clients_that_take_nothing_lets_others_in() {
    let target = Target::of(|| Server::with_descriptors(100, &[]));
    let mut clients: Vec<TcpStream> = (0..32).map(|_| narrow(target.server.address)).collect();
    for client in &mut clients {
        let requests = "GET /colors HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(3);
        client.write_all((requests + &REQUEST[..20]).as_bytes()).unwrap();
    }
    // an eighth of them after two seconds, and not one eighth after the other until all are told
    assert!(target.time(1).worst() < Duration::from_secs(8));
    drop(clients);
    target.check_recovery();
}

#[test]
fn a_full_house_turns_out_no_more_than_there_are_newcomers_for() {
    let start = || Target::of(|| Server::with_descriptors(100, &[]));
    let half = |clients: &mut [Client]| {
        for client in clients {
            client.send(&REQUEST[..20]);
        }
    };
    let wait = |client: &Client, time| client.expect_nothing_for(Duration::from_millis(time));
    // how many there may be: more than that do not get in
    let target = start();
    let mut clients: Vec<Client> = target.connections(60).into_iter().map(Client::new).collect();
    half(&mut clients);
    wait(&clients[0], 300);
    let seats = target.open_connections();
    assert!((20..50).contains(&seats), "{seats}");
    drop(clients);
    target.check_recovery();

    let target = start();
    let mut clients: Vec<Client> = target.connections(seats - 1).into_iter().map(Client::new).collect();
    half(&mut clients);
    // longer than one that owes something is left alone while there are others, and then the last seat is taken
    wait(&clients[0], 2500);
    clients.push(target.server.connect());
    half(&mut clients[seats - 1..]);
    wait(&clients[0], 300);
    assert_eq!(clients.iter().filter(|client| client.has_answer()).count(), 0, "nobody waits for their seats");
    assert_eq!(target.server.ask("GET", "/colors/red", "").status, 200);
    let turned_out = clients.iter().filter(|client| client.has_answer()).count();
    assert!((1..=seats / 4).contains(&turned_out), "{turned_out} of {seats} for one");
    drop(clients);
    target.check_recovery();
}

#[test]
fn a_signal_ends_it_in_time_whoever_is_connected() {
    let target = Target::of(|| Server::with_seed(&many_colors(60_000), &[]));
    let mut stalled = target.connections(600);
    for (number, stream) in stalled.iter_mut().enumerate() {
        stream.write_all([b"", FIELDS.as_bytes(), CONTENT.as_bytes()][number % 3]).unwrap();
    }
    let mut slow = target.server.connect();
    slow.send("GET /colors HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let answered = AtomicUsize::new(0);
    let begun = thread::scope(|scope| {
        for _ in 0..8 {
            let client = target.server.connect();
            scope.spawn(|| {
                let mut client = client;
                while !client.ask("PUT", "/colors/red", r#"{"value":"1"}"#).closes() {
                    answered.fetch_add(1, Relaxed);
                }
                client.expect_close();
            });
        }
        eventually("there is load", || (answered.load(Relaxed) > 200).then_some(()));
        target.server.signal(Signal::TERM);
        Instant::now()
    });
    assert!(slow.response().content.ends_with("\"}]}"));
    let (status, log) = target.into_server().wait();
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[test]
fn all_of_it_at_once_is_not_noticed_by_a_client_that_means_well() {
    let target = Target::start(&["--request-timeout", "2", "--keep-alive", "1"]);
    let address = target.server.address;
    let over = AtomicBool::new(false);
    let idle = target.connections(500);
    let drippers = Drippers::start(address, 500, BEAT);
    let times = thread::scope(|scope| {
        let repeat = |attack: &'static (dyn Fn(SocketAddr) + Sync)| {
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    attack(address);
                }
            });
        };
        repeat(&|address| assert!(pour(address, FIELDS, "x").0 < 16 << 20));
        repeat(&|address| assert!(pour(address, CONTENT, "\r\n").0 < 16 << 20));
        repeat(&|address| drop(throw(address, &fastrand::Rng::with_seed(1).u128(..).to_ne_bytes())));
        repeat(&|address| {
            let mut stream = TcpStream::connect(address).unwrap();
            reset_on_close(&stream);
            stream.write_all(FIELDS.as_bytes()).unwrap();
        });
        repeat(&|address| drop(drip(address, "GET /colors HTTP/1.1\r\nHost: localhost\r\n\r\nGET", b"", BEAT)));
        let times = target.time_for(Duration::from_secs(8));
        over.store(true, Relaxed);
        times
    });
    assert!(times.worst() < Duration::from_secs(2), "{:?}", times.worst());
    drop((idle, drippers));
    target.check_recovery();
}
