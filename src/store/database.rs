//! The list on disk: an SQLite database, which other programs may read and write as well. Knows
//! rows, and nothing of requests.
//!
//! SQLite makes every commit atomic and durable (write-ahead log, `synchronous=FULL`). Four things
//! are added here: a second service is kept out by a lock on the file; what other programs have
//! committed is noticed before a save; a file that is not ours, or not there any more, is not
//! written; and a commit that was refused does not come back at the next start.
//!
//! # Locks
//!
//! In the order in which they are taken. 2 to 7 are SQLite's own (`os_unix.c`, `wal.c`), which
//! belong to the process (fcntl_locking(2)).
//!
//! 1. flock(2) on FILE. A service that writes has it until its process ends; another start waits
//!    for it, for [`LOCK_TIME`].
//! 2. A read lock on the shared bytes of FILE. Every connection has it until it is closed.
//! 3. Write locks on all lock bytes of FILE, which exclude 2 and 8. [`fill`] has them, a program
//!    that writes without a WAL while it does so, and the last connection while it closes. Who
//!    opens FILE waits for them, for [`BUSY_TIME`]. Who closes it does not wait, but leaves an
//!    empty FILE-wal.
//! 4. A read lock on byte 128 of FILE-shm, which says that FILE-shm is in use. Every connection has
//!    it until it is closed. The first one makes the wal-index, with write locks on bytes 120 to
//!    122, while others wait for it, for [`BUSY_TIME`].
//! 5. A read lock on one of bytes 123 to 127, the read marks: every transaction has one. Nobody
//!    waits for it: a checkpoint stops where a reader needs what is there.
//! 6. The write lock, on byte 120. A save has it from [`Database::begin`] to the end of its commit,
//!    another program for its transaction. A save waits for it, for [`TRY_TIME`] at a time and for
//!    [`BUSY_TIME`] in all. Between two tries it polls what others have committed, with 5 alone.
//! 7. Byte 121: a checkpoint, at the end of a commit or in [`Database::close`]. Nobody waits for
//!    it: who does not get it leaves the checkpoint out.
//! 8. The read lock of 2, by an open file description: `foreign_reader`, for one read of a
//!    follower, `--dump` or `--check`. It waits for 3, for [`BUSY_TIME`], without any lock. With
//!    its lock, it only asks who has 4 and 6, and gives up where SQLite meets a lock.
//!
//! So every wait ends, and no two processes wait for each other. A process that closes any
//! descriptor of FILE or FILE-shm loses SQLite's locks on that file
//! (<https://sqlite.org/howtocorrupt.html>, section 2.2): here, the connection is closed first.

use std::fs::{File, OpenOptions, TryLockError};
use std::mem::forget;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use imbl::OrdMap;
use rusqlite::config::DbConfig;
use rusqlite::types::FromSql;
use rusqlite::{Connection, OpenFlags, Params, TransactionBehavior};

use super::color::NAME_BYTES_MAX;
use super::colors::Edit;
use super::wal_files::{self, WalFiles};
use super::{Color, Colors, DatabaseError, probe};

/// Mode of a new file, less what the umask takes. SQLite gives FILE-wal and FILE-shm the mode and
/// the owner of FILE.
const NEW_FILE_MODE: u32 = 0o600;

/// Longest wait of a start for the lock of another process of the service. That one may be
/// stopping, which takes 5 s at most.
const LOCK_TIME: Duration = Duration::from_secs(6);

/// After so much of [`LOCK_TIME`], the log says for what the start waits.
const LOCK_SILENCE: Duration = Duration::from_secs(1);

/// Longest wait of a save or a read for another program that writes.
pub(super) const BUSY_TIME: Duration = Duration::from_secs(5);

/// Time between two tries to take a lock. flock(2) cannot wait for a limited time. A program that
/// takes SQLite's write lock again and again leaves it free for moments only.
pub(super) const BUSY_PAUSE: Duration = Duration::from_millis(1);

/// Longest wait of one try to begin a save. Between two tries the writer polls what others have
/// committed.
const TRY_TIME: Duration = Duration::from_millis(400);

const SCHEMA: &str =
    "CREATE TABLE color (id INTEGER PRIMARY KEY, name TEXT NOT NULL, value TEXT NOT NULL) STRICT";

const INSERT: &str = "INSERT INTO color (id, name, value) VALUES (?1, ?2, ?3)";
/// Takes the parameters of [`INSERT`], and leaves the name unused.
const UPDATE: &str = "UPDATE color SET value = ?3 WHERE id = ?1";
const DELETE: &str = "DELETE FROM color WHERE id = ?1";
const DELETE_ALL: &str = "DELETE FROM color";

/// For every connection. A cache of 512 KiB: the list is read once, and a save needs few pages.
/// Foreign keys of other tables are left to the programs that made them.
pub(super) const PRAGMAS: &str =
    "PRAGMA temp_store=MEMORY; PRAGMA cache_size=-512; PRAGMA foreign_keys=OFF";

/// Returns a number that changes when another connection commits.
const DATA_VERSION: &str = "PRAGMA data_version";

/// An open database. Its fields are dropped in their order: the connection before all descriptors
/// of its files.
pub(crate) struct Database {
    connection: Connection,
    files: WalFiles,
    /// What [`DATA_VERSION`] returned when the list was last read; `None` to read it again.
    data_version: Option<i64>,
    /// The lock that keeps out other processes of the service.
    _lock: File,
}

/// Locks FILE, which it creates if it is missing, against other processes of the service. Fails
/// with `Busy` if one has the lock for [`LOCK_TIME`].
pub(crate) fn flock(path: &Path) -> Result<File, DatabaseError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(NEW_FILE_MODE);
    let file = options.open(path).map_err(|error| probe::refused("open", path, &error))?;
    let begun = Instant::now();
    let mut is_told = false;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(error)) => return Err(probe::refused("lock", path, &error)),
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

/// Creates the table with these colors, durably, in a locked file. False if that has tables.
///
/// Uses a rollback journal: with a WAL, `application_id` would be in FILE-wal alone at first, and a
/// FILE without it is the file of another program.
pub(crate) fn fill(path: &Path, colors: &Colors) -> Result<bool, DatabaseError> {
    let mut connection = connect(path)?;
    // Without cache_spill, pages are written by the commit alone, the first page first. EXTRA also
    // syncs the directory, so that FILE and the removal of its journal are durable.
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

/// Sets how long the connection waits for a lock of another program.
fn wait_for_locks(connection: &mut Connection, time: Duration) -> rusqlite::Result<()> {
    // `tries`: how often SQLite has called this for the same lock
    let mut begun = Instant::now();
    connection.busy_handler(Some(move |tries| {
        if tries == 0 {
            begun = Instant::now();
        }
        sleep(BUSY_PAUSE);
        begun.elapsed() < time
    }))
}

/// The value that a query finds in its one row and column.
fn value<T: FromSql>(connection: &Connection, query: &str) -> rusqlite::Result<T> {
    connection.prepare_cached(query)?.query_row([], |row| row.get(0))
}

/// Fails if SQLite finds damage. Reading the list does not find all of it.
pub(super) fn check_pages(connection: &Connection) -> Result<(), DatabaseError> {
    match value::<String>(connection, "PRAGMA quick_check(1)")?.as_str() {
        "ok" => Ok(()),
        damage => Err(DatabaseError::Damaged(damage.replace('\n', " "))),
    }
}

/// Reads the list. A color that `known` has with the same id shares the memory of that one.
pub(super) fn read_list(connection: &Connection, known: &Colors) -> Result<Colors, DatabaseError> {
    // The probe has seen the header of FILE. A later one may be in FILE-wal.
    if value::<i32>(connection, "PRAGMA application_id")? != probe::APPLICATION_ID {
        return Err(DatabaseError::Foreign);
    }
    if value::<i32>(connection, "PRAGMA user_version")? > probe::VERSION {
        return Err(DatabaseError::Newer);
    }
    check_schema(connection)?;
    let mut statement = connection.prepare("SELECT id, name, value FROM color ORDER BY id")?;
    let mut rows = statement.query([])?;
    let mut colors = OrdMap::new();
    while let Some(row) = rows.next()? {
        let id = row.get(0)?;
        let wrong = |reason: &str| {
            DatabaseError::Unusable(format!(
                "the row of table color with id {id} is not a color: {reason}; correct it with \
                 sqlite3"
            ))
        };
        let text = |column| row.get_ref(column)?.as_str().map_err(|_| wrong("it is not UTF-8"));
        let name = text(1)?;
        let value = text(2)?;
        if name.len() > NAME_BYTES_MAX {
            return Err(wrong("its name is too long"));
        }
        let color = Color::new(name, value);
        let known = known.get(id).filter(|known| **known == color);
        colors.insert(id, known.cloned().unwrap_or(color));
    }
    Ok(Colors::with_ids(colors))
}

/// Fails if the database could refuse a row that the service writes, or change it: because its
/// table is not [`SCHEMA`], or by a trigger, or by an index that is unique, partial or on an
/// expression.
fn check_schema(connection: &Connection) -> Result<(), DatabaseError> {
    // a message is one line
    let text = |query: &str| {
        value::<String>(connection, query).map(|text| text.replace(char::is_control, " "))
    };
    let found = text(
        "SELECT ifnull(max(sql), '') FROM sqlite_schema \
         WHERE type IN ('table', 'view') AND name = 'color' COLLATE NOCASE",
    )?;
    // ALTER TABLE puts names in quotes. A person who makes the table may use other spaces and case.
    let plain = |sql: &str| sql.to_lowercase().replace(|c: char| c == '"' || c.is_whitespace(), "");
    if plain(&found) != plain(SCHEMA) {
        let same = SCHEMA.bytes().zip(found.bytes()).take_while(|(a, b)| a == b).count();
        return Err(DatabaseError::Unusable(format!(
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
        return Err(DatabaseError::Unusable(format!(
            "it has the {foreign}, which may refuse or change what the service writes; remove it \
             with sqlite3"
        )));
    }
    Ok(())
}

/// Writes a frame to FILE-wal that changes nothing.
fn rewrite_page(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "application_id", probe::APPLICATION_ID)
}

impl Database {
    /// Opens a locked database. `given`: FILE as `--data` names it. `path`: where that leads,
    /// without links.
    pub(crate) fn open(
        given: &Path,
        path: &Path,
        lock: File,
    ) -> Result<(Self, Colors), DatabaseError> {
        let mut files = WalFiles::new(given, path)?;
        let has_wal = probe::with_suffix(path, "-wal").exists();
        let mut connection = connect(path)?;
        // a start that is refused leaves FILE-wal as it is
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, has_wal)?;
        check_pages(&connection)?;
        if value::<String>(&connection, "PRAGMA journal_mode")? != "wal" {
            // The change of the mode writes the header of FILE, which is in one sector of the disk,
            // so that it needs no journal. One that a kill left behind would keep out those that
            // only read FILE.
            connection.execute_batch("PRAGMA journal_mode=OFF")?;
        }
        if value::<String>(&connection, "PRAGMA journal_mode=WAL")? != "wal" {
            return Err(DatabaseError::Unusable(
                "its file system has no shared memory for a WAL; name a file on a local disk with \
                 --data"
                    .to_owned(),
            ));
        }
        // journal_size_limit: bytes to which SQLite cuts FILE-wal after a reader has made it grow
        connection.execute_batch("PRAGMA synchronous=FULL; PRAGMA journal_size_limit=4194304")?;
        // SQLite makes FILE-wal at the first transaction
        connection.execute_batch("BEGIN")?;
        let colors = read_list(&connection, &Colors::default())?;
        let data_version = Some(value(&connection, DATA_VERSION)?);
        files.note_opened(value(&connection, "PRAGMA page_size")?)?;
        wait_for_locks(&mut connection, TRY_TIME)?;
        // SQLite does so as well before the first change, but ignores a failure
        probe::sync_directory(path)?;
        let database = Self { connection, files, data_version, _lock: lock };
        database.roll_back();
        Ok((database, colors))
    }

    /// Begins a save. Waits [`TRY_TIME`] for the write lock, and fails with `Busy` without it.
    /// Returns the list if another program has committed since it was last read.
    ///
    /// After a failed save (`has_failed`) it returns the list in any case. It also writes a frame
    /// that changes nothing, so that the commit tells whether the disk works.
    pub(super) fn begin(
        &mut self,
        known: &Colors,
        has_failed: bool,
    ) -> Result<Option<Colors>, DatabaseError> {
        if has_failed {
            self.data_version = None;
        }
        let found = self.begin_transaction("BEGIN IMMEDIATE", known)?;
        if has_failed {
            rewrite_page(&self.connection)?;
        }
        Ok(found)
    }

    /// Returns the list if another program has committed since it was last read. Needs no write
    /// lock. Call it between saves.
    pub(super) fn poll_external(
        &mut self,
        known: &Colors,
    ) -> Result<Option<Colors>, DatabaseError> {
        let found = self.begin_transaction("BEGIN", known);
        self.roll_back();
        found
    }

    fn begin_transaction(
        &mut self,
        sql: &str,
        known: &Colors,
    ) -> Result<Option<Colors>, DatabaseError> {
        self.check_files(known)?;
        self.execute(sql, [])?;
        let data_version = Some(value(&self.connection, DATA_VERSION)?);
        if data_version == self.data_version {
            return Ok(None);
        }
        // The program that had the write lock may have made FILE-wal longer meanwhile.
        self.check_files(known)?;
        let colors = read_list(&self.connection, known)?;
        self.data_version = data_version;
        Ok(Some(colors))
    }

    fn check_files(&mut self, known: &Colors) -> Result<(), DatabaseError> {
        self.files.check()?;
        self.check_not_cut(known)
    }

    /// Fails if FILE or FILE-wal has become shorter and lacks pages.
    ///
    /// That it is shorter proves nothing: a checkpoint of another program cuts FILE after a VACUUM,
    /// and may cut FILE-wal. So a new connection, which has no page in memory, reads the list.
    /// SQLite leaves the descriptor of that one open, so that no lock is lost.
    fn check_not_cut(&mut self, known: &Colors) -> Result<(), DatabaseError> {
        let Some(shorter) = self.files.shorter() else { return Ok(()) };
        let cut = wal_files::replaced(shorter);
        // SQLite would remove FILE-wal beside a FILE of 0 bytes or 1
        if !self.files.has_a_page() {
            return Err(cut);
        }
        let is_whole = || {
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
            Err(_) => Err(cut),
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

    /// Makes durable what was written since [`Database::begin`], all or nothing. `NotErased`: it
    /// may be in the list after a crash all the same.
    pub(super) fn commit(&mut self) -> Result<(), DatabaseError> {
        let Err(refused) = self.connection.prepare_cached("COMMIT")?.execute([]) else {
            self.files.note_committed();
            return Ok(());
        };
        let is_erased = self.erase_refused_commit().is_ok();
        Err(match refused.into() {
            DatabaseError::SyncFailed if !is_erased => DatabaseError::NotErased,
            refused => refused,
        })
    }

    /// Forgets what was written since [`Database::begin`], and gives up the write lock.
    pub(super) fn roll_back(&self) {
        if !self.connection.is_autocommit() {
            // The transaction ends whatever this returns.
            let _ = self.connection.execute_batch("ROLLBACK");
        }
    }

    /// After a failed sync, the refused commit may be whole in FILE-wal, and the next start would
    /// replay it. This commits another frame over its first one, where the replay then stops. Its
    /// sync may not write again what the failed one has lost, but it writes this frame.
    fn erase_refused_commit(&self) -> rusqlite::Result<()> {
        self.roll_back();
        rewrite_page(&self.connection)
    }

    /// Copies what FILE-wal has into FILE and removes FILE-wal, so that FILE alone is the list.
    /// Fails with the reason why FILE-wal is still needed.
    pub(super) fn close(mut self) -> Result<(), String> {
        // FILE-wal may have been removed: it is still open here, and is copied into FILE
        let checked = self.files.shm.check().and_then(|()| self.check_not_cut(&Colors::default()));
        let connection = self.connection;
        if let Err(error) = checked {
            // Closing would write to what is there now, or read what FILE-shm has lost. The system
            // frees the connection with the process.
            forget(connection);
            return Err(error.to_string());
        }
        // programs that read all the time, as Litestream does, are not waited for
        let checkpointed = connection.busy_timeout(Duration::ZERO).and_then(|()| {
            // its first column is 1 if another program reads or writes
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
