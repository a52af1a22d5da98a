//! The service whose list this one has (`--follow`), and how it has answered: for `/health`,
//! `/metrics`, the log, and whoever tries to follow this one.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use crate::http::rfc3339;

/// If a request fails this long after the last success, `/health` says so. While the other service
/// holds a request, that is no failure.
pub(crate) const AWAY_TIME: Duration = Duration::from_secs(5);

/// Most failures that are logged in [`LOG_TIME`]. Further ones are left out. One that still lasts
/// when the time is over is logged then.
const LOGGED_MAX: u32 = 5;
const LOG_TIME: Duration = Duration::from_secs(60);

pub(crate) struct FollowStatus {
    pub(crate) url: String,
    /// The value of Link on answers with the list (RFC 8288). The relation `via` is that of RFC
    /// 4287 §4.2.7.2: where the list comes from.
    pub(crate) link: String,
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
}

impl FollowStatus {
    pub(crate) fn new(url: &str) -> Self {
        let now = Instant::now();
        let answers = Answers {
            failure: None,
            logged: None,
            logged_since: (0, now),
            last: None,
            last_or_start: now,
        };
        // `--follow` takes no URL that has a >.
        let link = format!("<{url}/colors>; rel=\"via\"");
        Self { url: url.to_owned(), link, answers: Mutex::new(answers) }
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
