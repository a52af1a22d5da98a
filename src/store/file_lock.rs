//! Keeps out a second service by a lock on FILE, to which other programs pay no attention.

use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use super::database::BUSY_PAUSE;
use super::wal_files::id_of;
use super::{DatabaseError, probe};

/// Longest wait of a start for another process of the service to stop, which takes 5 s at most.
pub(super) const LOCK_TIME: Duration = Duration::from_secs(6);

/// How long a start waits before the log says for what.
const LOCK_SILENCE: Duration = Duration::from_secs(1);

/// Locks FILE against other processes of the service. `None` if there is no FILE. Fails with `Busy`
/// if another process has the lock for [`LOCK_TIME`].
pub(crate) fn lock_file(path: &Path) -> Result<Option<File>, DatabaseError> {
    let begun = Instant::now();
    loop {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(OFlags::NOFOLLOW.bits() as i32);
        let file = match options.open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            file => file.map_err(|error| probe::refused("open", path, &error))?,
        };
        lock(&file, path, begun)?;
        // A start that replaces an empty FILE has both locked before it gives up this one.
        let id = |file: io::Result<Metadata>| file.ok().map(|file| id_of(&file));
        if id(file.metadata()) == id(fs::metadata(path)) {
            return Ok(Some(file));
        }
    }
}

/// Locks the directory of FILE against other starts that make a file in it.
pub(super) fn lock_directory(path: &Path) -> Result<File, DatabaseError> {
    let directory = probe::directory_of(path);
    let file = File::open(directory);
    let file = file.map_err(|error| probe::refused("open", directory, &error))?;
    lock(&file, directory, Instant::now())?;
    Ok(file)
}

fn lock(file: &File, path: &Path, begun: Instant) -> Result<(), DatabaseError> {
    let mut is_logged = false;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
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
