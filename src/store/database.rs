//! The list on disk: an SQLite database, which other programs may read and write as well. Knows
//! nothing of requests.
//!
//! SQLite makes every commit atomic and durable (write-ahead log, `synchronous=FULL`). What is
//! added here, by the question that it answers:
//!
//! | question | file |
//! |---|---|
//! | what is at the path of `--data`, and may this process write there? | `data_path` |
//! | how does a start make FILE, so that it is whole? | `new_file` |
//! | what keeps out a second service? | `locks` |
//! | how is FILE opened, read, saved to and closed? what have others committed? | `open_database` |
//! | which table does FILE have, and what if that changes? | `rows` |
//! | are FILE, FILE-wal and FILE-shm those that were opened, and is there room? | `wal_files` |
//! | why can FILE not be used, and what is to be done? | `error` |
//!
//! # Locks
//!
//! In the order in which they are taken. All but the first two are SQLite's own (`os_unix.c`,
//! `wal.c`), which belong to the process (fcntl_locking(2)).
//!
//! | lock | on | had by | waited for by |
//! |---|---|---|---|
//! | service | FILE, flock(2) | a service, until it ends | a start, [`LOCK_TIME`] |
//! | making | the directory, flock(2) | a start that makes FILE | another such, [`LOCK_TIME`] |
//! | shared | FILE, shared bytes | each open connection | who wants it exclusive, [`BUSY_TIME`] |
//! | exclusive | FILE, all lock bytes | a change without a WAL | who opens it, [`BUSY_TIME`] |
//! | in use | FILE-shm, byte 128 | each open connection | nobody |
//! | recovery | FILE-shm, bytes 120 to 122 | the first connection | others, [`BUSY_TIME`] |
//! | read mark | FILE-shm, a byte of 123 to 127 | each transaction | nobody |
//! | write | FILE-shm, byte 120 | a transaction that writes | a save, [`BUSY_TIME`] |
//! | checkpoint | FILE-shm, byte 121 | a checkpoint | nobody |
//!
//! - Shared, in use and read mark are read locks, which any number may have at once. Of the others,
//!   one at a time has each.
//! - Making: keeps two first starts apart, until the file that has the service lock is at the path
//!   of FILE. Whoever makes FILE in place of an empty one has the service lock on both.
//! - Exclusive: taken by a program while it writes without a WAL, and by the last connection when
//!   it closes and removes FILE-shm. A connection that does not get the lock when it closes does
//!   not wait, but leaves an empty FILE-wal.
//! - In use: while anybody has this lock, the content of FILE-shm, the wal-index, is valid. The
//!   first connection makes the wal-index under the recovery lock.
//! - Read mark: a checkpoint does not wait for readers. It copies no page of FILE-wal into FILE
//!   that is newer than what a reader sees.
//! - Write: a save has this lock from [`Database::begin`] to the end of its commit. A save waits
//!   for [`TRY_TIME`] at a time. Between two tries the writer publishes what others have committed,
//!   for which a read mark is enough.
//! - Checkpoint: taken at the end of a commit, and in [`Database::close`]. A connection that does
//!   not get the lock leaves the checkpoint out.
//!
//! `--dump` and `--check` have a connection as any other program has, without the service lock.
//!
//! So every wait ends, and no two processes wait for each other. A process that closes any
//! descriptor of FILE or FILE-shm loses SQLite's locks on that file
//! (<https://sqlite.org/howtocorrupt.html>, section 2.2): here, the connection is closed first.
//!
//! [`LOCK_TIME`]: locks::LOCK_TIME
//! [`BUSY_TIME`]: open_database::BUSY_TIME
//! [`TRY_TIME`]: open_database::TRY_TIME

mod data_path;
mod error;
mod locks;
mod new_file;
mod open_database;
mod rows;
mod wal_files;

pub(crate) use data_path::{check_writable, locate};
pub(crate) use error::DatabaseError;
pub(crate) use locks::lock_file;
pub(crate) use new_file::{check_new_file, lock_or_make};
pub(super) use open_database::{BUSY_TIME, TRY_TIME};
pub(crate) use open_database::{Database, read_without_writing};
