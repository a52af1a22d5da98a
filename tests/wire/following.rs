//! `--follow`: a service has the list of another one. What that other one may be instead is in
//! `following_strangers`.

use std::collections::HashMap;
use std::fs;
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use rusqlite::Connection;
use rustix::process::{Resource, Rlimit, Signal, prlimit};

use crate::common::client::assert_same_list;
use crate::common::harness::{
    Scratch, Server, SetOnDrop, at_once, colors, is_installed, run, signal_child, stored,
    wait_until,
};
use crate::common::proxy::HOST;
use crate::wire::durable::{LIST, fail, health};
use crate::wire::histories::Actor;
use crate::wire::machines::{REPLICAS, shell};
use crate::wire::recipes::{block, nginx_on_the_lan, own_address};
use crate::wire::waiting::{wait_on, waiting};

pub(super) fn url(server: &Server) -> String {
    format!("http://{}", server.address)
}

pub(super) fn follow(server: &Server, arguments: &[&str]) -> Server {
    Server::start(&[&["--follow", &url(server)], arguments].concat())
}

/// Waits until a service has the list of another one.
#[track_caller]
fn wait_for_list(follower: &Server, writer: &Server) {
    wait_until("it has the list", || follower.list() == writer.list());
}

#[test]
fn whoever_waits_at_a_copy_is_told() {
    let scratch = Scratch::new();
    let writer = Server::start(&[]);
    let copy = follow(&writer, &["--data", &scratch.file("copy.db")]);
    let mut client = wait_on(&copy, "GET", "/colors/red");
    let color = r##"{"name":"red","value":"#dc143c"}"##;
    writer.ask("PUT", "/colors/red", r##"{"value":"#dc143c"}"##).expect_status(200);
    client.response().expect(200, color);
    // a tag of one is a tag of both
    for target in ["/colors", "/colors/red"] {
        let [one, other] = [&writer, &copy].map(|server| server.ask("GET", target, ""));
        assert_eq!(one.field("etag"), other.field("etag"), "{target}");
    }
    // the list names the service that is followed, also where it is the same
    let link = format!("<{}/colors>; rel=\"via\"", url(&writer));
    let read = |server: &Server, fields: &str| server.ask_with("GET", "/colors", fields, "");
    let list = read(&writer, "");
    list.expect_field(200, "link", None);
    let same = format!("If-None-Match: {}\r\n", list.field("etag").unwrap());
    read(&copy, "").expect_field(200, "link", Some(&link));
    read(&copy, &same).expect_field(304, "link", Some(&link));
    for (method, target) in
        [("PUT", "/colors"), ("POST", "/colors"), ("PUT", "/colors/red"), ("DELETE", "/colors/red")]
    {
        let response = copy.ask(method, target, "");
        let message = format!("this is a copy, change the list at {}", url(&writer));
        response.expect_message(405, &message);
        response.expect_field(405, "allow", Some("GET, HEAD, OPTIONS"));
    }
    let json = copy.ask("GET", "/health", "").content;
    let follows = format!(r#""follows":"{}""#, url(&writer));
    for part in [&follows, r#""colors":148,"#, r#""answered":"20"#, r#""saved":"20"#] {
        assert!(json.contains(part), "{part}: {json}");
    }
    wait_until("it is up", || copy.metric("colors_followed_up") == 1.0);
    assert!(copy.metric("colors_followed_answered_timestamp_seconds") > 1e9);
    // a request that is held does not hold up a stop
    copy.stop();
}

/// Changes of all kinds, one after the other, while others read two followers: each has nothing but
/// lists that the writer had, in their order, and in the end the last.
#[test]
fn a_follower_has_the_lists_of_its_writer_in_their_order() {
    let scratch = Scratch::new();
    let writer = Server::with_seed("[]", &[]);
    let durable = follow(&writer, &["--data", &scratch.file("copy.db")]);
    let followers = [&durable, &follow(&writer, &[])];
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let readers = followers.map(|follower| {
            let is_over = &is_over;
            scope.spawn(move || {
                let mut client = follower.connect();
                let mut seen = Vec::new();
                while !is_over.load(Relaxed) {
                    seen.push(client.ask("GET", "/colors", "").content);
                }
                seen
            })
        });
        let end = SetOnDrop(&is_over);
        let mut actor = Actor::new(writer.address, 7).unwrap();
        let mut places = HashMap::from([(writer.list(), vec![0])]);
        for step in 1..=600 {
            actor.calls(step..step + 1, || ());
            places.entry(writer.list()).or_insert_with(Vec::new).push(step);
            if step % 200 == 0 {
                followers.iter().for_each(|follower| wait_for_list(follower, &writer));
            }
        }
        drop(end);
        for reader in readers {
            let (mut last, mut differ) = (0, 0);
            for list in reader.join().unwrap() {
                let places = places.get(&list).expect("the writer had it");
                let next = *places.iter().find(|place| **place >= last).expect("in this order");
                differ += u32::from(next > last);
                last = next;
            }
            assert!(differ > 0, "it has seen no change");
        }
    });
    durable.stop();
    assert_same_list(&stored(&scratch.file("copy.db")), &writer.list());
}

/// A service on this address with the list of this file.
pub(super) fn serve(address: &str, file: &str, further: &[&str]) -> Server {
    Server::spawn(colors(&[&["--listen", address, "--data", file], further].concat()))
}

/// A service with this list that can be stopped and started again: nobody else takes its port
/// meanwhile.
fn on_own_address(list: &str, file: &str) -> Server {
    let scratch = Scratch::new();
    serve(&own_address(0), file, &["--seed", &scratch.write("seed.json", list)])
}

#[test]
fn a_copy_outlives_its_writer_and_can_take_its_place() {
    let scratch = Scratch::new();
    let writer = on_own_address(LIST, &scratch.file("colors.db"));
    let file = scratch.file("copy.db");
    let follower = follow(&writer, &["--data", &file, "--seed", "none.json"]);
    let log = follower.log();
    assert!(log.contains(&format!("[INFO] listening on {} (", url(&follower))), "{log}");
    writer.ask("POST", "/colors", r#"{"name":"b","value":"2"}"#).expect_status(201);
    wait_for_list(&follower, &writer);
    follower.stop();
    // what others have changed meanwhile becomes the writer's again
    let change = "UPDATE color SET value = '3'; INSERT INTO color VALUES (9, 'c', '')";
    Connection::open(&file).unwrap().execute_batch(change).unwrap();
    assert_ne!(stored(&file), writer.list());
    let follower = follow(&writer, &["--data", &file]);
    wait_for_list(&follower, &writer);
    let lost = "[WARN] dropped 3 colors that only this copy had: it has the list of http://";
    follower.log_when("it is said", |log| log.contains(lost));
    // what its writer deletes is not its own
    writer.ask("DELETE", "/colors/b", "").expect_status(200);
    wait_for_list(&follower, &writer);
    let log = follower.stop();
    assert_eq!(log.matches(" that only this copy had").count(), 1, "{log}");
    writer.signal(Signal::KILL);
    let (address, _) = (writer.address, writer.wait());
    let url = format!("http://{address}");
    let list = stored(&file);
    // with a copy, a start does not wait
    let follower = Server::start(&["--follow", &url, "--data", &file]);
    assert_eq!(follower.list(), list);
    let away = format!("cannot follow {url} since the start: Connection refused (os error 111)");
    wait_until("/health says so", || health(&follower) == (503, away.clone()));
    assert_eq!(follower.metric("colors_followed_up"), 0.0);
    let json = follower.ask("GET", "/health", "").content;
    assert!(json.contains(r#""answered":null"#), "{json}");
    assert_eq!(follower.list(), list);
    let log = follower.stop();
    let line = format!("[INFO] follows {url}: changes are made there\n");
    assert_eq!(log.matches(&line).count(), 1, "{log}");
    let line = format!("[WARN] cannot follow {url}: Connection refused (os error 111)\n");
    assert_eq!(log.matches(&line).count(), 1, "{log}");
    // the failover
    let writer = Server::start(&["--data", &file]);
    writer.ask("DELETE", "/colors/a", "").expect_status(200);
    wait_for_list(&follow(&writer, &[]), &writer);
}

#[test]
fn who_follows_a_copy_is_told_whom_to_follow_and_keeps_its_list() {
    let scratch = Scratch::new();
    let writer = Server::start(&[]);
    let file = scratch.file("copy.db");
    let copy = on_own_address(LIST, &file);
    let (address, copy_url) = (copy.address.to_string(), url(&copy));
    let follower = follow(&copy, &["--data", &scratch.file("follower.db")]);
    copy.stop();
    let copy = serve(&address, &file, &["--follow", &url(&writer)]);
    wait_for_list(&copy, &writer);
    let reason = format!("it is a copy of {:?}, follow that service", url(&writer));
    let since = format!("cannot follow {copy_url} since 20");
    wait_until("/health says so", || {
        let (status, fault) = health(&follower);
        status == 503 && fault.starts_with(&since) && fault.ends_with(&format!(": {reason}"))
    });
    assert_eq!(follower.metric("colors_followed_up"), 0.0);
    assert_eq!(follower.list(), LIST);
    // a start without a list of its own
    let log = fail(&["--follow", &copy_url]);
    assert!(log.contains(&format!("[ERROR] cannot follow {copy_url}: {reason}; ")), "{log}");
    copy.stop();
    let copy = serve(&address, &file, &[]);
    wait_for_list(&follower, &copy);
    wait_until("/health says so", || health(&follower) == (200, "ok".to_owned()));
    let log = follower.stop();
    let line = format!("[WARN] cannot follow {copy_url}: {reason}\n");
    assert_eq!(log.matches(&line).count(), 1, "{log}");
    assert!(log.contains(&format!("[INFO] {copy_url} is followed again\n")), "{log}");
}

#[test]
fn a_token_can_be_given_and_changed_while_it_runs() {
    let scratch = Scratch::new();
    let tokens = scratch.write_tokens("abcdefgh01234567\nmirror abcdefgh01234568\n");
    let writer = Server::start(&["--token-file", &tokens, "--private", "--access-log"]);
    let token = scratch.write("token", "# of the writer\nmirror abcdefgh01234568\n");
    let copy = scratch.file("copy.db");
    let follower = follow(&writer, &["--follow-token-file", &token, "--data", &copy]);
    let open = "[WARN] whoever reaches this copy may read the list, for which its writer asks a";
    follower.log_when("it is open", |log| log.contains(open));
    // a follower has its own tokens, or none
    assert_eq!(follower.ask("GET", "/colors/red", "").status, 200);
    writer.log_when("the token's name is logged", |log| log.contains(" mirror"));
    for (content, reason) in [
        ("abcdefgh01234569", "it answers 401, name a file with a token for it with"),
        ("abcdefgh01234567\nabcdefgh01234568", "cannot use the token file"),
        ("", "cannot use the token file"),
    ] {
        let expected = format!("[WARN] cannot follow {}: {reason}", url(&writer));
        let count = || follower.log().matches(&expected).count();
        let before = count();
        fs::write(&token, content).unwrap();
        // A request that waits is answered, and the next one has the other token.
        let value = format!(r#"{{"value":"{}"}}"#, content.len());
        let fields = "Authorization: Bearer abcdefgh01234567\r\n";
        writer.ask_with("PUT", "/colors/red", fields, &value).expect_status(200);
        wait_until("it is said", || count() > before);
        fs::write(&token, "abcdefgh01234567").unwrap();
        wait_until("the change is there", || {
            let color = follower.ask("GET", "/colors/red", "").content;
            color == writer.ask_with("GET", "/colors/red", fields, "").content
        });
    }
}

#[test]
fn a_list_that_cannot_be_saved_is_no_list_that_is_followed() {
    at_once([false, true], |has_index| {
        let scratch = Scratch::new();
        let writer = Server::start(&[]);
        let file = scratch.file("copy.db");
        let follower = follow(&writer, &["--data", &file]);
        let other = Connection::open(&file).unwrap();
        let pid = rustix::process::Pid::from_raw(follower.pid() as i32);
        let limit_files = |bytes| {
            let limit = Rlimit { current: bytes, maximum: None };
            prlimit(pid, Resource::Fsize, limit).unwrap();
        };
        let before = writer.list();
        let refused = if has_index {
            other.execute_batch("CREATE UNIQUE INDEX by_name ON color (name)").unwrap();
            r#"the index "by_name" of another program refuses"#
        } else {
            // no file may become longer
            limit_files(Some(256 * 1024));
            ""
        };
        let color = format!(r#"{{"name":"red","value":"{}"}}"#, "x".repeat(300 * 1024));
        writer.ask("POST", "/colors", &color).expect_status(201);
        let failed = format!("cannot follow {} since ", url(&writer));
        let reason = format!("its list cannot be saved here: {refused}");
        // The database says of itself that a short change could be saved.
        wait_until("it is said", || {
            let (code, status) = health(&follower);
            code == 503 && status.starts_with(&failed) && status.contains(&reason)
        });
        assert_eq!(follower.list(), before);
        if has_index {
            other.execute_batch("DROP INDEX by_name").unwrap();
        } else {
            limit_files(None);
        }
        wait_for_list(&follower, &writer);
        wait_until("it is well", || health(&follower).0 == 200);
    });
}

#[test]
fn a_copy_becomes_a_list_of_its_own_by_the_commands_for_that() {
    let scratch = Scratch::new();
    let options = "COLORS_FOLLOW=http://192.0.2.7:8080\nCOLORS_FOLLOW_TOKEN_FILE=token\n";
    let file = scratch.write("colors", format!("COLORS_KEEP_ALIVE=9\n{options}"));
    let commands = block(REPLICAS, "sh", "sed -i");
    let (sed, restart) = commands.trim_end().split_once('\n').unwrap();
    assert_eq!(restart, "systemctl restart colors");
    let sed = sed.replace("/etc/default/colors", &file);
    assert_eq!(run(Command::new("sh").args(["-c", &sed])).0, Some(0));
    assert_eq!(fs::read_to_string(&file).unwrap(), "COLORS_KEEP_ALIVE=9\n");
    // and back again
    let (_kept, data, old) = Server::kept(LIST);
    old.stop();
    let commands = block(REPLICAS, "sh", "lost.json").replace("/etc/default/colors", &file);
    let commands = commands.replace("/var/lib/colors/colors.db", &data);
    let (commands, enable) = commands.trim_end().rsplit_once('\n').unwrap();
    assert_eq!(enable, "systemctl enable --now colors.service");
    assert_eq!(run(&mut shell(&scratch, commands)), (Some(0), String::new(), String::new()));
    let dumped = fs::read_to_string(scratch.file("lost.json")).unwrap();
    assert_eq!(dumped, format!("{LIST}\n"));
    let options = fs::read_to_string(&file).unwrap();
    assert_eq!(options, "COLORS_KEEP_ALIVE=9\nCOLORS_FOLLOW=http://192.0.2.8:8080\n");
}

#[test]
fn a_writer_behind_tls_is_followed_through_caddy() {
    let (Some(nginx), true) = (nginx_on_the_lan(8090), is_installed("caddy")) else { return };
    let scratch = Scratch::new();
    let address = own_address(8086);
    let (ip, _) = address.split_once(':').unwrap();
    // In place of the name of the document: where nginx is, and what is in its certificate.
    let transport = "transport http {\n";
    let site = block(REPLICAS, "caddy", "reverse_proxy")
        .replace("http://127.0.0.1:8081 {\n", &format!("http://{address} {{\n\tbind {ip}\n"))
        .replace("colors.lan", &nginx.address)
        .replace(transport, &format!("{transport}\t\t\ttls_server_name {HOST}\n"))
        .replace("/etc/caddy", &nginx.scratch.0.display().to_string());
    scratch.write("configuration", format!("{{\n\tadmin off\n}}\n{site}"));
    let mut caddy = Command::new("caddy");
    caddy.args(["run", "--adapter", "caddyfile", "--config", "configuration"]);
    caddy.env("HOME", &scratch.0).current_dir(&scratch.0);
    let mut caddy = caddy.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until("Caddy listens", || TcpStream::connect(&address).is_ok());
    let follower = Server::start(&["--follow", &format!("http://{address}")]);
    wait_until("it waits", || waiting(&nginx.server) == 1);
    nginx.server.ask("DELETE", "/colors/red", "").expect_status(200);
    wait_for_list(&follower, &nginx.server);
    signal_child(&caddy, Signal::TERM);
    caddy.wait().unwrap();
}
