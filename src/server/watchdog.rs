//! The watchdog of the service manager (sd_notify(3)): heartbeats while the workers answer, and no
//! save hangs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use sd_notify::NotifyState;

use crate::service_manager::tell;

/// How long after a thread has failed to answer in time its answer is looked for again.
const LATE_TIME: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Watchdog {
    /// Time between two heartbeats: half of what the manager allows, as sd_watchdog_enabled(3)
    /// advises. `None` without a watchdog.
    heartbeat: Option<Duration>,
    /// When to look next whether the threads have answered.
    due: Instant,
    /// How many threads were asked, and how many of them have answered.
    asked: usize,
    answers: Arc<AtomicUsize>,
}

impl Watchdog {
    pub(super) fn from_env(now: Instant) -> Self {
        let heartbeat =
            sd_notify::watchdog_enabled().filter(|time| !time.is_zero()).map(|time| time / 2);
        Self {
            heartbeat,
            due: now + heartbeat.unwrap_or_default(),
            asked: 0,
            answers: Arc::default(),
        }
    }

    /// Sends a heartbeat if it is due, all threads have answered, and the save that is under way
    /// takes no longer than this; call it on every pass of the accept loop. `ask` has each thread
    /// add 1 to the answers, and returns how many threads there are.
    pub(super) fn tick(
        &mut self,
        now: Instant,
        save_time: Duration,
        ask: impl FnOnce(&Arc<AtomicUsize>) -> usize,
    ) {
        let Some(heartbeat) = self.heartbeat.filter(|_| now >= self.due) else { return };
        if self.answers.load(Relaxed) < self.asked || save_time > heartbeat {
            self.due = now + heartbeat.min(LATE_TIME);
            return;
        }
        self.answers.store(0, Relaxed);
        self.asked = ask(&self.answers);
        self.due = now + heartbeat;
        tell(&[NotifyState::Watchdog]);
    }

    /// How long the accept loop may wait before the next [`Watchdog::tick`]; `None` for as long as
    /// nothing happens.
    pub(super) fn poll_timeout(&self, now: Instant) -> Option<Duration> {
        self.heartbeat.map(|_| self.due.saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_is_late_is_waited_for_and_without_a_watchdog_nothing_is() {
        let (start, heartbeat) = (Instant::now(), Duration::from_secs(30));
        let mut watchdog = Watchdog {
            heartbeat: Some(heartbeat),
            due: start + heartbeat,
            asked: 0,
            answers: Arc::default(),
        };
        assert_eq!(watchdog.poll_timeout(start), Some(heartbeat));
        let no_save = Duration::ZERO;
        watchdog.tick(start + heartbeat / 2, no_save, |_| panic!("it is not due"));
        watchdog.tick(start + heartbeat, no_save, |_| 2);
        watchdog.answers.fetch_add(1, Relaxed);
        watchdog.tick(start + 2 * heartbeat, no_save, |_| panic!("one has not answered"));
        assert_eq!(watchdog.poll_timeout(start + 2 * heartbeat), Some(LATE_TIME));
        watchdog.answers.fetch_add(1, Relaxed);
        watchdog.due = start + 2 * heartbeat;
        watchdog.tick(start + 2 * heartbeat, 2 * heartbeat, |_| panic!("a save hangs"));
        watchdog.tick(start + 2 * heartbeat + LATE_TIME, no_save, |_| 2);
        assert_eq!(watchdog.poll_timeout(start + 2 * heartbeat + LATE_TIME), Some(heartbeat));
        assert_eq!(Watchdog { heartbeat: None, ..watchdog }.poll_timeout(start), None);
    }
}
