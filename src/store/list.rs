//! The list that everybody sees: one mutex around the colors, which all workers share. Knows no disk.

use std::mem::replace;
use std::sync::atomic::{AtomicUsize, Ordering::Acquire, Ordering::Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::change::{Change, Outcome};
use super::colors::{Colors, Edit};
use super::envelope::{self, Parts};
use super::retired::Retired;
use crate::http::{EntityTag, Representation};

/// Parts of the envelope made before others get the lock, in the first of several rounds: about a millisecond.
const PARTS_PER_ROUND: usize = 16;

#[derive(Debug)]
pub(crate) struct SharedList {
    current: Mutex<Current>,
    /// How many representations were withdrawn so far.
    withdrawn: AtomicUsize,
}

#[derive(Debug)]
struct Current {
    colors: Colors,
    parts: Parts,
    /// Made by the first reader after an edit.
    envelope: Option<Arc<Representation>>,
    /// How many edits there were.
    version: u64,
    retired: Retired,
}

impl SharedList {
    pub(super) fn new(colors: Colors) -> Self {
        let parts = Parts::new(colors.len());
        let current = Current { colors, parts, envelope: None, version: 0, retired: Retired::default() };
        Self { current: Mutex::new(current), withdrawn: AtomicUsize::new(0) }
    }

    /// Poisoning is ignored: nothing that is done under the lock is known to panic.
    fn lock(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().colors.len()
    }

    /// The number of colors and the length of the envelope in bytes, without making it.
    pub(crate) fn size(&self) -> (usize, usize) {
        let current = self.lock();
        let colors = current.colors.len();
        // 11 bytes are the envelope's own, and a comma is between two colors
        (colors, 11 + current.colors.bytes() + colors.saturating_sub(1))
    }

    pub(crate) fn first(&self, name: &str) -> Option<Arc<Representation>> {
        self.lock().colors.find(name).map(|(_, color)| Arc::clone(&color.json))
    }

    /// How many representations were withdrawn so far: when it has grown, connections that send from them are to be closed.
    pub(crate) fn withdrawn(&self) -> usize {
        self.withdrawn.load(Acquire)
    }

    /// The collection envelope of the specification. A long one is joined without the lock.
    pub(crate) fn envelope(&self) -> Arc<Representation> {
        let mut limit = PARTS_PER_ROUND;
        let (parts, version) = loop {
            let mut current = self.lock();
            let Current { colors, parts, envelope, version, .. } = &mut *current;
            if let Some(envelope) = envelope {
                return Arc::clone(envelope);
            }
            if let Some(parts) = parts.make_missing(colors.as_slice(), limit) {
                break (parts, *version);
            }
            // twice as many each time: edits between the rounds make parts missing again, and this has to end
            limit *= 2;
        };
        let envelope = Arc::new(Representation::new(envelope::join(&parts)));
        {
            let mut current = self.lock();
            if current.version == version {
                return Arc::clone(current.envelope.get_or_insert(envelope));
            }
            current.retired.add(&envelope);
            self.withdraw_oldest(&mut current);
        }
        envelope
    }

    /// Makes a change, or finds that it cannot be made.
    pub(super) fn apply(&self, change: &Change) -> Outcome {
        if change.needs_list_tag() {
            // most likely still the current one below, and made without the lock
            self.envelope();
        }
        let (outcome, stale) = {
            let mut current = self.lock();
            let (outcome, edit) = change.decide(&current.colors, || current.tag());
            (outcome, edit.map(|edit| self.apply_edits(&mut current, [edit])))
        };
        // freed without the lock: it may be long
        drop(stale);
        outcome
    }

    /// Makes edits that were decided for this list.
    pub(super) fn publish(&self, edits: impl IntoIterator<Item = Edit>) {
        let stale = { self.apply_edits(&mut self.lock(), edits) };
        drop(stale);
    }

    /// Replaces the whole list.
    pub(super) fn replace(&self, colors: Colors) {
        let stale = {
            let mut current = self.lock();
            current.version += 1;
            current.parts = Parts::new(colors.len());
            (self.apply_edits(&mut current, []), replace(&mut current.colors, colors))
        };
        drop(stale);
    }

    /// Makes edits. Returns the envelope of before, if one was made.
    fn apply_edits(&self, current: &mut Current, edits: impl IntoIterator<Item = Edit>) -> Option<Arc<Representation>> {
        let stale = current.envelope.take();
        for edit in edits {
            current.parts.follow(&edit);
            current.version += 1;
            if let Edit::Replace(_, before) | Edit::Insert(_, before) = current.colors.apply(edit) {
                current.retired.add(&before.json);
            }
        }
        if let Some(envelope) = stale.as_ref().filter(|envelope| Arc::strong_count(envelope) > 1) {
            current.retired.add(envelope);
        }
        self.withdraw_oldest(current);
        stale
    }

    fn withdraw_oldest(&self, current: &mut Current) {
        // a worker that reads the new count reads the marks as well
        self.withdrawn.fetch_add(current.retired.withdraw_oldest(), Release);
    }
}

impl Current {
    /// The tag of the envelope.
    fn tag(&self) -> EntityTag {
        match &self.envelope {
            Some(envelope) => envelope.tag(),
            None => EntityTag::of(&envelope::of(self.colors.as_slice())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Action;
    use super::super::color::Color;
    use super::*;
    use crate::http::Conditions;

    fn list(colors: usize) -> SharedList {
        SharedList::new(Colors::new((0..colors).map(|number| Color::new(number.to_string(), "")).collect()))
    }

    fn delete(name: &str) -> Change {
        Change { action: Action::Delete(name.to_owned()), conditions: Conditions::default() }
    }

    #[test]
    fn the_envelope_is_kept_between_changes() {
        let list = list(3);
        let kept = list.envelope();
        assert_eq!(list.apply(&delete("none")), Outcome::NotFound);
        assert!(Arc::ptr_eq(&kept, &list.envelope()));
        assert_ne!(list.apply(&delete("1")), Outcome::NotFound);
        assert_eq!(str::from_utf8(list.envelope().bytes()).unwrap(), r#"{"data":[{"name":"0","value":""},{"name":"2","value":""}]}"#);
    }

    #[test]
    fn envelopes_that_nobody_reads_are_freed_and_withdraw_none() {
        let list = list(5000);
        for number in 0..2000 {
            list.envelope();
            list.apply(&delete(&number.to_string()));
        }
        assert_eq!(list.withdrawn(), 0);
    }

    #[test]
    fn the_oldest_of_those_that_are_read_are_withdrawn() {
        let long = "x".repeat(20 * 1024 * 1024);
        let list = SharedList::new(Colors::new(vec![Color::new("long", &long)]));
        let versions: Vec<_> = (0..8)
            .map(|number| {
                let version = list.envelope();
                list.publish([Edit::Insert(list.len(), Color::new(number.to_string(), ""))]);
                version
            })
            .collect();
        let withdrawn = versions.iter().filter(|version| version.is_withdrawn()).count();
        assert_eq!((list.withdrawn(), withdrawn), (4, 4));
    }

    #[test]
    fn another_list_can_take_its_place() {
        let first = list(3);
        let before = first.envelope();
        first.replace(Colors::new(vec![]));
        assert_eq!((first.len(), first.envelope().bytes()), (0, &br#"{"data":[]}"#[..]));
        assert_ne!(before.tag(), first.envelope().tag());
    }
}
