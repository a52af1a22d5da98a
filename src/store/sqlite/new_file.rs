//! Makes FILE: whole, or not at all.
//!
//! A start writes the database to a new file in the directory of FILE, named [`NEW_NAME`], opens it
//! as it will open FILE, closes and syncs it, and renames it to FILE. So FILE is whole, and can be
//! opened, even if the start is killed at any point. The next start that makes a file removes one
//! that was left. `--check` does the same, but for the renaming.
//!
//! An empty FILE, made by somebody who wants a certain owner and mode, is replaced by a file with
//! the same owner and mode. Any other file at the path stays.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rustix::fs::{CWD, RenameFlags, StatxAttributes, renameat_with};
use rustix::io::Errno;

use super::wal_files::{give_owner_and_mode_of, sync_directory, with_suffix};
use super::{Database, DatabaseError, data_path, locks, rows};
use crate::file_id::FileId;
use crate::store::ColorList;
use crate::store::engine::Engine as _;

/// Mode of a new file, less what the umask takes. SQLite gives FILE-wal and FILE-shm the mode of
/// FILE, and as root its owner.
const NEW_FILE_MODE: u32 = 0o600;

/// The name of a new file until it is whole. The lock on the directory keeps two starts from using
/// the name at once.
const NEW_NAME: &str = ".colors-new";

/// Takes the service lock on FILE, and makes FILE if that is missing or empty. Returns the lock,
/// and whether it has made FILE. `seed`: the colors of a new FILE; `None` if there was a list:
/// without it, this fails with `Missing`. `locked`: the lock, if the caller has it already.
pub(crate) fn lock_or_make(
    path: &Path,
    seed: Option<&ColorList>,
    mut locked: Option<File>,
) -> Result<(File, bool), DatabaseError> {
    loop {
        let lock = match locked.take() {
            Some(lock) => Some(lock),
            None => locks::lock_file(path)?,
        };
        match (lock, seed) {
            (Some(lock), _) if data_path::has_list(path)? => return Ok((lock, false)),
            (_, None) => return Err(DatabaseError::Missing),
            (empty, Some(colors)) => {
                if let Some(lock) = make(path, colors, empty.as_ref())? {
                    return Ok((lock, true));
                }
                // Something has come to the path meanwhile, such as the FILE of another start.
            }
        }
    }
}

/// Fails if a start could not make FILE. Makes the new file, and removes it again.
pub(crate) fn check_new_file(path: &Path, colors: &ColorList) -> Result<(), DatabaseError> {
    let empty = locks::open_file(path)?;
    let _lock = locks::lock_directory(path)?;
    NewFile::create(path, colors, empty.as_ref()).map(drop)
}

/// Makes FILE, and returns the service lock on it. `empty`: the FILE to replace. Returns `None`,
/// and changes no FILE, if another file than `empty` is there by then, or if `empty` has content.
fn make(
    path: &Path,
    colors: &ColorList,
    empty: Option<&File>,
) -> Result<Option<File>, DatabaseError> {
    let _lock = locks::lock_directory(path)?;
    let has_content = || fs::metadata(path).is_ok_and(|there| there.len() > 0);
    if has_content() {
        return Ok(None);
    }
    let new = NewFile::create(path, colors, empty)?;
    if has_content() {
        return Ok(None);
    }
    // They have nothing, but may be links to files of others.
    remove_beside(path)?;
    // Otherwise a power cut could bring these back, and those that SQLite has made and removed
    // while the new file was open.
    sync_directory(path)?;
    let failed = |error| DatabaseError::refused("make", &new.path, &error);
    let is_renamed = rename(&new.path, path, empty).map_err(failed)?;
    let lock = new.file.try_clone().map_err(failed)?;
    Ok(is_renamed.then_some(lock))
}

/// A new file. Dropping it removes the file unless it was renamed.
struct NewFile {
    path: PathBuf,
    file: File,
}

impl NewFile {
    /// Makes it in the directory of FILE, in place of one that an earlier start has left: with
    /// these colors, the service lock, and the owner and mode of `empty`. Opens it as a start opens
    /// FILE, and closes it again. So whatever would make that fail, such as a disk that has no room
    /// for FILE-shm, does so before there is a FILE.
    fn create(
        path: &Path,
        colors: &ColorList,
        empty: Option<&File>,
    ) -> Result<Self, DatabaseError> {
        check_replaceable(path)?;
        let path = path.with_file_name(NEW_NAME);
        let failed = |error| DatabaseError::refused("make", &path, &error);
        remove(&path)?;
        remove_beside(&path)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(NEW_FILE_MODE);
        let file = options.open(&path).map_err(failed)?;
        let new = Self { path, file };
        let failed = |error| DatabaseError::refused("make", &new.path, &error);
        // Nobody else has a lock on a new file.
        new.file.try_lock().map_err(|_| DatabaseError::Busy)?;
        if let Some(empty) = empty {
            let empty = empty.metadata().map_err(failed)?;
            give_owner_and_mode_of(&empty, &new.file).map_err(|_| {
                let reason = "it is empty, and this process may not give its owner and group to a \
                              new file; remove it, or run this as root";
                DatabaseError::Unusable(reason.to_owned())
            })?;
        }
        new.file.write_all_at(&image_of(colors)?, 0).map_err(failed)?;
        let lock = new.file.try_clone().map_err(failed)?;
        let database = Database::open(&new.path, &new.path, lock)?;
        Box::new(database).close().map_err(DatabaseError::Unusable)?;
        new.file.sync_all().map_err(failed)?;
        Ok(new)
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        // If these fail, the next start that makes a file removes them.
        let _ = fs::remove_file(&self.path);
        let _ = remove_beside(&self.path);
    }
}

/// What SQLite adds to the name of a database for the files beside it.
pub(super) const SUFFIXES: [&str; 3] = ["-wal", "-shm", "-journal"];

/// Fails if an empty FILE or what is beside it cannot be removed, or may have changes of a FILE that
/// was moved away or cut. Removes nothing.
fn check_replaceable(path: &Path) -> Result<(), DatabaseError> {
    if data_path::attributes(path).contains(StatxAttributes::MOUNT_ROOT) {
        let reason = "it is empty and a mount point, so that no other file can take its place; \
                      mount its directory instead, or name another file with --data";
        return Err(DatabaseError::Unusable(reason.to_owned()));
    }
    for path in [""].iter().chain(&SUFFIXES).map(|suffix| with_suffix(path, suffix)) {
        let removed = if path.is_dir() && !path.is_symlink() {
            Err(ErrorKind::IsADirectory.into())
        } else {
            // rmdir(2) says that this is no directory once it knows that the file may be removed.
            fs::remove_dir(&path)
        };
        match removed {
            Err(error) if error.kind() == ErrorKind::NotADirectory => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            removed => removed.map_err(|error| DatabaseError::refused("remove", &path, &error))?,
        }
    }
    for left in ["-wal", "-journal"].map(|suffix| with_suffix(path, suffix)) {
        if fs::symlink_metadata(&left).is_ok_and(|left| left.is_file() && left.len() > 0) {
            let left = left.display();
            return Err(DatabaseError::Unusable(format!(
                "it is missing or empty, and {left} may have changes that are nowhere else; move \
                 the file back to which that belongs, or remove {left} to begin with the seed"
            )));
        }
    }
    Ok(())
}

/// Removes the files of SQLite beside a file.
fn remove_beside(path: &Path) -> Result<(), DatabaseError> {
    SUFFIXES.iter().try_for_each(|suffix| remove(&with_suffix(path, suffix)))
}

/// Removes a file, if there is one.
fn remove(path: &Path) -> Result<(), DatabaseError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(DatabaseError::refused("remove", path, &error))
        }
        _ => Ok(()),
    }
}

/// The bytes of a database with these colors.
fn image_of(colors: &ColorList) -> Result<Vec<u8>, DatabaseError> {
    let mut connection = Connection::open_in_memory()?;
    let transaction = connection.transaction()?;
    transaction.pragma_update(None, "application_id", rows::APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", rows::VERSION)?;
    transaction.execute_batch(rows::SCHEMA)?;
    for (id, color) in colors.iter() {
        let fields = color.fields();
        transaction.prepare_cached(rows::INSERT)?.execute((id, fields.name, fields.value))?;
    }
    transaction.commit()?;
    Ok(connection.serialize("main")?.to_vec())
}

/// Renames a new file to FILE. Returns false, and renames nothing, if there is a FILE other than
/// `empty`, or if `empty` has content. What a program writes to `empty` after this check is lost.
fn rename(new: &Path, path: &Path, empty: Option<&File>) -> io::Result<bool> {
    if let Some(empty) = empty {
        let there = fs::metadata(path)?;
        let is_same = there.len() == 0 && FileId::of(&there) == FileId::of(&empty.metadata()?);
        return if is_same { fs::rename(new, path).map(|()| true) } else { Ok(false) };
    }
    let renamed = match renameat_with(CWD, new, CWD, path, RenameFlags::NOREPLACE) {
        // The file system cannot rename without replacing. A hard link does not replace either.
        Err(Errno::INVAL | Errno::NOSYS) => {
            fs::hard_link(new, path).and_then(|()| fs::remove_file(new))
        }
        renamed => renamed.map_err(io::Error::from),
    };
    match renamed {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        renamed => renamed.map(|()| true),
    }
}
