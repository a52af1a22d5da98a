//! An open database, as a storage engine: how it is opened, read, saved to and closed, how a save
//! waits for the write lock, and what the log says when another program has changed the list.

use std::fs::File;
use std::mem::{forget, replace};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use percent_encoding::{AsciiSet, CONTROLS, percent_encode};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, Params, ffi};

use super::DatabaseError;
use super::locks::{RETRY_PAUSE, retry_while_busy};
use super::rows::{self, check_ours, query_value, quick_check, read_list, refusing_indexes};
use super::wal_files::{self, PAGE_BYTES_MIN, WalFiles};
use crate::store::engine::{Begun, Commit, Engine, Refresh, Save, StorageError, Written};
use crate::store::{Color, ColorList, Edit};

/// How long a start or a read waits for a lock of another program.
pub(crate) const BUSY_TIME: Duration = Duration::from_secs(5);

/// How long one try to begin a save waits for a lock. Between two tries the writer publishes what
/// other programs have committed.
pub(crate) const TRY_TIME: Duration = Duration::from_millis(400);

/// Shortest time between two warnings that another program has changed the list, since a program
/// may change it all the time.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// For every connection that can write FILE. A cache of 512 KiB is enough: the list is seldom read,
/// and most saves need few pages. Only other programs' tables have foreign keys.
const PRAGMAS: &str = "PRAGMA temp_store=MEMORY; PRAGMA cache_size=-512; PRAGMA foreign_keys=OFF";

/// Returns a number that changes when another connection commits.
const DATA_VERSION: &str = "PRAGMA data_version";

/// With this setting, closing the connection leaves FILE-wal as it is.
const KEEP_WAL: DbConfig = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;

/// An open database. Its fields are dropped in this order: the connection before all descriptors of
/// its files.
pub(crate) struct Database {
    connection: Connection,
    files: WalFiles,
    /// What readers have. Empty before the list is read.
    pub(super) list: ColorList,
    /// When the log last warned that another program has changed the list.
    warned: Option<Instant>,
    /// Indexes of other programs that may refuse a change.
    indexes: Vec<String>,
    /// What [`DATA_VERSION`] returned when the list was last read. `None`: the list has to be read.
    data_version: Option<i64>,
    /// The lock that keeps out other processes of the service; `None` for a read.
    _lock: Option<File>,
}

impl Database {
    /// Opens a locked database. `given`: FILE as `--data` names it. `path`: where that leads,
    /// without links.
    pub(crate) fn open(given: &Path, path: &Path, lock: File) -> Result<Self, DatabaseError> {
        let mut database = Self::open_checked(given, path, Some(lock))?;
        let connection = &database.connection;
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
        database.list = database.read()?;
        database.data_version = Some(query_value(&database.connection, DATA_VERSION)?);
        database.files.note_opened()?;
        wait_for_locks(&mut database.connection, TRY_TIME)?;
        // SQLite syncs the directory too, at the first sync of FILE-wal, but ignores a failure.
        wal_files::sync_directory(path)?;
        database.roll_back();
        Ok(database)
    }

    /// Reads the list of the database at a path without links, as a start would: recovers what a
    /// kill has left, and looks for damage. A service may be using the database. Returns also the
    /// [`Engine::warning`].
    pub(crate) fn read_recovering(
        path: &Path,
    ) -> Result<(ColorList, Option<String>), DatabaseError> {
        let mut database = Self::open_checked(path, path, None)?;
        let colors = database.read()?;
        Ok((colors, database.warning()))
    }

    /// Opens a database, and looks for damage.
    fn open_checked(given: &Path, path: &Path, lock: Option<File>) -> Result<Self, DatabaseError> {
        let files = WalFiles::new(given, path)?;
        let has_wal = files.wal.path.exists();
        let connection = open_connection(path)?;
        // If FILE-wal was there before, closing the connection leaves it as it is, until
        // [`Database::close`] changes this setting.
        connection.set_db_config(KEEP_WAL, has_wal)?;
        // Before a start makes it a database with a WAL.
        check_ours(&connection)?;
        // Before the check for damage, which fails as well without a collation.
        let indexes = refusing_indexes(&connection)?;
        quick_check(&connection)?;
        let list = ColorList::default();
        Ok(Self { connection, files, list, warned: None, indexes, data_version: None, _lock: lock })
    }

    fn read(&mut self) -> Result<ColorList, DatabaseError> {
        let (colors, indexes) = read_list(&self.connection, &self.list)?;
        self.indexes = indexes;
        Ok(colors)
    }

    /// Begins a save. Waits [`TRY_TIME`] for the write lock, then fails with `Busy`. Returns the
    /// list if another program has committed since the list was last read.
    ///
    /// After a failed save (`has_failed`), returns the list in any case. Then it also syncs the
    /// directory, since SQLite may have failed to, and writes a frame that changes nothing, so that
    /// the commit shows whether the disk works.
    fn try_begin(&mut self, has_failed: bool) -> Result<Option<ColorList>, DatabaseError> {
        if has_failed {
            self.data_version = None;
        }
        let found = self.begin_with("BEGIN IMMEDIATE")?;
        if has_failed {
            wal_files::sync_directory(&self.files.wal.path)?;
            rewrite_page(&self.connection)?;
        }
        Ok(found)
    }

    /// Returns the list if another program has committed since the list was last read. Needs no
    /// write lock. Rolls back, so call it only between saves.
    fn read_if_changed(&mut self) -> Result<Option<ColorList>, DatabaseError> {
        let found = self.begin_with("BEGIN");
        self.roll_back();
        found
    }

    /// Begins a transaction by `sql`: `BEGIN`, or `BEGIN IMMEDIATE`, which takes the write lock.
    /// Returns the list if another program has committed since the list was last read.
    fn begin_with(&mut self, sql: &str) -> Result<Option<ColorList>, DatabaseError> {
        self.check_files()?;
        self.execute(sql, [])?;
        let data_version = Some(query_value(&self.connection, DATA_VERSION)?);
        if data_version == self.data_version {
            return Ok(None);
        }
        // Another program may have made FILE-wal longer during the wait for its lock.
        self.check_files()?;
        let colors = self.read()?;
        self.data_version = data_version;
        Ok(Some(colors))
    }

    /// What was found in the database, unless readers have it. The lists are compared, since
    /// another program may have committed without changing a color. `is_behind`: see [`Save`].
    fn refreshed(&mut self, found: Option<ColorList>, is_behind: bool) -> Option<Refresh> {
        let is_other = |found: &ColorList| !found.iter().eq(self.list.iter());
        let list = found.filter(|found| is_behind || is_other(found))?;
        let before = replace(&mut self.list, list.clone());
        let may_warn = self.warned.is_none_or(|warned| warned.elapsed() > WARNING_INTERVAL);
        if may_warn && list != before {
            let count = list.len();
            log::warn!("another program has changed the list; it has {count} colors now");
            self.warned = Some(Instant::now());
        }
        let edits = vec![Edit::ReplaceAll(list.clone())];
        Some(Refresh { list, edits })
    }

    /// Fails if FILE, FILE-wal or FILE-shm was removed, replaced or cut.
    fn check_files(&mut self) -> Result<(), DatabaseError> {
        self.files.check()?;
        self.check_not_cut()
    }

    /// Fails if FILE or FILE-wal has become shorter and lacks pages.
    ///
    /// A shorter file may be whole: a checkpoint of another program cuts FILE after a VACUUM, and
    /// may cut FILE-wal. So a new connection, which has no page in memory, reads all. Closing that
    /// connection loses no lock, since SQLite keeps its descriptor of FILE open.
    fn check_not_cut(&mut self) -> Result<(), DatabaseError> {
        let Some(shorter) = self.files.shorter() else { return Ok(()) };
        let cut = wal_files::replaced(shorter);
        // SQLite would remove FILE-wal if FILE had 0 bytes or 1 byte.
        if self.files.file_length() < PAGE_BYTES_MIN {
            return Err(cut);
        }
        let is_whole = || {
            let connection = open_connection(&self.files.file.path)?;
            quick_check(&connection)?;
            read_list(&connection, &self.list)
        };
        is_whole().map_err(|error| if error == DatabaseError::Busy { error } else { cut })?;
        self.files.note_whole();
        Ok(())
    }

    /// Which indexes of other programs may refuse a change, in words; `None` if there are none.
    fn indexes(&self) -> Option<String> {
        match self.indexes.as_slice() {
            [] => None,
            [index] => Some(format!("the index {index:?} of another program")),
            [first, rest @ ..] => {
                let rest = rest.iter().map(|index| format!(", {index:?}")).collect::<String>();
                Some(format!("one of the indexes {first:?}{rest} of another program"))
            }
        }
    }

    fn write_edit(&mut self, edit: &Edit) -> Result<(), DatabaseError> {
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
}

impl Engine for Database {
    /// Waits [`TRY_TIME`] for the write lock, and as long for what the poll behind it needs. Other
    /// programs may take the lock again and again: the poll finds what they commit.
    fn begin(&mut self, save: &Save) -> Result<Begun, StorageError> {
        match self.try_begin(save.has_failed) {
            Err(busy @ DatabaseError::Busy) => {
                // The failed try may have got the write lock, and failed on another lock.
                self.roll_back();
                let found = match self.read_if_changed() {
                    Err(DatabaseError::Busy) => None,
                    found => found?,
                };
                Ok(Begun::Locked(self.refreshed(found, save.is_behind), busy.into()))
            }
            found => {
                let found = found?;
                Ok(Begun::Ready(self.refreshed(found, save.is_behind)))
            }
        }
    }

    fn poll(&mut self) -> Result<Option<Refresh>, StorageError> {
        let found = self.read_if_changed()?;
        Ok(self.refreshed(found, false))
    }

    /// A change that an index refuses leaves nothing.
    fn write(&mut self, edits: &[Edit], list: &ColorList) -> Result<Written, StorageError> {
        let Some(indexes) = self.indexes() else {
            edits.iter().try_for_each(|edit| self.write_edit(edit))?;
            return Ok(Written::Yes);
        };
        self.execute("SAVEPOINT change", [])?;
        let mut written = edits.iter().try_for_each(|edit| self.write_edit(edit));
        if matches!(written, Err(DatabaseError::Refused(_))) && edits.len() > 1 {
            // A list between these edits may have duplicates that the last one has not.
            self.execute("ROLLBACK TO change", [])?;
            let mut version = list.clone();
            edits.iter().for_each(|edit| drop(version.apply(edit)));
            written = self.write_edit(&Edit::ReplaceAll(version));
        }
        let written = match written {
            Err(DatabaseError::Refused(reason)) => {
                self.execute("ROLLBACK TO change", [])?;
                Written::Refused(format!("{indexes} refuses this change: {reason}"))
            }
            written => written.map(|()| Written::Yes)?,
        };
        self.execute("RELEASE change", [])?;
        Ok(written)
    }

    /// There is no conflict: the save has the write lock. If the commit fails, nothing of the save
    /// is in the list, now or after a crash. The exception is the error `NotErased`: after a crash,
    /// all of it may be in the list.
    fn commit(&mut self, version: &ColorList) -> Result<Commit, StorageError> {
        let commit = self.connection.prepare_cached("COMMIT");
        let Err(refused) = commit.map_err(DatabaseError::from)?.execute([]) else {
            self.files.note_committed();
            self.list.clone_from(version);
            return Ok(Commit::Done);
        };
        // The refused commit may be whole in FILE-wal, and the next start would replay it: after a
        // failed sync, and after a good one, since then SQLite has still to write to FILE-shm. So
        // another commit overwrites its first frame, and a replay stops there. To sync again would
        // not be enough: a second sync may skip what the first one lost, but it writes the new
        // frame.
        self.roll_back();
        let is_erased = rewrite_page(&self.connection).is_ok();
        // With these, a write was refused, and so the last frame, which makes the commit whole.
        let write_failed = [ffi::SQLITE_FULL, ffi::SQLITE_IOERR_WRITE];
        let is_partial =
            refused.sqlite_error().is_some_and(|error| write_failed.contains(&error.extended_code));
        let is_gone = is_erased || is_partial;
        Err(if is_gone { refused.into() } else { DatabaseError::NotErased }.into())
    }

    /// Gives up the write lock as well.
    fn roll_back(&mut self) {
        if !self.connection.is_autocommit() {
            // The transaction ends whatever this returns.
            let _ = self.connection.execute_batch("ROLLBACK");
        }
    }

    fn warning(&self) -> Option<String> {
        self.indexes().map(|indexes| format!("{indexes} may refuse changes (409)"))
    }

    /// Copies what FILE-wal has into FILE, so that FILE alone is the list. Then removes FILE-wal,
    /// unless another program has FILE open. Fails with the reason why FILE-wal may still be
    /// needed.
    fn close(mut self: Box<Self>) -> Result<(), String> {
        // A FILE-wal that was removed is no failure here: the connection has it open, and copies
        // it.
        let checked = self.files.shm.check().and_then(|()| self.check_not_cut());
        let connection = self.connection;
        if let Err(error) = checked {
            // Closing would write to files that were cut, or read what FILE-shm has lost. The
            // system frees the connection with the process.
            forget(connection);
            return Err(error.to_string());
        }
        let failed = |error| DatabaseError::from(error).to_string();
        // Does not wait for other programs: some, such as Litestream, read all the time.
        connection.busy_timeout(Duration::ZERO).map_err(failed)?;
        // The first column is 1 if another program that reads or writes prevents the checkpoint.
        let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
        if query_value::<bool>(&connection, checkpoint).map_err(failed)? {
            return Err("another program has a transaction open".to_owned());
        }
        // With this, closing removes FILE-wal, unless another program has FILE open.
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

/// Sets how long the connection waits for each lock of another program.
fn wait_for_locks(connection: &mut Connection, time: Duration) -> rusqlite::Result<()> {
    // `tries`: how often SQLite has called this before in the same wait.
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
/// may not write FILE, as in `colors-backup.service`, where its file system is read-only. Unlike
/// [`Database::read_recovering`], recovers nothing, so it may fail after a kill.
pub(crate) fn read_without_writing(path: &Path) -> Result<ColorList, DatabaseError> {
    retry_while_busy(BUSY_TIME, || try_read_without_writing(path))
}

/// Fails with `Busy` also if another program opens, changes or closes the database meanwhile.
fn try_read_without_writing(path: &Path) -> Result<ColorList, DatabaseError> {
    // In WAL mode, SQLite makes FILE-wal and FILE-shm, unless it is told that nobody changes FILE.
    // To see that nobody did, compare before and after: no FILE-wal, no FILE-journal, and the same
    // time of FILE. Only a second change within one tick of the clock escapes this.
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
        .and_then(|connection| read_list(&connection, &ColorList::default()))
        .map(|(list, _)| list);
    if unused_since() == before { found } else { Err(DatabaseError::Busy) }
}

#[cfg(test)]
#[path = "open_database_tests.rs"]
mod tests;
