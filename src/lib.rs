//! `colors`: a JSON web service that keeps an ordered list of named colors. What clients may rely
//! on is in docs/http.md.
//!
//! A map of the code, with one line for each file but `main` and tests. A group uses only the
//! groups below it. docs/design.md gives the reasons for the groups.
//!
//! - the program
//!   - `lib`: from the start to the end, in reading order
//!   - `health_check`: asks another process whether all is well
//!   - `load`: where the list comes from at the start
//!   - `follower`: gets the list of another service, and submits it as a change
//!   - `failure`: why the process ends, in words that say what to do
//! - `serve`: the loop
//!   - `serve`: each worker takes requests, and answers most of them at once
//!   - `late`: requests that other threads answer
//!   - `wait`: requests that wait for a change
//!   - `accept`: the main thread, which has connections accepted and takes signals
//!   - `listen`: the sockets that listen, and the files of unix sockets
//! - `service`: the contract, a request in and a response out
//!   - `service`: what requests are answered from, and what is to be done with one
//!   - `admission`: what the head of a request decides
//!   - `matcher`: which operation a request asks for
//!   - `respond`: the operations, and their responses
//!   - `waits`: which requests wait for a change, and which a change concerns
//!   - `policy`: the words of the server's own refusals; counts and logs responses
//!   - `access_log`: what the log says about a response
//!   - `monitoring`: `/health`, and `/metrics` in the text that Prometheus reads
//!   - `origin`: which web pages may do what
//!   - `token`: who may change the list
//!   - `page`: the page for browsers
//!   - `openapi`: the OpenAPI document
//! - what these three share
//!   - `options`: options, from the command line and the environment
//!   - `options/values`: the forms of their values
//!   - `follow_status`: the service whose list this one has, and how it answers
//! - `store`: the list, in memory and on disk
//!   - `store`: the list, and where it is kept
//!   - `list`: one mutex around the current version
//!   - `color_list`: one version of the list
//!   - `color`: a color, which is its JSON
//!   - `json`: content and files that become colors
//!   - `change`: what a change does to a version
//!   - `difference`: the edits that lead from one list to another
//!   - `writer`: group commit, and polls for what others have committed
//!   - `engine`: what the writer needs of a storage engine, and a start of the place of the list
//!   - `etcd`: the list in etcd: its keys and transactions, and what a start does with a key
//!   - `etcd/etcd_engine`: commits, what they have missed, and snapshots
//!   - `etcd/position`: which list it is, and its place in the log
//!   - `etcd/format`: the values in etcd
//!   - `etcd/watch`: wakes the writer after commits of other services
//!   - `etcd/gateway`: asks the members of etcd
//!   - `etcd/user`: as whom they are asked
//!   - `etcd/error`: why etcd cannot be used, and whether a member may have done what it was asked
//!   - `storage_status`: whether changes can be saved
//!   - `sqlite`: FILE before it is open, and all locks on it
//!   - `sqlite/data_path`: what is at the path of `--data`, before SQLite opens it
//!   - `sqlite/new_file`: makes FILE at the first start
//!   - `sqlite/locks`: keeps out a second service, and waits for what is busy
//!   - `sqlite/open_database`: an open database as a storage engine, its reads and saves
//!   - `sqlite/rows`: the table of colors in SQL
//!   - `sqlite/wal_files`: FILE, FILE-wal and FILE-shm of a database that is open
//!   - `sqlite/error`: why a database cannot be used
//! - `metrics`: what is counted
//! - `http`: requests and responses as the service sees them, and times as text
//!   - `request`: a request as a value
//!   - `fields`: the fields of a head that the service knows
//!   - `response`: a response as a value, and its fields as bytes
//! - what all of them may use
//!   - `file_id`: which file is which
//!   - `representation`: bytes with a tag that many share
//!   - `conditions`: entity tags, and If-Match and If-None-Match on them
//!   - `pool`: the threads, and their names
//!   - `outbound`: requests to other servers, and their time-outs
//!   - `host_resolver`: looks up the names of other servers
//!   - `secret_file`: files that have secrets
//!   - `signals`: stop the service, or have tokens read again
//!   - `service_manager`: what systemd is told, heartbeats for its watchdog included
//!   - `logging`: log lines, how many there may be, and the thread that writes them
//! - `crates/bounded_http`: the server, which knows nothing of colors. It maps its own files.
//!
//! # The way of a request
//!
//! A loop takes requests, a matcher says what each asks for, and a mutex guards the list.
//!
//! **The loop** of each worker is `serve::serve`. `Worker::try_recv` gives the requests that have
//! arrived, one after the other, and `Handler::answer` answers each. Then `Worker::wait` waits.
//!
//! **A read.**
//!
//! 1. `Exchange::new` reads the fields that the service knows from the head of the request.
//! 2. `Service::decide` has `Service::admit` and the matcher find the `Operation`.
//!    `Service::operate` finds the color in the current version of the list, and makes the
//!    `Response`. If that would take long, another thread calls `Handler::answer` once more.
//! 3. `Service::finish` counts and logs it. `Request::respond` leaves it to the worker, which sends
//!    it in its next `try_recv`.
//!
//! **A change.** Without `--data`, `Service::operate` edits the list by `SharedList::change`, as a
//! part of step 2 above. With it:
//!
//! 1. `Service::operate` makes a `Change` of the content: `Decision::Save`. At the end of the pass,
//!    `Handler::submit` gives the changes to the writer, by `Store::submit`, and the requests with
//!    them.
//! 2. The `Writer` takes changes that wait, finds the `Outcome` and the `Edit`s of each on a clone
//!    of the list, commits (FILE-wal is synced, or etcd has it), and publishes the clone.
//! 3. The publication calls `Waits::mark` with the `Step` to the new version, as below.
//! 4. With the requests and the outcomes, the writer calls `Handler::answer_decided`.
//!    `Service::response_to` makes the responses, also if a change was not made, or may not be.
//!    `respond_all` sends them to the workers.
//!
//! **A wait** (`Prefer: wait`, with a tag that is current).
//!
//! 1. `Service::operate` returns `Decision::Wait`, with the number of the version that it has seen.
//!    `Handler::answer` adds a `Wait` to the `Waits`, asks once more, since a change may have come
//!    before, and parks the request: `Request::park`.
//! 2. `Waits::mark` gets the `Step` to each new version. It notes the number of the version at each
//!    color that the step changes and somebody waits for. `Handle::notify` has `Worker::wait`
//!    return.
//! 3. The loop calls `Worker::wake` for each request in `Waits::take_affected`. So `try_recv` gives
//!    it again, and it goes the way of a read. If that would still be a 304, `Wait::is_changed`
//!    tells a change and a change back by the number of the version.
//!
//! **A change at another service** that shares the list in etcd.
//!
//! 1. `Gateway::watch` tells `LogWatch::run` that something was put; `Store::poll` wakes the
//!    writer.
//! 2. `Writer::poll_or_retry` calls `EtcdEngine::poll`, which reads the entries behind its
//!    `Position`, and returns the list and the edits that lead there. While there are changes, the
//!    next save finds the same by `EtcdEngine::begin`.
//! 3. `SharedList::publish` makes a version of it, with the next number, and so on as above.
//!
//! **A deadline.** The server has them all. A request that does not arrive in time is refused in
//! the words of `Policy::refuse`. One that has waited to the end is given again with
//! `Reason::TimeOver`. It may wait no more, so `Handler::answer` responds with 304.
//!
//! **The stop.**
//!
//! 1. A signal makes a stream readable; `serve::accept` returns.
//! 2. `serve::stop` calls `Acceptor::stop`, which sets `Phase::Stopping`: each response closes its
//!    connection, and requests that wait are given again with `Reason::Stopping`. It waits until no
//!    connection is left, or until the time for that is over. From then on, the loop of a worker
//!    that has no connections ends.
//! 3. `Store::close` has the writer save what is queued and close the storage.
//!
//! # Threads
//!
//! `run` starts them, but for log, which main starts before, and resolver, which starts at the
//! first look-up. All but these and main are threads of one pool. Those that run for good have
//! names of their own, such as worker-0. For a moment, there is one more at a stop, and one for
//! each member of etcd when the service looks which of them answers.
//!
//! - **main** reads the tokens and opens the list. Then it accepts connections, takes signals,
//!   reads tokens again and sends heartbeats. It waits in poll(2), at the start for FILE, etcd or
//!   the service that is followed, and at the stop for connections and the writer.
//! - **The workers** run the loop. Their number is `--workers`, or one for each processor but one,
//!   from 1 to 256. The processor that is left is for the kernel's network, the writer, long
//!   answers, and the other programs of the host: a worker never sleeps under full load, so one
//!   that shares its processor is set aside for some milliseconds at a time, and all its
//!   connections wait. A worker waits for no client, no disk, and no other thread, except for the
//!   moment that a lock is held.
//! - **One more** makes the answers that take long, one after the other: the first read of a long
//!   list after a change, a change of the whole list, a change with more than 16 KiB of content,
//!   and, without `--data`, a change with a condition on a long list. No heartbeat depends on it:
//!   many long answers are no fault.
//! - **The writer**, with `--data`, saves changes, responds to them, and closes the storage. It
//!   waits for the disk, for locks of other programs or for etcd, and for its channel.
//! - **The watch**, with a list in etcd, wakes the writer when another service has changed the
//!   list. It waits for etcd.
//! - **The follower**, with `--follow`, asks the other service, and submits its list. It waits for
//!   that service and for the writer.
//! - **resolver**, once a host has to be found by its name, looks up names one after the other. It
//!   waits for DNS; who asks waits no longer than for any other step (`host_resolver`).
//! - **log** writes log lines. It waits for its channel and for standard error.
//!
//! # Locks
//!
//! Each is held for a moment: nothing is sent, saved or logged under it, and no whole list is made,
//! hashed or freed. The exceptions are the locks of `ColorList::envelope`, `Representation::tag`
//! and `SharedList::latest`, under which a list is made or hashed, and those of `Documents`, under
//! which each of them is made once. The crates have locks of their
//! own; while `bounded_http` calls the `Policy`, it may have one for which no thread waits.
//!
//! - `SharedList::current`: the current version of the list; locked to clone it, or to edit it in
//!   memory.
//! - `SharedList::latest`: the envelope that was made last. Held while one is made, on the thread
//!   for answers that take long alone.
//! - `ColorList::envelope` and `Representation::tag`: each is made once. A worker makes only those
//!   of short lists (`SharedList::ready_envelope`).
//! - `Waits::workers`: which requests of a worker wait for a change, and what has changed.
//! - `Tokens::accepted`: the hashes and the names of the tokens. `User::token`: that of etcd.
//! - `Limiter::rate`: how many lines of one kind were logged in this second.
//! - `Lookups::thread` and `Lookups::known`: the channel to resolver, and what it has found.
//! - `StorageStatus::current`: whether saving works.
//! - `FollowStatus::answers`: how the service that is followed answers.

#![forbid(unsafe_code)]

mod conditions;
#[cfg(test)]
mod documents_tests;
mod failure;
mod file_id;
mod follow_status;
mod follower;
#[cfg(fuzzing)]
#[path = "../fuzz/seam/fuzzing.rs"]
pub mod fuzzing;
mod health_check;
mod host_resolver;
mod http;
mod load;
mod logging;
mod metrics;
mod options;
mod outbound;
mod pool;
mod representation;
mod secret_file;
mod serve;
mod service;
mod service_manager;
mod signals;
mod store;

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use bounded_http::{Handle, Limits};

use crate::failure::Failure;
use crate::follower::Follower;
use crate::load::Opened;
use crate::metrics::Metrics;
use crate::options::{DataPlace, Endpoint, Options};
use crate::serve::{Handler, Listener};
use crate::service::{Documents, Service, Tokens, Waits};
use crate::signals::Signals;

/// How long after the signal the process stops waiting for the storage to be closed. A start
/// waits longer for a predecessor that stops: `LOCK_TIME` in `sqlite/locks`.
const STOP_TIME: Duration = Duration::from_millis(4500);

/// The part of [`STOP_TIME`] that connections cannot use up. It is for the writer, which saves what
/// is queued and closes the storage.
const CLOSE_TIME: Duration = Duration::from_millis(500);

/// Runs the service until it is told to stop, or runs `--check`, `--dump` or `--health`. Exit
/// codes: 0, 1 for a failure at run time, 2 for a mistake on the command line.
pub fn main() -> ExitCode {
    let options = Arc::new(Options::read());
    // Removes variables from the environment, so there must be no other thread yet.
    let inherited = serve::inherited(options.request_timeout);
    let started = logging::start(options.log_level).map_err(|_| Failure::Thread);
    let ended = started.and_then(|()| match (&options.health, &options.data) {
        (Some(address), _) => health_check::check(&options, address.as_ref()),
        (None, Some(place)) if options.dump => load::dump(place, &options),
        _ if options.check => check(&options),
        _ => run(&options, inherited),
    });
    logging::end(ended.as_ref().err());
    if ended.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs the service, from its start to its end.
fn run(options: &Arc<Options>, inherited: io::Result<Vec<Listener>>) -> Result<(), Failure> {
    let inherited = inherited.map_err(Failure::Inherited)?;
    let is_activated = !inherited.is_empty();
    let is_starting = Arc::new(AtomicBool::new(true));
    let signals =
        Signals::handle(&is_starting, options.handles_hangup()).map_err(Failure::System)?;
    let tokens = load_tokens(options)?;
    let follower = Follower::new(options);
    let mut source = load::load_source(options, follower.as_ref())?;
    source.lock()?;
    let workers = options.worker_count();
    let listeners = if is_activated { inherited } else { listen_all(options)? };
    let limits = limits(options, listeners.len(), workers).map_err(Failure::System)?;
    let endpoints: Vec<_> = listeners.iter().map(|listener| listener.endpoint.clone()).collect();
    let pool = pool::start(thread_count(options, workers)).ok_or(Failure::Thread)?;
    let server = Handle::new(workers, limits).map_err(Failure::System)?;
    let waits = Waits::new(server.clone(), workers);
    // FILE is made last: a start that gets no addresses or no threads makes no FILE.
    let Opened { store, writer, watch, details, path } =
        load::open(source, options, waits.listener())?;
    // From here on, the first SIGTERM or SIGINT makes `serve::accept` return.
    is_starting.store(false, SeqCst);
    let followed = follower.as_ref().map(|follower| Arc::clone(&follower.followed));
    let checks_host = listeners.iter().map(|listener| listener.checks_host(options)).collect();
    let service = Arc::new(Service {
        options: Arc::clone(options),
        list: Arc::clone(&store.list),
        storage: store.status().cloned(),
        tokens,
        followed,
        metrics: Metrics::new(workers),
        server: server.clone(),
        waits,
        checks_host,
        documents: Documents::default(),
    });
    let handler = Handler::new(Arc::clone(&service), store, &pool);
    if let Some(writer) = writer {
        let handler = Arc::clone(&handler);
        pool::run_named(&pool, "writer", move || serve::save(writer, &handler));
    }
    if let Some(watch) = watch {
        let handler = Arc::clone(&handler);
        pool::run_named(&pool, "watch", move || watch.run(|| handler.store.poll()));
    }
    let policy = Arc::clone(&service);
    let (acceptor, workers) = server.start(policy, listeners).map_err(Failure::System)?;
    for worker in workers {
        let handler = Arc::clone(&handler);
        let name = format!("worker-{}", worker.number());
        pool::run_named(&pool, &name, move || serve::run(worker, &handler));
    }
    // The start is logged now that it cannot fail any more: a failed one logs its error alone.
    log_start(options, &endpoints, &details);
    if let Some(follower) = follower {
        let handler = Arc::clone(&handler);
        pool::run_named(&pool, "follower", move || follower.run(&handler.store));
    }
    let warning = service.storage.as_ref().and_then(|status| status.now().warning);
    log_advice(options, &endpoints, is_activated, warning, service.tokens.as_ref());
    let ended = serve::accept(&acceptor, &handler, &signals);
    signals.await_second();
    let deadline = Instant::now() + STOP_TIME;
    serve::stop(acceptor, deadline - CLOSE_TIME);
    match (handler.store.close(deadline), path) {
        (Ok(()), _) => log::info!("stopped"),
        (Err(reason), None) => log::warn!("stopped: {reason}"),
        (Err(reason), Some(path)) => {
            let file = path.display();
            log::warn!("stopped; keep {file} and {file}-wal together: {reason}");
        }
    }
    ended.map_err(Failure::System)
}

/// The limits of the server, within what the system has.
fn limits(options: &Options, listeners: usize, workers: usize) -> io::Result<Limits> {
    let memory = bounded_http::control_group_limit();
    let descriptors = bounded_http::raise_descriptor_limit();
    let connections = bounded_http::connections_within(descriptors, memory, listeners, workers)?;
    Ok(service::limits(options, connections, bounded_http::buffers_within(memory)))
}

/// How many threads the pool has.
fn thread_count(options: &Options, workers: usize) -> usize {
    let of_storage = match &options.data {
        None => 0,
        Some(DataPlace::File(_)) => 1, // the writer
        Some(DataPlace::Etcd(_)) => 2, // and the watch
    };
    // One for answers that take long.
    workers + 1 + usize::from(options.follow.is_some()) + of_storage
}

/// Logs where the service listens, and what list it has.
fn log_start(options: &Options, endpoints: &[Endpoint], details: &str) {
    let base = options.base_path.as_str();
    let place = |endpoint: &Endpoint| match endpoint {
        // The form in which nginx writes a unix socket and a path.
        Endpoint::Unix(_) if !base.is_empty() => format!("{endpoint}:{base}"),
        _ => format!("{endpoint}{base}"),
    };
    let places: Vec<String> = endpoints.iter().map(place).collect();
    log::info!("listening on {} (colors {}, {details})", places[0], env!("BUILD_VERSION"));
    places[1..].iter().for_each(|place| log::info!("listening on {place}"));
}

/// Logs settings that may not be as intended, and the tokens that were loaded.
fn log_advice(
    options: &Options,
    endpoints: &[Endpoint],
    is_activated: bool,
    warning: Option<String>,
    tokens: Option<&Tokens>,
) {
    log_warnings(options);
    warning.iter().for_each(|warning| log::warn!("{warning}"));
    if is_activated {
        log::info!("the service manager hands over the sockets: --listen does nothing");
    }
    if let Some(url) = &options.follow {
        log::info!("follows {url}: changes are made there");
    }
    if let Some(tokens) = tokens {
        tokens.log();
    }
    let Some(endpoint) = endpoints.iter().find(|endpoint| endpoint.is_open()) else { return };
    if options.token_file.is_none() && !options.read_only && options.follow.is_none() {
        log::warn!(
            "whoever reaches {endpoint} may change the list: --token-file, --read-only or a \
             loopback address would prevent that"
        );
    }
}

/// Logs what is wrong with options, and does not prevent a start.
fn log_warnings(options: &Options) {
    options.warnings.iter().for_each(|warning| log::warn!("{warning}"));
    if let Some(file) = &options.etcd_user_file {
        secret_file::warn_if_open("etcd user file", file);
    }
}

/// `--check`: reads what a start would read, and fails if that would make the start fail. Listens
/// nowhere, and changes no list.
fn check(options: &Options) -> Result<(), Failure> {
    let colors = load::check_list(options)?;
    load_tokens(options)?;
    for endpoint in &options.listen {
        serve::check_endpoint(endpoint)
            .map_err(|error| Failure::Listen(endpoint.to_string(), error))?;
    }
    log_warnings(options);
    writeln!(io::stdout(), "the options are fine: {colors}").map_err(Failure::Output)
}

/// The tokens of the token file, if there is one.
fn load_tokens(options: &Options) -> Result<Option<Tokens>, Failure> {
    let Some(file) = options.token_file.as_deref() else { return Ok(None) };
    let tokens = Tokens::new(file);
    tokens.load().map_err(|error| Failure::TokenFile(file.display().to_string(), error))?;
    Ok(Some(tokens))
}

fn listen_all(options: &Options) -> Result<Vec<Listener>, Failure> {
    let mut listeners = Vec::new();
    for endpoint in &options.listen {
        let opened = serve::listen(endpoint, options.unix_mode, options.request_timeout);
        listeners.extend(opened.map_err(|error| Failure::Listen(endpoint.to_string(), error))?);
    }
    Ok(listeners)
}
