//! The files of an open database: FILE, FILE-wal and FILE-shm. Checks them before SQLite uses them:
//! SQLite keeps writing to files that were removed or replaced, and ends the process by SIGBUS
//! where FILE-shm has no room. Knows no SQL.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, FlockOperation, fallocate, fcntl_lock};
use rustix::io::Errno;

use super::{DatabaseError, probe};

/// Bytes that SQLite adds to FILE-shm at a time, for this many frames of FILE-wal
/// (<https://sqlite.org/walformat.html>, section 2.2).
const REGION_BYTES: u64 = 32 * 1024;
const REGION_FRAMES: u64 = 4096;

/// Bytes of SQLite's shortest page; the service makes databases with 4,096. A frame of FILE-wal is
/// a page with a header.
const PAGE_BYTES_MIN: u64 = 512;

/// The files of a database. Make it before the connection, and drop it after that, see
/// [`Database`](super::Database).
pub(super) struct WalFiles {
    /// FILE as `--data` names it, FILE-wal and FILE-shm, each with its device and inode, which are
    /// noted once SQLite has opened it.
    opened: [(PathBuf, Option<(u64, u64)>); 3],
    pub(super) shm: SharedMemory,
    page_bytes: u64,
    /// Upper bound of the bytes of pages in FILE-wal after the save that is under way.
    bytes: u64,
    /// The most bytes that FILE had since it was last known to be whole.
    whole_length: u64,
}

/// FILE-shm. SQLite maps it into memory, where writing to a place for which the disk has no room,
/// or behind the end, is a SIGBUS. SQLite makes room by writing one byte in 4,096, which is not
/// enough where the blocks of the file system are smaller.
///
/// Drop it after the connection, see [`Database`](super::Database).
pub(super) struct SharedMemory {
    file: File,
    path: PathBuf,
    /// The file was created here, so it is removed here if SQLite never uses it.
    is_new: bool,
    /// Bytes from the beginning of the file that it has to have: those that were allocated here.
    room: u64,
}

impl SharedMemory {
    /// Opens FILE-shm, or creates it as SQLite would.
    fn open(path: &Path) -> Result<Self, DatabaseError> {
        let shm = probe::with_suffix(path, "-shm");
        let failed = |error: io::Error| probe::path_error(&shm, &error);
        let owner = fs::metadata(path).map_err(failed)?;
        let mode = owner.mode() & 0o777;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(mode);
        let made = options.clone().create_new(true).open(&shm);
        let is_new = made.is_ok();
        let file = made.or_else(|_| options.open(&shm)).map_err(failed)?;
        if is_new {
            // the owner and the mode of FILE, as SQLite gives them (os_unix.c)
            file.set_permissions(Permissions::from_mode(mode)).map_err(failed)?;
            // Only root may change an owner; other users that get here are most often the owner.
            let _ = fchown(&file, Some(owner.uid()), Some(owner.gid()));
        }
        Ok(Self { file, path: shm, is_new, room: 0 })
    }

    /// Allocates what SQLite will map for a FILE-wal of so many frames, and a region more.
    fn make_room(&mut self, frames: u64) -> Result<(), DatabaseError> {
        let needed = REGION_BYTES * (frames / REGION_FRAMES + 2);
        if needed > self.room {
            match fallocate(&self.file, FallocateFlags::empty(), 0, needed) {
                Ok(()) => self.room = needed,
                // the file system cannot allocate in advance
                Err(Errno::OPNOTSUPP) => self.room = self.length(),
                Err(Errno::NOSPC | Errno::DQUOT) => return Err(DatabaseError::full()),
                Err(error) => return Err(probe::path_error(&self.path, &error.into())),
            }
        }
        Ok(())
    }

    fn length(&self) -> u64 {
        self.file.metadata().map_or(0, |file| file.len())
    }

    /// Fails if the file lacks some of what SQLite has mapped: then SQLite must not be called any
    /// more.
    pub(super) fn check(&self) -> Result<(), DatabaseError> {
        if self.length() < self.room { Err(replaced(&self.path)) } else { Ok(()) }
    }
}

impl Drop for SharedMemory {
    /// Removes the file if it was created here and SQLite did not get as far as using it.
    fn drop(&mut self) {
        let id = |file: io::Result<Metadata>| file.ok().map(|file| (file.dev(), file.ino()));
        let is_this = || id(self.file.metadata()) == id(fs::metadata(&self.path));
        // every program that uses the file has a lock on it
        if self.is_new
            && is_this()
            && fcntl_lock(&self.file, FlockOperation::NonBlockingLockExclusive).is_ok()
        {
            // A file that stays is used by the next process that opens the database.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl WalFiles {
    /// `given`: FILE as `--data` names it, which may be a symbolic link that leads to `path`. Makes
    /// room for FILE-wal as it is: the first process that opens FILE-shm cuts it to nothing, and
    /// then has the room free on the disk for the new index.
    pub(super) fn new(given: &Path, path: &Path) -> Result<Self, DatabaseError> {
        let beside = |suffix| probe::with_suffix(path, suffix);
        let opened = [given.to_owned(), beside("-wal"), beside("-shm")].map(|path| (path, None));
        let mut shm = SharedMemory::open(path)?;
        let wal = fs::metadata(&opened[1].0).map_or(0, |file| file.len());
        shm.make_room(wal / PAGE_BYTES_MIN)?;
        Ok(Self { opened, shm, page_bytes: PAGE_BYTES_MIN, bytes: 0, whole_length: 0 })
    }

    /// Notes which files SQLite has opened, and the length of their pages in bytes.
    pub(super) fn note_opened(&mut self, page_bytes: u32) -> Result<(), DatabaseError> {
        self.page_bytes = page_bytes.into();
        // SQLite may have cut FILE-shm
        self.shm.room = 0;
        self.check()
    }

    /// Fails if a file is not the one that was opened, or FILE-shm was cut: then SQLite must not
    /// use them. Makes room in FILE-shm for a save that adds no text.
    pub(super) fn check(&mut self) -> Result<(), DatabaseError> {
        let mut lengths = [0; 3];
        for ((path, opened), length) in self.opened.iter_mut().zip(&mut lengths) {
            let file = fs::metadata(&*path).map_err(|_| replaced(path))?;
            let id = (file.dev(), file.ino());
            if *opened.get_or_insert(id) != id {
                return Err(replaced(path));
            }
            *length = file.len();
        }
        let [file, wal, _] = lengths;
        self.whole_length = self.whole_length.max(file);
        self.shm.check()?;
        // a save appends each page to FILE-wal at most once, and each is in FILE or in FILE-wal
        self.bytes = file + 2 * wal;
        self.make_room_for(0)
    }

    /// Whether FILE has become shorter since it was last known to be whole.
    pub(super) fn is_shorter(&self) -> bool {
        self.length() < self.whole_length
    }

    /// Notes that FILE is whole as it is.
    pub(super) fn note_whole(&mut self) {
        self.whole_length = self.length();
    }

    /// Whether FILE has a page at all.
    pub(super) fn has_a_page(&self) -> bool {
        self.length() >= PAGE_BYTES_MIN
    }

    fn length(&self) -> u64 {
        fs::metadata(self.path()).map_or(0, |file| file.len())
    }

    /// FILE, as `--data` names it.
    pub(super) fn path(&self) -> &Path {
        &self.opened[0].0
    }

    /// The error when FILE lacks pages.
    pub(super) fn cut(&self) -> DatabaseError {
        replaced(self.path())
    }

    /// Makes room in FILE-shm for a save that adds `text` bytes of text: the pages of its rows have
    /// at most twice as many.
    pub(super) fn make_room_for(&mut self, text: u64) -> Result<(), DatabaseError> {
        self.bytes += 2 * text;
        self.shm.make_room(self.bytes / self.page_bytes)
    }
}

fn replaced(path: &Path) -> DatabaseError {
    let name = path.file_name().unwrap_or_default().display();
    DatabaseError::Other(format!(
        "{name} was removed, replaced or cut short; move it back (a copy is another file), or save \
         what GET /colors answers and restart"
    ))
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;

    #[test]
    fn only_one_of_several_that_open_the_index_at_once_has_made_it() {
        let directory =
            std::env::temp_dir().join(format!("colors-wal-files-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("FILE");
        fs::write(&path, "").unwrap();
        for round in 0..200 {
            let barrier = Barrier::new(4);
            let open = || {
                barrier.wait();
                SharedMemory::open(&path).unwrap()
            };
            let opened = thread::scope(|scope| {
                [(); 4].map(|()| scope.spawn(open)).map(|opening| opening.join().unwrap())
            });
            assert_eq!(opened.iter().filter(|shm| shm.is_new).count(), 1, "{round}");
        }
        fs::remove_dir_all(&directory).unwrap();
    }
}
