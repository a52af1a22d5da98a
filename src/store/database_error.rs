//! Why the database cannot be used, in words that name the cause and what to do.

use std::fmt;

use rusqlite::{ErrorCode, ffi};

/// Why a database cannot be opened, read or written. `Display` names the cause and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DatabaseError {
    /// When another process has the write lock for longer than a save waits.
    Busy,
    /// When there is no room on the disk.
    Full,
    /// When the path, or what is there, is not one that the service can use.
    Unusable(String),
    /// When SQLite finds the file damaged; with what it finds.
    Damaged(String),
    /// When this row is not a color, and why.
    Row(i64, &'static str),
    /// When the last row has an id behind which there is no room.
    LastId(i64),
    /// When an edit finds another row, or none, where the list has its color.
    OtherRows,
    /// When a commit failed at the sync, and could not be removed from the log either.
    NotErased,
    /// When another program keeps writing to the file while it is read.
    KeepsChanging,
    /// When SQLite fails in any other way; with the reason.
    Sqlite(String),
    /// When this file of the database was removed, replaced or cut short while the service runs.
    Replaced(String),
    /// When the writer has ended.
    Closed,
    /// When the writer panicked on this change.
    Panicked,
}

impl fmt::Display for DatabaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => f.write_str("another process writes to it; stop that process"),
            Self::Full => f.write_str("the disk is full; make room on it"),
            Self::Unusable(reason) | Self::Sqlite(reason) => f.write_str(reason),
            Self::Damaged(what) => {
                write!(f, "it is damaged ({what}); move it away, and start with --seed and a backup, which makes a new file")
            }
            Self::Row(id, reason) => write!(f, "the row of table color with id {id} is not a color: {reason}; correct it with sqlite3"),
            Self::LastId(id) => write!(f, "no color can follow the row of table color with id {id}; give it a smaller id with sqlite3"),
            Self::OtherRows => f.write_str("another program has changed the rows of the table color; try again"),
            Self::NotErased => {
                f.write_str("the disk reported an error on sync, and another when the change was taken back: it may be there after a crash")
            }
            Self::KeepsChanging => f.write_str("another program writes to it at the same time; try again"),
            Self::Replaced(name) => {
                write!(
                    f,
                    "{name} was removed, replaced or cut short; move it back (a copy is another file), or save what GET /colors answers and restart"
                )
            }
            Self::Closed => f.write_str("nothing is saved any more: the service is stopping, or its log says why"),
            Self::Panicked => f.write_str("the service failed, its log says where"),
        }
    }
}

impl From<rusqlite::Error> for DatabaseError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy,
            Some(ErrorCode::DiskFull) => Self::Full,
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                Self::Damaged(explain(&error))
            }
            _ if error
                .sqlite_error()
                .is_some_and(|error| error.extended_code == ffi::SQLITE_IOERR_SHMSIZE) =>
            {
                Self::Full
            }
            _ => Self::Sqlite(explain(&error)),
        }
    }
}

/// What SQLite says, in words that name the cause and what to do.
fn explain(error: &rusqlite::Error) -> String {
    let rusqlite::Error::SqliteFailure(failure, message) = error else { return error.to_string() };
    match (failure.code, failure.extended_code) {
        (_, ffi::SQLITE_IOERR_FSYNC | ffi::SQLITE_IOERR_DIR_FSYNC) => "the disk reported an error on sync".to_owned(),
        (_, ffi::SQLITE_IOERR_WRITE) => {
            "the file cannot be written: the disk reported an error, or there is a limit of the file's size".to_owned()
        }
        (ErrorCode::SystemIoFailure, code) => format!("the disk reported an error (code {code} of SQLite)"),
        (ErrorCode::ReadOnly, _) => "the file, its directory or its file system is read-only".to_owned(),
        (ErrorCode::CannotOpen, _) => {
            "the file, or those beside it with -wal and -shm, cannot be opened; run this as their owner".to_owned()
        }
        _ => message.clone().unwrap_or_else(|| error.to_string()),
    }
}
