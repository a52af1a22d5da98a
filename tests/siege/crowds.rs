//! Many more clients at once than the service has threads, most of them attackers: legitimate clients are served, and soon.
//!
//! Times are bounds that a slow machine keeps, not the figures that an idle one reaches; those are in README.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::client::Client;
use crate::flood::{CONTENT, Drippers, FIELDS, Pipeliners, REQUEST, Target, drip, narrow, pour, reset_on_close, throw};
use crate::harness::{Server, eventually, long_list};

/// How often drippers send a byte.
const BEAT: Duration = Duration::from_millis(300);

#[test]
fn thousands_of_idle_connections_take_no_threads_and_end_in_time() {
    let target = Target::alone(|| Server::start(&["--request-timeout", "3", "--keep-alive", "3"]));
    let mut streams = target.connections(2000);
    for stream in streams.iter_mut().step_by(2) {
        stream.write_all(REQUEST.as_bytes()).unwrap();
    }
    assert!(target.time(50).worst() < Duration::from_secs(1));
    target.wait_for_few_threads();
    assert_eq!(target.server.connections(), streams.len());
    target.wait_until_all_are_closed();
    drop(streams);
    target.check_recovery();
}

#[test]
fn thousands_of_dripping_connections_keep_nobody_waiting() {
    for workers in ["1", "4"] {
        let target = Target::alone(|| Server::start(&["--workers", workers, "--request-timeout", "2"]));
        let drippers = Drippers::start(target.server.address, 3000, BEAT);
        let times = target.time_for(Duration::from_millis(2500));
        assert!(times.worst() < Duration::from_secs(1), "{:?} with {workers} workers", times.worst());
        drop(drippers);
        target.check_recovery();
    }
}

#[test]
fn some_hundred_dripping_connections_are_not_noticed() {
    let target = Target::alone(|| Server::start(&[]));
    let drippers = Drippers::start(target.server.address, 200, BEAT);
    let times = target.time(200);
    assert!(times.median() < Duration::from_millis(50), "{:?}", times.median());
    drop(drippers);
    target.check_recovery();
}

#[test]
fn clients_that_take_a_long_response_slowly_keep_nobody_waiting() {
    let target = Target::alone(|| Server::with_seed(&long_list(2_600_000), &["--workers", "2"]));
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
    let times = target.time_for(Duration::from_secs(2));
    // the start takes a while: the kernel takes 4 MB for each of them
    assert!(times.worst() < Duration::from_secs(2), "{:?}", times.worst());
    drop(stop);
    readers.join().unwrap();
    target.check_recovery();
}

#[test]
fn a_burst_of_connections_is_served_at_once() {
    let target = Target::alone(|| Server::start(&[]));
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
    let silent = target.connections(40);
    assert!(target.time(1).worst() < Duration::from_secs(15));
    drop(silent);
    target.check_recovery();
}

/// Descriptors of a service that is to reach its connection limit soon.
const FEW_DESCRIPTORS: usize = 100;

/// How many connections there may be with [`FEW_DESCRIPTORS`].
fn connection_limit() -> usize {
    let target = Target::of(|| Server::with_descriptors(FEW_DESCRIPTORS, &[]));
    let mut clients: Vec<Client> = target.connections(FEW_DESCRIPTORS).into_iter().map(Client::new).collect();
    begin_requests(&mut clients);
    // much longer than it takes to accept one more
    let limit = eventually("no more are accepted", || {
        let before = target.server.connections();
        clients[0].expect_nothing_for(Duration::from_millis(300));
        (before > 0 && target.server.connections() == before).then_some(before)
    });
    assert!((20..FEW_DESCRIPTORS).contains(&limit), "{limit}");
    limit
}

/// Sends the first bytes of a request on each connection.
fn begin_requests(clients: &mut [Client]) {
    for client in clients {
        client.send(&REQUEST[..20]);
    }
}

#[test]
fn at_the_connection_limit_clients_that_read_nothing_give_way_to_others() {
    let limit = connection_limit();
    let target = Target::of(|| Server::with_descriptors(FEW_DESCRIPTORS, &[]));
    let mut clients: Vec<TcpStream> = (0..limit).map(|_| narrow(target.server.address)).collect();
    for client in &mut clients {
        let requests = "GET /colors HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(3);
        client.write_all((requests + &REQUEST[..20]).as_bytes()).unwrap();
    }
    // some of them are closed after two seconds, and none of them is waited for
    assert!(target.time(1).worst() < Duration::from_secs(10));
    drop(clients);
    target.check_recovery();
}

#[test]
fn at_the_connection_limit_no_more_are_closed_than_others_need() {
    let limit = connection_limit();
    let target = Target::of(|| Server::with_descriptors(FEW_DESCRIPTORS, &[]));
    let mut clients: Vec<Client> = target.connections(limit).into_iter().map(Client::new).collect();
    begin_requests(&mut clients);
    // longer than an unfinished request is left alone when others need its place
    clients[0].expect_nothing_for(Duration::from_millis(2500));
    assert_eq!(clients.iter().filter(|client| client.has_answer()).count(), 0, "nobody needs their places");
    assert_eq!(target.server.ask("GET", "/colors/red", "").status, 200);
    let closed = clients.iter().filter(|client| client.has_answer()).count();
    assert!((1..=limit / 2).contains(&closed), "{closed} of {limit} for one");
    drop(clients);
    target.check_recovery();
}

#[test]
fn clients_that_pipeline_without_end_keep_no_light_client_waiting() {
    let target = Target::alone(|| Server::start(&[]));
    let alone = target.time(50).median();
    let pipeliners = Pipeliners::start(target.server.address, 300);
    let beside_them = target.time(9).median();
    drop(pipeliners);
    // a pass over all of them, some requests of each; without limit to those it takes as long as their buffers last
    assert!(beside_them < Duration::from_secs(1) + 1000 * alone, "{beside_them:?}, alone {alone:?}");
    target.check_recovery();
}

#[test]
fn connections_are_spread_over_the_workers() {
    let target = Target::alone(|| Server::start(&[]));
    let before: u64 = target.server.cpu_ticks_of_threads().iter().sum();
    let pipeliners = Pipeliners::start(target.server.address, 64);
    // hundredths of a second
    let busy = || target.server.cpu_ticks_of_threads().iter().sum::<u64>() > before + 100;
    eventually("the service has been busy", || busy().then_some(()));
    let mut ticks = target.server.cpu_ticks_of_threads();
    drop(pipeliners);
    ticks.sort_unstable();
    let [.., second, first] = ticks[..] else { panic!("there is but one thread") };
    assert!(second >= first / 4, "{ticks:?}");
    target.check_recovery();
}

#[test]
fn a_signal_ends_it_in_time_whoever_is_connected() {
    let target = Target::of(|| Server::with_seed(&long_list(2_600_000), &[]));
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
fn all_of_it_at_once_keeps_no_legitimate_client_waiting() {
    let target = Target::alone(|| Server::start(&["--request-timeout", "2", "--keep-alive", "1"]));
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
        let times = target.time_for(Duration::from_secs(5));
        over.store(true, Relaxed);
        times
    });
    assert!(times.worst() < Duration::from_secs(2), "{:?}", times.worst());
    drop((idle, drippers));
    target.check_recovery();
}
