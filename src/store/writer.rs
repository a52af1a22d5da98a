//! The one thread that saves: group commit. It makes the queued changes on a clone of the current
//! version, as many as [`COMMIT_TIME`] allows, commits them together, publishes the clone, and
//! reports the outcomes. All others wait for the next commit. What others have committed is found
//! by each save, and by a poll: when a watch has news, and after a second without messages.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::exit;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use super::engine::{Begun, Certainty, Commit, Refresh, Save, Scope, Written};
use super::{
    Change, ChangeListener, ColorList, Decided, Engine, Outcome, SharedList, StorageError,
    StorageStatus, Store,
};
use crate::logging;

/// How often the writer polls for commits of others while it has no changes. Unless a watch tells
/// it at once, readers may miss such a commit for about this long, and longer while the storage is
/// busy.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// A change that has waited for this long for a lock of another program fails after the try that is
/// under way, which takes up to 0.8 s: [`Begun::Locked`]. So no change waits for more than 5 s.
const LOCKED_TIME: Duration = Duration::from_millis(4200);

/// How long the writer makes changes for one commit. The rest is left for the next commit, so that
/// the outcomes of the first changes come soon.
pub(super) const COMMIT_TIME: Duration = Duration::from_millis(50);

/// What the store sends to the writer.
pub(crate) enum WriterMessage<S> {
    /// Changes, each with who submits it, and when they came.
    Changes(Vec<(S, Change)>, Instant),
    /// Others may have changed the list.
    Poll,
    /// Save the changes that came before, and close the storage. The sender gets what
    /// [`Engine::close`] has returned.
    Close(Sender<Result<(), String>>),
}

/// A change that waits for its save.
struct QueuedChange<S> {
    submitter: S,
    change: Change,
    came: Instant,
}

/// Saves changes, on a thread of its own.
pub(crate) struct Writer<S> {
    engine: Box<dyn Engine>,
    list: Arc<SharedList>,
    status: Arc<StorageStatus>,
    messages: Receiver<WriterMessage<S>>,
    /// See [`Save`].
    is_behind: bool,
}

/// A save, and how far it has come, for the case that it fails or panics.
struct Attempt<'a, S> {
    changes: &'a [QueuedChange<S>],
    /// How many of the changes fail with it, of the first ones.
    failing: usize,
    /// From when the engine is told to commit until that has failed, or readers have the version.
    is_committing: bool,
}

impl<S> Writer<S> {
    /// The store of a storage that has these colors, and the writer that makes its changes.
    pub(crate) fn new(
        engine: Box<dyn Engine>,
        colors: ColorList,
        notify: ChangeListener,
    ) -> (Store<S>, Self) {
        let list = Arc::new(SharedList::new(colors, notify));
        let status = Arc::new(StorageStatus::new(engine.warning()));
        let (writer, messages) = mpsc::channel();
        let store = Store { list: Arc::clone(&list), writer: Some((writer, Arc::clone(&status))) };
        (store, Self { engine, list, status, messages, is_behind: false })
    }

    /// Saves changes until it is told to close, or until the store is dropped. Calls `deliver` with
    /// the outcomes of each commit.
    pub(crate) fn run(self, deliver: impl Fn(Vec<(S, Decided)>)) {
        // `supervise` catches a panic in a save or a poll. After any other panic, nothing would be
        // saved any more, and those who wait for an outcome would wait forever.
        if catch_unwind(AssertUnwindSafe(|| self.save_until_closed(deliver))).is_err() {
            logging::end(Some(&StorageError::panicked()));
            exit(1);
        }
    }

    fn save_until_closed(mut self, deliver: impl Fn(Vec<(S, Decided)>)) {
        let mut unsaved = Vec::new();
        let mut closed = None;
        while closed.is_none() || !unsaved.is_empty() {
            let mut first = None;
            if unsaved.is_empty() {
                match self.messages.recv_timeout(POLL_INTERVAL) {
                    Ok(message) => first = Some(message),
                    Err(RecvTimeoutError::Timeout) => first = Some(WriterMessage::Poll),
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            }
            for message in first.into_iter().chain(self.messages.try_iter()) {
                match message {
                    WriterMessage::Changes(changes, came) => {
                        let queued = |(submitter, change)| QueuedChange { submitter, change, came };
                        unsaved.extend(changes.into_iter().map(queued));
                    }
                    // A save finds as much. Without changes, there is a poll below.
                    WriterMessage::Poll => {}
                    WriterMessage::Close(sender) => closed = Some(sender),
                }
            }
            if unsaved.is_empty() && closed.is_none() {
                self.poll_or_retry();
            } else if !unsaved.is_empty() {
                let outcomes = self.save(&unsaved);
                let decided = unsaved.drain(..outcomes.len()).map(|queued| queued.submitter);
                deliver(decided.zip(outcomes).collect());
            }
        }
        let result = self.engine.close();
        // `Store::close` may have given up waiting.
        let _ = closed.map(|closed| closed.send(result));
    }

    /// Publishes what others have committed. If the last save or poll failed, a save without
    /// changes does that, and finds out whether changes can be saved again.
    fn poll_or_retry(&mut self) {
        if self.status.now().failure.is_some() {
            self.save(&[]);
            return;
        }
        let status = Arc::clone(&self.status);
        // `supervise` reports a failure.
        if let Ok(found) = status.supervise(|| self.engine.poll()) {
            self.publish(found);
        }
    }

    /// Begins a save, and publishes what others have committed. While the storage is locked, tries
    /// again until the first change has waited for too long, and fails for those that have. Without
    /// changes, tries once.
    fn begin(&mut self, save: &Save, attempt: &mut Attempt<S>) -> Result<(), StorageError> {
        loop {
            match self.engine.begin(save)? {
                Begun::Ready(refresh) => {
                    self.publish(refresh);
                    return Ok(());
                }
                Begun::Locked(refresh, error) => {
                    self.publish(refresh);
                    let is_over = |queued: &&QueuedChange<S>| queued.came.elapsed() > LOCKED_TIME;
                    let over = attempt.changes.iter().take_while(is_over).count();
                    if over > 0 || attempt.changes.is_empty() {
                        attempt.failing = over;
                        return Err(error);
                    }
                    self.status.restart_clock();
                }
            }
        }
    }

    fn publish(&self, refresh: Option<Refresh>) {
        self.status.note_warning(self.engine.warning());
        if let Some(Refresh { list, edits }) = refresh {
            self.list.publish(list, &edits);
        }
    }

    /// Saves changes in one commit, and returns their outcomes. If the changes take long, saves
    /// only the first of them. If the save fails, so do all changes, or after a wait for a lock
    /// those that came first. The exception are those that change nothing, unless the list here may
    /// be out of date.
    fn save(&mut self, changes: &[QueuedChange<S>]) -> Vec<Decided> {
        let status = Arc::clone(&self.status);
        if !changes.is_empty()
            && let Some(refusal) = status.refusal()
        {
            return vec![Err(refusal); changes.len()];
        }
        let mut attempt = Attempt { changes, failing: changes.len(), is_committing: false };
        let mut saved = status.supervise(|| self.try_save(&mut attempt));
        self.engine.roll_back();
        if let Err(error) = &mut saved {
            // After a panic: another error of a commit says itself what is certain.
            if attempt.is_committing {
                error.certainty = Certainty::InDoubt;
                self.is_behind = true;
            }
            if !changes.is_empty() {
                status.note_failed(error);
            }
        }
        let failing = &changes[..attempt.failing];
        match saved {
            Ok(outcomes) => outcomes.into_iter().map(Ok).collect(),
            Err(error) if error.scope == Scope::Edits => {
                let version = self.list.version().list;
                let outcomes = failing.iter().map(|queued| match queued.change.decide(&version) {
                    (outcome, edits) if edits.is_empty() => Ok(outcome),
                    _ => Err(error.clone()),
                });
                outcomes.collect()
            }
            Err(error) => vec![Err(error); failing.len()],
        }
    }

    /// Makes changes, commits them, and publishes the list. If that fails, publishes none of them.
    fn try_save(&mut self, attempt: &mut Attempt<S>) -> Result<Vec<Outcome>, StorageError> {
        let has_failed = self.status.now().failure.is_some();
        let oldest = attempt.changes.first().map(|queued| queued.came);
        let is_behind = self.is_behind;
        let save = Save { has_failed, is_behind, begun: Instant::now(), oldest };
        loop {
            self.begin(&save, attempt)?;
            self.is_behind = false;
            if let Some(outcomes) = self.try_commit(attempt)? {
                return Ok(outcomes);
            }
            self.engine.roll_back();
        }
    }

    /// The part of a save that is made again after a conflict: then returns `None`.
    fn try_commit(
        &mut self,
        attempt: &mut Attempt<S>,
    ) -> Result<Option<Vec<Outcome>>, StorageError> {
        let begun = Instant::now();
        let mut version = self.list.version().list;
        let mut outcomes = Vec::new();
        let mut edits = Vec::new();
        for queued in attempt.changes {
            let (mut outcome, made) = queued.change.decide(&version);
            match self.engine.write(&made, &version)? {
                Written::Yes => {
                    made.iter().for_each(|edit| drop(version.apply(edit)));
                    edits.extend(made);
                    outcome.set_list(&version);
                }
                Written::NextCommit => break,
                Written::TooLong => outcome = Outcome::TooLong,
                Written::Refused(reason) => outcome = Outcome::Refused(reason),
            }
            outcomes.push(outcome);
            if begun.elapsed() > COMMIT_TIME {
                break;
            }
        }
        // The others are not in this commit, whatever becomes of it.
        attempt.failing = outcomes.len();
        attempt.is_committing = true;
        let commit = self.engine.commit(&version);
        attempt.is_committing = matches!(commit, Ok(Commit::Done));
        match commit? {
            Commit::Done => {}
            Commit::Conflict => return Ok(None),
            Commit::Contended => return Ok(Some(vec![Outcome::Contended; attempt.changes.len()])),
        }
        if !edits.is_empty() {
            self.list.publish(version, &edits);
            self.status.metrics.durations.observe(begun.elapsed());
            self.status.note_saved();
        }
        Ok(Some(outcomes))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::thread;

    use rusqlite::Connection;

    use super::super::sqlite::{self, Database};
    use super::super::{Action, Color};
    use super::*;
    use crate::conditions::Conditions;

    /// A store of an empty list in this directory, and its writer, which does not run yet.
    fn open(directory: &Path) -> (Store<u64>, Writer<u64>) {
        fs::create_dir_all(directory).unwrap();
        let path = directory.join("colors.db");
        let (lock, _) = sqlite::lock_or_make(&path, Some(&ColorList::default()), None).unwrap();
        let database = Database::open(&path, &path, lock).unwrap();
        Writer::new(Box::new(database), ColorList::default(), Box::new(|_| ()))
    }

    fn scratch(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("colors-writer-{name}-{}", std::process::id()))
    }

    #[test]
    fn a_save_that_waits_for_the_lock_does_not_hang() {
        let directory = scratch("lock");
        let (store, writer) = open(&directory);
        let other = Connection::open(directory.join("colors.db")).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let color = Color::new("a", "");
        let change = Change::new(Action::Create(color.clone()), Conditions::default());
        let (sender, outcomes) = mpsc::channel();
        assert_eq!(store.submit(vec![(7, change)]), []);
        let deliver = move |outcomes| sender.send(outcomes).unwrap();
        let writing = thread::spawn(|| writer.run(deliver));
        let mut longest = Duration::ZERO;
        loop {
            let elapsed = store.status().unwrap().elapsed();
            assert_eq!(outcomes.try_recv(), Err(mpsc::TryRecvError::Empty), "{longest:?}");
            if Duration::ZERO < elapsed && elapsed < longest {
                break;
            }
            longest = elapsed;
            thread::yield_now();
        }
        other.execute_batch("COMMIT").unwrap();
        assert_eq!(store.close(Instant::now() + Duration::from_secs(60)), Ok(()));
        writing.join().unwrap();
        let created = Outcome::Created { color, is_first: true };
        assert_eq!(outcomes.recv(), Ok(vec![(7, Ok(created))]));
        fs::remove_dir_all(&directory).unwrap();
    }

    /// Then it is not late for the changes that come meanwhile.
    #[test]
    fn a_save_without_changes_tries_only_once_to_get_the_lock() {
        let directory = scratch("once");
        let (_store, mut writer) = open(&directory);
        let other = Connection::open(directory.join("colors.db")).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let (sender, saved) = mpsc::channel();
        thread::spawn(move || sender.send(writer.save(&[])));
        assert_eq!(saved.recv_timeout(Duration::from_secs(60)), Ok(vec![]));
        fs::remove_dir_all(&directory).unwrap();
    }
}
