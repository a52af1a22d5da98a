//! More than one machine: Litestream itself beside the service, with a directory as the replica, by
//! the recipes of the document.

use std::collections::BTreeMap;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::process::Signal;
use serde_json::Value;

use crate::common::client::{Client, assert_same_list, request};
use crate::common::harness::{
    SetOnDrop, eventually, is_installed, run, signal_child, stored, wait_until,
};
use crate::wire::machines::{Machine, REPLICAS, shell};
use crate::wire::recipes::block;
use crate::wire::systemd::check_unit;

const CLIENTS: usize = 32;

/// One client's color: what it has sent and what was acknowledged, numbers that only grow.
#[derive(Default)]
struct Counter {
    sent: AtomicU64,
    acknowledged: AtomicU64,
}

/// What the list has for each client, by its name.
fn values(list: &str) -> BTreeMap<String, u64> {
    let list: Value = serde_json::from_str(list).unwrap();
    let colors = list["data"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    colors
        .map(|color| (text(&color["name"]), text(&color["value"])))
        .filter(|(name, _)| !name.starts_with("long-"))
        .map(|(name, value)| (name, value.parse().unwrap()))
        .collect()
}

/// A color of each client, on a page of its own: in a copy that lacks a page, another one would not
/// hide it.
fn seed() -> String {
    let long = format!(r#"{{"name":"long-","value":"{}"}}"#, "x".repeat(3_000));
    let color = |client| format!(r#"{{"name":"client-{client}","value":"0"}},{long}"#);
    format!("[{}]", (0..CLIENTS).map(color).collect::<Vec<_>>().join(","))
}

fn acknowledged(counters: &[Counter]) -> Vec<u64> {
    counters.iter().map(|counter| counter.acknowledged.load(Relaxed)).collect()
}

/// Checks that the list has for each client what was acknowledged before, or something later that
/// it has sent.
#[track_caller]
fn check(list: &str, acknowledged: &[u64], counters: &[Counter]) {
    let values = values(list);
    assert_eq!(values.len(), CLIENTS);
    for (client, (before, counter)) in acknowledged.iter().zip(counters).enumerate() {
        let value = values[&format!("client-{client}")];
        let sent = counter.sent.load(Relaxed);
        let is_there = (*before..=sent).contains(&value);
        assert!(is_there, "client {client}: {value} of {before} to {sent}");
    }
}

/// Has a client change its color once; false if the service has ended. An answer other than 200
/// fails the test.
fn write(connection: &mut Client, client: usize, counter: &Counter) -> bool {
    let value = counter.sent.fetch_add(1, Relaxed) + 1;
    let (target, content) =
        (format!("/colors/client-{client}"), format!(r#"{{"value":"{value}"}}"#));
    let change = request("PUT", &target, "Host: localhost\r\n", &content);
    let Some(response) = connection.try_ask(&change) else { return false };
    response.expect_status(200);
    counter.acknowledged.store(value, Relaxed);
    true
}

/// Has all clients change their colors, each one after the other, until the flag is set or the
/// service has ended.
fn write_until(is_over: &AtomicBool, address: SocketAddr, counters: &[Counter]) {
    thread::scope(|scope| {
        for (client, counter) in counters.iter().enumerate() {
            scope.spawn(move || {
                let Ok(stream) = TcpStream::connect(address) else { return };
                let mut connection = Client::new(stream);
                while !is_over.load(Relaxed) && write(&mut connection, client, counter) {}
            });
        }
    });
}

/// Whether a log has nothing but news.
#[track_caller]
fn assert_calm(log: &str) {
    // The last line may warn that Litestream kept the stop from copying FILE-wal into FILE.
    let is_news = |line: &str| !line.contains("[WARN]") && !line.contains("[ERROR]");
    let is_calm = |line: &str| is_news(line) || line.contains("stopped; keep ");
    assert!(log.lines().all(is_calm), "{log}");
}

#[test]
fn after_kills_the_copy_has_what_was_acknowledged_before_it() {
    let Some(machine) = Machine::first() else { return };
    let mut server = machine.serve(&seed());
    let mut litestream = machine.replicate();
    let counters = [(); CLIENTS].map(|()| Counter::default());
    for (kills_service, kills_litestream) in
        [(true, false), (false, true), (true, true)].into_iter().cycle().take(6)
    {
        let is_over = AtomicBool::new(false);
        let address = server.address;
        let known = thread::scope(|scope| {
            scope.spawn(|| write_until(&is_over, address, &counters));
            let _end = SetOnDrop(&is_over);
            let wait_for_more = |count: u64| {
                let first = acknowledged(&counters);
                wait_until("every client is answered", || {
                    let now = acknowledged(&counters);
                    now.iter().zip(&first).all(|(now, first)| *now >= first + count)
                });
            };
            wait_for_more(1);
            let known = acknowledged(&counters);
            machine.sync();
            wait_for_more(fastrand::u64(..20));
            if kills_service {
                server.signal(Signal::KILL);
            }
            if kills_litestream {
                signal_child(&litestream.0, Signal::KILL);
            }
            known
        });
        check(&machine.restored(), &known, &counters);
        // Who is killed is started again; with the service, Litestream is as well, and before it.
        // It looks at one page alone to find out whether it has read all of FILE-wal: without the
        // snapshot of its unit, a copy may lack changes from now on.
        if kills_litestream {
            drop(litestream);
        } else {
            litestream.stop();
        }
        litestream = machine.replicate();
        if kills_service {
            server.wait();
            server = machine.serve("[]");
        }
        check(&server.list(), &acknowledged(&counters), &counters);
        assert!(write(&mut server.connect(), 0, &counters[0]));
        machine.sync();
        // A change that a kill has cut off may be in the list and not in the copy.
        check(&machine.restored(), &acknowledged(&counters), &counters);
    }
    assert_calm(&server.stop());
}

#[test]
fn the_unit_is_sound() {
    let Some(machine) = Machine::first() else { return };
    if !is_installed("systemd-analyze") {
        return;
    }
    let (_, path, _) = run(Command::new("sh").args(["-c", "command -v litestream"]));
    let service = "[Service]\nExecStart=/usr/bin/litestream replicate\n";
    let copies = block(REPLICAS, "ini", "force-snapshot");
    for (file, text) in [("", service), (".d/override.conf", copies)] {
        let file = format!("litestream.service{file}");
        fs::create_dir_all(machine.scratch.0.join(&file).parent().unwrap()).unwrap();
        machine.scratch.write(&file, text.replace("/usr/bin/litestream", path.trim_end()));
    }
    check_unit(&machine.scratch.0, "litestream.service");
}

#[test]
fn litestream_takes_each_replica_that_the_document_names() {
    let Some(machine) = Machine::first() else { return };
    let settings = block(REPLICAS, "yaml", "file:///srv/colors");
    let replicas: Vec<_> = settings.lines().filter(|line| line.contains("replica:")).collect();
    for (replica, kind) in replicas.iter().zip(["file", "s3", "sftp"]) {
        let (head, _) = settings.split_once("    replica:").unwrap();
        let settings = format!("{head}{}\n", replica.replace("# ", ""));
        machine.scratch.write("other.yml", settings);
        let (code, printed, _) =
            run(&mut shell(&machine.scratch, "litestream databases -config other.yml"));
        assert_eq!(code, Some(0));
        let row = printed.lines().last().unwrap().split_whitespace().collect::<Vec<_>>();
        assert_eq!(row, ["/var/lib/colors/colors.db", kind]);
    }
    assert_eq!(replicas.len(), 3);
}

#[test]
fn another_machine_takes_over_without_a_loss_by_the_commands_for_that() {
    let Some(first) = Machine::first() else { return };
    let mut second = first.another();
    // the package has made a list there
    second.serve("[]").stop();
    let (mut old, mut litestream) = (Some(first.serve(&seed())), Some(first.replicate()));
    let counters = [(); CLIENTS].map(|()| Counter::default());
    let (is_over, address) = (AtomicBool::new(false), old.as_ref().unwrap().address);
    thread::scope(|scope| {
        scope.spawn(|| write_until(&is_over, address, &counters));
        let _end = SetOnDrop(&is_over);
        // from its first look at the database on, Litestream keeps others from a checkpoint
        wait_until("changes are copied", || {
            values(&first.restored()).values().all(|value| *value > 10)
        });
        first.follow(block(REPLICAS, "sh", "litestream.service"), |what| match what {
            "disable --now colors.service" => assert_calm(&old.take().unwrap().stop()),
            "disable --now litestream.service" => litestream.take().unwrap().stop(),
            _ => panic!("{what}"),
        });
    });
    let mut new = None;
    second.follow(block(REPLICAS, "sh", "chown --reference"), |what| match what {
        "stop colors.service" => {}
        "start colors.service" => new = Some(second.serve("[]")),
        _ => panic!("{what}"),
    });
    let new = new.expect("it is started");
    let list = new.list();
    check(&list, &acknowledged(&counters), &counters);
    assert_same_list(&list, &stored(&first.file()));
    new.ask("DELETE", "/colors/client-0", "").expect_status(200);
    // what was there is kept
    assert_eq!(fs::read_dir(second.scratch.0.join("root")).unwrap().count(), 1);
    // it is copied to another place
    let replica = second.scratch.file("replica-2");
    let settings = fs::read_to_string(second.scratch.0.join("litestream.yml")).unwrap();
    second.scratch.write("litestream.yml", settings.replace(&second.replica, &replica));
    second.replica = replica;
    let litestream = second.replicate();
    second.sync();
    assert_same_list(&second.restored(), &new.list());
    litestream.stop();
    assert_calm(&new.stop());
}

#[test]
fn the_list_of_a_moment_is_restored_by_the_commands_for_that() {
    let Some(machine) = Machine::first() else { return };
    let list_of = |value: usize| format!(r#"[{{"name":"a","value":"{value}"}}]"#);
    let server = machine.serve(&list_of(1));
    let _litestream = machine.replicate();
    machine.sync();
    let second = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let before = second();
    let moment = eventually("a second has begun", || Some(second()).filter(|now| *now > before));
    wait_until("time goes on", || second() > moment + 1);
    server.ask("PUT", "/colors", &list_of(2)).expect_status(200);
    machine.sync();
    let (_, moment, _) =
        run(Command::new("date").args(["-u", "-d", &format!("@{moment}"), "+%Y-%m-%dT%H:%M:%SZ"]));
    let commands = block(REPLICAS, "sh", "-timestamp");
    let commands = commands.replace("2026-11-22T05:40:00Z", moment.trim_end());
    assert!(commands.contains(moment.trim_end()));
    commands.lines().for_each(|line| machine.run(line));
    let list = fs::read_to_string(machine.scratch.0.join("backup.json")).unwrap();
    let envelope_of = |value: usize| format!(r#"{{"data":{}}}"#, list_of(value));
    assert_eq!(list.trim_end(), envelope_of(1));
    assert_eq!(machine.restored(), envelope_of(2));
}
