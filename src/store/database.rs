//! The list on disk: an SQLite database that this process alone writes. Knows rows, and nothing of requests.
//!
//! SQLite makes every commit atomic and durable (write-ahead log, `synchronous=FULL`). Three things are added here: a second service is kept
//! out by a lock on the file, and other programs by the write lock, which is held between commits; a file that is not ours, or not there any
//! more, is not written; and a commit that was refused does not come back at the next start.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, ffi};

use super::color::{Color, NAME_BYTES_MAX};
use super::colors::Edit;
use super::data_file;
use super::database_error::DatabaseError;
use crate::logging;

/// Mode of a new file, less what the umask takes. SQLite gives FILE-wal and FILE-shm the mode and the owner of FILE.
const NEW_FILE_MODE: u32 = 0o600;

/// How long to wait for a lock: a service that is stopping releases it sooner.
const BUSY_TIME: Duration = Duration::from_secs(1);

/// Bytes of FILE-wal from which on there is a warning: without a reader that stays it has 4 MiB.
const WAL_BYTES_WARNING: u64 = 64 * 1024 * 1024;

/// `retries` is there to be written without changing a color.
const SCHEMA: &str = "
    CREATE TABLE color (id INTEGER PRIMARY KEY, name TEXT NOT NULL, value TEXT NOT NULL) STRICT;
    CREATE TABLE retries (count INTEGER NOT NULL) STRICT;
    INSERT INTO retries VALUES (0);";

const INSERT: &str = "INSERT INTO color (id, name, value) VALUES (?1, ?2, ?3)";
const UPDATE: &str = "UPDATE color SET value = ?2 WHERE id = ?1";
const DELETE: &str = "DELETE FROM color WHERE id = ?1";
const COUNT_RETRY: &str = "UPDATE retries SET count = count + 1";

/// An open database. It holds the write lock, except between a commit and the next [`Database::begin`].
#[derive(Debug)]
pub(crate) struct Database {
    connection: Connection,
    /// FILE, FILE-wal and FILE-shm, which has the locks.
    files: [(PathBuf, FileState); 3],
    /// Tells whether another program has written.
    data_version: i64,
    has_warned_of_wal: bool,
    /// The last commit failed. That may change the data version as well.
    has_failed: bool,
    /// Against other processes of the service; dropped after the connection.
    _lock: File,
}

/// Identifies an open file, with its length in bytes after the last commit: if it is shorter, another program has cut it.
#[derive(Debug)]
struct FileState {
    device: u64,
    inode: u64,
    length: u64,
}

/// Locks the file against other processes of this service; creates it if it is missing. Drop the lock after the connection: when a process
/// closes any descriptor of a file, it loses SQLite's locks on it (<https://sqlite.org/howtocorrupt.html>, section 2.2).
pub(crate) fn lock(path: &Path) -> Result<File, DatabaseError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(NEW_FILE_MODE);
    let file = options.open(path).map_err(|error| data_file::path_error(path, &error))?;
    let begun = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(error)) => return Err(data_file::path_error(path, &error)),
            Err(TryLockError::WouldBlock) if begun.elapsed() > BUSY_TIME => return Err(DatabaseError::Busy),
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// Makes the tables and the rows of these colors in a locked file, unless it has tables.
pub(crate) fn fill(path: &Path, colors: &[Color]) -> Result<(), DatabaseError> {
    // still with a rollback journal: the file's header has to say whose it is before there is a write-ahead log
    let mut connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    // changed pages stay in memory until the commit, which writes the first page first
    connection.execute_batch("PRAGMA cache_spill=OFF")?;
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    if transaction.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i64>(0))? > 0 {
        return Ok(());
    }
    transaction.pragma_update(None, "application_id", data_file::APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", data_file::VERSION)?;
    transaction.execute_batch(SCHEMA)?;
    let mut insert = transaction.prepare(INSERT)?;
    for (id, color) in (1_i64..).zip(colors) {
        insert.execute((id, &*color.name, color.value()))?;
    }
    drop(insert);
    transaction.commit()?;
    let directory = data_file::directory_of(path);
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(|error| data_file::path_error(directory, &error))
}

/// Reads a database that may be in use, and writes nothing. `check`: also looks for damage that reading does not find.
pub(crate) fn read(path: &Path, check: bool) -> Result<Vec<Color>, DatabaseError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    // Without a WAL nobody writes, so SQLite can do without FILE-wal and FILE-shm, which need write permission.
    let query = if data_file::with_suffix(path, "-wal").exists() { "" } else { "?immutable=1" };
    let connection = connect(Path::new(&format!("{}{query}", data_file::uri(path))), flags)?;
    if check {
        check_integrity(&connection)?;
    }
    read_colors(&connection)
}

fn connect(path: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(BUSY_TIME)?;
    // 512 KiB of pages: reading is done once, and a write needs few
    connection.execute_batch("PRAGMA temp_store=MEMORY; PRAGMA cache_size=-512")?;
    Ok(connection)
}

fn check_integrity(connection: &Connection) -> Result<(), DatabaseError> {
    let triggers = "SELECT count(*) FROM sqlite_schema WHERE type = 'trigger'";
    if connection.query_row(triggers, [], |row| row.get::<_, i64>(0))? > 0 {
        return Err(DatabaseError::Unusable(
            "it has a trigger, which changes the list behind the service; remove it with sqlite3".to_owned(),
        ));
    }
    match connection.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0))?.as_str() {
        "ok" => Ok(()),
        damage => Err(DatabaseError::Damaged(damage.replace('\n', " "))),
    }
}

fn read_colors(connection: &Connection) -> Result<Vec<Color>, DatabaseError> {
    let mut statement = connection.prepare("SELECT id, name, value FROM color ORDER BY id")?;
    let (mut rows, mut colors) = (statement.query([])?, Vec::new());
    while let Some(row) = rows.next()? {
        let id = row.get(0)?;
        let text = |column| match row.get_ref(column)? {
            ValueRef::Text(text) => str::from_utf8(text).map_err(|_| DatabaseError::Row(id, "it is not UTF-8")),
            _ => Err(DatabaseError::Row(id, "it has something else than text")),
        };
        let (name, value) = (text(1)?, text(2)?);
        if name.len() > NAME_BYTES_MAX {
            return Err(DatabaseError::Row(id, "its name is too long"));
        }
        colors.push(Color { id, ..Color::new(name, value) });
    }
    Ok(colors)
}

impl Database {
    /// Opens a locked database and takes its write lock.
    pub(crate) fn open(path: &Path, lock: File) -> Result<(Self, Vec<Color>), DatabaseError> {
        let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        check_integrity(&connection)?;
        let mode: String = connection.query_row("PRAGMA journal_mode=WAL", [], |row| row.get(0))?;
        if mode != "wal" {
            let reason = "its file system has no shared memory for a log; name a file on a local disk with --data";
            return Err(DatabaseError::Unusable(reason.to_owned()));
        }
        // bytes that a WAL is cut back to, after a reader has made it grow
        connection.execute_batch("PRAGMA synchronous=FULL; PRAGMA journal_size_limit=4194304; BEGIN IMMEDIATE")?;
        let colors = read_colors(&connection)?;
        let file_state = |suffix| {
            let path = data_file::with_suffix(path, suffix);
            FileState::of(&path).map(|state| (path, state))
        };
        let (Some(file), Some(wal), Some(shm)) = (file_state(""), file_state("-wal"), file_state("-shm")) else {
            return Err(DatabaseError::Replaced("a file of the database".to_owned()));
        };
        let data_version = data_version(&connection)?;
        Ok((Self { connection, files: [file, wal, shm], data_version, has_warned_of_wal: false, has_failed: false, _lock: lock }, colors))
    }

    /// Makes edits durable, all or none. Needs the write lock, and releases it. Without edits it commits a counter, to find out whether the
    /// disk works again.
    pub(super) fn commit(&mut self, edits: &[Edit]) -> Result<(), DatabaseError> {
        self.check_files()?;
        let committed = self.write(edits).and_then(|()| self.connection.prepare_cached("COMMIT")?.execute([]));
        self.has_failed = committed.is_err();
        if let Err(refused) = &committed
            && let Err(error) = self.erase_refused_commit()
            && refused.sqlite_error().is_some_and(|refused| refused.extended_code == ffi::SQLITE_IOERR_FSYNC)
        {
            let error = DatabaseError::from(error);
            logging::client_warning(format_args!("a change that was refused may be there after a crash: {error}"));
        }
        self.note_lengths();
        Ok(committed.map(drop)?)
    }

    /// Takes the write lock, unless it is held. Returns the colors if another program has written while it was not.
    pub(super) fn begin(&mut self) -> Result<Option<Vec<Color>>, DatabaseError> {
        if !self.connection.is_autocommit() {
            return Ok(None);
        }
        self.connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        let version = data_version(&self.connection)?;
        if version == self.data_version {
            return Ok(None);
        }
        // a checkpoint by another program may have cut the WAL
        self.note_lengths();
        if self.has_failed {
            // not before a commit succeeds: until then, each failure would read the whole list
            return Ok(None);
        }
        let colors = read_colors(&self.connection).inspect_err(|_| self.roll_back())?;
        self.data_version = version;
        Ok(Some(colors))
    }

    /// For [`Database::check_files`].
    fn note_lengths(&mut self) {
        for (path, state) in &mut self.files {
            state.length = fs::metadata(path).map_or(0, |file| file.len());
        }
    }

    /// Forgets what was written since [`Database::begin`], and gives up the write lock.
    pub(super) fn roll_back(&self) {
        if !self.connection.is_autocommit() {
            // It ends the transaction whatever it returns.
            let _ = self.connection.execute_batch("ROLLBACK");
        }
    }

    fn write(&self, edits: &[Edit]) -> rusqlite::Result<()> {
        if edits.is_empty() {
            return self.connection.execute_batch(COUNT_RETRY);
        }
        for edit in edits {
            match edit {
                Edit::Insert(_, color) => self.connection.prepare_cached(INSERT)?.execute((color.id, &*color.name, color.value()))?,
                Edit::Replace(_, color) => self.connection.prepare_cached(UPDATE)?.execute((color.id, color.value()))?,
                Edit::Remove(_, color) => self.connection.prepare_cached(DELETE)?.execute([color.id])?,
            };
        }
        Ok(())
    }

    /// After a failed sync the refused commit may be complete in the WAL, and the next start would replay it. Writes another frame over its
    /// first one, so that the replay stops before it. This commits nothing: the next commit goes to the same place.
    fn erase_refused_commit(&self) -> rusqlite::Result<()> {
        self.roll_back();
        let erased = self
            .connection
            // without syncs, which may fail again
            .execute_batch(&format!("PRAGMA synchronous=OFF; BEGIN IMMEDIATE; {COUNT_RETRY}"))
            .and_then(|()| self.connection.cache_flush());
        self.roll_back();
        let restored = self.connection.execute_batch("PRAGMA synchronous=FULL");
        erased.and(restored)
    }

    /// What is written to files that are not there any more would be lost.
    pub(super) fn check_files(&mut self) -> Result<(), DatabaseError> {
        for (path, before) in &self.files {
            let is_same = |now: FileState| (now.device, now.inode) == (before.device, before.inode) && now.length >= before.length;
            if !FileState::of(path).is_some_and(is_same) {
                return Err(DatabaseError::Replaced(path.file_name().unwrap_or_default().display().to_string()));
            }
        }
        let (wal, FileState { length, .. }) = &self.files[1];
        let is_long = *length >= WAL_BYTES_WARNING;
        if is_long && !self.has_warned_of_wal {
            let mib = length / (1024 * 1024);
            log::warn!("{} has grown to {mib} MiB, since a program keeps reading the database; end that", wal.display());
        }
        self.has_warned_of_wal = is_long;
        Ok(())
    }

    /// Writes the WAL into FILE and removes it, so that FILE alone is the list.
    pub(super) fn close(self) {
        self.roll_back();
        let is_busy = self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, bool>(0));
        let closed = self.connection.close().map_err(|(_, error)| error);
        match is_busy.and_then(|is_busy| closed.map(|()| is_busy)) {
            Ok(false) => {}
            Ok(true) => log::warn!("another program reads the database: keep it and the file with -wal beside it together"),
            Err(error) => log::warn!("keep FILE and FILE-wal together: {}", DatabaseError::from(error)),
        }
    }
}

/// Changes when another connection has committed.
fn data_version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))
}

impl FileState {
    fn of(path: &Path) -> Option<Self> {
        fs::metadata(path).ok().map(|file| Self { device: file.dev(), inode: file.ino(), length: file.len() })
    }
}

#[cfg(test)]
#[path = "database_tests.rs"]
mod tests;
