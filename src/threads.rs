//! Starts threads. That the system may refuse one is an error here, which the caller logs as one line, and no panic.

use std::cell::Cell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use threadpool::ThreadPool;

const STACK_BYTES: usize = 256 * 1024; // the deepest call takes a quarter of it; only what is used takes memory

thread_local! {
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Whether a panic of this thread is expected, so that the panic hook must not log it.
pub(crate) fn is_quiet() -> bool {
    IS_QUIET.get()
}

/// Starts a thread that is never joined.
///
/// # Errors
/// When the system refuses it.
pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).stack_size(STACK_BYTES).spawn(run).map(drop).map_err(|error| refused(&error))
}

/// Starts a pool of so many threads, all of this name.
///
/// # Errors
/// When the system refuses one of them; those that have started end.
pub(crate) fn pool(threads: usize, name: &str) -> io::Result<ThreadPool> {
    let build = || threadpool::Builder::new().num_threads(threads).thread_stack_size(STACK_BYTES).thread_name(name.to_owned()).build();
    // threadpool panics when it cannot start a thread, and does not say why
    IS_QUIET.set(true);
    let pool = catch_unwind(AssertUnwindSafe(build));
    IS_QUIET.set(false);
    pool.map_err(|_| refused(&io::Error::from(io::ErrorKind::WouldBlock)))
}

fn refused(error: &io::Error) -> io::Error {
    io::Error::other(format!("the system refuses a thread: {error}; raise the limit of processes (ulimit -u, TasksMax=)"))
}
