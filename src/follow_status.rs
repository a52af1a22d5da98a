//! The service whose list this one has (`--follow`), and how it has answered: for `/health`,
//! `/metrics` and the log.

use std::mem::replace;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use log::Level;

use crate::http::rfc3339;
use crate::logging::log_change;

/// If a request fails this long after the last success, `/health` says so. While the other service
/// holds a request, that is no failure.
const AWAY_TIME: Duration = Duration::from_secs(5);

pub(crate) struct FollowStatus {
    pub(crate) url: String,
    answers: Mutex<Answers>,
}

/// How requests to the other service have gone so far.
struct Answers {
    /// Why the last request failed, or its list could not be saved here; `None` if all went well.
    failure: Option<String>,
    /// When a request last succeeded; `None` before the first.
    last: Option<SystemTime>,
    /// When a request last succeeded, by the monotonic clock; the start before the first.
    last_or_start: Instant,
}

impl FollowStatus {
    pub(crate) fn new(url: &str) -> Self {
        let answers = Answers { failure: None, last: None, last_or_start: Instant::now() };
        Self { url: url.to_owned(), answers: Mutex::new(answers) }
    }

    fn lock(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a request has succeeded, or why not.
    pub(crate) fn note(&self, failure: Option<&String>) {
        let before = {
            let mut answers = self.lock();
            if failure.is_none() {
                answers.last = Some(SystemTime::now());
                answers.last_or_start = Instant::now();
            }
            replace(&mut answers.failure, failure.cloned())
        };
        let failed = format!("cannot follow {}", self.url);
        let recovered = format!("{} is followed again", self.url);
        log_change(Level::Warn, &failed, before.as_ref(), failure, &recovered);
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
