//! nginx with the configuration of `packaging/nginx/colors.conf`, and requests through it.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal};

use crate::common::harness::{Scratch, Server, eventually, is_installed};

/// A running nginx; stopped when dropped.
pub(crate) struct Proxy {
    child: Child,
    pub(crate) scratch: Scratch,
    /// Where it listens with TLS; requests without it reach it by a unix socket.
    pub(crate) address: SocketAddr,
}

/// What the configuration has where nobody may write.
pub(crate) const CLOSED: &str = "            deny all;\n";

/// The name in the configuration and its certificate.
pub(crate) const HOST: &str = "colors.example.org";

/// The value of a field in what curl shows; HTTP/2 has names in lower case.
pub(crate) fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = text.lines().filter_map(|line| line.split_once(": "));
    fields.find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

/// The configuration of an nginx that has these sites, with all its files in this directory.
pub(crate) fn nginx_with(sites: &str, directory: &str) -> String {
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {directory}/{name};"))
        .concat();
    format!(
        "daemon off; user root root; worker_processes 2; events {{}}\n\
         pid {directory}/pid; error_log {directory}/error.log;\n\
         http {{ access_log off; {temporary} {sites} }}"
    )
}

impl Proxy {
    /// Starts nginx as for a service that itself decides who may write.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with("            allow all;\n")
    }

    /// Starts nginx with these lines in place of those that refuse writes.
    pub(crate) fn start_with(writes: &str) -> Option<Self> {
        Self::start_edited(&[(CLOSED, writes)])
    }

    /// Starts nginx with the configuration of the tree, in a directory of its own, and these lines
    /// in place of others; `None` when it is not installed.
    pub(crate) fn start_edited(edits: &[(&str, &str)]) -> Option<Self> {
        if !is_installed("nginx") || !is_installed("openssl") {
            return None;
        }
        let scratch = Scratch::new();
        let root = scratch.0.to_str().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut site = include_str!("../../packaging/nginx/colors.conf").to_owned();
        let edits = edits.iter().map(|(text, here)| (*text, here.replace("/etc/nginx", root)));
        for (text, here) in edits.chain([
            ("unix:/run/colors/colors.sock", format!("unix:{root}/service")),
            ("listen 80;", format!("listen unix:{root}/redirect;")),
            ("listen [::]:80;", String::new()),
            ("root /var/www/html;", format!("root {root};")),
            ("listen 443 ssl http2;", format!("listen {address} ssl http2;")),
            ("listen [::]:443 ssl http2;", String::new()),
            (
                "/etc/letsencrypt/live/colors.example.org/fullchain.pem",
                format!("{root}/certificate.pem"),
            ),
            ("/etc/letsencrypt/live/colors.example.org/privkey.pem", format!("{root}/key.pem")),
        ]) {
            assert_eq!(site.matches(text).count(), 1, "{text}");
            site = site.replace(text, &here);
        }
        scratch.write("colors.conf", site);
        let mut openssl = Command::new("openssl");
        let key = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2";
        let name = format!("-subj /CN={HOST} -addext subjectAltName=DNS:{HOST}");
        openssl.args(key.split(' ')).args(name.split(' '));
        openssl.args(["-keyout", "key.pem", "-out", "certificate.pem"]).current_dir(&scratch.0);
        assert!(openssl.output().unwrap().status.success());
        let include = format!("include {root}/colors.conf;");
        let file = scratch.write("nginx.conf", nginx_with(&include, root));
        // nginx takes over sockets whose descriptors are in this variable
        let mut command = Command::new("sh");
        command.args(["-c", "exec 3<&0 0</dev/null; NGINX='3;' exec nginx \"$@\"", "nginx"]);
        command.args(["-e", &format!("{root}/error.log"), "-p", root, "-c", &file]);
        let child = command.stdin(OwnedFd::from(listener)).stderr(Stdio::null()).spawn().unwrap();
        let mut proxy = Self { child, scratch, address };
        eventually("nginx listens", || {
            let end = proxy.child.try_wait().unwrap();
            let log = std::fs::read_to_string(proxy.scratch.0.join("error.log"));
            assert_eq!(end, None, "{log:?}");
            UnixStream::connect(proxy.scratch.0.join("redirect")).ok()
        });
        Some(proxy)
    }

    /// Starts the service behind it.
    pub(crate) fn service(&self, arguments: &[&str]) -> Server {
        let endpoint = format!("unix:{}/service", self.scratch.0.display());
        Server::start(&[&["--listen", &endpoint], arguments].concat())
    }

    /// One request through nginx over TLS, by curl; gives the status and all that came.
    pub(crate) fn curl(&self, target: &str, arguments: &[&str]) -> (u16, String) {
        let (port, certificate) = (self.address.port(), self.scratch.0.join("certificate.pem"));
        let mut command = Command::new("curl");
        command.args(["-sS", "-i", "--resolve", &format!("{HOST}:{port}:127.0.0.1"), "--cacert"]);
        command.arg(certificate).args(arguments).arg(format!("https://{HOST}:{port}{target}"));
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text} {}", String::from_utf8_lossy(&output.stderr));
        (text.split(' ').nth(1).unwrap().parse().unwrap(), text)
    }

    /// One request of this version of HTTP, `--http1.1` or `--http2`, by curl; see [`Proxy::curl`].
    pub(crate) fn curl_by(&self, version: &str, target: &str, arguments: &[&str]) -> (u16, String) {
        let (status, text) = self.curl(target, &[&[version], arguments].concat());
        let begin = if version == "--http2" { "HTTP/2 " } else { "HTTP/1.1 " };
        assert!(text.starts_with(begin), "{version}: {text}");
        (status, text)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}
