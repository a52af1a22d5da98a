//! The page where the service is not at the root of an address of its own: below a base path,
//! behind nginx.

use std::fs;
use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::json;

use crate::browser::actions::ENTER;
use crate::browser::driver::{Browser, browse};
use crate::common::harness::Server;
use crate::common::proxy::Proxy;

/// An address that stays while what is behind it comes and goes.
pub(crate) struct Front {
    port: u16,
    back: Arc<Mutex<Option<Back>>>,
}

/// What is behind a front.
#[derive(Clone)]
enum Back {
    Tcp(std::net::SocketAddr),
    Unix(PathBuf),
}

impl Front {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let back = Arc::new(Mutex::new(None::<Back>));
        let current = Arc::clone(&back);
        thread::spawn(move || {
            for stream in listener.incoming().map(Result::unwrap) {
                let back = current.lock().unwrap().clone();
                thread::spawn(move || match back {
                    Some(Back::Tcp(address)) => {
                        if let Ok(back) = TcpStream::connect(address) {
                            let (back_in, back_out) =
                                (back.try_clone().unwrap(), back.try_clone().unwrap());
                            pass(stream, back_in, back_out, move || back.shutdown(Shutdown::Both));
                        }
                    }
                    Some(Back::Unix(path)) => {
                        if let Ok(back) = UnixStream::connect(path) {
                            let (back_in, back_out) =
                                (back.try_clone().unwrap(), back.try_clone().unwrap());
                            pass(stream, back_in, back_out, move || back.shutdown(Shutdown::Both));
                        }
                    }
                    None => {}
                });
            }
        });
        Self { port, back }
    }

    pub(crate) fn address(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    pub(crate) fn lead_to(&self, server: &Server) {
        *self.back.lock().unwrap() = Some(Back::Tcp(server.address));
    }

    pub(crate) fn lead_nowhere(&self) {
        *self.back.lock().unwrap() = None;
    }
}

/// Passes bytes both ways until one side is done.
fn pass(
    front: TcpStream,
    mut back_in: impl io::Read + Send + 'static,
    mut back_out: impl io::Write,
    close: impl Fn() -> io::Result<()>,
) {
    let (mut front_in, mut front_out) = (front.try_clone().unwrap(), front);
    let answers = thread::spawn(move || {
        // Whichever side is gone, the other is told by the shutdown.
        let _ = io::copy(&mut back_in, &mut front_out);
        let _ = front_out.shutdown(Shutdown::Both);
    });
    let _ = io::copy(&mut front_in, &mut back_out);
    let _ = close();
    answers.join().unwrap();
}

/// Adds, changes and deletes a color, with what others see of it.
#[track_caller]
fn try_out(browser: &Browser, list: impl Fn() -> String) {
    browser.click("#add");
    browser.type_text("a/b c?");
    browser.fill("#value", "#123456");
    browser.press(&[ENTER]);
    browser.expect_text("#told", "Added a/b c? at the end.");
    browser.click("#dismiss");
    browser.change("a/b c?", "#abcdef");
    browser.expect_text("#told", "a/b c? is #abcdef now.");
    browser.click("#dismiss");
    assert!(list().ends_with(r##"{"name":"a/b c?","value":"#abcdef"}]}"##));
    browser.open_color("a/b c?");
    browser.click("#delete");
    browser.expect_text("#told", "Deleted a/b c?.");
    browser.expect_text("#count", "148 colors");
    assert!(!list().contains("a/b c?"));
}

#[test]
fn the_page_works_below_a_base_path_with_and_without_a_slash() {
    let Some(browser) = browse() else { return };
    let server = Server::start(&["--base-path", "/api/v1"]);
    for path in ["/api/v1", "/api/v1/", "/api/v1/?from=somewhere"] {
        browser.go(&format!("http://{}{path}", server.address));
        browser.expect_controls();
        let noscript = browser.text("noscript");
        assert!(noscript.ends_with(r#"<a href="/api/v1/colors">/api/v1/colors</a>"#), "{noscript}");
        let links = "return [...document.querySelectorAll('#menu a')].map(link => link.getAttribute('href'))";
        browser.expect_value(links, json!(["/api/v1/colors", "/api/v1/openapi.json"]));
        try_out(&browser, || server.ask("GET", "/api/v1/colors", "").content);
    }
}

#[test]
fn the_page_works_behind_nginx() {
    let Some(nginx) = Proxy::start() else { return };
    let Some(browser) = browse() else { return };
    browser.expect("502 (Bad Gateway)");
    let server = nginx.service(&[]);
    let front = Front::start();
    *front.back.lock().unwrap() = Some(Back::Unix(nginx.scratch.0.join("front")));
    browser.go(&front.address());
    browser.expect_controls();
    try_out(&browser, || server.list());
    server.ask("PUT", "/colors/aliceblue", r##"{"value":"#000001"}"##);
    browser.until("return [...document.querySelectorAll('li .value')].some(value => value.textContent === '#000001')");
    // nginx itself answers while the service is away
    drop(server);
    fs::remove_file(nginx.scratch.0.join("service")).unwrap();
    browser.expect_text("#away", "The service does not answer – trying again…");
    let _server = nginx.service(&[]);
    browser.expect_text("#away", "");
}
