//! Follows a FILE that other programs write: polls it once a second, and publishes its list when it
//! has changed.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::sleep;

use super::foreign_reader::{Stamps, read_snapshot};
use super::{DatabaseError, DatabaseStatus, POLL_INTERVAL, SharedList, rows};

/// Reads the list of FILE again when that has changed, on a thread of its own.
pub(crate) struct Follower {
    pub(super) path: PathBuf,
    pub(super) list: Arc<SharedList>,
    pub(super) status: Arc<DatabaseStatus>,
    /// The stamps of FILE when the list was read. `None` if FILE has to be read again in any case.
    pub(super) seen: Option<Stamps>,
}

impl Follower {
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
    pub(super) fn refresh(&mut self) -> Result<(), DatabaseError> {
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
