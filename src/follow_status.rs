//! The service whose list this one has (`--follow`), and how it has answered: for `/health`,
//! `/metrics`, the log, and the services that follow this one.
//!
//! Services that follow one another in a loop have nobody who changes the list, and would take each
//! other's lists forever. So the answer to a follower has, in Via, the services that the list has
//! come through, each of which adds itself: in a loop, one comes twice. While a service does not
//! know yet whether it is in a loop, no other service takes its list.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use crate::http::{rfc3339, service_ids, via_value};
use crate::random;

/// If a request fails this long after the last success, `/health` says so. While the other service
/// holds a request, that is no failure.
pub(crate) const AWAY_TIME: Duration = Duration::from_secs(5);

/// Most failures that are logged in [`LOG_TIME`]. Further ones are left out. One that still lasts
/// when the time is over is logged then.
const LOGGED_MAX: u32 = 5;
const LOG_TIME: Duration = Duration::from_secs(60);

/// Stands in Via for services that are not known: those before a service that has got no answer.
const UNKNOWN: &str = "unknown";

pub(crate) struct FollowStatus {
    pub(crate) url: String,
    /// Names this process in Via. Random.
    id: String,
    answers: Mutex<Answers>,
}

/// How requests to the other service have gone so far.
struct Answers {
    /// Why the last request failed, or its list could not be saved here; `None` if all went well.
    failure: Option<String>,
    /// The failure that was logged last, without digits: these may differ each time. `None` if it
    /// was logged that it is over.
    logged: Option<String>,
    /// How many failures were logged since this time.
    logged_since: (u32, Instant),
    /// When a request last succeeded; `None` before the first.
    last: Option<SystemTime>,
    /// When a request last succeeded, by the monotonic clock; the start before the first.
    last_or_start: Instant,
    /// The services that the list has come through, this one at the end.
    route: Vec<String>,
}

impl FollowStatus {
    pub(crate) fn new(url: &str) -> Self {
        let id = random::id();
        let now = Instant::now();
        let answers = Answers {
            failure: None,
            logged: None,
            logged_since: (0, now),
            last: None,
            last_or_start: now,
            route: vec![UNKNOWN.to_owned(), id.clone()],
        };
        Self { url: url.to_owned(), id, answers: Mutex::new(answers) }
    }

    fn lock(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a request has succeeded, or why not.
    pub(crate) fn note(&self, failure: Option<&String>) {
        let kind = failure.map(|failure| failure.replace(|c: char| c.is_ascii_digit(), ""));
        let is_logged = {
            let mut answers = self.lock();
            answers.failure = failure.cloned();
            if failure.is_none() {
                answers.last = Some(SystemTime::now());
                answers.last_or_start = Instant::now();
            }
            if answers.logged_since.1.elapsed() >= LOG_TIME {
                answers.logged_since = (0, Instant::now());
            }
            let may_log = failure.is_none() || answers.logged_since.0 < LOGGED_MAX;
            let is_logged = kind != answers.logged && may_log;
            if is_logged {
                answers.logged_since.0 += u32::from(failure.is_some());
                answers.logged = kind;
            }
            is_logged
        };
        match failure {
            Some(failure) if is_logged => log::warn!("cannot follow {}: {failure}", self.url),
            None if is_logged => log::info!("{} is followed again", self.url),
            _ => {}
        }
    }

    /// Notes the Via of an answer; `None` if there is no answer. Fails if services follow one
    /// another in a loop, which this one may be part of.
    pub(crate) fn note_via(&self, via: Option<&str>) -> Result<(), String> {
        let mut route: Vec<_> = service_ids(via.unwrap_or_default()).map(str::to_owned).collect();
        if via.is_none() {
            route.push(UNKNOWN.to_owned());
        }
        // In a loop, the rest would grow with each round.
        if let Some(place) = route.iter().rposition(|id| *id == self.id) {
            route.drain(..place);
        }
        route.push(self.id.clone());
        let is_loop = route.iter().collect::<HashSet<_>>().len() < route.len();
        self.lock().route = route;
        if is_loop {
            return Err(
                "services follow one another in a loop, so that none writes: start one of \
                        them without --follow"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// Whether the last answer named all services that the list has come through.
    pub(crate) fn knows_route(&self) -> bool {
        self.lock().route.first().is_none_or(|id| id != UNKNOWN)
    }

    /// The value of Via in an answer to a follower.
    pub(crate) fn via(&self) -> String {
        via_value(&self.lock().route)
    }

    /// The value of Via in a request to the service that is followed.
    pub(crate) fn own_via(&self) -> String {
        via_value(&[&self.id])
    }

    /// When a request last succeeded; `None` before the first.
    pub(crate) fn answered(&self) -> Option<SystemTime> {
        self.lock().last
    }

    /// What is wrong, if the last request failed and none has succeeded for [`AWAY_TIME`].
    pub(crate) fn fault(&self) -> Option<String> {
        let answers = self.lock();
        let reason = answers.failure.as_ref()?;
        if answers.last_or_start.elapsed() < AWAY_TIME {
            return None;
        }
        let since = answers.last.map_or_else(|| "the start".to_owned(), rfc3339);
        Some(format!("cannot follow {} since {since}: {reason}", self.url))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has each service ask the next one, and the last one the first, again and again.
    #[test]
    fn each_service_of_a_loop_and_beside_it_sees_the_loop_and_its_route_stays_short() {
        for length in 1..6 {
            let services: Vec<_> = (0..length).map(|_| FollowStatus::new("")).collect();
            let beside = FollowStatus::new("");
            for round in 0..20 {
                for (place, service) in services.iter().enumerate() {
                    let next = services[(place + 1) % length].via();
                    let is_loop = service.note_via(Some(&next)).is_err();
                    assert!(is_loop || round < length, "{next}");
                }
                let is_loop = beside.note_via(Some(&services[0].via())).is_err();
                assert!(is_loop || round < length, "{}", beside.via());
            }
            assert_eq!(service_ids(&services[0].via()).count(), length + 1);
        }
    }

    #[test]
    fn a_service_knows_its_route_while_all_before_it_are_answered() {
        let [near, far] = [(); 2].map(|()| FollowStatus::new(""));
        let follow = || far.note_via(Some(&near.via())).map(|()| far.knows_route());
        assert_eq!(follow(), Ok(false));
        near.note_via(Some("1.1 Caddy")).unwrap();
        assert_eq!(follow(), Ok(true));
        near.note_via(None).unwrap();
        assert_eq!(follow(), Ok(false));
    }
}
