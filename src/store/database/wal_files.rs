//! The files of an open database: FILE, FILE-wal and FILE-shm. Checks them before SQLite uses them,
//! for two reasons. First, SQLite keeps writing to files that were removed or replaced. Second, it
//! maps FILE-shm into memory, and writing to memory for which the disk has no room is a SIGBUS.
//! Knows no SQL.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, OFlags, fallocate};
use rustix::io::{Errno, retry_on_intr};

use super::{DatabaseError, data_path};
use crate::file_id::FileId;

/// The wal-index in FILE-shm consists of blocks of this many bytes, each for this many frames of
/// FILE-wal (<https://sqlite.org/walformat.html>, section 2.2).
const SHM_BLOCK_BYTES: u64 = 32 * 1024;
const SHM_BLOCK_FRAMES: u64 = 4096;

/// Bytes of SQLite's shortest page. A frame of FILE-wal is a page with a header.
const PAGE_BYTES_MIN: u64 = 512;

/// The files of a database. Make this before the connection, and drop it after the connection: see
/// [`Database`](super::Database).
pub(super) struct WalFiles {
    /// FILE as `--data` names it, FILE-wal and FILE-shm, each with its identity; `None`
    /// until SQLite has opened it.
    opened: [(PathBuf, Option<FileId>); 3],
    pub(super) shm: SharedMemory,
    /// The most bytes of pages that FILE-wal can have after the save that is under way.
    wal_bytes_max: u64,
    /// The greatest lengths in bytes of FILE and FILE-wal since they were last known to be whole.
    whole_lengths: [u64; 2],
}

/// FILE-shm, which has the wal-index, and which SQLite maps into memory. Writing to that memory is
/// a SIGBUS where the file has ended, or where the disk has no room for a block of it. SQLite makes
/// room by writing one byte in 4,096, which is too few on a file system with smaller blocks.
pub(super) struct SharedMemory {
    file: File,
    path: PathBuf,
    /// The length in bytes that this process has allocated. If the file is shorter, it was cut.
    allocated: u64,
}

impl SharedMemory {
    /// Opens FILE-shm, or creates it as SQLite would. One that stays when SQLite then refuses FILE
    /// does no harm: the next program that opens the database uses it.
    fn open(path: &Path) -> Result<Self, DatabaseError> {
        let shm = data_path::with_suffix(path, "-shm");
        let failed = |error: io::Error| data_path::refused("open", &shm, &error);
        let owner = fs::metadata(path).map_err(failed)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(owner.mode() & 0o777);
        // Like SQLite: somebody else may own the directory.
        options.custom_flags(OFlags::NOFOLLOW.bits() as i32);
        let file = options.open(&shm).map_err(failed)?;
        // SQLite does the same (os_unix.c). Only root may give files away. Other users own FILE
        // themselves in most cases.
        let _ = give_owner_and_mode_of(&owner, &file);
        Ok(Self { file, path: shm, allocated: 0 })
    }

    /// Allocates what SQLite will map for a FILE-wal of this many bytes, whatever the length of its
    /// pages, and a block more.
    fn allocate(&mut self, wal_bytes: u64) -> Result<(), DatabaseError> {
        let frames = wal_bytes / PAGE_BYTES_MIN;
        let needed = SHM_BLOCK_BYTES * (frames / SHM_BLOCK_FRAMES + 2);
        if needed > self.allocated {
            let allocated =
                retry_on_intr(|| fallocate(&self.file, FallocateFlags::empty(), 0, needed));
            match allocated {
                Ok(()) => self.allocated = needed,
                // The file system cannot allocate in advance.
                Err(Errno::OPNOTSUPP) => self.allocated = self.length(),
                Err(error) => {
                    return Err(data_path::refused("allocate", &self.path, &error.into()));
                }
            }
        }
        Ok(())
    }

    fn length(&self) -> u64 {
        self.file.metadata().map_or(0, |file| file.len())
    }

    /// Fails if the file lacks some of what SQLite has mapped. Do not call SQLite then: it could
    /// end the process by a SIGBUS.
    pub(super) fn check(&self) -> Result<(), DatabaseError> {
        if self.length() < self.allocated { Err(replaced(&self.path)) } else { Ok(()) }
    }
}

impl WalFiles {
    /// `given`: FILE as `--data` names it, which may be a symbolic link that leads to `path`.
    ///
    /// Allocates FILE-shm for the present length of FILE-wal, and fails if the disk has no room for
    /// that. If no other program has FILE-shm open, SQLite will cut it and make it again.
    pub(super) fn new(given: &Path, path: &Path) -> Result<Self, DatabaseError> {
        let beside = |suffix| data_path::with_suffix(path, suffix);
        let opened = [given.to_owned(), beside("-wal"), beside("-shm")].map(|path| (path, None));
        let mut shm = SharedMemory::open(path)?;
        let wal = fs::metadata(&opened[1].0).map_or(0, |file| file.len());
        shm.allocate(wal)?;
        Ok(Self { opened, shm, wal_bytes_max: 0, whole_lengths: [0; 2] })
    }

    /// Notes which files SQLite has opened.
    pub(super) fn note_opened(&mut self) -> Result<(), DatabaseError> {
        // SQLite may have cut FILE-shm.
        self.shm.allocated = 0;
        self.check()
    }

    /// Fails if a file is not the one that was opened, or FILE-shm was cut. Otherwise makes room in
    /// FILE-shm for a save that adds no text.
    pub(super) fn check(&mut self) -> Result<(), DatabaseError> {
        let mut lengths = [0; 3];
        for ((path, opened), length) in self.opened.iter_mut().zip(&mut lengths) {
            let file = fs::metadata(&*path).map_err(|_| replaced(path))?;
            let id = FileId::of(&file);
            if *opened.get_or_insert(id) != id {
                return Err(replaced(path));
            }
            *length = file.len();
        }
        let [file, wal, _] = lengths;
        let [whole_file, whole_wal] = self.whole_lengths;
        self.whole_lengths = [whole_file.max(file), whole_wal.max(wal)];
        self.shm.check()?;
        // What FILE-wal has, and each page that the save changes once. Without new text, it cannot
        // change more pages than FILE and FILE-wal have.
        self.wal_bytes_max = wal + (file + wal);
        self.allocate_for(0)
    }

    /// Returns FILE or FILE-wal if that has become shorter since it was last known to be whole.
    pub(super) fn shorter(&self) -> Option<&Path> {
        let lengths = self.lengths();
        let place = (0..2).find(|place| lengths[*place] < self.whole_lengths[*place])?;
        Some(&self.opened[place].0)
    }

    /// Notes that both files are whole as they are.
    pub(super) fn note_whole(&mut self) {
        self.whole_lengths = self.lengths();
    }

    /// Notes that FILE-wal is whole as it is. SQLite may have cut it in a commit.
    pub(super) fn note_committed(&mut self) {
        self.whole_lengths[1] = self.lengths()[1];
    }

    /// Whether FILE has at least one page.
    pub(super) fn has_page(&self) -> bool {
        self.lengths()[0] >= PAGE_BYTES_MIN
    }

    /// The lengths in bytes of FILE and FILE-wal. A FILE-wal that was removed counts as whole:
    /// SQLite still writes to it, and its length cannot be read by its name.
    fn lengths(&self) -> [u64; 2] {
        let [(file, _), (wal, opened), _] = &self.opened;
        let file = fs::metadata(file).map_or(0, |file| file.len());
        let wal = fs::metadata(wal).ok().filter(|wal| *opened == Some(FileId::of(wal)));
        [file, wal.map_or(u64::MAX, |wal| wal.len())]
    }

    /// FILE-wal, by a path without links.
    pub(super) fn wal(&self) -> &Path {
        &self.opened[1].0
    }

    /// FILE, as `--data` names it.
    pub(super) fn path(&self) -> &Path {
        &self.opened[0].0
    }

    /// Makes room in FILE-shm for a save that adds this many bytes of text. The pages of its rows
    /// have at most twice as many bytes.
    pub(super) fn allocate_for(&mut self, text: u64) -> Result<(), DatabaseError> {
        self.wal_bytes_max += 2 * text;
        self.shm.allocate(self.wal_bytes_max)
    }
}

/// Gives a new file the owner and the mode of another.
pub(super) fn give_owner_and_mode_of(other: &Metadata, file: &File) -> io::Result<()> {
    file.set_permissions(Permissions::from_mode(other.mode() & 0o777))?;
    fchown(file, Some(other.uid()), Some(other.gid()))
}

/// The error when a file is not the one that was opened, or lacks pages.
pub(super) fn replaced(path: &Path) -> DatabaseError {
    DatabaseError::Unusable(format!(
        "{} was removed, replaced or cut short; move it back (a copy is another file), or save \
         what GET /colors answers and restart",
        path.file_name().unwrap_or_default().display()
    ))
}
