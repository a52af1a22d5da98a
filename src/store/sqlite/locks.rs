//! The two locks of the service (flock(2)), and waits of limited length. The lock on FILE keeps out
//! a second service. The lock on its directory keeps apart two starts that make FILE.

use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use super::{DatabaseError, data_path};
use crate::file_id::FileId;

/// How long a start waits for another process of the service to stop, for which that has 4.5 s
/// (`STOP_TIME`).
pub(super) const LOCK_TIME: Duration = Duration::from_secs(6);

/// Time between two tries: flock(2) has no wait of limited length. The pause is short, since a
/// program that takes SQLite's write lock again and again leaves it free for moments only.
pub(super) const RETRY_PAUSE: Duration = Duration::from_millis(1);

/// Locks FILE against other processes of the service. `None` if there is no FILE. Fails with `Busy`
/// if another process keeps the lock for [`LOCK_TIME`].
pub(crate) fn lock_file(path: &Path) -> Result<Option<File>, DatabaseError> {
    loop {
        let Some(file) = open_file(path)? else { return Ok(None) };
        lock(&file, path)?;
        // Otherwise FILE was replaced meanwhile, as by a start that found it empty. That start
        // locks the new FILE before it gives up the lock on the empty one.
        if is_at(&file, path) {
            return Ok(Some(file));
        }
    }
}

/// Opens FILE for reading and writing. `None` if there is no FILE. Before the file is closed again,
/// SQLite must not have opened it.
pub(super) fn open_file(path: &Path) -> Result<Option<File>, DatabaseError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(OFlags::NOFOLLOW.bits() as i32);
    match options.open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        file => file.map(Some).map_err(|error| DatabaseError::refused("open", path, &error)),
    }
}

/// Fails if FILE cannot be locked, but not if another process has the lock. Keeps no lock.
pub(super) fn check_lock(path: &Path) -> Result<(), DatabaseError> {
    let Some(file) = open_file(path)? else { return Ok(()) };
    match try_lock(&file, path) {
        Err(DatabaseError::Busy) => Ok(()),
        locked => locked,
    }
}

/// Locks the directory of FILE against other starts that make a file in it.
pub(super) fn lock_directory(path: &Path) -> Result<File, DatabaseError> {
    let directory = data_path::directory_of(path);
    let file = File::open(directory);
    let file = file.map_err(|error| DatabaseError::refused("open", directory, &error))?;
    lock(&file, directory)?;
    Ok(file)
}

fn lock(file: &File, path: &Path) -> Result<(), DatabaseError> {
    retry_while_busy(LOCK_TIME, || try_lock(file, path))
}

fn try_lock(file: &File, path: &Path) -> Result<(), DatabaseError> {
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => DatabaseError::Busy,
        TryLockError::Error(error) => DatabaseError::refused("lock", path, &error),
    })
}

/// Whether this is the file at a path.
fn is_at(file: &File, path: &Path) -> bool {
    let id = |file: Metadata| FileId::of(&file);
    let there = fs::metadata(path).map(id).ok();
    there.is_some() && there == file.metadata().map(id).ok()
}

/// Tries until the result is not `Busy`, with pauses. Begins no further try when `time` is over.
pub(super) fn retry_while_busy<T>(
    time: Duration,
    mut attempt: impl FnMut() -> Result<T, DatabaseError>,
) -> Result<T, DatabaseError> {
    let begun = Instant::now();
    loop {
        let result = attempt();
        if !matches!(result, Err(DatabaseError::Busy)) || begun.elapsed() >= time {
            return result;
        }
        sleep(RETRY_PAUSE);
    }
}
