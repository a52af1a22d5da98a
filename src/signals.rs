//! Signals: stop the service, or reload its tokens.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use signal_hook::low_level::pipe;

/// A stream is readable once one of its signals has come.
pub(crate) struct Signals {
    /// SIGTERM and SIGINT. A second one ends the process at once with exit code 1.
    pub(crate) stop: UnixStream,
    /// SIGHUP with `--token-file`; otherwise that ends the process.
    pub(crate) reload: Option<UnixStream>,
}

impl Signals {
    /// Handles signals from now on. While `is_starting`, those of `stop` end the process with code
    /// 0.
    ///
    /// Call it before anything that takes time: the kernel drops signals without a handler for
    /// process 1 of a container.
    pub(crate) fn handle(is_starting: &Arc<AtomicBool>, reloads: bool) -> io::Result<Self> {
        let (stop, signalled) = UnixStream::pair()?;
        let was_signalled = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT] {
            flag::register_conditional_shutdown(signal, 0, Arc::clone(is_starting))?;
            flag::register_conditional_shutdown(signal, 1, Arc::clone(&was_signalled))?;
            flag::register(signal, Arc::clone(&was_signalled))?;
            pipe::register(signal, signalled.try_clone()?)?;
        }
        // Makes a file size limit an error of the write, and not the end of the process. Nobody
        // reads the flag.
        flag::register(SIGXFSZ, Arc::default())?;
        let mut signals = Self { stop, reload: None };
        if reloads {
            let (reload, signalled) = UnixStream::pair()?;
            reload.set_nonblocking(true)?;
            pipe::register(SIGHUP, signalled)?;
            signals.reload = Some(reload);
        }
        Ok(signals)
    }
}
