//! The list that everybody sees: one mutex around its current version, which all workers share.
//! Knows no disk.

use std::mem::replace;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::colors::Edit;
use super::{Change, Color, Colors, Outcome};
use crate::blob::Blob;

/// Old representations may take more memory than the limit: this many times the longest of them.
const LONGEST_FACTOR: usize = 2;

/// How often the tag of the list is made for a change that needs it: other clients may change the
/// list all the time.
const TAG_TRIES_MAX: usize = 3;

/// Bytes of an envelope that is made, with its tag, in a fifth of a millisecond.
const SHORT_LIST_BYTES: usize = 64 * 1024;

pub(crate) struct SharedList {
    current: Mutex<Colors>,
    /// Bytes that old representations may take, however often the list changes.
    old_max: usize,
    notify: OnceLock<Notify>,
}

/// Called after each new version is there to be read.
pub(crate) type Notify = Box<dyn Fn() + Send + Sync>;

impl SharedList {
    /// `old_max`: bytes of old representations that are still being sent.
    pub(super) fn new(colors: Colors, old_max: usize) -> Self {
        Self { current: Mutex::new(colors), old_max, notify: OnceLock::new() }
    }

    /// Sets, once, what is called after each new version.
    pub(super) fn notify_of_versions(&self, notify: Notify) {
        let is_first = self.notify.set(notify).is_ok();
        assert!(is_first, "the workers are made once");
    }

    fn notify(&self) {
        if let Some(notify) = self.notify.get() {
            notify();
        }
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
        lock(&self.current).find(name).map(|(_, color)| color.clone())
    }

    /// The envelope of the list, if it is made and its tag is known, or both take no time.
    pub(crate) fn ready_envelope(&self) -> Option<Arc<Blob>> {
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
    pub(crate) fn envelope_of(&self, version: &Colors) -> Arc<Blob> {
        // without the lock: it may take long
        Arc::clone(version.envelope())
    }

    /// Whether there are so many representations in memory that too many of them may be old ones.
    /// Takes no lock, so ask before [`SharedList::old_to_close`].
    pub(crate) fn may_have_too_many_old(&self) -> bool {
        Blob::counted_bytes() > self.old_max
    }

    /// Which of these, which connections send, have to be dropped, so that old representations take
    /// no more than `old_max`, or [`LONGEST_FACTOR`] times the longest of them: all that the list
    /// does not have any more, if those in memory take more than that.
    ///
    /// What is in memory and not in the list is old, or about to be in the list: the content of a
    /// change that has not been made. It is bounded as well, by the memory of requests.
    pub(crate) fn old_to_close(&self, sent: impl Iterator<Item = Arc<Blob>>) -> Vec<Arc<Blob>> {
        let version = self.version();
        let all = Blob::counted_bytes().saturating_sub(version.counted_bytes());
        if all <= self.old_max {
            return Vec::new();
        }
        let old: Vec<_> = sent.filter(|sent| sent.counted() > 0 && !version.has(sent)).collect();
        let longest = old.iter().map(|old| old.counted()).max().unwrap_or(0);
        if all <= LONGEST_FACTOR * longest { Vec::new() } else { old }
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
                let Some(edit) = edit else { return outcome };
                // to free a long list takes long, so that is done without the lock
                let replaced = matches!(edit, Edit::ReplaceAll(_)).then(|| current.clone());
                current.apply(edit);
                drop(current);
                self.notify();
                drop(replaced);
                return outcome;
            }
        }
        Outcome::Contended
    }

    /// Publishes a new version of the list.
    pub(super) fn replace(&self, colors: Colors) {
        let before = { replace(&mut *lock(&self.current), colors) };
        self.notify();
        // freeing a long list takes long
        drop(before);
    }
}

/// Poisoning is ignored: nothing that is done under these locks is known to panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::thread;
    use std::time::{Duration, Instant};

    use super::super::{Action, Change};
    use super::*;
    use crate::blob::{Conditions, Tag, Tags};

    impl SharedList {
        fn envelope(&self) -> Arc<Blob> {
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

    /// A service counts the representations of its one list. Other tests of this process have lists
    /// as well, so the bound here is far above what those take.
    #[test]
    fn old_representations_that_take_too_much_are_closed_and_the_current_one_never() {
        const OLD_MAX: usize = 256 * 1024 * 1024;
        let long = "x".repeat(32 * 1024 * 1024);
        let duplicates = (0..2).map(|_| Color::new("long", &long));
        let list = SharedList::new(duplicates.collect(), OLD_MAX);
        let old: Vec<_> = (0..5)
            .map(|number| {
                let envelope = list.envelope();
                append(&list, &number.to_string());
                envelope
            })
            .collect();
        let version = list.version();
        let color = |id| Arc::clone(&version.get(id).unwrap().json);
        let page = Arc::new(Blob::new(long.into_bytes()));
        let current = [list.envelope(), color(1), color(2), page];
        let sent = || old.iter().chain(&current).cloned();
        assert!(list.may_have_too_many_old());
        let is_same = |(one, two): (&Arc<_>, &Arc<_>)| Arc::ptr_eq(one, two);
        let closed = list.old_to_close(sent());
        assert!(closed.len() == old.len() && closed.iter().zip(&old).all(is_same));
        drop((closed, old));
        let before = list.envelope();
        append(&list, "last");
        assert!(list.old_to_close([before].into_iter()).is_empty(), "one may be sent to its end");
    }

    #[test]
    fn another_list_can_take_its_place() {
        let list = list(3);
        let before = list.envelope();
        list.replace(Colors::default());
        assert_eq!((list.size().0, list.envelope().bytes()), (0, &b"{\"data\":[]}\n"[..]));
        assert_ne!(before.tag(), list.envelope().tag());
    }

    #[test]
    fn a_condition_on_a_list_that_others_change_all_the_time_is_given_up() {
        let list = list(20_000);
        let is_over = AtomicBool::new(false);
        let update = |value| Action::Update("0".to_owned(), Some(Color::new("0", value)));
        let updates = ["1", "2"].map(|value| Change::new(update(value), Conditions::default()));
        let if_none_match = Some(Tags::OneOf([Tag::of(b"")].into()));
        let conditions = Conditions { if_match: None, if_none_match };
        let replace = Change::new(Action::ReplaceAll(list.version()), conditions);
        let deadline = Instant::now() + Duration::from_secs(60);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    updates.iter().for_each(|update| drop(list.make(update)));
                }
            });
            let mut outcome = list.make(&replace);
            while outcome != Outcome::Contended && Instant::now() < deadline {
                outcome = list.make(&replace);
            }
            is_over.store(true, Relaxed);
            assert_eq!(outcome, Outcome::Contended);
        });
        assert!(matches!(list.make(&replace), Outcome::Replaced(..)));
    }
}
