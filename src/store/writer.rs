//! The one thread that saves: group commit. It takes every queued change, applies them to its own copy of the list, commits them together,
//! publishes them, and reports the outcomes. Changes that arrive meanwhile share the next commit.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use super::change::{Change, Edit, Outcome};
use super::colors::Colors;
use super::database::{Database, Rows, SaveError};
use super::envelope;
use super::list::SharedList;
use crate::http::EntityTag;
use crate::metrics::SaveMetrics;

/// How long after a failed commit the next is tried, if no change asks for one earlier.
const RETRY_TIME: Duration = Duration::from_secs(2);

/// Commits of one change each that may fail, after one for all of a batch has failed, before the rest is refused as well.
const FAILURES_MAX: usize = 3;

/// What the writer is sent.
pub(super) enum WriterMessage {
    /// A change, and who is told its outcome, once.
    Change(Change, Box<dyn FnOnce(Result<Outcome, SaveError>) + Send>),
    /// To be set, which shows that the writer goes on.
    Ask(Arc<AtomicBool>),
    /// The end: whatever came before is saved. Told when the database is closed.
    Close(Sender<()>),
}

/// How the last saves went.
#[derive(Clone, Debug, Default)]
pub(crate) struct Saves {
    /// Why the last one failed, if it did.
    pub(crate) failure: Option<SaveError>,
    /// When the last one succeeded; `None` before the first since the start.
    pub(crate) last: Option<SystemTime>,
}

/// Saves changes, on a thread of its own.
#[derive(Debug)]
pub(crate) struct Writer {
    list: Arc<SharedList>,
    saves: Arc<Mutex<Saves>>,
    metrics: Arc<SaveMetrics>,
    messages: Receiver<WriterMessage>,
    database: Database,
    /// Equal to the shared list between two batches.
    colors: Colors,
    /// The id of each color's row, in the same order.
    ids: Vec<i64>,
}

impl Writer {
    pub(super) fn new(
        list: Arc<SharedList>,
        saves: Arc<Mutex<Saves>>,
        metrics: Arc<SaveMetrics>,
        messages: Receiver<WriterMessage>,
        database: Database,
        Rows { ids, colors }: Rows,
    ) -> Self {
        Self { list, saves, metrics, messages, database, colors: Colors::new(colors), ids }
    }

    /// Saves changes until it is told to close, or the store is gone.
    pub(crate) fn run(mut self) {
        let mut next_retry = Instant::now();
        loop {
            let first = if lock(&self.saves).failure.is_some() {
                // whatever is sent meanwhile
                self.messages.recv_timeout(next_retry.saturating_duration_since(Instant::now()))
            } else {
                next_retry = Instant::now() + RETRY_TIME;
                self.messages.recv().map_err(RecvTimeoutError::from)
            };
            let (mut changes, mut replies, mut closed) = (Vec::new(), Vec::new(), None);
            match first {
                Err(RecvTimeoutError::Timeout) => {
                    next_retry = Instant::now() + RETRY_TIME;
                    let retried = self.begin().and_then(|()| self.database.commit(&[]));
                    self.report(retried);
                }
                Err(RecvTimeoutError::Disconnected) => return self.database.close(),
                Ok(first) => {
                    for message in std::iter::once(first).chain(self.messages.try_iter()) {
                        match message {
                            WriterMessage::Change(change, reply) => {
                                changes.push(change);
                                replies.push(reply);
                            }
                            WriterMessage::Ask(answer) => answer.store(true, Relaxed),
                            WriterMessage::Close(told) => closed = Some(told),
                        }
                    }
                }
            }
            let outcomes = self.save_all(&changes);
            replies.into_iter().zip(outcomes).for_each(|(reply, outcome)| reply(outcome));
            if let Some(closed) = closed {
                self.database.close();
                // It may be too late for whoever waited.
                let _ = closed.send(());
                return;
            }
            // after the answers, so that no client waits for it
            if let Err(error) = self.begin() {
                self.report(Err(error));
            }
        }
    }

    /// Takes the lock of the database. If another program got it since the last commit, the list is what that has made of it.
    fn begin(&mut self) -> Result<(), SaveError> {
        if let Some(Rows { ids, colors }) = self.database.begin()? {
            log::warn!("another program has written to the database; the list has its {} colors now", ids.len());
            self.list.replace(Colors::new(colors.clone()));
            (self.colors, self.ids) = (Colors::new(colors), ids);
        }
        Ok(())
    }

    /// Saves changes together. If that fails for the first time they are tried one by one, so that one bad change does not fail the others.
    /// It stops after [`FAILURES_MAX`], because later changes wait.
    fn save_all(&mut self, changes: &[Change]) -> Vec<Result<Outcome, SaveError>> {
        let has_failed_before = lock(&self.saves).failure.is_some();
        let error = match self.save(changes) {
            Ok(outcomes) => return outcomes.into_iter().map(Ok).collect(),
            Err(error) => error,
        };
        let mut failures = if has_failed_before || changes.len() == 1 { FAILURES_MAX } else { 0 };
        let one_by_one = changes.iter().map(|change| {
            if failures == FAILURES_MAX {
                return self.refuse(change, &error);
            }
            let saved = self.save(std::slice::from_ref(change));
            failures += usize::from(saved.is_err());
            saved.map(|mut outcomes| outcomes.remove(0)).or_else(|error| self.refuse(change, &error))
        });
        one_by_one.collect()
    }

    /// The outcome of a change that is not saved: that which changes nothing has not failed.
    fn refuse(&self, change: &Change, error: &SaveError) -> Result<Outcome, SaveError> {
        match change.decide(&self.colors, || self.tag()) {
            (outcome, None) => Ok(outcome),
            (_, Some(_)) => Err(error.clone()),
        }
    }

    /// Makes changes, commits and publishes them. If that fails, nothing has happened to any of them.
    fn save(&mut self, changes: &[Change]) -> Result<Vec<Outcome>, SaveError> {
        if let Err(error) = self.begin() {
            self.report(Err(error.clone()));
            return Err(error);
        }
        let (mut edits, mut undo) = (Vec::new(), Vec::new());
        let committed = catch_unwind(AssertUnwindSafe(|| {
            let mut outcomes = Vec::with_capacity(changes.len());
            for change in changes {
                // in most cases a reader has asked for the same tag
                let tag = || if edits.is_empty() { self.list.envelope().tag() } else { self.tag() };
                let (outcome, edit) = change.decide(&self.colors, tag);
                outcomes.push(outcome);
                if let Some(edit) = edit {
                    let id = self.id_of(&edit);
                    edits.push((id, edit.clone()));
                    undo.push((id, self.make(id, edit)));
                }
            }
            if !edits.is_empty() {
                let begun = Instant::now();
                self.database.commit(&edits)?;
                self.metrics.durations.add(1, begun.elapsed());
            }
            Ok(outcomes)
        }));
        let committed = committed.unwrap_or_else(|_| Err(SaveError::new("the service failed, its log says where")));
        match &committed {
            Ok(_) if edits.is_empty() => {}
            Ok(_) => {
                // what they replaced is kept by the shared list alone, which frees it
                drop(undo);
                self.list.publish(edits.into_iter().map(|(_, edit)| edit));
                self.report(Ok(()));
                lock(&self.saves).last = Some(SystemTime::now());
            }
            Err(error) => {
                self.database.roll_back();
                for (id, edit) in undo.into_iter().rev() {
                    self.make(id, edit);
                }
                self.report(Err(error.clone()));
            }
        }
        committed
    }

    /// The id of the row that an edit concerns.
    fn id_of(&self, edit: &Edit) -> i64 {
        match edit {
            Edit::Append(_) => self.ids.last().map_or(1, |last| last.saturating_add(1)),
            Edit::Replace(position, _) | Edit::Remove(position) | Edit::Insert(position, _) => self.ids[*position],
        }
    }

    /// Makes an edit on the writer's own list; gives the one that takes it back.
    fn make(&mut self, id: i64, edit: Edit) -> Edit {
        match edit {
            Edit::Append(_) => self.ids.push(id),
            Edit::Insert(position, _) => self.ids.insert(position, id),
            Edit::Remove(position) => drop(self.ids.remove(position)),
            Edit::Replace(..) => {}
        }
        self.colors.apply(edit)
    }

    /// The tag of the writer's own list.
    fn tag(&self) -> EntityTag {
        EntityTag::of(&envelope::of(self.colors.as_slice()))
    }

    /// Notes how a save went. Every client is told, the log once.
    fn report(&self, saved: Result<(), SaveError>) {
        let mut saves = lock(&self.saves);
        match saved {
            Ok(()) => {
                if saves.failure.take().is_some() {
                    log::info!("changes are saved again");
                }
            }
            Err(error) => {
                self.metrics.failures.add(1);
                if saves.failure.as_ref() != Some(&error) {
                    log::error!("changes cannot be saved: {error}");
                }
                saves.failure = Some(error);
            }
        }
    }
}

/// Nothing that can panic is done under this lock.
pub(super) fn lock(saves: &Mutex<Saves>) -> MutexGuard<'_, Saves> {
    saves.lock().unwrap_or_else(PoisonError::into_inner)
}
