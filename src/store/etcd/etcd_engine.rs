//! KEY in etcd as a storage engine: commits, what they have missed, and snapshots.

use std::mem::take;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::EtcdError;
use super::error::Cause;
use super::format::{
    Keys, LogEntry, snapshot_bytes, snapshot_bytes_after, write_edits, write_entry, write_snapshot,
};
use super::gateway::{Gateway, KeyValue, Transaction, delete, get, get_range, has_revision, put};
use super::position::{PAGE, Position};
use super::watch::{LogWatch, News};
use crate::random;
use crate::store::engine::{Begun, Commit, Engine, Newer, Save, StorageError, Written};
use crate::store::{ColorList, Edit};

/// How long a start goes on to ask for the list.
const START_TIME: Duration = Duration::from_secs(6);

/// How long a save goes on to ask, from when the first of its changes came. To find the reason may
/// take a quarter of a second more for each member.
const SAVE_TIME: Duration = Duration::from_millis(4300);

/// How long a save goes on to ask at least. A save without changes only finds out whether etcd
/// answers again; changes that come meanwhile wait for it.
const RETRY_TIME: Duration = Duration::from_millis(500);

/// How long a look for commits of others goes on to ask.
const LOOK_TIME: Duration = Duration::from_secs(1);

/// A look is not sent to etcd if etcd has answered within this time: then the watch tells what is
/// new. Less than the time between two looks of an idle writer.
const ANSWERED_TIME: Duration = Duration::from_millis(900);

/// Most bytes of a snapshot, and of the edits of one commit. etcd takes requests of 1.5 MiB
/// (`--max-request-bytes`); the rest is for keys, and for the removals in a list that is replaced
/// by edits.
const LIST_BYTES_MAX: usize = 1_350_000;
const EDITS_BYTES_MAX: usize = 1_500_000;

/// A snapshot is due after so many entries, or when they have this many bytes more than the list: a
/// start reads them all, and etcd keeps them in memory.
const ENTRIES_MAX: u64 = 1000;
const ENTRIES_BYTES_MAX: usize = 1024 * 1024;

/// The pause after a snapshot that etcd has refused.
const SNAPSHOT_PAUSE: Duration = Duration::from_secs(10);

/// If another service has committed within this time, the one that commits pauses after it for as
/// long as its commit took, and up to twice as long at random. Otherwise who was first once would
/// be first again and again, since the others first have to learn what they have missed.
const CONTENTION_TIME: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_millis(100);

pub(crate) struct EtcdEngine {
    gateway: Gateway,
    keys: Keys,
    news: News,
    position: Position,
    /// The version that was handed over last, and the edits from there to that of `position`.
    handed: ColorList,
    edits: Vec<Edit>,
    /// The edits of this save.
    written: Vec<u8>,
    /// A commit has failed. It may still be made by a member that was stopped, until there is
    /// another entry in its place.
    is_fence_due: bool,
    /// When etcd last answered.
    answered: Instant,
    /// When another service has last committed.
    contended: Option<Instant>,
    /// The next save does not begin before.
    paused_until: Instant,
    /// When the save ends its tries.
    deadline: Instant,
    /// Why the last snapshot was refused, and when; `None` if it was not.
    snapshot_failure: Option<(EtcdError, Instant)>,
}

/// Reads the list at a key; `None` if there is none.
pub(crate) fn read(members: &[String], key: &str) -> Result<Option<ColorList>, EtcdError> {
    let deadline = Instant::now() + START_TIME;
    let found = Position::read(&Gateway::new(members), &Keys(key.to_owned()), deadline)?;
    Ok(found.map(|position| position.list))
}

impl EtcdEngine {
    /// Opens the list at a key. Makes it of these colors if there is none. Returns also whether it
    /// has made it, and what tells the engine of commits of other services.
    pub(crate) fn open(
        members: &[String],
        key: &str,
        seed: Option<&ColorList>,
    ) -> Result<(Self, ColorList, bool, LogWatch), EtcdError> {
        let gateway = Gateway::new(members);
        let keys = Keys(key.to_owned());
        let deadline = Instant::now() + START_TIME;
        let mut is_new = false;
        if let Some(seed) = seed {
            is_new = create(&gateway, &keys, seed, deadline)?;
        }
        let position = Position::read(&gateway, &keys, deadline)?.ok_or(EtcdError::Missing)?;
        let list = position.list.clone();
        let news = News::default();
        let watch = LogWatch::new(gateway.clone(), keys.clone(), news.clone());
        let engine = Self {
            gateway,
            keys,
            news,
            position,
            handed: list.clone(),
            edits: Vec::new(),
            written: Vec::new(),
            is_fence_due: false,
            answered: Instant::now(),
            contended: None,
            paused_until: Instant::now(),
            deadline,
            snapshot_failure: None,
        };
        Ok((engine, list, is_new, watch))
    }

    /// The transaction that does this if the position is still the last one, and else reads what is
    /// there from it on.
    fn transaction(&self, success: Vec<serde_json::Value>) -> Transaction {
        let entry = self.keys.entry(self.position.number);
        let compare = vec![
            has_revision(&entry, self.position.revision),
            has_revision(&self.keys.entry(self.position.number + 1), 0),
        ];
        let failure = vec![get_range(&entry, &self.keys.log_end(), PAGE)];
        Transaction { compare, success, failure }
    }

    /// Puts the next entry, which leads to this list, perhaps with a snapshot. If others were
    /// faster, takes what they have put.
    fn put(
        &mut self,
        list: &ColorList,
        is_snapshot: bool,
        deadline: Instant,
    ) -> Result<Commit, EtcdError> {
        let before = &self.position;
        let number = before.number + 1;
        let key = self.keys.entry(number);
        let id = random::id();
        let value = write_entry(&id, is_snapshot, &self.written);
        let mut success = vec![put(&key, &value)];
        if is_snapshot {
            success.push(put(&self.keys.list(), &write_snapshot(number, list)));
            success.push(delete(&self.keys.entry(0), &self.keys.entry(before.snapshot)));
        }
        let asked = self.gateway.ask(&self.transaction(success), deadline);
        self.is_fence_due = match &asked {
            Err(EtcdError::TooLong | EtcdError::Refused(_)) => self.is_fence_due,
            Err(_) => true,
            Ok(_) => false,
        };
        let answer = asked?;
        self.answered = Instant::now();
        let was_in_doubt = answer.was_in_doubt;
        let mut revision = answer.revision();
        let mut found = Vec::new();
        if !answer.succeeded {
            found = answer.into_found().unwrap_or_default();
            let is_known = found.first().is_some_and(|first| before.is_at(&self.keys, first));
            let own = |next: &&KeyValue| {
                LogEntry::read(&key, &next.value).is_ok_and(|entry| entry.id == id)
            };
            match found.get(1).filter(|_| is_known).filter(own) {
                Some(own) => revision = own.mod_revision,
                None => {
                    let taken = self.take(found, deadline);
                    if was_in_doubt && !is_known {
                        return Err(EtcdError::OutcomeLost);
                    }
                    return taken.map(|()| Commit::Outrun);
                }
            }
            found.remove(0);
        }
        let (snapshot, bytes) =
            if is_snapshot { (number, 0) } else { (before.snapshot, before.bytes + value.len()) };
        if !list.is_same_version(&before.list) {
            self.handed = list.clone();
            self.edits.clear();
        }
        self.position = Position { list: list.clone(), number, revision, snapshot, bytes };
        if found.len() > 1 {
            // This entry is in, whatever comes of those behind it: they come again.
            let _ = self.take(found, deadline);
        }
        Ok(Commit::Done)
    }

    /// Puts an entry that changes nothing: a fence or a snapshot. No change depends on its outcome.
    fn put_without_edits(
        &mut self,
        is_snapshot: bool,
        deadline: Instant,
    ) -> Result<Commit, EtcdError> {
        match self.put(&self.position.list.clone(), is_snapshot, deadline) {
            // The log has gone on, so that what is in doubt comes too late.
            Err(EtcdError::OutcomeLost) => Ok(Commit::Outrun),
            Err(EtcdError::Unavailable { cause, .. }) => {
                Err(EtcdError::Unavailable { cause, may_be_there: false })
            }
            put => put,
        }
    }

    /// Takes what was found from the position on. Reads all anew if that is not behind it.
    fn take(&mut self, mut found: Vec<KeyValue>, deadline: Instant) -> Result<(), EtcdError> {
        self.contended = Some(Instant::now());
        loop {
            let is_last = found.len() < PAGE;
            let Some(edits) = self.position.follow(&self.keys, found)? else {
                let position = Position::read(&self.gateway, &self.keys, deadline)?;
                self.position = position.ok_or(EtcdError::Missing)?;
                // No edits lead there from what was handed over.
                self.handed = ColorList::default();
                return Ok(());
            };
            self.edits.extend(edits);
            if is_last {
                return Ok(());
            }
            let answer = self.gateway.ask(&self.transaction(Vec::new()), deadline)?;
            if answer.succeeded {
                return Ok(());
            }
            found = answer.into_found().unwrap_or_default();
        }
    }

    /// Asks whether the position is the last one, and takes what there is behind it.
    fn look(&mut self, deadline: Instant) -> Result<Commit, EtcdError> {
        let answer = self.gateway.ask(&self.transaction(Vec::new()), deadline)?;
        self.answered = Instant::now();
        if answer.succeeded {
            return Ok(Commit::Done);
        }
        self.take(answer.into_found().unwrap_or_default(), deadline)?;
        Ok(Commit::Outrun)
    }

    /// Applies what the watch has seen. Looks where that is not the next entry, and also after a
    /// time without an answer if `may_be_idle`.
    fn take_news(&mut self, may_be_idle: bool, deadline: Instant) -> Result<(), EtcdError> {
        let (entries, mut is_look_due) = self.news.take();
        for found in entries {
            // The look finds them all. To apply one after a gap could mix two lists.
            if is_look_due {
                break;
            }
            let Position { number: known, revision, .. } = self.position;
            match self.keys.number(&found.key) {
                // Already applied: mostly its own commit.
                Some(number) if number <= known && found.mod_revision <= revision => {}
                Some(number) if number == known + 1 && found.mod_revision > revision => {
                    self.edits.extend(self.position.apply(&self.keys, &found)?);
                    self.contended = Some(Instant::now());
                }
                // A gap, or a list that was made anew.
                _ => is_look_due = true,
            }
        }
        if is_look_due || may_be_idle && self.answered.elapsed() > ANSWERED_TIME {
            self.look(deadline)?;
        }
        Ok(())
    }

    /// Hands over the list unless it is the one that is known.
    fn newer(&mut self, known: &ColorList) -> Option<Newer> {
        let list = self.position.list.clone();
        if list.is_same_version(known) {
            return None;
        }
        let mut edits = take(&mut self.edits);
        if !known.is_same_version(&self.handed) {
            edits = vec![Edit::ReplaceAll(list.clone())];
        }
        self.handed = list.clone();
        Some(Newer { list, edits })
    }

    /// Puts a snapshot if one is due. Fails if etcd does not answer; if it refuses the snapshot
    /// alone, [`Engine::fault`] says so.
    fn put_snapshot_if_due(&mut self, deadline: Instant) -> Result<(), EtcdError> {
        let Position { list, number, snapshot, bytes, .. } = &self.position;
        let is_due =
            number - snapshot >= ENTRIES_MAX || *bytes > snapshot_bytes(list) + ENTRIES_BYTES_MAX;
        let failed = self.snapshot_failure.as_ref();
        if !is_due || failed.is_some_and(|(_, at)| at.elapsed() < SNAPSHOT_PAUSE) {
            return Ok(());
        }
        match self.put_without_edits(true, deadline) {
            Ok(Commit::Done) => {
                self.snapshot_failure = None;
                self.gateway.compact(self.position.revision);
                Ok(())
            }
            Ok(Commit::Outrun) => Ok(()),
            Err(error @ (EtcdError::TooLong | EtcdError::Refused(_))) => {
                let error = EtcdError::NoSnapshot(error.to_string());
                self.snapshot_failure = Some((error, Instant::now()));
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

/// Makes the list at a key, unless there is one. Returns whether it has made it.
fn create(
    gateway: &Gateway,
    keys: &Keys,
    seed: &ColorList,
    deadline: Instant,
) -> Result<bool, EtcdError> {
    if snapshot_bytes(seed) > LIST_BYTES_MAX {
        return Err(EtcdError::ListTooLong(LIST_BYTES_MAX));
    }
    let (first, id) = (keys.entry(0), random::id());
    let success = vec![
        put(&keys.list(), &write_snapshot(0, seed)),
        put(&first, &write_entry(&id, true, b"")),
        // Left by a list whose snapshot somebody has deleted.
        delete(&keys.entry(1), &keys.log_end()),
    ];
    let compare = vec![has_revision(&keys.list(), 0)];
    let failure = vec![get(&first)];
    let answer = gateway.ask(&Transaction { compare, success, failure }, deadline)?;
    // If the answer to the first try was lost, the second one finds what that has made.
    let is_own =
        |found: &KeyValue| LogEntry::read(&first, &found.value).is_ok_and(|it| it.id == id);
    Ok(answer.succeeded || answer.into_found().unwrap_or_default().iter().any(is_own))
}

impl Engine for EtcdEngine {
    fn begin(&mut self, known: &ColorList, save: &Save) -> Result<Begun, StorageError> {
        sleep(self.paused_until.saturating_duration_since(Instant::now()));
        let at_least = save.begun + RETRY_TIME;
        let deadline = save.oldest.map_or(at_least, |oldest| at_least.max(oldest + SAVE_TIME));
        if Instant::now() > deadline {
            let cause = Cause::Contended;
            return Err(EtcdError::Unavailable { cause, may_be_there: false }.into());
        }
        self.take_news(false, deadline)?;
        if self.is_fence_due {
            self.put_without_edits(false, deadline)?;
        }
        self.put_snapshot_if_due(deadline)?;
        self.deadline = deadline;
        Ok(Begun::Ready(self.newer(known)))
    }

    fn read_if_changed(&mut self, known: &ColorList) -> Result<Option<Newer>, StorageError> {
        self.take_news(true, Instant::now() + LOOK_TIME)?;
        Ok(self.newer(known))
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
        if self.written.is_empty() {
            return Ok(self.look(self.deadline)?);
        }
        let begun = Instant::now();
        let commit = self.put(version, false, self.deadline)?;
        if let Commit::Done = commit
            && self.contended.is_some_and(|contended| contended.elapsed() < CONTENTION_TIME)
        {
            let pause = begun.elapsed().mul_f64(1.0 + fastrand::f64());
            self.paused_until = Instant::now() + pause.min(PAUSE_MAX);
        }
        Ok(commit)
    }

    fn roll_back(&mut self) {
        self.written.clear();
    }

    fn fault(&self) -> Option<StorageError> {
        self.snapshot_failure.as_ref().map(|(error, _)| error.clone().into())
    }

    fn close(self: Box<Self>) -> Result<(), String> {
        Ok(())
    }
}
