//! The signals that stop the service, or have it read its tokens again.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use signal_hook::low_level::pipe;

/// For how long further signals count as the first: timeout(1) sends one to its child, and one to
/// its process group.
const SAME_SIGNAL_TIME: Duration = Duration::from_millis(100);

/// Each stream becomes readable when one of its signals arrives.
pub(crate) struct Signals {
    /// SIGTERM and SIGINT.
    pub(crate) stop: UnixStream,
    /// Whether SIGTERM and SIGINT end the process at once, with exit code 1.
    is_impatient: Arc<AtomicBool>,
    /// SIGHUP. `None` if it is not handled, and so ends the process.
    pub(crate) reload: Option<UnixStream>,
}

impl Signals {
    /// Handles signals from now on, SIGHUP only if `reloads`. While `is_starting` is true, SIGTERM
    /// and SIGINT end the process at once with exit code 0.
    ///
    /// Call it before anything that takes time: process 1 of a container does not receive signals
    /// for which it has no handler (pid_namespaces(7)), so nothing else could stop it.
    pub(crate) fn handle(is_starting: &Arc<AtomicBool>, reloads: bool) -> io::Result<Self> {
        let (stop, signalled) = UnixStream::pair()?;
        let is_impatient = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT] {
            flag::register_conditional_shutdown(signal, 0, Arc::clone(is_starting))?;
            flag::register_conditional_shutdown(signal, 1, Arc::clone(&is_impatient))?;
            pipe::register(signal, signalled.try_clone()?)?;
        }
        // With a handler for SIGXFSZ, a write beyond the file size limit is an error, and not the
        // end of the process. Nobody reads the flag.
        flag::register(SIGXFSZ, Arc::default())?;
        let mut signals = Self { stop, is_impatient, reload: None };
        if reloads {
            let (reload, signalled) = UnixStream::pair()?;
            reload.set_nonblocking(true)?;
            pipe::register(SIGHUP, signalled)?;
            signals.reload = Some(reload);
        }
        Ok(signals)
    }

    /// Call it after the first signal: has a second one, unless it is the same, end the process at
    /// once, with exit code 1.
    pub(crate) fn await_second(&self) {
        let is_impatient = Arc::clone(&self.is_impatient);
        let wait = move || {
            thread::sleep(SAME_SIGNAL_TIME);
            is_impatient.store(true, SeqCst);
        };
        // Without the thread, the service stops in its own time.
        let _ = thread::Builder::new().spawn(wait);
    }
}
