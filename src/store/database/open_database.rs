//! An open database: how it is opened, read, saved to and closed.

use std::fs::File;
use std::mem::forget;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use percent_encoding::{AsciiSet, CONTROLS, percent_encode};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, Params};

use super::DatabaseError;
use super::locks::{RETRY_PAUSE, retry_while_busy};
use super::rows::{self, query_value, quick_check, read_list};
use super::wal_files::{self, PAGE_BYTES_MIN, WalFiles};
use crate::store::{Color, Colors, Edit};

/// Longest wait of a start, a save or a read for a lock of another program.
pub(crate) const BUSY_TIME: Duration = Duration::from_secs(5);

/// Longest wait of one try to begin a save. Between two tries the writer publishes what other
/// programs have committed.
pub(crate) const TRY_TIME: Duration = Duration::from_millis(400);

/// For every connection. A cache of 512 KiB is enough: the list is read once, and a save needs few
/// pages. Foreign keys concern only tables of other programs, which check them.
const PRAGMAS: &str = "PRAGMA temp_store=MEMORY; PRAGMA cache_size=-512; PRAGMA foreign_keys=OFF";

/// Returns a number that changes when another connection commits.
const DATA_VERSION: &str = "PRAGMA data_version";

/// With this setting, closing the connection leaves FILE-wal as it is.
const KEEP_WAL: DbConfig = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;

/// An open database. Its fields are dropped in their order: the connection before all descriptors
/// of its files.
pub(crate) struct Database {
    connection: Connection,
    files: WalFiles,
    /// What [`DATA_VERSION`] returned when the list was last read. `None`: the list has to be read
    /// again.
    data_version: Option<i64>,
    /// The lock that keeps out other processes of the service; `None` for a read.
    _lock: Option<File>,
}

impl Database {
    /// Opens a locked database. `given`: FILE as `--data` names it. `path`: where that leads,
    /// without links.
    pub(crate) fn open(
        given: &Path,
        path: &Path,
        lock: File,
    ) -> Result<(Self, Colors), DatabaseError> {
        let mut database = Self::open_checked(given, path, Some(lock))?;
        let connection = &mut database.connection;
        if query_value::<String>(connection, "PRAGMA journal_mode=WAL")? != "wal" {
            let reason = "its file system has no shared memory for a WAL; name a file on a local \
                          disk with --data";
            return Err(DatabaseError::Unusable(reason.to_owned()));
        }
        // A long read of another program makes FILE-wal grow. journal_size_limit is the length in
        // bytes to which SQLite cuts it afterwards.
        connection.execute_batch("PRAGMA synchronous=FULL; PRAGMA journal_size_limit=4194304")?;
        // SQLite makes FILE-wal at the first transaction.
        connection.execute_batch("BEGIN")?;
        let colors = read_list(connection, &Colors::default())?;
        database.data_version = Some(query_value(connection, DATA_VERSION)?);
        database.files.note_opened()?;
        wait_for_locks(connection, TRY_TIME)?;
        // SQLite syncs the directory as well before the first change, but ignores a failure.
        wal_files::sync_directory(path)?;
        database.roll_back();
        Ok((database, colors))
    }

    /// Reads the list of the database at a path without links, as a start would: recovers what a
    /// kill has left, and looks for damage. A service may be running on it.
    pub(crate) fn read_recovering(path: &Path) -> Result<Colors, DatabaseError> {
        let database = Self::open_checked(path, path, None)?;
        read_list(&database.connection, &Colors::default())
    }

    /// Opens a database, and looks for damage.
    fn open_checked(given: &Path, path: &Path, lock: Option<File>) -> Result<Self, DatabaseError> {
        let files = WalFiles::new(given, path)?;
        let has_wal = files.wal.path.exists();
        let connection = open_connection(path)?;
        // If FILE-wal was there before, dropping the connection leaves it as it is.
        connection.set_db_config(KEEP_WAL, has_wal)?;
        quick_check(&connection)?;
        Ok(Self { connection, files, data_version: None, _lock: lock })
    }

    /// Begins a save. Waits [`TRY_TIME`] for the write lock, and fails with `Busy` without it.
    /// Returns the list if another program has committed since it was last read.
    ///
    /// After a failed save (`has_failed`) this returns the list in any case. It also syncs the
    /// directory, since SQLite may have failed to, and writes a frame that changes nothing, so that
    /// the commit shows whether the disk works.
    pub(crate) fn begin(
        &mut self,
        known: &Colors,
        has_failed: bool,
    ) -> Result<Option<Colors>, DatabaseError> {
        if has_failed {
            self.data_version = None;
        }
        let found = self.begin_with("BEGIN IMMEDIATE", known)?;
        if has_failed {
            wal_files::sync_directory(&self.files.wal.path)?;
            rewrite_page(&self.connection)?;
        }
        Ok(found)
    }

    /// Returns the list if another program has committed since it was last read. Needs no write
    /// lock. Call this between saves only.
    pub(crate) fn read_if_changed(
        &mut self,
        known: &Colors,
    ) -> Result<Option<Colors>, DatabaseError> {
        let found = self.begin_with("BEGIN", known);
        self.roll_back();
        found
    }

    /// Begins a transaction by `sql`, which takes the write lock or does not. Returns the list if
    /// another program has committed since it was last read.
    fn begin_with(&mut self, sql: &str, known: &Colors) -> Result<Option<Colors>, DatabaseError> {
        self.check_files(known)?;
        self.execute(sql, [])?;
        let data_version = Some(query_value(&self.connection, DATA_VERSION)?);
        if data_version == self.data_version {
            return Ok(None);
        }
        // During the wait, the program that had the write lock may have made FILE-wal longer.
        self.check_files(known)?;
        let colors = read_list(&self.connection, known)?;
        self.data_version = data_version;
        Ok(Some(colors))
    }

    /// Fails if FILE, FILE-wal or FILE-shm was removed, replaced or cut.
    fn check_files(&mut self, known: &Colors) -> Result<(), DatabaseError> {
        self.files.check()?;
        self.check_not_cut(known)
    }

    /// Fails if FILE or FILE-wal has become shorter and lacks pages.
    ///
    /// A shorter file may lack none: a checkpoint of another program cuts FILE after a VACUUM, and
    /// may cut FILE-wal. So a new connection, which has no page in memory, reads the list. Closing
    /// that connection loses no lock, since SQLite keeps its descriptor of FILE open.
    fn check_not_cut(&mut self, known: &Colors) -> Result<(), DatabaseError> {
        let Some(shorter) = self.files.shorter() else { return Ok(()) };
        let cut = wal_files::replaced(shorter);
        // SQLite would remove FILE-wal if FILE had 0 bytes or 1.
        if self.files.file_length() < PAGE_BYTES_MIN {
            return Err(cut);
        }
        let is_whole = || {
            let connection = open_connection(&self.files.file.path)?;
            quick_check(&connection)?;
            read_list(&connection, known)
        };
        is_whole().map_err(|error| if error == DatabaseError::Busy { error } else { cut })?;
        self.files.note_whole();
        Ok(())
    }

    /// Writes an edit of the list, after [`Database::begin`].
    pub(crate) fn write(&mut self, edit: &Edit) -> Result<(), DatabaseError> {
        match edit {
            Edit::Append(id, color) => self.put(rows::INSERT, *id, color),
            Edit::Update(id, color) => self.put(rows::UPDATE, *id, color),
            Edit::Remove(id, _) => self.execute(rows::DELETE, [id]),
            Edit::ReplaceAll(list) => {
                self.execute(rows::DELETE_ALL, [])?;
                list.iter().try_for_each(|(id, color)| self.put(rows::INSERT, id, color))
            }
        }
    }

    fn put(&mut self, sql: &str, id: i64, color: &Color) -> Result<(), DatabaseError> {
        self.files.allocate_for(color.json_len() as u64)?;
        let fields = color.fields();
        self.execute(sql, (id, fields.name, fields.value))
    }

    fn execute(&self, sql: &str, values: impl Params) -> Result<(), DatabaseError> {
        self.connection.prepare_cached(sql)?.execute(values)?;
        Ok(())
    }

    /// Makes durable what was written since [`Database::begin`], all or nothing. If the commit
    /// fails, nothing of that is in the list, now or after a crash. The exception is the error
    /// `NotErased`: after a crash, all of it may be in the list.
    pub(crate) fn commit(&mut self) -> Result<(), DatabaseError> {
        let Err(refused) = self.connection.prepare_cached("COMMIT")?.execute([]) else {
            self.files.note_committed();
            return Ok(());
        };
        // After a failed sync, the refused commit may be whole in FILE-wal, and the next start
        // would replay it. So another commit overwrites the first frame of the refused one, and a
        // replay stops there. A second sync does not always write what the first one has lost, but
        // it does write the new frame.
        self.roll_back();
        let is_erased = rewrite_page(&self.connection).is_ok();
        Err(match refused.into() {
            DatabaseError::SyncFailed if !is_erased => DatabaseError::NotErased,
            refused => refused,
        })
    }

    /// Forgets what was written since [`Database::begin`], and gives up the write lock.
    pub(crate) fn roll_back(&self) {
        if !self.connection.is_autocommit() {
            // The transaction ends whatever this returns.
            let _ = self.connection.execute_batch("ROLLBACK");
        }
    }

    /// Copies what FILE-wal has into FILE and removes FILE-wal, so that FILE alone is the list.
    /// Fails with the reason why FILE-wal is still needed.
    pub(crate) fn close(mut self) -> Result<(), String> {
        // FILE-wal may have been removed. The connection has it open, and copies it into FILE.
        let checked = self.files.shm.check().and_then(|()| self.check_not_cut(&Colors::default()));
        let connection = self.connection;
        if let Err(error) = checked {
            // Closing would write to the files that are there now, or read what FILE-shm has lost.
            // The system frees the connection with the process.
            forget(connection);
            return Err(error.to_string());
        }
        let failed = |error| DatabaseError::from(error).to_string();
        // Does not wait for other programs: some, such as Litestream, read all the time.
        connection.busy_timeout(Duration::ZERO).map_err(failed)?;
        // The first column is 1 if another program reads or writes.
        let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
        if query_value::<bool>(&connection, checkpoint).map_err(failed)? {
            return Err("another program has a transaction open".to_owned());
        }
        // Then closing removes FILE-wal.
        connection.set_db_config(KEEP_WAL, false).map_err(failed)?;
        connection.close().map_err(|(_, error)| failed(error))
    }
}

fn open_connection(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags)?;
    wait_for_locks(&mut connection, BUSY_TIME)?;
    connection.execute_batch(PRAGMAS)?;
    Ok(connection)
}

/// Sets how long the connection waits for a lock of another program.
fn wait_for_locks(connection: &mut Connection, time: Duration) -> rusqlite::Result<()> {
    // `tries`: how often SQLite has called this already for the same lock.
    let mut begun = Instant::now();
    connection.busy_handler(Some(move |tries| {
        if tries == 0 {
            begun = Instant::now();
        }
        sleep(RETRY_PAUSE);
        begun.elapsed() < time
    }))
}

/// Writes a frame to FILE-wal that changes nothing.
fn rewrite_page(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "application_id", rows::APPLICATION_ID)
}

/// Reads the list at a path without links by a connection that cannot write. For a `--dump` that
/// may not write FILE, as in `colors-backup.service`, for which all file systems are read-only.
/// Unlike [`Database::read_recovering`], it recovers nothing, so it may fail after a kill.
pub(crate) fn read_without_writing(path: &Path) -> Result<Colors, DatabaseError> {
    retry_while_busy(BUSY_TIME, || try_read_without_writing(path))
}

/// Fails with `Busy` if another program opens or closes the database meanwhile.
fn try_read_without_writing(path: &Path) -> Result<Colors, DatabaseError> {
    // In WAL mode, SQLite makes FILE-wal and FILE-shm, unless it is told that nobody changes FILE.
    // Nobody has if there was neither FILE-wal nor FILE-journal, before and after, and if FILE has
    // the same time.
    let unused_since = || {
        let is_beside = |suffix| wal_files::with_suffix(path, suffix).exists();
        let is_used = is_beside("-wal") || is_beside("-journal");
        if is_used { None } else { path.metadata().and_then(|file| file.modified()).ok() }
    };
    let before = unused_since();
    let parameters = if before.is_some() { "?immutable=1" } else { "" };
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    // What has a meaning in a URI (<https://sqlite.org/uri.html>).
    const RESERVED: &AsciiSet = &CONTROLS.add(b'%').add(b'?').add(b'#');
    let path_in_uri = percent_encode(path.as_os_str().as_bytes(), RESERVED);
    let uri = format!("file://{path_in_uri}{parameters}");
    let found = Connection::open_with_flags(uri, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)
        .map_err(DatabaseError::from)
        .and_then(|connection| read_list(&connection, &Colors::default()));
    if unused_since() == before { found } else { Err(DatabaseError::Busy) }
}

#[cfg(test)]
#[path = "open_database_tests.rs"]
mod tests;
