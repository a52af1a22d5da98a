//! The list, its position in the log and its revision: one value, which is taken as a whole or not
//! at all.

use std::time::Instant;

use super::EtcdError;
use super::format::{Keys, LogEntry, read_snapshot};
use super::gateway::{Gateway, KeyValue, Transaction, get, get_range};
use crate::store::{ColorList, Edit};

/// Entries in one answer: 100,000 would not come in time.
pub(super) const PAGE: usize = 4096;

/// The list as it is after an entry.
#[derive(Clone)]
pub(super) struct Position {
    pub(super) list: ColorList,
    /// The number of the entry.
    pub(super) number: u64,
    /// The revision of etcd in which the entry was put.
    pub(super) revision: i64,
    /// The number of the entry that was put with the last snapshot.
    pub(super) snapshot: u64,
    /// Bytes of the entries behind that one.
    pub(super) bytes: usize,
}

impl Position {
    /// Reads the snapshot and the entries behind it; `None` if there is no snapshot.
    pub(super) fn read(
        gateway: &Gateway,
        keys: &Keys,
        deadline: Instant,
    ) -> Result<Option<Self>, EtcdError> {
        let read = |range| {
            let transaction = Transaction { success: vec![range], ..Transaction::default() };
            let answer = gateway.ask(&transaction, deadline)?;
            answer.into_found().ok_or_else(|| EtcdError::Malformed(keys.0.clone()))
        };
        loop {
            let Some(snapshot) = read(get(&keys.list()))?.pop() else { return Ok(None) };
            let (number, list) = read_snapshot(&keys.list(), &snapshot.value)?;
            let mut found = read(get_range(&keys.entry(number), &keys.log_end(), PAGE))?;
            let first = keys.entry(number);
            // Both were put by one transaction.
            let is_pair = |entry: &&KeyValue| {
                entry.key == first.as_bytes() && entry.mod_revision == snapshot.mod_revision
            };
            if let Some(entry) = found.first().filter(is_pair) {
                let revision = entry.mod_revision;
                let mut position = Self { list, number, revision, snapshot: number, bytes: 0 };
                loop {
                    let is_last = found.len() < PAGE;
                    if position.follow(keys, found)?.is_none() {
                        break;
                    }
                    if is_last {
                        return Ok(Some(position));
                    }
                    let from = keys.entry(position.number);
                    found = read(get_range(&from, &keys.log_end(), PAGE))?;
                }
            }
            // The log was cut meanwhile, so there is another snapshot. Otherwise it has a gap.
            if Instant::now() >= deadline {
                return Err(EtcdError::Malformed(first));
            }
        }
    }

    /// Whether an entry is the one of this position.
    pub(super) fn is_at(&self, keys: &Keys, entry: &KeyValue) -> bool {
        entry.mod_revision == self.revision && keys.number(&entry.key) == Some(self.number)
    }

    /// Applies the entries that were found from this one on, and returns their edits. `None` if
    /// this entry is not among them with its revision, or if one behind it is missing: then the log
    /// was cut, or is another one.
    pub(super) fn follow(
        &mut self,
        keys: &Keys,
        found: Vec<KeyValue>,
    ) -> Result<Option<Vec<Edit>>, EtcdError> {
        if !found.first().is_some_and(|first| self.is_at(keys, first)) {
            return Ok(None);
        }
        let mut next = self.clone();
        let mut edits = Vec::new();
        for entry in found.into_iter().skip(1) {
            let foreign = || EtcdError::Malformed(String::from_utf8_lossy(&entry.key).into_owned());
            if keys.number(&entry.key).ok_or_else(foreign)? != next.number + 1 {
                return Ok(None);
            }
            edits.extend(next.apply(keys, &entry)?);
        }
        *self = next;
        Ok(Some(edits))
    }

    /// Applies the next entry, and returns its edits.
    pub(super) fn apply(&mut self, keys: &Keys, found: &KeyValue) -> Result<Vec<Edit>, EtcdError> {
        let number = self.number + 1;
        let key = keys.entry(number);
        let entry = LogEntry::read(&key, &found.value)?;
        let is_snapshot = entry.is_snapshot;
        let mut list = self.list.clone();
        let edits = entry.apply(&mut list).ok_or(EtcdError::Malformed(key))?;
        let (snapshot, bytes) =
            if is_snapshot { (number, 0) } else { (self.snapshot, self.bytes + found.value.len()) };
        *self = Self { list, number, revision: found.mod_revision, snapshot, bytes };
        Ok(edits)
    }
}
