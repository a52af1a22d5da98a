//! Yielding before sleeping. To sleep and to be woken takes longer than to answer a request. So a
//! thread that has just had work lets those run who wait for its processor, most likely those who
//! will bring more, and looks again before it sleeps.

use std::thread;
use std::time::{Duration, Instant};

/// How often a thread yields before it sleeps.
const YIELDS_MAX: usize = 2;

/// A yield that takes longer gave the processor to a program that computes: the scheduler lets that
/// run for some milliseconds.
const YIELD_TIME_MAX: Duration = Duration::from_millis(1);

/// How long a thread does not yield after that.
const PAUSE: Duration = Duration::from_secs(1);

/// Whether one thread yields at present.
pub(crate) struct Yielding {
    paused_until: Instant,
}

impl Yielding {
    pub(crate) fn new() -> Self {
        Self { paused_until: Instant::now() }
    }

    /// Yields until `look` finds something. `None`: it is time to sleep.
    pub(crate) fn until<T>(&mut self, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        let mut before = Instant::now();
        for _ in 0..YIELDS_MAX {
            if before < self.paused_until {
                break;
            }
            thread::yield_now();
            let found = look();
            let now = Instant::now();
            if now > before + YIELD_TIME_MAX {
                self.paused_until = now + PAUSE;
            }
            if found.is_some() {
                return found;
            }
            before = now;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_looks_a_few_times_and_not_again_after_a_slow_one() {
        let (mut yielding, mut looks) = (Yielding::new(), 0);
        let mut look = |found: bool| {
            looks += 1;
            found.then_some(looks)
        };
        // a machine that is busy pauses the first yield, and the second is then none
        assert_eq!(yielding.until(|| look(false)), None);
        yielding.paused_until = Instant::now();
        assert!(yielding.until(|| look(true)).is_some());
        assert!((2..=YIELDS_MAX + 1).contains(&looks), "{looks}");
        let slow = || {
            let begun = Instant::now();
            while begun.elapsed() <= YIELD_TIME_MAX {}
            None::<()>
        };
        yielding.paused_until = Instant::now();
        assert_eq!(yielding.until(slow), None);
        assert_eq!(yielding.until(|| Some(())), None, "it is paused");
    }
}
