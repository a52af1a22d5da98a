//! Old representations that are still being sent: limits the memory of all of them together.

use std::collections::HashSet;
use std::sync::{Arc, Weak};

use crate::http::Representation;

/// The limit is at least this many times the longest of them.
const LONGEST_FACTOR: usize = 4;

/// Shorter representations are not tracked: each connection may have this many bytes.
pub(super) const TRACKED_BYTES_MIN: usize = 4096;

/// Long representations that are not current any more and still being sent, the oldest first.
#[derive(Debug)]
pub(super) struct Retired {
    /// Bytes of all of them together, however often the list changes.
    bytes_max: usize,
    tolerated: Vec<Weak<Representation>>,
    /// Those that are to be sent no further.
    withdrawn: Vec<Weak<Representation>>,
}

impl Retired {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, tolerated: Vec::new(), withdrawn: Vec::new() }
    }

    /// Adds representations, and withdraws the oldest if those that are still being sent take too
    /// much.
    pub(super) fn add(&mut self, representations: impl IntoIterator<Item = Weak<Representation>>) {
        let sent = |old: &Weak<Representation>| old.strong_count() > 0;
        self.withdrawn.retain(sent);
        // an envelope may be added twice: by who made it, and by who replaced it
        let mut known: HashSet<*const Representation> =
            self.tolerated.iter().chain(&self.withdrawn).map(Weak::as_ptr).collect();
        self.tolerated.extend(
            representations.into_iter().filter(sent).filter(|old| known.insert(old.as_ptr())),
        );
        let mut sent: Vec<Arc<Representation>> =
            self.tolerated.iter().filter_map(Weak::upgrade).collect();
        let longest = sent.iter().map(|old| old.bytes().len()).max().unwrap_or_default();
        let limit = self.bytes_max.max(LONGEST_FACTOR * longest);
        let mut bytes: usize = sent.iter().map(|old| old.bytes().len()).sum();
        let mut count = 0;
        while bytes > limit {
            bytes -= sent[count].bytes().len();
            count += 1;
        }
        self.withdrawn.extend(sent.drain(..count).map(|old| Arc::downgrade(&old)));
        self.tolerated = sent.iter().map(Arc::downgrade).collect();
    }

    pub(super) fn is_withdrawn(&self, representation: &Arc<Representation>) -> bool {
        self.withdrawn.iter().any(|old| old.as_ptr() == Arc::as_ptr(representation))
    }

    #[cfg(test)]
    pub(super) fn have_withdrawn_none(&self) -> bool {
        self.withdrawn.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES_MAX: usize = 64 * 1024 * 1024;

    #[test]
    fn the_oldest_are_withdrawn_when_all_take_too_much() {
        let mut retired = Retired::new(BYTES_MAX);
        let versions: Vec<_> =
            (0..8).map(|_| Arc::new(Representation::new(vec![b'x'; BYTES_MAX / 5]))).collect();
        let mut counts = Vec::new();
        for version in &versions {
            // each is added twice, and counts once
            retired.add([Arc::downgrade(version), Arc::downgrade(version)]);
            counts.push(versions.iter().filter(|version| retired.is_withdrawn(version)).count());
        }
        assert_eq!(counts, [0, 0, 0, 0, 0, 1, 2, 3]);
        // and once for all when it is withdrawn already
        retired.add([Arc::downgrade(&versions[0])]);
        let withdrawn: Vec<bool> =
            versions.iter().map(|version| retired.is_withdrawn(version)).collect();
        assert_eq!(withdrawn, [true, true, true, false, false, false, false, false]);
    }

    #[test]
    fn those_that_nobody_has_any_more_count_nothing() {
        let mut retired = Retired::new(BYTES_MAX);
        for _ in 0..8 {
            let old = Arc::new(Representation::new(vec![b'x'; BYTES_MAX]));
            retired.add([Arc::downgrade(&old)]);
            assert!(!retired.is_withdrawn(&old));
        }
        retired.add([]);
        assert_eq!((retired.tolerated.len(), retired.withdrawn.len()), (0, 0));
    }
}
