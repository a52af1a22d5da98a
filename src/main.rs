//! `colors`: a JSON web service that keeps an ordered list of named colors.
//!
//! A map of the code; arrows of use point down this list only:
//!
//! - `main`: start-up in reading order
//! - `args`, `logging`: command line and environment, with `documents` (man page and completions, in tests only); log lines
//! - `server`: the accept loop, with `circle` (connections that a worker attends to by turns), `waiting` (those without one), `savers`
//!   (threads that wait for the disk), `memory` (the allocator), `listen` and `socket_file` (sockets), `supervisor` (what the service manager is told)
//! - `connection`: one connection's life on a worker, with `framing`, `head`, `chunks`, `accept` and `refusal` (RFC 9110, 9112), `unsent` (responses
//!   under way), `wait` (what it waits for, since when), `inlet` (tiny_http's border), `seats` (how many there are) and `date`
//! - `context`: what every worker knows
//! - `respond`: every rule of the HTTP contract, with `origin` (browsers), `resource` (targets) and `page` (what browsers show)
//! - `store`: the mutex around the list; `datafile`: the durable file; `change`: what a write does, with `conditions`
//!   (If-Match); `palette`: the list itself; `color`: one color, and JSON
//! - `message`: requests and responses as values

#[path = "http/accept.rs"]
mod accept;
mod args;
mod change;
mod chunks;
mod circle;
mod color;
mod conditions;
mod connection;
mod context;
mod datafile;
mod date;
#[cfg(test)]
mod documents;
mod framing;
mod head;
mod inlet;
mod listen;
mod logging;
mod memory;
mod message;
mod origin;
#[path = "service/page.rs"]
mod page;
mod palette;
mod refusal;
mod resource;
mod respond;
mod savers;
mod seats;
mod server;
mod socket_file;
mod store;
mod supervisor;
mod unsent;
mod wait;
mod waiting;

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Parser;
use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};

use crate::args::Args;
use crate::color::JsonError;
use crate::context::{Context, Limits, Signs};
use crate::datafile::{DataFile, OpenError, SaveError};
use crate::listen::{Endpoint, Listening};
use crate::origin::Exemptions;
use crate::palette::Palette;
use crate::respond::Service;
use crate::server::Server;
use crate::store::Store;

/// Exit code of a second SIGTERM or SIGINT, which does not wait for what is under way.
const EXIT_CUT_SHORT: i32 = 1;

/// Why the service cannot start or go on; each is one line, and exit code 1.
#[derive(Debug)]
enum Failure {
    /// When the seed cannot be read.
    SeedUnreadable(String, io::Error),
    /// When the seed, or the durable file, is not a file of colors.
    Malformed(String, JsonError),
    /// When the durable file cannot be taken charge of, read or created.
    DataFile(String, OpenError),
    /// When the list of the seed cannot be saved to the new durable file.
    DataNotSaved(String, SaveError),
    /// When an address cannot be listened on.
    Listen(String, io::Error),
    /// When a socket handed over by the parent process is of no use.
    Inherited(io::Error),
    /// When the system refuses something that no option can mend.
    System(io::Error),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SeedUnreadable(file, error) => write!(f, "cannot read the seed {file}: {error}; name another with --seed"),
            Self::Malformed(file, JsonError { reason, line, column }) => write!(f, "{file}:{line}:{column}: {reason}"),
            Self::DataFile(file, OpenError::InUse) => {
                write!(f, "cannot use {file}: another process keeps its list there; name another file with --data")
            }
            Self::DataFile(file, OpenError::Io(error)) => write!(f, "cannot use {file}: {error}; name another file with --data"),
            Self::DataNotSaved(file, error) => write!(f, "cannot create {file}: {error}"),
            Self::Listen(endpoint, error) if error.kind() == io::ErrorKind::AddrInUse => {
                write!(f, "cannot listen on {endpoint}: another program does already; choose another address with --listen")
            }
            Self::Listen(endpoint, error) => write!(f, "cannot listen on {endpoint}: {error}"),
            Self::Inherited(error) => write!(f, "cannot use the sockets that LISTEN_FDS hands over: {error}"),
            Self::System(error) => write!(f, "cannot go on: {error}"),
        }
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    logging::start(args.log_level);
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            log::error!("{failure}");
            ExitCode::FAILURE
        }
    }
}

/// The service, from its start to its end.
fn run(args: Args) -> Result<(), Failure> {
    let inherited = listen::inherited().map_err(Failure::Inherited)?;
    inlet::check().map_err(Failure::System)?;
    survive_file_size_limits().map_err(Failure::System)?;
    let store = open_store(&args.seed, args.data.as_deref())?;
    // until here a signal ends the process by itself: there is nothing to finish
    let stop = stop_on_signals().map_err(Failure::System)?;
    let listening = if inherited.is_empty() { listen_all(&args)? } else { inherited };
    for listening in &listening {
        listening.limit_unsent(args.request_timeout).map_err(Failure::System)?;
        let (endpoint, base) = (&listening.endpoint, args.base_path.as_str());
        log::info!("listening on {endpoint}{}{base} with {} colors", endpoint.separator(base), store.len());
    }
    let exemptions = Exemptions { origins: args.allow_origin, hosts: args.allow_host };
    let context = Arc::new(Context {
        service: Service { store, base: args.base_path, read_only: args.read_only, is_stopping: AtomicBool::new(false), exemptions },
        limits: Limits {
            content_max: args.max_body as usize,
            request_timeout: args.request_timeout,
            keep_alive: args.keep_alive,
            workers_max: usize::from(args.workers),
        },
        access_log: args.access_log && log::log_enabled!(log::Level::Info),
        signs: Signs::default(),
    });
    let server = Server::new(context, listening, stop.as_fd()).map_err(Failure::System)?;
    server.run().map_err(Failure::System)?;
    log::info!("stopped");
    Ok(())
}

/// Opens the listening sockets that the options ask for.
fn listen_all(args: &Args) -> Result<Vec<Listening>, Failure> {
    let listen =
        |endpoint: &Endpoint| listen::listen(endpoint, args.unix_mode).map_err(|error| Failure::Listen(endpoint.to_string(), error));
    args.listen.iter().map(listen).collect()
}

/// Has the returned stream become readable on SIGTERM or SIGINT; a second one ends the process at once.
fn stop_on_signals() -> io::Result<UnixStream> {
    let (stop, signalled) = UnixStream::pair()?;
    let is_second = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register_conditional_shutdown(signal, EXIT_CUT_SHORT, Arc::clone(&is_second))?;
        signal_hook::flag::register(signal, Arc::clone(&is_second))?;
        signal_hook::low_level::pipe::register(signal, signalled.try_clone()?)?;
    }
    Ok(stop)
}

/// Has a file size limit be told by an error of the write, and not by a signal that ends the process.
fn survive_file_size_limits() -> io::Result<()> {
    // Nobody reads the flag: that the signal is caught is all it is for.
    signal_hook::flag::register(SIGXFSZ, Arc::default()).map(drop)
}

/// The list: of the durable file if there is one with a list in it, else of the seed.
fn open_store(seed: &Path, data: Option<&Path>) -> Result<Store, Failure> {
    let Some(data) = data else { return read_seed(seed).map(Store::in_memory) };
    let name = || data.display().to_string();
    let file = DataFile::open(data).map_err(|error| Failure::DataFile(name(), error))?;
    let palette = match file.read().map_err(|error| Failure::DataFile(name(), OpenError::Io(error)))? {
        Some(content) => palette_of(data, &content)?,
        None => {
            let palette = read_seed(seed)?;
            file.save(palette.colors()).map_err(|error| Failure::DataNotSaved(name(), error))?;
            palette
        }
    };
    Ok(Store::in_file(palette, file))
}

/// The list that the seed describes.
fn read_seed(file: &Path) -> Result<Palette, Failure> {
    let content = fs::read(file).map_err(|error| Failure::SeedUnreadable(file.display().to_string(), error))?;
    palette_of(file, &content)
}

/// The list in the content of a file.
fn palette_of(file: &Path, content: &[u8]) -> Result<Palette, Failure> {
    color::from_file(content).map(Palette::new).map_err(|error| Failure::Malformed(file.display().to_string(), error))
}
