//! The recipes of the documents for other programs: proxies, backups over ssh, and clients in other
//! languages, each as it stands there.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};

use crate::common::harness::{Scratch, Server, colors, is_installed, refusing, run, wait_until};
use crate::common::proxy::{field, nginx_with};
use crate::wire::machines::REPLICAS;
use crate::wire::waiting::{tag, waiting};

const HTTP: &str = include_str!("../../docs/http.md");
const README: &str = include_str!("../../README.md");
const PROXIES: &str = include_str!("../../docs/proxies.md");

/// The block of the document in this language that has this text.
#[track_caller]
pub(crate) fn block(document: &'static str, language: &str, text: &str) -> &'static str {
    let fence = format!("```{language}\n");
    let mut blocks = document.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap());
    blocks.find(|block| block.contains(text)).expect("the document has it")
}

/// Where programs look for others: `first`, then the directory of the tested `colors`.
pub(crate) fn path_with(first: &str) -> String {
    let tested = colors(&[]);
    let directory = Path::new(tested.get_program()).parent().unwrap().display();
    format!("{first}:{directory}:{}", std::env::var("PATH").unwrap())
}

#[test]
fn the_program_in_python_changes_a_color() {
    if !is_installed("python3") {
        return;
    }
    let (server, scratch) = (Server::start(&[]), Scratch::new());
    let program =
        block(HTTP, "python", "colors/red").replace("localhost:8080", &server.address.to_string());
    let ended = run(Command::new("python3").arg(scratch.write("red.py", program)));
    assert_eq!(ended, (Some(0), "#dc143c\n".to_owned(), String::new()));
    server.ask("GET", "/colors/red", "").expect_content(r##"{"name":"red","value":"#dc143c"}"##);
}

#[test]
fn the_jq_in_the_error_of_a_list_makes_one_and_is_in_the_document() {
    if !is_installed("jq") {
        return;
    }
    let (server, scratch) = (Server::start(&[]), Scratch::new());
    for content in [r##"[{"name":"sea","hex":"#008080"}]"##, r##"{"sea":"#008080"}"##] {
        let message = server.ask("PUT", "/colors", content).message();
        let filter = message.split('\'').nth(1).expect("it is in quotes");
        assert!(HTTP.contains(&format!("$ jq '{filter}' ")), "{filter}");
        let file = scratch.write("palette.json", content);
        let (code, list, error) = run(Command::new("jq").args([filter, &file]));
        assert_eq!((code, error.as_str()), (Some(0), ""));
        server.ask("PUT", "/colors", &list).expect_status(200);
        assert_eq!(server.list(), r##"{"data":[{"name":"sea","value":"#008080"}]}"##);
        server.ask("PUT", "/colors", "[]").expect_status(200);
    }
}

#[test]
fn the_page_of_another_origin_may_read_a_color_with_the_option_for_that() {
    let option = README.split('`').find(|word| word.starts_with("colors --allow-origin")).unwrap();
    let arguments: Vec<&str> = option.split(' ').skip(1).collect();
    let server = Server::start(&arguments);
    let origin = format!("Origin: {}\r\n", arguments[1]);
    let response = server.connect().ask_with("GET", "/colors/red", &origin, "");
    response.expect_field(200, "access-control-allow-origin", Some(arguments[1]));
    if !is_installed("node") {
        return;
    }
    let scratch = Scratch::new();
    let script =
        block(README, "js", "document.body").replace("localhost:8080", &server.address.to_string());
    let document = "const document = { body: { style: {} } };\n";
    let show = "console.log(document.body.style.background);\n";
    let file = scratch.write("page.mjs", format!("{document}{script}{show}"));
    let ended = run(Command::new("node").arg(file));
    assert_eq!(ended, (Some(0), "#ff0000\n".to_owned(), String::new()));
}

/// A proxy in front of a service on a unix socket; stopped when dropped.
pub(super) struct Front {
    child: Child,
    pub(super) address: String,
    /// A certificate to trust, if it speaks TLS.
    certificate: Option<String>,
    pub(super) server: Server,
    pub(super) scratch: Scratch,
}

impl Drop for Front {
    fn drop(&mut self) {
        // Apache ends only when all that waits there is answered.
        self.server.signal(Signal::TERM);
        // It may have ended by itself.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

/// An address for this test process alone, for programs that do not tell which port they have.
pub(crate) fn own_address(port: u16) -> String {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    format!("127.{}.{middle}.{low}:{port}", high | 64)
}

impl Front {
    /// Starts a program with the configuration that `configure` makes of its address and directory;
    /// `None` if it is not installed.
    fn start(
        port: u16,
        program: &[&str],
        configure: impl FnOnce(&str, &str) -> String,
    ) -> Option<Self> {
        if !is_installed(program[0]) {
            return None;
        }
        let scratch = Scratch::new();
        let directory = scratch.0.display().to_string();
        let address = own_address(port);
        let unix = format!("unix:{directory}/service");
        let options = ["--access-log", "--allow-host", "colors.example.org"];
        let server = Server::start(&[&["--listen", &unix][..], &options].concat());
        let configuration =
            configure(&address, &directory).replace("127.0.0.1:8080", &server.address.to_string());
        let configuration =
            configuration.replace("/run/colors/colors.sock", &format!("{directory}/service"));
        scratch.write("configuration", configuration);
        let mut command = Command::new(program[0]);
        command
            .args(&program[1..])
            .current_dir(&scratch.0)
            .env("HOME", &directory)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = command.spawn().unwrap();
        let certificate = Some(scratch.file("colors.crt")).filter(|file| Path::new(file).exists());
        let front = Self { child, address, certificate, server, scratch };
        wait_until("the proxy listens", || TcpStream::connect(&front.address).is_ok());
        Some(front)
    }

    fn curl(&self, target: &str) -> Command {
        let mut command = Command::new("curl");
        command.args(["-sS", "-i", "--http1.1", "--connect-to", &format!("::{}", self.address)]);
        match &self.certificate {
            Some(file) => command.args(["--cacert", file]),
            None => &mut command,
        };
        let scheme = if self.certificate.is_some() { "https" } else { "http" };
        command.arg(format!("{scheme}://colors.example.org{target}"));
        command
    }

    /// One request through it, by curl; gives the status, the head and the content.
    fn ask(&self, target: &str, arguments: &[&str]) -> (u16, String, String) {
        let (_, answer, error) = run(self.curl(target).args(arguments));
        let (head, content) =
            answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer} {error}"));
        (head[9..12].parse().unwrap(), head.to_owned(), content.trim_end().to_owned())
    }

    /// Requests pass as they came, and so do entity tags.
    fn check(self) {
        let (target, color) = ("/colors/a%2Fb%25", r#"{"name":"a/b%","value":"1"}"#);
        let create = |origin| {
            self.ask("/colors", &["-H", &format!("Origin: http://{origin}"), "-d", color]).0
        };
        assert_eq!((create("colors.example.org"), create("evil.example")), (201, 403));
        assert_eq!(self.ask(target, &[]).2, color);
        let longest = format!("/colors/{}", "%C3%A9".repeat(2048));
        assert_eq!(self.ask(&longest, &[]).2, r#"{"error":true}"#);
        let (_, head, list) = self.ask("/colors", &["-H", "Accept-Encoding: gzip"]);
        assert_eq!(list, self.server.list());
        let condition = format!("If-Match: {}", field(&head, "ETag").expect("it has a tag"));
        let (_, head, _) = self.ask(target, &[]);
        let unchanged = format!("If-None-Match: {}", field(&head, "ETag").expect("it has a tag"));
        let (head, told) = self.tell(target, &["-H", &unchanged], || {
            self.server.ask("PUT", target, r#"{"value":"2"}"#).expect_status(200);
        });
        assert_eq!(told, r#"{"name":"a/b%","value":"2"}"#);
        assert_eq!(field(&head, "Preference-Applied"), Some("wait=300"));
        self.server.ask("PUT", target, r#"{"value":"1"}"#).expect_status(200);
        // told at the head, while curl and the proxy go on sending
        let long = self.scratch.write("long", " ".repeat(12_000_000));
        let change = |target, method, field: &str, content: &str| {
            self.ask(target, &["-X", method, "-H", field, "-d", content]).0
        };
        assert_eq!(change("/colors", "PUT", "Expect:", &format!("@{long}")), 413);
        assert_eq!(change(target, "DELETE", "If-Match: \"another\"", ""), 412);
        assert_eq!(change("/colors", "PUT", &condition, "[]"), 200);
        self.server.log_when("it logs who asked", |log| log.contains("] 127."));
    }

    /// Has a request wait until there is this change; gives the head and the content of its answer.
    #[track_caller]
    fn tell(&self, target: &str, arguments: &[&str], change: impl FnOnce()) -> (String, String) {
        let arguments = [arguments, &["-H", "Prefer: wait=300"]].concat();
        let (status, head, content) = thread::scope(|scope| {
            let told = scope.spawn(|| self.ask(target, &arguments));
            wait_until("it waits", || waiting(&self.server) == 1);
            change();
            told.join().unwrap()
        });
        assert_eq!(status, 200, "{head}");
        (head, content)
    }
}

/// Apache with the site of the document, and these lines in it.
fn apache(port: u16, lines: &str) -> Option<Front> {
    let modules = ["mpm_event", "authz_core", "proxy", "proxy_http", "filter", "deflate"];
    let load = modules
        .map(|name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"))
        .concat();
    let program = ["apache2", "-f", "configuration", "-d", ".", "-DFOREGROUND"];
    Front::start(port, &program, |address, directory| {
        let site = block(PROXIES, "apache", "ProxyPass");
        format!(
            "{load}PidFile {directory}/pid\nErrorLog {directory}/log\nListen {address}\n<VirtualHost *>\n{site}{lines}</VirtualHost>\n"
        )
    })
}

#[test]
fn requests_pass_apache_as_they_came() {
    apache(8081, "").into_iter().for_each(Front::check);
}

/// nginx with the site of the document for a LAN.
pub(super) fn nginx_on_the_lan(port: u16) -> Option<Front> {
    let program = ["nginx", "-c", "configuration", "-p", "."];
    Front::start(port, &program, |address, directory| {
        // with the example's name in place of the one of the LAN
        let openssl = block(PROXIES, "sh", "openssl req").split_once("openssl req").unwrap().1;
        let openssl = openssl.replace("colors.lan", "colors.example.org");
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("openssl req{}", openssl.replace("/etc/nginx", directory))]);
        assert_eq!(run(&mut shell).0, Some(0));
        let site = block(PROXIES, "nginx", "listen 443 ssl;")
            .replace("listen 443", &format!("listen {address}"))
            .replace("/etc/nginx", directory);
        nginx_with(&site, directory)
    })
}

#[test]
fn requests_pass_nginx_on_the_lan_as_they_came() {
    nginx_on_the_lan(8084).into_iter().for_each(Front::check);
}

/// nginx makes the tag a weak one; see `nginx_front`.
#[test]
fn the_tag_of_what_apache_has_compressed_holds_as_the_document_says() {
    let compress = "AddOutputFilterByType DEFLATE application/json\n";
    let Some(front) = apache(8087, compress) else { return };
    let ask = |arguments: &[&str]| front.ask("/colors", &[&["--compressed"], arguments].concat());
    let altered = || format!("\"{}-gzip\"", tag(&front.server, "/colors").trim_matches('"'));
    let expected = altered();
    let (status, head, _) = ask(&[]);
    assert!(head.contains("\r\nContent-Encoding: gzip"), "{head}");
    assert_eq!((status, field(&head, "ETag")), (200, Some(expected.as_str())));
    let unchanged = format!("If-None-Match: {expected}");
    assert_eq!(ask(&["-H", &unchanged]).0, 304);
    front.tell("/colors", &["--compressed", "-H", &unchanged], || {
        front.server.ask("DELETE", "/colors/red", "").expect_status(200);
    });
    let condition = format!("If-Match: {}", altered());
    let create = ["-H", &condition, "-d", r#"{"name":"new","value":"1"}"#];
    assert_eq!((ask(&create).0, ask(&create).0), (201, 412), "{condition}");
}

#[test]
fn nginx_in_front_of_several_hosts_makes_no_change_twice() {
    const UNAVAILABLE: &str = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";
    // What the first host does with a request; `None`: nothing listens there.
    for (answer, method, status) in [
        (None, "GET", 200),
        (None, "DELETE", 502),
        (Some(""), "GET", 200),
        (Some(""), "PUT", 502),
        (Some(""), "DELETE", 502),
        (Some(""), "POST", 502),
        (Some(UNAVAILABLE), "PUT", 200),
        (Some(UNAVAILABLE), "DELETE", 200),
        (Some(UNAVAILABLE), "POST", 201),
    ] {
        let (_bound, mut first) = refusing();
        if let Some(answer) = answer {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            first = listener.local_addr().unwrap();
            thread::spawn(move || {
                for client in listener.incoming() {
                    let mut client = client.unwrap();
                    let _ = client.read(&mut [0; 4096]);
                    let _ = client.write_all(answer.as_bytes());
                    let _ = client.shutdown(Shutdown::Both);
                }
            });
        }
        let nginx = ["nginx", "-c", "configuration", "-p", "."];
        let front = Front::start(8085, &nginx, |address, directory| {
            let site = block(REPLICAS, "nginx", "backup;")
                .replace("listen 80", &format!("listen {address}"))
                .replace("192.0.2.1:8080", &first.to_string())
                .replace("192.0.2.2:8080", "127.0.0.1:8080")
                .replace("192.0.2.3:8080", "127.0.0.1:8080");
            nginx_with(&site, directory)
        });
        let Some(front) = front else { return };
        let color = r#"{"name":"a/b%","value":"1"}"#;
        for _ in 0..2 {
            front.server.ask("POST", "/colors", color).expect_status(201);
        }
        let list = front.server.list();
        let target = if method == "POST" { "/colors" } else { "/colors/a%2Fb%25" };
        let content = color.replace('1', "2");
        let ask = || front.ask(target, &["-X", method, "-d", &content]).0;
        assert_eq!(ask(), status, "{answer:?} {method}");
        let is_changed = front.server.list() != list;
        assert_eq!(is_changed, status < 300 && method != "GET", "{answer:?} {method}");
        // The first host is left alone for some seconds.
        assert!(ask() < 300, "{answer:?} {method}");
    }
}

#[test]
fn requests_pass_caddy_as_they_came() {
    let front = Front::start(
        8082,
        &["caddy", "run", "--adapter", "caddyfile", "--config", "configuration"],
        |address, _| {
            let (ip, port) = address.split_once(':').unwrap();
            let site = block(PROXIES, "caddy", "reverse_proxy");
            let here = format!("http://colors.example.org:{port} {{\n\tbind {ip}\n");
            format!("{{\n\tadmin off\n}}\n{}", site.replace("colors.example.org {\n", &here))
        },
    );
    front.into_iter().for_each(Front::check);
}

#[test]
fn a_backup_over_ssh_is_the_list_and_one_that_fails_leaves_the_old() {
    let (scratch, file, server) = Server::kept(r#"[{"name":"ink","value":"1"}]"#);
    server.ask("POST", "/colors", r#"{"name":"late","value":"2"}"#).expect_status(201);
    let list = server.list();
    server.stop();
    // one that runs its command on this host
    let ssh = scratch.write("ssh", "#!/bin/sh\n[ $1 = root@HOST ] && shift && exec \"$@\"\n");
    fs::set_permissions(ssh, fs::Permissions::from_mode(0o755)).unwrap();
    let command = block(include_str!("../../docs/operating.md"), "sh", "ssh root@HOST");
    let here = command.replace("/var/lib/colors/colors.db", &file);
    for is_lost in [false, true] {
        if is_lost {
            fs::remove_file(&file).unwrap();
        }
        let mut shell = Command::new("sh");
        shell.args(["-c", &here]).current_dir(&scratch.0).env("PATH", path_with(&scratch.file("")));
        assert_eq!(run(&mut shell).0 == Some(0), !is_lost);
        assert_eq!(fs::read_to_string(scratch.file("backup.json")).unwrap(), format!("{list}\n"));
    }
}
