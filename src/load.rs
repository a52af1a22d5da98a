//! Where the list comes from at the start: the database, a seed file, or the seed that is compiled
//! in.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use crate::STACK_BYTES;
use crate::args::Args;
use crate::failure::Failure;
use crate::store::{Colors, Database, DatabaseError, Store, database, foreign_reader, json, probe};

/// The seed if no option names one; it is there when the service is started in a checkout.
const SEED_FILE: &str = "seed/colors.json";

/// The seed where that file does not exist.
const BUILT_IN: &[u8] = include_bytes!("../seed/colors.json");

/// Where the list comes from: found without a change to FILE.
pub(crate) enum Source {
    /// The colors of the seed, and its name: the list is in memory alone.
    InMemory(Colors, String),
    /// FILE, which others write: `--read-only`.
    Followed,
    /// FILE, without links. `seed`: the colors of a new FILE, and their name; `None` if FILE is
    /// certain to have a list.
    Database { path: PathBuf, seed: Option<(Colors, String)> },
}

impl Source {
    /// FILE, without links, if the list is kept there.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        if let Self::Database { path, .. } = self { Some(path.clone()) } else { None }
    }
}

/// What the service starts with.
pub(crate) struct Opened {
    pub(crate) store: Store,
    /// For the first line of the log: how many colors, from where, and whether changes are kept.
    pub(crate) details: String,
    /// FILE was made now. The log warns of that: when a disk is not mounted, a start makes a new
    /// FILE in its mount point.
    pub(crate) is_new: bool,
}

/// What has to run as long as the service does: the writer or the follower.
type Background = Box<dyn FnOnce()>;

/// Finds the list, and reads the seed if FILE is to be made from it.
pub(crate) fn find(args: &Args) -> Result<Source, Failure> {
    let Some(file) = args.data.as_deref() else {
        return read_seed(args).map(|(colors, name)| Source::InMemory(colors, name));
    };
    if args.read_only {
        return Ok(Source::Followed);
    }
    let (path, has_list) = probe::writable(file).map_err(|error| unusable(file, error))?;
    // a start rolls back a journal, which may leave no list
    let is_finished = has_list && !probe::has_journal(&path);
    let seed = (!is_finished).then(|| read_seed(args)).transpose()?;
    Ok(Source::Database { path, seed })
}

/// Returns the lock of FILE, if that exists: this makes none. Waits for another process of the
/// service that has FILE open, as one that is stopping.
pub(crate) fn lock(args: &Args, source: &Source) -> Result<Option<File>, Failure> {
    match (&args.data, source) {
        (Some(file), Source::Database { path, .. }) if path.exists() => {
            database::flock(path).map(Some).map_err(|error| unusable(file, error))
        }
        _ => Ok(None),
    }
}

/// Starts a thread that opens FILE, or makes it, and sends what it has opened. From then on the
/// thread saves changes, or follows those of others. `memory_max`: see [`Store::in_memory`].
pub(crate) fn start(
    args: &Args,
    source: Source,
    lock: Option<File>,
    memory_max: usize,
) -> io::Result<Receiver<Result<Opened, Failure>>> {
    let args = args.clone();
    let follows = matches!(source, Source::Followed);
    let (sender, opened) = mpsc::channel();
    let run = move || {
        let (result, background) = match open(&args, source, lock, memory_max) {
            Ok((opened, background)) => (Ok(opened), Some(background)),
            Err(failure) => (Err(failure), None),
        };
        // If a signal has ended the start, nobody receives the result.
        if let (Ok(()), Some(background)) = (sender.send(result), background) {
            background();
        }
    };
    let name = if follows { "follower" } else { "writer" };
    thread::Builder::new().name(name.to_owned()).stack_size(STACK_BYTES).spawn(run)?;
    Ok(opened)
}

fn open(
    args: &Args,
    source: Source,
    lock: Option<File>,
    memory_max: usize,
) -> Result<(Opened, Background), Failure> {
    let file = args.data.as_deref().unwrap_or(Path::new(""));
    let failed = |error| unusable(file, error);
    let (path, seed) = match source {
        Source::InMemory(colors, name) => {
            let count = count(colors.len());
            let details = format!("{count} from {name}, in memory: changes are lost when it stops");
            let store = Store::in_memory(colors, memory_max);
            return Ok((Opened { store, details, is_new: false }, Box::new(|| ())));
        }
        Source::Followed => {
            let (store, follower) = Store::following(file, memory_max).map_err(failed)?;
            let details = follows(file, store.list.size().0);
            let opened = Opened { store, details, is_new: false };
            return Ok((opened, Box::new(|| follower.run())));
        }
        Source::Database { path, seed, .. } => (path, seed),
    };
    let lock = match lock {
        Some(lock) => lock,
        None => database::flock(&path).map_err(failed)?,
    };
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
    let opened = Opened { store, details, is_new: made_from.is_some() };
    Ok((opened, Box::new(|| writer.run())))
}

/// Fails where the list cannot be had, or describes it. Changes nothing: a service may be running
/// on the same file.
pub(crate) fn check(args: &Args) -> Result<String, Failure> {
    let source = find(args)?;
    let file = args.data.as_deref().unwrap_or(Path::new(""));
    let name = file.display();
    let failed = |error| unusable(file, error);
    match source {
        Source::InMemory(colors, seed) => Ok(format!("{} from {seed}", count(colors.len()))),
        Source::Followed => {
            Ok(follows(file, foreign_reader::read_once(file, true).map_err(failed)?.len()))
        }
        Source::Database { path, seed } => match (foreign_reader::read_once(&path, true), seed) {
            (Ok(colors), _) => Ok(format!("{} kept in {name}", count(colors.len()))),
            (Err(DatabaseError::Missing), Some((colors, seed))) => {
                Ok(format!("{} from {seed}, for {name}", count(colors.len())))
            }
            (Err(DatabaseError::HotJournal), _) => {
                Ok(format!("what {name} has, after the journal beside it is rolled back"))
            }
            (Err(error), _) => Err(failed(error)),
        },
    }
}

/// Prints the list of a database as `GET /colors` answers it.
pub(crate) fn dump(file: &Path) -> Result<(), Failure> {
    let colors = foreign_reader::read_once(file, false).map_err(|error| unusable(file, error))?;
    io::stdout().write_all(colors.envelope().bytes()).map_err(Failure::Output)
}

fn unusable(file: &Path, error: DatabaseError) -> Failure {
    Failure::Database(file.display().to_string(), error)
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
