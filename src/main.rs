//! `colors`: a JSON web service that keeps an ordered list of named colors.
//!
//! A map of the code. Each folder uses only those below it in this list; all of them log.
//!
//! - `main`: start-up in reading order, with `args` and `environment` (options), `load` (where the list comes from) and, in tests only,
//!   `documents` (man page and completions)
//! - `server`: sockets and threads: the accept loop (`mod`), `worker` (an event loop), `connection` (the state machine), `output`, `listen`,
//!   `systemd` (what the service manager is told)
//! - `service`: the contract: `respond` (a request in, an answer out), `target` (what a path names), `origin` (browsers), `token` (who may
//!   change the list), `page` (for browsers)
//! - `store`: the mutex around the `Vec` of colors (`colors`), `change` (what a write does), `writer` (group commit), `file` (the data file)
//! - `http`: RFC 9110 and 9112 on values: `parser`, `head`, `chunked`, `request`, `response`, `conditional`
//! - `logging`: log lines, and the thread that writes them

mod args;
#[cfg(test)]
mod documents;
mod environment;
mod http;
mod load;
mod logging;
mod server;
mod service;
mod store;

use std::fmt;
use std::fs;
use std::io::{self, Write as _};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::panic;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use threadpool::ThreadPool;

use crate::args::Args;
use crate::server::{Endpoint, Limits, Listening, Server, Shared};
use crate::service::{Allowlist, Loaded, Service, TokenFileError, Tokens};
use crate::store::{JsonError, OpenError, SaveError};

/// Bytes of stack of a thread; the deepest call takes a quarter of it.
const STACK_BYTES: usize = 256 * 1024;

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
    TokenFile(String, TokenFileError),
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
            Self::DataFile(file, error) => write!(f, "cannot use {file}: {error}"),
            Self::DataNotSaved(file, error) => write!(f, "cannot create {file}: {error}; name another file with --data"),
            Self::TokenFile(file, error) => write!(f, "cannot use the token file {file}: {error}"),
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
    let inherited = server::inherited();
    let started = logging::start(args.log_level).map_err(|error| Failure::System(refused(&error)));
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
    let is_starting = Arc::new(AtomicBool::new(true));
    let reload = args.token_file.as_ref().map(|_| reload_on_signal()).transpose().map_err(Failure::System)?;
    let stop = stop_on_signals(&is_starting, reload.is_none()).map_err(Failure::System)?;
    let (tokens, loaded) = load_tokens(&args)?.unzip();
    let (store, writer, details) = load::open(&args)?;
    is_starting.store(false, SeqCst);
    let listening = if inherited.is_empty() { listen_all(&args)? } else { inherited };
    for listening in &listening {
        listening.limit_unsent(args.request_timeout).map_err(Failure::System)?;
    }
    let base = args.base_path.as_str();
    let places: Vec<String> =
        listening.iter().map(|Listening { endpoint, .. }| format!("{endpoint}{}{base}", endpoint.separator(base))).collect();
    let open_endpoint = listening.iter().map(|listening| &listening.endpoint).find(|endpoint| endpoint.is_open()).cloned();
    let workers = args.workers();
    let limits = Limits {
        content_max: args.max_body,
        request_timeout: args.request_timeout,
        keep_alive: args.keep_alive,
        connections_max: server::connections_max(listening.len(), workers),
    };
    let allowlist = Allowlist { origins: args.allow_origin, hosts: args.allow_host };
    let service =
        Service { store, base: args.base_path, read_only: args.read_only, is_stopping: AtomicBool::new(false), allowlist, tokens };
    let shared = Arc::new(Shared::new(service, limits, args.access_log && log::log_enabled!(log::Level::Info)));
    if let Some(writer) = writer {
        pool(1, "writer").map_err(Failure::System)?.execute(|| writer.run());
    }
    let pool = pool(workers, "worker").map_err(Failure::System)?;
    let server = Server::new(shared, listening, &pool).map_err(Failure::System)?;
    // not before all that can fail: a failed start is one line
    for (position, place) in places.iter().enumerate() {
        match position {
            0 => log::info!("listening on {place} (colors {}, {details})", env!("CARGO_PKG_VERSION")),
            _ => log::info!("listening on {place}"),
        }
    }
    args.warnings.iter().for_each(|warning| log::warn!("{warning}"));
    match (loaded, open_endpoint) {
        (Some(loaded), _) => loaded.log(),
        (None, Some(endpoint)) if !args.read_only => {
            log::warn!(
                "whoever reaches {endpoint} may change the list: --token-file, --read-only or a loopback address would prevent that"
            );
        }
        _ => {}
    }
    server.run(stop.as_fd(), reload.as_ref().map(AsFd::as_fd)).map_err(Failure::System)?;
    log::info!("stopped");
    Ok(())
}

/// Says on standard output whether a start would succeed.
fn check(args: &Args) -> Result<(), Failure> {
    let colors = load::check(args)?;
    load_tokens(args)?;
    args.warnings.iter().for_each(|warning| log::warn!("{warning}"));
    writeln!(io::stdout(), "the options are fine: {colors}").map_err(Failure::System)
}

/// The tokens of the token file, if there is one.
fn load_tokens(args: &Args) -> Result<Option<(Tokens, Loaded)>, Failure> {
    let Some(file) = args.token_file.as_deref() else { return Ok(None) };
    let tokens = Tokens::new(file, args.private);
    let loaded = tokens.load().map_err(|error| Failure::TokenFile(file.display().to_string(), error))?;
    Ok(Some((tokens, loaded)))
}

fn listen_all(args: &Args) -> Result<Vec<Listening>, Failure> {
    let listen =
        |endpoint: &Endpoint| server::listen(endpoint, args.unix_mode).map_err(|error| Failure::Listen(endpoint.to_string(), error));
    args.listen.iter().map(listen).collect()
}

/// Makes the returned stream readable on SIGTERM, SIGINT and, if asked for, SIGHUP. A second one ends the process at once with exit code 1, but for SIGHUP: a
/// terminal that is closed may send several. During the start each ends it with exit code 0.
///
/// The handlers are there before anything takes time: the kernel drops signals without a handler for process 1 of a container.
fn stop_on_signals(is_starting: &Arc<AtomicBool>, on_hangup: bool) -> io::Result<UnixStream> {
    let (stop, signalled) = UnixStream::pair()?;
    let is_second = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT, SIGHUP].into_iter().filter(|signal| *signal != SIGHUP || (on_hangup && !is_ignored(SIGHUP))) {
        signal_hook::flag::register_conditional_shutdown(signal, 0, Arc::clone(is_starting))?;
        if signal != SIGHUP {
            signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&is_second))?;
            signal_hook::flag::register(signal, Arc::clone(&is_second))?;
        }
        signal_hook::low_level::pipe::register(signal, signalled.try_clone()?)?;
    }
    // Makes a file size limit an error of the write, and not the end of the process. Nobody reads the flag.
    signal_hook::flag::register(SIGXFSZ, Arc::default())?;
    Ok(stop)
}

/// Makes the returned stream readable on SIGHUP.
fn reload_on_signal() -> io::Result<UnixStream> {
    let (reload, signalled) = UnixStream::pair()?;
    signal_hook::low_level::pipe::register(SIGHUP, signalled)?;
    reload.set_nonblocking(true)?;
    Ok(reload)
}

/// Whether the parent process has this signal ignored, as nohup(1) does (proc_pid_status(5)).
fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Starts a pool of so many threads, all of this name.
///
/// # Errors
/// When the system refuses one of them.
fn pool(threads: usize, name: &str) -> io::Result<ThreadPool> {
    // threadpool panics when it cannot start a thread: the error says all there is to say
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let build = || threadpool::Builder::new().num_threads(threads).thread_stack_size(STACK_BYTES).thread_name(name.to_owned()).build();
    let pool = panic::catch_unwind(build);
    panic::set_hook(hook);
    pool.map_err(|_| refused(&io::ErrorKind::WouldBlock.into()))
}

fn refused(error: &io::Error) -> io::Error {
    io::Error::other(format!("the system refuses a thread: {error}; raise the limit of processes (ulimit -u, TasksMax=)"))
}
