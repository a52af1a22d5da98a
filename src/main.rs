//! `colors`: a JSON web service that keeps an ordered list of named colors.
//!
//! A map of the code; arrows of use point down this list only:
//!
//! - `main`: start-up in reading order
//! - `args`, `environment`: options, with `documents` (man page and completions, in tests only); `logging`: log lines; `threads`,
//!   `signals`; `load`: where the list comes from
//! - `server`: the accept loop, with `circle` (connections that a worker attends to by turns), `waiting` (those without one), `savers`
//!   (threads that wait for the disk), `memory` (the allocator), `listen` and `socket_file` (sockets), `supervisor` (what the service manager is told)
//! - `connection`: one connection's life on a worker, with `framing`, `head`, `chunks` and `refusal` (RFC 9112), `unsent` (responses
//!   under way), `wait` (what it waits for, since when), `inlet` (tiny_http's border), `seats` (how many there are) and `date`
//! - `context`: what every worker knows
//! - `respond`: every rule of the HTTP contract, with `origin` (browsers) and `resource` (targets)
//! - `store`: the mutex around the list; `datafile`: the durable file; `change`: what a write does, with `conditions`
//!   (If-Match); `palette`: the list itself; `color`: one color, and JSON
//! - `message`: requests and responses as values

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
mod environment;
mod framing;
mod head;
mod inlet;
mod listen;
mod load;
mod logging;
mod memory;
mod message;
mod origin;
mod palette;
mod refusal;
mod resource;
mod respond;
mod savers;
mod seats;
mod server;
mod signals;
mod socket_file;
mod store;
mod supervisor;
mod threads;
mod unsent;
mod wait;
mod waiting;

use std::fmt;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::args::Args;
use crate::color::JsonError;
use crate::context::{Context, Limits, Signs};
use crate::datafile::{OpenError, SaveError};
use crate::listen::{Endpoint, Listening};
use crate::origin::Exemptions;
use crate::respond::Service;
use crate::server::Server;
use crate::signals::Stop;

/// Why the service cannot start or go on; each is one line, and exit code 1.
#[derive(Debug)]
enum Failure {
    SeedUnreadable(String, io::Error),
    /// When the seed, or the data file, is not a file of colors.
    Malformed(String, JsonError),
    /// When the data file cannot be locked, read or created.
    DataFile(String, OpenError),
    /// When the list of the seed cannot be saved to the new data file.
    DataNotSaved(String, SaveError),
    Listen(String, io::Error),
    /// When a socket handed over by the parent process is of no use.
    Inherited(io::Error),
    /// When the system refuses something that no option can fix.
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
            Self::DataNotSaved(file, error) => write!(f, "cannot create {file}: {error}; name another file with --data"),
            Self::Listen(endpoint, error) => {
                write!(f, "cannot listen on {endpoint}: ")?;
                match error.kind() {
                    io::ErrorKind::AddrInUse => f.write_str("another program does already; choose another address with --listen"),
                    io::ErrorKind::AddrNotAvailable => f.write_str("this host has no such address; choose another with --listen"),
                    io::ErrorKind::PermissionDenied => {
                        write!(f, "{error}; choose a port from 1024 on, or a directory that this user may write, with --listen")
                    }
                    _ => write!(f, "{error}; choose another address with --listen"),
                }
            }
            Self::Inherited(error) => {
                write!(f, "cannot use the sockets that LISTEN_FDS hands over: {error}; fix the unit of the sockets, or unset LISTEN_FDS")
            }
            Self::System(error) => write!(f, "cannot go on: {error}"),
        }
    }
}

fn main() -> ExitCode {
    let args = Args::read();
    // before there are threads: it takes variables out of the environment
    let inherited = listen::inherited();
    let started = logging::start(args.log_level).map_err(Failure::System);
    match started.and_then(|()| if args.check { check(&args) } else { run(args, inherited) }) {
        Ok(()) => {
            logging::flush();
            ExitCode::SUCCESS
        }
        Err(failure) => {
            logging::fail(&failure);
            ExitCode::FAILURE
        }
    }
}

/// The service, from its start to its end.
fn run(args: Args, inherited: io::Result<Vec<Listening>>) -> Result<(), Failure> {
    let inherited = inherited.map_err(Failure::Inherited)?;
    let stop = Stop::on_signals().map_err(Failure::System)?;
    signals::survive_file_size_limits().map_err(Failure::System)?;
    inlet::check().map_err(Failure::System)?;
    let (store, details) = load::open(&args)?;
    let events = stop.serve();
    let listening = if inherited.is_empty() { listen_all(&args)? } else { inherited };
    for listening in &listening {
        listening.limit_unsent(args.request_timeout).map_err(Failure::System)?;
    }
    let base = args.base_path.as_str();
    let places: Vec<String> =
        listening.iter().map(|Listening { endpoint, .. }| format!("{endpoint}{}{base}", endpoint.separator(base))).collect();
    // only the engine that is about to go needs a thread for each change that waits for the disk
    let workers_max = if args.workers.is_some() { args.workers() } else { 1024 };
    let exemptions = Exemptions { origins: args.allow_origin, hosts: args.allow_host };
    let context = Arc::new(Context {
        service: Service { store, base: args.base_path, read_only: args.read_only, is_stopping: AtomicBool::new(false), exemptions },
        limits: Limits { content_max: args.max_body, request_timeout: args.request_timeout, keep_alive: args.keep_alive, workers_max },
        access_log: args.access_log && log::log_enabled!(log::Level::Info),
        signs: Signs::default(),
    });
    let server = Server::new(context, listening, events.as_fd()).map_err(Failure::System)?;
    // not before all that can fail: a failed start is one line
    for (position, place) in places.iter().enumerate() {
        match position {
            0 => log::info!("listening on {place} (colors {}, {details})", env!("CARGO_PKG_VERSION")),
            _ => log::info!("listening on {place}"),
        }
    }
    args.warnings.iter().for_each(|warning| log::warn!("{warning}"));
    server.run().map_err(Failure::System)?;
    log::info!("stopped");
    Ok(())
}

/// Says on standard output whether a start would succeed.
fn check(args: &Args) -> Result<(), Failure> {
    let colors = load::check(args)?;
    args.warnings.iter().for_each(|warning| log::warn!("{warning}"));
    writeln!(io::stdout(), "the options are fine: {colors}").map_err(Failure::System)
}

fn listen_all(args: &Args) -> Result<Vec<Listening>, Failure> {
    let listen =
        |endpoint: &Endpoint| listen::listen(endpoint, args.unix_mode).map_err(|error| Failure::Listen(endpoint.to_string(), error));
    args.listen.iter().map(listen).collect()
}
