//! Random sequences of operations of one client, with names that are easily mistaken: the service and
//! ten lines of `Vec` must agree after every one.

use crate::common::harness::Server;
use crate::wire::histories::{Actor, Answer, Color, NAMES, Operation, make};

#[test]
fn the_service_and_the_model_agree() {
    for seed in 1..=20 {
        for server in Server::of_both_kinds("[]") {
            let mut actor = Actor::new(server.address, seed).unwrap();
            actor.names = NAMES.len();
            let mut list: Vec<Color> = Vec::new();
            for step in 0..250 {
                let operation = choose(&mut actor, &list, step);
                let call = actor.call(operation);
                let expected = make(&call.operation, &mut list);
                let what = format!("seed {seed}, step {step}: {:?}", call.operation);
                assert_eq!(call.ended.unwrap().1, expected, "{what}");
                let read = actor.call(Operation::ReadAll).ended.unwrap().1;
                assert_eq!(read, Answer::List(list.clone()), "{what}");
            }
        }
    }
}

/// Any operation. The list is seldom replaced, and in part, so that it becomes long.
fn choose(actor: &mut Actor, list: &[Color], value: u32) -> Operation {
    if actor.random.u8(..33) == 0 {
        let mut other = list.to_vec();
        actor.random.shuffle(&mut other);
        other.truncate(actor.random.usize(..=other.len()));
        other.insert(0, (actor.random.usize(..NAMES.len()), value));
        return Operation::ReplaceAll(other, None);
    }
    loop {
        match actor.choose(value) {
            Operation::ReplaceAll(..) => {}
            operation => return operation,
        }
    }
}
