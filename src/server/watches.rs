//! Which connections of a worker wait for a change, and which of them a change affects. Knows no
//! sockets, and no answers.

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::inbox::Inbox;
use crate::service::Subject;
use crate::store::{Colors, SharedList};

/// The connections of one worker that wait.
#[derive(Default)]
pub(super) struct Watches {
    /// The list has changed since [`Inbox::take_affected`].
    has_changed: AtomicBool,
    /// Only the worker takes it.
    entries: Mutex<Entries>,
}

#[derive(Default)]
struct Entries {
    /// Each with the id of a connection, so that those of one subject are neighbors.
    ids: BTreeSet<(Key, u64)>,
    /// The list that all of them know, or a later one; `None` when nobody waits.
    seen: Option<Colors>,
    hasher: RandomState,
}

/// A subject, with a hash in place of the name. Two names with one hash are asked again together,
/// which does no harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    List,
    Color(u64),
}

/// One connection that waits, until this is dropped.
pub(super) struct Watch {
    inbox: Arc<Inbox>,
    key: Key,
    connection: u64,
}

impl Inbox {
    /// Adds a connection of the worker. Ask the service once more after that: a change that came
    /// before is not noticed here.
    pub(super) fn watch(self: &Arc<Self>, subject: &Subject, connection: u64) -> Watch {
        let mut entries = self.entries();
        let key = match subject {
            Subject::List => Key::List,
            Subject::Color(name) => Key::Color(entries.hasher.hash_one(&**name)),
        };
        entries.ids.insert((key, connection));
        entries.seen.get_or_insert_with(|| self.list().version());
        self.waiting().store(entries.ids.len(), Relaxed);
        Watch { inbox: Arc::clone(self), key, connection }
    }

    /// Wakes the worker for a new version of the list, if one of its connections waits for that.
    /// Reads two atomics, and takes no lock.
    ///
    /// Call it when the new version can be read. If a connection is added meanwhile, this may still
    /// find none. That connection asks after it is added, and so finds the new version.
    pub(super) fn note_change(&self) {
        if self.waiting().load(Relaxed) > 0 && !self.watches.has_changed.swap(true, SeqCst) {
            self.wake();
        }
    }

    /// The connections whose subject may have changed since the last call: those that wait for the
    /// list or for a color that differs. If the whole list was replaced, it is all of them, and the
    /// pool frees the list before.
    pub(super) fn take_affected(&self) -> Vec<u64> {
        if !self.watches.has_changed.swap(false, SeqCst) {
            return Vec::new();
        }
        let mut entries = self.entries();
        let Some(seen) = entries.seen.take() else { return Vec::new() };
        let current = self.list().version();
        if !seen.is_version_of(&current) {
            entries.seen = Some(current);
            drop(entries);
            // To compare two whole lists takes long.
            self.free(seen);
            return self.watching();
        }
        let mut affected = Vec::new();
        let mut add = |key| {
            let ids = entries.ids.range((key, 0)..=(key, u64::MAX));
            affected.extend(ids.map(|(_, id)| *id));
        };
        add(Key::List);
        seen.diff(&current, |name| add(Key::Color(entries.hasher.hash_one(name))));
        entries.seen = Some(current);
        // Freeing the old version may take long: without the lock.
        drop(entries);
        affected
    }

    /// All connections that wait.
    pub(super) fn watching(&self) -> Vec<u64> {
        self.entries().ids.iter().map(|(_, id)| *id).collect()
    }

    /// Has the pool free a list that was replaced, which takes long.
    fn free(&self, list: Colors) {
        self.pool.execute(move || drop(list));
    }

    fn list(&self) -> &SharedList {
        &self.shared.service.store.list
    }

    /// How many connections of the worker wait.
    fn waiting(&self) -> &AtomicUsize {
        &self.shared.state().workers[self.worker].waiting
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.watches.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut entries = self.inbox.entries();
        entries.ids.remove(&(self.key, self.connection));
        self.inbox.waiting().store(entries.ids.len(), Relaxed);
        let was_last = entries.ids.is_empty();
        let unused = entries.seen.take_if(|_| was_last);
        drop(entries);
        if let Some(seen) = unused
            && !seen.is_version_of(&self.inbox.list().version())
        {
            self.inbox.free(seen);
        }
    }
}
