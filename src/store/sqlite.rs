//! The list on disk: an SQLite database, which other programs may read and write as well.
//!
//! SQLite makes every commit atomic and durable (write-ahead log, `synchronous=FULL`). What the
//! files here add:
//!
//! | question | file |
//! |---|---|
//! | what is at the path of `--data`, and may this process write there? | `data_path` |
//! | how does a start make FILE, so that it is whole? | `new_file` |
//! | what keeps out a second service? | `locks` |
//! | how is FILE opened, read, saved to and closed? what have others committed? | `open_database` |
//! | which table does FILE have, and what if that changes? | `rows` |
//! | are FILE, FILE-wal and FILE-shm those that were opened, and is there room? | `wal_files` |
//! | why can FILE not be used, and what is to be done? | `error` |
//!
//! # Locks
//!
//! Two locks are the service's own (flock(2)). Other programs pay no attention to them.
//!
//! - The service lock, on FILE. A service has it until it closes FILE or ends, so that no second
//!   one uses FILE. A start waits for it up to [`LOCK_TIME`].
//! - The lock on the directory of FILE. A start has it while it makes FILE, until the new file,
//!   with the service lock, is at the path of FILE. `--check` has it while it makes the new
//!   file and removes it again. Others that want it wait up to [`LOCK_TIME`]. A start that replaces
//!   an empty FILE first takes the service lock on that file.
//!
//! All others are SQLite's (<https://sqlite.org/lockingv3.html>,
//! <https://sqlite.org/walformat.html>). `--check` and `--dump` take these as any other program
//! does; `--dump` takes no service lock, and `--check` only for a moment. The connection of a
//! service that has started waits for each of them up to [`TRY_TIME`], and not at all when
//! [`Database::close`] copies FILE-wal. Any other connection waits up to [`BUSY_TIME`]. Three of
//! SQLite's locks matter here:
//!
//! - The write lock. A save has it from [`Database::begin`] to the end of its commit. A save waits
//!   for it in tries of [`TRY_TIME`], until its first change has waited for almost 5 s. Between two
//!   tries the writer publishes what others have committed, which takes no write lock.
//! - The checkpoint lock. A commit that does not get it leaves the checkpoint to a later commit.
//!   [`Database::close`] needs this lock, the write lock, and that nobody reads from FILE-wal.
//!   Otherwise it fails, and FILE-wal stays.
//! - The exclusive lock on FILE. [`Database::close`] removes FILE-wal under it. It does not get the
//!   lock while another program has FILE open, and then leaves an empty FILE-wal.
//!
//! So every wait for a lock ends.
//!
//! A process that closes any descriptor of FILE or FILE-shm loses SQLite's locks on that file
//! (<https://sqlite.org/howtocorrupt.html>, section 2.2). So the connection is closed first, and
//! the other descriptors after it.
//!
//! [`Database::begin`]: super::engine::Engine::begin
//! [`Database::close`]: super::engine::Engine::close
//! [`LOCK_TIME`]: locks::LOCK_TIME
//! [`BUSY_TIME`]: open_database::BUSY_TIME
//! [`TRY_TIME`]: open_database::TRY_TIME

mod data_path;
mod error;
mod locks;
mod new_file;
mod open_database;
mod rows;
mod wal_files;

use std::fs::File;
use std::path::{Path, PathBuf};

use data_path::{check_writable, locate};
pub(crate) use error::DatabaseError;
use locks::check_lock;
pub(super) use locks::lock_file;
use new_file::check_new_file;
pub(super) use new_file::lock_or_make;
pub(super) use open_database::Database;
use open_database::read_without_writing;
use wal_files::sync_directory;

use super::ColorList;
use super::engine::{OpenPlace, Place};

/// FILE as a place for the list, before it is open.
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
    pub(crate) fn find(given: &Path) -> Result<Box<dyn Place>, String> {
        let (path, has_list) = locate(given).map_err(reason)?;
        Ok(Box::new(Self { given: given.to_owned(), path, has_list, lock: None }))
    }
}

impl Place for FilePlace {
    fn has_list(&self) -> bool {
        self.has_list
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
