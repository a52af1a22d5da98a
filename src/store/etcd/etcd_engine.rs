//! KEY in etcd as a storage engine: commits, what they have missed, and snapshots.

use std::mem::take;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::EtcdError;
use super::format::{
    Keys, LogEntry, Purpose, snapshot_bytes, snapshot_bytes_after, write_edits, write_entry,
    write_snapshot,
};
use super::gateway::{
    Gateway, KeyValue, STEP_TIME, Txn, WatchResponse, compare, delete_range, put, range,
};
use super::position::{Position, RANGE_KEYS_MAX};
use super::user::User;
use super::watch::LogWatch;
use crate::random;
use crate::store::engine::{Begun, Commit, Engine, Refresh, Save, StorageError, Written};
use crate::store::{ColorList, Edit};

/// How long a start goes on to ask for the list, and to make it.
const START_TIME: Duration = Duration::from_secs(6);

/// How long a save goes on to ask, from when the first of its changes came. A request may begin
/// just before that time is over, and to find the reason of a failure takes up to 0.25 s for each
/// member. Measured with three members that answer byte by byte, a change fails after 5.5 s. If
/// that time is over when the save begins, one member is asked once.
const SAVE_TIME: Duration = Duration::from_millis(4300);

/// How long a poll goes on to ask, and a save without changes, which only finds out whether etcd
/// answers again. Changes that come meanwhile wait for it.
const POLL_TIME: Duration = Duration::from_secs(2);

/// If etcd has answered within this time, a poll asks only the watch. Less than the time between
/// two polls of an idle writer.
const ANSWERED_TIME: Duration = Duration::from_millis(900);

/// Most bytes of a snapshot, and of the edits of one commit. etcd takes requests of 1.5 MiB
/// (`--max-request-bytes`). A list may be replaced by edits, which have the removals besides the
/// colors; the rest is for keys.
const LIST_BYTES_MAX: usize = 1_350_000;
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
    /// What the watch has received, and the engine has not applied.
    watched: Receiver<WatchResponse>,
    position: Position,
    /// The edits that lead from the list that the writer has published to that of `position`.
    edits: Vec<Edit>,
    /// The edits of this save.
    written: Vec<u8>,
    /// A commit has failed. A member that was stopped may still make it later, unless another entry
    /// has taken its place by then.
    is_fence_due: bool,
    /// When etcd last answered.
    answered: Instant,
    /// When another service has last committed.
    contended: Instant,
    /// The next save begins no sooner than this, after a commit that was contended.
    paused_until: Instant,
    /// When the save that has begun gives up.
    deadline: Instant,
}

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
    /// `user`: the file of `--etcd-user-file`.
    pub(crate) fn read(
        members: &[String],
        user: Option<&Path>,
        key: &str,
    ) -> Result<Self, EtcdError> {
        let deadline = Instant::now() + START_TIME;
        let user = user.map(User::new).transpose()?.map(Arc::new);
        let mut gateway = Gateway::new(members, user, STEP_TIME);
        let keys = Keys(key.to_owned());
        let position = Position::read(&mut gateway, &keys, deadline)?;
        Ok(Self { gateway, keys, position, deadline })
    }

    /// The list; `None` if there is none.
    pub(crate) fn list(&self) -> Option<&ColorList> {
        self.position.as_ref().map(|position| &position.list)
    }
}

impl EtcdEngine {
    /// Opens the list at a key. Makes it of the seed if there is none. Returns also whether it has
    /// made it, and what watches for commits of other services.
    pub(crate) fn open(
        found: EtcdKey,
        seed: Option<&ColorList>,
    ) -> Result<(Self, ColorList, bool, LogWatch), EtcdError> {
        let EtcdKey { mut gateway, keys, mut position, deadline } = found;
        let mut is_new = false;
        if let Some(seed) = seed {
            is_new = create(&mut gateway, &keys, seed, deadline)?;
            position = Position::read(&mut gateway, &keys, deadline)?;
        }
        let position = position.ok_or(EtcdError::Missing)?;
        let list = position.list.clone();
        let (watch, watched) = LogWatch::new(&gateway, keys.clone());
        let engine = Self {
            gateway,
            keys,
            watched,
            position,
            edits: Vec::new(),
            written: Vec::new(),
            is_fence_due: false,
            answered: Instant::now(),
            contended: Instant::now(),
            paused_until: Instant::now(),
            deadline,
        };
        Ok((engine, list, is_new, watch))
    }

    /// A transaction: `success` if the position is still the last one, or else a range from the
    /// position on.
    fn txn(&self, success: Vec<serde_json::Value>) -> Txn {
        let entry = self.keys.entry(self.position.number);
        let compare = vec![
            compare(&entry, self.position.revision),
            compare(&self.keys.entry(self.position.number + 1), 0),
        ];
        let failure = vec![range(&entry, &self.keys.log_end(), RANGE_KEYS_MAX)];
        Txn { compare, success, failure }
    }

    /// Puts the next entry, which leads to this list. If another service has put that entry, takes
    /// what others have put.
    fn put(
        &mut self,
        list: &ColorList,
        purpose: Purpose,
        deadline: Instant,
    ) -> Result<Commit, EtcdError> {
        let before = &self.position;
        let number = before.number + 1;
        let key = self.keys.entry(number);
        let id = random::id();
        let value = write_entry(&id, purpose, &self.written);
        let mut success = vec![put(&key, &value)];
        if purpose == Purpose::Snapshot {
            success.push(put(&self.keys.list(), &write_snapshot(number, list)));
            success.push(delete_range(&self.keys.entry(0), &self.keys.entry(before.snapshot)));
        }
        let response = self.gateway.txn(&self.txn(success), deadline);
        self.is_fence_due = match &response {
            Err(EtcdError::TooLong | EtcdError::Refused(_)) => self.is_fence_due,
            Err(_) => true,
            Ok(_) => false,
        };
        let response = response.map_err(|error| match error {
            // No change depends on what comes of it.
            EtcdError::Unavailable { cause, details, .. } if purpose != Purpose::Commit => {
                EtcdError::Unavailable { cause, details, may_be_there: false }
            }
            error => error,
        })?;
        self.answered = Instant::now();
        let mut revision = response.revision();
        if !response.succeeded {
            let was_in_doubt = response.was_in_doubt;
            let found = response.into_kvs();
            let is_known = found.first().is_some_and(|first| before.is_at(&self.keys, first));
            let is_own = |next: &&KeyValue| {
                LogEntry::read(&key, &next.value).is_ok_and(|entry| entry.id == id)
            };
            let Some(own) = found.get(1).filter(|_| is_known).filter(is_own) else {
                let taken = self.take(found, deadline);
                if was_in_doubt && !is_known && purpose == Purpose::Commit {
                    // The log was cut since the first try.
                    let cause = "etcd did not answer in time";
                    let details = String::new();
                    return Err(EtcdError::Unavailable { cause, details, may_be_there: true });
                }
                return taken.map(|()| Commit::Conflict);
            };
            revision = own.mod_revision;
        }
        let is_snapshot = purpose == Purpose::Snapshot;
        self.position.advance(list.clone(), revision, value.len(), is_snapshot);
        Ok(Commit::Done)
    }

    /// Takes the entries of a range from the position on, and those behind the range. Reads all
    /// anew if the range does not begin at the position.
    fn take(&mut self, mut found: Vec<KeyValue>, deadline: Instant) -> Result<(), EtcdError> {
        self.contended = Instant::now();
        loop {
            let is_last = found.len() < RANGE_KEYS_MAX;
            let Some(edits) = self.position.follow(&self.keys, found)? else {
                let position = Position::read(&mut self.gateway, &self.keys, deadline)?;
                self.position = position.ok_or(EtcdError::Missing)?;
                self.edits = vec![Edit::ReplaceAll(self.position.list.clone())];
                return Ok(());
            };
            self.edits.extend(edits);
            if is_last {
                return Ok(());
            }
            let response = self.gateway.txn(&self.txn(Vec::new()), deadline)?;
            if response.succeeded {
                return Ok(());
            }
            found = response.into_kvs();
        }
    }

    /// Asks etcd whether the position is the last one. If not, takes the entries behind it.
    fn refresh(&mut self, deadline: Instant) -> Result<Commit, EtcdError> {
        let response = self.gateway.txn(&self.txn(Vec::new()), deadline)?;
        self.answered = Instant::now();
        if response.succeeded {
            return Ok(Commit::Done);
        }
        self.take(response.into_kvs(), deadline)?;
        Ok(Commit::Conflict)
    }

    /// Applies what the watch has received. Returns whether that may not be all: only a refresh
    /// finds the rest then.
    fn apply_events(&mut self) -> Result<bool, EtcdError> {
        let messages: Vec<_> = self.watched.try_iter().collect();
        for WatchResponse { created, events, .. } in messages {
            if created {
                return Ok(true);
            }
            for entry in events.into_iter().map(|event| event.kv) {
                let Position { number: known, revision, .. } = self.position;
                match self.keys.number(&entry.key) {
                    // Already applied: mostly its own commit.
                    Some(number) if number <= known && entry.mod_revision <= revision => {}
                    Some(number) if number == known + 1 && entry.mod_revision > revision => {
                        self.edits.extend(self.position.apply(&self.keys, &entry)?);
                        self.contended = Instant::now();
                    }
                    // A gap, or a list that was made anew. To apply a later entry could mix two
                    // lists.
                    _ => return Ok(true),
                }
            }
        }
        Ok(false)
    }

    /// The list of the position, unless it is the one that is known.
    fn refreshed(&mut self, known: &ColorList) -> Option<Refresh> {
        let list = self.position.list.clone();
        if list.is_same_version(known) {
            return None;
        }
        let mut edits = take(&mut self.edits);
        if edits.is_empty() {
            // The writer panicked before it had published its own commit.
            edits.push(Edit::ReplaceAll(list.clone()));
        }
        Some(Refresh { list, edits })
    }

    /// Puts a snapshot if one is due, and then has etcd compact.
    fn put_snapshot_if_due(&mut self, deadline: Instant) -> Result<(), EtcdError> {
        let Position { list, number, snapshot, bytes, .. } = &self.position;
        let is_due =
            number - snapshot >= ENTRIES_MAX || *bytes > snapshot_bytes(list) + ENTRIES_BYTES_MAX;
        if is_due && let Commit::Done = self.put(&list.clone(), Purpose::Snapshot, deadline)? {
            self.gateway.compact(self.position.revision);
        }
        Ok(())
    }
}

/// Makes the list at a key, unless there is one. Returns whether it has made it. That is false also
/// if it has and the answer was lost.
fn create(
    gateway: &mut Gateway,
    keys: &Keys,
    seed: &ColorList,
    deadline: Instant,
) -> Result<bool, EtcdError> {
    if snapshot_bytes(seed) > LIST_BYTES_MAX {
        return Err(EtcdError::ListTooLong(LIST_BYTES_MAX));
    }
    let success = vec![
        put(&keys.list(), &write_snapshot(0, seed)),
        put(&keys.entry(0), &write_entry(&random::id(), Purpose::Snapshot, b"")),
        // Left by a list whose snapshot somebody has deleted.
        delete_range(&keys.entry(1), &keys.log_end()),
    ];
    let compare = vec![compare(&keys.list(), 0)];
    let txn = Txn { compare, success, ..Txn::default() };
    Ok(gateway.txn(&txn, deadline)?.succeeded)
}

impl Engine for EtcdEngine {
    fn begin(&mut self, known: &ColorList, save: &Save) -> Result<Begun, StorageError> {
        sleep(self.paused_until.saturating_duration_since(Instant::now()));
        let deadline = save.oldest.map_or(save.begun + POLL_TIME, |oldest| oldest + SAVE_TIME);
        if self.apply_events()? {
            self.refresh(deadline)?;
        }
        if self.is_fence_due {
            self.put(&self.position.list.clone(), Purpose::Fence, deadline)?;
        }
        self.put_snapshot_if_due(deadline)?;
        self.deadline = deadline;
        Ok(Begun::Ready(self.refreshed(known)))
    }

    fn poll(&mut self, known: &ColorList) -> Result<Option<Refresh>, StorageError> {
        if self.apply_events()? || self.answered.elapsed() > ANSWERED_TIME {
            self.refresh(Instant::now() + POLL_TIME)?;
        }
        Ok(self.refreshed(known))
    }

    fn write(&mut self, edits: &[Edit], list: &ColorList) -> Result<Written, StorageError> {
        let bytes = snapshot_bytes_after(list, edits);
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
            self.refresh(self.deadline)?
        } else {
            self.put(version, Purpose::Commit, self.deadline)?
        };
        match commit {
            Commit::Conflict if Instant::now() > self.deadline => return Ok(Commit::Contended),
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
