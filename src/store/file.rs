//! The durable file: one JSON array with a color a line, replaced as a whole so that it is always a complete list. Decides nothing about
//! what is in it.
//!
//! A replacement is written beside the file, synced, renamed over it, and the directory synced: after a crash at any moment the file is
//! the list before or the list after. Written with the standard library: what the crates for this offer is a random temporary name, which
//! a crash may leave behind any number of times, and none of them syncs the directory.

use std::fmt;
use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::color::Color;

/// Permission bits of a file that did not exist before: its owner's alone, less what the umask takes.
const NEW_FILE_MODE: u32 = 0o600;

/// Symbolic links followed to the file; the kernel's own limit (path_resolution(7)).
const LINKS_MAX: usize = 40;

/// A file of which this process alone is in charge.
#[derive(Debug)]
pub(crate) struct DataFile {
    /// The file itself, not a link to it.
    path: PathBuf,
    /// Where a replacement is written; the same name each time, so that a crash leaves one at most.
    temporary: PathBuf,
    /// Where the file is.
    directory: PathBuf,
    /// Locked for as long as this process lives. A file of its own: the lock on the data file would go with the first replacement.
    _lock: File,
}

/// Why a file cannot be taken charge of.
#[derive(Debug)]
pub(crate) enum OpenError {
    /// When another process is in charge of it.
    InUse,
    /// When its directory, or the lock beside it, cannot be used.
    Io(io::Error),
}

/// Why the list could not be saved.
#[derive(Debug)]
pub(crate) struct SaveError {
    /// What was being done.
    step: &'static str,
    /// What the system said to it.
    error: io::Error,
    /// Whether the file has the new list all the same, though maybe not for long: only the directory could not be synced.
    pub(crate) is_replaced: bool,
}

impl fmt::Display for SaveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.step, self.error)?;
        match self.error.kind() {
            // rename(2): the file is a mount point, as one that is mounted into a container by itself
            io::ErrorKind::ResourceBusy => f.write_str("; mount the file's directory instead of the file"),
            io::ErrorKind::StorageFull => f.write_str("; make room on the file's disk"),
            _ => Ok(()),
        }
    }
}

impl DataFile {
    /// Takes charge of a file, which need not exist yet, and clears away what a crash left beside it.
    ///
    /// # Errors
    /// When another process is in charge of it, or its directory does not exist or may not be written.
    pub(crate) fn open(path: &Path) -> Result<Self, OpenError> {
        let path = follow_links(path).map_err(OpenError::Io)?;
        let beside = |suffix: &str| {
            let mut name = path.as_os_str().to_owned();
            name.push(suffix);
            PathBuf::from(name)
        };
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        let mut options = OpenOptions::new();
        let lock = options.write(true).create(true).truncate(false).mode(NEW_FILE_MODE).open(beside(".lock")).map_err(OpenError::Io)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(OpenError::InUse),
            Err(TryLockError::Error(error)) => return Err(OpenError::Io(error)),
        }
        let file = Self { temporary: beside(".tmp"), directory, path, _lock: lock };
        match fs::remove_file(&file.temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(OpenError::Io(error)),
            _ => Ok(file),
        }
    }

    /// The file's bytes; `None` when it does not exist.
    ///
    /// # Errors
    /// When it exists and cannot be read.
    pub(crate) fn read(&self) -> io::Result<Option<Vec<u8>>> {
        match fs::read(&self.path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Has the file be this list; returns when it is on the disk.
    ///
    /// # Errors
    /// When a step fails; the file is what it was, but see [`SaveError::is_replaced`], and nothing is left beside it.
    pub(crate) fn save(&self, colors: &[Color]) -> Result<(), SaveError> {
        self.replace(&to_lines(colors)).inspect_err(|_| {
            // It may not exist, or not be removable either; it is cleared away at the next start at the latest.
            let _ = fs::remove_file(&self.temporary);
        })
    }

    /// Writes, syncs, renames, syncs.
    fn replace(&self, bytes: &[u8]) -> Result<(), SaveError> {
        let failed = |step| move |error| SaveError { step, error, is_replaced: false };
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(true).mode(NEW_FILE_MODE);
        let mut file = options.open(&self.temporary).map_err(failed("cannot create a file"))?;
        if let Ok(existing) = fs::metadata(&self.path) {
            let mode = Permissions::from_mode(existing.permissions().mode());
            file.set_permissions(mode).map_err(failed("cannot keep the file's mode"))?;
        }
        file.write_all(bytes).map_err(failed("cannot write"))?;
        file.sync_all().map_err(failed("cannot sync the file"))?;
        fs::rename(&self.temporary, &self.path).map_err(failed("cannot replace the file"))?;
        File::open(&self.directory).and_then(|directory| directory.sync_all()).map_err(|error| SaveError {
            step: "cannot sync the directory",
            error,
            is_replaced: true,
        })
    }
}

/// The list with a color a line. Every beginning of it but the whole is no JSON, so that a file cut short cannot pass for a list.
fn to_lines(colors: &[Color]) -> Vec<u8> {
    let mut lines = Vec::with_capacity(16 + 48 * colors.len()); // bytes; a color of the seed takes 47 on average
    lines.extend_from_slice(b"[");
    for (position, color) in colors.iter().enumerate() {
        lines.extend_from_slice(if position == 0 { b"\n" } else { b",\n" });
        serde_json::to_writer(&mut lines, color).expect("strings always serialize, and a Vec takes every byte");
    }
    lines.extend_from_slice(b"\n]");
    lines
}

/// Where a path leads when it is a symbolic link, be there a file or not: the link stays, what it leads to is replaced.
fn follow_links(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        match fs::read_link(&path) {
            Ok(target) => path = path.parent().unwrap_or(Path::new("")).join(target),
            // not a link, or nothing at all
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::other("too many symbolic links"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_has_a_color_a_line_and_is_a_seed() {
        let colors = [Color { name: "a".into(), value: "1".into() }, Color { name: "b\n".into(), value: "2".into() }];
        let lines = to_lines(&colors);
        assert_eq!(str::from_utf8(&lines).unwrap(), "[\n{\"name\":\"a\",\"value\":\"1\"},\n{\"name\":\"b\\n\",\"value\":\"2\"}\n]");
        assert_eq!(super::super::color::from_file(&lines).unwrap(), colors);
        assert_eq!(to_lines(&[]), b"[\n]");
    }

    #[test]
    fn no_beginning_of_a_file_passes_for_a_list() {
        let lines = to_lines(&[Color { name: "a".into(), value: "1".into() }]);
        for end in 0..lines.len() {
            assert!(super::super::color::from_file(&lines[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn errors_name_the_mend() {
        let text = |error: io::ErrorKind| SaveError { step: "cannot write", error: error.into(), is_replaced: false }.to_string();
        assert_eq!(text(io::ErrorKind::ResourceBusy), "cannot write: resource busy; mount the file's directory instead of the file");
        assert_eq!(text(io::ErrorKind::StorageFull), "cannot write: no storage space; make room on the file's disk");
        assert_eq!(text(io::ErrorKind::PermissionDenied), "cannot write: permission denied");
    }
}
