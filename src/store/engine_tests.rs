//! What the writer relies on, of every storage engine. A further engine brings a [`TestPlace`] and
//! passes [`engine_contract`].

mod etcd_tests;
mod memory_tests;
mod sqlite_tests;

use std::any::Any;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use super::engine::{Begun, Certainty, Commit, Engine, Refresh, Save, StorageError, Written};
use super::{Action, Change, Color, ColorList, Decided, Edit, Outcome, Writer};
use crate::conditions::Conditions;

/// A place where engines keep a list.
trait TestPlace {
    /// Opens the list there, which is this one at first.
    fn open(&self, first: &ColorList) -> (Box<dyn Engine>, ColorList);

    /// Has another program commit these edits of a list. False if a save that has begun prevents
    /// that.
    fn commit_elsewhere(&self, list: &ColorList, edits: &[Edit]) -> bool;

    /// Whether each commit of others is found, or only what they have led to.
    const FINDS_EACH_COMMIT: bool;

    /// Another program that keeps the place open until the result is dropped.
    fn use_elsewhere(&self) -> Box<dyn Any>;

    /// Another program that keeps the place locked until the result is dropped; `None` if none can.
    fn lock_elsewhere(&self) -> Option<Box<dyn Any>> {
        None
    }

    /// A color of which a list can have one and no second; `None` if there is no limit.
    fn longest_color(&self) -> Option<Color> {
        None
    }

    /// What is certain of a commit that the storage did not get.
    const LOST: Certainty = Certainty::NotMade;

    /// Has commits fail so from now on; `None`: no more. False if none fails so here.
    fn fail(&self, _: Option<CommitFailure>) -> bool {
        false
    }

    /// Has the storage get what is late, and waits until it has.
    fn release_late(&self) {}
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum CommitFailure {
    /// The storage does not get it.
    Lost,
    /// The storage makes it, and the answer is lost.
    AnswerLost,
    /// The storage gets it later.
    Late,
}

/// An engine, and the list that readers have of it.
struct Published {
    engine: Box<dyn Engine>,
    list: ColorList,
}

impl Published {
    fn open(place: &impl TestPlace, first: &ColorList) -> Self {
        let (engine, list) = place.open(first);
        Self { engine, list }
    }

    /// Publishes what others have committed. Checks that the edits lead there.
    #[track_caller]
    fn publish(&mut self, refresh: Option<Refresh>) -> Option<Vec<Edit>> {
        let Refresh { list, edits } = refresh?;
        assert!(!edits.is_empty());
        let mut led = self.list.clone();
        edits.iter().for_each(|edit| drop(led.apply(edit)));
        assert!(is_same(&led, &list), "the edits lead to another list");
        self.list = list;
        Some(edits)
    }

    #[track_caller]
    fn poll(&mut self) -> Option<Vec<Edit>> {
        let mut found = self.engine.poll();
        // It fails where the storage takes long, as it does on a busy machine.
        assert!(within(|| found.is_ok() || {
            found = self.engine.poll();
            found.is_ok()
        }));
        self.publish(found.unwrap())
    }

    /// The save has all the time that the storage takes on a busy machine: its changes will come.
    fn try_begin(&mut self, has_failed: bool) -> Result<Begun, StorageError> {
        self.begin_for(has_failed, Instant::now() + LONG)
    }

    /// `oldest`: when the first of its changes came.
    fn begin_for(&mut self, has_failed: bool, oldest: Instant) -> Result<Begun, StorageError> {
        let begun = Instant::now();
        self.engine.begin(&Save { has_failed, is_behind: false, begun, oldest: Some(oldest) })
    }

    #[track_caller]
    fn begin(&mut self, has_failed: bool) -> Option<Vec<Edit>> {
        match self.try_begin(has_failed).unwrap() {
            Begun::Ready(found) => self.publish(found),
            Begun::Locked(..) => panic!("nobody has it locked"),
        }
    }

    /// Saves edits, and publishes them if they are committed.
    #[track_caller]
    fn save(&mut self, edits: &[Edit]) -> Commit {
        self.begin(false);
        let commit = self.write_and_commit(edits);
        self.engine.roll_back();
        commit
    }

    #[track_caller]
    fn write(&mut self, list: &mut ColorList, edits: &[Edit]) {
        assert!(matches!(self.engine.write(edits, list).unwrap(), Written::Yes));
        edits.iter().for_each(|edit| drop(list.apply(edit)));
    }

    #[track_caller]
    fn write_and_commit(&mut self, edits: &[Edit]) -> Commit {
        let mut list = self.list.clone();
        self.write(&mut list, edits);
        let commit = self.engine.commit(&list).unwrap();
        if let Commit::Done = commit {
            self.list = list;
        }
        commit
    }
}

fn is_same(one: &ColorList, other: &ColorList) -> bool {
    one.iter().eq(other.iter())
}

fn color(name: &str, value: &str) -> Color {
    Color::new(name, value)
}

/// The edit that appends a color to a list.
fn append(list: &ColorList, name: &str, value: &str) -> Edit {
    Edit::Append(list.next_id().unwrap(), color(name, value))
}

/// Longer than anything takes here.
const LONG: Duration = Duration::from_secs(60);

fn within(mut is_so: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < LONG {
        if is_so() {
            return true;
        }
        std::thread::yield_now();
    }
    false
}

/// Checks an engine whose list nobody has made yet.
fn engine_contract<P: TestPlace>(place: P) {
    let first = ColorList::from_iter([(2, color("a", "1")), (5, color("b", "1"))]);
    keeps_edits(&place, &first);
    finds_commits_of_others::<P>(&place);
    refuses_what_is_too_long(&place);
    is_locked_and_ready_again(&place);
    commits_that_fail(&place);
    a_panic_in_a_commit_is_settled(&place);
    is_there_after_a_stop(&place, &first);
}

fn keeps_edits(place: &impl TestPlace, first: &ColorList) {
    // the first list is there, with its ids, and nobody has changed it
    let mut one = Published::open(place, first);
    assert!(is_same(&one.list, first));
    assert_eq!(one.poll(), None);

    // each kind of edit is kept, and its own commits are no news
    let all = ColorList::from_iter([(1, color("c\"", "\u{e9}")), (9, color("c\"", ""))]);
    for edits in [
        vec![Edit::Append(6, color("a", "2")), Edit::Append(7, color("", "3"))],
        vec![Edit::Update(2, color("a", "2"))],
        vec![Edit::Remove(5, color("b", "1")), Edit::Append(8, color("b", "1"))],
        vec![Edit::ReplaceAll(all)],
        vec![Edit::ReplaceAll(ColorList::default()), Edit::Append(1, color("a", "1"))],
    ] {
        assert!(matches!(one.save(&edits), Commit::Done), "{edits:?}");
        assert_eq!((one.poll(), one.begin(false)), (None, None), "{edits:?}");
        one.engine.roll_back();
    }

    // what is rolled back is gone, and the next save is whole
    one.begin(false);
    let dropped = [append(&one.list, "dropped", "")];
    assert!(matches!(one.engine.write(&dropped, &one.list).unwrap(), Written::Yes));
    one.engine.roll_back();
    let kept = [append(&one.list, "b", "2")];
    assert!(matches!(one.save(&kept), Commit::Done));

    // a save without changes changes nothing, also after a failure
    for has_failed in [false, true] {
        assert_eq!(one.begin(has_failed), None);
        assert!(matches!(one.engine.commit(&one.list).unwrap(), Commit::Done));
        one.engine.roll_back();
        assert_eq!(one.poll(), None);
    }
    one.engine.close().unwrap();
}

fn finds_commits_of_others<P: TestPlace>(place: &P) {
    let mut one = Published::open(place, &ColorList::default());
    // by a poll, once
    assert!(place.commit_elsewhere(&one.list, &[Edit::Update(1, color("a", "other"))]));
    assert!(within(|| one.poll().is_some()));
    assert_eq!(one.list.get(1), Some(&color("a", "other")));
    assert_eq!(one.poll(), None);

    // before a save, and between its begin and its commit: it is made on top of them, or refused
    for comes_later in [false, true] {
        let name = format!("other {comes_later}");
        let other = [append(&one.list, &name, "")];
        let mut was_made = !comes_later && place.commit_elsewhere(&one.list, &other);
        let is_saved = within(|| {
            one.begin(false);
            if comes_later && !was_made {
                was_made = place.commit_elsewhere(&one.list, &other);
            }
            let own = [append(&one.list, "own", &name)];
            let commit = one.write_and_commit(&own);
            one.engine.roll_back();
            matches!(commit, Commit::Done)
        });
        assert!(is_saved);
        let kept = |name: &str| one.list.named(name).count();
        assert_eq!((kept(&name), kept("own")), (was_made.into(), 1 + usize::from(comes_later)));
    }

    // several at once, of which the last takes back the first
    let before = one.list.clone();
    let mut away = before.clone();
    away.apply(&Edit::Update(1, color("a", "away")));
    assert!(place.commit_elsewhere(&before, &[Edit::Update(1, color("a", "away"))]));
    assert!(place.commit_elsewhere(&away, &[Edit::Update(1, color("a", "other"))]));
    if P::FINDS_EACH_COMMIT {
        let mut edits = Vec::new();
        assert!(within(|| {
            edits.extend(one.poll().unwrap_or_default());
            edits.len() == 2
        }));
    } else {
        assert_eq!(one.poll(), None);
    }
    assert!(is_same(&one.list, &before));

    // another list
    let all = ColorList::from_iter([(3, color("x", "")), (4, color("x", ""))]);
    assert!(place.commit_elsewhere(&one.list, &[Edit::ReplaceAll(all.clone())]));
    assert!(within(|| one.poll().is_some()));
    assert!(is_same(&one.list, &all));
    one.engine.close().unwrap();
}

/// A change that is too long, or has to wait for the next commit, leaves the save as it is.
fn refuses_what_is_too_long(place: &impl TestPlace) {
    let Some(longest) = place.longest_color() else { return };
    let mut one = Published::open(place, &ColorList::default());
    one.begin(false);
    let mut list = one.list.clone();
    let before = [append(&list, "before", "")];
    one.write(&mut list, &before);
    let id = list.next_id().unwrap();
    one.write(&mut list, &[Edit::Append(id, longest.clone())]);
    let update = [Edit::Update(id, longest.clone())];
    while let Written::Yes = one.engine.write(&update, &list).unwrap() {}
    let second = [Edit::Append(id + 1, longest.clone())];
    assert!(matches!(one.engine.write(&second, &list).unwrap(), Written::TooLong));
    assert!(matches!(one.engine.commit(&list).unwrap(), Commit::Done));
    one.engine.roll_back();
    one.list = list;
    // there is room for it in a save of its own
    assert!(matches!(one.save(&update), Commit::Done));
    assert!(matches!(one.save(&[Edit::Remove(id, longest)]), Commit::Done));
    one.engine.close().unwrap();
}

fn is_locked_and_ready_again(place: &impl TestPlace) {
    let mut one = Published::open(place, &ColorList::default());
    let Some(lock) = place.lock_elsewhere() else { return };
    assert!(matches!(one.try_begin(false), Ok(Begun::Locked(None, _))));
    // What others have committed is found all the same.
    assert_eq!(one.poll(), None);
    drop(lock);
    assert_eq!(one.begin(false), None);
    one.engine.roll_back();
    one.engine.close().unwrap();
}

/// What a failed commit says of its changes is true. What is in doubt is decided once a further
/// save has begun, or once the place is opened anew.
fn commits_that_fail<P: TestPlace>(place: &P) {
    for failure in [CommitFailure::Lost, CommitFailure::AnswerLost, CommitFailure::Late] {
        for is_killed in [false, true] {
            let mut one = Published::open(place, &ColorList::default());
            let expected =
                if failure == CommitFailure::Lost { P::LOST } else { Certainty::InDoubt };
            let mut failed = None;
            // On a busy machine an answer may be too late for the certainty that it would give.
            assert!(within(|| {
                let commit = fail_to_commit(place, &mut one, failure);
                let is_expected = commit.as_ref().is_none_or(|(_, found)| *found == expected);
                failed = commit.map(|(list, _)| list);
                is_expected
            }));
            if let Some(failed) = failed {
                is_decided(place, one, &failed, failure, is_killed);
            }
        }
    }
}

/// Returns the list to which the commit would have led, and what is certain of it. `None` if none
/// fails so here.
fn fail_to_commit(
    place: &impl TestPlace,
    one: &mut Published,
    failure: CommitFailure,
) -> Option<(ColorList, Certainty)> {
    // What else is due in a begin, such as a snapshot, is done.
    one.begin(true);
    one.engine.roll_back();
    // The change came long ago, so that the commit is soon given up.
    let came = Instant::now().checked_sub(Duration::from_secs(4)).unwrap();
    assert!(matches!(one.begin_for(false, came), Ok(Begun::Ready(None))));
    if !place.fail(Some(failure)) {
        return None;
    }
    let mut list = one.list.clone();
    let edit = append(&list, "failed", &format!("{failure:?}"));
    one.write(&mut list, &[edit]);
    let Err(error) = one.engine.commit(&list) else { panic!("{failure:?}") };
    place.fail(None);
    one.engine.roll_back();
    Some((list, error.certainty))
}

fn is_decided(
    place: &impl TestPlace,
    mut one: Published,
    failed: &ColorList,
    failure: CommitFailure,
    is_killed: bool,
) {
    let before = one.list.clone();
    if is_killed {
        drop(one.engine);
        one = Published::open(place, &before);
    } else {
        assert!(within(|| {
            let begun = one.try_begin(true);
            let is_ready = begun.is_ok();
            if let Ok(Begun::Ready(found)) = begun {
                one.publish(found);
            }
            is_ready
        }));
        one.engine.roll_back();
    }
    let is_made = is_same(&one.list, failed);
    assert!(is_made || is_same(&one.list, &before), "{failure:?} {is_killed}");
    assert!(!is_made || failure != CommitFailure::Lost);
    let decided = one.list.clone();
    place.release_late();
    assert_eq!(one.poll(), None, "{failure:?} {is_killed}");
    one.engine.close().unwrap();
    let again = Published::open(place, &before);
    assert!(is_same(&again.list, &decided), "{failure:?} {is_killed}");
    again.engine.close().unwrap();
}

/// When a [`Disturbed`] engine is disturbed.
#[derive(Clone, Copy, PartialEq)]
enum Moment {
    Written,
    BeforeCommit,
    AfterCommit,
}

/// An engine beside which something happens, with the version that is being saved.
struct Disturbed<F>(Box<dyn Engine>, F);

impl<F: FnMut(Moment, &ColorList) + Send> Engine for Disturbed<F> {
    fn begin(&mut self, save: &Save) -> Result<Begun, StorageError> {
        self.0.begin(save)
    }

    fn poll(&mut self) -> Result<Option<Refresh>, StorageError> {
        self.0.poll()
    }

    fn write(&mut self, edits: &[Edit], list: &ColorList) -> Result<Written, StorageError> {
        let written = self.0.write(edits, list);
        self.1(Moment::Written, list);
        written
    }

    fn commit(&mut self, version: &ColorList) -> Result<Commit, StorageError> {
        self.1(Moment::BeforeCommit, version);
        let commit = self.0.commit(version);
        self.1(Moment::AfterCommit, version);
        commit
    }

    fn roll_back(&mut self) {
        self.0.roll_back();
    }

    fn close(self: Box<Self>) -> Result<(), String> {
        self.0.close()
    }
}

/// What a writer does with outcomes whose changes come with where to send them.
fn send_each(decided: Vec<(Sender<Decided>, Decided)>) {
    decided.into_iter().for_each(|(sender, outcome)| sender.send(outcome).unwrap());
}

fn a_panic_in_a_commit_is_settled(place: &impl TestPlace) {
    let (engine, list) = place.open(&ColorList::default());
    let panics = |moment, version: &ColorList| {
        let is_first = version.find("after the panic").is_none();
        if moment == Moment::AfterCommit && version.find("panic").is_some() && is_first {
            panic!("as a test wants it");
        }
    };
    let engine = Box::new(Disturbed(engine, panics));
    let (store, writer) = Writer::new(engine, list, Box::new(|_| ()));
    let create = |name: &str| {
        let change = Change::new(Action::Create(color(name, "")), Conditions::default());
        store.submit_and_wait(change, |sender| sender).expect("the writer goes on")
    };
    let writing = std::thread::spawn(|| writer.run(send_each));
    let error = create("panic").expect_err("it has panicked");
    assert_eq!(error.certainty, Certainty::InDoubt);
    // The list is read anew, although this process has made the last commit itself.
    assert!(within(|| store.list.find("panic").is_some()));
    assert!(within(|| matches!(create("after the panic"), Ok(Outcome::Created { .. }))));
    assert_eq!(store.list.version().list.named("panic").count(), 1);
    store.close(Instant::now() + Duration::from_secs(60)).unwrap();
    writing.join().unwrap();
    let last = store.list.version().list;
    let again = Published::open(place, &last);
    assert!(is_same(&again.list, &last));
    again.engine.close().unwrap();
}

/// All of it is there after a stop, also if others have the place open, and the seed is not read
/// again.
fn is_there_after_a_stop(place: &impl TestPlace, seed: &ColorList) {
    for is_used in [false, true] {
        let mut one = Published::open(place, seed);
        let name = format!("stopped {is_used}");
        let edit = [append(&one.list, &name, "")];
        assert!(matches!(one.save(&edit), Commit::Done));
        let other = is_used.then(|| place.use_elsewhere());
        // May say that others have it open.
        let _ = one.engine.close();
        let again = Published::open(place, seed);
        assert!(is_same(&again.list, &one.list));
        again.engine.close().unwrap_or_default();
        drop(other);
    }
}
