//! Messages to the service manager (sd_notify(3)): READY, STOPPING, STATUS with the number of colors, WATCHDOG. Does nothing without one.

use std::time::{Duration, Instant};

use sd_notify::NotifyState;

/// Shortest time between two STATUS messages; each wakes the manager.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct ServiceManager {
    is_there: bool,
    /// Time between two heartbeats: half of what the manager allows, as sd_watchdog_enabled(3) advises.
    heartbeat: Option<Duration>,
    last_heartbeat: Instant,
    /// The number of colors in the last STATUS, and when it was sent.
    last_status: (usize, Instant),
}

impl ServiceManager {
    /// The manager that `NOTIFY_SOCKET` names.
    pub(super) fn from_env() -> Self {
        let (is_there, now) = (std::env::var_os("NOTIFY_SOCKET").is_some(), Instant::now());
        let heartbeat = sd_notify::watchdog_enabled().filter(|time| is_there && !time.is_zero()).map(|time| time / 2);
        Self { is_there, heartbeat, last_heartbeat: now, last_status: (0, now) }
    }

    pub(super) fn ready(&mut self, colors: usize) {
        self.last_status = (colors, Instant::now());
        self.send(&[NotifyState::Ready, NotifyState::Status(&format!("{colors} colors"))]);
    }

    pub(super) fn stopping(&self) {
        self.send(&[NotifyState::Stopping]);
    }

    /// Sends what is due; call it on every pass of the accept loop. A heartbeat is sent only if `are_alive` returns true.
    pub(super) fn tick(&mut self, now: Instant, colors: usize, are_alive: impl FnOnce() -> bool) {
        let is_due = self.heartbeat.is_some_and(|heartbeat| now.duration_since(self.last_heartbeat) >= heartbeat);
        if is_due && are_alive() {
            self.last_heartbeat = now;
            self.send(&[NotifyState::Watchdog]);
        }
        if self.is_there && colors != self.last_status.0 && now.duration_since(self.last_status.1) >= STATUS_INTERVAL {
            self.last_status = (colors, now);
            self.send(&[NotifyState::Status(&format!("{colors} colors"))]);
        }
    }

    /// How long the accept loop may wait before the next [`ServiceManager::tick`]; `None` if there is nothing to send.
    pub(super) fn poll_timeout(&self) -> Option<Duration> {
        self.is_there.then(|| self.heartbeat.map_or(STATUS_INTERVAL, |heartbeat| heartbeat.min(STATUS_INTERVAL)))
    }

    fn send(&self, states: &[NotifyState<'_>]) {
        if let Err(error) = sd_notify::notify(states) {
            let states: Vec<_> = states.iter().map(ToString::to_string).collect();
            log::warn!("cannot tell the service manager {}: NOTIFY_SOCKET: {error}", states.join(", "));
        }
    }
}
