//! The list that everybody sees: one mutex around its current version, which all workers share.
//! Knows no disk.

use std::collections::{BTreeSet, HashSet};
use std::mem::replace;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::{Change, Color, Colors, Outcome};
use crate::http::Representation;

/// Old representations may take more memory than the limit: this many times the longest of them.
const LONGEST_FACTOR: usize = 2;

/// Bytes from which on a representation is tracked; each connection may have a shorter one.
const LIMITED_BYTES_MIN: usize = 4096;

/// The tracked representations are examined whenever clients have read new ones of this part of the
/// limit, since that takes time, and most of those in a list of many long colors are not old.
const EXAMINED_PART: usize = 8;

/// How often the tag of the list is made for a change that needs it: other clients may change the
/// list all the time.
const TAG_TRIES_MAX: usize = 3;

/// Bytes of an envelope that is made, with its tag, in a fifth of a millisecond.
const SHORT_LIST_BYTES: usize = 64 * 1024;

pub(crate) struct SharedList {
    current: Mutex<Colors>,
    tracking: Mutex<Tracking>,
    /// Bytes that old representations may take, however often the list changes.
    old_max: usize,
    /// How many were withdrawn because all of them took more.
    withdrawals: AtomicUsize,
}

/// Long representations that clients have read, and may still be reading.
#[derive(Default)]
struct Tracking {
    /// The oldest first.
    tracked: Vec<Tracked>,
    /// Bytes of those that were added since all were examined.
    new_bytes: usize,
}

struct Tracked {
    representation: Weak<Representation>,
    /// The name of the color; `None` for an envelope.
    name: Option<String>,
}

impl SharedList {
    /// `old_max`: bytes of old representations that are still being sent.
    pub(super) fn new(colors: Colors, old_max: usize) -> Self {
        let (current, tracking) = (Mutex::new(colors), Mutex::default());
        Self { current, tracking, old_max, withdrawals: AtomicUsize::new(0) }
    }

    /// The list as it is now.
    pub(crate) fn version(&self) -> Colors {
        lock(&self.current).clone()
    }

    /// The number of colors and the length of the envelope in bytes, without making it.
    pub(crate) fn size(&self) -> (usize, usize) {
        let current = lock(&self.current);
        (current.len(), current.envelope_len())
    }

    /// The color that a path with this name leads to.
    pub(crate) fn first(&self, name: &str) -> Option<Color> {
        let found = { lock(&self.current).find(name).map(|(_, color)| color.clone()) };
        found.inspect(|color| self.note_sent(color))
    }

    /// The envelope of the list, if it is made and its tag is known, or both take no time.
    pub(crate) fn ready_envelope(&self) -> Option<Arc<Representation>> {
        let short = {
            let current = lock(&self.current);
            match current.made_envelope() {
                Some(envelope) => return envelope.has_tag().then(|| Arc::clone(envelope)),
                None if current.envelope_len() > SHORT_LIST_BYTES => return None,
                None => current.clone(),
            }
        };
        let envelope = self.envelope_of(&short);
        envelope.tag();
        Some(envelope)
    }

    /// The collection envelope of a version, which need not be the current one any more.
    pub(crate) fn envelope_of(&self, version: &Colors) -> Arc<Representation> {
        // without the lock: it may take long
        let envelope = version.envelope();
        self.track(envelope, || None);
        Arc::clone(envelope)
    }

    /// Notes that a color is sent, which the list may not have any more before that ends.
    pub(crate) fn note_sent(&self, color: &Color) {
        self.track(&color.json, || Some(color.name().into_owned()));
    }

    /// Tracks a representation that is sent for the first time, unless it is short.
    fn track(&self, new: &Arc<Representation>, name: impl FnOnce() -> Option<String>) {
        if new.bytes().len() < LIMITED_BYTES_MIN || !new.track() {
            return;
        }
        let mut tracking = lock(&self.tracking);
        tracking.tracked.push(Tracked { representation: Arc::downgrade(new), name: name() });
        tracking.new_bytes += new.bytes().len();
        if tracking.new_bytes >= self.old_max / EXAMINED_PART {
            self.withdraw_old(tracking);
        }
    }

    /// If the representations that are not current any more take too much memory, withdraws the
    /// oldest of them.
    fn withdraw_old(&self, mut tracking: MutexGuard<'_, Tracking>) {
        tracking.new_bytes = 0;
        // under the lock: what is published and tracked later must not be taken for old
        let version = self.version();
        tracking.tracked.retain(|tracked| tracked.representation.strong_count() > 0);
        let names: BTreeSet<&str> =
            tracking.tracked.iter().filter_map(|tracked| tracked.name.as_deref()).collect();
        let colors =
            names.iter().flat_map(|name| version.named(name)).map(|(_, color)| &color.json);
        let current: HashSet<_> = colors.chain(version.made_envelope()).map(Arc::as_ptr).collect();
        let sent = tracking.tracked.iter().filter_map(|tracked| tracked.representation.upgrade());
        let is_old = |sent: &Arc<Representation>| {
            !sent.is_withdrawn() && !current.contains(&Arc::as_ptr(sent))
        };
        let old: Vec<_> = sent.filter(is_old).collect();
        drop(tracking);
        let lengths = || old.iter().map(|old| old.bytes().len());
        let max = self.old_max.max(LONGEST_FACTOR * lengths().max().unwrap_or(0));
        let mut bytes: usize = lengths().sum();
        for old in &old {
            if bytes <= max {
                break;
            }
            bytes -= old.bytes().len();
            old.withdraw();
            self.withdrawals.fetch_add(1, Ordering::Release);
        }
    }

    /// How many representations were withdrawn: connections that send one have to be closed.
    pub(crate) fn withdrawals(&self) -> usize {
        self.withdrawals.load(Ordering::Acquire)
    }

    /// Makes a change, or finds that it cannot be made.
    pub(super) fn make(&self, change: &Change) -> Outcome {
        for _ in 0..TAG_TRIES_MAX {
            // makes the tag, which may take long, without the lock
            if change.needs_tag_of_list
                && let (outcome, None) = change.decide(&self.version())
            {
                return outcome;
            }
            let mut current = lock(&self.current);
            let has_tag = || current.made_envelope().is_some_and(|envelope| envelope.has_tag());
            if !change.needs_tag_of_list || has_tag() {
                let (outcome, edit) = change.decide(&current);
                let removed = edit.map(|edit| current.apply(edit));
                drop(current);
                drop(removed);
                return outcome;
            }
        }
        Outcome::Contended
    }

    /// Has everybody see another list.
    pub(super) fn replace(&self, colors: Colors) {
        let before = { replace(&mut *lock(&self.current), colors) };
        drop(before);
    }
}

/// Poisoning is ignored: nothing that is done under these locks is known to panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::super::colors::Edit;
    use super::super::{Action, Change};
    use super::*;
    use crate::http::Conditions;

    impl SharedList {
        fn envelope(&self) -> Arc<Representation> {
            self.envelope_of(&self.version())
        }
    }

    const OLD_MAX: usize = 64 * 1024 * 1024;

    fn list(colors: usize) -> SharedList {
        SharedList::new(
            Colors::from_iter((0..colors).map(|number| Color::new(&number.to_string(), ""))),
            OLD_MAX,
        )
    }

    fn delete(name: &str) -> Change {
        Change::new(Action::Delete(name.to_owned()), Conditions::default())
    }

    /// Publishes a version with one more color.
    fn append(list: &SharedList, name: &str) {
        let mut version = list.version();
        version.apply(Edit::Append(version.next_id().unwrap(), Color::new(name, "")));
        list.replace(version);
    }

    #[test]
    fn the_envelope_is_kept_between_changes() {
        let list = list(3);
        let kept = list.envelope();
        assert_eq!(list.make(&delete("none")), Outcome::NotFound);
        assert!(Arc::ptr_eq(&kept, &list.envelope()));
        assert_ne!(list.make(&delete("1")), Outcome::NotFound);
        let expected =
            "{\"data\":[{\"name\":\"0\",\"value\":\"\"},{\"name\":\"2\",\"value\":\"\"}]}\n";
        assert_eq!(str::from_utf8(list.envelope().bytes()).unwrap(), expected);
    }

    #[test]
    fn envelopes_that_nobody_reads_are_freed_and_withdraw_none() {
        let list = list(5000);
        for number in 0..2000 {
            list.envelope();
            list.make(&delete(&number.to_string()));
        }
        assert_eq!((list.withdrawals(), lock(&list.tracking).tracked.len() <= 200), (0, true));
    }

    /// A list of one color of 20 MiB.
    fn long_list() -> SharedList {
        SharedList::new(
            Colors::from_iter([Color::new("long", &"x".repeat(20 * 1024 * 1024))]),
            OLD_MAX,
        )
    }

    #[test]
    fn the_oldest_of_those_that_are_read_are_withdrawn() {
        let list = long_list();
        let versions: Vec<_> = (0..8)
            .map(|number| {
                let envelope = list.envelope();
                append(&list, &number.to_string());
                envelope
            })
            .collect();
        let withdrawn: Vec<bool> = versions.iter().map(|old| old.is_withdrawn()).collect();
        assert_eq!(withdrawn, [true, true, true, true, false, false, false, false]);
        assert_eq!(list.withdrawals(), 4);
        // they do not count any more, and the others count once
        list.envelope();
        assert_eq!(list.withdrawals(), 5);
        (0..9).for_each(|_| drop(list.envelope()));
        assert_eq!(list.withdrawals(), 5);
    }

    #[test]
    fn colors_of_one_name_are_all_current() {
        let long = "x".repeat(20 * 1024 * 1024);
        let list = SharedList::new((0..5).map(|_| Color::new("dup", &long)).collect(), OLD_MAX);
        list.version().iter().for_each(|(_, color)| list.note_sent(color));
        assert_eq!(list.withdrawals(), 0);
    }

    #[test]
    fn envelopes_of_versions_that_are_not_current_any_more_are_limited_as_well() {
        let list = long_list();
        let envelopes: Vec<_> = (0..8)
            .map(|number| {
                let version = list.version();
                append(&list, &number.to_string());
                list.envelope_of(&version)
            })
            .collect();
        assert_eq!(envelopes.iter().filter(|old| old.is_withdrawn()).count(), 5);
    }

    #[test]
    fn the_current_one_is_never_withdrawn() {
        let list = long_list();
        let before = list.version();
        append(&list, "current");
        let current = list.envelope();
        let others: Vec<_> = (0..8)
            .map(|number| {
                let mut version = before.clone();
                version.apply(Edit::Append(
                    version.next_id().unwrap(),
                    Color::new(&number.to_string(), ""),
                ));
                list.envelope_of(&version)
            })
            .collect();
        assert!(!current.is_withdrawn());
        assert_eq!(others.iter().filter(|old| old.is_withdrawn()).count(), 5);
    }

    #[test]
    fn another_list_can_take_its_place() {
        let list = list(3);
        let before = list.envelope();
        list.replace(Colors::default());
        assert_eq!((list.size().0, list.envelope().bytes()), (0, &b"{\"data\":[]}\n"[..]));
        assert_ne!(before.tag(), list.envelope().tag());
    }
}
