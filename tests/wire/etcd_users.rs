//! A list in etcd that only users with a password may change (`--etcd-user-file`).

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use crate::common::etcd::Etcd;
use crate::common::harness::{Scratch, Server, at_once, colors, is_installed, run, wait_until};
use crate::wire::durable::fail;
use crate::wire::etcd::{SEED, wait_until_unwell, wait_until_well};

#[track_caller]
fn as_root(etcd: &Etcd, line: &str) {
    let words = line.split(' ');
    etcd.etcdctl(&["--user=root:root"].into_iter().chain(words).collect::<Vec<_>>());
}

#[track_caller]
fn put(server: &Server, value: &str) {
    let content = format!(r#"{{"value":"{value}"}}"#);
    wait_until("etcd answers", || {
        let response = server.ask("PUT", "/colors/red", &content);
        // etcd may be slow.
        let is_late = response.content.contains("etcd does not answer");
        assert!(response.status == 200 || is_late, "{response:?}");
        !is_late
    });
}

#[test]
fn a_service_goes_on_as_its_user_whatever_becomes_of_its_token() {
    let scratch = Scratch::new();
    let mut kinds = vec!["simple".to_owned()];
    if is_installed("openssl") {
        let (key, public) = (scratch.file("key"), scratch.file("public"));
        for command in
            [format!("genrsa -out {key} 2048"), format!("rsa -in {key} -pubout -out {public}")]
        {
            assert_eq!(run(Command::new("openssl").args(command.split(' '))).0, Some(0));
        }
        kinds.push(format!("jwt,pub-key={public},priv-key={key},sign-method=RS256,ttl=1h"));
    }
    at_once(kinds, |kind| {
        Etcd::start_with(1, &["--auth-token", &kind]).into_iter().for_each(check_user);
    });
}

/// Has two services go on as a user whose tokens this etcd forgets again and again.
fn check_user(mut etcd: Etcd) {
    let scratch = Scratch::new();
    let file = scratch.write_tokens("colors:colors\n");
    let options = ["--etcd-user-file", &file, "--log-level", "debug"];
    let server = Server::with_data(SEED, &etcd.url("colors"), &options);
    let other = Server::with_data("[]", &etcd.url("colors"), &options);
    put(&server, "1");
    etcd.add_users("colors/");
    put(&server, "2");
    put(&other, "3");
    // so that its place in the log of etcd is beyond the end of a new log
    (0..100).for_each(|value| put(&server, &value.to_string()));
    for line in ["role add other", "role delete other", "auth disable"] {
        as_root(&etcd, line);
        put(&server, line);
    }
    etcd.etcdctl(&["auth", "enable"]);
    put(&server, "4");
    as_root(&etcd, "auth disable");
    etcd.etcdctl(&["auth", "enable"]);
    etcd.kill(0);
    etcd.start_member(0);
    wait_until("it goes on", || server.ask("PUT", "/colors/red", "{}").status == 200);
    wait_until("both watch again", || {
        etcd.ask(0, "/metrics").contains("\netcd_debugging_mvcc_watcher_total 2\n")
    });
    put(&server, "6");
    wait_until("it is told", || other.list() == server.list());
    for line in ["user delete colors", "user add colors:x", "user grant-role colors colors"] {
        as_root(&etcd, line);
    }
    let refused = "the change could not be saved: etcd refuses it; /health and the log say \
                   what to do";
    wait_until("it is refused", || {
        let answer = server.ask("DELETE", "/colors/red", "");
        answer.status == 500 && answer.message() == refused
    });
    let reason = "etcd refuses requests: etcdserver: authentication failed, invalid user ID \
                  or password; correct the file of --etcd-user-file";
    wait_until_unwell(&server, reason);
    scratch.write_tokens("colors:x");
    wait_until_well(&server);
    put(&server, "7");
    etcd.kill(0);
    etcd.wipe(0);
    etcd.start_member(0);
    etcd.wait_until_healthy(0);
    etcd.add_users("colors/");
    scratch.write_tokens("colors:colors");
    wait_until_unwell(&server, "etcd has no list");
    for log in [server.stop(), other.stop()] {
        for secret in ["\"password", "uthorization", "colors:"] {
            assert!(!log.contains(secret), "{log}");
        }
    }
}

#[test]
fn a_start_says_why_etcd_does_not_let_it_in() {
    let Some(etcd) = Etcd::start(1) else { return };
    let scratch = Scratch::new();
    etcd.add_users("colors/");
    let (url, file) = (etcd.url("colors"), scratch.file("tokens"));
    let refusal = "etcd refuses requests: etcdserver: ";
    let unusable = format!("the etcd user file cannot be used: {file}: ");
    let error = fail(&["--check", "--data", &url]);
    let empty = "user name is empty; name a file with user and password by --etcd-user-file";
    assert!(error.contains(&format!("{refusal}{empty}")), "{error}");
    let options = ["--check", "--etcd-user-file", &file, "--data"];
    for (line, start, rest) in [
        (None, unusable.as_str(), "No such file"),
        (Some("colors\n"), &unusable, "it needs one line, USER:PASSWORD\n"),
        (Some("nobody:x"), refusal, "authentication failed, invalid user ID or password; correct"),
    ] {
        line.map(|line| scratch.write_tokens(line));
        let error = fail(&[&options[..], &[&url]].concat());
        assert!(error.contains(&format!("{start}{rest}")), "{line:?}: {error}");
    }
    for line in ["root:root", "colors:colors"] {
        scratch.write_tokens(line);
        let (code, printed, error) = run(colors(&options).arg(&url));
        let is_fine = code == Some(0) && printed.starts_with("the options are fine: ");
        assert!(is_fine, "{line}: {error}");
    }
    let error = fail(&[&options[..], &[&etcd.url("elsewhere")]].concat());
    let denied = "permission denied; give a role of the user readwrite for what begins with KEY/";
    assert!(error.contains(&format!("{refusal}{denied}")), "{error}");
}

#[test]
fn a_password_that_others_can_read_has_a_warning() {
    let Some(etcd) = Etcd::start(1) else { return };
    let scratch = Scratch::new();
    let file = scratch.write_tokens("colors:colors");
    let url = etcd.url("colors");
    // is this host, but no loopback address
    let remote = url.replace("127.0.0.1", "0.0.0.0");
    let logs = |url: &str| {
        let options = ["--etcd-user-file", &file];
        let check = run(colors(&["--check", "--data", url]).args(options)).2;
        [check, Server::with_data(SEED, url, &options).stop()]
    };
    for log in logs(&url) {
        assert!(!log.contains("[WARN]"), "{log}");
    }
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let member = remote.split(['/', ',']).nth(2).unwrap();
    for log in logs(&remote) {
        for warning in [
            format!("the password for etcd goes to {member} in clear: name members of this host"),
            format!("others can use the etcd user file {file}, its mode is 0640; run chmod 600"),
        ] {
            assert!(log.contains(&format!("[WARN] {warning}")), "{log}");
        }
    }
}
