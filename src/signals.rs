//! Signals: stop the service, or reload its tokens.

use std::fs;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};

/// Makes the returned stream readable on SIGTERM, SIGINT and, with `on_hangup`, SIGHUP. A second
/// SIGTERM or SIGINT ends the process at once with exit code 1; a second SIGHUP does not, since a
/// terminal that is closed may send several. While `is_starting`, each ends it with code 0.
///
/// Call it before anything that takes time: the kernel drops signals without a handler for process
/// 1 of a container.
pub(crate) fn stop_on_signals(
    is_starting: &Arc<AtomicBool>,
    on_hangup: bool,
) -> io::Result<UnixStream> {
    let (stop, signalled) = UnixStream::pair()?;
    let is_second = Arc::new(AtomicBool::new(false));
    let hangup = (on_hangup && !is_ignored(SIGHUP)).then_some(SIGHUP);
    for signal in [SIGTERM, SIGINT].into_iter().chain(hangup) {
        signal_hook::flag::register_conditional_shutdown(signal, 0, Arc::clone(is_starting))?;
        if signal != SIGHUP {
            signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&is_second))?;
            signal_hook::flag::register(signal, Arc::clone(&is_second))?;
        }
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

/// Whether the parent process has this signal ignored, as nohup(1) does (proc_pid_status(5)).
fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status
        .lines()
        .find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}
