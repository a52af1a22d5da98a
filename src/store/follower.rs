//! Follows a FILE that other programs write: polls it once a second, and publishes its list when it
//! has changed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::sleep;

use super::foreign_reader::{Stamps, read_snapshot};
use super::{
    Colors, DatabaseError, DatabaseStatus, POLL_INTERVAL, SharedList, Storage, Store, probe, rows,
};

/// Reads the list of FILE again when that has changed, on a thread of its own.
pub(crate) struct Follower {
    path: PathBuf,
    list: Arc<SharedList>,
    status: Arc<DatabaseStatus>,
    /// The stamps of FILE when the list was read. `None` if FILE has to be read again in any case.
    seen: Option<Stamps>,
}

impl Follower {
    /// The store of a file that others write, and the follower that reads it again. Reads it for the
    /// first time. `memory_max`: see [`Store::in_memory`].
    pub(crate) fn open(path: &Path, memory_max: usize) -> Result<(Store, Self), DatabaseError> {
        let list = Arc::new(SharedList::new(Colors::default(), memory_max));
        let (on_failure, on_recovery) = ("the list cannot be read", "the list is read again");
        let status = Arc::new(DatabaseStatus::new(on_failure, on_recovery));
        let storage = Storage::Followed(probe::name_of(path), Arc::clone(&status));
        let store = Store { list: Arc::clone(&list), storage };
        let mut follower = Self { path: path.to_owned(), list, status, seen: None };
        follower.refresh()?;
        Ok((store, follower))
    }

    /// Follows the file until the process ends.
    pub(crate) fn run(mut self) {
        let status = Arc::clone(&self.status);
        loop {
            sleep(POLL_INTERVAL);
            // The status has reported a failure.
            let _ = status.supervise(|| self.refresh());
        }
    }

    /// Publishes the list of the file if that has changed. If it cannot be read, the last list
    /// stays.
    fn refresh(&mut self) -> Result<(), DatabaseError> {
        // If this fails, so does the read below, which says why.
        let now = Stamps::of(&self.path).ok();
        if now.is_some() && now == self.seen {
            return Ok(());
        }
        let known = self.list.version();
        let (colors, seen) =
            read_snapshot(&self.path, &|connection| rows::read_list(connection, &known))?;
        let is_changed = colors != known;
        if is_changed {
            self.list.replace(colors);
        }
        self.status.note_read(is_changed);
        self.seen = seen;
        Ok(())
    }
}
