//! Where the list comes from at the start: the data file, a seed file, or the seed that is compiled in.

use std::fs;
use std::io;
use std::path::Path;

use rustix::fs::Access;

use crate::args::Args;
use crate::failure::Failure;
use crate::store::{Colors, DataFile, OpenError, Store, Writer, color};

/// Read when no seed is named, so that a service started in a checkout is filled from the file there.
const SEED_FILE: &str = "seed/colors.json";

/// Used where there is no such file.
const BUILT_IN: &[u8] = include_bytes!("../seed/colors.json");

/// Gives the list, the writer that has to run if it is durable, and in words how many colors there are, from where, and whether they are kept.
///
/// # Errors
/// When a file cannot be read, is not a file of colors, or the data file cannot be used or created.
pub(crate) fn open(args: &Args) -> Result<(Store, Option<Writer>, String), Failure> {
    let Some(data) = args.data.as_deref() else {
        let (colors, source) = read_seed(args)?;
        let details = format!("{} from {source}, in memory: changes are lost when it stops", count(&colors));
        return Ok((Store::in_memory(colors), None, details));
    };
    let failed = |error| Failure::DataFile(data.display().to_string(), error);
    let file = DataFile::open(data).map_err(failed)?;
    let colors = match file.read().map_err(|error| failed(OpenError::Io(error)))? {
        Some(content) => parse(&data.display().to_string(), &content)?,
        None => {
            let (colors, _) = read_seed(args)?;
            file.save(colors.colors()).map_err(|error| Failure::DataNotSaved(data.display().to_string(), error))?;
            colors
        }
    };
    let details = format!("{} kept in {}", count(&colors), data.display());
    let (store, writer) = Store::in_file(colors, file);
    Ok((store, Some(writer), details))
}

/// Finds what would keep a start from succeeding, and gives the list in words. Writes nothing and takes no lock, so that it can be called
/// while a service runs.
///
/// # Errors
/// Those of [`open`].
pub(crate) fn check(args: &Args) -> Result<String, Failure> {
    let Some(data) = args.data.as_deref() else {
        let (colors, source) = read_seed(args)?;
        return Ok(format!("{} from {source}", count(&colors)));
    };
    let name = data.display().to_string();
    let failed = |error| Failure::DataFile(name.clone(), OpenError::Io(error));
    let (path, directory) = DataFile::locate(data).map_err(|error| Failure::DataFile(name.clone(), error))?;
    rustix::fs::access(directory, Access::WRITE_OK | Access::EXEC_OK).map_err(|error| failed(error.into()))?;
    match fs::read(path) {
        Ok(content) => Ok(format!("{} kept in {name}", count(&parse(&name, &content)?))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let (colors, source) = read_seed(args)?;
            Ok(format!("{} from {source}, for {name}", count(&colors)))
        }
        Err(error) => Err(failed(error)),
    }
}

/// The list that the seed describes, and which seed that is.
fn read_seed(args: &Args) -> Result<(Colors, String), Failure> {
    let file = args.seed.as_deref().unwrap_or(Path::new(SEED_FILE));
    let name = file.display().to_string();
    match fs::read(file) {
        Ok(content) => Ok((parse(&name, &content)?, name)),
        Err(error) if args.seed.is_none() && matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            let name = "the built-in seed".to_owned();
            Ok((parse(&name, BUILT_IN)?, name))
        }
        Err(error) => Err(Failure::SeedUnreadable(name, error)),
    }
}

fn parse(name: &str, content: &[u8]) -> Result<Colors, Failure> {
    color::from_file(content).map(Colors::new).map_err(|error| Failure::Malformed(name.to_owned(), error))
}

fn count(colors: &Colors) -> String {
    match colors.colors().len() {
        1 => "1 color".to_owned(),
        count => format!("{count} colors"),
    }
}
