//! The list in etcd, shared by any number of services. A commit is on the disks of a majority of
//! etcd's members before anybody sees it. Knows nothing of requests to the service.
//!
//! | question | file |
//! |---|---|
//! | what does a start find, and how does the first one make the list? | `etcd_key` |
//! | how is a commit made, and what is certain after a failure? | `etcd_engine` |
//! | which list is it, and at which position of the log? | `position` |
//! | what do the values in etcd look like? | `format` |
//! | how are other services' commits noticed at once? | `watch` |
//! | how is one member of etcd asked after the other? | `gateway` |
//! | why has one not answered, and may it have done it? | `call_failure` |
//! | as whom is it asked? | `user` |
//! | why can etcd not be used? | `error` |
//!
//! # Keys
//!
//! KEY is that of `--data etcd://HOST:PORT/KEY`.
//!
//! - `KEY/log/N`, N in 16 hexadecimal digits: the edits of one commit, and the random id of the
//!   attempt that has made it. The numbers are dense: each commit adds the next one.
//! - `KEY/list`: a snapshot, which is the whole list as it was after entry N.
//! - `KEY/id`: the random id of the list. Put with it, or by the first start that finds none: lists
//!   that were made before there were ids have none, and services of then may still share them.
//!
//! A start reads the snapshot, and the entries behind it. The log has the entries since the
//! snapshot before the last one, so that a service that asks late what came of its commit still
//! finds it. etcd keeps every value that a key ever had until it is told to compact, which the
//! service that puts a snapshot does. Compaction is for all keys: whoever reads the history of
//! other keys needs another etcd.
//!
//! # Transactions
//!
//! Whoever knows the list up to entry N commits by one transaction: if entry N is still that of the
//! attempt that is known, there is no entry N+1, and the list has the id that is known, put entry
//! N+1. Otherwise it reads the id, and what is there from entry N on. So of several services one is
//! first, and the others get what they have missed, decide again, and try again. All three
//! conditions are needed: once the log was cut, a service that is far behind finds no entry N+1
//! either; and numbers and revisions are the same in another etcd, or come again in one that was
//! restored.
//!
//! - **Another list.** A member that answers with another id or entry N, or with no entry from N
//!   on, counts as one that does not answer: the next one is asked.
//! - **A lost answer.** The same transaction is sent again, to any member. If it is refused, the id
//!   in entry N+1 says whether the first one had succeeded. If no member answers in time, the
//!   change may be in the list, now or later. It cannot be made any more once there is another
//!   entry N+1. So the next save first puts one without edits, the fence. So does a start that
//!   will write: the process before it may have left a change in doubt.
//! - **A refusal of a change** (404, 412), or the answer to one that changes nothing, is confirmed
//!   first: a transaction that puts nothing shows that the list here is the newest one. A change
//!   with malformed content or conditions is refused without that.
//! - **A snapshot** is a commit without edits that also puts `KEY/list` and deletes the entries
//!   before the previous snapshot.
//! - **The first start** puts id, snapshot and entry 0 if there is no `KEY/list`.
//! - **A start** reads snapshot and log as they were in one revision of etcd. If that is compacted
//!   meanwhile, it reads them anew.

mod call_failure;
mod error;
mod etcd_engine;
mod etcd_key;
mod format;
mod gateway;
mod position;
mod user;
mod watch;

use error::EtcdError;
pub(crate) use etcd_key::EtcdKey;
pub(crate) use watch::LogWatch;
