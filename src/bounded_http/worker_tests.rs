use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering::Relaxed;

use threadpool::ThreadPool;

use super::super::inbox::NewConnection;
use super::super::limits::{Quota, Reading};
use super::*;
use crate::bounded_http::{Handle, SharedContent};
use crate::options::Options;
use crate::service::{Service, Subject, change_listener, limits};
use crate::store::{Action, Change, Color, ColorJson, ColorList, Store};

/// A worker without a thread, of a service with one color.
fn worker(value: &str) -> Worker {
    let colors = ColorList::from_iter([Color::new("red", value)]);
    let time = Duration::from_secs(10);
    let options =
        Options { request_timeout: time, keep_alive: time, max_body: 100, ..Options::default() };
    let limits = limits(&options, 10, 10_000);
    let server = Handle::new(2, limits).unwrap();
    let watches = vec![Arc::default(), Arc::default()];
    let store = Store::in_memory(colors, change_listener(&server, &watches));
    let (handle, options) = (server.clone(), options.into());
    let service = Service::new(options, store, None, None, handle, watches, vec![false]);
    Worker::new(server.with(service), 0, ThreadPool::new(1)).unwrap()
}

/// A pass of the event loop at this time.
fn pass_at<T>(
    worker: &mut Worker,
    now: Instant,
    work: impl FnOnce(&mut Worker, &mut LoopContext<'_>) -> T,
) -> T {
    let shared = Arc::clone(&worker.shared);
    let pool = worker.pool.clone();
    let mut scratch = [0; 8192];
    work(worker, &mut LoopContext::new(&shared, 0, &pool, now, "", &mut scratch))
}

/// Passes a new connection to the worker.
fn add(worker: &Worker, socket: UnixStream) {
    let quota = Quota::new(Arc::clone(&worker.shared), 0);
    let accepted = NewConnection { socket: socket.into(), peer: None, listener: 0, quota };
    worker.shared.workers[0].inbox.post(Mail::NewConnection(accepted));
}

/// Sends requests on a connection of their own, and reads until it ends.
fn talk(worker: &mut Worker, requests: &str) -> String {
    let (mut client, socket) = UnixStream::pair().unwrap();
    client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    client.write_all(requests.as_bytes()).unwrap();
    add(worker, socket);
    wake(worker);
    let mut responses = String::new();
    client.read_to_string(&mut responses).unwrap();
    responses
}

#[test]
#[cfg_attr(not(debug_assertions), ignore = "nothing panics without checks for overflow")]
fn a_panic_is_answered_with_500_and_the_requests_behind_it_as_well() {
    let mut worker = worker("#f00");
    // `/metrics` has the number of answers that took up to a second, a sum that overflows
    let counters = &worker.shared.service().metrics.workers[0];
    counters.immediate.observe_each(u64::MAX, Duration::ZERO);
    counters.immediate.observe(Duration::from_secs(1));
    let color = "{\"name\":\"red\",\"value\":\"#f00\"}\n";
    let message = "{\"error\":true,\"message\":\"the service failed on this request, its log says \
                   where; a change may have been made\"}\n";
    for (method, expected) in [("GET", message), ("HEAD", "")] {
        let requests = format!(
            "GET /colors/red HTTP/1.1\r\nHost: a\r\n\r\n\
             {method} /metrics HTTP/1.1\r\nHost: a\r\n\r\n\
             GET /colors/red HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        );
        let responses = talk(&mut worker, &requests);
        let (_, behind) = responses.split_once(color).unwrap();
        let (head, rest) = behind.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 500 Internal Server Error\r\n"), "{responses}");
        let last = rest.strip_prefix(expected).unwrap();
        assert!(last.starts_with("HTTP/1.1 200 OK\r\n") && last.ends_with(color), "{responses}");
    }
    assert!(worker.connections.is_empty());
}

#[test]
fn the_worker_with_the_fewest_connections_is_next() {
    let shared = Arc::clone(&worker("#f00").shared);
    let mut open = Vec::new();
    for expected in [0, 1, 0, 1, 0, 1, 0, 1, 0, 1] {
        assert_eq!((shared.excess(), shared.accepts_none()), (0, false));
        assert_eq!(shared.next_worker(), expected);
        open.push(Quota::new(Arc::clone(&shared), expected));
    }
    // an eighth of it, and at least one, may wait above the limit
    open.push(Quota::new(Arc::clone(&shared), 0));
    assert_eq!((shared.excess(), shared.accepts_none()), (1, true));
    open.remove(1);
    assert_eq!((shared.next_worker(), shared.excess(), shared.accepts_none()), (1, 0, false));
}

#[test]
fn connections_are_refused_more_memory_than_all_may_use_together() {
    let worker = worker("#f00");
    let quota = || Quota::new(Arc::clone(&worker.shared), 0);
    let (mut one, other) = (quota(), quota());
    assert!(!other.would_exceed(10_001));
    one.set_memory(5_000);
    assert!(!other.would_exceed(10_001), "half of it is left");
    one.set_memory(5_001);
    assert!(other.would_exceed(5_000) && !other.would_exceed(4_999) && !one.would_exceed(10_001));
    drop(one);
    assert!(!other.would_exceed(10_001));
}

#[test]
fn what_only_its_readers_have_takes_limited_memory() {
    let worker = worker(&"0".repeat(4_000));
    let shared = &worker.shared;
    let now = Instant::now();
    let change = |value: &str| {
        let update = Action::Update("red".to_owned(), Some(Color::new("red", value)));
        let change = Change::new(update, Default::default());
        shared.service().store.submit_and_wait(change).unwrap().unwrap();
    };
    // each version has two clients, and its own content in their outputs
    let read = |number: usize| {
        let (_, red) = shared.service().store.list.find("red").unwrap();
        let ColorJson::Long(json) = red.json else { panic!("it is long") };
        let content = [(); 2].map(|()| json.content());
        let second = Duration::from_secs(number as u64);
        let readings = [(); 2].map(|()| Reading::new(shared, &content[0], now + second));
        (content, readings)
    };
    let deadlines = |versions: &[([SharedContent; 2], [Reading; 2])]| -> Vec<_> {
        let deadline = |reading: &Reading| Some((reading.deadline()? - now).as_secs_f64());
        versions.iter().flat_map(|(_, readings)| readings.iter().map(deadline)).collect()
    };
    let mut versions = Vec::new();
    for number in 0..5 {
        versions.push(read(number));
        if number < 2 {
            assert_eq!(deadlines(&versions), vec![None; 2 * versions.len()]);
        }
        change(&(number + 1).to_string().repeat(4_000));
    }
    let bytes = versions.iter().map(|(content, _)| content[0].bytes().len()).sum::<usize>();
    assert_eq!(shared.read_bytes.load(Relaxed), bytes);
    // more than twice the limit of 10,000
    assert_eq!(deadlines(&versions), [0., 0., 1., 1., 2., 2., 3., 3., 4., 4.].map(Some));
    // what is there is read by two more, who have their time; the older two are closed
    versions.push(read(5));
    versions.drain(..3);
    let left = (20_000 - bytes * 3 / 5) as f64 / 1_000.;
    assert_eq!(
        deadlines(&versions),
        [3., 3., 4., 4.]
            .map(|begun| Some(begun + left))
            .into_iter()
            .chain([None; 2])
            .collect::<Vec<_>>()
    );
    drop(versions);
    assert_eq!(shared.read_bytes.load(Relaxed), 0);
    // two versions of a long content may be read to their end
    let versions: Vec<_> = (0..2)
        .map(|number| {
            change(&number.to_string().repeat(10_000));
            read(number)
        })
        .collect();
    change("short");
    assert_eq!(deadlines(&versions), [None; 4]);
    drop(versions);
    assert_eq!(shared.read_bytes.load(Relaxed), 0);
}

#[test]
fn at_the_connection_limit_a_client_that_goes_on_reading_is_not_closed() {
    let mut worker = worker(&"x".repeat(4_000_000));
    let (mut client, socket) = UnixStream::pair().unwrap();
    client.write_all(b"GET /colors/red HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    add(&worker, socket);
    wake(&mut worker);
    worker.shared.set_phase(Phase::AboveLimit);
    let _others: Vec<_> = (0..10).map(|_| Quota::new(Arc::clone(&worker.shared), 1)).collect();
    let end_overdue = |worker: &mut Worker, seconds: u32| {
        let now = Instant::now() + seconds * Duration::from_secs(1);
        pass_at(worker, now, |worker, context| {
            worker.end_overdue(now, context);
            worker.serve_queued(context);
        });
    };
    let mut received = vec![0; 50_000];
    for step in 1..=3 {
        client.read_exact(&mut received).unwrap();
        end_overdue(&mut worker, step);
        assert_eq!(worker.connections.len(), 1, "step {step}");
    }
    // the kernel takes some more
    (10..20).for_each(|step| end_overdue(&mut worker, step));
    assert_eq!(
        (
            worker.connections.len(),
            worker.shared.service().metrics.workers[0].closed(Closing::NoRoom).get()
        ),
        (0, 1)
    );
}

#[test]
fn a_connection_that_awaits_mail_is_never_in_the_run_queue() {
    let mut worker = worker("#f00");
    let (mut client, socket) = UnixStream::pair().unwrap();
    let head = "PUT /colors HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n";
    client.write_all((head.to_owned() + "[]").as_bytes()).unwrap();
    add(&worker, socket);
    wake(&mut worker);
    worker.pool.join();
    // as if the request had waited for a change before
    let _watch = worker.shared.service().watches[0].add(Subject::List, 1, 0);
    // the client sends more, the list changes, and time passes
    client.write_all(head.as_bytes()).unwrap();
    worker.shared.set_phase(Phase::Stopping);
    let late = Instant::now() + Duration::from_secs(1000);
    pass_at(&mut worker, late, |worker, context| {
        worker.serve(1, Event::Socket, context);
        worker.serve(1, Event::Evicted, context);
        worker.shared.service().decide_all_again();
        worker.open_inbox();
        worker.end_overdue(late, context);
    });
    assert!(worker.connections[&1].connection.awaits_mail());
    assert!(worker.run_queue.is_empty() && !worker.connections[&1].queued);
    // the answer has come meanwhile
    wake(&mut worker);
    client.read_exact(&mut [0; 12]).unwrap();
}

/// Takes what has come to the inbox, and serves the run queue.
fn wake(worker: &mut Worker) {
    let events = [epoll::Event { flags: EventFlags::IN, data: EventData::new_u64(INBOX) }];
    pass_at(worker, Instant::now(), |worker, context| worker.serve_pass(&events, context));
}

/// Otherwise epoll would report it in every pass, in place of others.
#[test]
fn a_socket_whose_connection_is_in_the_run_queue_is_taken_out_of_epoll() {
    let mut worker = worker("#f00");
    let (mut client, socket) = UnixStream::pair().unwrap();
    client.write_all("GET /colors/red HTTP/1.1\r\nHost: a\r\n\r\n".repeat(100).as_bytes()).unwrap();
    add(&worker, socket);
    wake(&mut worker);
    let watched = |worker: &Worker| (worker.connections[&1].queued, worker.connections[&1].watched);
    assert!(watched(&worker).0);
    pass_at(&mut worker, Instant::now(), |worker, context| {
        worker.serve(1, Event::Socket, context);
    });
    assert_eq!(watched(&worker), (true, EventFlags::empty()));
    (0..10).for_each(|_| wake(&mut worker));
    assert_eq!(watched(&worker), (false, EventFlags::IN));
}

/// However many connections have work, the worker looks for others in between.
#[test]
fn a_pass_ends_though_there_is_more_to_do() {
    const CLIENTS: usize = 300;
    let mut worker = worker(&"x".repeat(4_000_000));
    let mut clients: Vec<UnixStream> = Vec::new();
    for _ in 0..CLIENTS {
        let (mut client, socket) = UnixStream::pair().unwrap();
        client.set_nonblocking(true).unwrap();
        client.write_all(b"GET /colors/red HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        add(&worker, socket);
        clients.push(client);
    }
    let mut served = 0;
    let mut passes = 0;
    while served < CLIENTS {
        wake(&mut worker);
        let is_served = |client: &mut UnixStream| client.read(&mut [0; 1]).is_ok();
        served += clients.extract_if(.., is_served).count();
        passes += 1;
    }
    assert!(passes > 3, "{passes}");
}

/// However soon the second one comes. A list in which the color is the same is no change of it.
#[test]
fn a_list_that_is_replaced_twice_tells_who_waits_for_what_was_changed() {
    let mut worker = worker("0");
    let shared = Arc::clone(&worker.shared);
    let list = &shared.service().store.list;
    let tag = list.find("red").unwrap().1.json.tag();
    let (mut client, socket) = UnixStream::pair().unwrap();
    client.set_nonblocking(true).unwrap();
    add(&worker, socket);
    let wait = format!(
        "GET /colors/red HTTP/1.1\r\nHost: a\r\nIf-None-Match: {tag}\r\nPrefer: wait=300\r\n\r\n"
    );
    client.write_all(wait.as_bytes()).unwrap();
    let replace = |colors: &[(&str, &str)]| {
        let colors = colors.iter().map(|(name, value)| Color::new(name, value));
        let replace = Action::ReplaceAll(colors.collect());
        let change = Change::new(replace, Default::default());
        shared.service().store.submit_and_wait(change).unwrap().unwrap();
    };
    for (values, is_told) in [(["0", "0"], false), (["1", "0"], true)] {
        (0..2).for_each(|_| wake(&mut worker));
        for value in values {
            // another color before it, so that no edit leads there
            replace(&[("x", value), ("red", value)]);
            replace(&[("red", value), ("y", value)]);
        }
        (0..2).for_each(|_| wake(&mut worker));
        assert_eq!(client.read(&mut [0; 4096]).is_ok(), is_told, "{values:?}");
    }
}

/// Clients ask, colors change and change back, and the worker looks, in random order. In the end,
/// whoever still waits has the tag of what is there.
#[test]
fn nobody_who_waits_is_forgotten() {
    const RED: &str = "/colors/red";
    const TARGETS: [&str; 6] = [RED, RED, RED, RED, RED, "/colors"];
    let mut random = fastrand::Rng::with_seed(4);
    for _ in 0..300 {
        let mut worker = worker("0");
        let shared = Arc::clone(&worker.shared);
        let mut sockets = TARGETS.map(|_| {
            let (socket, other) = UnixStream::pair().unwrap();
            socket.set_nonblocking(true).unwrap();
            add(&worker, other);
            socket
        });
        wake(&mut worker);
        // the tags with which they wait
        let mut waiting: [Option<String>; 6] = Default::default();
        let list = &shared.service().store.list;
        let tag_of = |target: &str| match target {
            "/colors" => list.version().list.envelope().tag().to_string(),
            _ => list.find("red").unwrap().1.json.tag().to_string(),
        };
        for _ in 0..random.usize(..40) {
            let client = random.usize(..6);
            match random.u8(..5) {
                0 => wake(&mut worker),
                1 | 2 => {
                    let color = Color::new("red", if random.bool() { "0" } else { "1" });
                    let action = Action::Update("red".to_owned(), Some(color));
                    let change = Change::new(action, Default::default());
                    shared.service().store.submit_and_wait(change).unwrap().unwrap();
                }
                _ => {
                    if sockets[client].read(&mut [0; 4096]).is_ok() {
                        waiting[client] = None;
                    }
                    if waiting[client].is_none() {
                        let (target, tag) = (TARGETS[client], tag_of(TARGETS[client]));
                        let request = format!(
                            "GET {target} HTTP/1.1\r\nHost: a\r\nIf-None-Match: {tag}\r\n\
                             Prefer: wait=300\r\n\r\n"
                        );
                        sockets[client].write_all(request.as_bytes()).unwrap();
                        waiting[client] = Some(tag);
                        let id = client as u64 + 1;
                        pass_at(&mut worker, Instant::now(), |worker, context| {
                            worker.serve(id, Event::Socket, context)
                        });
                    }
                }
            }
        }
        (0..2).for_each(|_| wake(&mut worker));
        for ((socket, tag), target) in sockets.iter_mut().zip(waiting).zip(TARGETS) {
            let has_waited = socket.read(&mut [0; 4096]).is_err();
            if let Some(tag) = tag.filter(|_| has_waited) {
                assert_eq!(tag, tag_of(target), "{target}");
            }
        }
    }
}
