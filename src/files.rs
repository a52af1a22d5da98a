//! Which file is which, and how long somebody else is waited for.

use std::fs::{self, File, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Time between two tries. flock(2) has no wait of limited length. The pause is short, since a
/// program that takes SQLite's write lock again and again leaves that lock free for moments only.
pub(crate) const RETRY_PAUSE: Duration = Duration::from_millis(1);

/// Device and inode, which no other file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    pub(crate) fn of(file: &Metadata) -> Self {
        Self { device: file.dev(), inode: file.ino() }
    }
}

/// Whether this is the file at a path.
pub(crate) fn is_at(file: &File, path: &Path) -> bool {
    let id = |file: Metadata| FileId::of(&file);
    let there = fs::metadata(path).map(id).ok();
    there.is_some() && there == file.metadata().map(id).ok()
}

/// Tries until there is a result, for no longer than `time`, with pauses.
pub(crate) fn within<T>(time: Duration, mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
    let begun = Instant::now();
    loop {
        let found = attempt();
        if found.is_some() || begun.elapsed() >= time {
            return found;
        }
        sleep(RETRY_PAUSE);
    }
}
