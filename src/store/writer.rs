//! The one thread that saves: group commit. It takes every queued change, applies them to a copy of the list, saves it once, publishes it and
//! reports the outcomes. Changes that arrive meanwhile share the next save.

use std::fmt;
use std::mem::replace;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::SystemTime;

use super::change::{Change, Outcome};
use super::file::DataFile;
use super::{NotSaved, Saves, Shared};

/// A change on its way to the file.
pub(super) struct Commit {
    pub(super) change: Change,
    /// Told the outcome, once.
    pub(super) reply: Box<dyn FnOnce(Result<Outcome, NotSaved>) + Send>,
}

impl fmt::Debug for Commit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.change.fmt(f)
    }
}

/// Saves changes, on a thread of its own.
#[derive(Debug)]
pub(crate) struct Writer {
    shared: Arc<Shared>,
    file: DataFile,
    commits: Receiver<Commit>,
}

impl Writer {
    pub(super) fn new(shared: Arc<Shared>, file: DataFile, commits: Receiver<Commit>) -> Self {
        Self { shared, file, commits }
    }

    /// Saves changes until the store is gone.
    pub(crate) fn run(self) {
        while let Ok(first) = self.commits.recv() {
            let batch: Vec<Commit> = std::iter::once(first).chain(self.commits.try_iter()).collect();
            let (changes, replies): (Vec<_>, Vec<_>) = batch.into_iter().map(|commit| (commit.change, commit.reply)).unzip();
            let outcomes = self.save_all(&changes);
            replies.into_iter().zip(outcomes).for_each(|(reply, outcome)| reply(outcome));
        }
    }

    /// Saves changes together. If that fails they are tried one by one, so that nobody pays for another's change.
    fn save_all(&self, changes: &[Change]) -> Vec<Result<Outcome, NotSaved>> {
        match self.save(changes) {
            Ok(outcomes) => outcomes.into_iter().map(Ok).collect(),
            Err(error) if changes.len() == 1 => vec![Err(error)],
            Err(_) => changes.iter().flat_map(|change| self.save_all(std::slice::from_ref(change))).collect(),
        }
    }

    /// Applies changes to a copy of the list, saves and publishes it. If that fails, nothing has happened to any of them.
    fn save(&self, changes: &[Change]) -> Result<Vec<Outcome>, NotSaved> {
        let saved = catch_unwind(AssertUnwindSafe(|| {
            let mut candidate = self.shared.colors().clone();
            let (outcomes, changed): (Vec<_>, Vec<_>) = changes.iter().map(|change| change.apply(&mut candidate)).unzip();
            if changed.contains(&true) {
                self.file.save(candidate.colors()).inspect_err(|error| {
                    if error.is_replaced {
                        self.put_back();
                    }
                })?;
                self.shared.publish(candidate);
                let failure = { replace(&mut *self.shared.saves(), Saves { failure: None, last: Some(SystemTime::now()) }).failure };
                if failure.is_some() {
                    log::info!("changes are saved again");
                }
            }
            Ok(outcomes)
        }));
        let saved = saved.unwrap_or_else(|_| Err(NotSaved("the service failed, its log says where".into())));
        if let Err(error) = &saved {
            let before = { self.shared.saves().failure.replace(error.clone()) };
            // every client is told, the log once
            if before.as_ref() != Some(error) {
                log::error!("changes cannot be saved: {error}");
            }
        }
        saved
    }

    /// Puts the list that everybody sees back into the file, since the one that could not be saved got there.
    fn put_back(&self) {
        let current = self.shared.colors().clone();
        if let Err(error) = self.file.put_back(current.colors()) {
            log::error!("a change that was refused may be in the data file: {error}");
        }
    }
}
