//! Keeps out a second service by a lock on FILE, to which other programs pay no attention.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use rustix::fs::OFlags;

use super::{DatabaseError, data_path};
use crate::files::{is_at, within};

/// Longest wait of a start for another process of the service to stop, which takes 5 s at most.
pub(super) const LOCK_TIME: Duration = Duration::from_secs(6);

/// Locks FILE against other processes of the service. `None` if there is no FILE. Fails with `Busy`
/// if another process has the lock for [`LOCK_TIME`].
pub(crate) fn lock_file(path: &Path) -> Result<Option<File>, DatabaseError> {
    loop {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(OFlags::NOFOLLOW.bits() as i32);
        let file = match options.open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            file => file.map_err(|error| data_path::refused("open", path, &error))?,
        };
        lock(&file, path)?;
        // A start that replaces an empty FILE has both locked before it gives up this one.
        if is_at(&file, path) {
            return Ok(Some(file));
        }
    }
}

/// Locks the directory of FILE against other starts that make a file in it.
pub(super) fn lock_directory(path: &Path) -> Result<File, DatabaseError> {
    let directory = data_path::directory_of(path);
    let file = File::open(directory);
    let file = file.map_err(|error| data_path::refused("open", directory, &error))?;
    lock(&file, directory)?;
    Ok(file)
}

fn lock(file: &File, path: &Path) -> Result<(), DatabaseError> {
    let locked = within(LOCK_TIME, || match file.try_lock() {
        Ok(()) => Some(Ok(())),
        Err(TryLockError::Error(error)) => Some(Err(data_path::refused("lock", path, &error))),
        Err(TryLockError::WouldBlock) => None,
    });
    locked.unwrap_or(Err(DatabaseError::Busy))
}
