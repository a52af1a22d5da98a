//! `--follow`: gets the list of another service, as any client may. Submits it to the store of this
//! service, as a change like one of a client, so that it is saved, and told to clients who wait.
//! Decides neither how a new list becomes edits, nor what `/health` says.
//!
//! Once there is a list here, each request has its tag in If-None-Match. Tags are hashes of the
//! content, so equal lists have the same tag in both services. After a success, a request also asks
//! the other service to wait until its list changes (RFC 7240 §4.3).

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use ureq::http::Response;
use ureq::{Agent, Body, Error};

use crate::conditions::{Conditions, Tag};
use crate::failure::Failure;
use crate::follow_status::{AWAY_TIME, FollowStatus};
use crate::load;
use crate::logging::excerpt;
use crate::options::Options;
use crate::outbound;
use crate::serve::Submitter;
use crate::service::only_token;
use crate::store::{Action, Change, ColorList, Outcome, Store, json};

/// How long the other service may hold a request while its list is the same. Its answer is due
/// [`ANSWER_TIME`] later, so that `/health` is in time if the other service falls silent.
const WAIT_TIME: Duration = AWAY_TIME.saturating_sub(ANSWER_TIME);

/// Longest time for each of these: to find the host, to connect, to send a request, to get the head
/// of the answer, and to get each 64 KiB of its content, so that 170 kbit/s are enough. If the
/// request waits, [`WAIT_TIME`] is added to the time for the head.
const ANSWER_TIME: Duration = Duration::from_secs(3);

/// Longest time for the content of an answer: a list of [`LIST_BYTES_MAX`] at 20 Mbit/s. Content
/// that stalls is given up earlier.
const CONTENT_TIME: Duration = Duration::from_secs(30);

/// Longest list that is followed: 1,000,000 colors have about 50 MB.
const LIST_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Longest content, in bytes, in which the reason of a refusal is looked for.
const REFUSAL_BYTES_MAX: u64 = 4096;

/// How long a start without a copy goes on to begin tries. A try takes at most four times
/// [`ANSWER_TIME`], and [`CONTENT_TIME`].
const START_TIME: Duration = Duration::from_secs(6);

/// Bounds of the pause before another try. Each failure in a row doubles the pause. What is waited
/// is between half of the pause and all of it, at random.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// The pause when the list that came could not be saved. Between two such tries, the log may say
/// that saving works again, and that it does not.
const SAVE_PAUSE: Duration = Duration::from_secs(10);

pub(crate) struct Follower {
    agent: Agent,
    /// The URL of the list of the other service.
    url: String,
    token_file: Option<PathBuf>,
    pub(crate) followed: Arc<FollowStatus>,
}

impl Follower {
    /// `None` without `--follow`.
    pub(crate) fn new(options: &Options) -> Option<Self> {
        let base = options.follow.as_deref()?;
        Some(Self {
            agent: outbound::agent(ANSWER_TIME, ANSWER_TIME),
            url: format!("{base}/colors"),
            token_file: options.follow_token_file.clone(),
            followed: Arc::new(FollowStatus::new(base)),
        })
    }

    /// The list for a start that has no copy of it. Tries for [`START_TIME`].
    pub(crate) fn first_list(&self) -> Result<ColorList, Failure> {
        let begun = Instant::now();
        loop {
            match self.ask(None, Duration::ZERO) {
                Ok(list) => {
                    self.followed.note(None);
                    return Ok(list.expect("a request without a tag is not answered 304"));
                }
                Err(reason) if begun.elapsed() > START_TIME => {
                    return Err(Failure::CannotFollow(self.followed.url.clone(), reason));
                }
                Err(_) => sleep(PAUSE_MIN),
            }
        }
    }

    /// Follows until the process ends.
    pub(crate) fn run(&self, store: &Store<Submitter>) {
        let mut pause = PAUSE_MIN;
        // The first request does not wait, and neither does one after a failure: a quick answer
        // shows that the other service is there.
        let mut wait = Duration::ZERO;
        // The number of the version that was here after the last answer.
        let mut followed = None;
        loop {
            let begun = Instant::now();
            let before = store.list.version();
            let is_own = followed != Some(before.number);
            let follow = || self.follow_once(store, &before.list, is_own, wait);
            let result = catch_unwind(AssertUnwindSafe(follow)).unwrap_or_else(|_| {
                Err(("the service failed, its log says where".to_owned(), Duration::ZERO))
            });
            let failure = result.as_ref().err();
            self.followed.note(failure.map(|(reason, _)| reason));
            let least_pause = failure.map_or(Duration::ZERO, |(_, pause)| *pause);
            wait = if result.is_ok() { WAIT_TIME } else { Duration::ZERO };
            let after = store.list.number();
            let is_changed = after != before.number;
            if result.is_ok() {
                followed = Some(after);
            }
            let was_held = begun.elapsed() > WAIT_TIME / 2;
            if is_changed || was_held {
                pause = PAUSE_MIN;
            }
            // Pause also after an answer that changes nothing and was not held: more may follow.
            if result.is_err() || !(is_changed || was_held) {
                // Random, so that those who follow the same service do not come back all at once.
                sleep(pause.max(least_pause).mul_f64(0.5 + 0.5 * fastrand::f64()));
                pause = PAUSE_MAX.min(2 * pause);
            }
        }
    }

    /// Asks for the list, and submits it if it is another one than `before`. Fails with the reason,
    /// and the shortest pause until the next try. `is_own`: not all of `before` has come from the
    /// other service, so the log says how much of it is lost.
    fn follow_once(
        &self,
        store: &Store<Submitter>,
        before: &ColorList,
        is_own: bool,
        wait: Duration,
    ) -> Result<(), (String, Duration)> {
        let asked = self.ask(Some(before.envelope().tag()), wait);
        let Some(list) = asked.map_err(|reason| (reason, Duration::ZERO))? else { return Ok(()) };
        let lost = if is_own { count_lost(before, &list) } else { 0 };
        let change = Change::new(Action::ReplaceAll(list), Conditions::default());
        let reason = match store.submit_and_wait(change, Submitter::Follower) {
            // Without an outcome, the process is about to end.
            None | Some(Ok(Outcome::ReplacedAll { .. })) => None,
            Some(Ok(Outcome::Refused(reason))) => Some(reason),
            Some(Ok(Outcome::TooLong)) => Some("it is longer than the storage takes".to_owned()),
            Some(Ok(_)) => Some("others change the list here all the time".to_owned()),
            Some(Err(error)) => Some(error.to_string()),
        };
        if let Some(reason) = reason {
            return Err((format!("its list cannot be saved here: {reason}"), SAVE_PAUSE));
        }
        if lost > 0 {
            let (lost, url) = (load::count(lost), &self.followed.url);
            log::warn!("dropped {lost} that only this copy had: it has the list of {url} now");
        }
        Ok(())
    }

    /// Asks for the list; `None` if it has this tag after this wait. Fails with the reason why
    /// there is no list in the answer, or no answer.
    fn ask(&self, tag: Option<Tag>, wait: Duration) -> Result<Option<ColorList>, String> {
        let request = self.agent.get(&self.url).config();
        let request = request.timeout_recv_response(Some(wait + ANSWER_TIME));
        let mut request = request.timeout_recv_body(Some(CONTENT_TIME)).build();
        if let Some(tag) = tag {
            request = request.header("If-None-Match", tag.to_string());
        }
        if !wait.is_zero() {
            request = request.header("Prefer", format!("wait={}", wait.as_secs()));
        }
        // Read each time: a new token needs no signal.
        if let Some(file) = &self.token_file {
            let token = only_token(file).map_err(|error| {
                format!("cannot use the token file {}: {error}", file.display())
            })?;
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let mut response = request.call().map_err(reason)?;
        if matches!(response.status().as_u16(), 200 | 304)
            && let Some(url) = followed_by(&response)
        {
            // Otherwise services could follow one another in a loop, and none would write.
            return Err(format!("it is a copy of {}, follow that service", excerpt(&url)));
        }
        match (response.status().as_u16(), tag) {
            (304, Some(_)) => Ok(None),
            (200, _) => {
                let content = response.body_mut().with_config().limit(LIST_BYTES_MAX);
                let content = content.read_to_vec().map_err(reason)?;
                let list = json::from_list(&content);
                list.map(Some).map_err(|error| format!("its answer is no list of colors: {error}"))
            }
            (401, _) => Err("it answers 401, name a file with a token for it with \
                             --follow-token-file"
                .to_owned()),
            (status, _) => Err(match refusal(response.body_mut()) {
                Some(message) => format!("it answers {status}: {}", excerpt(&message)),
                None => format!("it answers {status}, and not with a list of colors"),
            }),
        }
    }
}

/// The URL of the service that the other one follows, if that is a copy ([`FollowStatus::link`]).
fn followed_by(response: &Response<Body>) -> Option<String> {
    response.headers().get_all("link").iter().find_map(|line| {
        let line = String::from_utf8_lossy(line.as_bytes());
        let list = via_target(&line)?;
        Some(list.strip_suffix("/colors").unwrap_or(list).to_owned())
    })
}

/// The target of the first link with the relation `via` in a value of Link (RFC 8288 §3). A quoted
/// string that has `<`, `;` or a comma is read as if it had no quotes: a copy sends none.
fn via_target(links: &str) -> Option<&str> {
    links.split('<').skip(1).find_map(|link| {
        let (target, parameters) = link.split_once('>')?;
        let mut parameters = parameters.split([';', ',']).map(str::trim);
        let is_via = parameters.any(|it| matches!(it, r#"rel="via""# | "rel=via"));
        is_via.then_some(target)
    })
}

/// The message of an Error body.
fn refusal(body: &mut Body) -> Option<String> {
    let content = body.with_config().limit(REFUSAL_BYTES_MAX).read_to_vec().ok()?;
    let error: serde_json::Value = serde_json::from_slice(&content).ok()?;
    Some(error.get("message")?.as_str()?.to_owned())
}

/// How many colors of a list another one has not, with this name and value.
fn count_lost(before: &ColorList, list: &ColorList) -> usize {
    let kept: HashSet<_> = list.iter().map(|(_, color)| color.json.bytes()).collect();
    before.iter().filter(|(_, color)| !kept.contains(color.json.bytes())).count()
}

/// Why there is no answer, or not all of it.
fn reason(error: Error) -> String {
    match error {
        Error::Timeout(_) => "it does not answer in time".to_owned(),
        Error::HostNotFound => "its name is not known".to_owned(),
        // The only such error is of the look-up of names. Leaves out the prefix that ureq puts
        // before it, and before the next.
        Error::Other(error) => format!("its name is not looked up: {error}"),
        Error::BodyExceedsLimit(_) => {
            format!("its list is longer than {} MiB", LIST_BYTES_MAX / 1024 / 1024)
        }
        Error::Protocol(error) => {
            // What is malformed is for those who maintain the other service.
            log::debug!("{error}");
            "its answer is malformed".to_owned()
        }
        Error::Io(error) => match error.to_string() {
            // For the sources, see `main`.
            text if outbound::is_unknown_name(&error) => format!(
                "{text}; names come from /etc/hosts and DNS alone: use the address of a host that \
                 has a name in .local"
            ),
            text => text,
        },
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_known_by_its_link_among_others() {
        for copy in [
            r#"<http://a/x,y;z/colors>; rel="via""#,
            r#"<b>; rel="next" ,< >; title="c, d" , <http://a/x,y;z/colors> ; e ; rel=via,<f>"#,
        ] {
            assert_eq!(via_target(copy), Some("http://a/x,y;z/colors"), "{copy}");
        }
        for other in ["", "rel=via", "<a; rel=via", "<a>", "<a>; rev=via", "<a,rel=via>; rel=next"]
        {
            assert_eq!(via_target(other), None, "{other}");
        }
    }

    #[test]
    fn a_name_that_is_not_found_says_where_names_come_from() {
        let unknown = std::io::Error::other("failed to lookup address information: not known");
        assert_eq!(
            reason(Error::Io(unknown)),
            "failed to lookup address information: not known; names come from /etc/hosts and DNS \
             alone: use the address of a host that has a name in .local"
        );
        assert_eq!(reason(Error::Io(std::io::Error::other("other"))), "other");
    }
}
