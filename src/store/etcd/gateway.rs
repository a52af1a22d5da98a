//! Asks etcd by its JSON gateway (<https://etcd.io/docs/v3.4/dev-guide/api_grpc_gateway>): one
//! member after the other until one answers. Knows no lists.
//!
//! In this JSON, keys and values are in base64, 64-bit numbers are strings, and fields that are
//! zero are left out.

use std::io::{BufRead, BufReader, ErrorKind};
use std::sync::Arc;
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
use super::user::User;
use crate::outbound;

/// Longest time for each step of a request: to find the member by its name, to connect, to send, to
/// get the head of the answer, and to get each 64 KiB of its content. A member that takes longer
/// may be stopped, and another one is asked.
pub(super) const STEP_TIME: Duration = Duration::from_secs(1);

/// The least time that a request gets, even if the deadline comes sooner.
const LEAST_TIME: Duration = Duration::from_millis(250);

/// The pause after all members were asked in vain.
const PAUSE: Duration = Duration::from_millis(50);

/// Longest answer in bytes: a range of entries in base64, see
/// [`RANGE_KEYS_MAX`](super::position::RANGE_KEYS_MAX).
const ANSWER_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Asks the members of etcd.
pub(super) struct Gateway {
    agent: Agent,
    /// HOST:PORT of each member.
    pub(super) members: Vec<String>,
    /// `None` without `--etcd-user-file`.
    pub(super) user: Option<Arc<User>>,
    /// The place of the member to ask next.
    current: usize,
    /// Why each member failed, since the last answer of any of them. Kept between calls: a call may
    /// have time for one member alone, and the log gets a line for each reason that differs from
    /// the one before.
    reasons: Vec<String>,
}

/// A transaction: what to do if all comparisons hold, and what to do if not. If it puts and deletes
/// nothing, it is a linearizable read.
#[derive(Default, Serialize)]
pub(super) struct Txn {
    pub(super) compare: Vec<Value>,
    pub(super) success: Vec<Value>,
    pub(super) failure: Vec<Value>,
}

/// The answer to a [`Txn`].
#[derive(Deserialize)]
pub(super) struct TxnResponse {
    header: Header,
    /// Whether all comparisons held.
    #[serde(default)]
    pub(super) succeeded: bool,
    #[serde(default)]
    responses: Vec<OperationResponse>,
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
struct OperationResponse {
    response_range: Option<RangeResponse>,
}

#[derive(Deserialize)]
struct RangeResponse {
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

/// A message of a watch.
#[derive(Deserialize)]
pub(super) struct WatchResponse {
    /// The watch has begun. What was put before has no events.
    #[serde(default)]
    pub(super) created: bool,
    /// The watch has ended, or has not begun.
    #[serde(default)]
    canceled: bool,
    #[serde(default)]
    pub(super) events: Vec<WatchEvent>,
}

#[derive(Deserialize)]
pub(super) struct WatchEvent {
    pub(super) kv: KeyValue,
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

/// Holds if the value of the key was put in this revision. Revision 0: if the key is absent.
pub(super) fn compare(key: &str, mod_revision: i64) -> Value {
    json!({"key": base64(key), "target": "MOD", "mod_revision": mod_revision.to_string()})
}

pub(super) fn put(key: &str, value: &[u8]) -> Value {
    json!({"request_put": {"key": base64(key), "value": base64(value)}})
}

/// Deletes all keys from one to before another.
pub(super) fn delete_range(from: &str, to: &str) -> Value {
    json!({"request_delete_range": {"key": base64(from), "range_end": base64(to)}})
}

pub(super) fn get(key: &str) -> Value {
    json!({"request_range": {"key": base64(key)}})
}

/// Reads so many keys from one to before another.
pub(super) fn range(from: &str, to: &str, limit: usize) -> Value {
    json!({"request_range":
        {"key": base64(from), "range_end": base64(to), "limit": limit.to_string()}})
}

/// Why there is no answer of one member.
pub(super) enum CallFailure {
    /// The member has not done what it was asked, and will not.
    NotDone(String),
    /// It may have done it, or may do it later.
    MayBeDone(String),
    /// No member will do it, and this one has not done it. With [`EtcdError::NoSpace`] it may have
    /// done it, until [`Gateway::read_after_no_space`] has found out.
    Final(EtcdError),
}

impl CallFailure {
    fn reason(self) -> String {
        match self {
            Self::NotDone(reason) | Self::MayBeDone(reason) => reason,
            Self::Final(error) => error.to_string(),
        }
    }
}

impl TxnResponse {
    /// The revision in which the transaction was made.
    pub(super) fn revision(&self) -> i64 {
        self.header.revision
    }

    /// What a range that was the only operation has found.
    pub(super) fn into_kvs(self) -> Vec<KeyValue> {
        let range = self.responses.into_iter().next().and_then(|response| response.response_range);
        range.map_or_else(Vec::new, |range| range.kvs)
    }
}

impl Gateway {
    /// `piece`: the longest time for each 64 KiB of an answer, and for a shorter answer. For
    /// [`Gateway::watch`], in whose answer the next event may come at any time, that is the time of
    /// the watch.
    pub(super) fn new(members: &[String], user: Option<Arc<User>>, piece: Duration) -> Self {
        Self {
            agent: outbound::agent(STEP_TIME, piece),
            members: members.to_vec(),
            user,
            current: 0,
            reasons: vec![String::new(); members.len()],
        }
    }

    /// Sends the next request to another member: this one has failed.
    fn next_member(&mut self) {
        self.current = (self.current + 1) % self.members.len();
    }

    /// Has etcd make a transaction. If a member does not answer, sends it to the next one, until
    /// one answers or the deadline has passed. So it may be made twice, unless its comparisons
    /// prevent that.
    pub(super) fn txn(&mut self, txn: &Txn, deadline: Instant) -> Result<TxnResponse, EtcdError> {
        let is_read = txn.success.iter().all(|request| request.get("request_range").is_some());
        let request = serde_json::to_vec(txn).expect("it is made of strings");
        let mut may_be_done = false;
        for tries in 1.. {
            let left = deadline.saturating_duration_since(Instant::now()).max(LEAST_TIME);
            let mut result = self.post::<TxnResponse>(self.current, "kv/txn", &request, left);
            if !is_read && matches!(result, Err(CallFailure::Final(EtcdError::NoSpace))) {
                result = self.read_after_no_space(txn, left);
            }
            let failure = match result {
                Ok(mut response) => {
                    self.reasons.iter_mut().for_each(String::clear);
                    response.was_in_doubt |= may_be_done;
                    return Ok(response);
                }
                Err(CallFailure::Final(error)) if !may_be_done => return Err(error),
                Err(failure) => failure,
            };
            may_be_done |= !is_read && matches!(failure, CallFailure::MayBeDone(_));
            self.reasons[self.current] = failure.reason();
            self.next_member();
            if tries % self.members.len() == 0 {
                sleep(PAUSE);
            }
            if Instant::now() >= deadline {
                break;
            }
        }
        let (cause, details) = self.explain();
        Err(EtcdError::Unavailable { cause, details, may_be_there: may_be_done })
    }

    /// Reads whether the comparisons of a transaction hold for which etcd had no room. It says so
    /// also when the transaction makes its database reach the quota, and then has made it.
    fn read_after_no_space(&self, txn: &Txn, time: Duration) -> Result<TxnResponse, CallFailure> {
        let read = json!({"compare": txn.compare, "failure": txn.failure}).to_string();
        match self.post::<TxnResponse>(self.current, "kv/txn", read.as_bytes(), time) {
            Ok(response) if response.succeeded => Err(CallFailure::Final(EtcdError::NoSpace)),
            Ok(response) => Ok(TxnResponse { was_in_doubt: true, ..response }),
            Err(failure) => Err(CallFailure::MayBeDone(failure.reason())),
        }
    }

    /// Why no member has answered: that they have no leader, or else what each has done.
    fn explain(&self) -> (&'static str, String) {
        #[derive(Deserialize)]
        struct Status {
            /// 0, and so left out, if there is none.
            leader: Option<String>,
            #[serde(rename = "version")]
            _version: String,
        }
        let has_no_leader = |member: usize| {
            let status = self.post::<Status>(member, "maintenance/status", b"{}", LEAST_TIME);
            status.is_ok_and(|status| status.leader.is_none())
        };
        if (0..self.members.len()).any(has_no_leader) {
            let cause = "etcd has no leader, since most of its members do not answer";
            return (cause, String::new());
        }
        let reasons = self.members.iter().zip(&self.reasons).filter(|(_, why)| !why.is_empty());
        let reasons = reasons.map(|(member, why)| format!("{member} {why}"));
        ("etcd does not answer", reasons.collect::<Vec<_>>().join(", "))
    }

    /// Has etcd forget all values that have been replaced or deleted before this revision.
    pub(super) fn compact(&self, revision: i64) {
        let request = json!({"revision": revision.to_string()}).to_string();
        // If it fails, the next compaction does the same and more.
        let _ = self.post::<Value>(self.current, "kv/compaction", request.as_bytes(), STEP_TIME);
    }

    /// Watches what is put from one key to before another, for this time at the most. Gives each
    /// message to `notify`. Ends early if the connection breaks.
    pub(super) fn watch(
        &mut self,
        from: &str,
        to: &str,
        time: Duration,
        mut notify: impl FnMut(WatchResponse),
    ) {
        /// A line of the answer.
        #[derive(Deserialize)]
        struct Line {
            result: WatchResponse,
        }
        let create = json!({"create_request": {
            "key": base64(from), "range_end": base64(to), "filters": ["NODELETE"]}});
        match self.send(self.current, "watch", create.to_string().as_bytes(), time) {
            Ok(response) if response.status() == 200 => {
                let lines = BufReader::new(response.into_body().into_reader()).lines();
                let messages = lines.map_while(|line| serde_json::from_str(&line.ok()?).ok());
                for Line { result } in messages {
                    // Mostly for want of a new token: the writer, which is told, will get one.
                    let is_canceled = result.canceled;
                    notify(result);
                    if is_canceled {
                        self.next_member();
                        break;
                    }
                }
            }
            _ => self.next_member(),
        }
    }

    /// Sends a request to one member. `time`: for the content of the answer; the steps before that
    /// get no more.
    fn send(
        &self,
        member: usize,
        call: &str,
        request: &[u8],
        time: Duration,
    ) -> Result<Response<Body>, Error> {
        let step = STEP_TIME.min(time);
        let mut post = self.agent.post(format!("http://{}/v3/{call}", self.members[member]));
        if let Some(token) = self.user.as_ref().and_then(|user| user.token()) {
            post = post.header("Authorization", token);
        }
        let post = post.config();
        let post = post.timeout_resolve(Some(step)).timeout_connect(Some(step));
        let post = post.timeout_recv_response(Some(step)).timeout_recv_body(Some(time));
        let sent = post.build().send(request);
        // A token names an entry of etcd's log, and a member waits until it has that. If etcd was
        // made anew, it would wait for long.
        if let (Some(user), Err(Error::Timeout(Timeout::RecvResponse))) = (&self.user, &sent) {
            user.set_token(None);
        }
        sent
    }

    /// Asks one member, and once more if it wants another token for that.
    fn post<T: DeserializeOwned>(
        &self,
        member: usize,
        call: &str,
        request: &[u8],
        time: Duration,
    ) -> Result<T, CallFailure> {
        let mut answer = self.exchange(member, call, request, time);
        if let (Some(user), Err(CallFailure::Final(EtcdError::Refused(reason)))) =
            (&self.user, &answer)
            && User::lacks_token(reason)
        {
            user.renew(|request| self.exchange(member, "auth/authenticate", request, time))?;
            answer = self.exchange(member, call, request, time);
        }
        let malformed = |_| CallFailure::MayBeDone("answers what etcd does not".to_owned());
        serde_json::from_slice(&answer?).map_err(malformed)
    }

    /// Sends a request to one member, and gives the content of its answer.
    fn exchange(
        &self,
        member: usize,
        call: &str,
        request: &[u8],
        time: Duration,
    ) -> Result<Vec<u8>, CallFailure> {
        let mut response = self.send(member, call, request, time).map_err(classify)?;
        let content = response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
        let content = content.map_err(classify)?;
        if response.status() == 200 { Ok(content) } else { Err(refusal(&content)) }
    }
}

/// Why a request has no answer. Leaves out what differs each time, such as the text of a malformed
/// answer: the log gets a line for each reason that differs from the one before.
fn classify(error: Error) -> CallFailure {
    let is_unknown = |error: &Error| match error {
        Error::HostNotFound | Error::Timeout(Timeout::Resolve) => true,
        Error::Io(error) => outbound::is_unknown_name(error),
        _ => false,
    };
    match error {
        error if is_unknown(&error) => CallFailure::NotDone("is not known by its name".to_owned()),
        Error::Timeout(Timeout::Connect) => {
            CallFailure::NotDone("does not answer in time".to_owned())
        }
        Error::Io(error) if error.kind() == ErrorKind::ConnectionRefused => {
            CallFailure::NotDone("refuses the connection".to_owned())
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
        for error in [
            Error::Io(looked_up),
            Error::Io(ErrorKind::ConnectionRefused.into()),
            Error::Timeout(Timeout::Resolve),
            Error::Timeout(Timeout::Connect),
        ] {
            let failure = classify(error);
            assert!(matches!(failure, CallFailure::NotDone(_)), "{}", failure.reason());
        }
        let failure = classify(Error::Io(ErrorKind::ConnectionReset.into()));
        assert!(matches!(failure, CallFailure::MayBeDone(_)), "{}", failure.reason());
    }
}
