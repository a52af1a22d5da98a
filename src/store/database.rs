//! The list on disk: an SQLite database, which other programs may read and write as well. Knows
//! rows, and nothing of requests.
//!
//! SQLite makes every commit atomic and durable (write-ahead log, `synchronous=FULL`). Four things
//! are added here: a second service is kept out by a lock on the file; what other programs have
//! committed is noticed before a save; a file that is not ours, or not there any more, is not
//! written; and a commit that was refused does not come back at the next start.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::mem::forget;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::Duration;

use imbl::Vector;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, Params, ffi};

use super::color::{self, Color, NAME_BYTES_MAX};
use super::colors::{Colors, Edit};
use super::data_file;
use super::database_error::DatabaseError;
use super::files::{Files, SharedMemory};
use crate::file_lock;

/// Mode of a new file, less what the umask takes. SQLite gives FILE-wal and FILE-shm the mode and
/// the owner of FILE.
const NEW_FILE_MODE: u32 = 0o600;

/// How long a save waits for another program that writes.
const BUSY_TIME: Duration = Duration::from_secs(5);

/// How often a file that changes meanwhile is read again.
const READS_MAX: usize = 5;

/// The highest id at which the list is used: as many colors can follow.
const LAST_ID_MAX: i64 = i64::MAX / 2;

const SCHEMA: &str =
    "CREATE TABLE color (id INTEGER PRIMARY KEY, name TEXT NOT NULL, value TEXT NOT NULL) STRICT";

const INSERT: &str = "INSERT INTO color (id, name, value) VALUES (?1, ?2, ?3)";
const UPDATE: &str = "UPDATE color SET value = ?2 WHERE id = ?1";
const DELETE: &str = "DELETE FROM color WHERE id = ?1";
const DELETE_ALL: &str = "DELETE FROM color";

/// An open database.
#[derive(Debug)]
pub(crate) struct Database {
    connection: Connection,
    files: Files,
    /// What it was when the list was last read: it changes when another program commits. `None` if
    /// the list has to be read again.
    data_version: Option<i64>,
    /// Against other processes of the service; dropped after the connection.
    _lock: File,
}

/// Locks the file against other processes of this service; creates it if it is missing. Drop the
/// lock after the connection: when a process closes any descriptor of a file, it loses SQLite's
/// locks on it (<https://sqlite.org/howtocorrupt.html>, section 2.2).
pub(crate) fn lock(path: &Path) -> Result<File, DatabaseError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(NEW_FILE_MODE);
    let file = options.open(path).map_err(|error| data_file::path_error(path, &error))?;
    match file_lock::lock(&file) {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(DatabaseError::Busy),
        Err(TryLockError::Error(error)) => Err(data_file::path_error(path, &error)),
    }
}

/// Makes the tables and the rows of these colors in a locked file; false if it has tables.
pub(crate) fn fill(path: &Path, colors: &Colors) -> Result<bool, DatabaseError> {
    // still with a rollback journal: the file's header has to say whose it is before there is a
    // write-ahead log
    let mut connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    // changed pages stay in memory until the commit, which writes the first page first
    connection.execute_batch("PRAGMA cache_spill=OFF")?;
    let transaction =
        connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    if transaction
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i64>(0))?
        > 0
    {
        return Ok(false);
    }
    transaction.pragma_update(None, "application_id", data_file::APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", data_file::VERSION)?;
    transaction.execute_batch(SCHEMA)?;
    let mut insert = transaction.prepare(INSERT)?;
    for color in colors.iter() {
        let fields = color.fields();
        insert.execute((color.id, fields.name, fields.value))?;
    }
    drop(insert);
    transaction.commit()?;
    let directory = data_file::directory_of(path);
    File::open(directory)
        .and_then(|directory| directory.sync_all())
        .map_err(|error| data_file::path_error(directory, &error))?;
    Ok(true)
}

/// Reads a database that may be in use, and changes no row. `check`: also looks for damage that
/// reading does not find.
pub(crate) fn read(path: &Path, check: bool) -> Result<Colors, DatabaseError> {
    // what tells whether the file was written to, apart from the log
    let state = || {
        let file = fs::metadata(path).ok()?;
        let has_log = data_file::with_suffix(path, "-wal").exists();
        Some((has_log, file.dev(), file.ino(), file.len(), file.mtime(), file.mtime_nsec()))
    };
    let mut before = state();
    for _ in 0..READS_MAX {
        let has_log = before.is_some_and(|(has_log, ..)| has_log);
        let read = read_once(path, has_log, check);
        // SQLite has kept other programs from changing the file under its reader if that has used
        // the log
        let is_consistent = has_log && read.is_ok();
        let now = state();
        if is_consistent || now == before {
            return read;
        }
        before = now;
    }
    Err(DatabaseError::KeepsChanging)
}

fn read_once(path: &Path, has_log: bool, check: bool) -> Result<Colors, DatabaseError> {
    // Without permission to write, SQLite makes no room either.
    let _shm = match has_log.then(|| SharedMemory::open(path)) {
        Some(Err(DatabaseError::Full)) => return Err(DatabaseError::Full),
        shm => shm,
    };
    // Without a log, SQLite can do without FILE-wal and FILE-shm, which need write permission, but
    // then also without locks.
    let query = if has_log { "" } else { "?immutable=1" };
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let connection = connect(Path::new(&format!("{}{query}", data_file::uri(path))), flags)?;
    if check {
        check_pages(&connection)?;
    }
    read_list(&connection, &Colors::default())
}

fn connect(path: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(BUSY_TIME)?;
    // 512 KiB of pages: reading is done once, and a write needs few
    connection.execute_batch("PRAGMA temp_store=MEMORY; PRAGMA cache_size=-512")?;
    Ok(connection)
}

fn check_pages(connection: &Connection) -> Result<(), DatabaseError> {
    match connection.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0))?.as_str()
    {
        "ok" => Ok(()),
        damage => Err(DatabaseError::Damaged(damage.replace('\n', " "))),
    }
}

/// Reads the list, or says why it cannot be used. A color that is the same as the one at its place
/// in `known` shares its memory.
fn read_list(connection: &Connection, known: &Colors) -> Result<Colors, DatabaseError> {
    let triggers = "SELECT count(*) FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = 'color' COLLATE NOCASE";
    if connection.query_row(triggers, [], |row| row.get::<_, i64>(0))? > 0 {
        return Err(DatabaseError::Unusable(
            "it has a trigger, which changes the list behind the service; remove it with sqlite3"
                .to_owned(),
        ));
    }
    let mut statement = connection.prepare("SELECT id, name, value FROM color ORDER BY id")?;
    let (mut rows, mut colors, mut known) = (statement.query([])?, Vector::new(), known.iter());
    while let Some(row) = rows.next()? {
        let id = row.get(0)?;
        let text = |column| match row.get_ref(column)? {
            ValueRef::Text(text) => {
                str::from_utf8(text).map_err(|_| DatabaseError::Row(id, "it is not UTF-8"))
            }
            _ => Err(DatabaseError::Row(id, "it has something else than text")),
        };
        let (name, value) = (text(1)?, text(2)?);
        if name.len() > NAME_BYTES_MAX {
            return Err(DatabaseError::Row(id, "its name is too long"));
        }
        let color = Color::new(name, value);
        let known = known.next().filter(|known| **known == color);
        colors.push_back(Color { id, ..known.cloned().unwrap_or(color) });
    }
    let colors = Colors::with_ids(colors);
    if colors.last_id() > LAST_ID_MAX {
        return Err(DatabaseError::LastId(colors.last_id()));
    }
    Ok(colors)
}

/// Begins a transaction and reads the list, and the data version to which it belongs.
fn read_in_transaction(
    connection: &Connection,
    begin: &str,
    known: &Colors,
) -> Result<(i64, Colors), DatabaseError> {
    connection.execute_batch(begin)?;
    Ok((data_version(connection)?, read_list(connection, known)?))
}

/// Changes when another connection has committed.
fn data_version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))
}

impl Database {
    /// Opens a locked database.
    pub(crate) fn open(path: &Path, lock: File) -> Result<(Self, Colors), DatabaseError> {
        let mut files = Files::new(path)?;
        let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        check_pages(&connection)?;
        let mode: String = connection.query_row("PRAGMA journal_mode=WAL", [], |row| row.get(0))?;
        if mode != "wal" {
            let reason = "its file system has no shared memory for a log; name a file on a local disk with --data";
            return Err(DatabaseError::Unusable(reason.to_owned()));
        }
        // bytes that a WAL is cut back to, after a reader has made it grow
        connection.execute_batch("PRAGMA synchronous=FULL; PRAGMA journal_size_limit=4194304")?;
        // SQLite makes FILE-wal at the first transaction
        let (data_version, colors) = read_in_transaction(&connection, "BEGIN", &Colors::default())?;
        files.note_opened()?;
        let database = Self { connection, files, data_version: Some(data_version), _lock: lock };
        database.roll_back();
        Ok((database, colors))
    }

    /// Begins a save: waits for the write lock. Returns the list if it is not known to be `known`:
    /// another program has committed since it was read, or the last save failed. In the second case
    /// it first commits what changes no color, so that the list is read from a disk that works.
    pub(super) fn begin(
        &mut self,
        known: &Colors,
        has_failed: bool,
    ) -> Result<Option<Colors>, DatabaseError> {
        self.files.check()?;
        if has_failed {
            self.connection.execute_batch(&rewrite_user_version())?;
        } else {
            self.connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
            if Some(data_version(&self.connection)?) == self.data_version {
                return Ok(None);
            }
            self.roll_back();
        }
        self.read_again("BEGIN IMMEDIATE", known).map(Some)
    }

    /// The list, if another program has committed since it was read. For readers: between saves.
    pub(super) fn look(&mut self, known: &Colors) -> Result<Option<Colors>, DatabaseError> {
        self.files.check()?;
        if Some(data_version(&self.connection)?) == self.data_version {
            return Ok(None);
        }
        let colors = self.read_again("BEGIN", known)?;
        self.roll_back();
        Ok(Some(colors))
    }

    fn read_again(&mut self, begin: &str, known: &Colors) -> Result<Colors, DatabaseError> {
        let read = read_in_transaction(&self.connection, begin, known);
        let (version, colors) = read.inspect_err(|_| self.roll_back())?;
        self.data_version = Some(version);
        Ok(colors)
    }

    /// Writes an edit of this list, after [`Database::begin`]. The rows have to be those of the
    /// list.
    pub(super) fn write(&mut self, edit: &Edit, colors: &Colors) -> Result<(), DatabaseError> {
        match edit {
            Edit::Append(color) => self.insert(color),
            Edit::Replace(id, json) => self.change_rows(UPDATE, (id, color::fields(json).value), 1),
            Edit::Remove(id) => self.change_rows(DELETE, [id], 1),
            Edit::ReplaceAll(list) => {
                // twice the text is enough for rows, their pages and the frames' headers
                self.files
                    .make_room_for(2 * (colors.envelope_len() + list.envelope_len()) as u64)?;
                self.change_rows(DELETE_ALL, [], colors.len())?;
                list.iter().try_for_each(|color| self.insert(color))
            }
        }
    }

    fn insert(&mut self, color: &Color) -> Result<(), DatabaseError> {
        let fields = color.fields();
        self.change_rows(INSERT, (color.id, fields.name, fields.value), 1)
    }

    /// Runs a statement that has to change so many rows.
    fn change_rows(
        &mut self,
        statement: &str,
        values: impl Params,
        rows: usize,
    ) -> Result<(), DatabaseError> {
        let changed = self.connection.prepare_cached(statement)?.execute(values)?;
        if changed != rows {
            self.data_version = None;
            return Err(DatabaseError::OtherRows);
        }
        Ok(())
    }

    /// Makes durable what was written since [`Database::begin`], all or nothing.
    pub(super) fn commit(&self) -> Result<(), DatabaseError> {
        let committed = self.connection.prepare_cached("COMMIT")?.execute([]);
        if let Err(refused) = &committed
            && self.erase_refused_commit().is_err()
            && refused
                .sqlite_error()
                .is_some_and(|refused| refused.extended_code == ffi::SQLITE_IOERR_FSYNC)
        {
            return Err(DatabaseError::NotErased);
        }
        Ok(committed.map(drop)?)
    }

    /// Forgets what was written since [`Database::begin`], and gives up the write lock.
    pub(super) fn roll_back(&self) {
        if !self.connection.is_autocommit() {
            // It ends the transaction whatever it returns.
            let _ = self.connection.execute_batch("ROLLBACK");
        }
    }

    /// After a failed sync the refused commit may be complete in the WAL, and the next start would
    /// replay it. Commits another frame over its first one, so that the replay stops there.
    fn erase_refused_commit(&self) -> rusqlite::Result<()> {
        self.roll_back();
        // NORMAL leaves out the sync of a commit, which may fail again, but not those of a
        // checkpoint
        let erased = self
            .connection
            .execute_batch(&format!("PRAGMA synchronous=NORMAL; {}", rewrite_user_version()));
        let restored = self.connection.execute_batch("PRAGMA synchronous=FULL");
        erased.and(restored)
    }

    /// Whether another process has it open.
    pub(super) fn is_shared(&self) -> bool {
        self.files.are_shared()
    }

    /// Writes the WAL into FILE and removes it, so that FILE alone is the list.
    pub(super) fn close(self) {
        let Self { connection, files, .. } = self;
        if !files.shared_memory().is_whole() {
            log::warn!(
                "keep FILE and FILE-wal together: FILE-shm was cut short while the service ran"
            );
            // closing it would read what is not there any more; the system frees it with the
            // process
            return forget(connection);
        }
        let is_busy = connection
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, bool>(0));
        let closed = connection.close().map_err(|(_, error)| error);
        match is_busy.and_then(|is_busy| closed.map(|()| is_busy)) {
            Ok(false) => {}
            Ok(true) => log::warn!(
                "another program uses the database: keep it and the file with -wal beside it together"
            ),
            Err(error) => {
                log::warn!("keep FILE and FILE-wal together: {}", DatabaseError::from(error))
            }
        }
    }
}

/// Writes a page, and so a frame of the log, and changes no color.
fn rewrite_user_version() -> String {
    format!("PRAGMA user_version={}", data_file::VERSION)
}

#[cfg(test)]
#[path = "database_tests.rs"]
mod tests;
