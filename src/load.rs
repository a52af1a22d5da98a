//! Where the list comes from at the start: the database, a seed file, or the seed that is compiled
//! in.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use crate::args::Args;
use crate::failure::Failure;
use crate::store::{Colors, Database, DatabaseError, Store, data_file, database, json, snapshot};

/// The seed if no option names one; it is there when the service is started in a checkout.
const SEED_FILE: &str = "seed/colors.json";

/// The seed where that file does not exist.
const BUILT_IN: &[u8] = include_bytes!("../seed/colors.json");

/// What has to run on a thread of its own as long as the service does: it saves changes, or follows
/// those of others.
pub(crate) struct Background {
    pub(crate) name: &'static str,
    pub(crate) run: Box<dyn FnOnce() + Send>,
}

/// What the service starts with.
pub(crate) struct Opened {
    pub(crate) store: Store,
    pub(crate) thread: Option<Background>,
    /// For the first line of the log: how many colors, from where, and whether changes are kept.
    pub(crate) details: String,
    /// The file was made now. That is a warning: where a disk is not mounted, the file is not the
    /// one that was there yesterday.
    pub(crate) is_new: bool,
}

/// Reads the list, or makes its file. `memory_max`: see [`Store::in_memory`].
pub(crate) fn open(args: &Args, memory_max: usize) -> Result<Opened, Failure> {
    let Some(file) = args.data.as_deref() else {
        let (colors, source) = read_seed(args)?;
        let count = count(colors.len());
        let details = format!("{count} from {source}, in memory: changes are lost when it stops");
        let store = Store::in_memory(colors, memory_max);
        return Ok(Opened { store, thread: None, details, is_new: false });
    };
    let failed = |error| unusable(file, error);
    if args.read_only {
        let (store, follower) = Store::following(file, memory_max).map_err(failed)?;
        let details = follows(file, store.list.size().0);
        let thread = Some(Background { name: "follower", run: Box::new(|| follower.run()) });
        return Ok(Opened { store, thread, details, is_new: false });
    }
    let (path, has_list) = data_file::writable(file).map_err(failed)?;
    let seed = seed_for(args, &path, has_list)?;
    let lock = database::flock(&path).map_err(failed)?;
    let made_from = match seed {
        Some((colors, name)) => database::fill(&path, &colors).map_err(failed)?.then_some(name),
        None => None,
    };
    let origin = match &made_from {
        Some(seed) => format!("which was made now from {seed}"),
        None if args.seed.is_some() => "which was there: --seed is not read".to_owned(),
        None => "which was there".to_owned(),
    };
    let (database, colors) = Database::open(file, &path, lock).map_err(failed)?;
    let details = format!("{} kept in {}, {origin}", count(colors.len()), file.display());
    let (store, writer) = Store::in_database(database, colors, memory_max);
    let thread = Some(Background { name: "writer", run: Box::new(|| writer.run()) });
    Ok(Opened { store, thread, details, is_new: made_from.is_some() })
}

/// Fails as a start would, or describes the list. Changes nothing: a service may be running on the
/// same file.
pub(crate) fn check(args: &Args) -> Result<String, Failure> {
    let Some(file) = args.data.as_deref() else {
        let (colors, source) = read_seed(args)?;
        return Ok(format!("{} from {source}", count(colors.len())));
    };
    let (name, failed) = (file.display(), |error| unusable(file, error));
    if args.read_only {
        return Ok(follows(file, snapshot::read_once(file, true).map_err(failed)?.len()));
    }
    let (path, has_list) = data_file::writable(file).map_err(failed)?;
    let seed = seed_for(args, &path, has_list)?;
    // with a list, it was read only to know that a start could read it
    if let Some((colors, source)) = seed.filter(|_| !has_list) {
        return Ok(format!("{} from {source}, for {name}", count(colors.len())));
    }
    match snapshot::read_once(&path, true) {
        Ok(colors) => Ok(format!("{} kept in {name}", count(colors.len()))),
        Err(DatabaseError::HotJournal) => {
            Ok(format!("what {name} has, after the journal beside it is rolled back"))
        }
        Err(error) => Err(failed(error)),
    }
}

/// Prints the list of a database as `GET /colors` answers it.
pub(crate) fn dump(file: &Path) -> Result<(), Failure> {
    let colors = snapshot::read_once(file, false).map_err(|error| unusable(file, error))?;
    io::stdout().write_all(colors.envelope().bytes()).map_err(Failure::Output)
}

fn unusable(file: &Path, error: DatabaseError) -> Failure {
    Failure::DataFile(file.display().to_string(), error)
}

/// Reads the seed, unless FILE is certain to have a list when a start has opened it: rolling back a
/// journal may leave none.
fn seed_for(args: &Args, path: &Path, has_list: bool) -> Result<Option<(Colors, String)>, Failure> {
    let is_finished = has_list && !data_file::has_journal(path);
    (!is_finished).then(|| read_seed(args)).transpose()
}

/// Reads the seed. Returns its colors and its name.
fn read_seed(args: &Args) -> Result<(Colors, String), Failure> {
    let default = || Some(Path::new(SEED_FILE)).filter(|file| file.exists());
    let (name, content) = match args.seed.as_deref().or_else(default) {
        None => ("the built-in seed".to_owned(), Ok(BUILT_IN.to_vec())),
        Some(file) => (file.display().to_string(), fs::read(file)),
    };
    match content.map(|content| json::from_list(&content)) {
        Ok(Ok(colors)) => Ok((colors, name)),
        Ok(Err(error)) => Err(Failure::Malformed(name, error)),
        Err(error) => Err(Failure::SeedUnreadable(name, error)),
    }
}

fn follows(file: &Path, colors: usize) -> String {
    format!("{}, follows {}, read-only", count(colors), file.display())
}

fn count(colors: usize) -> String {
    format!("{colors} color{}", if colors == 1 { "" } else { "s" })
}
