//! What the writer needs of a storage engine, which keeps the list so that it outlives the process,
//! and what a start, `--check` and `--dump` need of the place where it does ([`Place`]). An engine
//! knows nothing of the requests of clients, and nothing of other engines.
//!
//! A save is [`Engine::begin`], [`Engine::write`] for each change, [`Engine::commit`], and in any
//! case [`Engine::roll_back`]. Others may change the list as well: `begin` and [`Engine::poll`]
//! return what they have committed, as a [`Refresh`]. The writer publishes each of these at once,
//! and each list that was committed. So an engine that keeps the last of them has the list that
//! readers have.

use std::fmt;
use std::path::PathBuf;
use std::time::Instant;

use super::etcd::LogWatch;
use super::{ColorList, Edit};

/// Keeps the list. Used by one thread, the writer.
pub(crate) trait Engine: Send {
    /// Begins a save.
    fn begin(&mut self, save: &Save) -> Result<Begun, StorageError>;

    /// Returns the list if others have changed it. Call it between saves.
    fn poll(&mut self) -> Result<Option<Refresh>, StorageError>;

    /// Adds the edits of one change to the save. `list`: the list before these edits, with the
    /// edits of the save that were added earlier.
    fn write(&mut self, edits: &[Edit], list: &ColorList) -> Result<Written, StorageError>;

    /// Makes durable what was written since [`Engine::begin`], all or nothing. `version`: the list
    /// to which that leads. If nothing was written, only finds out whether others have changed the
    /// list: if so, that is a conflict. If a commit fails, [`StorageError::certainty`] says whether
    /// anything of the save may be in the list, now or later. If it panics, something may be: then
    /// the next [`Engine::begin`] settles that, and returns the list as it is.
    fn commit(&mut self, version: &ColorList) -> Result<Commit, StorageError>;

    /// Discards what was written and not committed.
    fn roll_back(&mut self);

    /// What the operator should know, although changes can be saved; `None` if there is nothing.
    fn warning(&self) -> Option<String> {
        None
    }

    /// Closes the storage. Fails with the reason why the storage alone may not be the whole list.
    fn close(self: Box<Self>) -> Result<(), String>;
}

/// FILE, or a key in etcd, as it was found. All fail with the reason, for the operator.
pub(crate) trait Place {
    /// Whether there was a list.
    fn has_list(&self) -> bool;

    /// Fails if a start could not save there.
    fn check_usable(&self) -> Result<(), String>;

    /// Keeps out a second service, if the place is for one.
    fn lock(&mut self) -> Result<(), String>;

    /// Finds out whether a start would succeed, and how many colors it would have. Keeps nothing.
    /// `seed`: the list of a new place.
    fn check(&self, seed: Option<&ColorList>) -> Result<usize, String>;

    /// The list there. Needs neither [`Place::check_usable`] nor the lock.
    fn dump(&self) -> Result<ColorList, String>;

    /// Opens the list, and makes it of the seed if there is none yet. `writes`: the service will
    /// save changes of clients.
    fn open(self: Box<Self>, seed: Option<ColorList>, writes: bool) -> Result<OpenPlace, String>;
}

/// What [`Writer::new`](super::Writer::new) takes, and what else runs.
pub(crate) struct OpenPlace {
    pub(crate) engine: Box<dyn Engine>,
    pub(crate) list: ColorList,
    /// The list was made of the seed.
    pub(crate) is_new: bool,
    /// What watches for changes of other services; `None` if these have no part in the list.
    pub(crate) watch: Option<LogWatch>,
    /// FILE, without links.
    pub(crate) path: Option<PathBuf>,
}

/// What an engine has to know of a save.
pub(crate) struct Save {
    /// The last save or poll failed, so a success has to prove that saving works.
    pub(crate) has_failed: bool,
    /// The last commit panicked, or what comes between it and its publication: readers may not have
    /// what the engine has committed, so it returns the list.
    pub(crate) is_behind: bool,
    pub(crate) begun: Instant,
    /// When the first of its changes came; `None` without changes.
    pub(crate) oldest: Option<Instant>,
}

/// What a call of [`Engine::begin`] has come to. Either has the list if others have changed it.
pub(crate) enum Begun {
    /// The save has begun.
    Ready(Option<Refresh>),
    /// Another program keeps the storage locked. Call `begin` again, or fail with this error. A
    /// call takes up to 0.8 s.
    Locked(Option<Refresh>, StorageError),
}

/// Whether the edits of a change are part of the save.
pub(crate) enum Written {
    Yes,
    /// This save has no room for them, but another one has.
    NextCommit,
    /// The list would become longer than the storage takes.
    TooLong,
    /// The storage takes other changes, but not this one. Has the reason, for the client.
    Refused(String),
}

/// What came of a commit.
pub(crate) enum Commit {
    Done,
    /// Others have changed the list since the save began, and nothing was saved. Roll back and
    /// begin again: `begin` returns what they have made of the list.
    Conflict,
    /// The same, and the time for the save is over.
    Contended,
}

/// A list that others have made, and the edits that lead to it from the one that readers have.
#[derive(Debug, PartialEq)]
pub(crate) struct Refresh {
    pub(crate) list: ColorList,
    pub(crate) edits: Vec<Edit>,
}

/// Why the list cannot be read or saved. `Display` is for the operator, in the log and in
/// `/health`: it names the cause and mostly what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StorageError {
    pub(super) message: String,
    /// What clients learn: a cause without details.
    pub(crate) for_clients: &'static str,
    pub(crate) certainty: Certainty,
    pub(super) scope: Scope,
}

/// What is certain of the changes of a save that has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Certainty {
    /// They were not made, and never will be: the storage could not be asked to.
    NotAsked,
    /// The storage was asked to make them, and has not: they never will be made.
    NotMade,
    /// They may be in the list, now or later.
    InDoubt,
}

/// Which changes a failure concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// Those of the save that have edits.
    Edits,
    /// All of the save, also those that would change nothing, or name a color that is not there:
    /// the list that readers have may be out of date, or the service has panicked.
    Save,
    /// The same, and all that come until the storage has answered again: it is not tried with each
    /// of them, since each would wait until the storage is given up.
    UntilAnswer,
}

impl StorageError {
    /// The service panicked in a save or a poll, or the writer has ended.
    pub(super) fn panicked() -> Self {
        Self {
            message: "the service failed, its log says where".to_owned(),
            for_clients: "the service failed",
            certainty: Certainty::NotMade,
            // To decide the changes again could panic once more.
            scope: Scope::Save,
        }
    }
}

impl fmt::Display for StorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
