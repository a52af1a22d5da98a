//! Changes that have to be saved. The test takes the place of the writer.

use std::sync::mpsc::{self, Receiver, TryRecvError};

use super::*;
use crate::metrics::Metrics;
use crate::store::WriterMessage;

impl Tested {
    /// With `red` in a storage.
    fn with_storage() -> (Self, Receiver<WriterMessage<Submitter>>) {
        let mut queue = None;
        let store = |notify: ChangeListener| {
            let (store, changes) = Store::queueing(red("1"), notify);
            queue = Some(changes);
            store
        };
        (Self::with(Options::default(), None, store), queue.unwrap())
    }
}

impl Handler {
    /// Makes changes, and reports what came of them, as the writer would.
    fn make(self: &Arc<Self>, changes: Changes) {
        let make = |(submitter, change)| (submitter, Ok(self.service.list.change(&change)));
        self.answer_decided(changes.into_iter().map(make).collect());
    }
}

type Changes = Vec<(Submitter, Change)>;

/// The next message to the writer.
fn take_changes(queue: &Receiver<WriterMessage<Submitter>>) -> Changes {
    match queue.try_recv() {
        Ok(WriterMessage::Changes(changes, _)) => changes,
        _ => panic!("there is no message with changes"),
    }
}

/// Otherwise its change would be made, or wait for the disk, and count for no connection.
#[test]
fn a_connection_that_ends_before_its_change_is_submitted_submits_none() {
    let (mut tested, queue) = Tested::with_storage();
    drop(tested.handler.connect(&(get(RED) + &put(RED, r#"{"value":"2"}"#))));
    tested.pass();
    assert_eq!(queue.try_recv().err(), Some(TryRecvError::Empty));
    assert_eq!(tested.handler.service.server.connections(), 0);
}

#[test]
fn the_changes_of_a_pass_go_to_the_writer_together_and_each_is_answered() {
    let (mut tested, queue) = Tested::with_storage();
    let contents = ["2", "3", "4"].map(|value| format!(r#"{{"name":"red","value":"{value}"}}"#));
    let requests = contents.each_ref().map(|content| put(RED, content));
    let mut clients = requests.map(|request| tested.handler.connect(&request));
    tested.pass();
    let mut changes = take_changes(&queue);
    assert_eq!((changes.len(), queue.try_recv().err()), (3, Some(TryRecvError::Empty)));
    // One commit may take a part of them.
    let later = changes.split_off(2);
    for (changes, answered) in [(changes, 0..2), (later, 2..3)] {
        assert!(clients.iter_mut().all(|client| client.received().is_empty()));
        tested.handler.make(changes);
        tested.pass();
        for client in answered {
            assert_eq!(clients[client].received(), [(200, format!("{}\n", contents[client]))]);
        }
    }
}

/// To make the JSON of a long list would hold up the writer.
#[test]
fn the_outcome_of_a_new_list_is_answered_by_the_pool() {
    let (mut tested, queue) = Tested::with_storage();
    let mut client = tested.handler.connect(&put("/colors", "[]"));
    tested.passes();
    let changes = take_changes(&queue);
    let (busy, done) = mpsc::channel::<()>();
    tested.handler.pool.execute(move || {
        let _ = done.recv();
    });
    tested.handler.make(changes);
    tested.pass();
    assert_eq!(client.received(), []);
    drop(busy);
    tested.passes();
    assert_eq!(client.received(), [(200, "{\"data\":[]}\n".to_owned())]);
}

/// If the panic reached the writer, it would end the process.
#[test]
fn a_panic_while_outcomes_are_delivered_is_answered_with_500() {
    let (mut tested, _queue) = Tested::with_storage();
    let mut clients = [(); 2].map(|()| tested.handler.connect(&put(RED, r#"{"value":"2"}"#)));
    // A service without counters answers nobody.
    let Service { list, storage, waits, server, .. } = &*tested.handler.service;
    let (list, waits) = (Arc::clone(list), Arc::clone(waits));
    let options = Options::default();
    let service = Service {
        storage: storage.clone(),
        metrics: Metrics::new(0),
        ..Service::in_memory(list, options, None, waits, server.clone())
    };
    let store = Store::in_memory(red("1"), Box::new(|_| ()));
    let handler = Handler::new(service.into(), store, &tested.handler.pool);
    let mut changes = Vec::new();
    tested.begin_pass();
    while let Some(request) = tested.worker.try_recv() {
        handler.answer(Exchange::new(request), Thread::Worker, &mut changes);
    }
    handler.submit(changes);
    tested.pass();
    for client in &mut clients {
        assert_eq!(client.received(), [(500, failed())]);
    }
}
