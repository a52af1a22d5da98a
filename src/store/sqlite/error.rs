//! The errors of the database, and their messages. Errors of SQLite are told apart by its codes.

use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::{fmt, fs};

use rusqlite::{ErrorCode, ffi};
use rustix::fs::StatxAttributes;

use super::data_path::attributes;
use crate::store::engine::{Certainty, Scope, StorageError};

/// Why a database cannot be opened, read or written. `Display` is for the operator, in the log and
/// in `/health`: it names the cause and mostly what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DatabaseError {
    /// When another process holds a lock, or uses the database, for longer than the service waits.
    Busy,
    /// When FILE does not exist or is empty, and there is no seed from which to make it.
    Missing,
    /// When the database has the mark of another program.
    Foreign,
    /// When the table has a version of a later program.
    Newer,
    /// When the files, a row or the schema cannot be used, when the system refuses an operation on
    /// the files, or when SQLite fails otherwise. Has the reason.
    Unusable(String),
    /// When SQLite refuses a statement, and is able to run others. Has its description.
    Refused(String),
    /// When SQLite finds damage. Has its description.
    Damaged(String),
    /// When the disk has no room.
    Full,
    /// When SQLite cannot open or write one of the files, or their directory.
    Inaccessible,
    /// When a sync of SQLite fails. The commit is not in the list, now or after a crash.
    SyncFailed,
    /// When a sync fails, and so does the commit that should overwrite what was not synced: see
    /// [`Database::commit`](crate::store::engine::Engine::commit).
    NotErased,
    /// When another operation on the disk fails. Has SQLite's extended code, which says which one.
    Disk(i32),
}

impl DatabaseError {
    /// The error when the system refuses an operation on an absolute path. If permission is
    /// lacking, the message names the deepest part of the path that this process can see, its
    /// owner, and the user of this process. The system's own message names neither, and a service
    /// manager may run the service as a user of its own.
    pub(super) fn refused(operation: &'static str, path: &Path, error: &io::Error) -> Self {
        if matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) {
            return Self::Full;
        }
        let seen = path.ancestors().find_map(|part| Some((part, fs::metadata(part).ok()?)));
        let attribute = seen.as_ref().and_then(|(part, _)| attribute_of(part));
        let (operation, path, cause) = match (error.kind(), seen, attribute) {
            (ErrorKind::PermissionDenied, Some((part, _)), Some((attribute, option))) => {
                let cause = format!(
                    "it is {attribute}; change that with chattr {option}, or name another file \
                     with --data"
                );
                (operation, part, cause)
            }
            (ErrorKind::PermissionDenied, Some((part, there)), None) => {
                let cause = format!(
                    "permission denied: it belongs to user {} with mode {:04o}, and this process \
                     runs as user {}; run this as its owner, change its mode or owner, or name \
                     another file with --data",
                    there.uid(),
                    there.mode() & 0o7777,
                    rustix::process::geteuid().as_raw()
                );
                (if part == path { operation } else { "search" }, part, cause)
            }
            (ErrorKind::ReadOnlyFilesystem, Some((part, _)), _) => {
                let directory = path.ancestors().find(|part| part.is_dir()).unwrap_or(path);
                let cause = format!(
                    "it is read-only; name another file with --data, or under systemd have the \
                     unit say ReadWritePaths={}",
                    directory.display()
                );
                (operation, part, cause)
            }
            _ => (operation, path, format!("{error}; name another file with --data")),
        };
        Self::Unusable(format!("cannot {operation} {}: {cause}", path.display()))
    }

    fn for_clients(&self) -> &'static str {
        match self {
            Self::Busy => "another process has locked the database",
            Self::Full => "the disk is full",
            Self::SyncFailed | Self::Disk(_) | Self::NotErased => "the disk reported an error",
            _ => "the database cannot be used",
        }
    }
}

/// The attribute of a file that keeps even root from writing it, and how chattr(1) takes it away.
fn attribute_of(path: &Path) -> Option<(&'static str, &'static str)> {
    let attributes = attributes(path);
    if attributes.contains(StatxAttributes::IMMUTABLE) {
        return Some(("immutable", "-i"));
    }
    attributes.contains(StatxAttributes::APPEND).then_some(("append-only", "-a"))
}

impl fmt::Display for DatabaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => f.write_str("another process has locked the database; stop that process"),
            Self::Missing => f.write_str(
                "it does not exist, or is empty; name the file of a service, or a copy, with \
                 --data",
            ),
            Self::Foreign => {
                f.write_str("it is the database of another program; name another file with --data")
            }
            Self::Newer => f.write_str(
                "a newer version of colors made it; install that one, or name another file with \
                 --data",
            ),
            Self::Unusable(reason) | Self::Refused(reason) => f.write_str(reason),
            Self::Damaged(damage) => write!(
                f,
                "it is damaged ({damage}); move it away, and start with --seed and a backup, which \
                 makes a new file"
            ),
            Self::Full => f.write_str("the disk is full; make room on it"),
            Self::Inaccessible => f.write_str(
                "the file, or those beside it with -wal and -shm, cannot be opened or written; run \
                 this as their owner, on a file system that can be written",
            ),
            Self::SyncFailed => f.write_str("the disk reported an error on sync"),
            Self::NotErased => f.write_str(
                "the disk reported an error, and another when the change was taken back: it may be \
                 in the list after a crash",
            ),
            Self::Disk(ffi::SQLITE_IOERR_SHMMAP) => f.write_str(
                "this file system has no shared memory maps; name a file on another one with \
                 --data",
            ),
            Self::Disk(code) => write!(
                f,
                "the disk reported an error (code {code} of SQLite), or the file has reached a \
                 limit of its size"
            ),
        }
    }
}

impl From<DatabaseError> for StorageError {
    fn from(error: DatabaseError) -> Self {
        Self {
            message: error.to_string(),
            for_clients: error.for_clients(),
            certainty: match error {
                DatabaseError::NotErased => Certainty::InDoubt,
                _ => Certainty::NotMade,
            },
            // No other service uses FILE. What another program commits counts once it is read here.
            scope: Scope::Edits,
        }
    }
}

impl From<rusqlite::Error> for DatabaseError {
    fn from(error: rusqlite::Error) -> Self {
        let (failure, message) = match &error {
            // Displayed, it would have the whole statement.
            rusqlite::Error::SqlInputError { error, msg, .. } => (Some(error), msg.clone()),
            error => (error.sqlite_error(), error.to_string()),
        };
        let Some(failure) = failure else { return Self::Unusable(message) };
        match (failure.code, failure.extended_code) {
            (ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked, _) => Self::Busy,
            // A read-only connection gets these while another program opens the database.
            (_, ffi::SQLITE_READONLY_CANTINIT | ffi::SQLITE_READONLY_RECOVERY) => Self::Busy,
            (ErrorCode::DiskFull, _) | (_, ffi::SQLITE_IOERR_SHMSIZE) => Self::Full,
            (ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase, _) => Self::Damaged(message),
            (_, ffi::SQLITE_IOERR_FSYNC | ffi::SQLITE_IOERR_DIR_FSYNC) => Self::SyncFailed,
            (ErrorCode::SystemIoFailure, code) => Self::Disk(code),
            (ErrorCode::ReadOnly | ErrorCode::CannotOpen, _) => Self::Inaccessible,
            // SQLITE_ERROR is `Unknown`.
            (ErrorCode::ConstraintViolation | ErrorCode::Unknown, _)
            | (ErrorCode::TooBig | ErrorCode::TypeMismatch, _) => Self::Refused(message),
            _ => Self::Unusable(message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(code: i32, expected: &DatabaseError, text: &str) {
        let error = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
        let error = DatabaseError::from(error);
        assert_eq!((&error, error.to_string().as_str()), (expected, text));
    }

    #[test]
    fn a_code_of_sqlite_leads_to_what_to_do() {
        use DatabaseError::*;
        check(
            ffi::SQLITE_BUSY_RECOVERY,
            &Busy,
            "another process has locked the database; stop that process",
        );
        check(ffi::SQLITE_IOERR_SHMSIZE, &Full, "the disk is full; make room on it");
        check(
            ffi::SQLITE_READONLY_DIRECTORY,
            &Inaccessible,
            "the file, or those beside it with -wal and -shm, cannot be opened or written; run \
             this as their owner, on a file system that can be written",
        );
        let code = ffi::SQLITE_IOERR_READ;
        check(
            code,
            &Disk(code),
            &format!(
                "the disk reported an error (code {code} of SQLite), or the file has reached a \
                 limit of its size"
            ),
        );
    }
}
