//! The list and how it is kept: one mutex around its current version, which all workers share, and
//! one writer for the storage, which an [`Engine`] keeps. Of HTTP it knows entity tags and
//! conditions.
//!
//! # Threads
//!
//! Any thread may read the current version: it takes a clone, which is quick, and which no later
//! change alters. Which thread changes the list depends on where the list is kept:
//!
//! | kept | changed by | which may wait for |
//! |---|---|---|
//! | in memory | the thread that calls [`SharedList::change`] | nothing |
//! | in FILE | the writer: [`Writer::run`] | the disk, and locks of other programs |
//! | in etcd | the writer | etcd, and other services that commit |
//!
//! The writer gives each change back with its outcome. The thread that publishes a new version calls
//! the [`ChangeListener`]. Neither of these two functions waits for more than a lock. A save or a
//! poll that panics has failed; if that is in a commit, its changes are in doubt. After any other
//! panic of the writer the process ends, since nothing would be saved any more.
//!
//! # Locks
//!
//! In this process: `SharedList::current` and `StorageStatus::current`. No thread has both, and
//! each is held for a moment. Under the first, a change of one color in a list in memory is decided
//! and applied. The longest work under it is to hash names, and the JSON of a color of at most 16
//! KiB: the tag of a longer one is ready
//! ([`Representation`](crate::representation::Representation)). The JSON and the tag of a list are
//! made, and whole lists are freed, without these locks. `SharedList::latest` is held while an
//! envelope is made, by the one thread that makes long ones. The locks on FILE, between processes,
//! are listed in [`sqlite`].
//!
//! # Deadlines
//!
//! | who | waits for | at most |
//! |---|---|---|
//! | a change | SQLite's write lock | 5 s; then it fails (500) |
//! | a change | etcd | about 5 s; then it fails (500 or 503). Further ones are refused at once (503) until etcd answers, which a poll each second finds out |
//! | the writer | one member of etcd | 1 s for each step; then it asks another one |
//! | a change | those before it in its commit | 50 ms, and the rest of the one that is being made |
//! | the writer | the next poll for commits of others | 1 s |
//! | a start | a predecessor that stops | 6 s |
//! | a start | etcd | 6 s, and 0.5 s for the members that do not answer |
//! | a start without a copy | the service that is followed | 6 s, and one more try |
//! | a stop | the writer's last commit | 4.5 s from the signal |
//!
//! After a stop the process ends, whatever the writer does. The exception is a call to the disk
//! that the kernel does not interrupt: it keeps the process until it returns.
//!
//! `/health` reports a save that takes longer than 5 s, until it ends. A save that waits for the
//! write lock tries again and again; the time begins anew with each try: [`StorageStatus`].

mod change;
mod color;
mod color_list;
mod difference;
mod engine;
pub(crate) mod etcd;
pub(crate) mod json;
mod list;
pub(crate) mod sqlite;
mod storage_status;
mod writer;

use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::time::Instant;

pub(crate) use change::{Action, Change, Outcome};
pub(crate) use color::{Color, ColorJson};
pub(crate) use color_list::{ColorList, Edit};
use engine::Engine;
pub(crate) use engine::{Certainty, OpenPlace, Place, StorageError};
pub(crate) use json::JsonError;
pub(crate) use list::{ChangeListener, SharedList, Step};
pub(crate) use storage_status::StorageStatus;
pub(crate) use writer::{Writer, WriterMessage};

/// The list, and where it is kept. `S`: who submits changes, and gets their outcomes.
pub(crate) struct Store<S> {
    /// What is read.
    pub(crate) list: Arc<SharedList>,
    /// The channel to the writer, which makes the changes, and whether it can save them. `None` for
    /// a list that is in memory alone.
    writer: Option<(Sender<WriterMessage<S>>, Arc<StorageStatus>)>,
}

/// What came of a change, or why it could not be saved. If it was made, readers see it, and with
/// `--data` it is durable.
pub(crate) type Decided = Result<Outcome, StorageError>;

impl<S> Store<S> {
    /// A list that is in memory alone. [`Writer::new`] makes one with an engine.
    pub(crate) fn in_memory(colors: ColorList, notify: ChangeListener) -> Self {
        let list = Arc::new(SharedList::new(colors, notify));
        Self { list, writer: None }
    }

    /// A list whose changes are left in a queue, from which a test takes them.
    #[cfg(test)]
    pub(crate) fn queueing(
        colors: ColorList,
        notify: ChangeListener,
    ) -> (Self, mpsc::Receiver<WriterMessage<S>>) {
        let (writer, queue) = mpsc::channel();
        let writer = Some((writer, Arc::new(StorageStatus::new(None))));
        (Self { list: Arc::new(SharedList::new(colors, notify)), writer }, queue)
    }

    /// Whether saving works; `None` for a list in memory.
    pub(crate) fn status(&self) -> Option<&Arc<StorageStatus>> {
        self.writer.as_ref().map(|(_, status)| status)
    }

    /// Has the writer make changes. Returns those that are decided at once: all without a writer,
    /// however long that takes, and all while it is known that the storage cannot be used.
    #[must_use = "somebody waits for what is decided at once"]
    pub(crate) fn submit(&self, changes: Vec<(S, Change)>) -> Vec<(S, Decided)> {
        let Some((writer, status)) = &self.writer else {
            let make = |(submitter, change)| (submitter, Ok(self.list.change(&change)));
            return changes.into_iter().map(make).collect();
        };
        if let Some(refusal) = status.refusal() {
            let refuse = |(submitter, _)| (submitter, Err(refusal.clone()));
            return changes.into_iter().map(refuse).collect();
        }
        // Fails if the writer has ended. Then the service ends, and answers nobody.
        let _ = writer.send(WriterMessage::Changes(changes, Instant::now()));
        Vec::new()
    }

    /// Has the writer find out whether others have changed the list.
    pub(crate) fn poll(&self) {
        if let Some((writer, _)) = &self.writer {
            // Fails if the writer has ended. Then the service ends.
            let _ = writer.send(WriterMessage::Poll);
        }
    }

    /// Makes a change, and waits for what comes of it. Fails if it cannot be saved. `None`: the
    /// writer has ended, and the process is about to. `submitter`: the one who has the outcome sent
    /// there.
    pub(crate) fn submit_and_wait(
        &self,
        change: Change,
        submitter: impl FnOnce(Sender<Decided>) -> S,
    ) -> Option<Decided> {
        let (sender, outcome) = mpsc::channel();
        match self.submit(vec![(submitter(sender), change)]).pop() {
            Some((_, decided)) => Some(decided),
            None => outcome.recv().ok(),
        }
    }

    /// Has the writer save what is queued and close the storage. If that is FILE, it alone is the
    /// list then. Fails with the reason why it may not be, such as that the deadline has passed.
    pub(crate) fn close(&self, deadline: Instant) -> Result<(), String> {
        let Some((writer, _)) = &self.writer else { return Ok(()) };
        let (sender, closed) = mpsc::channel();
        // Fails if the writer has ended. Then the receiver fails as well, at once.
        let _ = writer.send(WriterMessage::Close(sender));
        let result = closed.recv_timeout(deadline.saturating_duration_since(Instant::now()));
        result.unwrap_or_else(|_| Err("the storage was not closed in time".to_owned()))
    }
}

#[cfg(test)]
mod engine_tests;
#[cfg(test)]
mod file_place_tests;
