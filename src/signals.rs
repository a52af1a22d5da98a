//! Signals: stop the service, or reload its tokens.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};

/// Makes the returned stream readable on SIGTERM and SIGINT. A second one ends the process at once
/// with exit code 1. While `is_starting`, each ends it with code 0.
///
/// Call it before anything that takes time: the kernel drops signals without a handler for process
/// 1 of a container.
pub(crate) fn stop_on_signals(is_starting: &Arc<AtomicBool>) -> io::Result<UnixStream> {
    let (stop, signalled) = UnixStream::pair()?;
    let is_second = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register_conditional_shutdown(signal, 0, Arc::clone(is_starting))?;
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&is_second))?;
        signal_hook::flag::register(signal, Arc::clone(&is_second))?;
        signal_hook::low_level::pipe::register(signal, signalled.try_clone()?)?;
    }
    // Makes a file size limit an error of the write, and not the end of the process. Nobody reads
    // the flag.
    signal_hook::flag::register(SIGXFSZ, Arc::default())?;
    Ok(stop)
}

/// Makes the returned stream readable on SIGHUP.
pub(crate) fn reload_on_signal() -> io::Result<UnixStream> {
    let (reload, signalled) = UnixStream::pair()?;
    signal_hook::low_level::pipe::register(SIGHUP, signalled)?;
    reload.set_nonblocking(true)?;
    Ok(reload)
}
