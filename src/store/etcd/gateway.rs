//! Asks etcd by its JSON gateway (<https://etcd.io/docs/v3.4/dev-guide/api_grpc_gateway>): one
//! member after the other until one answers. Knows no lists.
//!
//! In this JSON, keys and values are in base64, 64-bit numbers are strings, and fields that are
//! zero are left out.

use std::io::BufReader;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};
use ureq::http::Response;
use ureq::{Agent, Body, Error, Timeout};

use super::EtcdError;
use super::error::Cause;

/// Longest time for each step of a request: to connect, to send, to get the head of the answer, and
/// to get its content. A member that takes longer may be stopped, and another one is asked.
pub(super) const STEP_TIME: Duration = Duration::from_secs(1);

/// The pause after all members were asked in vain.
const PAUSE: Duration = Duration::from_millis(50);

/// Longest answer: a page of entries in base64, of which a log has no more than some 10 MiB.
const ANSWER_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Asks the members of etcd. A clone asks the same member first.
#[derive(Clone)]
pub(super) struct Gateway {
    agent: Agent,
    /// HOST:PORT of each member.
    members: Arc<[String]>,
    /// Counts failures: the member to ask next is this one, modulo their number.
    failures: Arc<AtomicUsize>,
    /// Why each member failed, since one of them has answered last. A call may have time to ask one
    /// of them alone, and each failure that differs from the one before is logged.
    reasons: Arc<Mutex<Vec<String>>>,
}

/// A transaction: what to do if all comparisons hold, and what if not. It is a linearizable read if
/// it puts and deletes nothing.
#[derive(Default, Serialize)]
pub(super) struct Transaction {
    pub(super) compare: Vec<Value>,
    pub(super) success: Vec<Value>,
    pub(super) failure: Vec<Value>,
}

/// The answer to a [`Transaction`].
#[derive(Deserialize)]
pub(super) struct Answer {
    header: Header,
    /// Whether all comparisons held.
    #[serde(default)]
    pub(super) succeeded: bool,
    #[serde(default)]
    responses: Vec<OperationAnswer>,
    /// Whether the same transaction was sent before this, without an answer.
    #[serde(skip)]
    pub(super) was_in_doubt: bool,
}

#[derive(Deserialize)]
struct Header {
    #[serde(deserialize_with = "number")]
    revision: i64,
}

#[derive(Deserialize)]
struct OperationAnswer {
    response_range: Option<RangeAnswer>,
}

#[derive(Deserialize)]
struct RangeAnswer {
    #[serde(default)]
    kvs: Vec<KeyValue>,
}

#[derive(Deserialize)]
pub(super) struct KeyValue {
    #[serde(deserialize_with = "bytes")]
    pub(super) key: Vec<u8>,
    /// The revision of etcd in which the value was put.
    #[serde(deserialize_with = "number")]
    pub(super) mod_revision: i64,
    #[serde(default, deserialize_with = "bytes")]
    pub(super) value: Vec<u8>,
}

fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}

fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    STANDARD.decode(String::deserialize(deserializer)?).map_err(D::Error::custom)
}

fn base64(bytes: impl AsRef<[u8]>) -> String {
    STANDARD.encode(bytes)
}

/// Holds if the key has the value that was put in this revision. Revision 0: if it is absent.
pub(super) fn has_revision(key: &str, revision: i64) -> Value {
    json!({"key": base64(key), "target": "MOD", "mod_revision": revision.to_string()})
}

pub(super) fn put(key: &str, value: &[u8]) -> Value {
    json!({"request_put": {"key": base64(key), "value": base64(value)}})
}

/// Deletes all keys from one to before another.
pub(super) fn delete(from: &str, to: &str) -> Value {
    json!({"request_delete_range": {"key": base64(from), "range_end": base64(to)}})
}

pub(super) fn get(key: &str) -> Value {
    json!({"request_range": {"key": base64(key)}})
}

/// Reads so many keys from one to before another.
pub(super) fn get_range(from: &str, to: &str, limit: usize) -> Value {
    json!({"request_range":
        {"key": base64(from), "range_end": base64(to), "limit": limit.to_string()}})
}

/// Why there is no answer of one member.
enum CallFailure {
    /// There was no connection.
    NotConnected(String),
    /// The member has not done what it was asked, and will not.
    NotDone(String),
    /// It may have done it, or may do it later.
    MayBeDone(String),
    /// No member will do it. What this one was asked was not done.
    Final(EtcdError),
}

impl CallFailure {
    fn reason(self) -> String {
        match self {
            Self::NotConnected(reason) | Self::NotDone(reason) | Self::MayBeDone(reason) => reason,
            Self::Final(error) => error.to_string(),
        }
    }
}

impl Answer {
    /// The revision in which the transaction was made.
    pub(super) fn revision(&self) -> i64 {
        self.header.revision
    }

    /// What a read that was the only operation has found.
    pub(super) fn into_found(self) -> Option<Vec<KeyValue>> {
        Some(self.responses.into_iter().next()?.response_range?.kvs)
    }
}

impl Gateway {
    pub(super) fn new(members: &[String]) -> Self {
        let config = Agent::config_builder()
            // Ignores the variables of the environment for proxies.
            .proxy(None)
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            // With a time-out for finding the host, or one for all, ureq would start a thread for
            // each request.
            .timeout_send_request(Some(STEP_TIME))
            .timeout_send_body(Some(STEP_TIME))
            .build();
        let reasons = Arc::new(Mutex::new(vec![String::new(); members.len()]));
        Self { agent: config.into(), members: members.into(), failures: Arc::default(), reasons }
    }

    fn reasons(&self) -> MutexGuard<'_, Vec<String>> {
        self.reasons.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the member to ask next.
    fn member(&self) -> usize {
        self.failures.load(Relaxed) % self.members.len()
    }

    /// Makes the next request go to another member than this one, which has failed. Does nothing if
    /// that is so already: the watch and the writer may notice the same failure.
    pub(super) fn note_failure(&self, member: usize) {
        let failures = self.failures.load(Relaxed);
        if failures % self.members.len() == member {
            let _ = self.failures.compare_exchange(failures, failures + 1, Relaxed, Relaxed);
        }
    }

    /// Has a transaction made. Sends it again, to one member after the other, until one answers or
    /// the deadline has passed. So it may be made twice, unless its comparisons prevent that.
    pub(super) fn ask(
        &self,
        transaction: &Transaction,
        deadline: Instant,
    ) -> Result<Answer, EtcdError> {
        let is_read =
            transaction.success.iter().all(|operation| operation.get("request_range").is_some());
        let request = serde_json::to_vec(transaction).expect("it is made of strings");
        let read = json!({"compare": transaction.compare, "failure": transaction.failure});
        let read = read.to_string();
        let mut may_be_done = false;
        let mut is_reached = false;
        for tries in 1.. {
            let left = deadline.saturating_duration_since(Instant::now());
            let time = STEP_TIME.min(left.max(STEP_TIME / 4));
            let member = self.member();
            let mut outcome = self.post::<Answer>(member, "kv/txn", &request, time);
            if !is_read && matches!(outcome, Err(CallFailure::Final(EtcdError::NoSpace))) {
                // etcd also answers this when a transaction makes its database reach the quota: then
                // it has made the transaction. So this reads whether the comparisons still hold.
                outcome = match self.post::<Answer>(member, "kv/txn", read.as_bytes(), time) {
                    Ok(answer) if answer.succeeded => Err(CallFailure::Final(EtcdError::NoSpace)),
                    Ok(answer) => {
                        may_be_done = true;
                        Ok(answer)
                    }
                    Err(failure) => Err(CallFailure::MayBeDone(failure.reason())),
                };
            }
            let failure = match outcome {
                Ok(answer) => {
                    self.reasons().iter_mut().for_each(String::clear);
                    return Ok(Answer { was_in_doubt: may_be_done, ..answer });
                }
                Err(CallFailure::Final(error)) if !may_be_done => return Err(error),
                Err(failure) => failure,
            };
            self.note_failure(member);
            is_reached |= !matches!(failure, CallFailure::NotConnected(_));
            may_be_done |= !is_read && matches!(failure, CallFailure::MayBeDone(_));
            self.reasons()[member] = failure.reason();
            if tries % self.members.len() == 0 {
                sleep(PAUSE);
            }
            if Instant::now() >= deadline {
                break;
            }
        }
        let cause = self.explain(is_reached);
        Err(EtcdError::Unavailable { cause, may_be_there: may_be_done })
    }

    /// Why no member has answered: that they have no leader, or else what each has done.
    fn explain(&self, is_reached: bool) -> Cause {
        #[derive(Deserialize)]
        struct Status {
            /// 0, and so left out, if there is none.
            leader: Option<String>,
            #[serde(rename = "version")]
            _version: String,
        }
        let has_none = |member: usize| {
            let status = self.post::<Status>(member, "maintenance/status", b"{}", STEP_TIME / 4);
            status.is_ok_and(|status| status.leader.is_none())
        };
        if (0..self.members.len()).any(has_none) {
            return Cause::NoLeader;
        }
        let reasons = self.reasons();
        let said = self.members.iter().zip(&*reasons).filter(|(_, reason)| !reason.is_empty());
        let said = said.map(|(member, reason)| format!("{member} {reason}"));
        let said = said.collect::<Vec<_>>().join(", ");
        if is_reached { Cause::NoAnswer(said) } else { Cause::Unreachable(said) }
    }

    /// Has etcd forget all values that have been replaced or deleted before this revision.
    pub(super) fn compact(&self, revision: i64) {
        let request = json!({"revision": revision.to_string()}).to_string();
        // If it fails, the next compaction does the same and more.
        let _ = self.post::<Value>(self.member(), "kv/compaction", request.as_bytes(), STEP_TIME);
    }

    /// Begins to watch what is put from one key to before another. The answer has a line of JSON
    /// for each message, and ends after this time at the latest. `None` if there is no answer.
    pub(super) fn watch(
        &self,
        from: &str,
        to: &str,
        time: Duration,
    ) -> Option<BufReader<impl std::io::Read + use<>>> {
        let member = self.member();
        let create = json!({"create_request": {
            "key": base64(from), "range_end": base64(to), "filters": ["NODELETE"]}});
        let response = self.send(member, "watch", create.to_string().as_bytes(), STEP_TIME, time);
        let Some(response) = response.ok().filter(|response| response.status() == 200) else {
            self.note_failure(member);
            return None;
        };
        Some(BufReader::new(response.into_body().into_reader()))
    }

    fn send(
        &self,
        member: usize,
        call: &str,
        request: &[u8],
        head_time: Duration,
        content_time: Duration,
    ) -> Result<Response<Body>, Error> {
        let post = self.agent.post(format!("http://{}/v3/{call}", self.members[member])).config();
        let post = post.timeout_connect(Some(head_time)).timeout_recv_response(Some(head_time));
        post.timeout_recv_body(Some(content_time)).build().send(request)
    }

    /// Asks one member. A long list may take longer than the head of an answer.
    fn post<T: DeserializeOwned>(
        &self,
        member: usize,
        call: &str,
        request: &[u8],
        time: Duration,
    ) -> Result<T, CallFailure> {
        let mut response = self.send(member, call, request, time, 4 * time).map_err(classify)?;
        let content = response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
        let content = content.map_err(classify)?;
        if response.status() != 200 {
            return Err(refusal(&content));
        }
        let malformed = |_| CallFailure::MayBeDone("answers what etcd does not".to_owned());
        serde_json::from_slice(&content).map_err(malformed)
    }
}

/// Why a request has no answer. Equal failures have equal texts: only a text that differs from the
/// one before is logged.
fn classify(error: Error) -> CallFailure {
    match error {
        Error::HostNotFound => CallFailure::NotConnected("is not known by its name".to_owned()),
        Error::Timeout(Timeout::Connect) => {
            CallFailure::NotConnected("does not answer in time".to_owned())
        }
        Error::ConnectionFailed => CallFailure::NotConnected("cannot be reached".to_owned()),
        // What Rust's standard library makes of getaddrinfo(3).
        Error::Io(error) if error.to_string().starts_with("failed to lookup address") => {
            CallFailure::NotConnected("is not known by its name".to_owned())
        }
        Error::Io(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
            CallFailure::NotConnected("refuses the connection".to_owned())
        }
        Error::Timeout(_) => CallFailure::MayBeDone("does not answer in time".to_owned()),
        Error::Io(_) => CallFailure::MayBeDone("breaks the connection".to_owned()),
        error => {
            log::debug!("{error}");
            CallFailure::MayBeDone("answers what etcd does not".to_owned())
        }
    }
}

/// What an answer with an error says. The codes are those of gRPC.
fn refusal(content: &[u8]) -> CallFailure {
    #[derive(Deserialize)]
    struct Refusal {
        error: String,
        code: u32,
    }
    let Ok(Refusal { error, code }) = serde_json::from_slice(content) else {
        return CallFailure::MayBeDone("answers what etcd does not".to_owned());
    };
    match code {
        // RESOURCE_EXHAUSTED stands for three things.
        8 if error.contains("database space exceeded") => CallFailure::Final(EtcdError::NoSpace),
        8 if error.contains("larger than max") => CallFailure::Final(EtcdError::TooLong),
        8 => CallFailure::NotDone(format!("answers {error:?}")),
        3 if error.contains("too large") => CallFailure::Final(EtcdError::TooLong),
        // CANCELLED, UNKNOWN, DEADLINE_EXCEEDED, INTERNAL, UNAVAILABLE: it may have been done.
        1 | 2 | 4 | 13 | 14 => CallFailure::MayBeDone(format!("answers {error:?}")),
        _ => CallFailure::Final(EtcdError::Refused(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn only_what_was_sent_may_be_done() {
        let looked_up = io::Error::other("failed to lookup address information: not known");
        for error in [looked_up, io::ErrorKind::ConnectionRefused.into()] {
            let failure = classify(Error::Io(error));
            assert!(matches!(failure, CallFailure::NotConnected(_)), "{}", failure.reason());
        }
        let failure = classify(Error::Io(io::ErrorKind::ConnectionReset.into()));
        assert!(matches!(failure, CallFailure::MayBeDone(_)), "{}", failure.reason());
    }
}
