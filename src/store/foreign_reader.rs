//! Reads a FILE that other programs may be writing, whatever they write it with: SQLite with or
//! without a WAL, Litestream, which writes pages in place, or a rename. Needs no permission to
//! write, and leaves nothing behind: no FILE-wal, no FILE-shm, no lock.
//!
//! SQLite alone cannot do that. Its read-only connections refuse a FILE-wal of 32 bytes, which a
//! kill leaves ("locking protocol"), and a FILE-wal without FILE-shm. They make a new FILE-wal when
//! another program removes it meanwhile. And no function of SQLite says whether a commit is under
//! way. So this reader looks at some of SQLite's locks itself. They are listed in [`database`].

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::libc;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::database::{self, BUSY_PAUSE, BUSY_TIME};
use super::sqlite_locks::{IN_USE, RESERVED, WRITER, is_locked, lock_shared, set_lock};
use super::{Colors, DatabaseError, probe, rows};

/// Two steps of the clock of a file system, which are 1 to 10 ms long. A file that is changed twice
/// within one step keeps its timestamp. A younger timestamp therefore does not prove that the file
/// is unchanged.
const CLOCK_STEPS: Duration = Duration::from_millis(20);

/// Where the header of a database has the version of its format for readers: 2 with a write-ahead
/// log (<https://sqlite.org/fileformat2.html>, section 1.3).
const READ_VERSION: u64 = 19;

/// The state of FILE and of FILE-wal, to compare with a later one. If both are equal, nothing has
/// changed in between, but see [`Stamps::if_old_enough`]. `None` for a file that does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stamps([Option<Stamp>; 2]);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    length: u64,
    /// In seconds and nanoseconds since 1970.
    modified: (i64, i64),
    status_changed: (i64, i64),
}

impl Stamp {
    fn of(path: &Path) -> io::Result<Option<Self>> {
        match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            file => file.map(|file| Some(Self::of_file(&file))),
        }
    }

    fn of_file(file: &Metadata) -> Self {
        Self {
            device: file.dev(),
            inode: file.ino(),
            length: file.len(),
            modified: (file.mtime(), file.mtime_nsec()),
            status_changed: (file.ctime(), file.ctime_nsec()),
        }
    }
}

impl Stamps {
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let path = probe::resolve(path);
        let wal = Stamp::of(&probe::with_suffix(&path, "-wal"))?;
        // As root, SQLite sets the owner of FILE-wal whenever it opens that file. This changes
        // ctime alone, so the ctime of FILE-wal is not compared.
        let wal = wal.map(|wal| Stamp { status_changed: wal.modified, ..wal });
        Ok(Self([Stamp::of(&path)?, wal]))
    }

    /// `None` while the timestamps are too young to trust ([`CLOCK_STEPS`]). Uses the ctime of
    /// FILE, which programs cannot set, unlike mtime.
    fn if_old_enough(self) -> Option<Self> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let is_young = self.0.iter().flatten().any(|stamp| {
            let (seconds, nanoseconds) = stamp.status_changed;
            let changed = Duration::new(seconds.unsigned_abs(), nanoseconds as u32);
            now.abs_diff(changed) < CLOCK_STEPS
        });
        (!is_young).then_some(self)
    }
}

/// What a caller reads from a connection, which sees the database as it was after one commit.
type Reader<'a, T> = &'a dyn Fn(&Connection) -> Result<T, DatabaseError>;

/// What was read, and the stamps of the files at that time. `None` if equal stamps would not prove
/// that there is no later commit.
type Found<T> = Result<(T, Option<Stamps>), DatabaseError>;

/// Reads the list of a database that may be in use, and changes nothing in it.
pub(crate) fn read_once(path: &Path) -> Result<Colors, DatabaseError> {
    Ok(read_snapshot(path, &|connection| rows::read_list(connection, &Colors::default()))?.0)
}

/// The same as [`read_once`], and looks for damage that reading does not find.
pub(crate) fn read_and_check(path: &Path) -> Result<Colors, DatabaseError> {
    read_snapshot(path, &rows::check_pages)?;
    read_once(path)
}

/// Reads a database. Tries again for [`BUSY_TIME`] while another program is in the middle of
/// changing it.
pub(super) fn read_snapshot<T>(path: &Path, read: Reader<'_, T>) -> Found<T> {
    let begun = Instant::now();
    loop {
        match try_read_snapshot(&probe::resolve(path), read) {
            Err(error) if error.is_transient() && begun.elapsed() < BUSY_TIME => {}
            found => return found,
        }
        sleep(BUSY_PAUSE);
    }
}

/// One try of [`read_snapshot`]. `path`: without links.
fn try_read_snapshot<T>(path: &Path, read: Reader<'_, T>) -> Found<T> {
    let failed = |error: io::Error| probe::refused("read", path, &error);
    if !probe::inspect(path)? {
        return Err(DatabaseError::Missing);
    }
    let file = File::open(path).map_err(failed)?;
    if !lock_shared(&file).map_err(failed)? {
        return Err(DatabaseError::Busy);
    }
    let before = Stamps::of(path).map_err(failed)?;
    let [Some(opened), wal] = &before.0 else { return Err(DatabaseError::Changing) };
    check_applied(path, opened)?;
    let has_wal = wal.as_ref().is_some_and(|wal| wal.length > 0);
    let has_journal = probe::has_journal(path);
    let mut version = [0];
    file.read_at(&mut version, READ_VERSION).map_err(failed)?;
    if version == [2] && has_journal {
        // A program is changing the journal mode, or was killed while it did so. SQLite would make
        // FILE-wal.
        let is_hot = set_lock(&file, libc::F_RDLCK, RESERVED).map_err(failed)?;
        return Err(if is_hot { DatabaseError::HotJournal } else { DatabaseError::Changing });
    }
    if let Some(shm) = open_shm_in_use(path)? {
        if wal.is_none() {
            // A program that has just opened the database will make FILE-wal. If none appears, the
            // file was removed, and its commits are missing.
            let wal = probe::with_suffix(path, "-wal");
            return Err(DatabaseError::WalMissing(probe::name_of(&wal)));
        }
        if has_wal {
            return read_through_wal(path, before, &shm, read);
        }
    }
    if has_journal && !has_wal {
        let found = read(&open_read_only(path, "", "")?)?;
        return Ok((found, before.if_old_enough()));
    }
    read_in_place(path, before, &file, has_wal, read)
}

/// Opens FILE-shm if a program uses it. Otherwise a kill or a power cut has left it, and its
/// content means nothing.
fn open_shm_in_use(path: &Path) -> Result<Option<File>, DatabaseError> {
    let path = probe::with_suffix(path, "-shm");
    let failed = |error| probe::refused("read", &path, &error);
    let shm = match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        shm => shm.map_err(failed)?,
    };
    let is_in_use = is_locked(&shm, libc::F_WRLCK, IN_USE).map_err(failed)?;
    Ok(is_in_use.then_some(shm))
}

/// Reads through FILE-wal and FILE-shm, as SQLite's other readers do. Needs the lock on FILE:
/// without that, a program that closes the database could remove FILE-wal, and SQLite would make it
/// again.
fn read_through_wal<T>(path: &Path, before: Stamps, shm: &File, read: Reader<'_, T>) -> Found<T> {
    let failed = |error: io::Error| probe::refused("read", path, &error);
    // Readers see a commit only when it is synced. A sync changes no stamp, so equal stamps prove
    // nothing while a program writes.
    let is_written = is_locked(shm, libc::F_RDLCK, WRITER).map_err(failed)?;
    let seen = before.clone().if_old_enough().filter(|_| !is_written);
    match open_read_only(path, "?readonly_shm=1", "").and_then(|reader| read(&reader)) {
        // A program that has opened or closed the database meanwhile has replaced its files.
        Err(_) if Stamps::of(path).map_err(failed)? != before => Err(DatabaseError::Changing),
        found => Ok((found?, seen)),
    }
}

/// Reads FILE, and FILE-wal if that has frames (`has_wal`), while no program uses them. SQLite
/// takes no locks of its own. `file`: a descriptor of FILE that has the lock.
fn read_in_place<T>(
    path: &Path,
    before: Stamps,
    file: &File,
    has_wal: bool,
    read: Reader<'_, T>,
) -> Found<T> {
    let failed = |error: io::Error| probe::refused("read", path, &error);
    let [Some(opened), wal] = &before.0 else { return Err(DatabaseError::Changing) };
    let is_unchanged = || is_unchanged(file, opened).map_err(failed);
    // Without FILE-shm, SQLite reads FILE-wal in exclusive mode only, with the wal-index in memory
    // (https://sqlite.org/wal.html, section 8). This mode takes a write lock on FILE, unless the
    // VFS is unix-none, which takes no locks.
    let connection = if has_wal {
        open_read_only(path, "?vfs=unix-none", "PRAGMA locking_mode=EXCLUSIVE")?
    } else {
        open_read_only(path, "?immutable=1", "")?
    };
    // If the stamps are the same, SQLite has opened the file that is locked, and no other.
    if Stamps::of(path).map_err(failed)? != before || !is_unchanged()? {
        return Err(DatabaseError::Changing);
    }
    if before.clone().if_old_enough().is_none() {
        sleep(CLOCK_STEPS);
    }
    let found = read(&connection);
    // The lock does not keep another program from a checkpoint, which changes FILE. After a
    // checkpoint, neither what was found nor an error means anything.
    let [_, wal_now] = &Stamps::of(path).map_err(failed)?.0;
    if wal_now != wal || !is_unchanged()? {
        return Err(DatabaseError::Changing);
    }
    Ok((found?, Some(before)))
}

/// Opens a connection in a transaction, whose first query decides which commit it sees.
/// `parameters`: of the URI. `pragma`: runs before SQLite reads anything.
fn open_read_only(
    path: &Path,
    parameters: &str,
    pragma: &str,
) -> Result<Connection, DatabaseError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let uri = format!("{}{parameters}", probe::uri(path));
    let connection = Connection::open_with_flags(uri, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    // The caller tries again.
    connection.busy_timeout(Duration::ZERO)?;
    // A reader may not write: no checkpoint.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.execute_batch(pragma)?;
    connection.execute_batch(database::PRAGMAS)?;
    connection.execute_batch("BEGIN")?;
    Ok(connection)
}

/// Whether nobody has changed a file since it was opened.
fn is_unchanged(file: &File, opened: &Stamp) -> io::Result<bool> {
    let file = file.metadata()?;
    let mut now = Stamp::of_file(&file);
    if file.nlink() == 0 {
        // Another file was renamed into the place of this one. That changes ctime alone.
        now.status_changed = opened.status_changed;
    }
    Ok(now == *opened)
}

/// Fails while Litestream is applying a change, and if Litestream was killed while it did so. After
/// each change Litestream renames a new FILE-txid into the place of the old one. So a FILE that is
/// newer than FILE-txid has only some pages of a change.
fn check_applied(path: &Path, file: &Stamp) -> Result<(), DatabaseError> {
    let txid = probe::with_suffix(path, "-txid");
    let stamp = Stamp::of(&txid).map_err(|error| probe::refused("read", &txid, &error))?;
    match stamp {
        Some(stamp) if stamp.modified < file.modified => {
            Err(DatabaseError::AppliedInPart(probe::name_of(&txid)))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
#[path = "foreign_reader_tests.rs"]
mod tests;
