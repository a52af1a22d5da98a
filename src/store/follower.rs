//! Follows a FILE that other programs write: reads it anew when it has changed, on a thread of its
//! own, and never writes it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::sleep;

use super::LOOK_INTERVAL;
use super::colors::Colors;
use super::database::read_list;
use super::database_error::DatabaseError;
use super::list::SharedList;
use super::replica::{self, Stamps};
use super::status::DatabaseStatus;

pub(crate) struct Follower {
    pub(super) path: PathBuf,
    pub(super) list: Arc<SharedList>,
    pub(super) status: Arc<DatabaseStatus>,
    /// What [`read`] has returned with the list: what the file was then; `None` if it has to be read
    /// again.
    pub(super) seen: Option<Stamps>,
}

impl Follower {
    /// Follows the file until the process ends.
    pub(crate) fn run(mut self) {
        loop {
            sleep(LOOK_INTERVAL);
            self.status.begin();
            if let Err(error) = catch_unwind(AssertUnwindSafe(|| self.look()))
                .unwrap_or(Err(DatabaseError::Panicked))
            {
                self.status.note_failure(error);
            }
            self.status.end();
        }
    }

    /// Publishes the list if the file has changed. If that cannot be read, the last list stays.
    fn look(&mut self) -> Result<(), DatabaseError> {
        // if it fails, reading says why
        let now = Stamps::of(&self.path).ok();
        if now.is_some() && now == self.seen && self.status.current().failure.is_none() {
            return Ok(());
        }
        self.seen = None;
        let known = self.list.version();
        let (colors, seen) = read(&self.path, &known)?;
        self.seen = seen;
        let is_changed = colors != known;
        if is_changed {
            self.list.replace(colors);
        }
        self.status.note_read(is_changed);
        self.status.note_success();
        Ok(())
    }
}

/// Reads the list, and what tells whether it has changed since.
pub(super) fn read(path: &Path, known: &Colors) -> Result<(Colors, Option<Stamps>), DatabaseError> {
    replica::read(path, |connection| read_list(connection, known))
}
