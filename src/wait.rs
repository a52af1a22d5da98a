//! What a connection waits for, and how long it has done so: which waits go on from one turn to the next, and which begin anew.

use std::time::Instant;

/// What a connection waits for when a worker leaves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The first byte of its first request.
    First,
    /// The first byte of another request.
    Request,
    /// The rest of a request.
    Rest,
    /// Room to send the rest of a response.
    Room,
    /// What still comes behind the last request, to throw it away.
    Drain,
    /// That the client takes the last of what was sent; nothing is received any more.
    Delivery,
    /// Nothing but its next turn: it has requests to be answered, and gave way to others.
    Turn,
    /// A worker of its own, for a change that has to be saved.
    Saver,
}

/// What a connection waits for, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waits {
    /// What for.
    pub(crate) what: Wait,
    /// Since when, as far as its time-out is concerned.
    pub(crate) since: Instant,
    /// Since when the client owes it; not renewed when a slow one takes some of a response.
    pub(crate) in_debt_since: Instant,
}

impl Waits {
    /// The first wait of all.
    pub(crate) fn new(now: Instant) -> Self {
        Self { what: Wait::First, since: now, in_debt_since: now }
    }

    /// Takes note of what a turn ends with.
    ///
    /// A request has to be whole in time, however often a byte of it arrives, and an end is one wait whatever it is for; everything else
    /// starts the clock anew.
    pub(crate) fn go_on(&mut self, what: Wait, now: Instant) {
        let is_same = match what {
            Wait::Rest => self.what == Wait::Rest,
            Wait::Drain | Wait::Delivery => matches!(self.what, Wait::Drain | Wait::Delivery),
            _ => false,
        };
        let is_same_debt = is_same || (what, self.what) == (Wait::Room, Wait::Room);
        self.since = if is_same { self.since } else { now };
        self.in_debt_since = if is_same_debt { self.in_debt_since } else { now };
        self.what = what;
    }

    /// Gives as much time again, since the client has got on.
    pub(crate) fn renew(&mut self, now: Instant) {
        self.since = now;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn some_waits_go_on_and_the_others_begin_anew() {
        let begin = Instant::now();
        let now = begin + Duration::from_secs(1);
        let (old, new) = (begin, now);
        for (before, after, since, in_debt_since) in [
            (Wait::First, Wait::Rest, new, new),
            (Wait::Rest, Wait::Rest, old, old),
            (Wait::Request, Wait::Rest, new, new),
            (Wait::Rest, Wait::Request, new, new),
            (Wait::Request, Wait::Request, new, new),
            (Wait::Request, Wait::Room, new, new),
            (Wait::Room, Wait::Room, new, old),
            (Wait::Room, Wait::Request, new, new),
            (Wait::Rest, Wait::Drain, new, new),
            (Wait::Drain, Wait::Drain, old, old),
            (Wait::Drain, Wait::Delivery, old, old),
            (Wait::Delivery, Wait::Drain, old, old),
        ] {
            let mut waits = Waits { what: before, ..Waits::new(begin) };
            waits.go_on(after, now);
            assert_eq!(waits, Waits { what: after, since, in_debt_since }, "{before:?} to {after:?}");
        }
    }

    #[test]
    fn time_that_is_renewed_is_no_debt_repaid() {
        let begin = Instant::now();
        let now = begin + Duration::from_secs(1);
        let mut waits = Waits { what: Wait::Room, ..Waits::new(begin) };
        waits.renew(now);
        assert_eq!(waits, Waits { what: Wait::Room, since: now, in_debt_since: begin });
    }
}
