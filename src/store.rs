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
//! The writer passes the outcome of each change to the [`Deliver`] that came with the change. The
//! thread that publishes a new version calls the [`ChangeListener`]. Neither of these two functions
//! waits for more than a lock. A save or a poll that panics has failed; if that is in a commit, its
//! changes are in doubt. After any other panic of the writer the process ends, since nothing would
//! be saved any more.
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

/// The list, and where it is kept. A clone is the same list.
#[derive(Clone)]
pub(crate) struct Store {
    /// What is read.
    pub(crate) list: Arc<SharedList>,
    /// The channel to the writer, which makes the changes, and whether it can save them. `None` for
    /// a list that is in memory alone.
    writer: Option<(Sender<WriterMessage>, Arc<StorageStatus>)>,
}

/// Called with the outcomes of changes, each behind the id that its change was submitted with: when
/// readers see the changes, and with `--data` only once they are durable, or when they could not be
/// saved. The outcomes of one commit come in one or more calls.
pub(crate) type Deliver = dyn Fn(Vec<(u64, Result<Outcome, StorageError>)>) + Send + Sync;

impl Store {
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
    ) -> (Self, mpsc::Receiver<WriterMessage>) {
        let (writer, queue) = mpsc::channel();
        let writer = Some((writer, Arc::new(StorageStatus::new(None))));
        (Self { list: Arc::new(SharedList::new(colors, notify)), writer }, queue)
    }

    /// Whether saving works; `None` for a list in memory.
    pub(crate) fn status(&self) -> Option<&StorageStatus> {
        self.writer.as_ref().map(|(_, status)| &**status)
    }

    /// Whether changes have to be saved, and so are made by the writer.
    pub(crate) fn has_writer(&self) -> bool {
        self.writer.is_some()
    }

    /// Has the writer make changes, each with an id. Without a writer, makes them at once, however
    /// long that takes.
    pub(crate) fn submit(&self, changes: Vec<(u64, Change)>, deliver: &Arc<Deliver>) {
        let Some((writer, status)) = &self.writer else {
            let made = |(id, change)| (id, Ok(self.list.change(&change)));
            return deliver(changes.into_iter().map(made).collect());
        };
        if let Some(refusal) = status.refusal() {
            let refused = |(id, _)| (id, Err(refusal.clone()));
            return deliver(changes.into_iter().map(refused).collect());
        }
        // Fails if the writer has ended. Then the service ends, and answers nobody.
        let deliver = Arc::clone(deliver);
        let _ = writer.send(WriterMessage::Changes(changes, deliver, Instant::now()));
    }

    /// Has the writer find out whether others have changed the list.
    pub(crate) fn poll(&self) {
        if let Some((writer, _)) = &self.writer {
            // Fails if the writer has ended. Then the service ends.
            let _ = writer.send(WriterMessage::Poll);
        }
    }

    /// Makes a change, and waits for what comes of it. Fails if it cannot be saved. `None`: the
    /// writer has ended, and the process is about to.
    pub(crate) fn submit_and_wait(&self, change: Change) -> Option<Result<Outcome, StorageError>> {
        let (sender, outcomes) = mpsc::channel();
        let deliver: Arc<Deliver> = Arc::new(move |outcomes| drop(sender.send(outcomes)));
        self.submit(vec![(0, change)], &deliver);
        drop(deliver);
        let (_, outcome) = outcomes.recv().ok()?.pop()?;
        Some(outcome)
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
