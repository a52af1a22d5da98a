//! The loop of a worker, with clients at the other ends of socket pairs. A test drives the worker
//! on its own thread, and so decides what comes between two steps.

#[path = "serve/late_tests.rs"]
mod late;

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};
use std::{fs, process};

use bounded_http::{Acceptor, Handle, Reason};

use super::*;
use crate::options::Options;
use crate::service::{Tokens, Waits, limits};
use crate::store::{Action, ChangeListener, Color, ColorList, Store};

const RED: &str = "/colors/red";

/// A service with one worker, which takes 10 connections and 10,000 bytes.
struct Tested {
    worker: Worker,
    handler: Arc<Handler>,
    acceptor: Acceptor<UnixStream>,
}

impl Tested {
    /// With the color `red`, in memory.
    fn new(value: &str) -> Self {
        let store = |notify: ChangeListener| Store::in_memory(red(value), notify);
        Self::with(Options::default(), None, store)
    }

    /// The same, and a client that waits for a change.
    fn with_wait(value: &str, target: &str) -> (Self, Client) {
        let mut tested = Self::new(value);
        let mut client = tested.handler.connect(&tested.handler.waiting(target));
        tested.passes();
        assert_eq!((client.statuses(), tested.handler.waits()), (vec![], 1));
        (tested, client)
    }

    /// A change of the color `bomb` panics once it is made.
    fn with(
        options: Options,
        tokens: Option<Tokens>,
        store: impl FnOnce(ChangeListener) -> Store<Submitter>,
    ) -> Self {
        let server = Handle::new(1, limits(&options, 10, 10_000)).unwrap();
        let waits = Waits::new(server.clone(), 1);
        let notify = waits.listener();
        let store = store(Box::new(move |step| {
            notify(step);
            let mut colors = step.edits.iter().filter_map(|edit| edit.color());
            assert!(colors.all(|color| color.name() != "bomb"), "on purpose");
        }));
        let list = Arc::clone(&store.list);
        let service = Arc::new(Service {
            storage: store.status().cloned(),
            ..Service::in_memory(list, options, tokens, waits, server.clone())
        });
        let handler = Handler::new(Arc::clone(&service), store, &ThreadPool::new(1));
        let (acceptor, mut workers) = server.start(service, Vec::new()).unwrap();
        Self { worker: workers.remove(0), handler, acceptor }
    }

    /// Begins a pass. Without the notification this would wait until there is something to do.
    fn begin_pass(&mut self) {
        self.handler.service.server.notify(0);
        assert!(self.worker.wait());
    }

    /// Begins a pass, and takes its first request.
    fn receive(&mut self) -> Exchange {
        self.begin_pass();
        Exchange::new(self.worker.try_recv().unwrap())
    }

    fn pass(&mut self) {
        self.begin_pass();
        serve_pass(&mut self.worker, &self.handler);
    }

    /// Goes on until all that can be answered is answered: the pool answers some requests, and long
    /// answers have their turn in a pass of their own.
    fn passes(&mut self) {
        for _ in 0..5 {
            self.pass();
            self.handler.pool.join();
        }
    }
}

impl Handler {
    fn connect(&self, requests: &str) -> Client {
        let (client, socket) = UnixStream::pair().unwrap();
        client.set_nonblocking(true).unwrap();
        let mut client = Client(client);
        client.send(requests);
        self.service.server.adopt(socket.into());
        client
    }

    /// A request that waits for a change of the list, or of `red`.
    fn waiting(&self, target: &str) -> String {
        let tag = self.tag(target);
        let fields = format!("Host: a\r\nIf-None-Match: {tag}\r\nPrefer: wait=300");
        format!("GET {target} HTTP/1.1\r\n{fields}\r\n\r\n")
    }

    fn tag(&self, target: &str) -> String {
        let list = &self.service.list;
        match target {
            RED => list.find("red").unwrap().1.json.tag().to_string(),
            _ => list.version().list.envelope().tag().to_string(),
        }
    }

    /// How many requests wait.
    fn waits(&self) -> usize {
        self.service.waits.count()
    }

    fn change(&self, action: Action) {
        self.service.list.change(&Change::new(action, Default::default()));
    }

    fn change_red(&self, value: &str) {
        self.change(Action::Update(Color::new("red", value)));
    }
}

struct Client(UnixStream);

impl Client {
    fn send(&mut self, requests: &str) {
        self.0.write_all(requests.as_bytes()).unwrap();
    }

    /// The statuses and contents of what has come since the last call.
    fn received(&mut self) -> Vec<(u16, String)> {
        let mut responses = Vec::new();
        // It fails when there is nothing more yet.
        let _ = self.0.read_to_end(&mut responses);
        let responses = String::from_utf8(responses).unwrap();
        let content = |response: &str| response.split_once("\r\n\r\n").unwrap().1.to_owned();
        let responses = responses.split("HTTP/1.1 ").skip(1);
        responses.map(|response| (response[..3].parse().unwrap(), content(response))).collect()
    }

    fn statuses(&mut self) -> Vec<u16> {
        self.received().into_iter().map(|(status, _)| status).collect()
    }
}

fn red(value: &str) -> ColorList {
    ColorList::from_iter([Color::new("red", value)])
}

fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n")
}

fn put(target: &str, content: &str) -> String {
    let length = content.len();
    format!("PUT {target} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{content}")
}

/// The content of a 500 after a panic.
fn failed() -> String {
    format!("{{\"error\":true,\"message\":\"{FAILED}\"}}\n")
}

#[track_caller]
fn eventually(mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "this does not come about");
        thread::yield_now();
    }
}

#[test]
fn a_wait_ends_with_a_change_also_if_it_is_changed_back() {
    for target in [RED, "/colors"] {
        let (mut tested, mut client) = Tested::with_wait("1", target);
        tested.handler.change_red("2");
        tested.handler.change_red("1");
        tested.passes();
        assert_eq!((client.statuses(), tested.handler.waits()), (vec![200], 0));
    }
}

#[test]
fn a_wait_ends_with_another_request_the_end_of_the_client_a_stop_and_the_limit() {
    let end = |end: &dyn Fn(&mut Tested, &mut Client)| {
        let (mut tested, mut client) = Tested::with_wait("1", RED);
        end(&mut tested, &mut client);
        tested.passes();
        assert_eq!(tested.handler.waits(), 0);
        client.statuses()
    };
    let more = end(&|_, client| client.send(&(get(RED) + &get("/colors/none"))));
    assert_eq!(more, [304, 200, 404]);
    let ended = end(&|_, client| client.0.shutdown(Shutdown::Write).unwrap());
    assert_eq!(ended, [304]);
    assert_eq!(end(&|tested, _| tested.handler.service.server.stop()), [304]);
    let no_room = end(&|tested, _| {
        let _others = [(); 10].map(|()| tested.handler.connect(""));
        let (ready, _) = UnixStream::pair().unwrap();
        tested.acceptor.accept(&[ready.as_fd()], None).unwrap();
        // The client has to have stalled for a moment.
        eventually(|| {
            tested.pass();
            tested.handler.waits() == 0
        });
    });
    assert_eq!(no_room, [304]);
}

/// A change between the first look and the wait concerns nobody, so the service looks again.
/// No limit counts the memory of those that wait.
#[test]
fn in_all_other_cases_the_answer_comes_at_once() {
    let mut tested = Tested::new("1");
    let prefer = "\r\nPrefer";
    let long = format!("\r\nOrigin: {}{prefer}", "x".repeat(2048));
    for (text, here, statuses) in [
        (prefer, ", \"x\"".repeat(3) + prefer, vec![]),
        (prefer, ", \"x\"".repeat(4) + prefer, vec![304]),
        (prefer, long, vec![304]),
        (prefer, format!("\r\nIf-Match: \"x\"{prefer}"), vec![412]),
        (prefer, "\r\nX".to_owned(), vec![304]),
        ("If-None-Match", "X".to_owned(), vec![200]),
        ("If-None-Match: \"", "If-None-Match: \"x".to_owned(), vec![200]),
        (RED, "/colors/none".to_owned(), vec![404]),
        ("wait=300", "wait=x".to_owned(), vec![304]),
    ] {
        let request = tested.handler.waiting(RED).replace(text, &here);
        let mut client = tested.handler.connect(&request);
        tested.passes();
        assert_eq!(client.statuses(), statuses, "{request:.200}");
    }
}

#[test]
fn a_change_before_the_wait_is_not_missed() {
    let mut tested = Tested::new("1");
    let mut client = tested.handler.connect(&tested.handler.waiting(RED));
    let exchange = tested.receive();
    let decision = tested.handler.service.decide(&exchange.request(), Thread::Worker);
    let Decision::Wait { subject, seen, .. } = decision else { panic!("it is current") };
    tested.handler.change_red("2");
    let exchange = exchange.waiting(&tested.handler.service.waits, subject, seen);
    tested.handler.answer(exchange, Thread::Worker, &mut Vec::new());
    tested.passes();
    assert_eq!((client.statuses(), tested.handler.waits()), (vec![200], 0));
}

/// When the answer takes long, a client that has waited is not told what may be false.
#[test]
fn a_wait_for_a_long_list_that_has_changed_does_not_end_without_an_answer() {
    let long = "x".repeat(70_000);
    let (mut tested, mut client) = Tested::with_wait(&long, "/colors");
    client.send(&get("/colors/none"));
    let exchange = tested.receive();
    assert_eq!(exchange.http.reason(), Reason::ClientGoesOn);
    tested.handler.change_red(&(long + "y"));
    let answered = tested.handler.answer(exchange, Thread::Worker, &mut Vec::new());
    assert!(!answered);
    tested.passes();
    assert_eq!((client.statuses(), tested.handler.waits()), (vec![200, 404], 0));
}

#[test]
fn a_wait_that_the_pool_answers_keeps_what_its_client_has_seen() {
    let long = "x".repeat(70_000);
    let (mut tested, mut client) = Tested::with_wait(&long, "/colors");
    tested.handler.change_red(&(long.clone() + "y"));
    tested.handler.change_red(&long);
    tested.passes();
    assert_eq!((client.statuses(), tested.handler.waits()), (vec![200], 0));
}

/// However soon the second one comes. A list in which the color is the same is no change of it.
#[test]
fn a_list_that_is_replaced_twice_tells_who_waits_for_what_was_changed() {
    let (mut tested, mut client) = Tested::with_wait("0", RED);
    for (values, expected) in [(["0", "0"], vec![]), (["1", "0"], vec![200])] {
        for value in values {
            // Another color before it, so that no edit leads there.
            for names in [["x", "red"], ["red", "y"]] {
                let colors = names.map(|name| Color::new(name, value));
                tested.handler.change(Action::ReplaceAll(colors.into_iter().collect()));
            }
        }
        tested.passes();
        assert_eq!(client.statuses(), expected, "{values:?}");
    }
}

#[test]
fn a_request_that_waits_is_refused_once_its_token_is_withdrawn() {
    let file = std::env::temp_dir().join(format!("colors-serve-tokens-{}", process::id()));
    let load = |tokens: &Tokens, last: char| {
        fs::write(&file, format!("abcdefgh0123456{last}")).unwrap();
        tokens.load().unwrap();
    };
    let tokens = Tokens::new(&file);
    load(&tokens, '7');
    let options = Options { private: true, ..Options::default() };
    let store = |notify: ChangeListener| Store::in_memory(red("1"), notify);
    let mut tested = Tested::with(options, Some(tokens), store);
    let fields = "\r\nAuthorization: Bearer abcdefgh01234567\r\n\r\n";
    let mut client =
        tested.handler.connect(&tested.handler.waiting(RED).replace("\r\n\r\n", fields));
    tested.passes();
    for (last, expected) in [('7', vec![]), ('8', vec![401])] {
        load(tested.handler.service.tokens.as_ref().unwrap(), last);
        tested.handler.service.waits.mark_all();
        assert!(tested.worker.wait(), "this would not return, had the worker not been notified");
        tested.passes();
        assert_eq!(client.statuses(), expected);
    }
    assert_eq!(tested.handler.waits(), 0);
    fs::remove_file(&file).unwrap();
}

#[test]
fn a_content_counts_as_what_a_list_made_of_it_takes() {
    let mut tested = Tested::new("1");
    let whole = put(RED, &" ".repeat(9_500));
    let _other = tested.handler.connect(&whole[..whole.len() - 1]);
    tested.passes();
    for (target, length, expected) in [(RED, 100, 400), ("/colors", 600, 503)] {
        let mut client = tested.handler.connect(&put(target, &" ".repeat(length)));
        tested.passes();
        assert_eq!(client.statuses(), [expected]);
    }
}

#[test]
fn a_panic_is_answered_with_500_and_the_requests_behind_it_are_answered() {
    // The pool answers the longer one.
    for length in [1, 20_000] {
        let mut tested = Tested::new("1");
        let bomb = format!(r#"{{"name":"bomb","value":"{}"}}"#, "x".repeat(length));
        let post = put("/colors", &bomb).replacen("PUT", "POST", 1);
        let mut client = tested.handler.connect(&(get(RED) + &post + &get(RED)));
        tested.passes();
        let red = (200, "{\"name\":\"red\",\"value\":\"1\"}\n".to_owned());
        assert_eq!(client.received(), [red.clone(), (500, failed()), red]);
    }
}

/// Panics where nothing of the service is asked: when the loop finds it with a request.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("on purpose");
    }
}

#[test]
fn after_a_panic_of_the_loop_the_worker_goes_on_and_answers_pings() {
    let (mut tested, mut waiting) = Tested::with_wait("1", RED);
    let mut other = tested.handler.connect(&get(RED));
    let mut request = tested.receive().http;
    let id = request.id();
    request.keep(Bomb);
    request.park(Instant::now() + Duration::from_secs(300));
    assert!(tested.worker.try_recv().is_none());
    tested.worker.wake(id);
    tested.handler.change_red("2");
    let Tested { worker, handler, acceptor } = tested;
    handler.ping();
    assert!(handler.misses_one());
    let running = thread::spawn({
        let handler = Arc::clone(&handler);
        move || run(worker, &handler)
    });
    eventually(|| handler.service.server.connections() == 0);
    assert_eq!((waiting.received(), other.received(), handler.waits()), Default::default());
    let mut client = handler.connect(&handler.waiting(RED));
    eventually(|| handler.waits() == 1);
    handler.change_red("3");
    eventually(|| client.statuses() == [200]);
    // A ping is answered also if there is nothing else to do.
    eventually(|| !handler.misses_one());
    handler.ping();
    eventually(|| !handler.misses_one());
    drop(client);
    assert_eq!(acceptor.stop(Instant::now() + Duration::from_secs(20)), 0);
    running.join().unwrap();
}

/// Clients ask, colors change and change back, and the worker looks, in random order. In the end,
/// whoever still waits has the tag of what is there.
#[test]
fn nobody_who_waits_is_forgotten() {
    const TARGETS: [&str; 6] = [RED, RED, RED, RED, RED, "/colors"];
    let mut random = fastrand::Rng::with_seed(4);
    for _ in 0..300 {
        let mut tested = Tested::new("0");
        let mut clients = TARGETS.map(|_| tested.handler.connect(""));
        // The tags with which they wait.
        let mut tags: [Option<String>; 6] = Default::default();
        for _ in 0..random.usize(..40) {
            let client = random.usize(..6);
            let value = if random.bool() { "0" } else { "1" };
            match random.u8(..5) {
                0 => tested.pass(),
                1 | 2 => tested.handler.change_red(value),
                3 => {
                    // A change that comes after the pass has looked for changes.
                    tested.begin_pass();
                    while let Some(request) = tested.worker.try_recv() {
                        tested.handler.answer(
                            Exchange::new(request),
                            Thread::Worker,
                            &mut Vec::new(),
                        );
                        tested.handler.change_red(value);
                    }
                }
                _ => {
                    if !clients[client].received().is_empty() {
                        tags[client] = None;
                    }
                    if tags[client].is_none() {
                        clients[client].send(&tested.handler.waiting(TARGETS[client]));
                        tags[client] = Some(tested.handler.tag(TARGETS[client]));
                    }
                }
            }
        }
        tested.passes();
        for ((client, tag), target) in clients.iter_mut().zip(tags).zip(TARGETS) {
            let has_waited = client.received().is_empty();
            if let Some(tag) = tag.filter(|_| has_waited) {
                assert_eq!(tag, tested.handler.tag(target), "{target}");
            }
        }
    }
}
