//! The threads of the pool, and their names.

use std::ffi::CString;
use std::panic;

use threadpool::ThreadPool;

/// Bytes of stack of each thread of the pool. The deepest call needs a quarter of that.
const STACK_BYTES: usize = 256 * 1024;

/// Starts this number of threads. `None` if the system refuses one.
pub(crate) fn start(threads: usize) -> Option<ThreadPool> {
    // The threadpool crate panics when it cannot start a thread. The caller reports that, so the
    // panic itself is not logged.
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let build = || {
        threadpool::Builder::new()
            .num_threads(threads)
            .thread_stack_size(STACK_BYTES)
            .thread_name("pool".to_owned())
            .build()
    };
    let pool = panic::catch_unwind(build);
    panic::set_hook(hook);
    pool.ok()
}

/// Has a thread of the pool do what lasts until the process ends. `name` is what `top -H` and perf
/// show, up to its 15th byte (TASK_COMM_LEN).
pub(crate) fn run_named(pool: &ThreadPool, name: &str, job: impl FnOnce() + Send + 'static) {
    let name = CString::new(name).expect("no name of a thread has a NUL");
    pool.execute(move || {
        // Nothing depends on the name.
        let _ = rustix::thread::set_name(&name);
        job();
    });
}
