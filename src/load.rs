//! Where the list comes from at the start: the database, etcd, the service that is followed, a seed
//! file, or the seed that is compiled in.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::follower::Follower;
use crate::options::{DataPlace, Options};
use crate::store::etcd::{EtcdKey, LogWatch};
use crate::store::sqlite::FilePlace;
use crate::store::{ChangeListener, ColorList, OpenPlace, Place, Store, Writer, json};

/// The seed if no option names one. A service that is started in a checkout finds this file.
const SEED_FILE: &str = "seed/colors.json";

/// The seed if no option names one and [`SEED_FILE`] does not exist.
const BUILT_IN: &[u8] = include_bytes!("../seed/colors.json");

/// Where the list comes from. [`load_source`] finds it, and changes nothing on disk.
pub(crate) struct Source {
    /// Where the list is kept, and its name; `None` if that is in memory alone.
    place: Option<(Box<dyn Place>, String)>,
    /// The colors of the seed, or of the service that is followed, and their name; `None` if there
    /// is a list in the place.
    seed: Option<(ColorList, String)>,
}

impl Source {
    /// Keeps out a second service. While another process of the service has the lock, waits no
    /// longer than [`sqlite`](crate::store::sqlite) says: that process may be stopping.
    pub(crate) fn lock(&mut self) -> Result<(), Failure> {
        let Some((place, name)) = &mut self.place else { return Ok(()) };
        place.lock().map_err(unusable(name))
    }
}

/// What the service starts with.
pub(crate) struct Opened<S> {
    pub(crate) store: Store<S>,
    /// What saves changes; `None` if the list is in memory.
    pub(crate) writer: Option<Writer<S>>,
    /// What watches for changes of other services; `None` if these have no part in the list.
    pub(crate) watch: Option<LogWatch>,
    /// For the first line of the log: the number of colors, where they come from, and whether
    /// changes are kept.
    pub(crate) details: String,
    /// FILE, without links; `None` if the list is in memory.
    pub(crate) path: Option<PathBuf>,
}

/// Finds out where the list comes from. Reads it, unless it is in FILE.
pub(crate) fn load_source(
    options: &Options,
    follower: Option<&Follower>,
) -> Result<Source, Failure> {
    let place = options.data.as_ref().map(|place| find(place, options)).transpose()?;
    if let Some((place, name)) = &place {
        place.check_usable().map_err(unusable(name))?;
    }
    let has_list = place.as_ref().is_some_and(|(place, _)| place.has_list());
    let seed = match follower {
        _ if has_list => None,
        Some(follower) => Some((follower.first_list()?, follower.followed.url.clone())),
        None => Some(read_seed(options)?),
    };
    Ok(Source { place, seed })
}

fn find(place: &DataPlace, options: &Options) -> Result<(Box<dyn Place>, String), Failure> {
    let user_file = options.etcd_user_file.as_deref();
    let (name, found) = match place {
        DataPlace::File(file) => (file.display().to_string(), FilePlace::find(file)),
        DataPlace::Etcd(etcd) => {
            (etcd.to_string(), EtcdKey::find(&etcd.members, user_file, &etcd.key))
        }
    };
    Ok((found.map_err(unusable(&name))?, name))
}

fn unusable(name: &str) -> impl FnOnce(String) -> Failure {
    |reason| Failure::Storage(name.to_owned(), reason)
}

/// Opens the list, and makes it if there is none. `notify` is called after each new version of the
/// list.
pub(crate) fn open<S>(
    source: Source,
    options: &Options,
    notify: ChangeListener,
) -> Result<Opened<S>, Failure> {
    let Source { place, seed } = source;
    let (colors, seed) = seed.unzip();
    let Some((place, name)) = place else {
        let (colors, seed) = (colors.unwrap_or_default(), seed.unwrap_or_default());
        let count = count(colors.len());
        let details = format!("{count} from {seed}, in memory: changes are lost when it stops");
        let store = Store::in_memory(colors, notify);
        return Ok(Opened { store, writer: None, watch: None, details, path: None });
    };
    let OpenPlace { engine, list, is_new, watch, path } =
        place.open(colors, !options.read_only).map_err(unusable(&name))?;
    let origin = match seed.filter(|_| is_new) {
        Some(seed) => format!("which was made now from {seed}"),
        None if options.seed.is_some() => "which was there: --seed is not read".to_owned(),
        None => "which was there".to_owned(),
    };
    let details = format!("{} kept in {name}, {origin}", count(list.len()));
    let (store, writer) = Writer::new(engine, list, notify);
    Ok(Opened { store, writer: Some(writer), watch, details, path })
}

/// `--check`: describes the list that a start would have. Fails if the start would not get it,
/// except for the lock on FILE: a service may be running on it. Changes no list, and makes no FILE.
pub(crate) fn check_list(options: &Options) -> Result<String, Failure> {
    let Source { place, seed } = load_source(options, Follower::new(options).as_ref())?;
    let (colors, seed) = seed.unzip();
    let length = match &place {
        Some((place, name)) => place.check(colors.as_ref()).map_err(unusable(name))?,
        None => colors.map_or(0, |colors| colors.len()),
    };
    let count = count(length);
    Ok(match (seed, place) {
        (Some(seed), None) => format!("{count} from {seed}"),
        (Some(seed), Some((_, name))) => format!("{count} from {seed}, for {name}"),
        (None, place) => format!("{count} kept in {}", place.map_or(String::new(), |it| it.1)),
    })
}

/// Prints the list of a place as `GET /colors` answers it.
pub(crate) fn dump(place: &DataPlace, options: &Options) -> Result<(), Failure> {
    let (place, name) = find(place, options)?;
    let colors = place.dump().map_err(unusable(&name))?;
    io::stdout().write_all(colors.envelope().bytes()).map_err(Failure::Output)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_that_is_no_list_is_spoken_of_as_a_file() {
        let file = std::env::temp_dir().join(format!("colors-seed-{}", std::process::id()));
        let forms = "an array of colors, as in [{\"name\":\"red\",\"value\":\"#f00\"}], or an \
                     object with it as \"data\"";
        for (content, expected) in [
            ("", format!("the file is empty; it needs {forms}")),
            (" \n", format!("the file is empty; it needs {forms}")),
            (
                "a,b",
                format!(
                    "this is not JSON; the file needs JSON, with double quotes and without a byte \
                     order mark: {forms}"
                ),
            ),
            ("\0[\0]", format!("this is UTF-16; the file needs JSON in UTF-8: {forms}")),
            (
                "{}",
                format!(
                    "this is no list of colors; the file needs {forms}; \
                     jq 'to_entries | map({{name: .key, value}})' makes one of a map"
                ),
            ),
            (
                r##"[{"name":"red","hex":"#f00"}]"##,
                "color 1: missing field `value`; jq 'map({name, value: .hex})' makes it of \"hex\""
                    .to_owned(),
            ),
        ] {
            fs::write(&file, content).unwrap();
            let options = Options { seed: Some(file.clone()), ..Options::default() };
            let failure = read_seed(&options).map(drop).unwrap_err();
            assert_eq!(failure.to_string(), format!("{}: {expected}", file.display()));
        }
        fs::remove_file(&file).unwrap();
    }
}
