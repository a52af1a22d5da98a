//! An open database as a storage engine: how a save waits for the write lock, and what the log
//! says when another program has changed the list.

use std::time::{Duration, Instant};

use super::{Database, DatabaseError};
use crate::store::engine::{Begun, Commit, Engine, Refresh, Save, StorageError, Written};
use crate::store::{ColorList, Edit};

/// Shortest time between two warnings that another program has changed the list, since a program
/// may change it all the time.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

pub(crate) struct SqliteEngine {
    database: Database,
    /// When the log last warned that another program has changed the list.
    warned: Option<Instant>,
}

impl SqliteEngine {
    pub(crate) fn new(database: Database) -> Self {
        Self { database, warned: None }
    }

    /// What was found in the database, unless it is the `known` list.
    fn refreshed(&mut self, known: &ColorList, found: Option<ColorList>) -> Option<Refresh> {
        // Another program may have committed without changing a color.
        let list = found.filter(|found| found != known || !found.has_same_ids(known))?;
        let may_warn = self.warned.is_none_or(|warned| warned.elapsed() > WARNING_INTERVAL);
        if may_warn && list != *known {
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
    fn begin(&mut self, known: &ColorList, save: &Save) -> Result<Begun, StorageError> {
        match self.database.begin(known, save.has_failed) {
            Err(busy @ DatabaseError::Busy) => {
                // The failed try may have got the write lock, and failed on another lock.
                self.database.roll_back();
                let found = match self.database.read_if_changed(known) {
                    Err(DatabaseError::Busy) => None,
                    found => found?,
                };
                Ok(Begun::Locked(self.refreshed(known, found), busy.into()))
            }
            found => {
                let found = found?;
                Ok(Begun::Ready(self.refreshed(known, found)))
            }
        }
    }

    fn poll(&mut self, known: &ColorList) -> Result<Option<Refresh>, StorageError> {
        let found = self.database.read_if_changed(known)?;
        Ok(self.refreshed(known, found))
    }

    fn write(&mut self, edits: &[Edit], list: &ColorList) -> Result<Written, StorageError> {
        Ok(self.database.write(edits, list)?.map_or(Written::Yes, Written::Refused))
    }

    /// There is no conflict: the save has the write lock.
    fn commit(&mut self, _: &ColorList) -> Result<Commit, StorageError> {
        self.database.commit()?;
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
