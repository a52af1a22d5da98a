//! The list that everybody sees: one mutex around its current version, which all workers share.
//! Knows no disk.

use std::collections::HashSet;
use std::mem::replace;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::change::{Change, Outcome};
use super::colors::{Colors, Removed};
use super::retired::{Retired, TRACKED_BYTES_MIN};
use crate::http::Representation;

#[derive(Debug)]
pub(crate) struct SharedList {
    current: Mutex<Colors>,
    retired: Mutex<Retired>,
}

impl SharedList {
    /// `retired_max`: bytes of old representations that are still being sent.
    pub(super) fn new(colors: Colors, retired_max: usize) -> Self {
        Self { current: Mutex::new(colors), retired: Mutex::new(Retired::new(retired_max)) }
    }

    /// The list as it is now.
    pub(crate) fn version(&self) -> Colors {
        lock(&self.current).clone()
    }

    pub(crate) fn len(&self) -> usize {
        lock(&self.current).len()
    }

    /// The number of colors and the length of the envelope in bytes, without making it.
    pub(crate) fn size(&self) -> (usize, usize) {
        let current = lock(&self.current);
        (current.len(), current.envelope_len())
    }

    pub(crate) fn first(&self, name: &str) -> Option<Arc<Representation>> {
        lock(&self.current).find(name).map(|(_, json)| Arc::clone(json))
    }

    /// The collection envelope of the specification.
    pub(crate) fn envelope(&self) -> Arc<Representation> {
        let version = {
            let current = lock(&self.current);
            match current.made_envelope() {
                Some(envelope) => return Arc::clone(envelope),
                None => current.clone(),
            }
        };
        self.envelope_of(&version)
    }

    /// The envelope of a version, which need not be the current one any more.
    pub(crate) fn envelope_of(&self, version: &Colors) -> Arc<Representation> {
        // without the lock: it may take long
        let envelope = Arc::clone(version.envelope());
        let is_current = { lock(&self.current).is_same_version(version) };
        if !is_current {
            self.retire(long([&envelope].into_iter()));
        }
        envelope
    }

    /// Whether this representation is to be sent no further.
    pub(crate) fn is_withdrawn(&self, representation: &Arc<Representation>) -> bool {
        lock(&self.retired).is_withdrawn(representation)
    }

    /// Makes a change, or finds that it cannot be made. The version that it is decided on has to
    /// stay the current one meanwhile.
    pub(super) fn change(&self, change: &Change) -> Outcome {
        // without the lock: it may take long
        let (outcome, edit) = change.decide(&self.version());
        if let Some(edit) = edit {
            let (envelope, removed) = {
                let mut current = lock(&self.current);
                // in place: an edit of a clone would copy what both share
                (current.made_envelope().cloned(), current.apply(edit))
            };
            self.free(envelope, vec![removed]);
        }
        outcome
    }

    /// Has everybody see this version, which came of the current one by edits that removed this.
    pub(super) fn publish(&self, version: Colors, removed: Vec<Removed>) {
        let before = { replace(&mut *lock(&self.current), version) };
        let envelope = before.made_envelope().cloned();
        drop(before);
        self.free(envelope, removed);
    }

    /// Frees what the list does not have any more, but for what clients are still reading.
    fn free(&self, envelope: Option<Arc<Representation>>, removed: Vec<Removed>) {
        let old = long(removed.iter().flat_map(Removed::representations).chain(&envelope));
        drop((envelope, removed));
        self.retire(old);
    }

    /// Has everybody see another list, which may have some of the same colors.
    pub(super) fn replace(&self, colors: Colors) {
        let kept: HashSet<_> = long(colors.representations()).iter().map(Weak::as_ptr).collect();
        let before = { replace(&mut *lock(&self.current), colors) };
        let mut old = long(before.representations().chain(before.made_envelope()));
        old.retain(|old| !kept.contains(&old.as_ptr()));
        drop(before);
        self.retire(old);
    }

    /// Limits what clients are still reading of representations that the list does not have any
    /// more.
    fn retire(&self, old: Vec<Weak<Representation>>) {
        if !old.is_empty() {
            lock(&self.retired).add(old);
        }
    }
}

/// Those that are long enough to be tracked when they are old.
fn long<'a>(
    representations: impl Iterator<Item = &'a Arc<Representation>>,
) -> Vec<Weak<Representation>> {
    representations
        .filter(|json| json.bytes().len() >= TRACKED_BYTES_MIN)
        .map(Arc::downgrade)
        .collect()
}

/// Poisoning is ignored: nothing that is done under these locks is known to panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::super::color::Color;
    use super::super::colors::Edit;
    use super::super::{Action, Change};
    use super::*;
    use crate::http::Conditions;

    const RETIRED_MAX: usize = 64 * 1024 * 1024;

    fn list(colors: usize) -> SharedList {
        SharedList::new(
            Colors::from_iter((0..colors).map(|number| Color::new(&number.to_string(), ""))),
            RETIRED_MAX,
        )
    }

    fn delete(name: &str) -> Change {
        Change { action: Action::Delete(name.to_owned()), conditions: Conditions::default() }
    }

    /// Publishes a version with one more color.
    fn append(list: &SharedList, name: &str) {
        let mut version = list.version();
        let color = Color { id: version.next_id(), ..Color::new(name, "") };
        let removed = version.apply(Edit::Append(color));
        list.publish(version, vec![removed]);
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
    fn envelopes_that_nobody_reads_are_freed_and_withdraw_none() {
        let list = list(5000);
        for number in 0..2000 {
            list.envelope();
            list.change(&delete(&number.to_string()));
        }
        assert!(lock(&list.retired).have_withdrawn_none());
    }

    /// A list of one color of 20 MiB.
    fn long_list() -> SharedList {
        SharedList::new(
            Colors::from_iter([Color::new("long", &"x".repeat(20 * 1024 * 1024))]),
            RETIRED_MAX,
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
        let withdrawn = versions.iter().filter(|envelope| list.is_withdrawn(envelope)).count();
        assert_eq!(withdrawn, 4);
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
        let withdrawn = envelopes.iter().filter(|envelope| list.is_withdrawn(envelope)).count();
        assert_eq!(withdrawn, 4);
    }

    #[test]
    fn colors_that_another_list_has_as_well_are_not_withdrawn() {
        let list = long_list();
        let reader = list.first("long").unwrap();
        for _ in 0..8 {
            list.replace(Colors::from_iter(list.version().iter().cloned()));
        }
        assert!(!list.is_withdrawn(&reader));
    }

    #[test]
    fn another_list_can_take_its_place() {
        let list = list(3);
        let before = list.envelope();
        list.replace(Colors::default());
        assert_eq!((list.len(), list.envelope().bytes()), (0, &b"{\"data\":[]}\n"[..]));
        assert_ne!(before.tag(), list.envelope().tag());
    }
}
