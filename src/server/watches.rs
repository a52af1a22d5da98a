//! Which connections of a worker wait for a change, and which of them a change concerns. Knows no
//! sockets, and no answers.
//!
//! The thread that publishes a version of the list marks what the version has changed
//! ([`Watches::mark`]). The worker takes the marks, and has the connections that wait for these ask
//! the service again. A new watch is added first, and then its connection asks once more: a change
//! that was published before is in this answer, and a later one marks the connection. So no change
//! is missed, and no two versions are compared.

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, RandomState};
use std::mem::take;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::service::{ServerState, Subject};
use crate::store::Edit;

/// The connections of one worker that wait for a change.
pub(super) struct Watches {
    entries: Mutex<Entries>,
    hasher: RandomState,
    state: Arc<ServerState>,
    /// The number of the worker.
    worker: usize,
}

#[derive(Default)]
struct Entries {
    /// Subjects with the ids of connections. Connections with the same subject are neighbors.
    ids: BTreeSet<(Key, u64)>,
    /// What has changed since the last [`Watches::take_affected`], if a connection waits for it.
    marks: BTreeSet<Key>,
    /// All connections count as affected.
    all_changed: bool,
}

/// A subject, with a hash in place of the name. If two names have the same hash, a change of one
/// color has those who wait for the other one ask again, which does no harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    List,
    Color(u64),
}

/// The entry of one connection in [`Watches`], until it is dropped.
pub(super) struct Watch {
    watches: Arc<Watches>,
    key: Key,
    connection: u64,
}

impl Watches {
    pub(super) fn new(state: Arc<ServerState>, worker: usize) -> Self {
        Self { entries: Mutex::default(), hasher: RandomState::new(), state, worker }
    }

    /// Adds a connection. Ask the service after that: a change may have come before.
    pub(super) fn add(self: &Arc<Self>, subject: &Subject, connection: u64) -> Watch {
        let key = match subject {
            Subject::List => Key::List,
            Subject::Color(name) => self.key_of(name),
        };
        let mut entries = self.lock();
        entries.ids.insert((key, connection));
        self.count().store(entries.ids.len(), Relaxed);
        Watch { watches: Arc::clone(self), key, connection }
    }

    /// Marks what these edits, which have led to a new version of the list, have changed. True if
    /// the worker has to be woken for it. Without connections that wait, this takes no lock.
    ///
    /// Call this when the new version can be read already. It may overlook a connection that is
    /// added at the same time. Such a connection asks the service after it was added, and finds the
    /// new version: the lock around the list orders its read after the publication.
    pub(super) fn mark(&self, edits: &[Edit]) -> bool {
        if self.count().load(Relaxed) == 0 {
            return false;
        }
        let key_of = |edit: &Edit| edit.color().map(|color| self.key_of(&color.name()));
        let keys: Vec<_> = edits.iter().map(key_of).collect();
        let mut entries = self.lock();
        let had_marks = entries.has_marks();
        entries.mark(Key::List);
        for key in keys {
            match key {
                Some(key) => entries.mark(key),
                None => entries.all_changed = true,
            }
        }
        !had_marks && entries.has_marks()
    }

    /// The connections that may wait for something that has changed since the last call, each once.
    /// False behind a connection if the whole list was replaced, so that its color may be the same.
    pub(super) fn take_affected(&self) -> Vec<(u64, bool)> {
        let mut entries = self.lock();
        let marks = take(&mut entries.marks);
        if take(&mut entries.all_changed) {
            return entries.ids.iter().map(|(key, id)| (*id, marks.contains(key))).collect();
        }
        marks.iter().flat_map(|key| entries.of(*key)).map(|id| (id, true)).collect()
    }

    /// All connections that wait.
    pub(super) fn all(&self) -> Vec<u64> {
        self.lock().ids.iter().map(|(_, id)| *id).collect()
    }

    fn key_of(&self, name: &str) -> Key {
        Key::Color(self.hasher.hash_one(name))
    }

    /// How many connections wait.
    fn count(&self) -> &AtomicUsize {
        &self.state.workers[self.worker].waiting
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entries {
    /// The connections that wait for this subject.
    fn of(&self, key: Key) -> impl Iterator<Item = u64> {
        self.ids.range((key, 0)..=(key, u64::MAX)).map(|(_, id)| *id)
    }

    fn mark(&mut self, key: Key) {
        if self.of(key).next().is_some() {
            self.marks.insert(key);
        }
    }

    fn has_marks(&self) -> bool {
        self.all_changed || !self.marks.is_empty()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut entries = self.watches.lock();
        entries.ids.remove(&(self.key, self.connection));
        self.watches.count().store(entries.ids.len(), Relaxed);
    }
}
