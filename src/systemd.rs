//! What the service manager is told (sd_notify(3)): ready, stopping, how many colors, and that all is well. Tells nobody when there is none.

use std::time::{Duration, Instant};

use sd_notify::NotifyState;

/// Shortest time between two counts of colors; each wakes the manager and whoever watches it.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);

/// The way to the service manager.
#[derive(Debug)]
pub(crate) struct Supervisor {
    /// Whether there is one.
    is_there: bool,
    /// How often it wants to hear that all is well: half its patience, as sd_watchdog_enabled(3) advises.
    heartbeat: Option<Duration>,
    /// When it was told that last.
    beaten: Instant,
    /// The count of colors told last, and when.
    told: (usize, Instant),
}

impl Supervisor {
    /// The one that the environment names, if it does.
    pub(crate) fn from_env() -> Self {
        let (is_there, now) = (std::env::var_os("NOTIFY_SOCKET").is_some(), Instant::now());
        let heartbeat = sd_notify::watchdog_enabled().filter(|_| is_there).map(|patience| patience / 2);
        Self { is_there, heartbeat, beaten: now, told: (0, now) }
    }

    /// Says that clients can come, to so many colors.
    pub(crate) fn ready(&mut self, colors: usize) {
        self.told = (colors, Instant::now());
        self.tell(&[NotifyState::Ready, NotifyState::Status(&status(colors))]);
    }

    /// Says that the end has begun.
    pub(crate) fn stopping(&self) {
        self.tell(&[NotifyState::Stopping]);
    }

    /// Says what there is to say at the moment: call it whenever the accept loop turns. `colors` is `None` while the list cannot be had.
    pub(crate) fn turn(&mut self, now: Instant, colors: Option<usize>) {
        let (beats, count) = self.due(now, colors);
        if beats {
            self.tell(&[NotifyState::Watchdog]);
        }
        if let Some(count) = count {
            self.tell(&[NotifyState::Status(&status(count))]);
        }
    }

    /// Whether to say that all is well, which it is when the list can be had, and the count to tell, if it is another.
    fn due(&mut self, now: Instant, colors: Option<usize>) -> (bool, Option<usize>) {
        let Some(count) = colors.filter(|_| self.is_there) else { return (false, None) };
        let beats = self.heartbeat.is_some_and(|heartbeat| now.duration_since(self.beaten) >= heartbeat);
        if beats {
            self.beaten = now;
        }
        let is_news = count != self.told.0 && now.duration_since(self.told.1) >= STATUS_INTERVAL;
        if is_news {
            self.told = (count, now);
        }
        (beats, is_news.then_some(count))
    }

    /// How long the accept loop may wait for connections before it has to call [`Supervisor::turn`] again; `None` for as long as it likes.
    pub(crate) fn patience(&self) -> Option<Duration> {
        self.is_there.then(|| self.heartbeat.map_or(STATUS_INTERVAL, |heartbeat| heartbeat.min(STATUS_INTERVAL)))
    }

    /// Sends one message.
    fn tell(&self, states: &[NotifyState<'_>]) {
        if let Err(error) = sd_notify::notify(states) {
            log::warn!("cannot tell the service manager {states:?}: {error}");
        }
    }
}

/// The status line.
fn status(colors: usize) -> String {
    format!("{colors} colors")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A supervisor that was told of 5 colors just now, and wants to hear something every two seconds.
    fn supervisor(is_there: bool, now: Instant) -> Supervisor {
        Supervisor { is_there, heartbeat: is_there.then_some(2 * SECOND), beaten: now, told: (5, now) }
    }

    #[test]
    fn all_is_well_only_while_the_list_can_be_had() {
        let start = Instant::now();
        let mut supervisor = supervisor(true, start);
        for (seconds, colors, expected) in
            [(1, Some(5), false), (2, Some(5), true), (3, Some(5), false), (4, None, false), (9, None, false)]
        {
            assert_eq!(supervisor.due(start + seconds * SECOND, colors), (expected, None), "after {seconds} s");
        }
        assert_eq!(supervisor.due(start + 10 * SECOND, Some(5)), (true, None));
    }

    #[test]
    fn a_count_is_told_when_it_is_another_and_not_too_often() {
        let start = Instant::now();
        let mut supervisor = supervisor(true, start);
        assert_eq!(supervisor.due(start + SECOND / 2, Some(6)), (false, None));
        assert_eq!(supervisor.due(start + SECOND, Some(7)), (false, Some(7)));
        assert_eq!(supervisor.due(start + SECOND, Some(8)), (false, None));
        assert_eq!(supervisor.due(start + 2 * SECOND, Some(8)), (true, Some(8)));
        assert_eq!(supervisor.due(start + 3 * SECOND, Some(8)), (false, None));
    }

    #[test]
    fn nothing_is_said_to_nobody() {
        let now = Instant::now();
        assert_eq!(supervisor(false, now).due(now + 9 * SECOND, Some(6)), (false, None));
    }
}
