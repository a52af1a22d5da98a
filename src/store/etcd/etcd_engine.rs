//! KEY in etcd as a storage engine: commits, what they have missed, and snapshots.

use std::mem::take;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::EtcdError;
use super::format::{
    Keys, Purpose, random_id, snapshot_bytes, write_edits, write_entry, write_snapshot,
};
use super::gateway::{Gateway, KeyValue, TxnResponse, delete_range, put};
use super::position::{Position, RANGE_KEYS_MAX, is_put_by};
use crate::store::engine::{Begun, Commit, Engine, Refresh, Save, StorageError, Written};
use crate::store::{ColorList, Edit};

/// How long a save goes on to ask, from when the first of its changes came. A request may begin
/// just before that time is over. If it is over when the save begins, one member is asked once.
const SAVE_TIME: Duration = Duration::from_millis(4300);

/// How long a poll goes on to ask, and a save without changes, which only finds out whether etcd
/// answers again. Changes that come meanwhile wait for it.
const POLL_TIME: Duration = Duration::from_secs(2);

/// If etcd has answered within this time, a poll asks it only if the watch has news. Less than the
/// time between two polls of an idle writer.
const ANSWERED_TIME: Duration = Duration::from_millis(900);

/// Most bytes of a snapshot, and of the edits of one commit. etcd takes requests of 1.5 MiB
/// (`--max-request-bytes`). A list may be replaced by edits, which have the removals besides the
/// colors; the rest is for keys.
pub(super) const LIST_BYTES_MAX: usize = 1_350_000;
const EDITS_BYTES_MAX: usize = 1_500_000;

/// A snapshot is due after this many entries, or when the entries have this many bytes more than
/// the list. A start reads all entries since the snapshot, and etcd keeps them in memory.
const ENTRIES_MAX: u64 = 1000;
const ENTRIES_BYTES_MAX: usize = 1024 * 1024;

/// If another service has committed within this time, a service pauses after its own commit: for as
/// long as that took, and up to twice as long, at random. Otherwise the service that was first once
/// would be first again and again: the others have to read what they have missed before they can
/// commit.
const CONTENTION_TIME: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_millis(100);

pub(crate) struct EtcdEngine {
    gateway: Gateway,
    keys: Keys,
    /// The revision of etcd when the watch was last told of something.
    watched: Arc<AtomicI64>,
    /// The revision of etcd in its last answer to a transaction of this engine. What the watch was
    /// told by then is no news.
    read_at: i64,
    pub(super) position: Position,
    /// The edits that lead from the list that readers have to that of `position`. Kept, since a
    /// save or a poll may fail after it has taken entries.
    edits: Vec<Edit>,
    /// The edits of this save.
    written: Vec<u8>,
    /// A commit has failed. A member that was stopped may still make it later, unless another entry
    /// has taken its place by then. And if etcd has refused it, only another one shows that it
    /// takes commits again.
    is_fence_due: bool,
    /// When etcd last answered [`EtcdEngine::ask`].
    answered: Instant,
    /// When entries of other services were last taken.
    contended: Instant,
    /// The next save begins no sooner than this, after a commit that was contended.
    paused_until: Instant,
}

impl EtcdEngine {
    /// The engine of a list that was read. `watched`: what its watch notes.
    pub(super) fn new(
        gateway: Gateway,
        keys: Keys,
        position: Position,
        watched: Arc<AtomicI64>,
    ) -> Self {
        let now = Instant::now();
        Self {
            gateway,
            keys,
            watched,
            read_at: 0,
            position,
            edits: Vec::new(),
            written: Vec::new(),
            is_fence_due: false,
            answered: now,
            contended: now,
            paused_until: now,
        }
    }

    /// Puts a fence, so that a commit of an earlier process, which a member may hold, is either
    /// made before this or never. A conflict does as well: another entry has the place.
    pub(super) fn put_first_fence(&mut self) -> Result<(), EtcdError> {
        self.put(&self.position.list.clone(), Purpose::Fence)?;
        self.edits.clear();
        Ok(())
    }

    /// Has etcd make `success` if the position is still the last one. Otherwise the answer has the
    /// entries from the position on, in place 1.
    fn ask(&mut self, success: Vec<serde_json::Value>) -> Result<TxnResponse, EtcdError> {
        let Self { gateway, keys, position, .. } = self;
        let txn = position.txn(keys, success);
        let response = gateway.txn(&txn, |response| position.refuse(keys, response))?;
        self.answered = Instant::now();
        self.read_at = response.revision();
        Ok(response)
    }

    /// Puts the next entry, which leads to this list. If another service has put that entry, takes
    /// what others have put.
    fn put(&mut self, list: &ColorList, purpose: Purpose) -> Result<Commit, EtcdError> {
        let before = self.position.clone();
        let number = before.number + 1;
        let key = self.keys.entry(number);
        let id = random_id();
        let edits = match purpose {
            Purpose::Commit => &*self.written,
            Purpose::Snapshot | Purpose::Fence => b"",
        };
        let value = write_entry(&id, purpose, edits);
        let mut success = vec![put(&key, &value)];
        if purpose == Purpose::Snapshot {
            success.push(put(&self.keys.list(), &write_snapshot(number, list)));
            success.push(delete_range(&self.keys.entry(0), &self.keys.entry(before.snapshot)));
        }
        // If this fails or panics.
        self.is_fence_due = true;
        let mut response = self.ask(success).map_err(|error| match purpose {
            Purpose::Commit => error,
            // No change depends on what comes of it.
            Purpose::Snapshot | Purpose::Fence => error.without_doubt(),
        })?;
        self.is_fence_due = false;
        if !response.succeeded {
            let was_in_doubt = response.was_in_doubt;
            let found = response.take_found(1);
            let is_known = found.first().is_some_and(|first| before.is_at(&self.keys, first));
            // The answer to an earlier try was lost.
            let is_made = is_known && found.iter().any(|entry| is_put_by(entry, &key, &id));
            if !is_made {
                let taken = self.take_entries(found);
                if was_in_doubt && !is_known && purpose == Purpose::Commit {
                    // The log was cut since the first try.
                    return Err(EtcdError::in_doubt("etcd did not answer in time"));
                }
                return taken.map(|()| Commit::Conflict);
            }
        }
        let is_snapshot = purpose == Purpose::Snapshot;
        self.position.list.clone_from(list);
        self.position.advance(id, value.len(), is_snapshot);
        Ok(Commit::Done)
    }

    /// Takes the entries of a range from the position on, and those behind the range. Reads all
    /// anew if the range does not begin at the position.
    fn take_entries(&mut self, mut found: Vec<KeyValue>) -> Result<(), EtcdError> {
        self.contended = Instant::now();
        loop {
            let is_last = found.len() < RANGE_KEYS_MAX;
            let Some(edits) = self.position.follow(&self.keys, found)? else {
                return self.read_anew();
            };
            self.edits.extend(edits);
            if is_last {
                return Ok(());
            }
            let mut response = self.ask(Vec::new())?;
            if response.succeeded {
                return Ok(());
            }
            found = response.take_found(1);
        }
    }

    /// Reads the whole list: the log was cut behind the position.
    fn read_anew(&mut self) -> Result<(), EtcdError> {
        let position = Position::read(&mut self.gateway, &self.keys)?;
        let position = position.ok_or(EtcdError::Missing)?;
        // The log begins behind the old position, so the list that was read is a later one.
        if position.number <= self.position.number {
            return Err(EtcdError::Malformed(self.keys.entry(position.number)));
        }
        self.position = position;
        self.edits = vec![Edit::ReplaceAll(self.position.list.clone())];
        Ok(())
    }

    /// Asks etcd whether the position is the last one. If not, takes the entries behind it.
    fn refresh(&mut self) -> Result<Commit, EtcdError> {
        let mut response = self.ask(Vec::new())?;
        if response.succeeded {
            return Ok(Commit::Done);
        }
        self.take_entries(response.take_found(1))?;
        Ok(Commit::Conflict)
    }

    /// Whether the watch was told of something that came after the last answer of etcd.
    fn has_news(&self) -> bool {
        self.watched.load(Relaxed) > self.read_at
    }

    /// Takes what the watch was told of. Mostly the member that is asked has it, too, so it is read
    /// there: that takes half of the time of [`EtcdEngine::refresh`].
    fn take_news(&mut self) -> Result<(), EtcdError> {
        let Self { gateway, keys, position, .. } = self;
        let txn = position.txn(keys, Vec::new()).serializable();
        let mut response = gateway.txn(&txn, |_| None)?;
        if response.succeeded || position.refuse(keys, &response).is_some() {
            // The member is behind the one that is watched, or has another list.
            return self.refresh().map(drop);
        }
        self.read_at = response.revision();
        self.take_entries(response.take_found(1))
    }

    /// The list of the position, unless readers have it.
    fn refreshed(&mut self) -> Option<Refresh> {
        let edits = take(&mut self.edits);
        (!edits.is_empty()).then(|| Refresh { list: self.position.list.clone(), edits })
    }

    /// Puts a snapshot if one is due, and then has etcd compact.
    fn put_snapshot_if_due(&mut self) -> Result<(), EtcdError> {
        let Position { list, number, snapshot, bytes, .. } = &self.position;
        let is_due =
            number - snapshot >= ENTRIES_MAX || *bytes > snapshot_bytes(list) + ENTRIES_BYTES_MAX;
        if is_due && let Commit::Done = self.put(&list.clone(), Purpose::Snapshot)? {
            self.gateway.compact(self.read_at);
        }
        Ok(())
    }
}

impl Engine for EtcdEngine {
    fn begin(&mut self, save: &Save) -> Result<Begun, StorageError> {
        sleep(self.paused_until.saturating_duration_since(Instant::now()));
        self.gateway.deadline =
            save.oldest.map_or(save.begun + POLL_TIME, |oldest| oldest + SAVE_TIME);
        if self.has_news() {
            self.take_news()?;
        }
        if self.is_fence_due {
            self.put(&self.position.list.clone(), Purpose::Fence)?;
        }
        self.put_snapshot_if_due()?;
        if save.is_behind {
            self.edits = vec![Edit::ReplaceAll(self.position.list.clone())];
        }
        Ok(Begun::Ready(self.refreshed()))
    }

    fn poll(&mut self) -> Result<Option<Refresh>, StorageError> {
        self.gateway.deadline = Instant::now() + POLL_TIME;
        if self.has_news() {
            self.take_news()?;
        } else if self.answered.elapsed() > ANSWERED_TIME {
            self.refresh()?;
        }
        Ok(self.refreshed())
    }

    fn write(&mut self, edits: &[Edit], list: &ColorList) -> Result<Written, StorageError> {
        let mut after = list.clone();
        edits.iter().for_each(|edit| drop(after.apply(edit)));
        let bytes = snapshot_bytes(&after);
        if bytes > LIST_BYTES_MAX && bytes > snapshot_bytes(list) {
            return Ok(Written::TooLong);
        }
        let before = self.written.len();
        write_edits(&mut self.written, edits);
        if self.written.len() <= EDITS_BYTES_MAX {
            return Ok(Written::Yes);
        }
        self.written.truncate(before);
        Ok(if before == 0 { Written::TooLong } else { Written::NextCommit })
    }

    fn commit(&mut self, version: &ColorList) -> Result<Commit, StorageError> {
        let begun = Instant::now();
        let commit = if self.written.is_empty() {
            self.refresh()?
        } else {
            self.put(version, Purpose::Commit)?
        };
        match commit {
            Commit::Conflict if Instant::now() > self.gateway.deadline => {
                return Ok(Commit::Contended);
            }
            Commit::Done
                if !self.written.is_empty() && self.contended.elapsed() < CONTENTION_TIME =>
            {
                let pause = begun.elapsed().mul_f64(1.0 + fastrand::f64());
                self.paused_until = Instant::now() + pause.min(PAUSE_MAX);
            }
            _ => {}
        }
        Ok(commit)
    }

    fn roll_back(&mut self) {
        self.written.clear();
    }

    fn close(self: Box<Self>) -> Result<(), String> {
        Ok(())
    }
}
