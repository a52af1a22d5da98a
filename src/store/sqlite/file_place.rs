//! FILE as a place for the list, before it is open.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::{Database, DatabaseError};
use super::{
    check_lock, check_new_file, check_writable, locate, lock_file, lock_or_make,
    read_without_writing, sync_directory,
};
use crate::store::ColorList;
use crate::store::place::{OpenPlace, Place};

pub(crate) struct FilePlace {
    /// As `--data` names it.
    given: PathBuf,
    /// Without links.
    path: PathBuf,
    has_list: bool,
    /// FILE, once it is locked; `None` before that, or if it does not exist.
    lock: Option<File>,
}

impl FilePlace {
    pub(crate) fn find(given: &Path) -> Result<Self, String> {
        let (path, has_list) = locate(given).map_err(reason)?;
        Ok(Self { given: given.to_owned(), path, has_list, lock: None })
    }
}

impl Place for FilePlace {
    fn has_list(&self) -> bool {
        self.has_list
    }

    fn threads(&self) -> usize {
        1
    }

    fn check_usable(&self) -> Result<(), String> {
        check_writable(&self.path).map_err(reason)
    }

    fn lock(&mut self) -> Result<(), String> {
        self.lock = lock_file(&self.path).map_err(reason)?;
        Ok(())
    }

    fn check(&self, seed: Option<&ColorList>) -> Result<usize, String> {
        if let Some(seed) = seed {
            check_new_file(&self.path, seed).map_err(reason)?;
            return Ok(seed.len());
        }
        check_lock(&self.path).map_err(reason)?;
        let (list, warning) = Database::read_recovering(&self.path).map_err(reason)?;
        sync_directory(&self.path).map_err(reason)?;
        if let Some(warning) = warning {
            log::warn!("{warning}");
        }
        Ok(list.len())
    }

    fn dump(&self) -> Result<ColorList, String> {
        let read = match check_writable(&self.path) {
            _ if !self.has_list => Err(DatabaseError::Missing),
            Ok(()) => Database::read_recovering(&self.path).map(|(list, _)| list),
            Err(refused) => read_without_writing(&self.path).map_err(|error| match error {
                DatabaseError::Inaccessible => refused,
                error => error,
            }),
        };
        read.map_err(reason)
    }

    fn open(self: Box<Self>, seed: Option<ColorList>, _: bool) -> Result<OpenPlace, String> {
        let Self { given, path, lock, .. } = *self;
        let (lock, is_new) = lock_or_make(&path, seed.as_ref(), lock).map_err(reason)?;
        // Freed before the list is read from FILE, which takes as much memory.
        drop(seed);
        let engine = Database::open(&given, &path, lock).map_err(reason)?;
        let list = engine.list.clone();
        Ok(OpenPlace { engine: Box::new(engine), list, is_new, watch: None, path: Some(path) })
    }
}

fn reason(error: DatabaseError) -> String {
    match error {
        DatabaseError::Busy => format!("{error}, or name another file with --data"),
        error => error.to_string(),
    }
}
