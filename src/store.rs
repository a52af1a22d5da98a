//! The one list that all workers share: a mutex around it, and the way a change gets into it. No HTTP.
//!
//! With a durable file a change is saved before anybody can see it. Changes that arrive while a save is running are saved together by the
//! next one: whoever comes first saves for all who wait. A single change waits for nobody.

use std::collections::HashMap;
use std::fmt;
use std::mem::{replace, take};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};

use crate::change::{Change, Outcome};
use crate::color::Color;
use crate::datafile::{DataFile, SaveError};
use crate::palette::{Listing, Palette};

/// The shared list.
#[derive(Debug)]
pub(crate) struct Store {
    /// What readers see; with a durable file, never anything that is not in it.
    palette: Mutex<Palette>,
    /// How changes are saved, if they are.
    saving: Option<Saving>,
}

/// How changes are saved.
#[derive(Debug)]
struct Saving {
    /// Where to.
    file: DataFile,
    /// Who waits for what.
    queue: Mutex<Queue>,
    /// Told when a save is over.
    is_over: Condvar,
    /// Whether the last save failed.
    has_failed: AtomicBool,
}

/// Changes on their way to the file.
#[derive(Debug, Default)]
struct Queue {
    /// The number of the next change.
    next: u64,
    /// Changes for the next save, in the order they arrived.
    waiting: Vec<(u64, Change)>,
    /// What came of those saved, until whoever asked for them takes it.
    done: HashMap<u64, Result<Outcome, NotSaved>>,
    /// Whether somebody is saving.
    is_saving: bool,
}

/// Why a change was not made: the reason that the save it was in failed.
#[derive(Clone, Debug)]
pub(crate) struct NotSaved(Arc<str>);

impl fmt::Display for NotSaved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<SaveError> for NotSaved {
    fn from(error: SaveError) -> Self {
        Self(error.to_string().into())
    }
}

impl Store {
    /// A list that lives in memory alone.
    pub(crate) fn in_memory(palette: Palette) -> Self {
        Self { palette: Mutex::new(palette), saving: None }
    }

    /// A list that lives in a file, which holds it already.
    pub(crate) fn in_file(palette: Palette, file: DataFile) -> Self {
        let saving = Saving { file, queue: Mutex::default(), is_over: Condvar::new(), has_failed: AtomicBool::new(false) };
        Self { palette: Mutex::new(palette), saving: Some(saving) }
    }

    /// Whether a change has to wait for the disk.
    pub(crate) fn is_durable(&self) -> bool {
        self.saving.is_some()
    }

    /// How many colors there are.
    pub(crate) fn len(&self) -> usize {
        self.palette().len()
    }

    /// How many colors there are, unless somebody holds the list at the moment; never waits.
    pub(crate) fn try_len(&self) -> Option<usize> {
        match self.palette.try_lock() {
            Ok(palette) => Some(palette.len()),
            Err(TryLockError::Poisoned(palette)) => Some(palette.into_inner().len()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The first color of this name; copies two pointers, no text.
    pub(crate) fn first(&self, name: &str) -> Option<Color> {
        self.palette().first(name).cloned()
    }

    /// The whole list as JSON; copies no bytes of it.
    pub(crate) fn listing(&self) -> Listing {
        self.palette().listing().clone()
    }

    /// Whether the last attempt to save a change failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.saving.as_ref().is_some_and(|saving| saving.has_failed.load(Relaxed))
    }

    /// Makes a change, or finds that it cannot be made; returns when everybody can see it and, with a file, when it is on the disk.
    ///
    /// # Errors
    /// When it could not be saved; it was not made then.
    pub(crate) fn commit(&self, change: Change) -> Result<Outcome, NotSaved> {
        let Some(saving) = &self.saving else {
            let (outcome, _) = change.apply(&mut self.palette());
            return Ok(outcome);
        };
        let mut queue = saving.queue();
        let number = queue.next;
        queue.next += 1;
        queue.waiting.push((number, change));
        loop {
            if let Some(outcome) = queue.done.remove(&number) {
                return outcome;
            }
            if queue.is_saving {
                queue = saving.is_over.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            queue.is_saving = true;
            let together = take(&mut queue.waiting);
            drop(queue);
            let numbers: Vec<u64> = together.iter().map(|(number, _)| *number).collect();
            let outcomes = self.save_together(saving, together);
            queue = saving.queue();
            queue.is_saving = false;
            queue.done.extend(numbers.into_iter().zip(outcomes));
            saving.is_over.notify_all();
        }
    }

    /// Applies changes to a copy of the list, saves it, and has everybody see it; if that fails nothing has happened to any of them.
    fn save_together(&self, saving: &Saving, changes: Vec<(u64, Change)>) -> Vec<Result<Outcome, NotSaved>> {
        let count = changes.len();
        // a panic must not leave the others waiting for a save that never ends
        let saved = catch_unwind(AssertUnwindSafe(|| {
            let mut candidate = self.palette().clone();
            let applied: Vec<(Outcome, bool)> = changes.iter().map(|(_, change)| change.apply(&mut candidate)).collect();
            if applied.iter().any(|(_, has_changed)| *has_changed) {
                saving.file.save(candidate.colors()).inspect_err(|error| self.take_back(saving, error))?;
                saving.has_failed.store(false, Relaxed);
                let before = { replace(&mut *self.palette(), candidate) };
                drop(before);
            }
            Ok(applied.into_iter().map(|(outcome, _)| Ok(outcome)).collect())
        }));
        let saved = saved.unwrap_or_else(|_| Err(NotSaved("the service failed, its log says where".into())));
        saved.unwrap_or_else(|error| {
            saving.has_failed.store(true, Relaxed);
            vec![Err(error); count]
        })
    }

    /// Puts the list that everybody sees back into the file, if the one that failed to be saved got there.
    fn take_back(&self, saving: &Saving, error: &SaveError) {
        if error.is_replaced {
            let current = self.palette().clone();
            // If this fails too, the next save that works replaces the file.
            let _ = saving.file.put_back(current.colors());
        }
    }

    /// The lock on the list. A panic while it was held does no harm: every change is either made or not begun.
    fn palette(&self) -> MutexGuard<'_, Palette> {
        self.palette.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Saving {
    /// The lock on the queue; nothing that can panic is done under it.
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
