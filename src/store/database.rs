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
//! Two locks are ours (flock(2)). Other programs pay no attention to them.
//!
//! - The service lock, on FILE. A service has it until it ends, so that no second one uses FILE. A
//!   start waits for it, no longer than [`LOCK_TIME`].
//! - The lock on the directory of FILE. A start has it while it makes FILE, until the new file is
//!   at the path of FILE and has the service lock. Another start that makes a file there waits, no
//!   longer than [`LOCK_TIME`]. A start that replaces an empty FILE takes the service lock on that
//!   one first.
//!
//! All others are SQLite's (<https://sqlite.org/lockingv3.html>,
//! <https://sqlite.org/walformat.html>). `--check` and `--dump` take these as any other program
//! does, and no service lock. The connection of a service that has started waits for them no longer
//! than [`TRY_TIME`], any other no longer than [`BUSY_TIME`], and [`Database::close`] not at all.
//! Three of them decide what is done here:
//!
//! - The write lock. A save has it from [`Database::begin`] to the end of its commit. A save waits
//!   for it no longer than [`BUSY_TIME`], in tries of [`TRY_TIME`]. Between two tries the writer
//!   publishes what others have committed, which takes no write lock.
//! - The checkpoint lock. A commit that does not get it leaves the checkpoint to a later one.
//!   [`Database::close`] needs this lock and the write lock, and that nobody reads from FILE-wal.
//!   Otherwise it fails, and FILE-wal stays.
//! - The exclusive lock on FILE. A connection that closes takes it, and then removes FILE-wal.
//!   While another program has FILE open, it does not get the lock, and leaves an empty FILE-wal.
//!
//! So every wait ends, and no two processes wait for each other.
//!
//! A process that closes any descriptor of FILE or FILE-shm loses SQLite's locks on that file
//! (<https://sqlite.org/howtocorrupt.html>, section 2.2). So the connection is closed first, and
//! the other descriptors after it.
//!
//! [`LOCK_TIME`]: locks::LOCK_TIME
//! [`BUSY_TIME`]: open_database::BUSY_TIME
//! [`TRY_TIME`]: open_database::TRY_TIME

mod data_path;
mod database_status;
mod error;
mod locks;
mod new_file;
mod open_database;
mod rows;
mod wal_files;

pub(crate) use data_path::{check_writable, locate};
pub(crate) use database_status::DatabaseStatus;
pub(crate) use error::DatabaseError;
pub(crate) use locks::lock_file;
pub(crate) use new_file::{check_new_file, lock_or_make};
pub(super) use open_database::{BUSY_TIME, TRY_TIME};
pub(crate) use open_database::{Database, read_without_writing};
