//! `colors`: a JSON web service that keeps an ordered list of named colors.
//!
//! A map of the code; a folder uses those below it in this list, never those above:
//!
//! - `main`: start-up in reading order, with `args` (command line and environment), `logging`, `systemd` (what the service manager is told)
//!   and, in tests only, `documents` (man page and completions)
//! - `server`: sockets and threads: the accept loop (`mod`), `worker` (an event loop), `connection` (the state machine), `output`, `listen`,
//!   `client` (whom requests are from), `wrong_tokens`
//! - `service`: the contract: `respond` (a request in, an answer out), `target` (what a path names), `origin` (browsers),
//!   `token` (who may change the list)
//! - `store`: the mutex around the `Vec` of colors (`colors`), `change` (what a write does), `writer` (group commit), `file` (the durable file)
//! - `http`: RFC 9110 and 9112 on values: `parser`, `head`, `chunked`, `request`, `response`, `conditional`

mod args;
#[cfg(test)]
mod documents;
mod http;
mod logging;
mod server;
mod service;
mod store;
mod systemd;

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use threadpool::ThreadPool;

use crate::args::Args;
use crate::server::{Endpoint, Limits, Listening, Server, Shared};
use crate::service::{Exemptions, Service, TokenFileError, Tokens};
use crate::store::{Colors, DataFile, JsonError, OpenError, SaveError, Store, Writer, color};

/// Exit code of a second SIGTERM or SIGINT, which does not wait for what is under way.
const EXIT_CUT_SHORT: i32 = 1;

/// Bytes of stack of a thread; the deepest call takes a quarter of it.
const STACK_BYTES: usize = 256 * 1024;

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
    /// When the tokens cannot be read, or are none.
    TokenFile(String, TokenFileError),
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
            Self::TokenFile(file, error) => write!(f, "cannot use the token file {file}: {error}"),
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
    let args = Args::parse_or_exit();
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
    let inherited = server::inherited().map_err(Failure::Inherited)?;
    survive_file_size_limits().map_err(Failure::System)?;
    let tokens = args.token_file.as_deref().map(|file| Tokens::new(file, args.private));
    let load = |tokens: &Tokens| tokens.load().map_err(|error| Failure::TokenFile(tokens.file().display().to_string(), error));
    let loaded = tokens.as_ref().map(load).transpose()?;
    let (store, writer) = open_store(&args.seed, args.data.as_deref())?;
    // until here a signal ends the process by itself: there is nothing to finish
    let stop = stop_on_signals().map_err(Failure::System)?;
    let reload = tokens.as_ref().map(|_| reload_on_signal()).transpose().map_err(Failure::System)?;
    let listening = if inherited.is_empty() { listen_all(&args)? } else { inherited };
    for listening in &listening {
        listening.limit_unsent(args.request_timeout).map_err(Failure::System)?;
        let (endpoint, base) = (&listening.endpoint, args.base_path.as_str());
        log::info!("listening on {endpoint}{}{base} with {} colors", endpoint.separator(base), store.len());
    }
    if let Some(loaded) = loaded {
        log::info!("{loaded}");
        loaded.warning().inspect(|warning| log::warn!("{warning}"));
    } else if let Some(open) = listening.iter().find(|listening| listening.endpoint.is_open()).filter(|_| !args.read_only) {
        log::warn!(
            "whoever reaches {} may change the list: --token-file, --read-only or a loopback address would prevent that",
            open.endpoint
        );
    }
    let workers = args.workers();
    let exemptions = Exemptions { origins: args.allow_origin, hosts: args.allow_host };
    let limits = Limits {
        content_max: args.max_body as usize,
        request_timeout: args.request_timeout,
        keep_alive: args.keep_alive,
        connections_max: server::connections_max(listening.len(), workers),
    };
    let service =
        Service { store, base: args.base_path, read_only: args.read_only, is_stopping: AtomicBool::new(false), exemptions, tokens };
    let access_log = args.access_log && log::log_enabled!(log::Level::Info);
    let shared = Arc::new(Shared::new(service, limits, access_log).map_err(Failure::System)?);
    if let Some(writer) = writer {
        pool(1, "writer").map_err(Failure::System)?.execute(|| writer.run());
    }
    let pool = pool(workers, "worker").map_err(Failure::System)?;
    let server = Server::new(shared, listening, &pool).map_err(Failure::System)?;
    server.run(stop.as_fd(), reload.as_ref().map(AsFd::as_fd)).map_err(Failure::System)?;
    log::info!("stopped");
    Ok(())
}

/// A pool of so many threads of this name.
///
/// # Errors
/// When the system does not give that many.
fn pool(threads: usize, name: &str) -> io::Result<ThreadPool> {
    let build = || threadpool::Builder::new().num_threads(threads).thread_stack_size(STACK_BYTES).thread_name(name.to_owned()).build();
    std::panic::catch_unwind(build).map_err(|_| io::Error::other("the system gives no more threads"))
}

/// Opens the listening sockets that the options ask for.
fn listen_all(args: &Args) -> Result<Vec<Listening>, Failure> {
    let listen =
        |endpoint: &Endpoint| server::listen(endpoint, args.unix_mode).map_err(|error| Failure::Listen(endpoint.to_string(), error));
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

/// Has the returned stream become readable on SIGHUP.
fn reload_on_signal() -> io::Result<UnixStream> {
    let (reload, signalled) = UnixStream::pair()?;
    signal_hook::low_level::pipe::register(SIGHUP, signalled)?;
    reload.set_nonblocking(true)?;
    Ok(reload)
}

/// Has a file size limit be told by an error of the write, and not by a signal that ends the process.
fn survive_file_size_limits() -> io::Result<()> {
    // Nobody reads the flag: that the signal is caught is all it is for.
    signal_hook::flag::register(SIGXFSZ, Arc::default()).map(drop)
}

/// The list: of the durable file if there is one with a list in it, else of the seed. With a durable file also the writer that has to run.
fn open_store(seed: &Path, data: Option<&Path>) -> Result<(Store, Option<Writer>), Failure> {
    let Some(data) = data else { return Ok((Store::in_memory(read_seed(seed)?), None)) };
    let name = || data.display().to_string();
    let file = DataFile::open(data).map_err(|error| Failure::DataFile(name(), error))?;
    let colors = match file.read().map_err(|error| Failure::DataFile(name(), OpenError::Io(error)))? {
        Some(content) => colors_of(data, &content)?,
        None => {
            let colors = read_seed(seed)?;
            file.save(colors.colors()).map_err(|error| Failure::DataNotSaved(name(), error))?;
            colors
        }
    };
    let (store, writer) = Store::in_file(colors, file);
    Ok((store, Some(writer)))
}

/// The list that the seed describes.
fn read_seed(file: &Path) -> Result<Colors, Failure> {
    let content = fs::read(file).map_err(|error| Failure::SeedUnreadable(file.display().to_string(), error))?;
    colors_of(file, &content)
}

/// The list in the content of a file.
fn colors_of(file: &Path, content: &[u8]) -> Result<Colors, Failure> {
    color::from_file(content).map(Colors::new).map_err(|error| Failure::Malformed(file.display().to_string(), error))
}
