//! Keeps out a second service by a lock on FILE, to which other programs pay no attention.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::database::BUSY_PAUSE;
use super::{DatabaseError, probe};

/// Mode of a new file, less what the umask takes. SQLite gives FILE-wal and FILE-shm the mode and
/// the owner of FILE.
const NEW_FILE_MODE: u32 = 0o600;

/// Longest wait of a start for another process of the service to stop, which takes 5 s at most.
pub(super) const LOCK_TIME: Duration = Duration::from_secs(6);

/// How long a start waits before the log says for what.
const LOCK_SILENCE: Duration = Duration::from_secs(1);

/// Locks FILE against other processes of the service. Creates FILE if it is missing. Fails with
/// `Busy` if another process has the lock for [`LOCK_TIME`].
pub(crate) fn flock(path: &Path) -> Result<File, DatabaseError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(NEW_FILE_MODE);
    let file = options.open(path).map_err(|error| probe::refused("open", path, &error))?;
    let begun = Instant::now();
    let mut is_logged = false;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(error)) => return Err(probe::refused("lock", path, &error)),
            Err(TryLockError::WouldBlock) if begun.elapsed() >= LOCK_TIME => {
                return Err(DatabaseError::Busy);
            }
            Err(TryLockError::WouldBlock) => {}
        }
        if !is_logged && begun.elapsed() >= LOCK_SILENCE {
            is_logged = true;
            let file = path.display();
            log::warn!(
                "waiting for another process of the service, which has {file} open, to stop"
            );
        }
        sleep(BUSY_PAUSE);
    }
}
