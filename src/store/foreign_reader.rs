//! Reads a FILE that other programs may be writing, whatever they write it with: SQLite in either of
//! its journal modes, Litestream, which writes pages in place, or a rename. Leaves nothing behind: no
//! FILE-wal, no FILE-shm, no lock.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc::{self, off_t};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::database::{self, BUSY_PAUSE, BUSY_TIME};
use super::{Colors, DatabaseError, probe};

/// The clock of a file system goes on in steps, of 1 to 10 ms. Behind a time that is younger than
/// two of them, a second change may hide.
const CLOCK_STEPS: Duration = Duration::from_millis(20);

/// The bytes of FILE that SQLite locks (`os_unix.c`, `sqlite3PendingByte`): a reader holds a read
/// lock on the shared range, which it may take while nobody has the pending byte. Who changes FILE
/// itself has write locks on all, and on the reserved byte from the beginning of its transaction.
const PENDING: (off_t, off_t) = (0x4000_0000, 1);
const RESERVED: (off_t, off_t) = (0x4000_0001, 1);
const SHARED: (off_t, off_t) = (0x4000_0002, 510);

/// The byte of FILE-shm that a writer locks from before what it writes to FILE-wal until that can be
/// read (`wal.c`, `WAL_WRITE_LOCK`).
const WRITER: (off_t, off_t) = (120, 1);

/// The byte of FILE-shm that every program locks as long as it uses FILE-wal (`os_unix.c`,
/// `UNIX_SHM_DMS`). The system gives the lock up when a program is killed.
const IN_USE: (off_t, off_t) = (128, 1);

/// Where the header of a database has the version of its format for readers: 2 with a write-ahead
/// log (<https://sqlite.org/fileformat2.html>, section 1.3).
const READ_VERSION: u64 = 19;

const CHANGING: DatabaseError =
    DatabaseError::Changing("another program keeps changing it; try again");

/// What tells whether FILE or FILE-wal has changed.
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
        // for root, SQLite sets the owner of a log whenever it opens it
        let wal = wal.map(|wal| Stamp { status_changed: wal.modified, ..wal });
        Ok(Self([Stamp::of(&path)?, wal]))
    }

    /// `None` if a change that comes now could leave the same. Nobody can set the time of a change of
    /// status.
    fn unless_young(self) -> Option<Self> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let is_young = self.0.iter().flatten().any(|stamp| {
            let (seconds, nanoseconds) = stamp.status_changed;
            let changed = Duration::new(seconds.unsigned_abs(), nanoseconds as u32);
            now.abs_diff(changed) < CLOCK_STEPS
        });
        (!is_young).then_some(self)
    }
}

/// What is done with a connection that sees one state of a database.
type Read<'a, T> = &'a dyn Fn(&Connection) -> Result<T, DatabaseError>;

/// What was read, with what tells whether the files have changed since; that is `None` if they should
/// be read again in any case.
type Found<T> = Result<(T, Option<Stamps>), DatabaseError>;

/// Reads the list of a database that may be in use, and changes nothing in it. `check`: also looks
/// for damage that reading does not find.
pub(crate) fn read_once(path: &Path, check: bool) -> Result<Colors, DatabaseError> {
    let read = |connection: &Connection| {
        if check {
            database::check_pages(connection)?;
        }
        database::read_list(connection, &Colors::default())
    };
    Ok(read_snapshot(path, &read)?.0)
}

/// Reads a database. While another program is in the middle of changing it, tries again for
/// [`BUSY_TIME`].
pub(super) fn read_snapshot<T>(path: &Path, read: Read<'_, T>) -> Found<T> {
    let begun = Instant::now();
    loop {
        match try_read_snapshot(&probe::resolve(path), read) {
            Err(DatabaseError::Busy | DatabaseError::Changing(_))
                if begun.elapsed() < BUSY_TIME =>
            {
                sleep(BUSY_PAUSE);
            }
            found => return found,
        }
    }
}

/// One try of [`read_snapshot`]. `path`: without links.
fn try_read_snapshot<T>(path: &Path, read: Read<'_, T>) -> Found<T> {
    let failed = |error: io::Error| probe::path_error(path, &error);
    if !probe::inspect(path)? {
        return Err(DatabaseError::other(
            "it does not exist, or is empty; name the file of a service, or a copy, with --data",
        ));
    }
    let file = File::open(path).map_err(failed)?;
    if !lock_shared(&file).map_err(failed)? {
        return Err(DatabaseError::Busy);
    }
    let before = Stamps::of(path).map_err(failed)?;
    let [Some(opened), wal] = &before.0 else { return Err(CHANGING) };
    check_applied(path, opened)?;
    let has_log = wal.as_ref().is_some_and(|wal| wal.length > 0);
    let has_journal = probe::has_journal(path);
    let mut version = [0];
    file.read_at(&mut version, READ_VERSION).map_err(failed)?;
    if version == [2] && has_journal {
        // of a change of the mode, under way or ended in the middle; SQLite would make FILE-wal
        let is_hot = set_lock(&file, libc::F_RDLCK, RESERVED).map_err(failed)?;
        return Err(if is_hot { DatabaseError::HotJournal } else { CHANGING });
    }
    if let Some(shm) = open_index_in_use(path)? {
        if wal.is_none() {
            // for a moment at a start; otherwise what was in the log is missing
            return Err(DatabaseError::Changing(
                "FILE-wal is missing beside FILE-shm; move it back",
            ));
        }
        if has_log {
            return read_through_log(path, before, &shm, read);
        }
    }
    if has_journal && !has_log {
        return Ok((read(&open_read_only(path, "", "")?)?, before.unless_young()));
    }
    read_in_place(path, before, &file, has_log, read)
}

/// Opens FILE-shm if a program uses it. After a kill or a power cut it may be missing, or stay, with
/// FILE-wal and without: whatever it has then says nothing.
fn open_index_in_use(path: &Path) -> Result<Option<File>, DatabaseError> {
    let path = probe::with_suffix(path, "-shm");
    let shm = match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        shm => shm.map_err(|error| probe::path_error(&path, &error))?,
    };
    let is_in_use =
        is_locked(&shm, libc::F_WRLCK, IN_USE).map_err(|error| probe::path_error(&path, &error))?;
    Ok(is_in_use.then_some(shm))
}

/// Reads through FILE-wal, as its other readers do. Call it with the lock on FILE, which keeps who
/// closes the database from removing FILE-wal: SQLite would make that again.
fn read_through_log<T>(path: &Path, before: Stamps, shm: &File, read: Read<'_, T>) -> Found<T> {
    let failed = |error: io::Error| probe::path_error(path, &error);
    // A commit can be read only after it is synced, and that changes no stamp.
    let is_written = is_locked(shm, libc::F_RDLCK, WRITER).map_err(failed)?;
    let seen = before.clone().unless_young().filter(|_| !is_written);
    match open_read_only(path, "?readonly_shm=1", "").and_then(|reader| read(&reader)) {
        // who opens or closes the database meanwhile makes its files anew, or removes them
        Err(_) if Stamps::of(path).map_err(failed)? != before => Err(CHANGING),
        found => Ok((found?, seen)),
    }
}

/// Reads files that no program uses, without the locks of SQLite: FILE, and FILE-wal if that
/// `has_log`, with an index in memory. `file` is FILE, with the lock on it.
fn read_in_place<T>(
    path: &Path,
    before: Stamps,
    file: &File,
    has_log: bool,
    read: Read<'_, T>,
) -> Found<T> {
    let failed = |error: io::Error| probe::path_error(path, &error);
    let [Some(opened), wal] = &before.0 else { return Err(CHANGING) };
    let is_still = || is_still(file, opened).map_err(failed);
    // Without FILE-shm, SQLite reads a log in exclusive mode only, and then has the index in memory
    // (https://sqlite.org/wal.html, section 8). With unix-none it takes no locks for that.
    let connection = if has_log {
        open_read_only(path, "?vfs=unix-none", "PRAGMA locking_mode=EXCLUSIVE")?
    } else {
        open_read_only(path, "?immutable=1", "")?
    };
    // SQLite has opened what is locked, unless another file has taken its place
    if Stamps::of(path).map_err(failed)? != before || !is_still()? {
        return Err(CHANGING);
    }
    if before.clone().unless_young().is_none() {
        sleep(CLOCK_STEPS);
    }
    let found = read(&connection);
    // The lock keeps away all programs that ask for it. A checkpoint does not ask: if one has
    // changed FILE, what was found means nothing, be it damage.
    let [_, wal_now] = &Stamps::of(path).map_err(failed)?.0;
    if wal_now != wal || !is_still()? {
        return Err(CHANGING);
    }
    Ok((found?, Some(before)))
}

/// Opens a database to read what it has at the first query. `parameters`: of the URI; `pragma`: one
/// that comes before SQLite reads anything.
fn open_read_only(
    path: &Path,
    parameters: &str,
    pragma: &str,
) -> Result<Connection, DatabaseError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let uri = format!("{}{parameters}", probe::uri(path));
    let connection = Connection::open_with_flags(uri, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    // a read is tried again as a whole
    connection.busy_timeout(Duration::ZERO)?;
    // nothing is copied from FILE-wal to FILE
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.execute_batch(pragma)?;
    connection.execute_batch(database::PRAGMAS)?;
    connection.execute_batch("BEGIN")?;
    Ok(connection)
}

/// Whether a file is what it was when it was opened.
fn is_still(file: &File, opened: &Stamp) -> io::Result<bool> {
    let file = file.metadata()?;
    let mut now = Stamp::of_file(&file);
    if file.nlink() == 0 {
        // another file has taken its place, and nobody changes this one any more
        now.status_changed = opened.status_changed;
    }
    Ok(now == *opened)
}

/// Locks a file as SQLite's readers do, until it is closed; false if a program is changing it. The
/// lock belongs to the open file description: one of the process would end when SQLite closes a
/// descriptor of its own (fcntl_locking(2)).
fn lock_shared(file: &File) -> io::Result<bool> {
    let is_locked =
        set_lock(file, libc::F_RDLCK, PENDING)? && set_lock(file, libc::F_RDLCK, SHARED)?;
    set_lock(file, libc::F_UNLCK, PENDING)?;
    Ok(is_locked)
}

/// Takes or gives up a lock on a range of bytes, its first and their number; false if another
/// program has one that excludes it.
fn set_lock(file: &File, kind: i32, range: (off_t, off_t)) -> io::Result<bool> {
    match fcntl(file, FcntlArg::F_OFD_SETLK(&range_lock(kind, range))) {
        Err(nix::Error::EAGAIN | nix::Error::EACCES) => Ok(false),
        set => set.map(|_| true).map_err(io::Error::from),
    }
}

/// Whether another program has a lock that excludes this one.
fn is_locked(file: &File, kind: i32, range: (off_t, off_t)) -> io::Result<bool> {
    let mut lock = range_lock(kind, range);
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut lock))?;
    Ok(i32::from(lock.l_type) != libc::F_UNLCK)
}

/// A read lock, a write lock or none on a range. `off_t` has 32 bits on some processors, which is
/// enough for the ranges above. The kernel wants 64 bits, and glibc, from 2.28 on, converts.
fn range_lock(kind: i32, (start, length): (off_t, off_t)) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start,
        l_len: length,
        l_pid: 0,
    }
}

/// Fails while Litestream is applying changes, or when it was ended in the middle: it renames
/// FILE-txid into its place after each, and nothing else tells that pages are missing.
fn check_applied(path: &Path, file: &Stamp) -> Result<(), DatabaseError> {
    let txid = Stamp::of(&probe::with_suffix(path, "-txid"))
        .map_err(|error| probe::path_error(path, &error))?;
    match txid {
        Some(txid) if txid.modified < file.modified => Err(DatabaseError::Changing(
            "changes were applied in part: it is newer than FILE-txid; if litestream restore does \
             not run any more, remove both and restore again",
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
#[path = "foreign_reader_tests.rs"]
mod tests;
