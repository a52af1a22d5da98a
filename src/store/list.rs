//! The list that everybody sees: one mutex around its current version, which all workers share.
//! Knows no disk.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::replace;
use std::sync::atomic::{
    AtomicUsize,
    Ordering::{Acquire, Release},
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Change, Color, ColorList, Edit, Outcome};
use crate::representation::Representation;

/// The limit for old representations, which clients are still being sent and the list does not have
/// any more, is at least this many times the longest of them. So a single one is never withdrawn.
const LONGEST_FACTOR: usize = 2;

/// How often [`SharedList::change_list`] tries a change. Each try decides without the lock, and is
/// in vain if the list has changed meanwhile.
const TRIES_MAX: usize = 3;

pub(crate) struct SharedList {
    current: Mutex<ColorList>,
    /// What clients have received a part of, in the order in which they did: one entry for each
    /// [`PartlySent`].
    partly_sent: Mutex<BTreeMap<u64, Arc<Representation>>>,
    /// How many representations were withdrawn so far.
    withdrawn: AtomicUsize,
    /// Limit for old representations in bytes, unless [`LONGEST_FACTOR`] makes it higher.
    old_max: usize,
    notify: ChangeListener,
}

/// A client that has received a part of a representation, until this is dropped.
pub(crate) struct PartlySent {
    list: Arc<SharedList>,
    number: u64,
}

/// Called after each new version is there to be read, with the edits that have led to it. If the
/// list was replaced, or another program has changed it, that is [`Edit::ReplaceAll`].
pub(crate) type ChangeListener = Box<dyn Fn(&[Edit]) + Send + Sync>;

impl SharedList {
    pub(super) fn new(colors: ColorList, old_max: usize, notify: ChangeListener) -> Self {
        let current = Mutex::new(colors);
        Self {
            current,
            partly_sent: Mutex::default(),
            withdrawn: AtomicUsize::new(0),
            old_max,
            notify,
        }
    }

    /// Ignores that the lock is poisoned. The list is whole even then: an edit that is applied
    /// under the lock was decided under it, fits the list, and does not panic.
    fn lock(&self) -> MutexGuard<'_, ColorList> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A clone of the current version.
    pub(crate) fn version(&self) -> ColorList {
        self.lock().clone()
    }

    /// The number of colors, and the length of the envelope in bytes.
    pub(crate) fn size(&self) -> (usize, usize) {
        let current = self.lock();
        (current.len(), current.envelope_len())
    }

    /// The first color of this name.
    pub(crate) fn find(&self, name: &str) -> Option<Color> {
        self.lock().find(name).map(|(_, color)| color.clone())
    }

    /// The envelope, which is made here if the list is short. `None` if a long list has none yet.
    pub(crate) fn ready_envelope(&self) -> Option<Arc<Representation>> {
        let short = {
            let current = self.lock();
            match current.ready_envelope() {
                Some(envelope) => return Some(Arc::clone(envelope)),
                None if !current.is_short() => return None,
                None => current.clone(),
            }
        };
        Some(Arc::clone(short.envelope()))
    }

    /// Notes that a client has received a part of a representation, and waits for the rest. `None`
    /// if that is never withdrawn.
    pub(crate) fn note_partly_sent(
        self: &Arc<Self>,
        representation: &Arc<Representation>,
    ) -> Option<PartlySent> {
        if !representation.may_be_withdrawn() {
            return None;
        }
        let number = {
            let mut partly_sent = self.lock_partly_sent();
            let number = partly_sent.last_key_value().map_or(0, |(last, _)| last + 1);
            partly_sent.insert(number, Arc::clone(representation));
            number
        };
        self.withdraw_old();
        Some(PartlySent { list: Arc::clone(self), number })
    }

    fn lock_partly_sent(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Representation>>> {
        self.partly_sent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many representations were withdrawn so far. When this changes, a worker has to look
    /// whether its connections send one of them.
    pub(crate) fn withdrawn(&self) -> usize {
        self.withdrawn.load(Acquire)
    }

    /// Withdraws old representations if they take more than `old_max` and [`LONGEST_FACTOR`] times
    /// the longest. Begins with those that were partly sent first, and ends at half of this limit.
    /// The workers then close the connections that send those withdrawn.
    fn withdraw_old(&self) {
        let mut sent: Vec<_> = {
            let partly_sent = self.lock_partly_sent();
            let bytes: usize = partly_sent.values().map(|sent| sent.bytes().len()).sum();
            if bytes <= self.old_max {
                return;
            }
            partly_sent.values().cloned().collect()
        };
        // Many clients may be sent the same.
        let mut known = BTreeSet::new();
        sent.retain(|sent| known.insert(Arc::as_ptr(sent)));
        let version = self.version();
        let is_old = |sent: &&Arc<Representation>| !sent.is_withdrawn() && !version.contains(sent);
        let old: Vec<_> = sent.iter().filter(is_old).collect();
        let lengths = old.iter().map(|representation| representation.bytes().len());
        let max = self.old_max.max(LONGEST_FACTOR * lengths.clone().max().unwrap_or(0));
        let mut bytes: usize = lengths.sum();
        if bytes <= max {
            return;
        }
        for representation in old {
            if bytes <= max / 2 {
                break;
            }
            representation.withdraw();
            self.withdrawn.fetch_add(1, Release);
            bytes -= representation.bytes().len();
        }
    }

    /// Whether a condition may make a change slow to decide on: it needs the tag of a long list,
    /// which may have to be computed. A change of the whole list may take long without a condition.
    pub(crate) fn takes_long(&self, change: &Change) -> bool {
        change.needs_tag_of_list() && !self.lock().is_short()
    }

    /// Makes a change of a list in memory, or finds that it cannot be made.
    pub(crate) fn change(&self, change: &Change) -> Outcome {
        // To compare a new list with the current one takes as long as to compute a tag.
        if change.needs_tag_of_list() || change.new_list().is_some() {
            self.change_list(change)
        } else {
            self.change_color(change)
        }
    }

    /// Decides on a change under the lock, and makes it.
    fn change_color(&self, change: &Change) -> Outcome {
        let (outcome, edits, before) = {
            let mut current = self.lock();
            let (outcome, edits) = change.decide(&current);
            let before: Vec<_> = edits.iter().map(|edit| current.apply(edit)).collect();
            (outcome, edits, before)
        };
        if !edits.is_empty() {
            (self.notify)(&edits);
        }
        // Freed without the lock, since that may take long: `before` has the envelope too.
        drop(before);
        self.withdraw_old();
        outcome
    }

    /// Decides on a change without the lock, and tries again if the list has changed meanwhile.
    fn change_list(&self, change: &Change) -> Outcome {
        for _ in 0..TRIES_MAX {
            let before = self.version();
            let (mut outcome, edits) = change.decide(&before);
            if edits.is_empty() {
                return outcome;
            }
            let mut version = before.clone();
            edits.iter().for_each(|edit| drop(version.apply(edit)));
            outcome.set_list(&version);
            let is_current = {
                let mut current = self.lock();
                let is_current = current.is_same_version(&before);
                if is_current {
                    // This frees nothing: `before` shares the memory of the current version.
                    *current = version;
                }
                is_current
            };
            if is_current {
                (self.notify)(&edits);
                self.withdraw_old();
                return outcome;
            }
        }
        match change.new_list() {
            Some(list) if !change.needs_tag_of_list() => {
                let before = Some(self.size().0);
                self.replace(list.clone());
                Outcome::ReplacedAll { list: list.clone(), before }
            }
            _ => Outcome::Contended,
        }
    }

    /// Publishes a list in place of the current one.
    pub(super) fn replace(&self, colors: ColorList) {
        self.publish(colors.clone(), &[Edit::ReplaceAll(colors)]);
    }

    /// Publishes the version to which these edits have led. A change of another thread that the
    /// version does not have is lost.
    pub(super) fn publish(&self, version: ColorList, edits: &[Edit]) {
        let before = { replace(&mut *self.lock(), version) };
        (self.notify)(edits);
        self.withdraw_old();
        // Freed without the lock: to free a long list takes long.
        drop(before);
    }
}

impl Drop for PartlySent {
    fn drop(&mut self) {
        // Freed without the lock: a long representation takes long.
        let sent = { self.list.lock_partly_sent().remove(&self.number) };
        drop(sent);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::thread;
    use std::time::{Duration, Instant};

    use super::super::{Action, Change};
    use super::*;
    use crate::conditions::{Conditions, Tag};

    impl SharedList {
        fn envelope(&self) -> Arc<Representation> {
            Arc::clone(self.version().envelope())
        }
    }

    const MEMORY_MAX: usize = 32 * 1024 * 1024;

    fn list(colors: usize) -> SharedList {
        SharedList::new(
            ColorList::from_iter((0..colors).map(|number| Color::new(&number.to_string(), ""))),
            MEMORY_MAX,
            Box::new(|_| ()),
        )
    }

    fn delete(name: &str) -> Change {
        Change::new(Action::Delete(name.to_owned()), Conditions::default())
    }

    /// A change that needs the tag of the list.
    fn replace_unless_empty(colors: ColorList) -> Change {
        let conditions = Conditions::parse(false, None, Some(&Tag::of(b"").to_string()));
        Change::new(Action::ReplaceAll(colors), conditions)
    }

    /// Publishes a version with one more color.
    fn append(list: &SharedList, name: &str) {
        let mut version = list.version();
        version.apply(&Edit::Append(version.next_id().unwrap(), Color::new(name, "")));
        list.replace(version);
    }

    #[test]
    fn the_envelope_is_kept_between_changes() {
        let list = list(3);
        let kept = list.envelope();
        assert_eq!(list.change(&delete("none")), Outcome::NotFound);
        assert!(Arc::ptr_eq(&kept, &list.envelope()));
        assert_ne!(list.change(&delete("1")), Outcome::NotFound);
        let expected =
            "{\"data\":[{\"name\":\"0\",\"value\":\"\"},{\"name\":\"2\",\"value\":\"\"}]}\n";
        assert_eq!(str::from_utf8(list.envelope().bytes()).unwrap(), expected);
    }

    #[test]
    fn old_representations_that_take_too_much_are_withdrawn_and_the_current_one_never() {
        let long = "x".repeat(1000);
        let duplicates = (0..2).map(|_| Color::new("long", &long));
        // Old ones may take 5,200 bytes: two envelopes, which are longer than 2,000 bytes each.
        let list = SharedList::new(duplicates.collect(), 5200, Box::new(|_| ()));
        let list = Arc::new(list);
        let version = list.version();
        let color = |id| Arc::clone(&version.get(id).unwrap().json);
        let current = [color(1), color(2)];
        let _sent: Vec<_> =
            current.iter().map(|color| list.note_partly_sent(color).unwrap()).collect();
        let page = Arc::new(Representation::new(long.into_bytes()));
        assert!(list.note_partly_sent(&page).is_none());
        let mut old = Vec::new();
        for (number, expected) in [0, 0, 2, 2, 4].into_iter().enumerate() {
            let envelope = list.envelope();
            // two clients are sent the same
            let sent = [(); 2].map(|()| list.note_partly_sent(&envelope));
            old.push((envelope, sent));
            append(&list, &number.to_string());
            let withdrawn: Vec<_> = old.iter().map(|(old, _)| old.is_withdrawn()).collect();
            let first: Vec<_> = (0..old.len()).map(|place| place < expected).collect();
            assert_eq!(withdrawn, first);
        }
        assert!(!current.iter().any(|color| color.is_withdrawn()));
        // what nobody is sent takes nothing
        drop(old);
        assert_eq!(list.lock_partly_sent().len(), 2);
        let envelope = list.envelope();
        let _sent = list.note_partly_sent(&envelope);
        append(&list, "last");
        assert!(!envelope.is_withdrawn());
    }

    #[test]
    fn one_old_representation_may_be_sent_to_its_end() {
        let colors = [Color::new("a", "")].into_iter().collect();
        let list = Arc::new(SharedList::new(colors, 0, Box::new(|_| ())));
        let sent = [0, 1].map(|number: usize| {
            let envelope = list.envelope();
            let sent = list.note_partly_sent(&envelope);
            append(&list, &number.to_string());
            (envelope, sent)
        });
        assert_eq!(sent.map(|(envelope, _)| envelope.is_withdrawn()), [false, false]);
    }

    #[test]
    fn another_list_can_take_its_place() {
        let list = list(3);
        let before = list.envelope();
        list.replace(ColorList::default());
        assert_eq!((list.version().len(), list.envelope().bytes()), (0, &b"{\"data\":[]}\n"[..]));
        assert_ne!(before.tag(), list.envelope().tag());
    }

    #[test]
    fn a_condition_on_a_list_that_others_change_all_the_time_is_given_up() {
        let list = list(5_000);
        let is_over = AtomicBool::new(false);
        let update = |value| Action::Update("0".to_owned(), Some(Color::new("0", value)));
        let updates = ["1", "2"].map(|value| Change::new(update(value), Conditions::default()));
        let replace = replace_unless_empty(list.version());
        let deadline = Instant::now() + Duration::from_secs(60);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    updates.iter().for_each(|update| drop(list.change(update)));
                    // The mutex is not fair.
                    thread::yield_now();
                }
            });
            let mut outcome = list.change(&replace);
            while outcome != Outcome::Contended && Instant::now() < deadline {
                outcome = list.change(&replace);
            }
            is_over.store(true, Relaxed);
            assert_eq!(outcome, Outcome::Contended);
        });
        assert!(matches!(list.change(&replace), Outcome::ReplacedAll { .. }));
    }

    #[test]
    fn a_condition_on_a_long_list_takes_long() {
        for (colors, takes_long) in [(3, false), (5_000, true)] {
            let list = list(colors);
            let replace = replace_unless_empty(ColorList::default());
            assert_eq!(list.takes_long(&replace), takes_long);
            assert!(!list.takes_long(&delete("1")));
        }
    }
}
