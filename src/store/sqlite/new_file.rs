//! Makes FILE: whole, or not at all.
//!
//! A start writes the database to a new file in the directory of FILE, named [`NEW_NAME`], syncs
//! the new file, and renames it to FILE. So FILE is whole, even if the start is killed at any
//! point. The next start that makes a file removes one that was left.
//!
//! An empty FILE, made by somebody who wants a certain owner and mode, is replaced by a file with
//! the same owner and mode. Any other file at the path stays.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::wal_files::{give_owner_and_mode_of, sync_directory, with_suffix};
use super::{DatabaseError, data_path, locks, rows};
use crate::file_id::FileId;
use crate::store::ColorList;

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

/// Fails if a start could not create a file beside FILE. Creates one, and removes it again.
pub(crate) fn check_new_file(path: &Path) -> Result<(), DatabaseError> {
    let _lock = locks::lock_directory(path)?;
    NewFile::create(path).map(drop)
}

/// Makes FILE, and returns the service lock on it. `empty`: the FILE to replace. Returns `None`,
/// and changes no FILE, if another file than `empty` is there by then, or if `empty` has content.
fn make(
    path: &Path,
    colors: &ColorList,
    empty: Option<&File>,
) -> Result<Option<File>, DatabaseError> {
    let _lock = locks::lock_directory(path)?;
    if fs::metadata(path).is_ok_and(|there| there.len() > 0) {
        return Ok(None);
    }
    let new = NewFile::create(path)?;
    let failed = |error| DatabaseError::refused("make", &new.path, &error);
    let file = new.file.try_clone().map_err(failed)?;
    // Nobody else has a lock on a new file.
    file.try_lock().map_err(|_| DatabaseError::Busy)?;
    if let Some(empty) = empty {
        let empty = empty.metadata().map_err(failed)?;
        give_owner_and_mode_of(&empty, &file).map_err(|_| {
            let reason = "it is empty, and this process may not give its owner and group to a new \
                          file; remove it, or run this as root";
            DatabaseError::Unusable(reason.to_owned())
        })?;
    }
    file.write_all_at(&image_of(colors)?, 0).map_err(failed)?;
    file.sync_all().map_err(failed)?;
    // SQLite would apply to the new FILE what an earlier FILE has left in these files.
    let has_wal = remove(&with_suffix(path, "-wal"))?;
    let has_journal = remove(&with_suffix(path, "-journal"))?;
    if has_wal || has_journal {
        sync_directory(path)?;
    }
    let is_renamed = rename(&new.path, path, empty).map_err(failed)?;
    Ok(is_renamed.then_some(file))
}

/// A new file. Dropping it removes the file unless it was renamed.
struct NewFile {
    path: PathBuf,
    file: File,
}

impl NewFile {
    /// Creates it in the directory of FILE, in place of one that an earlier start has left.
    fn create(path: &Path) -> Result<Self, DatabaseError> {
        let path = path.with_file_name(NEW_NAME);
        remove(&path)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(NEW_FILE_MODE);
        match options.open(&path) {
            Ok(file) => Ok(Self { path, file }),
            Err(error) => Err(DatabaseError::refused("make", &path, &error)),
        }
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        // If this fails, the next start that makes a file removes it.
        let _ = fs::remove_file(&self.path);
    }
}

/// Removes a file. False if there is none.
fn remove(path: &Path) -> Result<bool, DatabaseError> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(DatabaseError::refused("remove", path, &error)),
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
