//! Old representations: what clients are still being sent, and the list does not have any more. If
//! they take too much memory, the oldest are withdrawn. Knows no sockets.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::ColorList;
use crate::representation::Representation;

/// The limit is at least this many times the longest old representation. So a single one is never
/// withdrawn, however long it is.
const LONGEST_FACTOR: usize = 2;

pub(crate) struct OldRepresentations {
    /// What clients have received a part of, current or old, by its address.
    partly_sent: Mutex<BTreeMap<usize, Reading>>,
    /// How many were withdrawn so far.
    withdrawn: AtomicUsize,
    /// Limit in bytes.
    max: usize,
}

struct Reading {
    representation: Arc<Representation>,
    /// How many clients are being sent it.
    clients: usize,
    /// Rises in the order in which the first of them received a part.
    number: u64,
}

/// A client that has received a part of a representation, until this is dropped.
pub(crate) struct PartlySent {
    old: Arc<OldRepresentations>,
    address: usize,
}

impl OldRepresentations {
    /// `max`: most bytes that old representations may take, unless [`LONGEST_FACTOR`] makes it more.
    pub(super) fn new(max: usize) -> Self {
        Self { partly_sent: Mutex::default(), withdrawn: AtomicUsize::new(0), max }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, Reading>> {
        self.partly_sent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a client has received a part of a representation. `None` if that is never
    /// withdrawn.
    pub(super) fn note(
        self: &Arc<Self>,
        representation: &Arc<Representation>,
    ) -> Option<PartlySent> {
        if !representation.may_be_withdrawn() {
            return None;
        }
        let address = Arc::as_ptr(representation).addr();
        let mut partly_sent = self.lock();
        let number = 1 + partly_sent.values().map(|sent| sent.number).max().unwrap_or(0);
        let representation = || Arc::clone(representation);
        let new = || Reading { representation: representation(), clients: 0, number };
        partly_sent.entry(address).or_insert_with(new).clients += 1;
        Some(PartlySent { old: Arc::clone(self), address })
    }

    /// How many were withdrawn so far. When this changes, a worker has to look whether its
    /// connections send one of them.
    pub(crate) fn withdrawn(&self) -> usize {
        self.withdrawn.load(Ordering::Acquire)
    }

    /// Withdraws the oldest if they take more than the limit, until half of it is left. The workers
    /// then close the connections that send those. `version` gives the current list.
    pub(super) fn withdraw(&self, version: impl FnOnce() -> ColorList) {
        let mut sent: Vec<_> = {
            let partly_sent = self.lock();
            let bytes = |sent: &Reading| sent.representation.bytes().len();
            if partly_sent.values().map(bytes).sum::<usize>() <= self.max {
                return;
            }
            let numbered = |sent: &Reading| (sent.number, Arc::clone(&sent.representation));
            partly_sent.values().map(numbered).collect()
        };
        sent.sort_unstable_by_key(|(number, _)| *number);
        let version = version();
        sent.retain(|(_, sent)| !sent.is_withdrawn() && !version.contains(sent));
        let lengths = sent.iter().map(|(_, sent)| sent.bytes().len());
        let max = self.max.max(LONGEST_FACTOR * lengths.clone().max().unwrap_or(0));
        let mut bytes: usize = lengths.sum();
        if bytes <= max {
            return;
        }
        for (_, oldest) in sent {
            if bytes <= max / 2 {
                break;
            }
            oldest.withdraw();
            self.withdrawn.fetch_add(1, Ordering::Release);
            bytes -= oldest.bytes().len();
        }
    }
}

impl Drop for PartlySent {
    fn drop(&mut self) {
        let mut partly_sent = self.old.lock();
        let Some(sent) = partly_sent.get_mut(&self.address) else { return };
        sent.clients -= 1;
        if sent.clients == 0 {
            let removed = partly_sent.remove(&self.address);
            // Freed without the lock: a long representation takes long.
            drop(partly_sent);
            drop(removed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Color, SharedList};
    use super::*;

    fn envelope(list: &SharedList) -> Arc<Representation> {
        Arc::clone(list.version().envelope())
    }

    /// Publishes another list.
    fn replace(list: &SharedList, colors: &[&str]) {
        list.replace(colors.iter().map(|value| Color::new("a", value)).collect());
    }

    #[test]
    fn the_oldest_that_take_too_much_are_withdrawn_and_the_current_ones_never() {
        let long = "x".repeat(1000);
        let colors = [&long, &long].map(|value| Color::new("a", value)).into_iter().collect();
        // two envelopes, which are longer than 2,000 bytes each
        let list = SharedList::new(colors, 5200, Box::new(|_| ()));
        let mut old = Vec::new();
        for (number, expected) in [0, 0, 2, 2, 4].into_iter().enumerate() {
            let envelope = envelope(&list);
            // two clients are sent the same
            let sent = [(); 2].map(|()| list.note_partly_sent(&envelope));
            old.push((envelope, sent));
            replace(&list, &[&long, &long, &number.to_string()]);
            let withdrawn: Vec<_> = old.iter().map(|(old, _)| old.is_withdrawn()).collect();
            let first: Vec<_> = (0..old.len()).map(|place| place < expected).collect();
            assert_eq!(withdrawn, first);
        }
        let current = list.find("a").unwrap().json;
        let sent = list.note_partly_sent(&current);
        assert!(sent.is_some() && !current.is_withdrawn() && !envelope(&list).is_withdrawn());
        let page = Arc::new(Representation::new(long.into_bytes()));
        assert!(list.note_partly_sent(&page).is_none());
        // what nobody is sent takes nothing
        drop(old);
        assert_eq!(list.old.lock().len(), 1);
    }

    #[test]
    fn one_may_be_sent_to_its_end() {
        let colors = [Color::new("a", "")].into_iter().collect();
        let list = SharedList::new(colors, 0, Box::new(|_| ()));
        let sent = [0, 1].map(|number: usize| {
            let envelope = envelope(&list);
            let sent = list.note_partly_sent(&envelope);
            replace(&list, &[&number.to_string()]);
            (envelope, sent)
        });
        assert_eq!(sent.map(|(envelope, _)| envelope.is_withdrawn()), [false, false]);
    }
}
