//! Histories at three services that share a list in etcd, of which members and services are killed
//! and stopped meanwhile: there has to be an order of the changes that explains every answer, and
//! what is read at a service only goes forward.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::common::etcd::Etcd;
use crate::common::harness::{Server, SetOnDrop, eventually, figures};
use crate::wire::histories::{Actor, Answer, Operation, calls_of, check};

/// Kills and stops members of etcd and services, one at a time, so many times, or until it is over.
fn disturb(
    etcd: &mut Etcd,
    servers: &mut [Server],
    addresses: &Mutex<Vec<SocketAddr>>,
    times: usize,
    is_over: &AtomicBool,
) {
    let mut random = fastrand::Rng::with_seed(7);
    for action in 0..times {
        if is_over.load(Relaxed) {
            break;
        }
        let place = random.usize(..3);
        let leader = if random.bool() { etcd.leader() } else { place };
        let mut pause = |least, most| {
            thread::park_timeout(Duration::from_millis(random.u64(least..most)));
        };
        match action % 4 {
            0 => {
                etcd.kill(leader);
                pause(100, 1000);
                etcd.start_member(leader);
                etcd.wait_until_healthy(leader);
            }
            1 => {
                etcd.signal(leader, Signal::STOP);
                pause(100, 2500);
                etcd.signal(leader, Signal::CONT);
                etcd.wait_until_healthy(leader);
            }
            2 => {
                servers[place].signal(Signal::KILL);
                servers[place] = Server::start(&["--data", &etcd.url("colors")]);
                addresses.lock().unwrap()[place] = servers[place].address;
            }
            _ => {
                servers[place].signal(Signal::STOP);
                pause(50, 500);
                servers[place].signal(Signal::CONT);
            }
        }
        pause(50, 300);
    }
}

/// Has `work` make requests of three services that share this list until so many disturbances are
/// over.
fn beside_disturbances(
    seed: &str,
    times: usize,
    work: impl FnOnce(&Mutex<Vec<SocketAddr>>, &AtomicBool),
) {
    let Some(mut etcd) = Etcd::start(3) else { return };
    let url = etcd.url("colors");
    let mut servers: Vec<_> = (0..3).map(|_| Server::with_data(seed, &url, &[])).collect();
    let addresses = Mutex::new(servers.iter().map(|server| server.address).collect::<Vec<_>>());
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        // If one of them panics, the other ends.
        let _end = SetOnDrop(&is_over);
        scope.spawn(|| {
            let _end = SetOnDrop(&is_over);
            disturb(&mut etcd, &mut servers, &addresses, times, &is_over);
        });
        work(&addresses, &is_over);
    });
}

#[test]
fn every_history_at_services_that_share_an_etcd_has_an_order() {
    let (mut rounds, mut made, mut in_doubt) = (0, 0, 0);
    beside_disturbances("[]", 16, |addresses, is_over| {
        while !is_over.load(Relaxed) {
            rounds += 1;
            let actor = |place: usize, seed: u32| {
                let address = addresses.lock().unwrap()[place % 3];
                Actor::new(address, u64::from(seed))
            };
            // Another list each time needs a commit, behind which nothing in doubt can come.
            let initial = vec![(0, rounds * 1000), (1, rounds * 1000 + 1)];
            let mut place = 0;
            eventually("the list is set", || {
                place += 1;
                let set = Operation::ReplaceAll(initial.clone(), None);
                let call = actor(place, 0)?.call(set);
                call.ended.filter(|(_, answer)| *answer != Answer::NotSaved)
            });
            let client = |client| actor(client, rounds * 4 + client as u32);
            let mut clients: Vec<Actor> = (0..4).filter_map(client).collect();
            let mut calls = calls_of(&mut clients, rounds * 1000 + 10, 4, || ());
            // What is read may be older.
            calls.retain(|call| !matches!(call.operation, Operation::Read(_) | Operation::ReadAll));
            made += calls.len();
            in_doubt += calls.iter().filter(|call| call.ended.is_none()).count();
            // A refusal is the newest state, and a read at the same service is not older.
            let last = eventually("the list is read", || {
                place += 1;
                let mut actor = actor(place, 0)?;
                let refused = actor.call(Operation::Delete(9, None)).ended?.1;
                (refused == Answer::NotFound).then(|| actor.call(Operation::ReadAll))
            });
            calls.push(last);
            check(&initial, &mut calls);
        }
    });
    figures(&format!("{rounds} histories, {made} changes, {in_doubt} in doubt"));
}

#[test]
fn what_is_read_at_a_service_only_goes_forward() {
    beside_disturbances(r#"[{"name":"a","value":"0"}]"#, 8, |addresses, is_over| {
        let actor = |place: usize| {
            let address = addresses.lock().unwrap()[place % 3];
            Some((address, Actor::new(address, 0)?))
        };
        thread::scope(|scope| {
            scope.spawn(|| {
                for count in (1..).take_while(|_| !is_over.load(Relaxed)) {
                    if let Some((_, mut actor)) = actor(count) {
                        actor.call(Operation::Update(0, Some(count as u32), None));
                    }
                }
            });
            let mut seen = HashMap::new();
            for place in (0..).take_while(|_| !is_over.load(Relaxed)) {
                let Some((address, mut actor)) = actor(place) else { continue };
                let Some((_, answer)) = actor.call(Operation::Read(0)).ended else { continue };
                let Answer::Color((_, count)) = answer else { panic!("{answer:?}") };
                let before = seen.insert(address, count);
                assert!(before <= Some(count), "{before:?} {count}");
            }
            assert!(!seen.is_empty());
        });
    });
}
