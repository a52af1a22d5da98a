//! Which list it is, and its position in the log. List and position are one value, which is taken
//! as a whole or not at all.
//!
//! A list has a random id at `KEY/id`, from whoever makes it, or from the first start that finds
//! none. Every transaction compares it: two etcds of which each has a list at KEY may have the same
//! cluster id, and the same numbers and revisions. So may one that was emptied and filled again.
//! (One that was restored from a snapshot has the same list, with another history: [`Position`]
//! compares the last entry.)

use std::time::Instant;

use super::EtcdError;
use super::format::{self, Keys, LogEntry, entry_begin, read_snapshot};
use super::gateway::{
    Gateway, KeyValue, NO_LIST, OLDER_LIST, OTHER_LIST, Txn, TxnResponse, compare_absent,
    compare_value, get, range,
};
use crate::store::{ColorList, Edit};

/// Most entries in one answer. An entry has at most 1.5 MB, which is 2 MB in base64.
pub(super) const RANGE_KEYS_MAX: usize = 32;

impl Keys {
    /// A transaction on the list with this id. If a comparison does not hold, the answer has the
    /// id that is there in place 0, and what `failure` has found behind it.
    pub(super) fn txn(
        &self,
        mut compare: Vec<serde_json::Value>,
        success: Vec<serde_json::Value>,
        mut failure: Vec<serde_json::Value>,
    ) -> Txn {
        compare.extend(self.id.as_ref().map(|id| compare_value(&self.id_key(), "EQUAL", id)));
        failure.insert(0, get(&self.id_key()));
        Txn { compare, success, failure }
    }

    /// The reason not to take this answer, if a member does not have the list with this id.
    pub(super) fn refuse(&self, response: &TxnResponse) -> Option<&'static str> {
        let id = self.id.as_ref()?;
        match response.found(0).first() {
            Some(there) if there.value == *id => None,
            Some(_) => Some(OTHER_LIST),
            None => Some(NO_LIST),
        }
    }
}

/// The list as it is after an entry.
#[derive(Clone)]
pub(super) struct Position {
    pub(super) list: ColorList,
    /// The number of the entry.
    pub(super) number: u64,
    /// The random id of the attempt that has put the entry. Numbers and revisions come again if
    /// etcd is restored from a snapshot, and this does not.
    pub(super) id: String,
    /// The number of the entry that was put with the last snapshot.
    pub(super) snapshot: u64,
    /// Bytes of the entries behind that one.
    pub(super) bytes: usize,
}

impl Position {
    /// Reads the snapshot and the entries behind it, all as they were in one revision of etcd;
    /// `None` if there is no snapshot.
    pub(super) fn read(gateway: &mut Gateway, keys: &Keys) -> Result<Option<Self>, EtcdError> {
        loop {
            match Self::read_once(gateway, keys) {
                // Another service has cut the log meanwhile, and has put another snapshot.
                Err(EtcdError::Compacted) if Instant::now() < gateway.deadline => {}
                read => return read,
            }
        }
    }

    fn read_once(gateway: &mut Gateway, keys: &Keys) -> Result<Option<Self>, EtcdError> {
        let mut read = |range| {
            let txn = keys.txn(Vec::new(), vec![range], Vec::new());
            gateway.txn(&txn, |response| keys.refuse(response))
        };
        let mut response = read(get(&keys.list()))?;
        let read_at = response.revision();
        let Some(snapshot) = response.take_found(0).pop() else { return Ok(None) };
        let (number, list) = read_snapshot(&keys.list(), &snapshot.value)?;
        let first = keys.entry(number);
        let end = keys.log_end();
        let mut found = read(range(&first, &end, RANGE_KEYS_MAX, read_at))?.take_found(0);
        // Both were put by one transaction.
        let is_pair = |entry: &KeyValue| {
            entry.key == first.as_bytes() && entry.mod_revision == snapshot.mod_revision
        };
        if !found.first().is_some_and(is_pair) {
            return Err(EtcdError::Malformed(first));
        }
        let LogEntry { id, .. } = format::read(&first, &found[0].value)?;
        let mut position = Self { list, number, id, snapshot: number, bytes: 0 };
        loop {
            let is_last = found.len() < RANGE_KEYS_MAX;
            if position.follow(keys, found)?.is_none() {
                return Err(EtcdError::Malformed(keys.entry(position.number + 1)));
            }
            if is_last {
                return Ok(Some(position));
            }
            let from = keys.entry(position.number);
            found = read(range(&from, &end, RANGE_KEYS_MAX, read_at))?.take_found(0);
        }
    }

    /// A transaction: `success` if this is still the last position, or else a range from it on.
    pub(super) fn txn(&self, keys: &Keys, success: Vec<serde_json::Value>) -> Txn {
        let entry = keys.entry(self.number);
        let begin = entry_begin(&self.id);
        // The first text that comes after all that begin so.
        let end = begin.strip_suffix('"').expect("it ends so").to_owned() + "#";
        let compare = vec![
            compare_value(&entry, "GREATER", &begin),
            compare_value(&entry, "LESS", &end),
            compare_absent(&keys.entry(self.number + 1)),
        ];
        let range = range(&entry, &keys.log_end(), RANGE_KEYS_MAX, 0);
        keys.txn(compare, success, vec![range])
    }

    /// The reason not to take this answer to [`Position::txn`], if the list of a member has not
    /// come to this position.
    pub(super) fn refuse(&self, keys: &Keys, response: &TxnResponse) -> Option<&'static str> {
        let has_number = |entry: &KeyValue| keys.number(&entry.key) == Some(self.number);
        keys.refuse(response).or(match response.found(1).first() {
            Some(first) if has_number(first) && !self.is_at(keys, first) => Some(OTHER_LIST),
            Some(_) => None,
            None => Some(OLDER_LIST),
        })
    }

    /// Whether an entry is the one of this position.
    pub(super) fn is_at(&self, keys: &Keys, entry: &KeyValue) -> bool {
        is_put_by(entry, &keys.entry(self.number), &self.id)
    }

    /// Applies the entries of a range that begins with the one of this position, and returns their
    /// edits. `None` if the range does not begin with that entry, or has a gap: then the log was
    /// cut, or is another one.
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
            let key = keys.entry(next.number + 1);
            let LogEntry { id, is_snapshot, edits: written } = format::read(&key, &entry.value)?;
            for edit in written {
                let applied = edit.apply(&mut next.list);
                edits.push(applied.ok_or_else(|| EtcdError::Malformed(key.clone()))?);
            }
            next.advance(id, entry.value.len(), is_snapshot);
        }
        *self = next;
        Ok(Some(edits))
    }

    /// Goes on to the next entry, which has this many bytes. The list is already the one to which
    /// that leads.
    pub(super) fn advance(&mut self, id: String, bytes: usize, is_snapshot: bool) {
        self.id = id;
        self.number += 1;
        self.bytes += bytes;
        if is_snapshot {
            self.snapshot = self.number;
            self.bytes = 0;
        }
    }
}

/// Whether an entry has this key, and was put by this attempt.
pub(super) fn is_put_by(entry: &KeyValue, key: &str, id: &str) -> bool {
    entry.key == key.as_bytes() && entry.value.starts_with(entry_begin(id).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Color;

    /// What came between was cut off, or somebody has deleted it.
    #[test]
    fn entries_are_taken_from_the_one_that_is_known_on_without_a_gap() {
        let keys = Keys::new("colors");
        let color = Color::new("red", "1");
        let entry = |number: u64, id: &str| {
            let mut edits = Vec::new();
            format::write_edits(&mut edits, &[Edit::Append(number.cast_signed(), color.clone())]);
            let value = format::write_entry(id, format::Purpose::Commit, &edits);
            KeyValue { key: keys.entry(number).into(), mod_revision: 0, value }
        };
        for (entries, number) in [
            (vec![entry(1, "a")], Some(1)),
            (vec![entry(1, "a"), entry(2, "b"), entry(3, "c")], Some(3)),
            (vec![entry(1, "a"), entry(3, "c")], None),
            (vec![entry(1, "b"), entry(2, "c")], None),
            (vec![entry(2, "a")], None),
            (vec![], None),
        ] {
            let list = ColorList::from_iter([color.clone()]);
            let mut position =
                Position { list, number: 1, id: "a".to_owned(), snapshot: 0, bytes: 0 };
            let found = position.follow(&keys, entries).unwrap();
            assert_eq!(found.map(|_| position.number), number);
            assert_eq!(position.list.len() as u64, number.unwrap_or(1));
        }
    }
}
