//! The simplest engine: a log in memory, which several engines may share.

use std::mem::take;
use std::sync::{Mutex, mpsc};

use super::super::engine::Scope;
use super::super::writer::COMMIT_TIME;
use super::*;

/// Bytes of JSON that a list may have, and that the edits of a save may have.
const BYTES_MAX: usize = 1000;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<SharedLog>>);

#[derive(Default)]
struct SharedLog {
    /// Each version, and the edits that have led to it.
    entries: Vec<(ColorList, Vec<Edit>)>,
    failure: Option<CommitFailure>,
    /// A commit that may still be made, if it is of the last version then.
    late: Option<(usize, ColorList, Vec<Edit>)>,
}

impl SharedLog {
    fn commit(&mut self, known: usize, list: &ColorList, edits: Vec<Edit>) -> bool {
        let is_last = self.entries.len() == known;
        if is_last {
            self.entries.push((list.clone(), edits));
        }
        is_last
    }
}

struct LogEngine {
    log: Log,
    /// How many entries readers have.
    known: usize,
    written: Vec<Edit>,
    /// A commit has failed. Another entry has to take its place, or it may still be made.
    is_fence_due: bool,
}

impl LogEngine {
    fn refreshed(&mut self) -> Option<Refresh> {
        let log = self.log.0.lock().unwrap();
        let missed = &log.entries[self.known..];
        let edits: Vec<_> = missed.iter().flat_map(|(_, edits)| edits.clone()).collect();
        self.known = log.entries.len();
        let list = log.entries.last().unwrap().0.clone();
        (!edits.is_empty()).then_some(Refresh { list, edits })
    }
}

impl Engine for LogEngine {
    fn begin(&mut self, save: &Save) -> Result<Begun, StorageError> {
        let mut found = self.refreshed();
        if save.is_behind {
            let list = self.log.0.lock().unwrap().entries.last().unwrap().0.clone();
            found = Some(Refresh { list: list.clone(), edits: vec![Edit::ReplaceAll(list)] });
        }
        if take(&mut self.is_fence_due) {
            let mut log = self.log.0.lock().unwrap();
            let last = log.entries.last().unwrap().0.clone();
            log.commit(self.known, &last, Vec::new());
            self.known = log.entries.len();
        }
        Ok(Begun::Ready(found))
    }

    fn poll(&mut self) -> Result<Option<Refresh>, StorageError> {
        Ok(self.refreshed())
    }

    fn write(&mut self, edits: &[Edit], list: &ColorList) -> Result<Written, StorageError> {
        let mut after = list.clone();
        edits.iter().for_each(|edit| drop(after.apply(edit)));
        if after.envelope_len() > BYTES_MAX {
            return Ok(Written::TooLong);
        }
        let bytes = |edit: &Edit| edit.color().map_or(0, |color| color.json_len());
        if self.written.iter().chain(edits).map(bytes).sum::<usize>() > 2 * BYTES_MAX {
            return Ok(Written::NextCommit);
        }
        self.written.extend_from_slice(edits);
        Ok(Written::Yes)
    }

    fn commit(&mut self, version: &ColorList) -> Result<Commit, StorageError> {
        let edits = self.written.clone();
        // If this panics, the commit may have been made.
        self.is_fence_due = true;
        let mut log = self.log.0.lock().unwrap();
        let failed = StorageError { certainty: Certainty::InDoubt, ..StorageError::panicked() };
        match log.failure {
            Some(CommitFailure::Lost) => {
                self.is_fence_due = false;
                let certainty = Certainty::NotMade;
                return Err(StorageError { certainty, scope: Scope::Edits, ..failed });
            }
            Some(CommitFailure::AnswerLost) => {
                log.commit(self.known, version, edits);
                return Err(failed);
            }
            Some(CommitFailure::Late) => {
                log.late = Some((self.known, version.clone(), edits));
                return Err(failed);
            }
            None => {}
        }
        self.is_fence_due = false;
        if !log.commit(self.known, version, edits) {
            return Ok(Commit::Conflict);
        }
        self.known = log.entries.len();
        self.written.clear();
        Ok(Commit::Done)
    }

    fn roll_back(&mut self) {
        self.written.clear();
    }

    fn close(self: Box<Self>) -> Result<(), String> {
        Ok(())
    }
}

impl TestPlace for Log {
    fn open(&self, first: &ColorList) -> (Box<dyn Engine>, ColorList) {
        let mut log = self.0.lock().unwrap();
        let last = log.entries.last().map_or(first, |(list, _)| list).clone();
        // A fence, as by a begin after a failure.
        log.entries.push((last, Vec::new()));
        let (list, known) = (log.entries.last().unwrap().0.clone(), log.entries.len());
        drop(log);
        let log = self.clone();
        (Box::new(LogEngine { log, known, written: Vec::new(), is_fence_due: false }), list)
    }

    fn commit_elsewhere(&self, list: &ColorList, edits: &[Edit]) -> bool {
        let mut list = list.clone();
        edits.iter().for_each(|edit| drop(list.apply(edit)));
        self.0.lock().unwrap().entries.push((list, edits.to_vec()));
        true
    }

    const FINDS_EACH_COMMIT: bool = true;

    fn use_elsewhere(&self) -> Box<dyn Any> {
        Box::new(self.clone())
    }

    fn longest_color(&self) -> Option<Color> {
        Some(color("long", &"x".repeat(BYTES_MAX / 2)))
    }

    fn fail(&self, failure: Option<CommitFailure>) -> bool {
        self.0.lock().unwrap().failure = failure;
        true
    }

    fn release_late(&self) {
        let mut log = self.0.lock().unwrap();
        if let Some((known, list, edits)) = log.late.take() {
            log.commit(known, &list, edits);
        }
    }
}

#[test]
fn a_log_in_memory_does_what_the_writer_relies_on() {
    engine_contract(Log::default());
}

/// Those that name a color that is not there, or have a condition that fails, need no commit.
#[test]
fn changes_that_are_saved_together_fail_together_and_what_changes_nothing_does_not() {
    let log = Log::default();
    let (engine, list) = log.open(&ColorList::from_iter([color("a", "1")]));
    let (store, writer) = Writer::new(engine, list.clone(), Box::new(|_| ()));
    let if_other = || Conditions::parse(false, Some("\"other\""), None);
    let changes = [
        (Action::Create(color("b", "")), Conditions::default()),
        (Action::Delete("none".to_owned()), Conditions::default()),
        (Action::Create(color("c", "")), Conditions::default()),
        (Action::Delete("a".to_owned()), if_other()),
        (Action::Update(color("none", "1")), Conditions::default()),
        (Action::Delete("a".to_owned()), Conditions::default()),
    ];
    let (sender, delivered) = mpsc::channel();
    let changes = changes.map(|(action, conditions)| Change::new(action, conditions));
    assert_eq!(store.submit((0..).zip(changes).collect()), []);
    log.fail(Some(CommitFailure::Lost));
    let deliver = move |outcomes| sender.send(outcomes).unwrap();
    let writing = std::thread::spawn(|| writer.run(deliver));
    let outcomes = delivered.recv().unwrap();
    log.fail(None);
    let failed = outcomes.iter().map(|(id, outcome)| (*id, outcome.is_err())).collect::<Vec<_>>();
    assert_eq!(failed, [(0, true), (1, false), (2, true), (3, false), (4, false), (5, true)]);
    assert_eq!(store.list.version().list, list);
    store.close(Instant::now() + Duration::from_secs(60)).unwrap();
    writing.join().unwrap();
}

/// The others are in a commit of their own.
#[test]
fn a_commit_that_fails_takes_only_its_own_changes_with_it() {
    let log = Log::default();
    let (engine, list) = log.open(&ColorList::from_iter([color("a", "")]));
    let (store, writer) = Writer::new(engine, list, Box::new(|_| ()));
    let update = |number: usize| {
        let value = "x".repeat(BYTES_MAX - 100) + &number.to_string();
        Change::new(Action::Update(color("a", &value)), Conditions::default())
    };
    // Two of them fill a commit.
    assert_eq!(store.submit((0..5).map(|number| (number, update(number))).collect()), []);
    log.fail(Some(CommitFailure::Lost));
    let (sender, delivered) = mpsc::channel();
    let failing = log.clone();
    let deliver = move |decided: Vec<(usize, Decided)>| {
        failing.fail(None);
        let made = decided.iter().map(|(number, outcome)| (*number, outcome.is_ok()));
        sender.send(made.collect::<Vec<_>>()).unwrap();
    };
    let writing = std::thread::spawn(|| writer.run(deliver));
    for commit in [vec![(0, false), (1, false)], vec![(2, true), (3, true)], vec![(4, true)]] {
        assert_eq!(delivered.recv_timeout(Duration::from_secs(60)), Ok(commit));
    }
    assert!(store.status().unwrap().now().saved.is_some());
    store.close(Instant::now() + Duration::from_secs(60)).unwrap();
    writing.join().unwrap();
}

/// What was written for the commit that has lost is not in the next one.
#[test]
fn a_change_is_made_once_where_another_commit_came_first() {
    let log = Log::default();
    let (engine, list) = log.open(&ColorList::default());
    let others = log.clone();
    let mut theirs = Some(append(&list, "theirs", ""));
    let was = list.clone();
    let disturb = move |moment, _: &ColorList| {
        if moment == Moment::BeforeCommit
            && let Some(edit) = theirs.take()
        {
            others.commit_elsewhere(&was, &[edit]);
        }
    };
    let engine = Box::new(Disturbed(engine, disturb));
    let (store, writer) = Writer::new(engine, list, Box::new(|_| ()));
    let writing = std::thread::spawn(|| writer.run(send_each));
    let create = Change::new(Action::Create(color("ours", "")), Conditions::default());
    let outcome = store.submit_and_wait(create, |sender| sender);
    assert!(matches!(outcome, Some(Ok(Outcome::Created { .. }))), "{outcome:?}");
    let names = |list: &ColorList| list.iter().map(|(_, color)| color.name().to_string()).collect();
    let names: Vec<String> = names(&store.list.version().list);
    assert_eq!(names, ["theirs", "ours"]);
    let edits: Vec<_> = log.0.lock().unwrap().entries.iter().map(|(_, it)| it.len()).collect();
    assert_eq!(edits, [0, 1, 1], "of the start, the others, and the change");
    store.close(Instant::now() + Duration::from_secs(60)).unwrap();
    writing.join().unwrap();
}

/// So the outcomes of the first come soon.
#[test]
fn changes_that_take_long_have_a_commit_each() {
    let log = Log::default();
    let (engine, list) = log.open(&ColorList::default());
    let disturb = |moment, _: &ColorList| {
        let begun = Instant::now();
        while moment == Moment::Written && begun.elapsed() <= COMMIT_TIME {
            std::thread::yield_now();
        }
    };
    let engine = Box::new(Disturbed(engine, disturb));
    let (store, writer) = Writer::new(engine, list, Box::new(|_| ()));
    let create = |number: usize| {
        let create = Action::Create(color(&number.to_string(), ""));
        (number, Change::new(create, Conditions::default()))
    };
    assert_eq!(store.submit((0..3).map(create).collect()), []);
    let (sender, delivered) = mpsc::channel();
    let deliver = move |decided: Vec<(usize, Decided)>| sender.send(decided.len()).unwrap();
    let writing = std::thread::spawn(|| writer.run(deliver));
    store.close(Instant::now() + Duration::from_secs(60)).unwrap();
    writing.join().unwrap();
    assert_eq!(delivered.iter().collect::<Vec<_>>(), [1, 1, 1]);
}
