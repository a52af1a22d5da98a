//! Where a list can be kept: what a start, `--check` and `--dump` need of it. To open it makes an
//! [`Engine`].

use std::path::PathBuf;

use super::etcd::LogWatch;
use super::{ColorList, Engine};

/// FILE, or a key in etcd, as it was found. All fail with the reason, for the operator.
pub(crate) trait Place {
    /// Whether there was a list.
    fn has_list(&self) -> bool;

    /// How many threads an open one needs, that of the writer included.
    fn threads(&self) -> usize;

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
