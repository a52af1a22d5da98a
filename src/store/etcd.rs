//! The list in etcd, shared by any number of services. A commit is on the disks of a majority of
//! etcd's members before anybody sees it.
//!
//! | question | file |
//! |---|---|
//! | how is a commit made, and what is certain after a failure? | `etcd_engine` |
//! | which list is it, and at which position of the log? | `position` |
//! | what do the values in etcd look like? | `format` |
//! | how are other services' commits noticed at once? | `watch` |
//! | how is one member of etcd asked after the other? | `gateway` |
//! | as whom is it asked? | `user` |
//! | why can etcd not be used? why has one not answered, and may it have done it? | `error` |
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
//! - **The first start** puts id, snapshot and entry 0 if there is neither `KEY/list` nor `KEY/id`.
//! - **A start** reads snapshot and log as they were in one revision of etcd. If that is compacted
//!   meanwhile, it reads them anew.

mod error;
mod etcd_engine;
mod format;
mod gateway;
mod position;
mod user;
mod watch;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use error::EtcdError;
use etcd_engine::{EtcdEngine, LIST_BYTES_MAX};
use format::{Keys, Purpose, random_id, snapshot_bytes, write_entry, write_snapshot};
use gateway::{Gateway, KeyValue, STEP_TIME, Txn, compare_absent, delete_range, get, put};
use position::Position;
use user::User;
pub(crate) use watch::LogWatch;

use super::{ColorList, OpenPlace, Place};

/// How long a start goes on to ask for the list, and to make it.
const START_TIME: Duration = Duration::from_secs(6);

/// What a start finds at a key: a place for the list, before it is open.
pub(crate) struct EtcdKey {
    gateway: Gateway,
    keys: Keys,
    /// `None` if there is no list.
    position: Option<Position>,
}

impl EtcdKey {
    /// `user`: the file of `--etcd-user-file`.
    pub(crate) fn find(
        members: &[String],
        user: Option<&Path>,
        key: &str,
    ) -> Result<Box<dyn Place>, String> {
        let user = user.map(User::new).transpose().map_err(reason)?.map(Arc::new);
        let mut gateway = Gateway::new(members, user, STEP_TIME);
        gateway.deadline = Instant::now() + START_TIME;
        let mut found = Self { gateway, keys: Keys::new(key), position: None };
        found.read().map_err(reason)?;
        Ok(Box::new(found))
    }

    /// Reads the id of the list, and then the list.
    fn read(&mut self) -> Result<(), EtcdError> {
        self.keys.id = None;
        let txn = self.keys.txn(Vec::new(), vec![get(&self.keys.id_key())], Vec::new());
        let response = self.gateway.txn(&txn, |_| None)?;
        self.keys.id = id_in(response.found(0));
        self.position = Position::read(&mut self.gateway, &self.keys)?;
        // Only its snapshot is gone: what the log has would be lost with another list.
        if self.position.is_none() && self.keys.id.is_some() {
            return Err(EtcdError::Malformed(self.keys.list()));
        }
        Ok(())
    }

    /// Makes the list, unless there is one by now. Returns whether it has made it. That is false
    /// also if it has and the answer was lost. Then another member is asked: if that belongs to
    /// another cluster, both have a list, and [`EtcdKey::check_others`] fails.
    fn create(&mut self, seed: &ColorList) -> Result<bool, EtcdError> {
        check_length(seed)?;
        let success = vec![
            put(&self.keys.id_key(), random_id().as_bytes()),
            put(&self.keys.list(), &write_snapshot(0, seed)),
            put(&self.keys.entry(0), &write_entry(&random_id(), Purpose::Snapshot, b"")),
            // Left by a list without an id whose snapshot somebody has deleted.
            delete_range(&self.keys.entry(1), &self.keys.log_end()),
        ];
        let compare = vec![compare_absent(&self.keys.list()), compare_absent(&self.keys.id_key())];
        let txn = Txn { compare, success, failure: Vec::new() };
        let is_new = self.gateway.txn(&txn, |_| None)?.succeeded;
        self.read()?;
        Ok(is_new)
    }

    /// Gives the list an id if it has none.
    fn put_id(&mut self) -> Result<(), EtcdError> {
        if self.keys.id.is_some() {
            return Ok(());
        }
        let key = self.keys.id_key();
        let id = random_id();
        let success = vec![put(&key, id.as_bytes())];
        let txn = self.keys.txn(vec![compare_absent(&key)], success, Vec::new());
        let response = self.gateway.txn(&txn, |_| None)?;
        self.keys.id =
            if response.succeeded { Some(id.into_bytes()) } else { id_in(response.found(0)) };
        Ok(())
    }

    /// Fails if a member that answers soon belongs to another cluster, or has another list.
    /// Otherwise the list of a start would depend on which member answers first.
    fn check_others(&self) -> Result<(), EtcdError> {
        // Another start may make the list while one after the other answers.
        self.compare_others().or_else(|_| self.compare_others())
    }

    fn compare_others(&self) -> Result<(), EtcdError> {
        let key = self.keys.id_key();
        let answers = self.gateway.ask_each(&key);
        let Some((member, first)) = answers.first() else { return Ok(()) };
        match answers.iter().find(|(_, answer)| answer != first) {
            Some((other, _)) => Err(EtcdError::Disagree(member.to_string(), other.to_string())),
            None => Ok(()),
        }
    }

    /// Makes the list if there is none. If the service `writes`, decides what an earlier process
    /// has left in doubt, before anybody reads the list.
    fn try_open(mut self, seed: Option<ColorList>, writes: bool) -> Result<OpenPlace, EtcdError> {
        let mut is_new = false;
        if let Some(seed) = seed {
            is_new = self.create(&seed)?;
            self.check_others()?;
        }
        if writes {
            self.put_id()?;
        }
        let Self { gateway, keys, position } = self;
        let position = position.ok_or(EtcdError::Missing)?;
        let watch = LogWatch::new(&gateway, keys.clone());
        let mut engine = EtcdEngine::new(gateway, keys, position, Arc::clone(&watch.watched));
        if writes && !is_new {
            engine.put_first_fence()?;
        }
        let list = engine.position.list.clone();
        Ok(OpenPlace { engine: Box::new(engine), list, is_new, watch: Some(watch), path: None })
    }
}

/// The id in what was read of `KEY/id`.
fn id_in(found: &[KeyValue]) -> Option<Vec<u8>> {
    found.first().map(|id| id.value.clone())
}

fn reason(error: EtcdError) -> String {
    error.to_string()
}

/// Fails if etcd cannot take a list.
fn check_length(list: &ColorList) -> Result<(), EtcdError> {
    let fits = snapshot_bytes(list) <= LIST_BYTES_MAX;
    if fits { Ok(()) } else { Err(EtcdError::ListTooLong(LIST_BYTES_MAX)) }
}

impl Place for EtcdKey {
    fn has_list(&self) -> bool {
        self.position.is_some()
    }

    fn check_usable(&self) -> Result<(), String> {
        self.check_others().map_err(reason)
    }

    /// Any number of services may share a list in etcd.
    fn lock(&mut self) -> Result<(), String> {
        Ok(())
    }

    fn check(&self, seed: Option<&ColorList>) -> Result<usize, String> {
        seed.map_or(Ok(()), check_length).map_err(reason)?;
        let there = self.position.as_ref().map(|position| &position.list);
        Ok(there.or(seed).map_or(0, ColorList::len))
    }

    fn dump(&self) -> Result<ColorList, String> {
        let position = self.position.as_ref();
        let list = position.map(|position| position.list.clone());
        list.ok_or(EtcdError::Missing).map_err(reason)
    }

    fn open(self: Box<Self>, seed: Option<ColorList>, writes: bool) -> Result<OpenPlace, String> {
        self.try_open(seed, writes).map_err(reason)
    }
}
