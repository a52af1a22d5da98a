//! The data file: one JSON array with a color per line, replaced as a whole, so that it is a complete list at any moment. Does not
//! decide what is in the list.
//!
//! A replacement is written beside the file, synced, renamed over it, and the directory is synced: after a crash the file has the list
//! before or the list after. This is written here because the crates for it choose a random temporary name, of which crashes may leave
//! any number behind, and none of them syncs the directory.

use std::fmt;
use std::fs::{self, File, Metadata, OpenOptions, Permissions, TryLockError};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::color::Color;
use super::colors::push_joined;

/// Mode of a file that did not exist before, less what the umask takes.
const NEW_FILE_MODE: u32 = 0o600;

/// Symbolic links followed to the file; the kernel's own limit (path_resolution(7)).
const LINKS_MAX: usize = 40;

/// Others may be able to create names in the directory: no link is followed, and no FIFO is waited for (open(2)).
const NO_LINK_NO_WAIT: i32 = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).bits() as i32;

/// A file that only this process changes.
#[derive(Debug)]
pub(crate) struct DataFile {
    /// Not a symbolic link.
    path: PathBuf,
    /// Always the same name, so that crashes leave one such file at most.
    temporary: PathBuf,
    directory: PathBuf,
    lock_path: PathBuf,
    /// Locked until the process ends. Not the data file itself, whose lock would go with the first replacement.
    lock: File,
}

/// Why the service cannot start with a file; `Display` says what to do.
#[derive(Debug)]
pub(crate) enum OpenError {
    /// Another process has the lock.
    InUse,
    /// Something is wrong with the path or with what is there; the text says what to do.
    Unusable(String),
    /// The system refused an operation on the file or on the lock file.
    Io(io::Error),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse => f.write_str("another process keeps its list there; name another file with --data"),
            Self::Unusable(reason) => f.write_str(reason),
            Self::Io(error) => write!(f, "{error}; name another file with --data"),
        }
    }
}

/// Why a list could not be saved.
#[derive(Debug)]
pub(crate) struct SaveError {
    /// What failed, why, and what to do if that is known.
    reason: String,
    /// The file has the new list all the same, though maybe not after a power cut: only the directory could not be synced.
    pub(crate) is_replaced: bool,
}

impl SaveError {
    fn new(step: &str, error: &io::Error) -> Self {
        let advice = match error.kind() {
            // rename(2): the file is a mount point, as one that is mounted into a container by itself
            io::ErrorKind::ResourceBusy => "; mount the file's directory instead of the file",
            io::ErrorKind::StorageFull => "; make room on the file's disk",
            _ => "",
        };
        Self { reason: format!("{step}: {error}{advice}"), is_replaced: false }
    }
}

impl fmt::Display for SaveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl DataFile {
    /// Locks a file, which need not exist yet, and removes the temporary file that a crash left beside it.
    ///
    /// # Errors
    /// When another process has the lock, when there is something else than a regular file in the place of the file, the lock file or
    /// the temporary file, or when the directory does not exist or may not be written.
    pub(crate) fn open(path: &Path) -> Result<Self, OpenError> {
        let (path, directory) = Self::locate(path)?;
        let beside = |suffix: &str| {
            let mut name = path.as_os_str().to_owned();
            name.push(suffix);
            PathBuf::from(name)
        };
        let lock_path = beside(".lock");
        let lock = open_lock(&lock_path)?;
        let file = Self { temporary: beside(".tmp"), directory, path, lock_path, lock };
        match file.remove_left_over() {
            Ok(()) => Ok(file),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(OpenError::Unusable(error.to_string())),
            Err(error) => Err(OpenError::Io(error)),
        }
    }

    /// Where the file is, or is to be, and its directory: the target if it is a link. Writes nothing.
    ///
    /// # Errors
    /// When there is something else than a regular file, or no such directory.
    pub(crate) fn locate(path: &Path) -> Result<(PathBuf, PathBuf), OpenError> {
        let path = follow_links(path).map_err(OpenError::Io)?;
        check_kind(&path)?;
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        if fs::metadata(&directory).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            return Err(OpenError::Unusable(format!("no such directory; create it with mkdir -p {}", directory.display())));
        }
        Ok((path, directory))
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

    /// Makes this list the content of the file; returns when it is on the disk.
    ///
    /// # Errors
    /// When a step fails. The file is what it was, unless [`SaveError::is_replaced`] or the lock was lost during the rename.
    pub(crate) fn save(&self, colors: &[Color]) -> Result<(), SaveError> {
        self.replace(colors, |file| file.sync_all().map_err(|error| SaveError::new("cannot sync the file", &error)))?;
        // Another process that starts from now on reads the new list. One that started during the rename may have the list before.
        self.check_lock()?;
        self.sync_directory().map_err(|error| SaveError { is_replaced: true, ..SaveError::new("cannot sync the directory", &error) })
    }

    /// Makes the list before a failed save the content of the file again, even if nothing can be synced: the next start then reads what
    /// the clients were told. What the disk has after a power cut stays uncertain.
    ///
    /// # Errors
    /// When the list cannot be written or renamed; the file still has the list of the failed save.
    pub(crate) fn put_back(&self, colors: &[Color]) -> Result<(), SaveError> {
        // Syncs failed before this call, and the caller has reported that.
        self.replace(colors, |file| {
            let _ = file.sync_all();
            Ok(())
        })?;
        let _ = self.sync_directory();
        Ok(())
    }

    fn replace(&self, colors: &[Color], sync: impl Fn(&File) -> Result<(), SaveError>) -> Result<(), SaveError> {
        let failed = |step| move |error| SaveError::new(step, &error);
        self.check_lock()?;
        let mut file = self.create_temporary().map_err(failed("cannot create a file"))?;
        let mut replace = || {
            keep_access(&file, &self.path).map_err(failed("cannot keep the file's mode"))?;
            file.write_all(&to_lines(colors)).map_err(failed("cannot write"))?;
            sync(&file)?;
            // Again, since a sync may take long: now only the rename is between the check and the new list.
            self.check_lock()?;
            fs::rename(&self.temporary, &self.path).map_err(failed("cannot replace the file"))
        };
        replace().inspect_err(|_| {
            // If this fails too, the next save or start removes it.
            let _ = fs::remove_file(&self.temporary);
        })
    }

    /// If somebody removed the lock file, alone or with its directory, a second process may have started on the same path: it would lose
    /// what this one acknowledges from then on.
    fn check_lock(&self) -> Result<(), SaveError> {
        let identity = |metadata: Metadata| (metadata.dev(), metadata.ino());
        let ours = self.lock.metadata().map(identity);
        let there = fs::symlink_metadata(&self.lock_path).map(identity);
        match (ours, there) {
            (Ok(ours), Ok(there)) if ours == there => Ok(()),
            _ => {
                let lock = file_name(&self.lock_path);
                let reason =
                    format!("the lock file {lock} was removed or replaced, so another process may use the data file; restart this one");
                Err(SaveError { reason, is_replaced: false })
            }
        }
    }

    fn create_temporary(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(NEW_FILE_MODE).custom_flags(NO_LINK_NO_WAIT);
        match options.open(&self.temporary) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.remove_left_over()?;
                options.open(&self.temporary)
            }
            result => result,
        }
    }

    /// Removes a temporary file that a crash left. It belongs to us, or to the file's owner if it had been given away already.
    fn remove_left_over(&self) -> io::Result<()> {
        let left_over = match fs::symlink_metadata(&self.temporary) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            result => result?,
        };
        let is_owner = |uid: u32| uid == left_over.uid();
        let is_ours = is_owner(rustix::process::geteuid().as_raw()) || fs::metadata(&self.path).is_ok_and(|file| is_owner(file.uid()));
        if left_over.is_file() && is_ours {
            return fs::remove_file(&self.temporary);
        }
        let reason = format!("{} is not a file that this service left there; remove it", file_name(&self.temporary));
        Err(io::Error::new(io::ErrorKind::AlreadyExists, reason))
    }

    fn sync_directory(&self) -> io::Result<()> {
        File::open(&self.directory)?.sync_all()
    }
}

/// Refuses a path whose file could not be replaced, before anything is created beside it.
fn check_kind(path: &Path) -> Result<(), OpenError> {
    let last = path.as_os_str().as_bytes().rsplit(|byte| *byte == b'/').next();
    let there = fs::symlink_metadata(path);
    let reason = if matches!(last, Some(b"" | b"." | b"..")) || there.as_ref().is_ok_and(Metadata::is_dir) {
        "it names a directory; name a file in it with --data"
    } else if there.is_ok_and(|there| !there.is_file()) {
        "it is not a regular file; name another file with --data"
    } else {
        return Ok(());
    };
    Err(OpenError::Unusable(reason.to_owned()))
}

fn open_lock(path: &Path) -> Result<File, OpenError> {
    let not_regular = || OpenError::Unusable(format!("{} is not a regular file; remove it", file_name(path)));
    if fs::symlink_metadata(path).is_ok_and(|there| !there.is_file()) {
        return Err(not_regular());
    }
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(NEW_FILE_MODE).custom_flags(NO_LINK_NO_WAIT);
    let lock = options.open(path).map_err(OpenError::Io)?;
    // The name may have changed hands since the check above.
    if !lock.metadata().map_err(OpenError::Io)?.is_file() {
        return Err(not_regular());
    }
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse),
        Err(TryLockError::Error(error)) => Err(OpenError::Io(error)),
    }
}

/// Gives a replacement, which only its owner may read so far, the owner, group and mode of the file it replaces.
///
/// Only root may give files away, and others only to groups of their own (chown(2)). A group that cannot be kept loses its rights
/// instead of passing them on, and its members, who count as others from then on, gain none.
fn keep_access(replacement: &File, path: &Path) -> io::Result<()> {
    let Ok(existing) = fs::symlink_metadata(path) else { return Ok(()) };
    let (uid, gid) = (existing.uid(), existing.gid());
    let new = replacement.metadata()?;
    let mut has_group = new.gid() == gid;
    if new.uid() != uid || !has_group {
        has_group = fchown(replacement, Some(uid), Some(gid)).is_ok() || has_group || fchown(replacement, None, Some(gid)).is_ok();
    }
    let mode = existing.mode() & 0o777;
    let mode = if has_group { mode } else { mode & 0o700 | mode & (mode >> 3) & 0o007 };
    replacement.set_permissions(Permissions::from_mode(mode))
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().display().to_string()
}

/// One color per line. A file that was cut short is not JSON, so it cannot pass for a list.
fn to_lines(colors: &[Color]) -> Vec<u8> {
    let mut lines = Vec::with_capacity(16 + 48 * colors.len()); // bytes; a color of the seed takes 47 on average
    lines.extend_from_slice(b"[");
    if !colors.is_empty() {
        lines.push(b'\n');
        push_joined(&mut lines, colors, b",\n");
    }
    lines.extend_from_slice(b"\n]");
    lines
}

/// Where a path leads if it is a symbolic link, whether or not a file is there: the link stays, its target is replaced.
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
    fn the_file_has_one_color_per_line_and_is_a_seed() {
        let colors = [Color::new("a", "1"), Color::new("b\n", "2")];
        let lines = to_lines(&colors);
        assert_eq!(str::from_utf8(&lines).unwrap(), "[\n{\"name\":\"a\",\"value\":\"1\"},\n{\"name\":\"b\\n\",\"value\":\"2\"}\n]");
        assert_eq!(crate::store::color::from_file(&lines).unwrap(), colors);
        assert_eq!(to_lines(&[]), b"[\n]");
    }

    #[test]
    fn a_file_cut_short_is_not_a_list() {
        let lines = to_lines(&[Color::new("a", "1")]);
        for end in 0..lines.len() {
            assert!(crate::store::color::from_file(&lines[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn errors_say_what_to_do() {
        let text = |error: io::ErrorKind| SaveError::new("cannot write", &error.into()).to_string();
        assert_eq!(text(io::ErrorKind::ResourceBusy), "cannot write: resource busy; mount the file's directory instead of the file");
        assert_eq!(text(io::ErrorKind::StorageFull), "cannot write: no storage space; make room on the file's disk");
        assert_eq!(text(io::ErrorKind::PermissionDenied), "cannot write: permission denied");
    }
}
