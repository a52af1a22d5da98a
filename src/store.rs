//! The one list that all workers share: a mutex around it, and the way a change gets into it. No HTTP.

use std::convert::Infallible;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use crate::change::{Change, Outcome};
use crate::color::Color;
use crate::palette::{Listing, Palette};

/// The shared list.
#[derive(Debug)]
pub(crate) struct Store {
    /// What readers see.
    palette: Mutex<Palette>,
}

impl Store {
    /// A list that lives in memory alone.
    pub(crate) fn in_memory(palette: Palette) -> Self {
        Self { palette: Mutex::new(palette) }
    }

    /// How many colors there are.
    pub(crate) fn len(&self) -> usize {
        self.palette().len()
    }

    /// How many colors there are, unless somebody holds the list at the moment; never waits.
    pub(crate) fn try_len(&self) -> Option<usize> {
        match self.palette.try_lock() {
            Ok(palette) => Some(palette.len()),
            Err(TryLockError::Poisoned(palette)) => Some(palette.into_inner().len()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The first color of this name; copies two pointers, no text.
    pub(crate) fn first(&self, name: &str) -> Option<Color> {
        self.palette().first(name).cloned()
    }

    /// The whole list as JSON; copies no bytes of it.
    pub(crate) fn listing(&self) -> Listing {
        self.palette().listing().clone()
    }

    /// Makes a change, or finds that it cannot be made.
    pub(crate) fn commit(&self, change: Change) -> Result<Outcome, Infallible> {
        let (outcome, _) = change.apply(&mut self.palette());
        Ok(outcome)
    }

    /// The lock on the list. A panic while it was held does no harm: every change is either made or not begun.
    fn palette(&self) -> MutexGuard<'_, Palette> {
        self.palette.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
