//! Old representations that are still being sent: limits the memory of all of them together.

use std::sync::{Arc, Weak};

use crate::http::Representation;

/// Bytes of all of them together, however often the list changes.
const RETIRED_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The limit is at least this many times the longest of them.
const LONGEST_FACTOR: usize = 4;

/// Shorter representations are not tracked: each connection may have this many bytes.
const TRACKED_BYTES_MIN: usize = 4096;

/// Long representations that are not current any more, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Retired(Vec<Weak<Representation>>);

impl Retired {
    pub(super) fn add(&mut self, old: &Arc<Representation>) {
        if old.bytes().len() >= TRACKED_BYTES_MIN {
            self.0.push(Arc::downgrade(old));
        }
    }

    /// Withdraws the oldest, if those that are still being sent take too much. Returns how many it withdrew.
    pub(super) fn withdraw_oldest(&mut self) -> usize {
        let mut kept: Vec<Arc<Representation>> = self.0.iter().filter_map(Weak::upgrade).collect();
        let longest = kept.iter().map(|retired| retired.bytes().len()).max().unwrap_or_default();
        let limit = RETIRED_BYTES_MAX.max(LONGEST_FACTOR * longest);
        let mut bytes: usize = kept.iter().map(|retired| retired.bytes().len()).sum();
        let mut count = 0;
        while bytes > limit {
            kept[count].withdraw();
            bytes -= kept[count].bytes().len();
            count += 1;
        }
        self.0 = kept.drain(count..).map(|retired| Arc::downgrade(&retired)).collect();
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_are_withdrawn_when_all_take_too_much() {
        let mut retired = Retired::default();
        let versions: Vec<_> = (0..8).map(|_| Arc::new(Representation::new(vec![b'x'; RETIRED_BYTES_MAX / 5]))).collect();
        let counts: Vec<usize> = versions
            .iter()
            .map(|version| {
                retired.add(version);
                retired.withdraw_oldest()
            })
            .collect();
        assert_eq!(counts, [0, 0, 0, 0, 0, 1, 1, 1]);
        let withdrawn: Vec<bool> = versions.iter().map(|version| version.is_withdrawn()).collect();
        assert_eq!(withdrawn, [true, true, true, false, false, false, false, false]);
    }

    #[test]
    fn those_that_nobody_has_any_more_count_nothing() {
        let mut retired = Retired::default();
        for _ in 0..8 {
            retired.add(&Arc::new(Representation::new(vec![b'x'; RETIRED_BYTES_MAX])));
        }
        assert_eq!((retired.withdraw_oldest(), retired.0.len()), (0, 0));
    }
}
