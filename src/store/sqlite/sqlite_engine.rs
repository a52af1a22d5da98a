//! An open database as a storage engine: how a save waits for the write lock, and what the log
//! says when another program has changed the list.

use std::mem::replace;
use std::time::{Duration, Instant};

use super::{Database, DatabaseError};
use crate::store::engine::{Begun, Commit, Engine, Refresh, Save, StorageError, Written};
use crate::store::{ColorList, Edit};

/// Shortest time between two warnings that another program has changed the list, since a program
/// may change it all the time.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

pub(crate) struct SqliteEngine {
    database: Database,
    /// What readers have.
    list: ColorList,
    /// When the log last warned that another program has changed the list.
    warned: Option<Instant>,
}

impl SqliteEngine {
    /// `list`: what the database has.
    pub(crate) fn new(database: Database, list: ColorList) -> Self {
        Self { database, list, warned: None }
    }

    /// What was found in the database, unless readers have it. The lists are compared, since
    /// another program may have committed without changing a color. `is_behind`: see [`Save`].
    fn refreshed(&mut self, found: Option<ColorList>, is_behind: bool) -> Option<Refresh> {
        let is_other = |found: &ColorList| *found != self.list || !found.has_same_ids(&self.list);
        let list = found.filter(|found| is_behind || is_other(found))?;
        let before = replace(&mut self.list, list.clone());
        let may_warn = self.warned.is_none_or(|warned| warned.elapsed() > WARNING_INTERVAL);
        if may_warn && list != before {
            let count = list.len();
            log::warn!("another program has changed the list; it has {count} colors now");
            self.warned = Some(Instant::now());
        }
        let edits = vec![Edit::ReplaceAll(list.clone())];
        Some(Refresh { list, edits })
    }
}

impl Engine for SqliteEngine {
    /// Waits [`TRY_TIME`] for the write lock, and as long for what the poll behind it needs. Other
    /// programs may take the lock again and again: the poll finds what they commit.
    ///
    /// [`TRY_TIME`]: super::open_database::TRY_TIME
    fn begin(&mut self, save: &Save) -> Result<Begun, StorageError> {
        match self.database.begin(&self.list, save.has_failed) {
            Err(busy @ DatabaseError::Busy) => {
                // The failed try may have got the write lock, and failed on another lock.
                self.database.roll_back();
                let found = match self.database.read_if_changed(&self.list) {
                    Err(DatabaseError::Busy) => None,
                    found => found?,
                };
                Ok(Begun::Locked(self.refreshed(found, save.is_behind), busy.into()))
            }
            found => {
                let found = found?;
                Ok(Begun::Ready(self.refreshed(found, save.is_behind)))
            }
        }
    }

    fn poll(&mut self) -> Result<Option<Refresh>, StorageError> {
        let found = self.database.read_if_changed(&self.list)?;
        Ok(self.refreshed(found, false))
    }

    fn write(&mut self, edits: &[Edit], list: &ColorList) -> Result<Written, StorageError> {
        Ok(self.database.write(edits, list)?.map_or(Written::Yes, Written::Refused))
    }

    /// There is no conflict: the save has the write lock.
    fn commit(&mut self, version: &ColorList) -> Result<Commit, StorageError> {
        self.database.commit()?;
        self.list.clone_from(version);
        Ok(Commit::Done)
    }

    fn roll_back(&mut self) {
        self.database.roll_back();
    }

    fn warning(&self) -> Option<String> {
        self.database.warning()
    }

    fn close(self: Box<Self>) -> Result<(), String> {
        self.database.close()
    }
}
