//! Old representations that are still being sent: limits the memory of all of them together.

use std::sync::{Arc, Weak};

use crate::http::Representation;

/// Bytes of all of them together, however often the list changes.
const RETIRED_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The limit is at least this many times the longest.
const RETIRED_AT_LEAST: usize = 4;

/// Bytes; shorter representations do not count, since each connection may have that much.
const LONG: usize = 4096;

/// Long representations that are not current any more, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Retired(Vec<Weak<Representation>>);

impl Retired {
    pub(super) fn add(&mut self, old: &Arc<Representation>) {
        if old.bytes().len() >= LONG {
            self.0.push(Arc::downgrade(old));
        }
    }

    /// Withdraws the oldest, if those that are still being sent take too much. Returns how many it withdrew.
    pub(super) fn withdraw_oldest(&mut self) -> usize {
        self.0.retain(|retired| retired.strong_count() > 0);
        let kept: Vec<Arc<Representation>> = self.0.iter().filter_map(Weak::upgrade).collect();
        let lengths = || kept.iter().map(|retired| retired.bytes().len());
        let most = RETIRED_BYTES_MAX.max(RETIRED_AT_LEAST * lengths().max().unwrap_or_default());
        let mut bytes: usize = lengths().sum();
        let withdrawn = kept.iter().take_while(|retired| {
            let is_too_much = bytes > most;
            bytes -= retired.bytes().len();
            is_too_much
        });
        let count = withdrawn.inspect(|retired| retired.withdraw()).count();
        self.0.drain(..count);
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
