//! `--health`, by which a container finds out whether its service is well.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::thread;

use crate::common::harness::{self, Scratch, Server, colors};
use crate::wire::recipes::own_address;

/// Exit code, standard output, and what was logged.
#[track_caller]
fn ask(arguments: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String, String) {
    let mut command = colors(&["--health"]);
    harness::run(command.args(arguments).envs(variables.iter().copied()))
}

#[test]
fn a_service_is_found_by_its_url_its_socket_and_its_variables() {
    let scratch = Scratch::new();
    let tokens = scratch.write_tokens("a-token-0123456789");
    let socket = format!("unix:{}", scratch.file("s"));
    let both = ["--listen", &socket, "--base-path", "/api", "--private", "--token-file", &tokens];
    let server = Server::start(&both);
    let health = server.ask("GET", "/api/health", "").content;
    let well = (Some(0), format!("{health}\n"), String::new());
    let address = server.address;
    let base = ("COLORS_BASE_PATH", "/api");
    // It needs no token, though the variable without the option would not start a service.
    let private = ("COLORS_PRIVATE", "yes");
    assert_eq!(ask(&[&format!("http://{address}/api/")], &[]), well);
    assert_eq!(ask(&[&format!("http://localhost:{}/api", address.port())], &[private]), well);
    assert_eq!(ask(&[&socket], &[base]), well);
    assert_eq!(ask(&["--listen", &socket], &[base]), well);
    for listen in [&address.to_string(), &format!("[::]:{}", address.port()), &socket] {
        assert_eq!(ask(&[], &[("COLORS_LISTEN", listen), base]), well, "{listen}");
    }
    let missing = ask(&[&format!("http://{address}")], &[]);
    assert_eq!((missing.0, missing.1.as_str()), (Some(1), ""), "{missing:?}");
}

#[test]
fn what_is_not_well_is_one_line_and_exit_code_1() {
    let listener = TcpListener::bind(own_address(0)).unwrap();
    let address = listener.local_addr().unwrap();
    let place = format!("http://{address}");
    let answers = ["HTTP/1.1 503 No\r\n\r\n{\"status\":\"stopping\"}\n", "SSH-2.0\r\n", ""];
    let server = thread::spawn(move || {
        for answer in answers {
            let mut client = listener.accept().unwrap().0;
            let _ = client.read(&mut [0; 1024]).unwrap();
            client.write_all(answer.as_bytes()).unwrap();
        }
    });
    let check = |reason: &str| {
        let (code, out, log) = ask(&[&place], &[]);
        let expected = format!("[ERROR] no healthy service at {place}: {reason}\n");
        assert_eq!((code, out.as_str()), (Some(1), ""));
        assert!(log.ends_with(&expected) && log.lines().count() == 1, "{log}");
    };
    check(r#"503 "{\"status\":\"stopping\"}""#);
    check("the answer is not HTTP");
    check("the answer is not HTTP");
    server.join().unwrap();
    check("Connection refused (os error 111)");
    assert_eq!(ask(&["https://a"], &[]).0, Some(2));
    assert_eq!(ask(&["--check"], &[]).0, Some(2));
}
