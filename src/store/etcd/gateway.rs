//! Asks etcd by its JSON gateway (<https://etcd.io/docs/v3.4/dev-guide/api_grpc_gateway>): one
//! member after the other until one is of use. Knows nothing of what is in a list.
//!
//! In this JSON, keys and values are in base64, 64-bit numbers are strings, and fields that are
//! zero are left out.

use std::io::BufReader;
use std::sync::Arc;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};
use ureq::http::Response;
use ureq::{Agent, Body, Error, Timeout};

use super::EtcdError;
use super::error::{CallFailure, NO_LEADER, classify, not_gateway, refusal};
use super::user::User;
use crate::outbound;

/// Longest time for each step of a request: to find the member by its name, to connect, to send, to
/// get the head of the answer, and to get each 64 KiB of its content. A member that takes longer
/// may be stopped, and another one is asked.
pub(super) const STEP_TIME: Duration = Duration::from_secs(1);

/// The least time that a request gets, even if the deadline comes sooner.
const LEAST_TIME: Duration = Duration::from_millis(250);

/// How long [`Gateway::ask_each`] waits in each step: a member that is well answers in
/// milliseconds, and the others are asked again whenever they are needed.
const OTHERS_TIME: Duration = Duration::from_millis(500);

/// The reasons if a member has another list at the key than the one that was read, an older one, or
/// none. It belongs to another cluster, or its data was lost or replaced.
pub(super) const OTHER_LIST: &str = "has another list";
pub(super) const OLDER_LIST: &str = "has an older list";
pub(super) const NO_LIST: &str = "has no list";
const LISTS: [&str; 3] = [OTHER_LIST, OLDER_LIST, NO_LIST];

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
    /// When a transaction and a compaction give up.
    pub(super) deadline: Instant,
    /// The place of the member to ask next.
    current: usize,
    /// Why each member failed when it was asked last, since the last answer of any of them. Kept
    /// between calls: a call may have time for one member alone, and the log gets a line for each
    /// reason that differs from the one before.
    reasons: Vec<String>,
}

/// A transaction: what to do if all comparisons hold, and what to do if not. If it puts and deletes
/// nothing, it is a linearizable read.
#[derive(Clone, Default, Serialize)]
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

#[derive(Default, Deserialize)]
#[serde(default)]
struct Header {
    /// Made of what the members were told when they first came together, so two clusters may have
    /// the same. Left out within a transaction.
    cluster_id: String,
    #[serde(deserialize_with = "number")]
    revision: i64,
}

#[derive(Deserialize)]
struct OperationResponse {
    response_range: Option<RangeResponse>,
}

/// The answer to a read, alone or within a transaction.
#[derive(Deserialize)]
struct RangeResponse {
    header: Option<Header>,
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
    // Borrowed: base64 needs no escapes, and a copy of a long value would take memory.
    STANDARD.decode(<&str>::deserialize(deserializer)?).map_err(D::Error::custom)
}

fn base64(bytes: impl AsRef<[u8]>) -> String {
    STANDARD.encode(bytes)
}

/// Holds if the key is absent.
pub(super) fn compare_absent(key: &str) -> Value {
    json!({"key": base64(key), "target": "MOD", "mod_revision": "0"})
}

/// Holds if the value of the key has this relation, which is EQUAL, GREATER or LESS, to `value`.
pub(super) fn compare_value(key: &str, relation: &str, value: impl AsRef<[u8]>) -> Value {
    json!({"key": base64(key), "target": "VALUE", "result": relation, "value": base64(value)})
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

/// Reads so many keys from one to before another, as they were in this revision. Revision 0: as
/// they are.
pub(super) fn range(from: &str, to: &str, limit: usize, revision: i64) -> Value {
    json!({"request_range": {
        "key": base64(from),
        "range_end": base64(to),
        "limit": limit.to_string(),
        "revision": revision.to_string(),
    }})
}

impl Txn {
    /// The same, if it only reads, of what the member has: without a round among the members, and
    /// perhaps old.
    pub(super) fn serializable(mut self) -> Self {
        for request in self.success.iter_mut().chain(&mut self.failure) {
            request["request_range"]["serializable"] = true.into();
        }
        self
    }
}

impl TxnResponse {
    /// The revision of etcd behind the transaction: if it has put something, that in which it did.
    pub(super) fn revision(&self) -> i64 {
        self.header.revision
    }

    /// What the operation in this place has found, if it was a range.
    pub(super) fn found(&self, place: usize) -> &[KeyValue] {
        let range = self.responses.get(place).and_then(|response| response.response_range.as_ref());
        range.map_or(&[], |range| &range.kvs)
    }

    /// The same, taken out.
    pub(super) fn take_found(&mut self, place: usize) -> Vec<KeyValue> {
        let response = self.responses.get_mut(place);
        let range = response.and_then(|response| response.response_range.take());
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
            deadline: Instant::now(),
            current: 0,
            reasons: vec![String::new(); members.len()],
        }
    }

    fn time_left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now()).max(LEAST_TIME)
    }

    /// Sends the next request to another member: this one has failed.
    fn next_member(&mut self) {
        self.current = (self.current + 1) % self.members.len();
    }

    /// Has etcd make a transaction. If a member does not answer, sends it to the next one, until
    /// one answers or the deadline has passed. So it may be made twice, unless its comparisons
    /// prevent that. `refuse` looks at an answer in which a comparison does not hold: if it returns
    /// a reason, the member is of no use, and the next one is asked.
    pub(super) fn txn(
        &mut self,
        txn: &Txn,
        refuse: impl Fn(&TxnResponse) -> Option<&'static str>,
    ) -> Result<TxnResponse, EtcdError> {
        let is_read = txn.success.iter().all(|request| request.get("request_range").is_some());
        let request = serde_json::to_vec(txn).expect("it is made of strings");
        let mut may_be_done = false;
        for tries in 1.. {
            let time = self.time_left();
            let mut result = self.post::<TxnResponse>(self.current, "kv/txn", &request, time);
            if !is_read && matches!(result, Err(CallFailure::Final(EtcdError::NoSpace))) {
                result = self.read_after_no_space(txn, time);
            }
            let failure = match result {
                Ok(mut response) => match refuse(&response).filter(|_| !response.succeeded) {
                    Some(reason) => CallFailure::NotDone(reason.to_owned()),
                    None => {
                        self.reasons.iter_mut().for_each(String::clear);
                        response.was_in_doubt |= may_be_done;
                        return Ok(response);
                    }
                },
                Err(CallFailure::Final(error)) if !may_be_done => return Err(error),
                Err(failure) => failure,
            };
            may_be_done |= !is_read && matches!(failure, CallFailure::MayBeDone(_));
            self.reasons[self.current] = failure.reason();
            self.next_member();
            // To ask again does not help if all have another list.
            let is_hopeless = self.reasons.iter().all(|reason| LISTS.contains(&&**reason));
            if is_hopeless || Instant::now() >= self.deadline {
                break;
            }
            if tries % self.members.len() == 0 {
                sleep(PAUSE);
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

    /// Why no member was of use: that they have no leader, or that they have another list, or else
    /// what each has done.
    fn explain(&self) -> (&'static str, String) {
        let is_reason = |reason: &str| self.reasons.iter().any(|known| known == reason);
        if is_reason(NO_LEADER) {
            let cause = "etcd has no leader, since most of its members do not answer";
            return (cause, String::new());
        }
        let reasons = self.members.iter().zip(&self.reasons).filter(|(_, why)| !why.is_empty());
        let reasons = reasons.map(|(member, why)| format!("{member} {why}"));
        let details = reasons.collect::<Vec<_>>().join(", ");
        let advice = "name the members that have the list of this service, or restart it to go on \
                      with what is there";
        if is_reason(OTHER_LIST) || is_reason(OLDER_LIST) {
            ("etcd has another list", format!("{details}; {advice}"))
        } else if is_reason(NO_LIST) {
            ("etcd has no list", format!("{details}; {advice}"))
        } else {
            ("etcd does not answer", details)
        }
    }

    /// Has etcd forget all values that have been replaced or deleted before this revision.
    pub(super) fn compact(&self, revision: i64) {
        let request = json!({"revision": revision.to_string()}).to_string();
        let time = self.time_left().min(STEP_TIME);
        // If it fails, the next compaction does the same and more.
        let _ = self.post::<Value>(self.current, "kv/compaction", request.as_bytes(), time);
    }

    /// Watches what is put from one key to before another, for this time at the most. Calls
    /// `notify` when the watch has begun and whenever something was put, each time with the
    /// revision of etcd. Ends early if the connection breaks, or if the member loses its leader.
    pub(super) fn watch(
        &mut self,
        from: &str,
        to: &str,
        time: Duration,
        mut notify: impl FnMut(i64),
    ) {
        /// A message. What was put is left out: it may be long, or of another list.
        #[derive(Deserialize)]
        struct Message {
            result: Watched,
        }
        #[derive(Deserialize)]
        struct Watched {
            header: Header,
            /// The watch has ended, or has not begun.
            #[serde(default)]
            canceled: bool,
        }
        let create = json!({"create_request": {
            "key": base64(from), "range_end": base64(to), "filters": ["NODELETE"]}});
        match self.send(self.current, "watch", create.to_string().as_bytes(), time) {
            Ok(response) if response.status() == 200 => {
                let content = BufReader::new(response.into_body().into_reader());
                let messages = serde_json::Deserializer::from_reader(content).into_iter();
                for Message { result } in messages.map_while(Result::ok) {
                    notify(result.header.revision);
                    // Mostly for want of a new token: the writer, which is told, will get one.
                    if result.canceled {
                        self.next_member();
                        break;
                    }
                }
            }
            _ => self.next_member(),
        }
    }

    /// Asks all members, together, in which cluster they are and what a key has. Returns the
    /// answers of those that have taken no longer than [`OTHERS_TIME`] for any step, each behind
    /// HOST:PORT of the member.
    pub(super) fn ask_each(&self, key: &str) -> Vec<(&str, impl PartialEq + Send)> {
        let request = json!({"key": base64(key)}).to_string();
        let ask = |member: usize| {
            let answer = self.post(member, "kv/range", request.as_bytes(), OTHERS_TIME);
            let RangeResponse { header, mut kvs } = answer.ok()?;
            let value = kvs.pop().map(|found| found.value);
            Some((&*self.members[member], (header?.cluster_id, value)))
        };
        thread::scope(|scope| {
            // One for which the system refuses a thread is not asked.
            let start = |member| thread::Builder::new().spawn_scoped(scope, move || ask(member));
            let asked: Vec<_> = (0..self.members.len()).filter_map(|it| start(it).ok()).collect();
            asked.into_iter().filter_map(|thread| thread.join().ok()?).collect()
        })
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
        // A member that knows no leader says so at once, in place of waiting for one, and ends its
        // watches (<https://etcd.io/docs/v3.4/dev-guide/api_grpc_gateway>, WithRequireLeader).
        let post = post.header("Grpc-Metadata-hasleader", "true").config();
        let post = post.timeout_resolve(Some(step)).timeout_connect(Some(step));
        let post = post.timeout_send_request(Some(step)).timeout_send_body(Some(step));
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
        let content = answer?;
        serde_json::from_slice(&content).map_err(|_| not_gateway(200, &content))
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
        let status = response.status().as_u16();
        if status == 200 { Ok(content) } else { Err(refusal(status, &content)) }
    }
}
