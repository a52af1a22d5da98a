//! KEY in etcd as a place for the list, before it is open; and how a first start makes the list.

use std::time::{Duration, Instant};

use super::EtcdError;
use super::etcd_engine::{EtcdEngine, LIST_BYTES_MAX};
use super::format::{Keys, Purpose, snapshot_bytes, write_entry, write_snapshot};
use super::gateway::{Gateway, STEP_TIME, Txn, compare, delete_range, put};
use super::position::Position;
use crate::random;
use crate::store::{ColorList, OpenPlace, Place};

/// How long a start goes on to ask for the list, and to make it.
const START_TIME: Duration = Duration::from_secs(6);

/// What a start finds at a key.
pub(crate) struct EtcdKey {
    gateway: Gateway,
    keys: Keys,
    /// `None` if there is no list.
    position: Option<Position>,
    /// When the start gives up.
    deadline: Instant,
}

impl EtcdKey {
    pub(crate) fn find(members: &[String], key: &str) -> Result<Self, EtcdError> {
        let deadline = Instant::now() + START_TIME;
        let mut gateway = Gateway::new(members, STEP_TIME);
        let keys = Keys(key.to_owned());
        let position = Position::read(&mut gateway, &keys, deadline)?;
        Ok(Self { gateway, keys, position, deadline })
    }

    /// Makes the list, unless there is one by now. Returns whether it has made it. That is false
    /// also if it has and the answer was lost.
    fn create(&mut self, seed: &ColorList) -> Result<bool, EtcdError> {
        check_length(seed)?;
        let success = vec![
            put(&self.keys.list(), &write_snapshot(0, seed)),
            put(&self.keys.entry(0), &write_entry(&random::id(), Purpose::Snapshot, b"")),
            // Left by a list whose snapshot somebody has deleted.
            delete_range(&self.keys.entry(1), &self.keys.log_end()),
        ];
        let compare = vec![compare(&self.keys.list(), 0)];
        let txn = Txn { compare, success, ..Txn::default() };
        let is_new = self.gateway.txn(&txn, self.deadline)?.succeeded;
        self.position = Position::read(&mut self.gateway, &self.keys, self.deadline)?;
        Ok(is_new)
    }
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

    /// The writer, and the watch.
    fn threads(&self) -> usize {
        2
    }

    fn check_usable(&self) -> Result<(), String> {
        Ok(())
    }

    /// Any number of services may share a list in etcd.
    fn lock(&mut self) -> Result<(), String> {
        Ok(())
    }

    fn check(&self, seed: Option<&ColorList>) -> Result<usize, String> {
        seed.map_or(Ok(()), check_length).map_err(|error| error.to_string())?;
        let there = self.position.as_ref().map(|position| &position.list);
        Ok(there.or(seed).map_or(0, ColorList::len))
    }

    fn dump(&self) -> Result<ColorList, String> {
        let position = self.position.as_ref();
        let list = position.map(|position| position.list.clone());
        list.ok_or_else(|| EtcdError::Missing.to_string())
    }

    fn open(mut self: Box<Self>, seed: Option<ColorList>) -> Result<OpenPlace, String> {
        let is_new = seed.as_ref().map_or(Ok(false), |seed| self.create(seed));
        let is_new = is_new.map_err(|error| error.to_string())?;
        let Self { gateway, keys, position, .. } = *self;
        let position = position.ok_or(EtcdError::Missing).map_err(|error| error.to_string())?;
        let list = position.list.clone();
        let (engine, watch) = EtcdEngine::new(gateway, keys, position);
        let engine = Box::new(engine);
        Ok(OpenPlace { engine, list, is_new, watch: Some(watch), path: None })
    }
}
