//! Which requests wait for a change, and which of them a change concerns.
//!
//! The thread that publishes a version of the list marks what the version has changed
//! ([`Waits::mark`]) with the number of the version, and notifies the workers. A worker takes its
//! marks, and wakes the requests that wait for these: each is received and decided again. A new
//! wait is added first, and then its request is decided once more: a change that was published
//! before is in this answer, and a later one marks the request. So no change is missed. (A
//! change and a change back, both before the wait was added, do not count.)

use std::collections::{BTreeSet, HashMap, HashSet};
use std::mem::take;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bounded_http::Handle;

use super::Subject;
use crate::store::{ChangeListener, Edit, Step};

/// The requests that wait for a change.
pub(crate) struct Waits {
    server: Handle,
    /// By the number of the worker.
    workers: Box<[Mutex<Entries>]>,
    /// How many requests wait. If none does, no change takes a lock.
    count: AtomicUsize,
}

/// Those of one worker, by the ids of their connections.
#[derive(Default)]
struct Entries {
    subjects: HashMap<Subject, Waiters>,
    /// What has changed since the last [`Waits::take_affected`], if a request waits for it.
    marks: HashSet<Subject>,
}

/// A subject for which somebody waits.
#[derive(Default)]
struct Waiters {
    connections: BTreeSet<u64>,
    /// The number of the last version that has changed it. 0 if none has while somebody waited.
    changed: u64,
}

/// The wait of one request, until it is dropped.
pub(crate) struct Wait {
    waits: Arc<Waits>,
    worker: usize,
    subject: Subject,
    connection: u64,
    /// The number of the version whose content the client has. What came after it is news.
    seen: u64,
    pub(crate) since: Instant,
}

impl Waits {
    pub(crate) fn new(server: Handle, workers: usize) -> Arc<Self> {
        let workers = (0..workers).map(|_| Mutex::default()).collect();
        Arc::new(Self { server, workers, count: AtomicUsize::new(0) })
    }

    /// What the list calls with the step to each new version.
    pub(crate) fn listener(self: &Arc<Self>) -> ChangeListener {
        let waits = Arc::clone(self);
        Box::new(move |step| waits.mark(step))
    }

    /// Adds a request. `seen`: the number of the version that its client has. Decide it again after
    /// that: a change may have come before.
    pub(crate) fn add(
        self: &Arc<Self>,
        worker: usize,
        connection: u64,
        subject: Subject,
        seen: u64,
    ) -> Wait {
        let mut entries = self.lock(worker);
        entries.subjects.entry(subject.clone()).or_default().connections.insert(connection);
        self.count.fetch_add(1, Relaxed);
        let since = Instant::now();
        Wait { waits: Arc::clone(self), worker, subject, connection, seen, since }
    }

    /// Marks what a new version of the list has changed, and notifies the workers for which that is
    /// news. Without requests that wait, this takes no lock.
    ///
    /// Call this when the new version can be read already. It may overlook a request that is
    /// added at the same time. Such a request is decided after it was added, and finds the
    /// new version: the lock around the list orders its read after the publication.
    pub(crate) fn mark(&self, step: &Step<'_>) {
        if self.count.load(Relaxed) == 0 {
            return;
        }
        for worker in 0..self.workers.len() {
            if self.mark_for(worker, step) {
                self.server.notify(worker);
            }
        }
    }

    /// True if the worker has to be notified.
    fn mark_for(&self, worker: usize, step: &Step<'_>) -> bool {
        let mut changed = vec![Subject::List];
        let mut before = step.before;
        for edit in step.edits {
            // Until an edit changes what a name leads to, it leads to the same as in `before`.
            let concerned = self.concerned(worker, edit).into_iter();
            changed.extend(concerned.filter(|subject| match subject {
                Subject::List => false,
                Subject::Color(name) => before.is_none_or(|list| edit.changes(list, name)),
            }));
            if let Edit::ReplaceAll(list) = edit {
                before = Some(list);
            }
        }
        let mut entries = self.lock(worker);
        let Entries { subjects, marks } = &mut *entries;
        let had_marks = !marks.is_empty();
        for subject in changed {
            if let Some(entry) = subjects.get_mut(&subject) {
                entry.changed = entry.changed.max(step.number);
                marks.insert(subject);
            }
        }
        !had_marks && !marks.is_empty()
    }

    /// Those subjects for which somebody waits that an edit may change.
    fn concerned(&self, worker: usize, edit: &Edit) -> Vec<Subject> {
        let subject = edit.color().map(|color| Subject::Color(color.name().into()));
        let subjects = &self.lock(worker).subjects;
        match subject {
            Some(subject) => Vec::from_iter(Some(subject).filter(|it| subjects.contains_key(it))),
            None => subjects.keys().cloned().collect(),
        }
    }

    /// The connections of a worker whose requests wait for something that was marked since the last
    /// call, each once.
    pub(crate) fn take_affected(&self, worker: usize) -> Vec<u64> {
        let mut entries = self.lock(worker);
        // As in most passes.
        if entries.marks.is_empty() {
            return Vec::new();
        }
        let marks = take(&mut entries.marks);
        let affected = marks.iter().filter_map(|subject| entries.subjects.get(subject));
        affected.flat_map(|entry| &entry.connections).copied().collect()
    }

    /// Has all requests that wait decided again, though nothing has changed.
    pub(crate) fn mark_all(&self) {
        for worker in 0..self.workers.len() {
            {
                let Entries { subjects, marks } = &mut *self.lock(worker);
                marks.extend(subjects.keys().cloned());
            }
            self.server.notify(worker);
        }
    }

    pub(crate) fn workers(&self) -> usize {
        self.workers.len()
    }

    /// How many requests wait.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    fn lock(&self, worker: usize) -> MutexGuard<'_, Entries> {
        self.workers[worker].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wait {
    /// Whether the subject has changed since the version that the client has, even if it was
    /// changed back. `number`: that of the current version.
    pub(crate) fn is_changed(&self, number: u64) -> bool {
        let entries = self.waits.lock(self.worker);
        match (&self.subject, entries.subjects.get(&self.subject)) {
            (Subject::List, _) => number > self.seen,
            (Subject::Color(_), entry) => entry.is_some_and(|entry| entry.changed > self.seen),
        }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let mut entries = self.waits.lock(self.worker);
        if let Some(entry) = entries.subjects.get_mut(&self.subject) {
            entry.connections.remove(&self.connection);
            if entry.connections.is_empty() {
                entries.subjects.remove(&self.subject);
                // A mark for nobody would silence later ones: only the first notifies.
                entries.marks.remove(&self.subject);
            }
        }
        self.waits.count.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use bounded_http::Limits;

    use super::*;
    use crate::store::{Color, ColorList};

    /// One commit may have both.
    #[test]
    fn edits_after_a_new_list_are_those_of_that_list() {
        let waits = Waits::new(Handle::new(1, Limits::default()).unwrap(), 1);
        let _wait = waits.add(0, 1, Subject::Color("red".into()), 0);
        let red = |value: &str| Color::new("red", value);
        let [before, list] = [1, 5].map(|id| ColorList::from_iter([(id, red("1"))]));
        let edits = [Edit::ReplaceAll(list), Edit::Update(5, red("2"))];
        for (edits, is_news) in [(&edits[..1], false), (&edits, true)] {
            let step = Step { number: 1, before: Some(&before), edits };
            assert_eq!(waits.mark_for(0, &step), is_news);
        }
    }

    /// Threads that publish versions one after the other may mark them in another order.
    #[test]
    fn a_version_that_is_marked_late_hides_none_after_it() {
        let waits = Waits::new(Handle::new(1, Limits::default()).unwrap(), 1);
        let wait = waits.add(0, 1, Subject::Color("red".into()), 1);
        let edits = [Edit::Append(1, Color::new("red", "#f00"))];
        for number in [2, 1] {
            waits.mark_for(0, &Step { number, before: None, edits: &edits });
        }
        assert!(wait.is_changed(2));
    }

    /// Also those that the worker has not taken.
    #[test]
    fn marks_end_with_the_last_who_waits() {
        let waits = Waits::new(Handle::new(1, Limits::default()).unwrap(), 1);
        let red = Subject::Color("red".into());
        let edits = [Edit::Append(1, Color::new("red", "#f00"))];
        let mark = || waits.mark_for(0, &Step { number: 1, before: None, edits: &edits });
        for _ in 0..2 {
            let one = waits.add(0, 1, red.clone(), 0);
            assert!(mark() && !mark(), "the first mark alone notifies the worker");
            let other = waits.add(0, 2, red.clone(), 0);
            drop(one);
            assert!(!mark(), "somebody else waits for the same");
            drop(other);
            waits.mark_all();
            assert!(!mark(), "nobody waits");
        }
    }
}
