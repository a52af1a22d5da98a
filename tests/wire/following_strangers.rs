//! `--follow` where the other end is away, is no service, or one that misbehaves: whatever comes,
//! and however slowly, changes nothing, and is said.

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::client::read_head;
use crate::common::harness::{Scratch, Server, at_once, colors, refusing, wait_until, within};
use crate::wire::durable::{LIST, fail, health};

/// Longest time until a bad answer is given up, the start of other tests included.
const UNSEEN_TIME: Duration = Duration::from_secs(90);

/// Listens, and has `answer` answer each request, whatever that asks for, on a thread of its own
/// until the test process ends. Gives the address and the number of requests.
pub(super) fn listen(
    answer: impl Fn(&mut TcpStream) -> std::io::Result<()> + Send + Sync + 'static,
) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let requests = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&requests);
    let answer = Arc::new(answer);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, answer, count) =
                (stream.unwrap(), Arc::clone(&answer), Arc::clone(&count));
            thread::spawn(move || {
                while read_head(&mut stream).is_some() {
                    count.fetch_add(1, Relaxed);
                    // The follower has closed the connection.
                    if answer(&mut stream).is_err() {
                        break;
                    }
                }
            });
        }
    });
    (address, requests)
}

/// A response with this status line, these fields and this content.
pub(super) fn response(status: &str, fields: &str, content: &str) -> String {
    let length = content.len();
    format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{fields}\r\n{content}")
}

/// What answers a request.
pub(super) type Answer = Box<dyn Fn(&mut TcpStream) -> std::io::Result<()> + Send + Sync>;

/// An answer that is always the same, after which the connection ends if `closes`.
pub(super) fn sends(text: String, closes: bool) -> Answer {
    Box::new(move |stream| {
        stream.write_all(text.as_bytes())?;
        if closes { stream.shutdown(std::net::Shutdown::Both) } else { Ok(()) }
    })
}

/// An answer that begins like this, and goes on with the same again and again.
pub(super) fn goes_on(start: &str, again: &str, pause: Duration) -> Answer {
    let (start, again) = (start.to_owned(), again.to_owned());
    Box::new(move |stream| {
        stream.write_all(start.as_bytes())?;
        loop {
            stream.write_all(again.as_bytes())?;
            thread::park_timeout(pause);
        }
    })
}

/// How the reason begins that is said, and the answer.
fn misbehaving() -> Vec<(&'static str, Answer)> {
    let no_list = "its answer is no list of colors: ";
    let drip = Duration::from_millis(200);
    let fast = Duration::ZERO;
    let spaces = " ".repeat(0x10000);
    let late = "it does not answer in time";
    let long = "its list is longer than 64 MiB";
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let page = response("200 OK", "Content-Type: text/html\r\n", "<!doctype html>");
    let refusal = response("403 No", "", r#"{"error":true,"message":"no \n host"}"#);
    let elsewhere = response("301 Moved", "Location: /list\r\n", LIST);
    vec![
        (no_list, sends(response("200 OK", "", r#"{"data":7}"#), false)),
        (no_list, sends(page, false)),
        // a Content-Length that is too short, and one that is too long
        (no_list, sends(format!("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{LIST}"), true)),
        ("", sends(format!("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{LIST}"), true)),
        ("", sends(format!("{chunked}5\r\n{{\"dat"), true)),
        ("", sends("nonsense\r\n\r\n".to_owned(), true)),
        ("", sends(response("200 OK", &format!("X: {}\r\n", "x".repeat(100_000)), LIST), true)),
        ("it answers 301, and not with", sends(elsewhere, false)),
        ("it answers 401, name a file", sends(response("401 No", "", ""), false)),
        ("it answers 404, and not with", sends(response("404 No", "", LIST), false)),
        (r#"it answers 403: "no \n host""#, sends(refusal, false)),
        (late, goes_on("", "", drip)),
        (late, goes_on("HTTP/1.1 200 OK\r\n", "X: y\r\n", drip)),
        (late, goes_on("", "HTTP/1.1 100 Continue\r\n\r\n", drip)),
        (late, goes_on("HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n", " ", drip)),
        (long, goes_on("HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n", &spaces, fast)),
        (long, goes_on(chunked, &format!("10000\r\n{spaces}\r\n"), fast)),
    ]
}

#[test]
fn what_is_no_list_changes_nothing_and_is_said() {
    let scratch = Scratch::new();
    Server::with_data(LIST, &scratch.file("seed.db"), &[]).stop();
    at_once(misbehaving().into_iter().enumerate(), |(number, (reason, answer))| {
        let file = scratch.file(&format!("{number}.db"));
        std::fs::copy(scratch.file("seed.db"), &file).unwrap();
        let (address, _) = listen(answer);
        let url = format!("http://{address}");
        let follower = Server::start(&["--follow", &url, "--data", &file]);
        let expected = format!("cannot follow {url} since the start: {reason}");
        let is_said = within(UNSEEN_TIME, || {
            let (status, fault) = health(&follower);
            (status == 503 && fault.starts_with(&expected)).then_some(())
        });
        is_said.expect(&expected);
        assert_eq!(follower.list(), LIST);
        let memory = follower.proc_status("VmHWM");
        assert!(memory < 300 * 1024, "{memory} KiB for {expected}");
    });
}

/// Failures whose texts differ all the time, and answers that are by turns good and bad.
#[test]
fn failures_that_differ_or_alternate_fill_no_log() {
    let bad = |number: usize| format!("{}{{", " ".repeat(number));
    let other = |number: usize| format!(r#"[{{"name":"a","value":"{number}"}}]"#);
    // how many failures are logged, and which answers are good
    at_once([(1, usize::MAX), (5, 2)], |(lines, good_every)| {
        let asked = AtomicUsize::new(0);
        let (address, requests) = listen(move |stream| {
            let number = asked.fetch_add(1, Relaxed);
            let is_good = number.is_multiple_of(good_every);
            let content = if is_good { other(number) } else { bad(number) };
            stream.write_all(response("200 OK", "", &content).as_bytes())
        });
        let begun = Instant::now();
        let follower = Server::start(&["--follow", &format!("http://{address}")]);
        wait_until("it has asked some times", || requests.load(Relaxed) > 2 * lines + 3);
        let log = follower.stop();
        // So many in a minute. An answer that is late on a busy machine is another failure.
        let most = lines * (1 + begun.elapsed().as_secs() as usize / 60)
            + 2 * log.matches(": it does not answer in time").count();
        let logged = log.matches("[WARN] cannot follow ").count();
        assert!((lines..=most).contains(&logged), "{log}");
        assert!(log.matches(" is followed again").count() <= most, "{log}");
    });
}

/// Each of these answers is fine, and comes at once, though the follower would rather wait.
#[test]
fn answers_that_change_nothing_are_not_asked_for_all_the_time() {
    let fields = "Connection: keep-alive\r\n";
    at_once(
        [response("304 Not Modified", fields, ""), response("200 OK", fields, LIST)],
        |second| {
            let asked = AtomicUsize::new(0);
            let (address, requests) = listen(move |stream| {
                let first = asked.fetch_add(1, Relaxed) == 0;
                let answer = if first { response("200 OK", "", LIST) } else { second.clone() };
                stream.write_all(answer.as_bytes())
            });
            let begun = Instant::now();
            let follower = Server::start(&["--follow", &format!("http://{address}")]);
            wait_until("it has asked some times", || requests.load(Relaxed) >= 8);
            // Its pauses become longer, from 100 ms on.
            assert!(begun.elapsed() > Duration::from_secs(2), "{:?}", begun.elapsed());
            wait_until("all is well", || health(&follower).0 == 200);
            assert_eq!(follower.list(), LIST);
        },
    );
}

#[test]
fn a_proxy_in_the_environment_is_not_asked() {
    let (proxy, requests) = listen(sends(response("200 OK", "", "[]"), false));
    let writer = Server::start(&[]);
    let mut command = colors(&["--listen", "127.0.0.1:0", "--follow"]);
    command.arg(format!("http://{}", writer.address));
    for name in ["http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"] {
        command.env(name, format!("http://{proxy}"));
    }
    assert_eq!(Server::spawn(command).list(), writer.list());
    assert_eq!(requests.load(Relaxed), 0);
}

#[test]
fn a_start_without_a_copy_needs_an_answer() {
    let scratch = Scratch::new();
    let file = scratch.file("copy.db");
    let (_bound, address) = refusing();
    let (address, url) = (address.to_string(), format!("http://{address}"));
    at_once([&["--check"][..], &["--data", &file], &[]], |mode| {
        let begun = Instant::now();
        // Following itself is the same: it does not listen yet.
        let arguments = [&["--listen", &address, "--follow", &url], mode].concat();
        let log = fail(&arguments);
        let error = format!(
            "[ERROR] cannot follow {url}: Connection refused (os error 111); a start that has no \
             copy of its list in --data needs it\n"
        );
        assert!(log.ends_with(&error) && log.lines().count() == 1, "{log}");
        assert!(begun.elapsed().as_secs() >= 6, "{:?}", begun.elapsed());
    });
    assert_eq!(scratch.names(), [""; 0]);
}
