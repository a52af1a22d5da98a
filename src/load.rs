//! Where the list comes from at the start: the database, etcd, the service that is followed, a seed
//! file, or the seed that is compiled in.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::follower::Follower;
use crate::options::{DataPlace, EtcdPlace, Options};
use crate::store::etcd::{EtcdEngine, EtcdError, EtcdKey, LogWatch};
use crate::store::sqlite::{Database, DatabaseError, SqliteEngine};
use crate::store::{ChangeListener, ColorList, Store, Writer, json, sqlite};

/// The seed if no option names one. A service that is started in a checkout finds this file.
const SEED_FILE: &str = "seed/colors.json";

/// The seed if no option names one and [`SEED_FILE`] does not exist.
const BUILT_IN: &[u8] = include_bytes!("../seed/colors.json");

/// Where the list comes from. [`load_source`] finds it, and changes nothing on disk.
pub(crate) enum Source {
    /// The colors of the seed, or of the service that is followed, and its name: the list is in
    /// memory alone.
    InMemory(ColorList, String),
    /// FILE.
    Database {
        /// As `--data` names it.
        given: PathBuf,
        /// Without links.
        path: PathBuf,
        /// The colors of a new FILE, and their name; `None` if FILE has a list.
        seed: Option<(ColorList, String)>,
        /// `--seed` is given. It is not read if FILE has a list.
        is_seed_given: bool,
        /// FILE, once it is locked; `None` before that, or if it does not exist.
        lock: Option<File>,
    },
    Etcd {
        place: EtcdPlace,
        found: Box<EtcdKey>,
        /// As for [`Source::Database`].
        seed: Option<(ColorList, String)>,
        is_seed_given: bool,
    },
}

impl Source {
    /// Locks FILE if it exists. While another process of the service has the lock, waits no longer
    /// than [`sqlite`] says: that process may be stopping.
    pub(crate) fn lock(&mut self) -> Result<(), Failure> {
        if let Self::Database { given, path, lock, .. } = self {
            *lock = sqlite::lock_file(path).map_err(|error| unusable(given, error))?;
        }
        Ok(())
    }
}

/// What the service starts with.
pub(crate) struct Opened {
    pub(crate) store: Store,
    /// What saves changes; `None` if the list is in memory.
    pub(crate) writer: Option<Writer>,
    /// What watches for changes of other services; `None` if these have no part in the list.
    pub(crate) watch: Option<LogWatch>,
    /// For the first line of the log: the number of colors, where they come from, and whether
    /// changes are kept.
    pub(crate) details: String,
    /// FILE, without links; `None` if the list is in memory.
    pub(crate) path: Option<PathBuf>,
}

/// Finds out where the list comes from. Reads the list unless FILE has one.
pub(crate) fn load_source(
    options: &Options,
    follower: Option<&Follower>,
) -> Result<Source, Failure> {
    let is_seed_given = options.seed.is_some();
    let file = match &options.data {
        None => {
            return first_list(options, follower).map(|(list, name)| Source::InMemory(list, name));
        }
        Some(DataPlace::Etcd(place)) => {
            let found = read_etcd(place)?;
            let is_absent = found.list().is_none();
            let seed = is_absent.then(|| first_list(options, follower)).transpose()?;
            return Ok(Source::Etcd {
                place: place.clone(),
                found: Box::new(found),
                seed,
                is_seed_given,
            });
        }
        Some(DataPlace::File(file)) => file,
    };
    let failed = |error| unusable(file, error);
    let (path, has_list) = sqlite::locate(file).map_err(failed)?;
    sqlite::check_writable(&path).map_err(failed)?;
    let seed = (!has_list).then(|| first_list(options, follower)).transpose()?;
    let given = file.to_owned();
    Ok(Source::Database { given, path, seed, is_seed_given, lock: None })
}

/// Opens the list, and makes FILE if there is none. `notify` is called after each
/// new version of the list.
pub(crate) fn open(source: Source, notify: ChangeListener) -> Result<Opened, Failure> {
    match source {
        Source::InMemory(colors, name) => {
            let count = count(colors.len());
            let details = format!("{count} from {name}, in memory: changes are lost when it stops");
            let store = Store::in_memory(colors, notify);
            Ok(Opened { store, writer: None, watch: None, details, path: None })
        }
        Source::Database { given, path, seed, is_seed_given, lock } => {
            let failed = |error| unusable(&given, error);
            let (colors, name) = seed.unzip();
            let (lock, is_new) =
                sqlite::lock_or_make(&path, colors.as_ref(), lock).map_err(failed)?;
            let origin = origin(name.filter(|_| is_new), is_seed_given);
            // Freed before the list is read from FILE, which takes as much memory.
            drop(colors);
            let (database, colors) = Database::open(&given, &path, lock).map_err(failed)?;
            let engine = Box::new(SqliteEngine::new(database));
            let details = format!("{} kept in {}, {origin}", count(colors.len()), given.display());
            let (store, writer) = Writer::new(engine, colors, notify);
            let (writer, path) = (Some(writer), Some(path));
            Ok(Opened { store, writer, watch: None, details, path })
        }
        Source::Etcd { place, found, seed, is_seed_given } => {
            let (colors, name) = seed.unzip();
            let (engine, colors, is_new, watch) = EtcdEngine::open(*found, colors.as_ref())
                .map_err(|error| unusable_etcd(&place, error))?;
            let origin = origin(name.filter(|_| is_new), is_seed_given);
            let details = format!("{} kept in {place}, {origin}", count(colors.len()));
            let (store, writer) = Writer::new(Box::new(engine), colors, notify);
            let (writer, watch) = (Some(writer), Some(watch));
            Ok(Opened { store, writer, watch, details, path: None })
        }
    }
}

/// Where a list that is kept comes from. `seed`: of which it was made now.
fn origin(seed: Option<String>, is_seed_given: bool) -> String {
    match seed {
        Some(seed) => format!("which was made now from {seed}"),
        None if is_seed_given => "which was there: --seed is not read".to_owned(),
        None => "which was there".to_owned(),
    }
}

fn read_etcd(place: &EtcdPlace) -> Result<EtcdKey, Failure> {
    EtcdKey::read(&place.members, place.user_file.as_deref(), &place.key)
        .map_err(|error| unusable_etcd(place, error))
}

fn unusable_etcd(place: &EtcdPlace, error: EtcdError) -> Failure {
    Failure::Storage(place.to_string(), error.to_string())
}

/// `--check`: describes the list that a start would have. Fails if the start would not get it,
/// except for the lock on FILE: a service may be running on it. Changes no list, and makes no FILE.
pub(crate) fn check_list(options: &Options) -> Result<String, Failure> {
    match load_source(options, Follower::new(options).as_ref())? {
        Source::InMemory(colors, seed) => Ok(format!("{} from {seed}", count(colors.len()))),
        Source::Database { given, path, seed: Some((colors, seed)), .. } => {
            sqlite::check_new_file(&path, &colors).map_err(|error| unusable(&given, error))?;
            Ok(format!("{} from {seed}, for {}", count(colors.len()), given.display()))
        }
        Source::Database { given, path, .. } => {
            let colors =
                Database::read_recovering(&path).map_err(|error| unusable(&given, error))?;
            Ok(format!("{} kept in {}", count(colors.len()), given.display()))
        }
        Source::Etcd { place, seed: Some((colors, seed)), .. } => {
            Ok(format!("{} from {seed}, for {place}", count(colors.len())))
        }
        Source::Etcd { place, found, .. } => {
            Ok(format!("{} kept in {place}", count(found.list().map_or(0, ColorList::len))))
        }
    }
}

/// Prints the list of a place as `GET /colors` answers it.
pub(crate) fn dump(place: &DataPlace) -> Result<(), Failure> {
    let colors = match place {
        DataPlace::File(file) => stored(file).map_err(|error| unusable(file, error))?,
        DataPlace::Etcd(place) => {
            let found = read_etcd(place)?;
            found.list().cloned().ok_or_else(|| unusable_etcd(place, EtcdError::Missing))?
        }
    };
    io::stdout().write_all(colors.envelope().bytes()).map_err(Failure::Output)
}

/// The list in FILE.
fn stored(file: &Path) -> Result<ColorList, DatabaseError> {
    let (path, has_list) = sqlite::locate(file)?;
    if !has_list {
        return Err(DatabaseError::Missing);
    }
    match sqlite::check_writable(&path) {
        Ok(()) => Database::read_recovering(&path),
        Err(refused) => sqlite::read_without_writing(&path).map_err(|error| match error {
            DatabaseError::Inaccessible => refused,
            error => error,
        }),
    }
}

fn unusable(file: &Path, error: DatabaseError) -> Failure {
    let reason = match error {
        DatabaseError::Busy => format!("{error}, or name another file with --data"),
        error => error.to_string(),
    };
    Failure::Storage(file.display().to_string(), reason)
}

/// The list for a start that has none yet: that of the service that is followed, or else the seed.
/// Returns its colors, and a name for where they come from.
fn first_list(
    options: &Options,
    follower: Option<&Follower>,
) -> Result<(ColorList, String), Failure> {
    match follower {
        Some(follower) => Ok((follower.first_list()?, follower.followed.url.clone())),
        None => read_seed(options),
    }
}

/// Reads the seed. Returns its colors, and a name for where they come from.
fn read_seed(options: &Options) -> Result<(ColorList, String), Failure> {
    let default = || Some(Path::new(SEED_FILE)).filter(|file| file.exists());
    let (name, content) = match options.seed.as_deref().or_else(default) {
        None => ("the built-in seed".to_owned(), Ok(BUILT_IN.to_vec())),
        Some(file) => (file.display().to_string(), fs::read(file)),
    };
    match content.map(|content| json::from_file(&content)) {
        Ok(Ok(colors)) => Ok((colors, name)),
        Ok(Err(error)) => Err(Failure::Malformed(name, error)),
        Err(error) => Err(Failure::SeedUnreadable(name, error)),
    }
}

/// A number of colors, in words.
pub(crate) fn count(colors: usize) -> String {
    format!("{colors} color{}", if colors == 1 { "" } else { "s" })
}
