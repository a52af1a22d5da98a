//! The one thread that saves: group commit. It takes every queued change, makes them on a clone of
//! the current version, commits them together, publishes the clone, and reports the outcomes.
//! Changes that arrive meanwhile share the next commit.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use super::change::{Action, Change, Outcome};
use super::colors::Colors;
use super::database::Database;
use super::database_error::DatabaseError;
use super::list::SharedList;
use super::saves::Saves;
use crate::yielding::Yielding;

/// How long after a failed commit the next is tried, if no change asks for one earlier.
const RETRY_TIME: Duration = Duration::from_secs(2);

/// The shortest time until that is tried because somebody asks for the health.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// After a commit of several changes has failed, they are tried one by one, until this many have
/// failed.
const FAILURES_MAX: usize = 3;

/// As often as this, at least, SQLite looks whether the write lock is free
/// (`sqliteDefaultBusyCallback`).
const FREE_TIME_MAX: Duration = Duration::from_millis(100);

/// The shortest time between two warnings that another program has changed the list: one may do so
/// all the time.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// What the writer is sent.
pub(super) enum WriterMessage {
    Change(Change, Reply),
    /// The end: whatever came before is saved. Told when the database is closed.
    Close(Sender<()>),
}

/// Who is told the outcome of a change. If the writer ends before it is known, the outcome is
/// [`DatabaseError::Closed`].
#[expect(clippy::type_complexity, reason = "a name for it would be needed nowhere else")]
pub(super) struct Reply(Option<Box<dyn FnOnce(Result<Outcome, DatabaseError>) + Send>>);

impl Reply {
    pub(super) fn new(reply: impl FnOnce(Result<Outcome, DatabaseError>) + Send + 'static) -> Self {
        Self(Some(Box::new(reply)))
    }

    fn send(mut self, outcome: Result<Outcome, DatabaseError>) {
        if let Some(reply) = self.0.take() {
            reply(outcome);
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if let Some(reply) = self.0.take() {
            reply(Err(DatabaseError::Closed));
        }
    }
}

/// Saves changes, on a thread of its own.
#[derive(Debug)]
pub(crate) struct Writer {
    list: Arc<SharedList>,
    saves: Arc<Saves>,
    messages: Receiver<WriterMessage>,
    database: Database,
    /// When the log last said that another program has changed the list.
    warned: Option<Instant>,
    /// Until then the write lock is left to other programs.
    free_until: Option<Instant>,
    /// When a save last failed.
    last_failure: Instant,
    yielding: Yielding,
}

impl Writer {
    pub(super) fn new(
        list: Arc<SharedList>,
        saves: Arc<Saves>,
        messages: Receiver<WriterMessage>,
        database: Database,
    ) -> Self {
        Self {
            list,
            saves,
            messages,
            database,
            warned: None,
            free_until: None,
            last_failure: Instant::now(),
            yielding: Yielding::new(),
        }
    }

    /// Saves changes until it is told to close, or the store is gone.
    pub(crate) fn run(self) {
        let saves = Arc::clone(&self.saves);
        // a panic in a change is caught below; any other is one in here, and nothing is saved any
        // more
        if catch_unwind(AssertUnwindSafe(|| self.save_until_closed())).is_err() {
            saves.note_failure(DatabaseError::Panicked);
        }
    }

    fn save_until_closed(mut self) {
        loop {
            let first = self.receive();
            let (mut changes, mut replies, mut looks, mut closed) =
                (Vec::new(), Vec::new(), Vec::new(), None);
            match first {
                Err(RecvTimeoutError::Timeout) => self.retry(),
                Err(RecvTimeoutError::Disconnected) => return self.database.close(),
                Ok(first) => {
                    for message in std::iter::once(first).chain(self.messages.try_iter()) {
                        match message {
                            WriterMessage::Change(Change { action: Action::Look, .. }, reply) => {
                                looks.push(reply)
                            }
                            WriterMessage::Change(change, reply) => {
                                changes.push(change);
                                replies.push(reply);
                            }
                            WriterMessage::Close(told) => closed = Some(told),
                        }
                    }
                }
            }
            if !looks.is_empty() {
                self.look();
                looks.into_iter().for_each(|reply| reply.send(Ok(Outcome::Looked)));
            }
            let outcomes = if changes.is_empty() { Vec::new() } else { self.save_all(&changes) };
            // before the answers: who has one may send the next list, and memory for this one is
            // reserved until then
            drop(changes);
            replies.into_iter().zip(outcomes).for_each(|(reply, outcome)| reply.send(outcome));
            if let Some(closed) = closed {
                self.database.close();
                // The thread that waited may have given up.
                let _ = closed.send(());
                return;
            }
        }
    }

    /// Waits for a message, or, after a failure, until it is time to retry.
    fn receive(&mut self) -> Result<WriterMessage, RecvTimeoutError> {
        if self.saves.have_failed() {
            return self
                .messages
                .recv_timeout(RETRY_TIME.saturating_sub(self.last_failure.elapsed()));
        }
        let receive = || self.messages.try_recv().ok();
        match receive().or_else(|| self.yielding.until(receive)) {
            Some(message) => Ok(message),
            None => Ok(self.messages.recv()?),
        }
    }

    /// Finds out whether changes can be saved again.
    fn retry(&mut self) {
        if self.save(&[]).is_ok() {
            self.saves.note_recovered();
        }
    }

    /// Begins a save, with the list that the database has.
    fn begin(&mut self) -> Result<(), DatabaseError> {
        let known = self.list.version();
        let found = self.database.begin(&known, self.saves.have_failed())?;
        self.follow(&known, found);
        Ok(())
    }

    /// Has readers see what other programs have committed. While saving fails, finds out whether it
    /// works again, unless that would wait for a lock, or follow the last attempt at once.
    fn look(&mut self) {
        if let Some(failure) = self.saves.status().failure {
            if failure != DatabaseError::Busy && self.last_failure.elapsed() >= RETRY_PAUSE {
                self.retry();
            }
            return;
        }
        let known = self.list.version();
        match catch_unwind(AssertUnwindSafe(|| self.database.look(&known)))
            .unwrap_or(Err(DatabaseError::Panicked))
        {
            Ok(found) => self.follow(&known, found),
            Err(error) => self.saves.note_failure(error),
        }
    }

    /// Publishes the list that was found in the database, unless it is the one that is known.
    fn follow(&mut self, known: &Colors, found: Option<Colors>) {
        let Some(found) = found else { return };
        // a checkpoint, for instance, changes no color
        if found != *known {
            if self.warned.is_none_or(|warned| warned.elapsed() > WARNING_INTERVAL) {
                log::warn!(
                    "another program has changed the list; it has {} colors now",
                    found.len()
                );
                self.warned = Some(Instant::now());
            }
            self.list.replace(found);
        } else if !found.has_ids_of(known) {
            self.list.replace(found);
        }
    }

    /// Saves all changes in one commit. If that fails and saving worked before, tries each alone,
    /// so that one bad change does not fail the others; stops after [`FAILURES_MAX`] failures,
    /// because later changes wait.
    fn save_all(&mut self, changes: &[Change]) -> Vec<Result<Outcome, DatabaseError>> {
        let has_failed_before = self.saves.have_failed();
        let error = match self.save(changes) {
            Ok(outcomes) => return outcomes.into_iter().map(Ok).collect(),
            Err(error) => error,
        };
        // waiting for a lock takes long, and the others would wait as well
        let is_over = has_failed_before || changes.len() == 1 || error == DatabaseError::Busy;
        let mut failures = if is_over { FAILURES_MAX } else { 0 };
        let one_by_one = changes.iter().map(|change| {
            if failures == FAILURES_MAX {
                return self.outcome_unsaved(change, &error);
            }
            let saved = self.save(std::slice::from_ref(change));
            failures += usize::from(saved.is_err());
            saved
                .map(|mut outcomes| outcomes.remove(0))
                .or_else(|error| self.outcome_unsaved(change, &error))
        });
        one_by_one.collect()
    }

    /// The outcome of a change that is not saved. One that changes nothing succeeds all the same.
    fn outcome_unsaved(
        &self,
        change: &Change,
        error: &DatabaseError,
    ) -> Result<Outcome, DatabaseError> {
        if *error == DatabaseError::Panicked {
            // it would panic again
            return Err(error.clone());
        }
        match change.decide(&self.list.version()) {
            (outcome, None) => Ok(outcome),
            (_, Some(_)) => Err(error.clone()),
        }
    }

    /// Makes changes, commits them, and publishes the list with them. If that fails, no change was
    /// made.
    fn save(&mut self, changes: &[Change]) -> Result<Vec<Outcome>, DatabaseError> {
        let mut saved = self.try_save(changes);
        if saved.as_ref().is_err_and(|error| *error == DatabaseError::OtherRows) {
            // the list is read again this time
            saved = self.try_save(changes);
        }
        saved.inspect_err(|error| {
            self.saves.metrics.failures.add(1);
            self.saves.note_failure(error.clone());
            self.last_failure = Instant::now();
        })
    }

    fn try_save(&mut self, changes: &[Change]) -> Result<Vec<Outcome>, DatabaseError> {
        if let Some(time) =
            self.free_until.take().and_then(|until| until.checked_duration_since(Instant::now()))
        {
            thread::sleep(time);
        }
        self.saves.begin();
        let mut begun = Instant::now();
        let saved = catch_unwind(AssertUnwindSafe(|| {
            self.begin()?;
            begun = Instant::now();
            let mut version = self.list.version();
            let (mut outcomes, mut removed) = (Vec::with_capacity(changes.len()), Vec::new());
            for change in changes {
                let (outcome, edit) = change.decide(&version);
                outcomes.push(outcome);
                if let Some(edit) = edit {
                    self.database.write(&edit, &version)?;
                    removed.push(version.apply(edit));
                }
            }
            if !removed.is_empty() {
                self.database.commit()?;
                self.saves.metrics.durations.add(1, begun.elapsed());
                self.list.publish(version, removed);
                self.saves.note_saved();
            }
            Ok(outcomes)
        }));
        self.database.roll_back();
        self.saves.end();
        // A program that waits for the write lock only looks now and then whether it is free.
        // Between two saves without a pause it would hardly ever be, so leave it free for as long
        // as it was held.
        self.free_until =
            self.database.is_shared().then(|| Instant::now() + begun.elapsed().min(FREE_TIME_MAX));
        saved.unwrap_or(Err(DatabaseError::Panicked))
    }
}

#[cfg(test)]
mod tests {
    use super::super::color::Color;
    use super::super::database;
    use super::super::{Action, Store};
    use super::*;
    use crate::http::Conditions;

    #[test]
    fn memory_for_a_list_is_free_again_when_its_client_is_answered() {
        let directory = std::env::temp_dir().join(format!("colors-writer-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("colors.db");
        let lock = database::lock(&path).unwrap();
        database::fill(&path, &Colors::default()).unwrap();
        let (database, colors) = Database::open(&path, lock).unwrap();
        let (store, writer) = Store::in_database(database, colors, 32 << 20);
        let (store, list) = (Arc::new(store), Colors::from_iter([Color::new("a", "1")]));
        let action =
            Action::ReplaceAll(list.clone(), store.reserve_list(16 * 1024 * 1024).unwrap());
        assert!(store.reserve_list(1).is_none());
        let (told, answers) = std::sync::mpsc::channel();
        store.submit(Change { action, conditions: Conditions::default() }, {
            let store = Arc::clone(&store);
            move |outcome| told.send((outcome, store.reserve_list(1).is_some())).unwrap()
        });
        let writing = std::thread::spawn(|| writer.run());
        assert_eq!(answers.recv().unwrap(), (Ok(Outcome::Replaced(list)), true));
        assert!(store.close(Instant::now() + Duration::from_secs(20)));
        writing.join().unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
