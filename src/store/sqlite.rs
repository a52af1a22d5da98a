//! The list on disk: an SQLite database, which other programs may read and write as well. Knows
//! nothing of requests.
//!
//! SQLite makes every commit atomic and durable (write-ahead log, `synchronous=FULL`). What the
//! files here add:
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
//! Two locks are the service's own (flock(2)). Other programs pay no attention to them.
//!
//! - The service lock, on FILE. A service has it until it closes FILE or ends, so that no second
//!   one uses FILE. A start waits for it up to [`LOCK_TIME`].
//! - The lock on the directory of FILE. A start has it while it makes FILE, until the new file,
//!   with the service lock, is at the path of FILE. `--check` has it while it makes the new
//!   file and removes it again. Others that want it wait up to [`LOCK_TIME`]. A start that replaces
//!   an empty FILE first takes the service lock on that file.
//!
//! All others are SQLite's (<https://sqlite.org/lockingv3.html>,
//! <https://sqlite.org/walformat.html>). `--check` and `--dump` take these as any other program
//! does, and no service lock. The connection of a service that has started waits for each of them
//! up to [`TRY_TIME`], and not at all when [`Database::close`] copies FILE-wal. Any other
//! connection waits up to [`BUSY_TIME`]. Three of SQLite's locks matter here:
//!
//! - The write lock. A save has it from [`Database::begin`] to the end of its commit. A save waits
//!   for it in tries of [`TRY_TIME`], until its first change has waited for almost 5 s. Between two
//!   tries the writer publishes what others have committed, which takes no write lock.
//! - The checkpoint lock. A commit that does not get it leaves the checkpoint to a later commit.
//!   [`Database::close`] needs this lock, the write lock, and that nobody reads from FILE-wal.
//!   Otherwise it fails, and FILE-wal stays.
//! - The exclusive lock on FILE. [`Database::close`] removes FILE-wal under it. It does not get the
//!   lock while another program has FILE open, and then leaves an empty FILE-wal.
//!
//! So every wait for a lock ends.
//!
//! A process that closes any descriptor of FILE or FILE-shm loses SQLite's locks on that file
//! (<https://sqlite.org/howtocorrupt.html>, section 2.2). So the connection is closed first, and
//! the other descriptors after it.
//!
//! [`LOCK_TIME`]: locks::LOCK_TIME
//! [`BUSY_TIME`]: open_database::BUSY_TIME
//! [`TRY_TIME`]: open_database::TRY_TIME

mod data_path;
mod error;
mod file_place;
mod locks;
mod new_file;
mod open_database;
mod rows;
mod wal_files;

use data_path::{check_writable, locate};
pub(crate) use error::DatabaseError;
pub(crate) use file_place::FilePlace;
use locks::check_lock;
pub(super) use locks::lock_file;
use new_file::check_new_file;
pub(super) use new_file::lock_or_make;
pub(super) use open_database::Database;
use open_database::read_without_writing;
use wal_files::sync_directory;
