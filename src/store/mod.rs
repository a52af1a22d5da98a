//! The list and how it is kept: one mutex around the colors, which all workers share, and one writer for the durable file. Nothing here but
//! the writer waits for the disk. No HTTP but its entity tags.

mod change;
pub(crate) mod color;
mod colors;
mod file;
#[cfg(fuzzing)]
#[path = "../../fuzz/inside/store.rs"]
pub(crate) mod fuzzing;
mod writer;

use std::fmt;
use std::mem::replace;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::SystemTime;

pub(crate) use change::{Action, Change, Outcome};
pub(crate) use color::JsonError;
pub(crate) use colors::Colors;
pub(crate) use file::{DataFile, OpenError, SaveError};
use writer::Commit;
pub(crate) use writer::Writer;

use crate::http::Representation;

/// The shared list.
#[derive(Debug)]
pub(crate) struct Store {
    shared: Arc<Shared>,
    /// Where changes wait for the writer; `None` when the list lives in memory alone.
    queue: Option<Sender<Commit>>,
}

/// What the store and its writer share.
#[derive(Debug)]
struct Shared {
    /// What readers see; with a durable file, never anything that is not in it.
    colors: Mutex<Colors>,
    saves: Mutex<Saves>,
    /// Called when representations were withdrawn that may still be being sent.
    on_withdrawal: OnceLock<OnWithdrawal>,
}

/// How the last saves went.
#[derive(Clone, Debug, Default)]
pub(crate) struct Saves {
    /// Why the last one failed, if it did.
    pub(crate) failure: Option<NotSaved>,
    /// When the last one succeeded; `None` before the first since the start.
    pub(crate) last: Option<SystemTime>,
}

struct OnWithdrawal(Box<dyn Fn() + Send + Sync>);

impl fmt::Debug for OnWithdrawal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnWithdrawal")
    }
}

/// Why a change was not made: the reason that its save failed.
#[derive(Clone, Debug, PartialEq)]
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
    pub(crate) fn in_memory(colors: Colors) -> Self {
        Self { shared: Arc::new(Shared::new(colors)), queue: None }
    }

    /// A list that lives in a file, which holds it already, and the writer that has to run for changes to be made.
    pub(crate) fn in_file(colors: Colors, file: DataFile) -> (Self, Writer) {
        let shared = Arc::new(Shared::new(colors));
        let (queue, commits) = mpsc::channel();
        (Self { shared: Arc::clone(&shared), queue: Some(queue) }, Writer::new(shared, file, commits))
    }

    /// Whether changes go by [`Store::commit`].
    pub(crate) fn is_durable(&self) -> bool {
        self.queue.is_some()
    }

    /// How many colors there are.
    pub(crate) fn len(&self) -> usize {
        self.shared.colors().len()
    }

    /// The first color of this name.
    pub(crate) fn first(&self, name: &str) -> Option<Arc<Representation>> {
        self.shared.colors().first(name).map(|color| Arc::clone(&color.json))
    }

    /// The collection envelope of the specification.
    pub(crate) fn envelope(&self) -> Arc<Representation> {
        Arc::clone(self.shared.colors().envelope())
    }

    /// Has `act` be called whenever responses have to be cut off, see [`Representation::withdraw`].
    pub(crate) fn on_withdrawal(&self, act: impl Fn() + Send + Sync + 'static) {
        // It is set once, at the start.
        let _ = self.shared.on_withdrawal.set(OnWithdrawal(Box::new(act)));
    }

    /// How saving goes; `None` for a list that lives in memory alone.
    pub(crate) fn saves(&self) -> Option<Saves> {
        self.is_durable().then(|| self.shared.saves().clone())
    }

    /// Makes a change in memory, or finds that it cannot be made. Not for a durable list.
    pub(crate) fn apply(&self, change: &Change) -> Outcome {
        debug_assert!(!self.is_durable(), "a durable list is changed by its writer alone");
        let (outcome, has_withdrawn) = {
            let mut colors = self.shared.colors();
            let (outcome, _) = change.apply(&mut colors);
            (outcome, colors.withdraw_oldest())
        };
        self.shared.report_withdrawal(has_withdrawn);
        outcome
    }

    /// Queues a change for the writer, which calls `reply` once it is on the disk and everybody can see it, or was not made.
    pub(crate) fn commit(&self, change: Change, reply: impl FnOnce(Result<Outcome, NotSaved>) + Send + 'static) {
        let commit = Commit { change, reply: Box::new(reply) };
        let refused = match &self.queue {
            Some(queue) => queue.send(commit).err().map(|refused| refused.0),
            None => Some(commit),
        };
        if let Some(commit) = refused {
            (commit.reply)(Err(NotSaved("the writer has ended".into())));
        }
    }
}

impl Shared {
    fn new(colors: Colors) -> Self {
        Self { colors: Mutex::new(colors), saves: Mutex::default(), on_withdrawal: OnceLock::new() }
    }

    /// The lock on the list. A panic while it was held does no harm: every change is either made or not begun.
    fn colors(&self) -> MutexGuard<'_, Colors> {
        self.colors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing that can panic is done under this lock.
    fn saves(&self) -> MutexGuard<'_, Saves> {
        self.saves.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets everybody see another list.
    fn publish(&self, mut colors: Colors) {
        // not before: current ones must not be withdrawn for a change that is not saved
        let has_withdrawn = colors.withdraw_oldest();
        let before = { replace(&mut *self.colors(), colors) };
        // freed outside the lock: it may be long
        drop(before);
        self.report_withdrawal(has_withdrawn);
    }

    fn report_withdrawal(&self, has_withdrawn: bool) {
        if let Some(OnWithdrawal(act)) = self.on_withdrawal.get().filter(|_| has_withdrawn) {
            act();
        }
    }
}
