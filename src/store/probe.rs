//! Finds out what is at the path of `--data` from its first bytes, so that SQLite opens only
//! databases of colors: opening may change a file.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use percent_encoding::{AsciiSet, CONTROLS, percent_encode};
use rustix::fs::Access;

use super::database_error::DatabaseError;

/// "colr", which names the program in a database's header (<https://sqlite.org/fileformat2.html>).
pub(super) const APPLICATION_ID: i32 = 0x636f_6c72;

/// The version of the tables; a newer version of the program may have a higher one.
pub(super) const VERSION: i32 = 1;

/// Messages about a database of another program, and of a higher [`VERSION`].
pub(super) const FOREIGN: &str =
    "it is the database of another program; name another file with --data";
pub(super) const NEWER: &str =
    "a newer version of colors made it; install that one, or name another file with --data";

/// Most bytes of the path of FILE, without links, and of its name: SQLite takes paths of 512, and
/// the system names of 255, with `-journal` behind them.
const PATH_BYTES_MAX: usize = 512 - 8;
const FILE_NAME_BYTES_MAX: usize = 255 - 8;

/// True if there is a database of colors, false if the file is missing or empty; an error for
/// anything else.
pub(super) fn inspect(path: &Path) -> Result<bool, DatabaseError> {
    let unusable = |reason: &str| Err(DatabaseError::other(reason));
    let last = path.as_os_str().as_bytes().rsplit(|byte| *byte == b'/').next();
    let is_directory = matches!(last, Some(b"" | b"." | b".."));
    let path = &resolve(path);
    let there = fs::metadata(path);
    if is_directory || there.as_ref().is_ok_and(fs::Metadata::is_dir) {
        return unusable("it names a directory; name a file in it with --data");
    }
    let (directory, name) = (directory_of(path), path.file_name().unwrap_or_default());
    let full = fs::canonicalize(directory).map_err(|error| match error.kind() {
        // it could not be made absolute
        ErrorKind::NotFound if directory.is_relative() => DatabaseError::other(
            "the working directory was removed; start in another, or name the whole path with \
             --data",
        ),
        ErrorKind::NotFound => DatabaseError::Other(format!(
            "no such directory; create it with mkdir -p {}",
            directory.display()
        )),
        _ => path_error(directory, &error),
    })?;
    let (full, name) = (full.join(name).as_os_str().len(), name.len());
    if full > PATH_BYTES_MAX || name > FILE_NAME_BYTES_MAX {
        return unusable(&format!(
            "its path has {full} bytes, its name {name}, and SQLite takes at most {PATH_BYTES_MAX} \
             and {FILE_NAME_BYTES_MAX}; name another file with --data"
        ));
    }
    match there {
        Ok(there) if !there.is_file() => {
            return unusable("it is not a regular file; name another file with --data");
        }
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(path_error(path, &error)),
    }
    let mut start = Vec::new();
    File::open(path)
        .and_then(|file| file.take(100).read_to_end(&mut start))
        .map_err(|error| path_error(path, &error))?;
    let number = |at: usize| {
        start.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(i32::from_be_bytes)
    };
    let is_database = start.starts_with(b"SQLite format 3\0");
    let is_of_first_start =
        start.iter().all(|byte| *byte == 0) || is_database && number(68) == Some(APPLICATION_ID);
    match (number(68), number(60)) {
        _ if start.is_empty() || is_of_first_start && is_emptied(path) => Ok(false),
        (Some(APPLICATION_ID), Some(..=VERSION)) if is_database => Ok(true),
        (Some(APPLICATION_ID), Some(_)) if is_database => unusable(NEWER),
        // a database made from what `.dump` of sqlite3 prints has 0 for both numbers
        (Some(0), _) if is_database => unusable(&format!(
            "it is the database of another program, or made by sqlite3 from a dump; name another file with --data, or mark it as ours with \
             sqlite3 FILE 'PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version={VERSION}'"
        )),
        _ if is_database => unusable(FOREIGN),
        _ if matches!(start.trim_ascii_start(), [b'[' | b'{', ..]) => unusable(
            "it is a list in JSON; start with it as --seed, and name a new file with --data",
        ),
        _ => unusable("it is not a database of colors; name another file with --data"),
    }
}

/// Whether FILE-journal has a transaction that is under way or did not end: in the second case
/// SQLite rolls it back, which may leave the file empty. In a journal that stays (`PRAGMA
/// journal_mode=PERSIST`), SQLite clears the first byte, and sets it again before it changes the
/// file.
pub(crate) fn has_journal(path: &Path) -> bool {
    let mut first = [0];
    let journal = File::open(with_suffix(path, "-journal"));
    match journal.and_then(|journal| journal.read_exact_at(&mut first, 0)) {
        Ok(()) => first != [0],
        Err(error) => ![ErrorKind::NotFound, ErrorKind::UnexpectedEof].contains(&error.kind()),
    }
}

/// Whether SQLite will cut FILE to nothing, as it was before a first start that did not end: then
/// FILE-journal says that it had no pages (<https://sqlite.org/fileformat2.html>, section 3).
fn is_emptied(path: &Path) -> bool {
    let mut header = [0; 20];
    let journal = File::open(with_suffix(path, "-journal"));
    journal.and_then(|journal| journal.read_exact_at(&mut header, 0)).is_ok()
        && header.starts_with(&[0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7])
        && header.ends_with(&[0; 4])
}

/// Makes the names of FILE and of the files beside it durable.
pub(super) fn sync_directory(path: &Path) -> Result<(), DatabaseError> {
    let synced = File::open(directory_of(path)).and_then(|directory| directory.sync_all());
    synced.map_err(|error| {
        DatabaseError::Other(format!(
            "its directory cannot be synced ({error}), so that a power cut could lose it; mend that, \
             or name another file with --data"
        ))
    })
}

/// Where the file of `--data` is, without links, and whether it has a list. Fails if this process
/// may not write the file, or may not create files in its directory.
pub(crate) fn writable(file: &Path) -> Result<(PathBuf, bool), DatabaseError> {
    let has_list = inspect(file)?;
    let path = resolve(file);
    let check = |path: &Path, access| {
        rustix::fs::access(path, access).map_err(|error| path_error(path, &error.into()))
    };
    if path.exists() {
        check(&path, Access::READ_OK | Access::WRITE_OK)?;
    }
    check(directory_of(&path), Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK)?;
    Ok((path, has_list))
}

/// The error for an absolute path that the system refuses. Names the part of the path that is to
/// blame and, if permission is lacking, the owner of that part and the user of this process.
pub(super) fn path_error(path: &Path, error: &io::Error) -> DatabaseError {
    let user = rustix::process::geteuid().as_raw();
    let found = path.ancestors().find_map(|part| Some((part, fs::metadata(part).ok()?)));
    let reason = match found {
        _ if path == Path::new("/") => "this would be a file in /, where relative paths begin \
                                        under systemd; name its whole path with --data, as in \
                                        /var/lib/colors/colors.db"
            .to_owned(),
        Some((part, there)) if error.kind() == ErrorKind::PermissionDenied => {
            let (owner, mode) = (there.uid(), there.mode() & 0o7777);
            let verb = if part == path { "use" } else { "search" };
            format!(
                "permission denied: user {user}, which runs this process, may not {verb} {}, which \
                 belongs to user {owner} with mode {mode:04o}; change its mode or its owner",
                part.display()
            )
        }
        Some((part, _)) if error.kind() == ErrorKind::NotADirectory => {
            format!("{} is not a directory; name another file with --data", part.display())
        }
        _ if error.kind() == ErrorKind::ReadOnlyFilesystem => {
            let directory = if path.is_dir() { path } else { directory_of(path) }.display();
            format!(
                "{directory} is read-only; under systemd have the unit say ReadWritePaths={directory}, or name another file with --data"
            )
        }
        _ => format!("{error}; name another file with --data"),
    };
    DatabaseError::Other(reason)
}

/// Where a path leads, as an absolute path; follows links even to a file that does not exist.
pub(super) fn resolve(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    // as many links as the kernel follows (path_resolution(7))
    for _ in 0..40 {
        let Ok(target) = fs::read_link(&path) else { break };
        path = path.parent().unwrap_or(Path::new("")).join(target);
    }
    std::path::absolute(&path).unwrap_or(path)
}

fn directory_of(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

/// The path of a file that SQLite has beside FILE, such as FILE-wal.
pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// The path as a URI for SQLite (<https://sqlite.org/uri.html>).
pub(super) fn uri(path: &Path) -> String {
    const RESERVED: &AsciiSet = &CONTROLS.add(b'%').add(b'?').add(b'#');
    format!("file://{}", percent_encode(path.as_os_str().as_bytes(), RESERVED))
}
