//! Some of SQLite's locks on FILE and FILE-shm, for what its own functions do not do. All locks are
//! listed in [`database`](super::database).

use std::fs::File;
use std::io;

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc::{self, off_t};

/// The bytes of FILE that SQLite locks (`os_unix.c`, `sqlite3PendingByte`), each with its length. A
/// reader has a read lock on `SHARED`, which it takes while nobody has `PENDING`. A program that
/// changes FILE without a WAL has a write lock on `RESERVED` from the beginning of its transaction,
/// and on all three while it writes FILE.
pub(super) const PENDING: (off_t, off_t) = (0x4000_0000, 1);
pub(super) const RESERVED: (off_t, off_t) = (0x4000_0001, 1);
pub(super) const SHARED: (off_t, off_t) = (0x4000_0002, 510);

/// The byte of FILE-shm that a writer locks until what it has written to FILE-wal is synced and can
/// be read (`wal.c`, `WAL_WRITE_LOCK`).
pub(super) const WRITER: (off_t, off_t) = (120, 1);

/// The byte of FILE-shm that every program locks as long as it uses FILE-wal (`os_unix.c`,
/// `UNIX_SHM_DMS`). A program that is killed loses the lock.
pub(super) const IN_USE: (off_t, off_t) = (128, 1);

/// Locks FILE as SQLite's readers do, until `file` is closed. False if a program is writing it. The
/// lock belongs to the open file description (fcntl_locking(2)). A lock of the process would end
/// when SQLite closes a descriptor of the same file.
pub(super) fn lock_shared(file: &File) -> io::Result<bool> {
    let is_locked =
        set_lock(file, libc::F_RDLCK, PENDING)? && set_lock(file, libc::F_RDLCK, SHARED)?;
    set_lock(file, libc::F_UNLCK, PENDING)?;
    Ok(is_locked)
}

/// Takes or gives up a lock on a range: the offset of its first byte, and its length. False if
/// another program has a lock that excludes this one.
pub(super) fn set_lock(file: &File, kind: i32, range: (off_t, off_t)) -> io::Result<bool> {
    match fcntl(file, FcntlArg::F_OFD_SETLK(&range_lock(kind, range))) {
        Err(nix::Error::EAGAIN | nix::Error::EACCES) => Ok(false),
        set => set.map(|_| true).map_err(io::Error::from),
    }
}

/// Whether another program has a lock that excludes this one.
pub(super) fn is_locked(file: &File, kind: i32, range: (off_t, off_t)) -> io::Result<bool> {
    let mut lock = range_lock(kind, range);
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut lock))?;
    Ok(i32::from(lock.l_type) != libc::F_UNLCK)
}

/// A read lock, a write lock or none on a range. `off_t` has 32 bits on some processors. That is
/// enough for the ranges above, and glibc, from 2.28 on, makes of them the 64 bits that the kernel
/// takes.
fn range_lock(kind: i32, (start, length): (off_t, off_t)) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start,
        l_len: length,
        l_pid: 0,
    }
}
