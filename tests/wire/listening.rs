//! Where the service listens: several addresses, unix sockets and their files, and sockets that a
//! parent process hands over, as systemd does, and holds while the service restarts.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use rustix::process::Signal;

use crate::common::client::Client;
use crate::common::harness::{
    Scratch, Server, colors, colors_from_shell, colors_inheriting, run, signal_child, wait_until,
};
use crate::common::process::colors_below_strace;

/// A service with a unix socket at `path`, next to its TCP one.
fn on_unix(path: &str) -> Server {
    Server::start(&["--listen", &format!("unix:{path}")])
}

fn socket() -> (Scratch, String) {
    let scratch = Scratch::new();
    let path = scratch.file("s");
    (scratch, path)
}

/// Where the service says that it listens; all lines that say so are awaited.
fn endpoints(server: &Server, count: usize) -> Vec<String> {
    let text = "listening on ";
    let log = server.log_when("a line for each listener", |log| log.matches(text).count() == count);
    let lines = log.lines().filter_map(|line| line.split_once(text)?.1.split(' ').next());
    lines.map(str::to_owned).collect()
}

/// Starts the service where it cannot; gives the reason that it logs.
fn refusal(path: &str) -> String {
    let (code, _, log) = run(&mut colors(&["--listen", &format!("unix:{path}")]));
    assert_eq!(code, Some(1));
    log.trim_end().split_once("[ERROR] ").unwrap().1.to_owned()
}

#[test]
fn localhost_is_both_addresses_with_one_port() {
    // port 0 has the kernel pick one, and the lines show the addresses
    for listen in [["--listen", "0"], ["--listen", "localhost:0"], ["--port", "0"]] {
        let server = Server::spawn(colors(&listen));
        let port = server.address.port();
        let expected = [format!("http://127.0.0.1:{port}"), format!("http://[::1]:{port}")];
        assert_eq!(endpoints(&server, 2), expected);
        for address in ["127.0.0.1", "::1"] {
            let mut client = Client::new(TcpStream::connect((address, port)).unwrap());
            client.ask("GET", "/colors/red", "").expect_status(200);
            // as on each loopback address, no page reaches it by a name of its own
            let foreign = "GET /colors HTTP/1.1\r\nHost: evil.example\r\n\r\n";
            assert_eq!(client.try_ask(foreign).unwrap().status, 403);
        }
        // clients that try one of the two must not meet somebody else there
        let (code, _, log) = run(&mut colors(&["--port", &port.to_string()]));
        let expected = format!("cannot listen on http://localhost:{port}: Address already in use");
        assert_eq!(code, Some(1));
        assert!(log.contains(&expected), "{log}");
    }
}

#[test]
fn without_ipv6_localhost_and_all_addresses_are_those_of_ipv4() {
    for (listen, address, fault) in [
        ("localhost:0", "127.0.0.1", "inject=bind:error=EADDRNOTAVAIL:when=2"),
        ("localhost:0", "127.0.0.1", "inject=bind:error=EAFNOSUPPORT:when=2"),
        ("[::]:0", "0.0.0.0", "inject=bind:error=EAFNOSUPPORT:when=1"),
    ] {
        let options = ["-o", "/dev/null", "-e", "trace=bind", "-e", fault];
        let Some(command) = colors_below_strace(&options, &["--listen", listen]) else { return };
        let server = Server::spawn(command);
        assert_eq!(server.address.ip().to_string(), address, "{fault}");
        server.connect().expect_open();
        let log = server.stop();
        assert_eq!(log.matches("listening on ").count(), 1, "{log}");
    }
}

#[test]
fn the_mode_of_the_file_is_not_set_by_its_path() {
    let (_scratch, path) = socket();
    let options = ["-o", "/dev/null", "-e", "inject=?chmod,fchmodat:error=EPERM"];
    let arguments = ["--listen", &format!("unix:{path}"), "--unix-mode", "0606"];
    let Some(server) = Server::below_strace(&options, &arguments) else { return };
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o606);
    server.stop();
}

#[test]
fn the_file_has_the_mode_asked_for_whatever_the_umask() {
    let (_scratch, path) = socket();
    let mode = |arguments: &[&str], umask: &str| {
        let listen = ["--listen", "127.0.0.1:0", "--listen", &format!("unix:{path}")];
        let command =
            colors_from_shell(&format!("umask {umask} &&"), &[&listen, arguments].concat());
        let server = Server::spawn(command);
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
        server.stop();
        mode
    };
    assert_eq!(mode(&[], "077"), 0o660);
    assert_eq!(mode(&["--unix-mode", "0606"], "022"), 0o606);
    assert_eq!(mode(&["--unix-mode", "600"], "0"), 0o600);
    assert_eq!(mode(&["--unix-mode", "0666"], "077"), 0o666);
}

#[test]
fn a_file_that_came_in_its_place_is_left_alone() {
    let (_scratch, path) = socket();
    let server = on_unix(&path);
    fs::remove_file(&path).unwrap();
    let other = on_unix(&path);
    server.stop();
    Client::on_unix(&path).expect_open();
    drop(other);
}

#[test]
fn a_file_on_which_somebody_listens_or_that_is_no_socket_is_not_replaced() {
    let (scratch, path) = socket();
    let _server = on_unix(&path);
    let precious = scratch.write("precious", "content");
    for (path, reason) in [
        (&path, "address in use"),
        (&precious, "there is a file that is no socket"),
        (&format!("{precious}/s"), "Not a directory (os error 20)"),
    ] {
        let expected = format!(
            "cannot listen on unix:{path}: {reason}; choose another address, port or path with --listen"
        );
        assert_eq!(refusal(path), expected);
    }
    Client::on_unix(&path).expect_open();
    assert_eq!(fs::read_to_string(&precious).unwrap(), "content");
}

#[test]
fn host_may_be_empty_where_it_decides_nothing() {
    let (_scratch, path) = socket();
    let server = on_unix(&path);
    // RFC 9112 §3.2: so does a client whose URL has no authority
    let request = "GET /colors/red HTTP/1.1\r\nHost:\r\n\r\n";
    let mut client = Client::on_unix(&path);
    client.send(request).response().expect_status(200);
    client.send(request.replace("Host", "Origin: http://\r\nHost")).response().expect_status(200);
    let page = "DELETE /colors/red HTTP/1.1\r\nHost:\r\nOrigin: http://\r\n\r\n";
    client.send(page).response().expect_status(403);
    server.connect().send(request).response().expect_status(400);
}

#[test]
fn of_two_starts_on_a_stale_file_one_has_it() {
    let (scratch, path) = socket();
    drop(UnixListener::bind(&path).unwrap());
    // between its look at the file and the removal
    let trace = scratch.write("trace", "");
    let options = ["-o", &trace, "-e", "trace=connect", "-e", "inject=connect:signal=STOP"];
    let endpoint = format!("unix:{path}");
    let Some(mut first) = colors_below_strace(&options, &["--listen", &endpoint]) else { return };
    let mut first = first.spawn().unwrap();
    wait_until("it has stopped", || {
        fs::read_to_string(&trace).unwrap().contains("stopped by SIGSTOP")
    });
    let expected = format!(
        "cannot listen on {endpoint}: address in use; choose another address, port or path with --listen"
    );
    assert_eq!(refusal(&path), expected);
    signal_child(&first, Signal::CONT);
    wait_until("it listens", || UnixStream::connect(&path).is_ok());
    Client::on_unix(&path).expect_open();
    signal_child(&first, Signal::TERM);
    assert!(first.wait().unwrap().success());
}

#[test]
fn sockets_from_the_parent_take_precedence_and_outlive_the_service() {
    let (_scratch, path) = socket();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let unix = UnixListener::bind(&path).unwrap();
    for end in [Signal::TERM, Signal::KILL] {
        let (first, second) = (tcp.try_clone().unwrap(), unix.try_clone().unwrap());
        let server = Server::spawn(colors_inheriting(first, second, &["--listen", "127.0.0.1:1"]));
        let expected = [format!("http://{}", tcp.local_addr().unwrap()), format!("unix:{path}")];
        assert_eq!(endpoints(&server, 2), expected);
        let ignored = "[INFO] the service manager hands over the sockets: --listen does nothing\n";
        wait_until("a line", || server.log().ends_with(ignored));
        let mut idle = Client::on_unix(&path);
        idle.expect_open();
        server.connect().expect_open();
        server.signal(end);
        idle.expect_close();
        server.wait();
        // nobody accepts at the moment, but the kernel lets clients in
        TcpStream::connect(tcp.local_addr().unwrap()).unwrap();
        UnixStream::connect(&path).unwrap();
    }
}

#[test]
fn a_descriptor_that_does_not_listen_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connection = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (code, _, log) = run(&mut colors_inheriting(listener, connection, &[]));
    let expected = "cannot use the sockets that LISTEN_FDS hands over: number 2 is not a TCP or unix stream socket that listens; fix the \
                    .socket unit, or unset LISTEN_FDS";
    assert_eq!((code, log.trim_end().split_once("[ERROR] ").unwrap().1), (Some(1), expected));
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
    let keep_asking = || {
        while !stop.load(Relaxed) {
            for (method, target, content, status) in [
                ("GET", "/colors/red", "", 200),
                ("POST", "/colors", r#"{"name":"ink","value":"1"}"#, 201),
                ("GET", "/colors", "", 200),
            ] {
                // a connection that has had an answer may look idle to a service that stops
                let stream = TcpStream::connect(tcp.local_addr().unwrap());
                let mut client = Client::new(stream.expect("no connection is refused"));
                client.ask(method, target, content).expect_status(status);
                answered.fetch_add(1, Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        let clients = [(); 6].map(|()| scope.spawn(keep_asking));
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
