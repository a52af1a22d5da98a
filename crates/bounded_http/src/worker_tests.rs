//! A worker without a thread of its own: passes, mail and the run queue, with a clock that the test
//! moves.

#[path = "eviction_tests.rs"]
mod eviction;

use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags};

use super::*;
use crate::connection::receiving::REQUESTS_IN_A_ROW;
use crate::limits::{Limits, Quota};
use crate::request::respond_all;
use crate::response::Response;
use crate::shared::{Handle, WorkerShared};
use crate::slot::Slot;
use crate::test_application::{Application, Client, LIMITS, get, post};

/// A server whose workers the test has pass by pass.
struct Passes {
    worker: Worker,
    /// The other worker. It has the second connection, the fourth, and so on.
    other: Worker,
    server: Handle,
    application: Application,
    now: Instant,
}

impl Passes {
    fn new() -> Self {
        Self::with(LIMITS)
    }

    fn with(limits: Limits) -> Self {
        let application = Application::new();
        let server = Handle::new(2, limits).unwrap();
        let policy = Arc::clone(&application.notes);
        let (_, workers) = server.start(policy, Vec::<UnixStream>::new()).unwrap();
        let [worker, other] = workers.try_into().unwrap_or_else(|_| panic!("two were asked for"));
        Self { worker, other, server, application, now: Instant::now() }
    }

    /// With a client that is served already as far as possible, with the id 1.
    fn serving(bytes: &str) -> (Self, Client) {
        let mut passes = Self::new();
        let client = passes.connect(bytes);
        passes.pass(&[]);
        (passes, client)
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.server.0
    }

    /// A client that is connected to the first worker, and sends this.
    fn connect(&mut self, bytes: &str) -> Client {
        let (mut client, socket) = Client::new();
        client.send(bytes);
        let quota = Quota::new(Arc::clone(self.shared()), 0);
        let slot = Slot::new(quota, None, 0);
        self.shared().workers[0].inbox.post_all([Mail::NewConnection(socket, slot)]);
        client
    }

    /// A pass of the first worker, in which it has mail and these sockets are ready. The deadlines
    /// until now have passed at its end.
    fn pass(&mut self, ready: &[u64]) {
        let ready = ready.iter().chain([&INBOX]);
        let event =
            |id: &u64| epoll::Event { flags: EventFlags::IN, data: EventData::new_u64(*id) };
        self.worker.begin_pass(&ready.map(event).collect::<Vec<_>>(), self.now);
        answer_all(&mut self.worker, &mut self.application);
        self.worker.end_pass(self.now);
        self.worker.end_pass(self.now);
    }

    fn pass_after(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
        self.pass(&[]);
    }
}

fn answer_all(worker: &mut Worker, application: &mut Application) {
    while let Some(request) = worker.try_recv() {
        application.answer(request);
    }
}

/// Whether [`Worker::wait`] would return at once.
fn is_ready(worker: &Worker) -> bool {
    let mut polled = [PollFd::new(&worker.epoll, PollFlags::IN)];
    rustix::event::poll(&mut polled, Some(&Timespec::default())).unwrap() > 0
}

/// How often each worker was woken since it looked.
fn wakes(shared: &Shared) -> Vec<u64> {
    let wakes = |worker: &WorkerShared| {
        let mut count = [0; 8];
        // It fails if there was none.
        let _ = rustix::io::read(&worker.inbox.eventfd, &mut count);
        u64::from_ne_bytes(count)
    };
    shared.workers.iter().map(wakes).collect()
}

/// A client that is connected to the worker that has the fewest.
fn adopt(server: &Handle, bytes: &str) -> Client {
    let (mut client, socket) = Client::new();
    client.send(bytes);
    server.adopt(socket);
    client
}

/// The deadlines depend on the phase.
#[test]
fn a_new_phase_wakes_all_workers() {
    let passes = Passes::new();
    let shared = passes.shared();
    shared.note_excess(false);
    assert_eq!(wakes(shared), [0, 0], "it is the same");
    shared.note_excess(true);
    assert_eq!(wakes(shared), [1, 1]);
    passes.server.stop();
    assert_eq!(wakes(shared), [1, 1]);
    shared.note_excess(false);
    shared.note_excess(true);
    assert_eq!(wakes(shared), [0, 0], "nothing follows a stop");
    assert_eq!(shared.phase(), Phase::Stopping);
}

/// A socket that epoll has not reported yet may have the rest of a request.
#[test]
fn no_deadline_passes_while_a_batch_is_full() {
    let (mut passes, _client) = Passes::serving("GET /");
    passes.now += LIMITS.request_timeout - Duration::from_millis(50);
    passes.pass(&[]);
    passes.now += Duration::from_millis(100);
    // with the inbox
    passes.pass(&Vec::from_iter(101..100 + EVENTS_PER_PASS as u64));
    assert_eq!(passes.worker.run_queue.len(), 0);
    passes.pass(&[]);
    assert_eq!(passes.worker.run_queue.len(), 1);
}

#[test]
fn a_parked_request_is_received_again_once_its_worker_wakes_it() {
    let (mut passes, mut client) = Passes::serving(&get("/park"));
    passes.worker.wake(2);
    passes.pass(&[]);
    assert_eq!(client.received().len(), 0, "there is no connection 2");
    (0..3).for_each(|_| passes.worker.wake(1));
    passes.pass(&[]);
    assert_eq!(client.received(), ["200 /park Woken"]);
    assert!(passes.worker.run_queue.is_empty());
}

#[test]
fn a_connection_whose_request_is_away_is_never_in_the_run_queue() {
    let (mut passes, mut client) = Passes::serving(&post("/away", 2));
    // the client sends more, the request is woken, and time passes
    client.send(&get("/a"));
    passes.shared().set_phase(Phase::Stopping);
    passes.worker.wake(1);
    passes.now += Duration::from_secs(1_000);
    passes.pass(&[1]);
    passes.worker.serve(1, Event::Evicted);
    assert!(passes.worker.connections[&1].connection.is_away());
    assert!(!passes.worker.connections[&1].queued && passes.worker.run_queue.is_empty());
    passes.application.away.remove(0).respond(Response::empty(200)).unwrap();
    passes.pass(&[]);
    assert_eq!(client.received(), ["200 close"]);
}

/// Otherwise epoll would report it in every pass, in place of others.
#[test]
fn a_socket_whose_connection_is_in_the_run_queue_is_taken_out_of_epoll() {
    let (mut passes, mut client) = Passes::serving("");
    client.send(&get("/a").repeat(100));
    let state = |passes: &Passes| {
        let entry = &passes.worker.connections[&1];
        (entry.queued, entry.interest)
    };
    for expected in [(true, EventFlags::IN), (true, EventFlags::empty())] {
        passes.pass(&[1]);
        assert_eq!(state(&passes), expected);
    }
    (0..10).for_each(|_| passes.pass(&[]));
    assert_eq!(state(&passes), (false, EventFlags::IN));
}

/// However many connections have work, the worker looks for others in between.
#[test]
fn a_pass_ends_though_there_is_more_to_do() {
    const CLIENTS: usize = EVENTS_PER_PASS + 3;
    let mut passes = Passes::new();
    let requests = get("/a").repeat(REQUESTS_IN_A_ROW.into()) + &get("/slow");
    let _clients: Vec<_> = (0..CLIENTS).map(|_| passes.connect(&requests)).collect();
    passes.pass(&[]);
    assert_eq!(passes.worker.connections.len(), EVENTS_PER_PASS);
    for count in 2..=CLIENTS {
        passes.pass(&[]);
        assert_eq!(passes.worker.run_queue.len(), CLIENTS - count, "one turn in each pass");
    }
}

#[test]
fn a_panic_closes_its_connection_and_no_other() {
    let mut passes = Passes::new();
    let mut other = passes.connect(&get("/park"));
    let panicking = post("/panic", 2);
    let mut client = passes.connect(&panicking[..panicking.len() - 1]);
    passes.pass(&[]);
    assert_eq!(client.received().len(), 0);
    assert_eq!(passes.worker.connections.keys().copied().collect::<Vec<_>>(), [1]);
    other.send(&get("/a"));
    passes.pass(&[1]);
    assert_eq!(other.received(), ["200 /park ClientGoesOn", "200 /a"]);
}

#[test]
fn after_a_panic_of_the_caller_all_connections_are_closed_and_others_are_served() {
    let mut passes = Passes::new();
    let _clients = [(); 3].map(|()| passes.connect(&get("/a")));
    assert!(passes.worker.wait());
    let requests = [passes.worker.try_recv().unwrap(), passes.worker.try_recv().unwrap()];
    passes.worker.close_all();
    assert!(requests.iter().all(|request| !request.is_open()));
    assert!(passes.worker.try_recv().is_none());
    let mut client = passes.connect(&get("/a"));
    (0..2).for_each(|_| passes.pass(&[]));
    assert_eq!(client.received(), ["200 /a"]);
}

#[test]
fn wait_returns_at_once_while_a_request_is_handed_out_or_a_pass_is_not_over() {
    let mut passes = Passes::new();
    let _clients = [(); 2].map(|()| passes.connect(&get("/a")));
    assert!(passes.worker.wait());
    let begun = passes.worker.pass.now;
    for _ in 0..2 {
        // it would return for this, and begin another pass
        passes.server.notify(0);
        assert!(passes.worker.wait());
        assert_eq!(passes.worker.pass.now, begun);
        let request = passes.worker.try_recv().unwrap();
        assert!(passes.worker.wait());
        assert_eq!(passes.worker.pass.now, begun);
        passes.application.answer(request);
    }
    assert!(passes.worker.try_recv().is_none());
    assert!(passes.worker.wait());
    assert!(passes.worker.pass.now > begun);
}

#[test]
fn a_worker_looks_for_events_before_it_sleeps_and_only_if_it_has_no_work() {
    let (mut passes, mut client) = Passes::serving(&get("/park"));
    let looking = Some(BusyPoll::looking());
    passes.worker.busy_poll = looking;
    let wait = |passes: &mut Passes| {
        assert!(passes.worker.wait());
        answer_all(&mut passes.worker, &mut passes.application);
        passes.worker.busy_poll
    };
    passes.worker.wake(1);
    assert_eq!(wait(&mut passes), looking, "it has no need to look");
    assert_eq!(client.received(), ["200 /park Woken"]);
    client.send(&get("/a"));
    let mut found = looking;
    found.as_mut().unwrap().note_end(Duration::ZERO);
    assert_eq!(wait(&mut passes), found);
    assert_eq!(client.received(), ["200 /a"]);
    // nothing comes before the next deadline
    passes.worker.next_check = Some(passes.worker.last_pass_end);
    assert!(!wait(&mut passes).unwrap().looks(|| Duration::ZERO), "it has looked in vain");
}

/// The caller takes what it is notified of right after the wait.
#[test]
fn a_notification_during_a_pass_ends_the_next_wait() {
    let mut passes = Passes::new();
    for is_handed_out in [false, true] {
        let _client = passes.connect(&get("/a"));
        assert!(passes.worker.wait());
        if !is_handed_out {
            passes.server.notify(0);
        }
        let request = passes.worker.try_recv().unwrap();
        if is_handed_out {
            passes.server.notify(0);
        }
        passes.application.answer(request);
        assert!(passes.worker.try_recv().is_none());
        assert!(is_ready(&passes.worker) && passes.worker.wait());
        assert!(passes.worker.try_recv().is_none());
        assert!(!is_ready(&passes.worker));
    }
}

#[test]
fn answers_that_come_together_wake_each_worker_once() {
    let mut passes = Passes::new();
    let _clients = [(); 6].map(|()| adopt(&passes.server, &get("/away")));
    assert_eq!(wakes(passes.shared()), [1, 1], "by the first");
    for worker in [&mut passes.worker, &mut passes.other] {
        passes.server.notify(worker.number());
        assert!(worker.wait());
        answer_all(worker, &mut passes.application);
    }
    let shared = &passes.server.0;
    let answers = passes.application.away.drain(..).map(|request| {
        assert_eq!(wakes(shared), [0, 0], "more is to come");
        (request, Response::from_data("together"))
    });
    respond_all(answers);
    assert_eq!(wakes(shared), [1, 1]);
    let mail = shared.workers.iter().map(|worker| worker.inbox.take().len());
    assert_eq!(Vec::from_iter(mail), [3, 3]);
}

/// The workers of two servers may have the same number.
#[test]
fn answers_go_to_the_servers_of_their_requests() {
    let mut servers = [(); 2].map(|()| Passes::new());
    let _clients = servers.each_mut().map(|passes| passes.connect(&get("/away")));
    let mut answers = Vec::new();
    for passes in &mut servers {
        passes.pass(&[]);
        answers.push((passes.application.away.remove(0), Response::from_data("each")));
    }
    respond_all(answers);
    let mail = servers.each_ref().map(|passes| passes.shared().workers[0].inbox.take().len());
    assert_eq!(mail, [1, 1]);
}

#[test]
fn a_panic_between_answers_drops_none_of_those_before_it() {
    let mut passes = Passes::new();
    let mut clients = [(); 3].map(|()| passes.connect(&get("/away")));
    passes.pass(&[]);
    let answer = |request: Request| {
        assert!(request.id() != 2, "on purpose");
        (request, Response::from_data("each"))
    };
    let away = passes.application.away.drain(..).map(answer);
    assert!(catch_unwind(AssertUnwindSafe(|| respond_all(away))).is_err());
    passes.pass(&[]);
    let received = clients.each_mut().map(|client| client.received());
    assert_eq!(received, [["200 each"], ["500 refused Host"], ["500 refused Host"]]);
}

#[test]
fn a_worker_that_is_gone_gets_no_connections() {
    let (mut passes, client) = Passes::serving("");
    let shared = Arc::downgrade(passes.shared());
    // which it has not taken
    let mut clients = vec![client, passes.connect("")];
    drop(passes.worker);
    assert_eq!(passes.server.connections(), 0);
    clients.push(adopt(&passes.server, ""));
    assert_eq!(passes.other.pass.shared.workers[1].open.load(Relaxed), 1);
    drop(passes.other);
    clients.push(adopt(&passes.server, ""));
    assert_eq!(passes.server.connections(), 0);
    for client in &clients {
        assert_eq!(rustix::io::read(&client.0, &mut [0; 1]), Ok(0), "it is closed");
    }
    drop((passes.server, passes.application));
    assert_eq!(shared.strong_count(), 0);
}

#[test]
fn times_without_end_are_times_in_which_nothing_ends() {
    let limits = Limits { request_timeout: Duration::MAX, keep_alive: Duration::MAX, ..LIMITS };
    let mut passes = Passes::with(limits);
    let begins = ["nonsense\r\n\r\n", "GET", &get("/a"), &get("/current"), &get("/park")];
    let _clients = begins.map(|begin| passes.connect(begin));
    passes.pass(&[]);
    assert_eq!(passes.worker.connections.len(), 5);
    (0..2).for_each(|_| passes.pass_after(3_600));
    assert_eq!(passes.worker.connections.len(), 4, "one was refused");
}

#[test]
fn a_client_that_reads_slowly_keeps_no_worker_once_the_server_is_over() {
    let mut passes = Passes::new();
    let client = passes.connect(&get("/current"));
    let mut away = passes.connect(&get("/away"));
    passes.pass(&[]);
    passes.shared().set_phase(Phase::Stopping);
    passes.shared().is_over.store(true, Relaxed);
    assert_eq!(rustix::io::read(&client.0, &mut [0; 1_000]), Ok(1_000));
    passes.server.notify(0);
    assert!(passes.worker.wait(), "one has no answer yet");
    passes.pass(&[]);
    assert_eq!(passes.worker.connections.keys().copied().collect::<Vec<_>>(), [2]);
    passes.application.away.remove(0).respond(Response::empty(200)).unwrap();
    assert!(passes.worker.wait());
    passes.pass(&[]);
    assert!(!passes.worker.wait());
    assert_eq!(away.received(), ["200 close"]);
}

#[test]
fn a_request_whose_connection_is_closed_keeps_no_worker_once_the_server_is_over() {
    let (mut passes, _client) = Passes::serving(&get("/away"));
    passes.worker.close_all();
    passes.shared().is_over.store(true, Relaxed);
    assert_eq!(passes.server.connections(), 1);
    assert!(!passes.worker.wait(), "nothing would wake it");
}

#[test]
fn the_time_goes_on_while_the_caller_of_recv_answers() {
    let mut passes = Passes::new();
    let _clients = [(); 2].map(|()| passes.connect(&get("/a")));
    let request = passes.worker.recv().unwrap();
    let begun = passes.worker.pass.now;
    passes.application.answer(request);
    assert!(passes.worker.recv().is_some());
    assert!(passes.worker.pass.now > begun);
}

#[test]
fn a_policy_that_panics_ends_no_worker() {
    let mut passes = Passes::new();
    passes.application.notes.panics.store(true, Relaxed);
    let (client, socket) = Client::new();
    // so that it is not taken
    epoll::add(&passes.worker.epoll, &socket, EventData::new_u64(9), EventFlags::empty()).unwrap();
    passes.server.adopt(socket);
    passes.pass(&[]);
    assert_eq!(rustix::io::read(&client.0, &mut [0; 1]), Ok(0), "it is closed");
}

/// Two panics at a time would end the process.
#[test]
fn a_request_that_a_panic_drops_gets_a_500_though_the_policy_panics_as_well() {
    let mut passes = Passes::new();
    passes.application.notes.panics.store(true, Relaxed);
    let mut client = passes.connect(&get("/a"));
    assert!(passes.worker.wait());
    let request = passes.worker.try_recv().unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _request = request;
        panic!("on purpose")
    }));
    assert!(panicked.is_err());
    // its thread ends, as when the panic came in its loop
    drop(passes.worker);
    assert_eq!(client.received(), ["500"]);
}
