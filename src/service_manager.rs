//! Messages to the service manager (sd_notify(3)), and heartbeats for its watchdog while all
//! workers answer and no save hangs. Without a service manager, nothing is sent.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sd_notify::NotifyState;

/// Longest time until the next look after a heartbeat was withheld.
const LATE_TIME: Duration = Duration::from_secs(1);

/// Tells that the service is ready, with the status `ok`.
pub(crate) fn ready() {
    tell(&[NotifyState::Ready, NotifyState::Status("ok")]);
}

pub(crate) fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// Sets what `systemctl status` shows: `ok`, or what is wrong.
pub(crate) fn status(text: &str) {
    // a line feed would begin another message
    tell(&[NotifyState::Status(&text.replace('\n', " "))]);
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        let states: Vec<_> = states.iter().map(ToString::to_string).collect();
        log::warn!("cannot tell the service manager {}: NOTIFY_SOCKET: {error}", states.join(", "));
    }
}

pub(crate) struct Watchdog {
    /// Time between two heartbeats: half of what the manager allows, as sd_watchdog_enabled(3)
    /// advises. `None` without a watchdog.
    heartbeat: Option<Duration>,
    /// When the next heartbeat is due, or the next look after one was withheld.
    due: Instant,
    /// A thread holds a clone from when it is asked until it answers.
    question: Arc<()>,
}

impl Watchdog {
    pub(crate) fn from_env(now: Instant) -> Self {
        let allowed = sd_notify::watchdog_enabled().filter(|time| !time.is_zero());
        let heartbeat = allowed.map(|time| time / 2);
        Self { heartbeat, due: now + heartbeat.unwrap_or_default(), question: Arc::default() }
    }

    /// Sends a heartbeat if one is due, unless a thread has not answered or the save under way has
    /// taken longer (`save_time`) than the time between heartbeats. `ask` has to give each thread a
    /// clone, which the thread drops to answer. Call it on every pass of the accept loop.
    pub(crate) fn tick(&mut self, now: Instant, save_time: Duration, ask: impl FnOnce(&Arc<()>)) {
        let Some(heartbeat) = self.heartbeat.filter(|_| now >= self.due) else { return };
        if Arc::strong_count(&self.question) > 1 || save_time > heartbeat {
            self.due = now + heartbeat.min(LATE_TIME);
            return;
        }
        ask(&self.question);
        self.due = now + heartbeat;
        tell(&[NotifyState::Watchdog]);
    }

    /// How long the accept loop may wait for the next tick; `None` without a watchdog.
    pub(crate) fn poll_timeout(&self, now: Instant) -> Option<Duration> {
        self.heartbeat.map(|_| self.due.saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_is_late_is_waited_for_and_without_a_watchdog_nothing_is() {
        let (start, heartbeat) = (Instant::now(), Duration::from_secs(30));
        let due = start + heartbeat;
        let mut watchdog = Watchdog { heartbeat: Some(heartbeat), due, question: Arc::default() };
        assert_eq!(watchdog.poll_timeout(start), Some(heartbeat));
        let (no_save, mut threads) = (Duration::ZERO, Vec::new());
        watchdog.tick(start + heartbeat / 2, no_save, |_| panic!("it is not due"));
        watchdog.tick(due, no_save, |question| threads = vec![Arc::clone(question); 2]);
        threads.pop();
        watchdog.tick(start + 2 * heartbeat, no_save, |_| panic!("one has not answered"));
        assert_eq!(watchdog.poll_timeout(start + 2 * heartbeat), Some(LATE_TIME));
        threads.pop();
        watchdog.due = start + 2 * heartbeat;
        watchdog.tick(start + 2 * heartbeat, 2 * heartbeat, |_| panic!("a save hangs"));
        let mut is_asked = false;
        watchdog.tick(start + 2 * heartbeat + LATE_TIME, no_save, |_| is_asked = true);
        assert!(is_asked);
        assert_eq!(watchdog.poll_timeout(start + 2 * heartbeat + LATE_TIME), Some(heartbeat));
        assert_eq!(Watchdog { heartbeat: None, ..watchdog }.poll_timeout(start), None);
    }
}
