//! The list that everybody sees: one mutex around its current version, which all workers share.
//! Knows no disk.

use std::mem::replace;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use super::{Change, Color, ColorList, Edit, Outcome};
use crate::representation::Representation;

/// How often [`SharedList::change_list`] tries a change. A try decides without the lock. If the
/// list has changed by the time it is over, it was in vain.
const TRIES_MAX: usize = 3;

pub(crate) struct SharedList {
    current: Mutex<Version>,
    /// The envelope that [`SharedList::envelope_since`] has made last, the number of its version,
    /// and when it took that.
    latest: Mutex<(Instant, u64, Weak<Representation>)>,
    notify: ChangeListener,
}

/// A list that readers see, or saw. Versions are the same if their numbers are.
#[derive(Clone)]
pub(crate) struct Version {
    /// Each version has the next number. A number means nothing to another process.
    pub(crate) number: u64,
    pub(crate) list: ColorList,
}

/// How a version came from the one before.
pub(crate) struct Step<'a> {
    /// The number of the new version.
    pub(crate) number: u64,
    /// The list before. `None` if each edit changes what its name leads to.
    pub(crate) before: Option<&'a ColorList>,
    /// [`Edit::ReplaceAll`] is among them if the edits are not known, as when another program has
    /// changed FILE, or if they would be too many.
    pub(crate) edits: &'a [Edit],
}

/// Called after each new version is published. If several threads change a list in memory, the
/// calls may come in another order than the versions.
pub(crate) type ChangeListener = Box<dyn Fn(&Step<'_>) + Send + Sync>;

impl SharedList {
    pub(crate) fn new(colors: ColorList, notify: ChangeListener) -> Self {
        Self {
            current: Mutex::new(Version { number: 0, list: colors }),
            latest: Mutex::new((Instant::now(), 0, Weak::new())),
            notify,
        }
    }

    /// Ignores that the lock is poisoned. The list is whole even then: an edit that is applied
    /// under the lock was decided under it, fits the list, and does not panic.
    fn lock(&self) -> MutexGuard<'_, Version> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A clone of the current version.
    pub(crate) fn version(&self) -> Version {
        self.lock().clone()
    }

    /// The number of the current version.
    pub(crate) fn number(&self) -> u64 {
        self.lock().number
    }

    /// The number of colors, and the length of the envelope in bytes.
    pub(crate) fn size(&self) -> (usize, usize) {
        let current = self.lock();
        (current.list.len(), current.list.envelope_len())
    }

    /// The first color of this name, and the number of the version that has it.
    pub(crate) fn find(&self, name: &str) -> Option<(u64, Color)> {
        let current = self.lock();
        current.list.find(name).map(|(_, color)| (current.number, color.clone()))
    }

    /// The envelope and the number of its version. The envelope is made here if the list is short.
    /// `None` if a long list has none yet.
    pub(crate) fn ready_envelope(&self) -> Option<(u64, Arc<Representation>)> {
        let short = {
            let current = self.lock();
            match current.list.ready_envelope() {
                Some(envelope) => return Some((current.number, Arc::clone(envelope))),
                None if !current.list.is_short() => return None,
                None => current.clone(),
            }
        };
        Some((short.number, Arc::clone(short.list.envelope())))
    }

    /// The envelope of the version that is current now, or was at some time since `since`. So many
    /// requests that wait for the envelope of a long list get one that is made once. Call it on one
    /// thread: a second one would wait until the first has made the envelope.
    pub(crate) fn envelope_since(&self, since: Instant) -> (u64, Arc<Representation>) {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let (read_at, number, envelope) = &*latest;
        if let Some(envelope) = envelope.upgrade().filter(|_| *read_at >= since) {
            return (*number, envelope);
        }
        let read_at = Instant::now();
        let Version { number, list } = self.version();
        let envelope = Arc::clone(list.envelope());
        *latest = (read_at, number, Arc::downgrade(&envelope));
        (number, envelope)
    }

    /// Whether a condition may make a change slow to decide on: it needs the tag of a long list,
    /// which may have to be computed. A change of the whole list may take long without a condition.
    pub(crate) fn takes_long(&self, change: &Change) -> bool {
        change.needs_tag_of_list() && !self.lock().list.is_short()
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
        let (outcome, edits, number, before) = {
            let mut current = self.lock();
            let (outcome, edits) = change.decide(&current.list);
            debug_assert!(edits.len() <= 1, "only a list takes the place of several colors");
            let before = edits.first().map(|edit| current.list.apply(edit));
            current.number += u64::from(!edits.is_empty());
            (outcome, edits, current.number, before)
        };
        if !edits.is_empty() {
            // A color behind another one of its name changes the list alone.
            let is_behind = matches!(outcome, Outcome::Created { is_first: false, .. });
            let edits = if is_behind { &[][..] } else { &edits };
            (self.notify)(&Step { number, before: None, edits });
        }
        // Freed without the lock, since that may take long: `before` has the envelope too.
        drop(before);
        outcome
    }

    /// Decides on a change without the lock, and tries again if the list has changed meanwhile.
    fn change_list(&self, change: &Change) -> Outcome {
        for _ in 0..TRIES_MAX {
            let Version { number, mut list } = self.version();
            let (mut outcome, edits) = change.decide(&list);
            if edits.is_empty() {
                return outcome;
            }
            edits.iter().for_each(|edit| drop(list.apply(edit)));
            outcome.set_list(&list);
            if self.publish_after(Some(number), list, &edits) {
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

    /// Publishes the list to which these edits lead. Overwrites what other threads have published
    /// since the list was cloned.
    pub(super) fn publish(&self, list: ColorList, edits: &[Edit]) {
        self.publish_after(None, list, edits);
    }

    /// The same, unless the current version has another number than `expected`. Returns whether it
    /// has published the list.
    fn publish_after(&self, expected: Option<u64>, list: ColorList, edits: &[Edit]) -> bool {
        // Freed without the lock: to free a long list takes long.
        let (number, before) = {
            let mut current = self.lock();
            if expected.is_some_and(|expected| expected != current.number) {
                return false;
            }
            current.number += 1;
            (current.number, replace(&mut current.list, list))
        };
        (self.notify)(&Step { number, before: Some(&before), edits });
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::super::{Action, Change};
    use super::*;
    use crate::conditions::{Conditions, Tag};

    impl SharedList {
        fn envelope(&self) -> Arc<Representation> {
            Arc::clone(self.version().list.envelope())
        }
    }

    fn list(colors: usize) -> SharedList {
        SharedList::new(
            ColorList::from_iter((0..colors).map(|number| Color::new(&number.to_string(), ""))),
            Box::new(|_| ()),
        )
    }

    fn delete(name: &str) -> Change {
        Change::new(Action::Delete(name.to_owned()), Conditions::default())
    }

    /// A change that needs the tag of the list.
    fn unless_empty(action: Action) -> Change {
        let conditions = Conditions::parse(false, None, Some(&Tag::of(b"").to_string()));
        Change::new(action, conditions)
    }

    /// Publishes a version with one more color.
    fn append(list: &SharedList, name: &str) {
        let mut version = list.version().list;
        version.apply(&Edit::Append(version.next_id().unwrap(), Color::new(name, "")));
        list.replace(version);
    }

    #[test]
    fn the_envelope_is_kept_between_changes() {
        let list = list(3);
        let kept = list.envelope();
        assert_eq!(list.change(&delete("none")), Outcome::NotFound);
        assert!(Arc::ptr_eq(&kept, &list.envelope()));
        assert_eq!(list.number(), 0);
        assert_ne!(list.change(&delete("1")), Outcome::NotFound);
        let expected =
            "{\"data\":[{\"name\":\"0\",\"value\":\"\"},{\"name\":\"2\",\"value\":\"\"}]}\n";
        assert_eq!(str::from_utf8(list.envelope().bytes()).unwrap(), expected);
    }

    #[test]
    fn who_waits_for_a_color_is_not_told_of_another_one_behind_it() {
        let (sender, edits) = mpsc::channel();
        let notify = move |step: &Step<'_>| sender.send(step.edits.len()).unwrap();
        let list = SharedList::new(ColorList::default(), Box::new(notify));
        for expected in [1, 0] {
            let create = Action::Create(Color::new("a", ""));
            list.change(&Change::new(create, Conditions::default()));
            assert_eq!(edits.recv(), Ok(expected));
        }
    }

    #[test]
    fn who_waits_for_an_envelope_gets_one_that_is_not_older() {
        let list = list(3);
        let before = Instant::now();
        let first = list.envelope_since(before).1;
        append(&list, "a");
        assert!(Arc::ptr_eq(&first, &list.envelope_since(before).1));
        let second = list.envelope_since(Instant::now()).1;
        assert_eq!(second, list.envelope());
        assert_ne!(second, first);
        drop((first, second));
        append(&list, "b");
        assert_eq!(list.envelope_since(before).1, list.envelope(), "nobody has the last one");
    }

    #[test]
    fn another_list_can_take_its_place() {
        let list = list(3);
        let before = list.envelope();
        list.replace(ColorList::default());
        assert_eq!(
            (list.version().list.len(), list.envelope().bytes()),
            (0, &b"{\"data\":[]}\n"[..])
        );
        assert_ne!(before.tag(), list.envelope().tag());
    }

    #[test]
    fn a_condition_on_a_list_that_others_change_all_the_time_is_given_up() {
        let list = list(5_000);
        let is_over = AtomicBool::new(false);
        let update = |value| Action::Update(Color::new("0", value));
        let updates = ["1", "2"].map(|value| Change::new(update(value), Conditions::default()));
        let replace = unless_empty(Action::ReplaceAll(list.version().list));
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
        let Outcome::ReplacedAll { list: sent, .. } = list.change(&replace) else {
            panic!("nobody else changes it");
        };
        assert!(Arc::ptr_eq(sent.envelope(), &list.envelope()), "it is made once");
    }

    #[test]
    fn a_condition_on_a_long_list_takes_long() {
        for (colors, takes_long) in [(3, false), (5_000, true)] {
            let list = list(colors);
            for action in
                [Action::ReplaceAll(ColorList::default()), Action::Create(Color::new("a", ""))]
            {
                assert_eq!(list.takes_long(&unless_empty(action)), takes_long);
            }
            assert!(!list.takes_long(&delete("1")));
        }
    }
}
