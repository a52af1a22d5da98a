//! Random operations, with names that are easily mistaken, and the same on a `Vec`. For each
//! history there has to be an order in which no operation comes before one that had ended when it
//! began, and which explains every answer (Wing and Gong, "Testing and Verifying Concurrent
//! Objects", 1993). Those of one client have one order.

use std::collections::{HashMap, HashSet};
use std::net::TcpStream;
use std::ops::Range;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Instant;

use rustix::process::Signal;
use serde_json::Value;

use crate::common::client::{Client, Response, request};
use crate::common::harness::{Scratch, Server, at_once, eventually, stored};
use crate::common::process::on_log_of;

/// A name by its place in [`NAMES`], and a value, which is a number here.
pub(super) type Color = (usize, u32);

/// Names that a path, JSON or a comparison may get wrong.
const NAMES: [&str; 10] = ["a", "a/b", "\"\\\n", "", "A", "a b", "%41", "é", "e\u{301}", ".."];

/// So many of them are in a history of several clients: they meet each other often.
const COMMON: usize = 3;

const CLIENTS: usize = 4;

#[derive(Clone, Debug)]
pub(super) enum Operation {
    Read(usize),
    ReadAll,
    Create(Color),
    /// A PUT with `If-None-Match: *`.
    CreateAbsent(Color),
    /// The value to set, if any, and that of the color whose tag is in If-Match.
    Update(usize, Option<u32>, Option<u32>),
    Delete(usize, Option<u32>),
    /// The list to set, and that whose tag is in If-Match.
    ReplaceAll(Vec<Color>, Option<Vec<Color>>),
}

#[derive(Debug, PartialEq)]
pub(super) enum Answer {
    Color(Color),
    /// Whether it has a Location: if its path names it, and clients do not take that for another.
    Created(bool),
    List(Vec<Color>),
    NotFound,
    ConditionFailed,
    /// The change could not be saved, and so was not made.
    NotSaved,
}

/// An operation of one client.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) operation: Operation,
    begun: Instant,
    /// An operation without an answer may have been made, or not.
    pub(super) ended: Option<(Instant, Answer)>,
}

/// What the specification's list does: the answer, and the list after it.
fn make(operation: &Operation, list: &mut Vec<Color>) -> Answer {
    let place = |list: &[Color], name: usize| list.iter().position(|color| color.0 == name);
    match operation {
        Operation::Read(name) => {
            place(list, *name).map_or(Answer::NotFound, |place| Answer::Color(list[place]))
        }
        Operation::ReadAll => Answer::List(list.clone()),
        Operation::CreateAbsent(color) if place(list, color.0).is_some() => Answer::ConditionFailed,
        Operation::Create(color) | Operation::CreateAbsent(color) => {
            list.push(*color);
            let is_first = place(list, color.0) == Some(list.len() - 1);
            Answer::Created(is_first && NAMES[color.0] != "..")
        }
        Operation::Update(name, value, tag) => match place(list, *name) {
            None => Answer::NotFound,
            Some(place) if tag.is_some_and(|tag| tag != list[place].1) => Answer::ConditionFailed,
            Some(place) => {
                list[place].1 = value.unwrap_or(list[place].1);
                Answer::Color(list[place])
            }
        },
        Operation::Delete(name, tag) => match place(list, *name) {
            None => Answer::NotFound,
            Some(place) if tag.is_some_and(|tag| tag != list[place].1) => Answer::ConditionFailed,
            Some(place) => Answer::Color(list.remove(place)),
        },
        Operation::ReplaceAll(_, Some(tag)) if tag != list => Answer::ConditionFailed,
        Operation::ReplaceAll(other, _) => {
            list.clone_from(other);
            Answer::List(other.clone())
        }
    }
}

/// Whether there is an order of the calls that are not done yet. `refuted` has what was tried in
/// vain.
fn has_order(
    calls: &[Call],
    done: u64,
    list: &[Color],
    refuted: &mut HashSet<(u64, Vec<Color>)>,
) -> bool {
    let left = || (0..calls.len()).filter(|call| done & 1 << call == 0);
    let Some(first_end) = left().filter_map(|call| Some(calls[call].ended.as_ref()?.0)).min()
    else {
        return true;
    };
    if !refuted.insert((done, list.to_vec())) {
        return false;
    }
    left().filter(|call| calls[*call].begun <= first_end).any(|call| {
        let mut next = list.to_vec();
        let answer = make(&calls[call].operation, &mut next);
        let is_explained = calls[call].ended.as_ref().is_none_or(|(_, given)| *given == answer);
        is_explained && has_order(calls, done | 1 << call, &next, refuted)
    })
}

#[track_caller]
pub(super) fn check(initial: &[Color], calls: &mut Vec<Call>) {
    calls.retain(|call| call.ended.as_ref().is_none_or(|(_, answer)| *answer != Answer::NotSaved));
    calls.sort_by_key(|call| call.begun);
    if !has_order(calls, 0, initial, &mut HashSet::new()) {
        let start = calls[0].begun;
        let line = |Call { operation, begun, ended }: &Call| match ended {
            Some((end, answer)) => {
                format!("{:?}..{:?} {operation:?} -> {answer:?}", *begun - start, *end - start)
            }
            None => format!("{:?}.. {operation:?}", *begun - start),
        };
        panic!(
            "no order explains these, from {initial:?}:\n{}",
            calls.iter().map(line).collect::<Vec<_>>().join("\n")
        );
    }
}

fn color_json(color: &Color) -> String {
    let name = serde_json::to_string(NAMES[color.0]).unwrap();
    format!(r#"{{"name":{name},"value":"{}"}}"#, color.1)
}

fn json(list: &[Color]) -> String {
    format!("[{}]", list.iter().map(color_json).collect::<Vec<_>>().join(","))
}

fn color_of(json: &Value) -> Color {
    let name = NAMES.iter().position(|name| json["name"] == *name).unwrap();
    (name, json["value"].as_str().unwrap().parse().unwrap())
}

/// One client with what it has read.
pub(super) struct Actor {
    client: Client,
    random: fastrand::Rng,
    /// How many names it takes.
    names: usize,
    color_tags: HashMap<Color, String>,
    list_tag: Option<(Vec<Color>, String)>,
}

impl Actor {
    pub(super) fn new(address: std::net::SocketAddr, seed: u64) -> Option<Self> {
        let client = Client::new(TcpStream::connect(address).ok()?);
        Some(Self {
            client,
            random: fastrand::Rng::with_seed(seed),
            names: COMMON,
            color_tags: HashMap::new(),
            list_tag: None,
        })
    }

    /// Any operation; with a condition now and then, if there is a tag for it.
    fn choose(&mut self, value: u32) -> Operation {
        let random = &mut self.random;
        let name = random.usize(..self.names);
        let known = self
            .color_tags
            .keys()
            .filter(|color| color.0 == name)
            .map(|color| color.1)
            .max()
            .filter(|_| random.bool());
        match random.u8(..16) {
            0..3 => Operation::Read(name),
            3..6 => Operation::ReadAll,
            6 | 7 => Operation::Create((name, value)),
            8 => Operation::CreateAbsent((name, value)),
            9..12 => Operation::Update(name, Some(value), known),
            12 => Operation::Update(name, None, known),
            13 | 14 => Operation::Delete(name, known),
            _ => {
                let list = (0..random.u32(..4))
                    .map(|number| (random.usize(..self.names), value * 10 + number))
                    .collect();
                Operation::ReplaceAll(
                    list,
                    self.list_tag.as_ref().map(|(list, _)| list.clone()).filter(|_| random.bool()),
                )
            }
        }
    }

    pub(super) fn call(&mut self, operation: Operation) -> Call {
        let begun = Instant::now();
        let color = |name: usize| {
            let escaped: String = NAMES[name].bytes().map(|byte| format!("%{byte:02X}")).collect();
            format!("/colors/{escaped}")
        };
        let value = |value: &u32| format!(r#"{{"value":"{value}"}}"#);
        let colors = || "/colors".to_owned();
        let (method, target, content) = match &operation {
            Operation::Read(name) => ("GET", color(*name), String::new()),
            Operation::ReadAll => ("GET", colors(), String::new()),
            Operation::Create(created) => ("POST", colors(), color_json(created)),
            Operation::CreateAbsent(created) => ("PUT", color(created.0), value(&created.1)),
            Operation::Update(name, None, _) => ("PUT", color(*name), "{}".to_owned()),
            Operation::Update(name, Some(new), _) => ("PUT", color(*name), value(new)),
            Operation::Delete(name, _) => ("DELETE", color(*name), String::new()),
            Operation::ReplaceAll(list, _) => ("PUT", colors(), json(list)),
        };
        let tag = match &operation {
            Operation::Update(name, _, Some(value)) | Operation::Delete(name, Some(value)) => {
                Some(&self.color_tags[&(*name, *value)])
            }
            Operation::ReplaceAll(_, Some(_)) => self.list_tag.as_ref().map(|(_, tag)| tag),
            _ => None,
        };
        let condition = match &operation {
            Operation::CreateAbsent(_) => "If-None-Match: *\r\n".to_owned(),
            _ => tag.map_or_else(String::new, |tag| format!("If-Match: {tag}\r\n")),
        };
        let fields = format!("Host: localhost\r\n{condition}");
        let response = self.client.try_ask(&request(method, &target, &fields, &content));
        if let Operation::Create(color) | Operation::CreateAbsent(color) = &operation
            && let Some(response) = response.as_ref().filter(|response| response.status == 201)
        {
            assert_eq!(response.content, color_json(color));
        }
        let is_known = |response: &Response| !response.content.contains("may be in the list");
        let response = response.filter(is_known);
        let ended = response.map(|response| (Instant::now(), self.understand(&response)));
        Call { operation, begun, ended }
    }

    fn understand(&mut self, response: &Response) -> Answer {
        let content: Value = serde_json::from_str(&response.content).unwrap();
        let tag = response.field("etag").map(str::to_owned);
        match response.status {
            404 => Answer::NotFound,
            412 => Answer::ConditionFailed,
            500 | 503 => Answer::NotSaved,
            201 => Answer::Created(response.field("location").is_some()),
            200 if content["data"].is_array() => {
                let list: Vec<Color> =
                    content["data"].as_array().unwrap().iter().map(color_of).collect();
                assert_eq!(response.content, format!(r#"{{"data":{}}}"#, json(&list)));
                self.list_tag = tag.map(|tag| (list.clone(), tag)).or(self.list_tag.take());
                Answer::List(list)
            }
            200 => {
                let color = color_of(&content);
                assert_eq!(response.content, color_json(&color));
                tag.map(|tag| self.color_tags.insert(color, tag));
                Answer::Color(color)
            }
            _ => panic!("{response:?}"),
        }
    }

    /// As many operations, or fewer if the service ends. Calls `answered` after each answer.
    pub(super) fn calls(&mut self, values: Range<u32>, answered: impl Fn()) -> Vec<Call> {
        let mut calls = Vec::new();
        for value in values {
            let operation = self.choose(value);
            calls.push(self.call(operation));
            if calls.last().is_some_and(|call| call.ended.is_none()) {
                break;
            }
            answered();
        }
        calls
    }
}

/// Has these clients make so many operations each at the same time. No two operations have the same
/// value: those of the first client begin with this one. Calls `answered` after each answer.
pub(super) fn calls_of(
    clients: &mut [Actor],
    first: u32,
    each: u32,
    answered: impl Fn() + Sync,
) -> Vec<Call> {
    let all_are_there = Barrier::new(clients.len());
    thread::scope(|scope| {
        let start = |(client, first): (_, u32)| {
            let (all_are_there, answered) = (&all_are_there, &answered);
            scope.spawn(move || {
                let client: &mut Actor = client;
                all_are_there.wait();
                client.calls(first..first + each, answered)
            })
        };
        let running: Vec<_> =
            clients.iter_mut().zip((first..).step_by(each as usize)).map(start).collect();
        running.into_iter().flat_map(|client| client.join().unwrap()).collect()
    })
}

/// Has so many clients make histories of so many operations each; checks each history.
fn check_histories(server: &Server, clients: usize, histories: u32, each: u32) {
    let actor = |seed| Actor::new(server.address, seed).unwrap();
    let mut setter = actor(0);
    let mut actors: Vec<_> = (1..=clients as u64).map(actor).collect();
    if clients == 1 {
        actors[0].names = NAMES.len();
    }
    for round in 0..histories {
        let initial: Vec<Color> =
            (0..round % 4).map(|number| (number as usize % COMMON, number)).collect();
        let set = Operation::ReplaceAll(initial.clone(), None);
        let is_saved = |call: Call| (call.ended.unwrap().1 != Answer::NotSaved).then_some(());
        eventually("the list is set", || is_saved(setter.call(set.clone())));
        actors.iter_mut().for_each(|actor| actor.color_tags.clear());
        let first = 1000 + round * clients as u32 * each;
        let mut calls = calls_of(&mut actors, first, each, || ());
        calls.push(setter.call(Operation::ReadAll));
        check(&initial, &mut calls);
    }
}

#[test]
fn every_history_of_concurrent_operations_has_an_order() {
    at_once(Server::of_all_kinds("[]").iter().zip([500, 300, 100]), |(server, histories)| {
        check_histories(server, CLIENTS, histories, 3);
        check_histories(server, 1, histories / 10, 60);
    });
}

#[test]
fn every_history_of_which_some_saves_fail_has_an_order() {
    let (_scratch, file, server) = Server::kept("[]");
    server.stop();
    // every fourth
    let options = on_log_of(&file, "fdatasync", "error=EIO:when=8+4");
    let Some(server) = Server::below_strace(&options, &["--data", &file]) else { return };
    check_histories(&server, CLIENTS, 100, 3);
    let list = server.list();
    server.end_strace();
    server.stop();
    assert_eq!(stored(&file), list);
}

#[test]
fn every_history_that_a_kill_ends_has_an_order() {
    // four services at the same time: most of a start is to wait for the disk
    let unanswered: usize = thread::scope(|scope| {
        let services = [1, 2, 3, 4].map(|seed| scope.spawn(move || check_kills(seed, 25)));
        services.into_iter().map(|service| service.join().unwrap()).sum()
    });
    assert!(unanswered > 0, "no kill came before an answer");
}

/// Kills a service in so many histories; gives the number of operations without an answer.
fn check_kills(seed: u64, rounds: u64) -> usize {
    let scratch = Scratch::new();
    let file = scratch.file("colors.db");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut server = Server::with_data("[]", &file, &[]);
    let mut unanswered = 0;
    for round in seed * rounds..(seed + 1) * rounds {
        let initial = [(0, 0), (1, 1)];
        let mut setter = Actor::new(server.address, 0).unwrap();
        setter.call(Operation::ReplaceAll(initial.to_vec(), None));
        let actor = |client| Actor::new(server.address, round * 8 + client).unwrap();
        let mut clients: Vec<_> = (0..CLIENTS as u64).map(actor).collect();
        let (answers, last) = (AtomicUsize::new(0), random.usize(1..40));
        let mut calls = calls_of(&mut clients, 1000, 12, || {
            if answers.fetch_add(1, Relaxed) + 1 == last {
                server.signal(Signal::KILL);
            }
        });
        server.wait();
        unanswered += calls.iter().filter(|call| call.ended.is_none()).count();
        server = Server::start(&["--data", &file]);
        calls.push(Actor::new(server.address, 0).unwrap().call(Operation::ReadAll));
        check(&initial, &mut calls);
    }
    unanswered
}
