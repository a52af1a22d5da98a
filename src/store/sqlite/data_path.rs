//! Finds out what is at the path of `--data`, from the first bytes of the file. SQLite may change a
//! file that it opens, so it gets only files that begin as databases of colors.

use std::fs::{self, File};
use std::io::{ErrorKind, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, StatxAttributes, StatxFlags, statx};
use rustix::io::Errno;

use super::DatabaseError;
use super::rows::{APPLICATION_ID, VERSION};

/// Most bytes of the path of FILE, all links resolved, and of its name. SQLite takes paths of 512
/// bytes, and the system names of 255, both with `-journal` added.
const PATH_BYTES_MAX: usize = 512 - 8;
const FILE_NAME_BYTES_MAX: usize = 255 - 8;

/// Where the file of `--data` is, as an absolute path without links, and whether it has a list.
/// "Without links" means that the path does not end in a link; its directories may be links.
pub(crate) fn locate(given: &Path) -> Result<(PathBuf, bool), DatabaseError> {
    let path = resolve(given);
    let last = given.as_os_str().as_bytes().rsplit(|byte| *byte == b'/').next();
    if matches!(last, Some(b"" | b"." | b"..")) || path.is_dir() {
        let reason = "it names a directory; name a file in it with --data";
        return Err(DatabaseError::Unusable(reason.to_owned()));
    }
    check_path_length(&path)?;
    let has_list = has_list(&path)?;
    Ok((path, has_list))
}

/// Where a path leads, as an absolute path. Follows the links at its end, even to a missing file.
fn resolve(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    // The kernel follows no more than 40 links either (path_resolution(7)).
    for _ in 0..40 {
        let Ok(target) = fs::read_link(&path) else { break };
        path = path.parent().unwrap_or(Path::new("")).join(target);
    }
    std::path::absolute(&path).unwrap_or(path)
}

/// Fails if the directory of FILE does not exist or cannot be searched, or if the path or the name
/// is too long. `path` is absolute and without links.
fn check_path_length(path: &Path) -> Result<(), DatabaseError> {
    let directory = directory_of(path);
    let full = fs::canonicalize(directory).map_err(|error| match error.kind() {
        ErrorKind::NotFound => DatabaseError::Unusable(format!(
            "no such directory; create it with mkdir -p {}",
            directory.display()
        )),
        _ => DatabaseError::refused("search", directory, &error),
    })?;
    let name = path.file_name().unwrap_or_default();
    if full.join(name).as_os_str().len() > PATH_BYTES_MAX || name.len() > FILE_NAME_BYTES_MAX {
        return Err(DatabaseError::Unusable(format!(
            "its path is too long: SQLite takes {PATH_BYTES_MAX} bytes, and {FILE_NAME_BYTES_MAX} \
             of them for its name; name another file with --data"
        )));
    }
    Ok(())
}

/// True if the file at a path without links begins as a database of colors. False if the file is
/// missing or empty. Fails if anything else is there, or if the file cannot be read.
pub(super) fn has_list(path: &Path) -> Result<bool, DatabaseError> {
    let unusable = |reason: &str| Err(DatabaseError::Unusable(reason.to_owned()));
    match fs::metadata(path) {
        Ok(there) if !there.is_file() => {
            return unusable("it is not a regular file; name another file with --data");
        }
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(DatabaseError::refused("open", path, &error)),
    }
    let mut start = Vec::new();
    File::open(path)
        .and_then(|file| file.take(100).read_to_end(&mut start))
        .map_err(|error| DatabaseError::refused("read", path, &error))?;
    let number = |at: usize| {
        start.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(i32::from_be_bytes)
    };
    let is_database = start.starts_with(b"SQLite format 3\0");
    match (number(68), number(60)) {
        _ if start.is_empty() => Ok(false),
        (Some(APPLICATION_ID), Some(..=VERSION)) if is_database => Ok(true),
        (Some(APPLICATION_ID), Some(_)) if is_database => Err(DatabaseError::Newer),
        (Some(0), _) if is_database => unusable(&format!(
            "it is the database of another program, or made by sqlite3 from a dump; name another \
             file with --data, or mark it as ours with sqlite3 {} 'PRAGMA \
             application_id={APPLICATION_ID}; PRAGMA user_version={VERSION}'",
            path.display()
        )),
        _ if is_database => Err(DatabaseError::Foreign),
        _ if matches!(start.trim_ascii_start(), [b'[' | b'{', ..]) => unusable(
            "it is a list in JSON; start with it as --seed, and name a new file with --data",
        ),
        _ => unusable("it is not a database of colors; name another file with --data"),
    }
}

/// Fails if this process may not read and write a file, or may not create files in its directory.
pub(crate) fn check_writable(path: &Path) -> Result<(), DatabaseError> {
    check_access(path, Access::READ_OK | Access::WRITE_OK)?;
    check_access(directory_of(path), Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK)
}

/// Fails if there is a file at a path, and this process may not do this with it.
pub(super) fn check_access(path: &Path, access: Access) -> Result<(), DatabaseError> {
    let allowed = match rustix::fs::access(path, access) {
        Err(Errno::NOENT) => return Ok(()),
        // access(2) takes such a file for writable.
        Ok(()) if attributes(path).contains(StatxAttributes::APPEND) => Err(Errno::PERM),
        allowed => allowed,
    };
    allowed.map_err(|error| DatabaseError::refused("write", path, &error.into()))
}

/// What chattr(1) and mount(8) have made of a file; nothing where the system does not tell.
pub(super) fn attributes(path: &Path) -> StatxAttributes {
    let found = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::empty());
    found.map_or(StatxAttributes::empty(), |found| found.stx_attributes)
}

/// The directory of a file. `path` is absolute.
pub(super) fn directory_of(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}
