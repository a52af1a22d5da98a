//! The lock of a file or directory, which keeps other processes of this service away. Decides
//! nothing by it.

use std::fs::{File, TryLockError};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Longest wait for another process: one that is stopping, or that starts in the same directory,
/// ends sooner.
const WAIT_TIME: Duration = Duration::from_secs(1);

/// flock(2) cannot wait for a limited time, so it is tried this often.
const TRY_INTERVAL: Duration = Duration::from_millis(5);

/// Locks a file until it is dropped; `WouldBlock` when another process keeps it locked.
pub(crate) fn lock(file: &File) -> Result<(), TryLockError> {
    let begun = Instant::now();
    loop {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if begun.elapsed() < WAIT_TIME => sleep(TRY_INTERVAL),
            locked => return locked,
        }
    }
}
