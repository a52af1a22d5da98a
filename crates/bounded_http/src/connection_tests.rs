//! The state machine of a connection: states and events, with a clock that the test moves.

#[path = "refusal_tests.rs"]
mod refusal;

use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc;
use std::thread;

use rustix::net::sockopt;

use super::receiving::REQUESTS_IN_A_ROW;
use super::*;
use crate::inbox::Mail;
use crate::limits::Quota;
use crate::request::Request;
use crate::response::Response;
use crate::shared::Handle;
use crate::test_application::{Application, Client, LIMITS, describe, get, post, respond};
use crate::worker::Worker;

const READ: Next = Next::Epoll(EventFlags::IN);

const NOTHING: Next = Next::Epoll(EventFlags::empty());

/// A connection, its client, and the application that gets its requests.
pub(super) struct Pair {
    pub(super) connection: Connection,
    pub(super) client: Client,
    pub(super) pass: Pass,
    pub(super) application: Application,
    /// When the connection was made.
    start: Instant,
    /// One that never runs: without it, nobody could send it mail.
    _workers: Vec<Worker>,
}

impl Pair {
    pub(super) fn new() -> Self {
        Self::of(Client::new())
    }

    pub(super) fn of((client, socket): (Client, OwnedFd)) -> Self {
        let application = Application::new();
        let server = Handle::new(1, LIMITS).unwrap();
        let policy = Arc::clone(&application.notes);
        let started = server.start(Arc::clone(&policy) as _, Vec::<UnixStream>::new());
        let (_, workers) = started.unwrap();
        let (shared, start) = (server.0, Instant::now());
        let quota = Quota::new(Arc::clone(&shared), 0);
        let pass = Pass::new(shared, policy, 0, start);
        let connection = Connection::new(socket, Slot::new(quota, None, 0), start);
        Self { connection, client, pass, application, start, _workers: workers }
    }

    /// One that has reached this state at second 10.
    pub(super) fn in_state(name: &str) -> Self {
        let bytes = match name {
            "new" => String::new(),
            "reading" => "GET /".to_owned(),
            "lingering" => "nonsense\r\n\r\n".to_owned(),
            _ => get(&format!("/{name}")),
        };
        let mut pair = Self::new();
        pair.send(10, &bytes);
        pair
    }

    /// What others use of the memory.
    pub(super) fn others(&self, bytes: usize) -> Quota {
        let others = Quota::new(Arc::clone(&self.pass.shared), 0);
        others.set_memory(bytes);
        others
    }

    /// Begins a pass at this second.
    pub(super) fn begin(&mut self, seconds: u64) {
        self.pass.begin(self.start + Duration::from_secs(seconds));
    }

    /// What follows, once the application has got the requests that are handed out.
    pub(super) fn handle(&mut self, event: Event) -> Next {
        let next = self.connection.handle_event(event, &mut self.pass);
        self.answer(next)
    }

    /// What follows, once the caller of `try_recv` is back.
    fn take_back(&mut self) -> Next {
        let next = self.connection.take_back(&mut self.pass);
        self.answer(next)
    }

    fn answer(&mut self, mut next: Next) -> Next {
        for _ in 0..100 {
            if next != Next::HandOut {
                return next;
            }
            let request = self.pass.received.take().unwrap();
            self.application.answer(request);
            next = self.connection.take_back(&mut self.pass);
        }
        panic!("a request is handed out again and again")
    }

    /// Takes the mail.
    fn handle_mail(&mut self) -> Next {
        let mut mail = self.pass.shared.workers[0].inbox.take();
        let Some(Mail::Settled(1, settled)) = mail.pop() else { panic!("there is none") };
        let next = self.connection.handle_settled(settled, &mut self.pass);
        self.answer(next)
    }

    /// Sends bytes at this second, and serves the connection until it waits.
    pub(super) fn send(&mut self, seconds: u64, bytes: &str) -> Next {
        self.begin(seconds);
        self.client.send(bytes);
        let mut next = self.handle(Event::Socket);
        while next == Next::Queue {
            next = self.handle(Event::Turn);
        }
        next
    }

    /// Sends a request that is handed out, and not answered yet.
    fn hand_out(&mut self, bytes: &str) -> Request {
        self.client.send(bytes);
        assert_eq!(self.connection.handle_event(Event::Socket, &mut self.pass), Next::HandOut);
        self.pass.received.take().unwrap()
    }

    /// After how many seconds since the start the connection is overdue.
    pub(super) fn deadline(&self, phase: Phase) -> Option<u64> {
        let deadline = self.connection.deadline(phase, &LIMITS)?;
        Some((deadline - self.start).as_secs())
    }
}

#[test]
fn every_state_has_a_deadline_in_every_phase_but_while_somebody_has_the_request() {
    for (name, deadline, stopping) in [
        ("new", Some(30), Some(1)),
        ("reading", Some(40), Some(40)),
        ("idle", Some(86), Some(11)),
        ("away", None, None),
        ("park", Some(70), Some(10)),
        ("current", Some(40), Some(40)),
        ("lingering", Some(12), Some(12)),
    ] {
        let pair = Pair::in_state(name);
        assert_eq!(pair.deadline(Phase::Serving), deadline, "{name}");
        assert_eq!(pair.deadline(Phase::AboveLimit), deadline, "{name}");
        assert_eq!(pair.deadline(Phase::Stopping), stopping, "{name}");
    }
}

#[test]
fn what_comes_besides_bytes_is_told_and_noted_by_the_state() {
    use Closing::{Idle, NoRoom, RequestTimeout, Unread};
    for (name, event, next, response, noted) in [
        ("new", Event::Overdue, Next::Close, None, Some(Idle)),
        ("new", Event::Evicted, Next::Close, None, Some(NoRoom)),
        ("reading", Event::Overdue, READ, Some("408 refused close"), Some(RequestTimeout)),
        ("reading", Event::Evicted, Next::Close, Some("503 refused close"), Some(NoRoom)),
        ("idle", Event::Overdue, Next::Close, Some("200 /idle"), Some(Idle)),
        ("idle", Event::Evicted, Next::Close, Some("200 /idle"), Some(NoRoom)),
        ("away", Event::Socket, NOTHING, None, None),
        ("park", Event::Socket, READ, None, None),
        ("park", Event::Turn, READ, Some("200 /park Woken"), None),
        ("park", Event::Overdue, READ, Some("200 /park TimeOver"), None),
        ("park", Event::Evicted, Next::Close, Some("200 /park Evicted close"), Some(NoRoom)),
        ("current", Event::Overdue, Next::Close, Some("200 current"), Some(Unread)),
        ("current", Event::Evicted, Next::Close, Some("200 current"), Some(NoRoom)),
        ("lingering", Event::Overdue, Next::Close, Some("400 refused close"), None),
        ("lingering", Event::Evicted, Next::Close, Some("400 refused close"), None),
    ] {
        let mut pair = Pair::in_state(name);
        pair.begin(100);
        assert_eq!(pair.handle(event), next, "{name} {event:?}");
        assert_eq!(pair.client.received(), Vec::from_iter(response), "{name} {event:?}");
        assert_eq!(pair.application.notes.closed(), Vec::from_iter(noted), "{name} {event:?}");
    }
}

#[test]
fn more_bytes_of_a_request_give_it_no_more_time() {
    let mut pair = Pair::new();
    pair.send(5, "GET /");
    pair.send(9, "a HTTP/1.1\r\n");
    assert_eq!(pair.deadline(Phase::Serving), Some(35));
    pair.send(20, "Host: a\r\n\r\nGET");
    assert_eq!(pair.client.received(), ["200 /a"]);
    assert_eq!(pair.deadline(Phase::Serving), Some(50));
}

#[test]
fn after_the_last_response_a_client_may_go_on_sending_for_the_request_timeout() {
    let mut pair = Pair::in_state("lingering");
    for seconds in 11..40 {
        assert_eq!(pair.send(seconds, &"x".repeat(8_000)), READ);
        assert_eq!(pair.deadline(Phase::Serving), Some((seconds + 2).min(40)));
        assert_eq!(pair.deadline(Phase::Stopping), Some(12));
    }
    assert_eq!(pair.connection.stalled_since(), Some(pair.start + Duration::from_secs(10)));
}

#[test]
fn a_parked_request_is_received_again_when_its_client_goes_on() {
    let mut pair = Pair::in_state("park");
    pair.send(11, &(get("/a") + &get("/b")));
    assert_eq!(pair.client.received(), ["200 /park ClientGoesOn", "200 /a", "200 /b"]);
    pair.send(12, &(get("/park") + &get("/a")));
    assert_eq!(pair.client.received(), ["200 /park ClientGoesOn", "200 /a"]);
    let mut pair = Pair::in_state("park");
    pair.client.0.shutdown(Shutdown::Write).unwrap();
    assert_eq!(pair.handle(Event::Socket), READ);
    assert_eq!(pair.client.received(), ["200 /park ClientGoesOn"], "it may still read");
    assert_eq!(pair.handle(Event::Socket), Next::Close);
}

/// The client may ask for the next thing only when it has read these.
#[test]
fn earlier_responses_are_sent_to_their_end_while_a_request_is_away_and_before_one_is_parked() {
    for (target, last) in [("/park", &["200 /park ClientGoesOn"][..]), ("/away", &[])] {
        let mut pair = Pair::new();
        sockopt::set_socket_send_buffer_size(&pair.connection.socket, 1).unwrap();
        let mut next = pair.send(1, &(get("/lines").repeat(6) + &get(target)));
        assert_eq!(next, Next::Epoll(EventFlags::OUT));
        let mut received = Vec::new();
        while next == Next::Epoll(EventFlags::OUT) {
            received.extend(pair.client.receive());
            next = pair.handle(Event::Socket);
        }
        received.extend(pair.client.receive());
        assert_eq!(describe(&received)[6..], *last, "{target}");
        assert_eq!(pair.application.away.len(), usize::from(target == "/away"), "{target}");
    }
}

#[test]
fn a_parked_request_is_received_again_at_a_stop() {
    let mut pair = Pair::in_state("park");
    pair.pass.shared.set_phase(Phase::Stopping);
    pair.begin(11);
    assert_eq!(pair.handle(Event::Overdue), READ);
    assert_eq!(pair.client.received(), ["200 /park Stopping close"]);
    // during it, none is parked
    for (phase, expected) in
        [(Phase::Stopping, &["200 /park Stopping close"][..]), (Phase::AboveLimit, &[])]
    {
        let mut pair = Pair::new();
        pair.pass.shared.set_phase(phase);
        pair.send(1, &get("/park"));
        assert_eq!(pair.client.received(), expected, "{phase:?}");
    }
}

#[test]
fn a_wake_before_the_park_is_remembered() {
    let mut pair = Pair::new();
    let request = pair.hand_out(&get("/park"));
    assert!(!pair.connection.wake());
    pair.application.answer(request);
    assert_eq!(pair.take_back(), READ);
    assert_eq!(pair.client.received(), ["200 /park Woken"]);
    // while another thread has it
    let request = pair.hand_out(&get("/park"));
    assert_eq!(pair.take_back(), READ);
    assert!(!pair.connection.wake());
    pair.application.answer(request);
    assert_eq!(pair.handle_mail(), READ);
    assert_eq!(pair.client.received(), ["200 /park Woken"]);
}

/// The request has the slot, and would lock it again.
#[test]
fn a_parked_request_is_not_dropped_under_the_lock_of_its_slot() {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        drop(Pair::in_state("park"));
        // parked, and the connection has not looked yet
        let mut pair = Pair::new();
        let request = pair.hand_out(&get("/park"));
        pair.application.answer(request);
        drop(pair.connection);
        sender.send(())
    });
    receiver.recv_timeout(Duration::from_secs(10)).expect("no lock is taken twice");
}

#[test]
fn a_request_that_is_parked_after_a_final_reason_closes_its_connection() {
    for (phase, event, bytes) in [
        (Phase::Serving, Event::Overdue, ""),
        (Phase::Serving, Event::Socket, "GET"),
        (Phase::AboveLimit, Event::Evicted, ""),
        (Phase::Stopping, Event::Overdue, ""),
    ] {
        let mut pair = Pair::in_state("park-again");
        assert_eq!(pair.handle(Event::Turn), READ, "woken, it is parked once more");
        pair.pass.shared.set_phase(phase);
        pair.begin(100);
        pair.client.send(bytes);
        assert_eq!(pair.handle(event), Next::Close, "{phase:?} {event:?}");
        assert_eq!(pair.client.received().len(), 0);
        assert_eq!(pair.application.notes.closed(), [Closing::NoRoom]);
    }
}

#[test]
fn a_request_counts_as_memory_until_it_is_answered_whoever_has_it() {
    let mut pair = Pair::new();
    let counted = |pair: &Pair| pair.pass.shared.memory.load(Relaxed);
    let request = pair.hand_out(&post("/away", 900));
    let handed_out = counted(&pair);
    assert!((8 * 900..8 * 900 + 3_000).contains(&handed_out), "{handed_out}");
    pair.application.answer(request);
    pair.take_back();
    assert_eq!(counted(&pair), handed_out);
    respond(pair.application.away.remove(0)).unwrap();
    assert_eq!(counted(&pair), handed_out, "its worker does not know yet");
    pair.handle_mail();
    assert_eq!(counted(&pair), 0);
    assert_eq!(pair.client.received(), ["200 /away"]);
    let request = pair.hand_out(&post("/park", 900));
    pair.application.answer(request);
    assert_eq!(pair.take_back(), READ);
    assert_eq!(counted(&pair), handed_out, "it is parked");
    assert_eq!(pair.connection.handle_event(Event::Turn, &mut pair.pass), Next::HandOut);
    assert_eq!(counted(&pair), handed_out, "it is handed out again");
}

#[test]
fn a_request_that_is_away_counts_though_its_connection_is_closed() {
    let mut pair = Pair::new();
    let shared = Arc::clone(&pair.pass.shared);
    // the response to the first one cannot be sent
    pair.client.send(&(get("/a") + &post("/away", 900)));
    (pair.client, _) = Client::new();
    assert_eq!(pair.handle(Event::Socket), Next::Close);
    let request = pair.application.away.remove(0);
    assert!(request.is_open());
    drop(pair.connection);
    assert!(!request.is_open());
    assert!(shared.memory.load(Relaxed) > 8 * 900);
    assert_eq!(shared.connections(), 1);
    assert!(request.respond(Response::empty(200)).is_err());
    assert_eq!((shared.memory.load(Relaxed), shared.connections()), (0, 0));
    assert_eq!(shared.workers[0].inbox.take().len(), 0);
}

#[test]
fn nothing_is_read_after_the_response_that_is_the_last() {
    let mut pair = Pair::new();
    pair.send(1, &(get("/a") + &get("/last") + &get("/a")));
    assert_eq!(pair.client.received(), ["200 /a", "200 last close"]);
    assert_eq!(pair.send(2, &get("/a")), READ);
    assert_eq!(pair.client.received().len(), 0);
    assert_eq!(pair.deadline(Phase::Serving), Some(4), "the client has to close");
}

#[test]
fn a_request_that_is_dropped_is_answered_with_500() {
    for (method, expected) in [("GET", "500 refused Host"), ("HEAD", "500")] {
        let request = get("/away").replace("GET", method);
        let mut pair = Pair::new();
        assert_eq!(pair.send(1, &request.replace("/away", "/drop")), READ);
        assert_eq!(pair.client.received(), [expected], "on this thread");
        pair.send(1, &request);
        let away = pair.application.away.remove(0);
        thread::spawn(move || drop(away)).join().unwrap();
        assert_eq!(pair.handle_mail(), READ);
        assert_eq!(pair.client.received(), [expected], "on another");
    }
}

#[test]
fn pipelined_requests_are_answered_in_order_whichever_thread_answers_each() {
    let mut pair = Pair::new();
    pair.send(1, &["/a", "/away", "/b", "/away", "/away", "/c"].map(get).concat());
    assert_eq!(pair.client.received(), ["200 /a"]);
    for expected in [vec!["200 /away", "200 /b"], vec!["200 /away"], vec!["200 /away", "200 /c"]] {
        // the client sends more meanwhile, and nothing of it is received
        pair.client.send("\r\n");
        assert_eq!(pair.handle(Event::Socket), NOTHING);
        assert_eq!(pair.application.away.len(), 1);
        let away = pair.application.away.remove(0);
        thread::spawn(move || respond(away).unwrap()).join().unwrap();
        pair.handle_mail();
        assert_eq!(pair.client.received(), expected);
    }
}

#[test]
fn a_client_that_pipelines_lets_others_have_their_turn() {
    const COUNT: usize = REQUESTS_IN_A_ROW as usize;
    let mut pair = Pair::new();
    pair.client.send(&get("/a").repeat(COUNT + 1));
    assert_eq!(pair.handle(Event::Socket), Next::Queue);
    assert_eq!(pair.client.received(), ["200 /a"; COUNT]);
    assert_eq!(pair.handle(Event::Turn), READ);
    assert_eq!(pair.client.received(), ["200 /a"]);
}

#[test]
fn the_head_decides_before_memory_whether_a_request_comes_whole_or_in_parts() {
    for (target, expected) in
        [("/forbidden", "403 close"), ("/a", "503 refused Host Content-Length close")]
    {
        let request = post(target, 600);
        for first in [10, 500, request.len()] {
            let mut pair = Pair::new();
            let _others = pair.others(9_900);
            let (first, rest) = request.split_at(first);
            pair.send(1, first);
            pair.send(1, rest);
            assert_eq!(pair.client.received(), [expected], "{first:?}");
        }
    }
}

#[test]
fn while_memory_is_short_small_requests_are_answered_also_if_they_are_pipelined() {
    let mut pair = Pair::new();
    let _others = pair.others(10_000);
    assert_eq!(pair.send(1, &get("/a").repeat(5)), READ);
    assert_eq!(pair.client.received(), ["200 /a"; 5]);
}
