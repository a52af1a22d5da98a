//! The list on disk: an SQLite database, which other programs may read and write as well. Knows
//! rows, and nothing of requests.
//!
//! SQLite makes every commit atomic and durable (write-ahead log, `synchronous=FULL`). Four things
//! are added here: a second service is kept out by a lock on the file; what other programs have
//! committed is noticed before a save; a file that is not ours, or not there any more, is not
//! written; and a commit that was refused does not come back at the next start.

use std::fs::{File, OpenOptions, TryLockError};
use std::mem::forget;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use imbl::OrdMap;
use rusqlite::config::DbConfig;
use rusqlite::types::FromSql;
use rusqlite::{Connection, OpenFlags, Params, TransactionBehavior, ffi};

use super::color::NAME_BYTES_MAX;
use super::colors::Edit;
use super::wal_files::WalFiles;
use super::{Color, Colors, DatabaseError, probe};

/// Mode of a new file, less what the umask takes. SQLite gives FILE-wal and FILE-shm the mode and
/// the owner of FILE.
const NEW_FILE_MODE: u32 = 0o600;

/// Longest wait for the lock of another process of the service, which may be stopping: that takes
/// 5 s at most, with the end of its log.
const LOCK_TIME: Duration = Duration::from_secs(6);

/// After so much of it, the log says for what the start waits.
const LOCK_SILENCE: Duration = Duration::from_secs(1);

/// Longest wait of a save or a read for another program that writes.
pub(super) const BUSY_TIME: Duration = Duration::from_secs(5);

/// Time between two tries to take a lock: flock(2) cannot wait for a limited time, and a program
/// that takes SQLite's lock again and again leaves it free for moments only.
pub(super) const BUSY_PAUSE: Duration = Duration::from_millis(1);

/// Longest wait of one try to begin a save. Between two tries the writer looks what others have
/// committed, which needs no lock.
const TRY_TIME: Duration = Duration::from_millis(400);

const SCHEMA: &str =
    "CREATE TABLE color (id INTEGER PRIMARY KEY, name TEXT NOT NULL, value TEXT NOT NULL) STRICT";

const INSERT: &str = "INSERT INTO color (id, name, value) VALUES (?1, ?2, ?3)";
/// Takes the parameters of [`INSERT`], but does not use the second, the name.
const UPDATE: &str = "UPDATE color SET value = ?3 WHERE id = ?1";
const DELETE: &str = "DELETE FROM color WHERE id = ?1";
const DELETE_ALL: &str = "DELETE FROM color";

/// For every connection. A cache of 512 KiB: the list is read once, and a save needs few pages.
/// Foreign keys of other tables are left to the programs that made them.
pub(super) const PRAGMAS: &str =
    "PRAGMA temp_store=MEMORY; PRAGMA cache_size=-512; PRAGMA foreign_keys=OFF";

/// Returns a number that changes when another connection commits.
const DATA_VERSION: &str = "PRAGMA data_version";

/// An open database. Its fields are dropped in their order, the connection first: when a process
/// closes any descriptor of a file, it loses SQLite's locks on that file
/// (<https://sqlite.org/howtocorrupt.html>, section 2.2).
pub(crate) struct Database {
    connection: Connection,
    files: WalFiles,
    /// What [`DATA_VERSION`] returned when the list was last read; `None` to read it again.
    data_version: Option<i64>,
    /// Keeps out other processes of the service.
    _lock: File,
}

/// Locks the file, which it creates if it is missing, against other processes of this service.
/// `Busy` if one has the lock for [`LOCK_TIME`]. Drop the lock after the connection, see
/// [`Database`].
pub(crate) fn flock(path: &Path) -> Result<File, DatabaseError> {
    let failed = |error| probe::path_error(path, &error);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(NEW_FILE_MODE);
    let file = options.open(path).map_err(failed)?;
    let begun = Instant::now();
    let mut is_told = false;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
            Err(TryLockError::WouldBlock) if begun.elapsed() >= LOCK_TIME => {
                return Err(DatabaseError::Busy);
            }
            Err(TryLockError::WouldBlock) => {}
        }
        if !is_told && begun.elapsed() >= LOCK_SILENCE {
            is_told = true;
            let file = path.display();
            log::warn!(
                "waiting for another process of the service, which has {file} open, to stop"
            );
        }
        sleep(BUSY_PAUSE);
    }
}

/// Creates the table with these colors, durably, in a locked file; false if that has tables.
pub(crate) fn fill(path: &Path, colors: &Colors) -> Result<bool, DatabaseError> {
    // still with a rollback journal: the header of FILE has to name its program before there is a
    // FILE-wal
    let mut connection = connect(path)?;
    // Changed pages stay in memory until the commit, which writes the first page first. EXTRA also
    // syncs the directory, so that the file and the removal of its journal are durable.
    connection.execute_batch("PRAGMA cache_spill=OFF; PRAGMA synchronous=EXTRA")?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if value::<i64>(&transaction, "SELECT count(*) FROM sqlite_schema")? > 0 {
        return Ok(false);
    }
    transaction.pragma_update(None, "application_id", probe::APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", probe::VERSION)?;
    transaction.execute_batch(SCHEMA)?;
    for (id, color) in colors.iter() {
        let fields = color.fields();
        transaction.prepare_cached(INSERT)?.execute((id, fields.name, fields.value))?;
    }
    transaction.commit()?;
    Ok(true)
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags)?;
    wait_for_locks(&mut connection, BUSY_TIME)?;
    connection.execute_batch(PRAGMAS)?;
    Ok(connection)
}

/// Has the connection wait no longer than this for a lock of another program.
fn wait_for_locks(connection: &mut Connection, time: Duration) -> rusqlite::Result<()> {
    // `tries`: how often this was called for the same lock
    let mut begun = Instant::now();
    connection.busy_handler(Some(move |tries| {
        if tries == 0 {
            begun = Instant::now();
        }
        sleep(BUSY_PAUSE);
        begun.elapsed() < time
    }))
}

/// The one value that a query finds.
fn value<T: FromSql>(connection: &Connection, query: &str) -> rusqlite::Result<T> {
    connection.prepare_cached(query)?.query_row([], |row| row.get(0))
}

/// Fails if SQLite finds damage; reading the list does not find all of it.
pub(super) fn check_pages(connection: &Connection) -> Result<(), DatabaseError> {
    match value::<String>(connection, "PRAGMA quick_check(1)")?.as_str() {
        "ok" => Ok(()),
        damage => Err(DatabaseError::damaged(&damage.replace('\n', " "))),
    }
}

/// Reads the list, or says why it cannot be used. A color that `known` has with the same id shares
/// the memory of that one.
pub(super) fn read_list(connection: &Connection, known: &Colors) -> Result<Colors, DatabaseError> {
    // FILE-wal may have newer numbers than the header of FILE, which was read before
    if value::<i32>(connection, "PRAGMA application_id")? != probe::APPLICATION_ID {
        return Err(DatabaseError::other(probe::FOREIGN));
    }
    if value::<i32>(connection, "PRAGMA user_version")? > probe::VERSION {
        return Err(DatabaseError::other(probe::NEWER));
    }
    check_schema(connection)?;
    let mut statement = connection.prepare("SELECT id, name, value FROM color ORDER BY id")?;
    let (mut rows, mut colors) = (statement.query([])?, OrdMap::new());
    while let Some(row) = rows.next()? {
        let id = row.get(0)?;
        let wrong = |reason: &str| {
            DatabaseError::Other(format!(
                "the row of table color with id {id} is not a color: {reason}; correct it with \
                 sqlite3"
            ))
        };
        let text = |column| row.get_ref(column)?.as_str().map_err(|_| wrong("it is not UTF-8"));
        let (name, value) = (text(1)?, text(2)?);
        if name.len() > NAME_BYTES_MAX {
            return Err(wrong("its name is too long"));
        }
        let color = Color::new(name, value);
        let known = known.get(id).filter(|known| **known == color);
        colors.insert(id, known.cloned().unwrap_or(color));
    }
    Ok(Colors::with_ids(colors))
}

/// Fails if the database could refuse or change the rows that are written: by a table other than
/// [`SCHEMA`], a trigger, or an index that is unique, partial or on an expression.
fn check_schema(connection: &Connection) -> Result<(), DatabaseError> {
    // the result of a query on one line, for messages
    let text = |query: &str| {
        value::<String>(connection, query).map(|text| text.replace(char::is_control, " "))
    };
    let found = text(
        "SELECT ifnull(max(sql), '') FROM sqlite_schema \
         WHERE type IN ('table', 'view') AND name = 'color' COLLATE NOCASE",
    )?;
    // ALTER TABLE writes names in quotes, and what a person types may have other spaces and case
    let plain = |sql: &str| sql.to_lowercase().replace(|c: char| c == '"' || c.is_whitespace(), "");
    if plain(&found) != plain(SCHEMA) {
        let same = SCHEMA.bytes().zip(found.bytes()).take_while(|(a, b)| a == b).count();
        return Err(DatabaseError::Other(format!(
            "its table color is another one: it has \"{:.100}\" in place of \"{}\"; copy the rows \
             into a table as the service makes it, with sqlite3",
            &found[same..],
            &SCHEMA[same..]
        )));
    }
    let foreign = text(
        "SELECT ifnull(max(type || ' ' || name), '') FROM sqlite_schema AS other \
         WHERE tbl_name = 'color' COLLATE NOCASE AND (type = 'trigger' OR \
         name IN (SELECT name FROM pragma_index_list('color') WHERE \"unique\" OR partial) OR \
         EXISTS (SELECT 1 FROM pragma_index_xinfo(other.name) WHERE cid = -2))",
    )?;
    if !foreign.is_empty() {
        return Err(DatabaseError::Other(format!(
            "it has the {foreign}, which may refuse or change what the service writes; remove it \
             with sqlite3"
        )));
    }
    Ok(())
}

/// Writes a page, and so a frame of FILE-wal, and changes nothing.
fn rewrite_page(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "application_id", probe::APPLICATION_ID)
}

impl Database {
    /// Opens a locked database. `given`: FILE as `--data` names it; `path`: where that leads.
    pub(crate) fn open(
        given: &Path,
        path: &Path,
        lock: File,
    ) -> Result<(Self, Colors), DatabaseError> {
        let mut files = WalFiles::new(given, path)?;
        let has_log = probe::with_suffix(path, "-wal").exists();
        let mut connection = connect(path)?;
        // a start that is refused leaves FILE and FILE-wal as they are
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, has_log)?;
        check_pages(&connection)?;
        if value::<String>(&connection, "PRAGMA journal_mode")? != "wal" {
            // The change of the mode writes the header of FILE, which is in one sector of the disk,
            // and so needs no journal. Who only reads FILE could not roll one back after a kill.
            connection.execute_batch("PRAGMA journal_mode=OFF")?;
        }
        if value::<String>(&connection, "PRAGMA journal_mode=WAL")? != "wal" {
            let reason = "its file system has no shared memory for a log; name a file on a local disk with --data";
            return Err(DatabaseError::other(reason));
        }
        // journal_size_limit: bytes that FILE-wal is cut back to after a reader has made it grow
        connection.execute_batch("PRAGMA synchronous=FULL; PRAGMA journal_size_limit=4194304")?;
        // SQLite makes FILE-wal at the first transaction
        connection.execute_batch("BEGIN")?;
        let colors = read_list(&connection, &Colors::default())?;
        let data_version = Some(value(&connection, DATA_VERSION)?);
        files.note_opened(value(&connection, "PRAGMA page_size")?)?;
        wait_for_locks(&mut connection, TRY_TIME)?;
        // SQLite does so as well before the first change, but goes on where it fails
        probe::sync_directory(path)?;
        let database = Self { connection, files, data_version, _lock: lock };
        database.roll_back();
        Ok((database, colors))
    }

    /// Begins a save: waits [`TRY_TIME`] for the write lock, and fails with `Busy` without it. Returns the list if another program has committed
    /// since it was last read, or if the last save failed (`has_failed`). After a failed save it
    /// also writes a page that changes no color, so that a commit tells whether the disk works.
    pub(super) fn begin(
        &mut self,
        known: &Colors,
        has_failed: bool,
    ) -> Result<Option<Colors>, DatabaseError> {
        if has_failed {
            self.data_version = None;
        }
        let found = self.begin_by("BEGIN IMMEDIATE", known)?;
        if has_failed {
            rewrite_page(&self.connection)?;
        }
        Ok(found)
    }

    /// The list, if another program has committed since it was last read. Call it between saves.
    pub(super) fn poll_external(
        &mut self,
        known: &Colors,
    ) -> Result<Option<Colors>, DatabaseError> {
        let found = self.begin_by("BEGIN", known);
        self.roll_back();
        found
    }

    fn begin_by(&mut self, sql: &str, known: &Colors) -> Result<Option<Colors>, DatabaseError> {
        self.check_files(known)?;
        self.execute(sql, [])?;
        let data_version = Some(value(&self.connection, DATA_VERSION)?);
        if data_version == self.data_version {
            return Ok(None);
        }
        // the other program may have made FILE-wal longer while this one waited for the lock
        self.check_files(known)?;
        let colors = read_list(&self.connection, known)?;
        self.data_version = data_version;
        Ok(Some(colors))
    }

    fn check_files(&mut self, known: &Colors) -> Result<(), DatabaseError> {
        self.files.check()?;
        self.check_length(known)
    }

    /// Fails if FILE has become shorter and lacks pages.
    ///
    /// SQLite itself cuts FILE, at a checkpoint after a VACUUM of another program. So the list is
    /// read by a new connection, which has no page in memory; it closes no descriptor of FILE, see
    /// [`Database`].
    fn check_length(&mut self, known: &Colors) -> Result<(), DatabaseError> {
        if !self.files.is_shorter() {
            return Ok(());
        }
        let is_whole = || {
            // SQLite removes FILE-wal when it opens a FILE of 0 bytes, or of 1
            if !self.files.has_a_page() {
                return Err(self.files.cut());
            }
            let connection = connect(self.files.path())?;
            check_pages(&connection)?;
            read_list(&connection, known)
        };
        match is_whole() {
            Ok(_) => {
                self.files.note_whole();
                Ok(())
            }
            Err(DatabaseError::Busy) => Err(DatabaseError::Busy),
            Err(_) => Err(self.files.cut()),
        }
    }

    /// Writes an edit of the list, after [`Database::begin`].
    pub(super) fn write(&mut self, edit: &Edit) -> Result<(), DatabaseError> {
        match edit {
            Edit::Append(id, color) => self.put(INSERT, *id, color),
            Edit::Replace(id, color) => self.put(UPDATE, *id, color),
            Edit::Remove(id) => self.execute(DELETE, [id]),
            Edit::ReplaceAll(list) => {
                self.execute(DELETE_ALL, [])?;
                list.iter().try_for_each(|(id, color)| self.put(INSERT, id, color))
            }
        }
    }

    fn put(&mut self, sql: &str, id: i64, color: &Color) -> Result<(), DatabaseError> {
        self.files.make_room_for(color.json_len() as u64)?;
        let fields = color.fields();
        self.execute(sql, (id, fields.name, fields.value))
    }

    fn execute(&self, sql: &str, values: impl Params) -> Result<(), DatabaseError> {
        self.connection.prepare_cached(sql)?.execute(values)?;
        Ok(())
    }

    /// Makes durable what was written since [`Database::begin`], all or nothing.
    pub(super) fn commit(&self) -> Result<(), DatabaseError> {
        let Err(refused) = self.connection.prepare_cached("COMMIT")?.execute([]) else {
            return Ok(());
        };
        let is_erased = self.erase_refused_commit().is_ok();
        let code = refused.sqlite_error().map(|refused| refused.extended_code);
        if !is_erased && code == Some(ffi::SQLITE_IOERR_FSYNC) {
            return Err(DatabaseError::other(
                "the disk reported an error on sync, and another when the change was taken back: \
                 it may be there after a crash",
            ));
        }
        Err(refused.into())
    }

    /// Forgets what was written since [`Database::begin`], and gives up the write lock.
    pub(super) fn roll_back(&self) {
        if !self.connection.is_autocommit() {
            // The transaction ends whatever this returns.
            let _ = self.connection.execute_batch("ROLLBACK");
        }
    }

    /// After a failed sync, the refused commit may be whole in FILE-wal, and the next start would
    /// replay it. Commits another frame over its first one, where the replay then stops. Its sync
    /// may succeed without writing what the failed one has lost, but it writes this frame.
    fn erase_refused_commit(&self) -> rusqlite::Result<()> {
        self.roll_back();
        rewrite_page(&self.connection)
    }

    /// Copies what FILE-wal has into FILE and removes FILE-wal, so that FILE alone is the list. Fails
    /// with the reason why FILE and FILE-wal belong together still.
    pub(super) fn close(mut self) -> Result<(), String> {
        // a FILE-wal that was removed is still open, and can be copied into FILE
        let checked = self.files.shm.check().and_then(|()| self.check_length(&Colors::default()));
        let Self { connection, .. } = self;
        if let Err(error) = checked {
            // closing would write to what is there now, or read what FILE-shm has lost; the system
            // frees the connection with the process
            forget(connection);
            return Err(error.to_string());
        }
        // programs that read all the time, as Litestream does, are not waited for
        let checkpointed = connection.busy_timeout(Duration::ZERO).and_then(|()| {
            // its first column: it could not be done, because another program reads or writes
            connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))
        });
        let closed = match checkpointed {
            Ok(0) => connection
                // closing then removes FILE-wal
                .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)
                .and_then(|_| connection.close().map_err(|(_, error)| error)),
            Ok(_) => return Err("another program has a transaction open".to_owned()),
            Err(error) => Err(error),
        };
        closed.map_err(|error| DatabaseError::from(error).to_string())
    }
}

#[cfg(test)]
#[path = "database_tests.rs"]
mod tests;
