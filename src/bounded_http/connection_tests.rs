//! The state machine of a connection: states and events, with a clock that the test moves.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use threadpool::ThreadPool;

use super::*;
use crate::bounded_http::inbox::Mail;
use crate::bounded_http::{Handle, Shared};
use crate::options::Options;
use crate::service::{Service, change_listener, limits};
use crate::store::{Action, Change, Color, ColorList, Store};

/// A connection and the other end of its socket.
struct Pair {
    connection: Connection,
    client: UnixStream,
    shared: Arc<Shared>,
    pool: ThreadPool,
    /// When the connection was made.
    start: Instant,
    /// Seconds since then, and the phase of the service.
    now: u64,
    phase: Phase,
}

impl Pair {
    /// A connection to a service with one color.
    fn new(value: &str) -> Self {
        let colors = ColorList::from_iter([Color::new("red", value)]);
        let options = Options { max_body: 1_000, ..Options::default() };
        let limits = limits(&options, 10, 10_000);
        let server = Handle::new(1, limits).unwrap();
        let watches = vec![Arc::default()];
        let store = Store::in_memory(colors, change_listener(&server, &watches));
        let (handle, options) = (server.clone(), options.into());
        let service = Service::new(options, store, None, None, handle, watches, vec![false]);
        let shared = server.with(service);
        let (client, socket) = UnixStream::pair().unwrap();
        let start = Instant::now();
        let quota = Quota::new(Arc::clone(&shared), 0);
        let accepted = NewConnection { socket: socket.into(), peer: None, listener: 0, quota };
        let connection = Connection::new(accepted, start);
        let (pool, phase) = (ThreadPool::new(1), Phase::Serving);
        Self { connection, client, shared, pool, start, now: 0, phase }
    }

    fn store(&self) -> &Store {
        &self.shared.service().store
    }

    fn with_context<T>(
        &mut self,
        work: impl FnOnce(&mut Connection, &mut LoopContext<'_>) -> T,
    ) -> T {
        let now = self.start + Duration::from_secs(self.now);
        let mut scratch = [0; 8192];
        let (shared, pool) = (&self.shared, &self.pool);
        let context = &mut LoopContext::new(shared, 0, pool, now, "", &mut scratch);
        context.id = 1;
        context.phase = self.phase;
        work(&mut self.connection, context)
    }

    fn handle_event(&mut self, event: Event) -> Next {
        self.with_context(|connection, context| connection.handle_event(event, context))
    }

    /// Sends bytes at this second, and serves the connection until it waits.
    fn send(&mut self, seconds: u64, bytes: &str) -> Next {
        self.now = seconds;
        self.client.write_all(bytes.as_bytes()).unwrap();
        let mut next = self.handle_event(Event::Socket);
        while next == Next::Queue {
            next = self.handle_event(Event::Turn);
        }
        next
    }

    /// What has been received, as statuses and whether each closes.
    fn received(&mut self) -> Vec<(u16, bool)> {
        self.client.set_nonblocking(true).unwrap();
        let mut text = Vec::new();
        // It fails when there is nothing more yet.
        let _ = self.client.read_to_end(&mut text);
        let text = String::from_utf8(text).unwrap();
        let heads = text.split("HTTP/1.1 ").skip(1);
        heads
            .map(|head| (head[..3].parse().unwrap(), head.contains("\r\nConnection: close\r\n")))
            .collect()
    }

    /// After how many seconds since the start the connection is overdue.
    fn deadline(&self, phase: Phase) -> Option<u64> {
        let deadline = self.connection.deadline(phase, &self.shared.limits)?;
        Some((deadline - self.start).as_secs())
    }

    fn change_red(&self, value: &str) {
        let update = Action::Update("red".to_owned(), Some(Color::new("red", value)));
        self.store().submit_and_wait(Change::new(update, Default::default())).unwrap().unwrap();
    }

    fn tag(&self) -> String {
        self.store().list.find("red").unwrap().1.json.tag().to_string()
    }

    /// A request that waits for a change of the color for so many seconds.
    fn waiting(&self, seconds: u16) -> String {
        let tag = self.tag();
        get(&format!("If-None-Match: {tag}\r\nPrefer: wait={seconds}\r\n"))
    }
}

fn get(fields: &str) -> String {
    format!("GET /colors/red HTTP/1.1\r\nHost: a\r\n{fields}\r\n")
}

/// Has a connection reach each state at second 10.
fn in_each_state() -> Vec<(&'static str, Pair)> {
    let mut pairs = Vec::new();
    let mut add = |name, value: &str, bytes: &dyn Fn(&Pair) -> String| {
        let mut pair = Pair::new(value);
        let bytes = bytes(&pair);
        pair.send(10, &bytes);
        pairs.push((name, pair));
    };
    let long = "x".repeat(4_000_000);
    add("new", "1", &|_| String::new());
    add("reading", "1", &|_| "GET /".to_owned());
    add("idle", "1", &|_| get(""));
    add("awaiting", "1", &|_| {
        "PUT /colors HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n[]".to_owned()
    });
    add("waiting", "1", &|pair| pair.waiting(60));
    add("sending", &long, &|_| get(""));
    add("lingering", "1", &|_| "nonsense\r\n\r\n".to_owned());
    pairs
}

#[test]
fn every_state_has_a_deadline_in_every_phase_but_while_an_answer_is_made() {
    let expected = [
        ("new", Some(30), Some(1)),
        ("reading", Some(40), Some(40)),
        ("idle", Some(86), Some(11)),
        ("awaiting", None, None),
        ("waiting", Some(70), Some(10)),
        ("sending", Some(40), Some(40)),
        ("lingering", Some(12), Some(12)),
    ];
    for ((name, pair), (expected_name, deadline, stopping)) in
        in_each_state().into_iter().zip(expected)
    {
        assert_eq!(name, expected_name);
        assert_eq!(pair.deadline(Phase::Serving), deadline, "{name}");
        assert_eq!(pair.deadline(Phase::AboveLimit), deadline, "{name}");
        assert_eq!(pair.deadline(Phase::Stopping), stopping, "{name}");
    }
}

#[test]
fn what_is_overdue_is_told_closed_and_counted_by_its_state() {
    use Closing::{Idle, NoRoom, Request, Unread};
    let read = Next::Epoll(EventFlags::IN);
    for (name, is_evicted, next, responses, counted) in [
        ("new", false, Next::Close, vec![], Some(Idle)),
        ("reading", false, read, vec![(408, true)], Some(Request)),
        ("reading", true, Next::Close, vec![(503, true)], Some(NoRoom)),
        ("idle", false, Next::Close, vec![(200, false)], Some(Idle)),
        ("idle", true, Next::Close, vec![(200, false)], Some(NoRoom)),
        ("waiting", false, read, vec![(304, false)], None),
        ("waiting", true, Next::Close, vec![(304, false)], Some(NoRoom)),
        ("sending", false, Next::Close, vec![(200, false)], Some(Unread)),
        ("sending", true, Next::Close, vec![(200, false)], Some(NoRoom)),
        ("lingering", false, Next::Close, vec![(400, true)], None),
        ("lingering", true, Next::Close, vec![(400, true)], None),
    ] {
        let state = in_each_state().into_iter().find(|(state, _)| *state == name);
        let (_, mut pair) = state.unwrap();
        pair.now = 100;
        let event = if is_evicted { Event::Evicted } else { Event::Overdue };
        assert_eq!(pair.handle_event(event), next, "{name} {is_evicted}");
        assert_eq!(pair.received(), responses, "{name} {is_evicted}");
        let counters = &pair.shared.service().metrics.workers[0];
        for reason in Closing::ALL {
            let count = u64::from(counted == Some(reason));
            assert_eq!(counters.closed(reason).get(), count, "{name} {is_evicted} {reason:?}");
        }
    }
}

#[test]
fn more_bytes_of_a_request_give_it_no_more_time() {
    let mut pair = Pair::new("1");
    pair.send(5, "GET /colors");
    pair.send(9, "/red HTTP/1.1\r\n");
    assert_eq!(pair.deadline(Phase::Serving), Some(35));
    pair.send(20, "Host: a\r\n\r\nGET");
    assert_eq!(pair.received(), [(200, false)]);
    assert_eq!(pair.deadline(Phase::Serving), Some(50));
}

#[test]
fn after_the_last_response_a_client_may_go_on_sending_for_the_request_timeout() {
    let mut pair = Pair::new("1");
    pair.send(10, "nonsense\r\n\r\n");
    for seconds in 11..40 {
        assert_eq!(pair.send(seconds, &"x".repeat(8_000)), Next::Epoll(EventFlags::IN));
        assert_eq!(pair.deadline(Phase::Serving), Some((seconds + 2).min(40)));
        assert_eq!(pair.deadline(Phase::Stopping), Some(12));
    }
    assert_eq!(pair.connection.stalled_since(), Some(pair.start + Duration::from_secs(10)));
}

#[test]
fn a_wait_ends_with_a_change_or_with_its_time() {
    let mut pair = Pair::new("1");
    assert_eq!(pair.send(1, &pair.waiting(60)), Next::Epoll(EventFlags::IN));
    assert!(pair.received().is_empty());
    // changed and changed back
    pair.change_red("2");
    pair.change_red("1");
    assert_eq!(pair.handle_event(Event::Turn), Next::Epoll(EventFlags::IN));
    assert_eq!(pair.received(), [(200, false)]);
    assert_eq!(pair.send(2, &pair.waiting(60)), Next::Epoll(EventFlags::IN));
    pair.now = 62;
    assert_eq!(pair.handle_event(Event::Overdue), Next::Epoll(EventFlags::IN));
    assert_eq!(pair.received(), [(304, false)]);
    // whatever comes first after a change, the answer is true
    for (event, value) in [(Event::Socket, "3"), (Event::Overdue, "4")] {
        pair.send(63, &pair.waiting(60));
        pair.change_red(value);
        assert_eq!(pair.handle_event(event), Next::Epoll(EventFlags::IN));
        assert_eq!(pair.received(), [(200, false)], "{event:?}");
    }
}

#[test]
fn a_wait_ends_with_another_request_the_end_of_the_client_a_stop_and_the_limit() {
    let wait = |seconds: u64| {
        let mut pair = Pair::new("1");
        let request = pair.waiting(60);
        pair.send(seconds, &request);
        assert!(pair.received().is_empty());
        pair
    };
    let mut pair = wait(1);
    pair.send(2, &(get("") + "GET /colors/none HTTP/1.1\r\nHost: a\r\n\r\n"));
    assert_eq!(pair.received(), [(304, false), (200, false), (404, false)]);
    let mut pair = wait(1);
    pair.client.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(pair.handle_event(Event::Socket), Next::Epoll(EventFlags::IN));
    assert_eq!(pair.received(), [(304, false)]);
    assert_eq!(pair.handle_event(Event::Socket), Next::Close);
    for (phase, event, next) in [
        (Phase::Stopping, Event::Overdue, Next::Epoll(EventFlags::IN)),
        // its place is needed at once
        (Phase::AboveLimit, Event::Evicted, Next::Close),
    ] {
        let mut pair = wait(1);
        pair.phase = phase;
        assert_eq!(pair.handle_event(event), next);
        assert_eq!(pair.received(), [(304, true)], "{phase:?}");
    }
    // at the limit, too, a wait may begin
    let mut pair = Pair::new("1");
    pair.phase = Phase::AboveLimit;
    let request = pair.waiting(60);
    assert_eq!(pair.send(1, &request), Next::Epoll(EventFlags::IN));
    assert!(pair.received().is_empty());
    // what is behind it already is answered in order, and at once
    let mut pair = Pair::new("1");
    let requests = pair.waiting(60) + &get("");
    pair.send(1, &requests);
    assert_eq!(pair.received(), [(304, false), (200, false)]);
}

/// A change between the first look and the wait concerns nobody, so the connection looks again.
#[test]
fn a_change_before_the_wait_is_not_missed() {
    let mut pair = Pair::new("1");
    let text = pair.waiting(60);
    let mut parser = Parser::default();
    parser.append(text.as_bytes());
    let (head, content) = parser.next_request(0).unwrap().unwrap();
    let request = ReceivedRequest::new(head, content);
    let next = pair.with_context(|_, context| context.decide(&request.request(), 0));
    assert!(matches!(next, Decision::WaitForChange { .. }), "the tag is current");
    pair.change_red("2");
    let begin = |connection: &mut Connection, context: &mut LoopContext<'_>| {
        let begun = connection.carry_out(Pending::new(request, context.now, 0), next, context);
        let Transition(state, next) = begun.unwrap();
        connection.state = state;
        next
    };
    assert_eq!(pair.with_context(begin), Next::Queue);
    assert_eq!(pair.handle_event(Event::Turn), Next::Epoll(EventFlags::IN));
    assert_eq!(pair.received(), [(200, false)]);
}

/// When the answer takes long, a client that has waited is not told what may be false.
#[test]
fn a_wait_for_a_long_list_that_has_changed_does_not_end_without_an_answer() {
    let long = "x".repeat(70_000);
    let mut pair = Pair::new(&long);
    let wait = |pair: &mut Pair| {
        let tag = pair.store().list.version().list.envelope().tag();
        let fields = format!("Host: a\r\nIf-None-Match: {tag}\r\nPrefer: wait=60\r\n");
        let request = format!("GET /colors HTTP/1.1\r\n{fields}\r\n");
        assert_eq!(pair.send(1, &request), Next::Epoll(EventFlags::IN));
    };
    wait(&mut pair);
    pair.change_red(&(long.clone() + "y"));
    assert_eq!(pair.handle_event(Event::Evicted), Next::Epoll(EventFlags::IN));
    pair.pool.join();
    let Some(Mail::FromPool(_, decision)) = pair.shared.workers[0].inbox.take().pop() else {
        panic!("none")
    };
    pair.phase = Phase::AboveLimit;
    let next =
        pair.with_context(|connection, context| connection.handle_decision(decision, context));
    assert_eq!(next, Next::Queue);
    pair.handle_event(Event::Turn);
    assert_eq!(pair.received()[0], (200, true));
    // nor when the answer is made by then
    let mut pair = Pair::new("1");
    wait(&mut pair);
    pair.change_red(&long);
    pair.store().list.version().list.envelope();
    pair.phase = Phase::AboveLimit;
    assert_eq!(pair.handle_event(Event::Evicted), Next::Queue);
    pair.handle_event(Event::Turn);
    assert_eq!(pair.received()[0], (200, true));
}

#[test]
fn a_client_that_pipelines_lets_others_have_their_turn() {
    let mut pair = Pair::new("1");
    pair.client.write_all(get("").repeat(ANSWERS_IN_A_ROW + 1).as_bytes()).unwrap();
    assert_eq!(pair.handle_event(Event::Socket), Next::Queue);
    assert_eq!(pair.received().len(), ANSWERS_IN_A_ROW);
    assert_eq!(pair.handle_event(Event::Turn), Next::Epoll(EventFlags::IN));
    assert_eq!(pair.received().len(), 1);
}

#[test]
fn a_list_counts_as_what_is_made_of_its_content() {
    let mut pair = Pair::new("1");
    let mut others = Quota::new(Arc::clone(&pair.shared), 0);
    let put = |target: &str, length: usize| {
        let content = " ".repeat(length);
        format!("PUT {target} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{content}")
    };
    others.set_memory(9_900);
    pair.send(1, &put("/colors/red", 100));
    assert_eq!(pair.received(), [(400, false)]);
    pair.send(1, &put("/colors", 600));
    assert_eq!(pair.received(), [(503, true)]);
}

#[test]
fn the_head_decides_before_memory_whether_a_request_comes_whole_or_in_parts() {
    for (target, status) in [("/health", 405), ("/colors", 503)] {
        for first in [10, 500, usize::MAX] {
            let mut pair = Pair::new("1");
            let mut others = Quota::new(Arc::clone(&pair.shared), 0);
            others.set_memory(9_900);
            let content = " ".repeat(600);
            let head = format!("PUT {target} HTTP/1.1\r\nHost: a\r\nContent-Length: 600");
            let request = format!("{head}\r\n\r\n{content}");
            let (first, rest) = request.split_at(first.min(request.len()));
            pair.send(1, first);
            pair.send(1, rest);
            assert_eq!(pair.received(), [(status, true)], "{target} {first:?}");
        }
    }
}

/// Otherwise its change would be made, or wait for the disk, and count for no connection.
#[test]
fn a_connection_that_ends_before_its_change_is_submitted_submits_none() {
    let mut pair = Pair::new("1");
    let put = "PUT /colors HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n[]";
    pair.client.write_all((get("") + put).as_bytes()).unwrap();
    (pair.client, _) = UnixStream::pair().unwrap();
    assert_eq!(pair.handle_event(Event::Socket), Next::Close);
    pair.pool.join();
    assert!(pair.shared.workers[0].inbox.take().is_empty());
}

#[test]
fn long_content_is_sent_when_its_turn_comes() {
    let mut states = in_each_state();
    let (_, pair) = states.iter_mut().find(|(name, _)| *name == "sending").unwrap();
    pair.received();
    assert_eq!(pair.handle_event(Event::Socket), Next::Queue);
    let mut received = vec![0; 1000];
    assert!(pair.client.read(&mut received).is_err(), "nothing is sent yet");
    assert_eq!(pair.handle_event(Event::Turn), Next::Epoll(EventFlags::OUT));
    assert_eq!(pair.client.read(&mut received).unwrap(), 1000);
}

#[test]
fn a_client_that_does_not_read_is_closed_when_its_responses_take_too_much() {
    for (others_bytes, expected) in [(0, Next::Epoll(EventFlags::OUT)), (9_900, Next::Close)] {
        let mut pair = Pair::new("1");
        let mut others = Quota::new(Arc::clone(&pair.shared), 0);
        others.set_memory(others_bytes);
        let metrics = "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n".repeat(100);
        assert_eq!(pair.send(1, &metrics), expected);
    }
}

#[test]
fn a_client_that_reads_what_is_old_is_closed_when_memory_is_short() {
    let sending = || in_each_state().into_iter().find(|(name, _)| *name == "sending").unwrap().1;
    for (others_bytes, deadline, next) in [
        (20_000_000, 10, Next::Close),
        // two versions of a long content may be read to their end
        (4_000_000, 40, Next::Epoll(EventFlags::OUT)),
    ] {
        let mut pair = sending();
        pair.change_red("2");
        pair.shared.read_bytes.fetch_add(others_bytes, Relaxed);
        assert_eq!(pair.deadline(Phase::Serving), Some(deadline));
        assert_eq!(pair.handle_event(Event::Overdue), next);
        let closed = pair.shared.service().metrics.workers[0].closed(Closing::OldContent).get();
        assert_eq!(closed, u64::from(next == Next::Close));
    }
}
