//! Decides whether a worker, before it sleeps, looks for events for a moment: busy polling. Has no
//! clock and no epoll instance.
//!
//! To sleep and to be woken takes 50 to 200 µs where the processor has nothing else to do, several
//! times as long as to answer. So a client that sends its next request at once is answered faster
//! if the worker does not sleep. But a look that finds nothing is a waste of processor time. So
//! workers look only where requests follow each other closely, and less often where they looked in
//! vain.

use std::time::Duration;

/// How long a look lasts at most. A client on the same machine that is awake sends its next request
/// sooner. Requests that come one by one each 50 µs are not looked for: that would take all of a
/// processor in place of half of it.
const LOOK_TIME: Duration = Duration::from_micros(20);

/// A worker that sleeps longer than this between two requests has no client that sends them one
/// right after the other: with only one connection, such sleeps take 150 to 300 µs.
const SHORT_SLEEP: Duration = Duration::from_micros(400);

/// How many looks that found something make up for one in vain: a sleep takes 15 to 20 µs of
/// processor time.
const FOUND_PER_VAIN: u32 = 3;

/// After looks in vain, a worker looks once in 2, 4, ... 2^8 short sleeps: on average, a look in
/// 256 of them takes 0.2 µs of processor time for each request, a hundredth of what it takes to
/// sleep and answer.
const DOUBLINGS_MAX: u32 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BusyPoll {
    /// How many short sleeps come before the next look.
    sleeps_left: u32,
    /// [`FOUND_PER_VAIN`] for each look in vain, less one for each that found something.
    loss: u32,
}

impl BusyPoll {
    /// `None` if no processor would be left for the clients and for other programs while all
    /// workers look.
    pub(super) fn new(processors: usize, workers: usize) -> Option<Self> {
        (processors > workers).then_some(Self { sleeps_left: 1, loss: 0 })
    }

    /// Whether to look now, or once more. If not, the worker may sleep. `waited`: since the worker
    /// had nothing to do; only called where it matters, since to read a clock takes time.
    pub(super) fn looks(&mut self, waited: impl FnOnce() -> Duration) -> bool {
        if self.sleeps_left > 0 {
            return false;
        }
        if waited() < LOOK_TIME {
            return true;
        }
        self.loss = (self.loss + FOUND_PER_VAIN).min(FOUND_PER_VAIN * DOUBLINGS_MAX);
        self.sleeps_left = 1 << self.loss.div_ceil(FOUND_PER_VAIN);
        false
    }

    /// Notes that the worker has something to do again. `waited`: as for [`BusyPoll::looks`].
    pub(super) fn note_end(&mut self, waited: Duration) {
        if self.sleeps_left == 0 {
            self.loss = self.loss.saturating_sub(1);
        } else if waited < SHORT_SLEEP {
            self.sleeps_left -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_micros(200);

    impl BusyPoll {
        /// One that looks before the next sleep.
        pub(in super::super) fn looking() -> Self {
            Self { sleeps_left: 0, loss: 1 }
        }
    }

    /// A wait that ends after this time. Returns whether the worker looked.
    fn wait(poll: &mut BusyPoll, time: Duration) -> bool {
        let has_looked = poll.looks(|| Duration::ZERO);
        if has_looked && time > LOOK_TIME {
            assert!(!poll.looks(|| LOOK_TIME), "a look ends");
        }
        poll.note_end(time);
        has_looked
    }

    /// How many looks there are in so many of these waits.
    fn looks(poll: &mut BusyPoll, waits: usize, times: &[Duration]) -> usize {
        let times = times.iter().cycle().take(waits);
        times.filter(|time| wait(poll, **time)).count()
    }

    #[test]
    fn workers_look_only_if_a_processor_is_left_for_others() {
        assert_eq!(
            [1, 2, 3].map(|workers| BusyPoll::new(2, workers).is_some()),
            [true, false, false]
        );
    }

    #[test]
    fn a_worker_that_is_idle_or_asked_once_a_second_never_looks() {
        let mut poll = BusyPoll::new(2, 1).unwrap();
        let times = [Duration::from_secs(1), Duration::from_secs(75), SHORT_SLEEP];
        assert_eq!(looks(&mut poll, 10_000, &times), 0);
        // nor does it after a busy time, but for the first wait
        assert_eq!(looks(&mut BusyPoll::looking(), 10_000, &times), 1);
    }

    #[test]
    fn a_worker_looks_after_a_short_sleep_and_for_as_long_as_that_finds_something() {
        let mut poll = BusyPoll::new(2, 1).unwrap();
        assert!(!wait(&mut poll, SHORT));
        assert_eq!(looks(&mut poll, 1_000, &[LOOK_TIME]), 1_000);
    }

    #[test]
    fn looks_in_vain_become_rare() {
        let mut poll = BusyPoll::new(2, 1).unwrap();
        assert_eq!(looks(&mut poll, 1 + 2 + 4 + 8, &[SHORT]), 3);
        assert_eq!(looks(&mut poll, 1_000_000, &[SHORT]), 1_000_000 / 256 + 4);
        // two of three are worth less than the third costs
        let times = [SHORT, LOOK_TIME, LOOK_TIME];
        assert!(looks(&mut BusyPoll::new(2, 1).unwrap(), 1_000_000, &times) < 1_000_000 / 50);
    }

    #[test]
    fn a_worker_that_has_looked_in_vain_looks_all_the_time_again_where_it_finds_something() {
        let mut poll = BusyPoll::new(2, 1).unwrap();
        looks(&mut poll, 1_000_000, &[SHORT]);
        let mut waits = 0;
        while !poll.looks(|| Duration::ZERO) {
            wait(&mut poll, SHORT);
            waits += 1;
        }
        assert!(waits <= 256, "{waits}");
        assert_eq!(looks(&mut poll, 100, &[LOOK_TIME]), 100);
        // so one in vain costs two short sleeps, of which that after the look is one
        assert!(wait(&mut poll, SHORT) && !wait(&mut poll, SHORT) && wait(&mut poll, LOOK_TIME));
    }
}
