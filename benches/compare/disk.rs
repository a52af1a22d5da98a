//! The disk that lists are saved to: what it is, and what a save takes on it at the least. Knows no server.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::failure::Failure;

/// Kinds of file systems that lose everything with the power, and sync in no time.
const IN_MEMORY: [&str; 2] = ["tmpfs", "ramfs"];

/// A file system, as it is mounted.
#[derive(Debug, PartialEq)]
pub(crate) struct FileSystem {
    /// Where to.
    point: PathBuf,
    /// For example `ext4`.
    kind: String,
    /// For example `/dev/sda1`.
    source: String,
    /// For example `rw,relatime`.
    options: String,
}

impl fmt::Display for FileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}, mounted at {} with {}", self.kind, self.source, self.point.display(), self.options)
    }
}

impl FileSystem {
    /// The one that a directory is on.
    ///
    /// # Errors
    /// When it is in memory, or the kernel does not list it.
    pub(crate) fn of(directory: &Path) -> Result<Self, Failure> {
        let failed = |error| Failure::File(directory.to_owned(), error);
        let directory = directory.canonicalize().map_err(failed)?;
        let mounts = fs::read_to_string("/proc/self/mountinfo").map_err(failed)?;
        let unlisted = || failed(io::Error::other("on no file system that the kernel lists"));
        let file_system = find(&mounts, &directory).ok_or_else(unlisted)?;
        if IN_MEMORY.contains(&&*file_system.kind) {
            return Err(Failure::NoDisk(directory, file_system.kind));
        }
        Ok(file_system)
    }
}

/// The mount that a path lies below, the last of those nearest to it: that one hides the others.
fn find(mounts: &str, path: &Path) -> Option<FileSystem> {
    let mounts = mounts.lines().filter_map(parse).filter(|mount| path.starts_with(&mount.point));
    mounts.max_by_key(|mount| mount.point.components().count())
}

/// A line of `/proc/self/mountinfo` (proc_pid_mountinfo(5)).
fn parse(line: &str) -> Option<FileSystem> {
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ').skip(4);
    let mut after = after.split(' ').map(unescape);
    let (point, options) = (unescape(before.next()?), before.next()?.to_owned());
    Some(FileSystem { point: point.into(), kind: after.next()?, source: after.next()?, options })
}

/// What the kernel escapes there: white space and the backslash itself.
fn unescape(text: &str) -> String {
    text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

/// What it takes to have a file be these bytes for certain, without anything around it: write beside it, sync, rename, sync.
pub(crate) fn replace(directory: &Path, bytes: &[u8]) -> Result<Duration, Failure> {
    let temporary = directory.join("bare.tmp");
    let began = Instant::now();
    let replace = || {
        let mut file = File::create(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, directory.join("bare"))?;
        File::open(directory)?.sync_all()
    };
    replace().map_err(|error| Failure::File(temporary.clone(), error))?;
    Ok(began.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,noatime shared:1 - ext4 /dev/vda rw
30 27 0:25 / /home rw - ext4 /dev/vdb rw
31 27 0:26 / /home rw,nosuid shared:2 master:3 - btrfs /dev/vdc rw,space_cache
32 27 0:27 / /a\\040b rw - tmpfs tmpfs rw,size=1k
";

    #[test]
    fn a_path_is_on_the_nearest_mount() {
        let kind = |path: &str| find(MOUNTS, Path::new(path)).unwrap().kind;
        assert_eq!(kind("/var/lib"), "ext4");
        assert_eq!(kind("/homes"), "ext4");
        assert_eq!(kind("/home/me"), "btrfs");
        assert_eq!(kind("/a b/c"), "tmpfs");
        assert_eq!(find("", Path::new("/")), None);
    }

    #[test]
    fn a_mount_is_told_in_words() {
        assert_eq!(find(MOUNTS, Path::new("/home")).unwrap().to_string(), "btrfs on /dev/vdc, mounted at /home with rw,nosuid");
    }
}
