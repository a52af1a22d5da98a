//! Messages to the service manager (sd_notify(3)), and heartbeats for its watchdog while all
//! workers answer and no save hangs. Without a service manager, nothing is sent.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::process;
use std::time::{Duration, Instant};

use socket2::{Domain, SockAddr, Socket, Type};

/// Where the service manager listens for messages: a path, or an abstract name with `@` in front.
const SOCKET: &str = "NOTIFY_SOCKET";

/// Shortest time between two heartbeats, so that even a manager that asks for very many leaves time
/// for clients.
const HEARTBEAT_MIN: Duration = Duration::from_millis(10);

/// Longest time until the next look after a heartbeat was withheld.
const LATE_TIME: Duration = Duration::from_secs(1);

/// Tells that the service is ready.
pub(crate) fn ready() {
    tell("READY=1\n");
}

pub(crate) fn stopping() {
    tell("STOPPING=1\n");
}

/// Sends a message, or drops it if sending would block.
fn tell(message: &str) {
    let Some(socket) = variable(SOCKET) else { return };
    if let Err(error) = send(&socket, message) {
        log::debug!("cannot tell the service manager {message:?}: {SOCKET}: {error}");
    }
}

fn send(socket: &OsStr, message: &str) -> io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SockAddr::unix(OsString::from_vec([b"\0", name].concat()))?,
        _ => SockAddr::unix(socket)?,
    };
    let sender = Socket::new(Domain::UNIX, Type::DGRAM.nonblocking(), None)?;
    sender.send_to(message.as_bytes(), &address).map(drop)
}

/// The value of a variable of the environment; `None` if it is not set, or is empty.
fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

/// Time between two heartbeats: half of what the manager allows, as sd_watchdog_enabled(3) advises,
/// but at least [`HEARTBEAT_MIN`]. `None` without a watchdog, or if it is for another process.
fn heartbeat(variable: impl Fn(&str) -> Option<OsString>) -> Option<Duration> {
    let number = |name| variable(name)?.to_str()?.parse().ok();
    let is_ours =
        variable("WATCHDOG_PID").is_none() || number("WATCHDOG_PID") == Some(process::id().into());
    let allowed = number("WATCHDOG_USEC").filter(|time| is_ours && *time > 0)?;
    variable(SOCKET)?;
    Some((Duration::from_micros(allowed) / 2).max(HEARTBEAT_MIN))
}

pub(crate) struct Watchdog {
    /// See [`heartbeat`].
    heartbeat: Option<Duration>,
    /// When the next heartbeat is due, or the next look after one was withheld.
    due: Instant,
}

impl Watchdog {
    pub(crate) fn from_env(now: Instant) -> Self {
        let heartbeat = heartbeat(variable);
        Self { heartbeat, due: now + heartbeat.unwrap_or_default() }
    }

    /// Sends a heartbeat if one is due; then returns true, and each thread that has to show that it
    /// is not stuck is to be asked to. Withholds it if one has not done so since the last heartbeat
    /// (`is_late`), or if the save under way has taken longer (`save_time`) than the time between
    /// heartbeats. Call this on every pass of the loop on the main thread.
    pub(crate) fn tick(
        &mut self,
        now: Instant,
        save_time: Duration,
        is_late: impl FnOnce() -> bool,
    ) -> bool {
        let Some(heartbeat) = self.heartbeat.filter(|_| now >= self.due) else { return false };
        if is_late() || save_time > heartbeat {
            self.due = now + heartbeat.min(LATE_TIME);
            return false;
        }
        self.due = now + heartbeat;
        // The first READY may have been dropped. If it was not, the manager ignores this one.
        tell("READY=1\nWATCHDOG=1\n");
        true
    }

    /// How long the main thread may wait for the next tick; `None` without a watchdog.
    pub(crate) fn poll_timeout(&self, now: Instant) -> Option<Duration> {
        self.heartbeat.map(|_| self.due.saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heartbeats_need_a_socket_and_leave_time_for_clients() {
        let own = process::id().to_string();
        let other = (process::id() + 1).to_string();
        for (socket, allowed, process, milliseconds) in [
            ("/run/notify", "60000000", "", Some(30_000)),
            ("@notify", "60000000", &*own, Some(30_000)),
            ("/run/notify", "1", "", Some(10)),
            ("/run/notify", "60000000", &*other, None),
            ("/run/notify", "60000000", "x", None),
            ("/run/notify", "0", "", None),
            ("/run/notify", "x", "", None),
            ("/run/notify", "", "", None),
            ("", "1", "", None),
        ] {
            let variables =
                [(SOCKET, socket), ("WATCHDOG_USEC", allowed), ("WATCHDOG_PID", process)];
            let variable = |name: &str| {
                let (_, value) = variables.iter().find(|(known, _)| *known == name)?;
                Some(OsString::from(value)).filter(|value| !value.is_empty())
            };
            let expected = milliseconds.map(Duration::from_millis);
            assert_eq!(heartbeat(variable), expected, "{variables:?}");
        }
    }

    #[test]
    fn a_thread_that_is_late_is_waited_for_and_without_a_watchdog_nothing_is() {
        let start = Instant::now();
        let heartbeat = Duration::from_secs(30);
        let due = start + heartbeat;
        let mut watchdog = Watchdog { heartbeat: Some(heartbeat), due };
        assert_eq!(watchdog.poll_timeout(start), Some(heartbeat));
        let no_save = Duration::ZERO;
        let nobody_asks = || panic!("it is not due");
        assert!(!watchdog.tick(start + heartbeat / 2, no_save, nobody_asks));
        assert!(watchdog.tick(due, no_save, || false));
        let second = start + 2 * heartbeat;
        assert!(!watchdog.tick(second, no_save, || true), "one has not answered");
        assert_eq!(watchdog.poll_timeout(second), Some(LATE_TIME));
        watchdog.due = second;
        assert!(!watchdog.tick(second, 2 * heartbeat, || false), "a save hangs");
        assert!(watchdog.tick(second + LATE_TIME, no_save, || false));
        assert_eq!(watchdog.poll_timeout(second + LATE_TIME), Some(heartbeat));
        assert_eq!(Watchdog { heartbeat: None, ..watchdog }.poll_timeout(start), None);
    }
}
