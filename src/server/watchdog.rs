//! The watchdog of the service manager (sd_notify(3)): heartbeats while all threads answer.

use std::time::{Duration, Instant};

use sd_notify::NotifyState;

use crate::service_manager::tell;

/// How long after a thread has failed to answer in time it is asked again.
const ASK_AGAIN_TIME: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Watchdog {
    /// Time between two heartbeats: half of what the manager allows, as sd_watchdog_enabled(3) advises. `None` without a watchdog.
    heartbeat: Option<Duration>,
    /// When to look next whether the threads answer.
    due: Instant,
}

impl Watchdog {
    pub(super) fn from_env(now: Instant) -> Self {
        let heartbeat = sd_notify::watchdog_enabled().filter(|time| !time.is_zero()).map(|time| time / 2);
        Self { heartbeat, due: now + heartbeat.unwrap_or_default() }
    }

    /// Sends a heartbeat if it is due and `are_alive` returns true; call it on every pass of the accept loop.
    pub(super) fn tick(&mut self, now: Instant, are_alive: impl FnOnce() -> bool) {
        let Some(heartbeat) = self.heartbeat.filter(|_| now >= self.due) else { return };
        if are_alive() {
            self.due = now + heartbeat;
            tell(&[NotifyState::Watchdog]);
        } else {
            self.due = now + heartbeat.min(ASK_AGAIN_TIME);
        }
    }

    /// How long the accept loop may wait before the next [`Watchdog::tick`]; `None` for as long as nothing happens.
    pub(super) fn poll_timeout(&self, now: Instant) -> Option<Duration> {
        self.heartbeat.map(|_| self.due.saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_is_late_is_asked_again_soon_and_without_a_watchdog_nothing_is_waited_for() {
        let (start, heartbeat) = (Instant::now(), Duration::from_secs(30));
        let mut watchdog = Watchdog { heartbeat: Some(heartbeat), due: start + heartbeat };
        assert_eq!(watchdog.poll_timeout(start), Some(heartbeat));
        watchdog.tick(start + heartbeat / 2, || panic!("it is not due"));
        watchdog.tick(start + heartbeat, || false);
        assert_eq!(watchdog.poll_timeout(start + heartbeat), Some(ASK_AGAIN_TIME));
        watchdog.tick(start + heartbeat + ASK_AGAIN_TIME, || true);
        assert_eq!(watchdog.poll_timeout(start + heartbeat + ASK_AGAIN_TIME), Some(heartbeat));
        assert_eq!(Watchdog { heartbeat: None, due: start }.poll_timeout(start), None);
    }
}
