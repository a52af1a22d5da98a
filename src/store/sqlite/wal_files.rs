//! The files of an open database: FILE, FILE-wal and FILE-shm. Checks them before SQLite uses them,
//! for two reasons. First, SQLite keeps writing to files that were removed or replaced. Second, it
//! maps FILE-shm into memory, and writing to memory for which the disk has no room is a SIGBUS.
//! Also has what concerns the names, the owner and the mode of these files. Knows no SQL.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, FallocateFlags, OFlags, fallocate};
use rustix::io::{Errno, retry_on_intr};

use super::DatabaseError;
use super::data_path::{check_access, directory_of};
use super::new_file::SUFFIXES;
use crate::file_id::FileId;

/// The wal-index in FILE-shm consists of blocks of this many bytes. Each is for this many frames of
/// FILE-wal, the first for 34 fewer (<https://sqlite.org/walformat.html>, section 2.2).
const SHM_BLOCK_BYTES: u64 = 32 * 1024;
const SHM_BLOCK_FRAMES: u64 = 4096;

/// SQLite's shortest page, in bytes. A frame of FILE-wal is a header and a page.
pub(super) const PAGE_BYTES_MIN: u64 = 512;

/// The files of a database. Make this before the connection, and drop it after the connection: see
/// [`Database`](super::Database).
pub(super) struct WalFiles {
    /// FILE, as `--data` names it.
    pub(super) file: OpenedFile,
    /// FILE-wal, by a path without links.
    pub(super) wal: OpenedFile,
    pub(super) shm: SharedMemory,
    /// The greatest lengths in bytes that were seen since both files were last known to be whole.
    whole_file: u64,
    whole_wal: u64,
    /// Bytes of pages that FILE-wal may have after the save that is under way: an estimate.
    wal_bytes_max: u64,
}

/// A file that SQLite opens by its path.
pub(super) struct OpenedFile {
    pub(super) path: PathBuf,
    /// `None` until it is known.
    id: Option<FileId>,
}

impl OpenedFile {
    /// What is at the path. `None` if that is nothing, or not the file that was opened.
    fn there(&self) -> Option<Metadata> {
        fs::metadata(&self.path).ok().filter(|file| self.id.is_none_or(|id| id == FileId::of(file)))
    }

    /// Fails if the file that was opened is not at the path; takes any file if none is known.
    /// Returns its length in bytes.
    fn check(&mut self) -> Result<u64, DatabaseError> {
        let there = self.there().ok_or_else(|| replaced(&self.path))?;
        self.id = Some(FileId::of(&there));
        Ok(there.len())
    }
}

/// FILE-shm, which has the wal-index, and which SQLite maps into memory. Writing to that memory is
/// a SIGBUS behind the end of the file, or where the disk has no room for a block of it. SQLite
/// makes room by writing one byte in 4,096, which is too few on a file system with smaller blocks.
pub(super) struct SharedMemory {
    file: OpenedFile,
    descriptor: File,
    /// Bytes that this process has allocated. If the file is shorter, it was cut.
    allocated: u64,
}

impl SharedMemory {
    /// Opens FILE-shm, or creates it as SQLite would. If SQLite then refuses FILE, FILE-shm stays.
    /// It does no harm: the next program that opens the database uses it.
    fn open(path: &Path) -> Result<Self, DatabaseError> {
        let shm = with_suffix(path, "-shm");
        let failed = |error: io::Error| DatabaseError::refused("open", &shm, &error);
        let owner = fs::metadata(path).map_err(failed)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(owner.mode() & 0o777);
        // SQLite follows no link here either: somebody else may own the directory.
        options.custom_flags(OFlags::NOFOLLOW.bits() as i32);
        let descriptor = options.open(&shm).map_err(failed)?;
        // SQLite ignores a failure too (os_unix.c). Only root may give files away, and other users
        // mostly own FILE themselves.
        let _ = give_owner_and_mode_of(&owner, &descriptor);
        // Another program that closes the database may remove this file before SQLite opens it.
        // Then SQLite makes another file, which the id tells apart from this one.
        let id = Some(FileId::of(&descriptor.metadata().map_err(failed)?));
        Ok(Self { file: OpenedFile { path: shm, id }, descriptor, allocated: 0 })
    }

    /// Allocates what SQLite will map for a FILE-wal of this many bytes, whatever its page size.
    /// Two blocks are added: one for the rest, and one since the first is for fewer frames.
    fn allocate(&mut self, wal_bytes: u64) -> Result<(), DatabaseError> {
        let frames = wal_bytes / PAGE_BYTES_MIN;
        let needed = SHM_BLOCK_BYTES * (frames / SHM_BLOCK_FRAMES + 2);
        if needed <= self.allocated {
            return Ok(());
        }
        let path = &self.file.path;
        let allocate = || fallocate(&self.descriptor, FallocateFlags::empty(), 0, needed);
        self.allocated = match retry_on_intr(allocate) {
            Ok(()) => needed,
            // The file system cannot allocate in advance.
            Err(Errno::OPNOTSUPP) => self.length(),
            Err(error) => return Err(DatabaseError::refused("allocate", path, &error.into())),
        };
        Ok(())
    }

    fn length(&self) -> u64 {
        self.descriptor.metadata().map_or(0, |file| file.len())
    }

    /// Fails if the file lacks some of what was allocated. Do not call SQLite then: a SIGBUS could
    /// end the process.
    pub(super) fn check(&self) -> Result<(), DatabaseError> {
        if self.length() < self.allocated { Err(replaced(&self.file.path)) } else { Ok(()) }
    }
}

impl WalFiles {
    /// `given`: FILE as `--data` names it, which may be a symbolic link that leads to `path`.
    ///
    /// Allocates FILE-shm for the present length of FILE-wal, and fails if the disk has no room for
    /// that. If no other program has FILE-shm open, SQLite will cut FILE-shm and fill it again.
    pub(super) fn new(given: &Path, path: &Path) -> Result<Self, DatabaseError> {
        for beside in SUFFIXES.iter().map(|suffix| with_suffix(path, suffix)) {
            if fs::symlink_metadata(&beside).is_ok_and(|there| !there.is_file()) {
                let beside = beside.display();
                let reason = format!("cannot open {beside}: it is not a regular file; remove it");
                return Err(DatabaseError::Unusable(reason));
            }
        }
        let file = OpenedFile { path: given.to_owned(), id: None };
        let wal = OpenedFile { path: with_suffix(path, "-wal"), id: None };
        // SQLite would open it read-only, and fail at the first save.
        check_access(&wal.path, Access::READ_OK | Access::WRITE_OK)?;
        let mut shm = SharedMemory::open(path)?;
        shm.allocate(wal.there().map_or(0, |wal| wal.len()))?;
        Ok(Self { file, wal, shm, whole_file: 0, whole_wal: 0, wal_bytes_max: 0 })
    }

    /// Notes which files SQLite has opened. Call it once SQLite has made FILE-wal.
    pub(super) fn note_opened(&mut self) -> Result<(), DatabaseError> {
        // SQLite may have cut FILE-shm.
        self.shm.allocated = 0;
        self.check()
    }

    /// Fails if a file is not the one that was opened, or if FILE-shm was cut. Otherwise makes room
    /// in FILE-shm for a save that adds no text.
    pub(super) fn check(&mut self) -> Result<(), DatabaseError> {
        let file = self.file.check()?;
        let wal = self.wal.check()?;
        self.shm.file.check()?;
        self.whole_file = self.whole_file.max(file);
        self.whole_wal = self.whole_wal.max(wal);
        self.shm.check()?;
        // A save adds each page that it changes to FILE-wal once. Without new text, it cannot
        // change more pages than FILE and FILE-wal have.
        self.wal_bytes_max = wal + (file + wal);
        self.allocate_for(0)
    }

    /// Returns FILE or FILE-wal if that has become shorter since it was last known to be whole.
    pub(super) fn shorter(&self) -> Option<&Path> {
        if self.file_length() < self.whole_file {
            return Some(&self.file.path);
        }
        (self.wal_length() < self.whole_wal).then_some(&self.wal.path)
    }

    /// Notes that FILE and FILE-wal are whole as they are.
    pub(super) fn note_whole(&mut self) {
        self.whole_file = self.file_length();
        self.whole_wal = self.wal_length();
    }

    /// Notes that FILE-wal is whole as it is: SQLite may have cut it in a commit.
    pub(super) fn note_committed(&mut self) {
        self.whole_wal = self.wal_length();
    }

    /// In bytes; 0 if FILE was removed.
    pub(super) fn file_length(&self) -> u64 {
        fs::metadata(&self.file.path).map_or(0, |file| file.len())
    }

    /// In bytes. A FILE-wal that was removed or replaced counts as whole: SQLite still writes to
    /// it, but its length cannot be read by its name.
    fn wal_length(&self) -> u64 {
        self.wal.there().map_or(u64::MAX, |wal| wal.len())
    }

    /// Makes room in FILE-shm for this many more bytes of text in a save. Counts twice as many
    /// bytes of pages, since pages need not be full.
    pub(super) fn allocate_for(&mut self, text: u64) -> Result<(), DatabaseError> {
        self.wal_bytes_max += 2 * text;
        self.shm.allocate(self.wal_bytes_max)
    }
}

/// The path of a file beside FILE, such as FILE-wal.
pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// Makes the names in the directory of FILE durable.
pub(super) fn sync_directory(path: &Path) -> Result<(), DatabaseError> {
    let directory = directory_of(path);
    let synced = File::open(directory).and_then(|directory| directory.sync_all());
    synced.map_err(|error| {
        DatabaseError::Unusable(format!(
            "cannot sync {}: {error}; a power cut could lose the file: repair the disk, or name \
             another file with --data",
            directory.display()
        ))
    })
}

/// Gives a new file the owner and the mode of another.
pub(super) fn give_owner_and_mode_of(other: &Metadata, file: &File) -> io::Result<()> {
    file.set_permissions(Permissions::from_mode(other.mode() & 0o777))?;
    fchown(file, Some(other.uid()), Some(other.gid()))
}

/// The error when a file is not the one that was opened, or was cut.
pub(super) fn replaced(path: &Path) -> DatabaseError {
    DatabaseError::Unusable(format!(
        "{} was removed, replaced or cut short; move it back (a copy is another file), or save \
         what GET /colors answers and restart",
        path.file_name().unwrap_or_default().display()
    ))
}
