//! How many log lines of one kind there may be.

use std::fmt;
use std::mem::take;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use log::Level;

use super::WARNINGS;

/// Lets a number of lines per second through, and counts the others.
pub(crate) struct Limiter {
    pub(super) level: Level,
    /// What is left out, in the plural.
    what: &'static str,
    rate: Mutex<Rate>,
}

impl Limiter {
    pub(super) const fn new(level: Level, max: u64, what: &'static str) -> Self {
        Self { level, what, rate: Mutex::new(Rate { max, second: None, said: 0, left_out: 0 }) }
    }

    /// Logs a line, unless there were too many in this second.
    pub(crate) fn log(&self, text: fmt::Arguments<'_>) {
        if !log::log_enabled!(self.level) {
            return;
        }
        let admitted = {
            let mut rate = self.rate.lock().unwrap_or_else(PoisonError::into_inner);
            rate.admit(Instant::now())
        };
        match admitted {
            Some(left_out) => {
                if left_out > 0 {
                    log::log!(self.level, "{left_out} more {} were left out", self.what);
                }
                log::log!(self.level, "{text}");
            }
            None if self.level == Level::Warn => drop(WARNINGS.fetch_add(1, Relaxed)),
            None => {}
        }
    }
}

/// The lines of the current second.
struct Rate {
    max: u64,
    second: Option<Instant>,
    said: u64,
    left_out: u64,
}

impl Rate {
    /// `None` if this line is one too many; otherwise how many were left out before it.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        if self.second.is_none_or(|begun| now.duration_since(begun) >= Duration::from_secs(1)) {
            (self.second, self.said) = (Some(now), 0);
        }
        if self.said == self.max {
            self.left_out += 1;
            return None;
        }
        self.said += 1;
        Some(take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_lines_per_second_is_admitted_and_the_others_are_counted() {
        let mut rate = Rate { max: 5, second: None, said: 0, left_out: 0 };
        let start = Instant::now();
        for _ in 0..5 {
            assert_eq!(rate.admit(start), Some(0));
        }
        assert_eq!(rate.admit(start), None);
        assert_eq!(rate.admit(start + Duration::from_millis(999)), None);
        assert_eq!(rate.admit(start + Duration::from_secs(1)), Some(2));
        assert_eq!(rate.admit(start + Duration::from_secs(1)), Some(0));
    }
}
