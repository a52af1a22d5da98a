//! The errors of the database, made from those of SQLite.

use std::fmt;

use rusqlite::{ErrorCode, ffi};

/// Why a database cannot be opened, read or written. `Display` names the cause and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DatabaseError {
    /// When another process holds a lock for longer than the service waits for it.
    Busy,
    /// When another program is in the middle of changing the file: a later read may succeed.
    Changing(&'static str),
    /// When another program was ended in a transaction, which has to be rolled back first: that
    /// takes a write.
    HotJournal,
    /// When the service panicked while it saved this change or read this list.
    Panicked,
    /// Everything else.
    Other(String),
}

impl DatabaseError {
    pub(super) fn other(reason: &str) -> Self {
        Self::Other(reason.to_owned())
    }

    pub(super) fn full() -> Self {
        Self::other("the disk is full; make room on it")
    }

    /// `what`: the damage that SQLite reports.
    pub(super) fn damaged(what: &str) -> Self {
        Self::Other(format!(
            "it is damaged ({what}); move it away, and start with --seed and a backup, which makes \
             a new file"
        ))
    }
}

impl fmt::Display for DatabaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Busy => "another process writes to it; stop that process",
            Self::Changing(reason) => reason,
            Self::HotJournal => {
                "a program was ended while it wrote, and left a journal beside the file; open it \
                 once with sqlite3, which rolls that back"
            }
            Self::Panicked => "the service failed, its log says where",
            Self::Other(reason) => reason,
        })
    }
}

impl From<rusqlite::Error> for DatabaseError {
    fn from(error: rusqlite::Error) -> Self {
        let message = error.to_string();
        let Some(failure) = error.sqlite_error() else { return Self::Other(message) };
        match (failure.code, failure.extended_code) {
            (ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked, _) => Self::Busy,
            (_, ffi::SQLITE_READONLY_ROLLBACK) => Self::HotJournal,
            (_, ffi::SQLITE_READONLY_CANTINIT | ffi::SQLITE_READONLY_RECOVERY) => {
                Self::Changing("another program is opening or closing it; try again")
            }
            (ErrorCode::DiskFull, _) | (_, ffi::SQLITE_IOERR_SHMSIZE) => Self::full(),
            (ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase, _) => Self::damaged(&message),
            (_, ffi::SQLITE_IOERR_FSYNC | ffi::SQLITE_IOERR_DIR_FSYNC) => {
                Self::other("the disk reported an error on sync")
            }
            (_, ffi::SQLITE_IOERR_WRITE) => Self::other(
                "the file cannot be written: the disk reported an error, or there is a limit of \
                 the file's size",
            ),
            (ErrorCode::SystemIoFailure, code) => {
                Self::Other(format!("the disk reported an error (code {code} of SQLite)"))
            }
            (ErrorCode::ReadOnly, _) => {
                Self::other("the file, its directory or its file system is read-only")
            }
            (ErrorCode::CannotOpen, _) => Self::other(
                "the file, or those beside it with -wal and -shm, cannot be opened; run this as \
                 their owner",
            ),
            _ => Self::Other(message),
        }
    }
}
