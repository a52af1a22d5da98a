//! Sockets and threads: the accept loop, on the main thread, and the workers that it hands connections to.

mod client;
mod connection;
#[cfg(fuzzing)]
#[path = "../../fuzz/inside/server.rs"]
pub(crate) mod fuzzing;
mod listen;
mod output;
mod shared;
mod socket_file;
mod systemd;
mod worker;

use std::io;
use std::mem::take;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use threadpool::ThreadPool;

pub(crate) use listen::{Endpoint, Listener, inherited, listen};
pub(crate) use shared::{Limits, Shared};
use systemd::ServiceManager;
use worker::{Inbox, Worker};

use crate::logging;

/// How long the end may take: what is not answered by then is cut off.
const STOP_TIME: Duration = Duration::from_secs(4);

/// How long, at the end, those are still accepted whose connection the kernel holds.
const LAST_ACCEPTS: Duration = Duration::from_secs(2);

/// How long to wait when there is no room for a connection, or the system has no descriptor or memory for one.
const PAUSE: Duration = Duration::from_millis(20);

/// Connections accepted from one listener in a row.
const ACCEPTS_IN_A_ROW: usize = 64;

/// Most connections at a time: several times what a small host serves.
const CONNECTIONS_MAX: usize = 8192;

/// Descriptors that are no connection's: standard streams, epoll instances, events, signals, files being saved.
const DESCRIPTORS_RESERVED: usize = 32;

/// The accept loop.
pub(crate) struct Server {
    shared: Arc<Shared>,
    inboxes: Vec<Arc<Inbox>>,
    listeners: Vec<Listener>,
    /// The system had no descriptor or memory for a connection.
    pauses: bool,
    service_manager: ServiceManager,
}

impl Server {
    /// Starts workers, one on each thread of the pool.
    pub(crate) fn new(shared: Arc<Shared>, listeners: Vec<Listener>, pool: &ThreadPool) -> io::Result<Self> {
        let mut inboxes = Vec::new();
        for metrics in &shared.service.metrics.workers {
            let inbox = Arc::new(Inbox::new(Arc::clone(metrics))?);
            let worker = Worker::new(Arc::clone(&shared), Arc::clone(&inbox))?;
            pool.execute(|| worker.run());
            inboxes.push(inbox);
        }
        Ok(Self { shared, inboxes, listeners, pauses: false, service_manager: ServiceManager::from_env() })
    }

    /// Serves until `stop` becomes readable, then finishes what is under way. When `reload` becomes readable, the tokens are read again.
    pub(crate) fn run(mut self, stop: BorrowedFd<'_>, reload: Option<BorrowedFd<'_>>) -> io::Result<()> {
        self.service_manager.ready(self.shared.service.store.list.len());
        while !self.accept_ready(stop, reload)? {
            let has_answered = || {
                let store = &self.shared.service.store;
                let has_answered = store.is_alive() && self.inboxes.iter().all(|inbox| inbox.has_answered());
                if has_answered {
                    store.ping();
                    self.inboxes.iter().for_each(|inbox| inbox.ask());
                }
                has_answered
            };
            self.service_manager.tick(Instant::now(), self.shared.service.store.list.len(), has_answered);
        }
        self.stop();
        Ok(())
    }

    /// Waits for connections and accepts them. True if the service has to stop.
    fn accept_ready(&mut self, stop: BorrowedFd<'_>, reload: Option<BorrowedFd<'_>>) -> io::Result<bool> {
        self.shared.set_limit_reached(self.shared.is_full() && self.listeners.iter().any(has_pending));
        let pauses = take(&mut self.pauses) || self.shared.limit_reached();
        let time = if pauses { Some(PAUSE) } else { self.service_manager.poll_timeout() };
        let mut polled = vec![PollFd::from_borrowed_fd(stop, PollFlags::IN)];
        polled.extend(self.listeners.iter().filter(|_| !pauses).map(|listener| PollFd::new(&listener.socket, PollFlags::IN)));
        polled.extend(reload.map(|reload| PollFd::from_borrowed_fd(reload, PollFlags::IN)));
        match rustix::event::poll(&mut polled, time.and_then(|time| Timespec::try_from(time).ok()).as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            // poll(2): the kernel had no memory to wait with, so this thread waits by itself
            Err(Errno::NOMEM) => {
                self.pause(&Errno::NOMEM.into());
                std::thread::sleep(PAUSE);
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        }
        let mut ready: Vec<bool> = polled.iter().map(|polled| !polled.revents().is_empty()).collect();
        if let Some(reload) = reload.filter(|_| ready.pop() == Some(true)) {
            self.reload_tokens(reload);
        }
        for (index, _) in ready[1..].iter().enumerate().filter(|(_, ready)| **ready) {
            self.accept_from(index);
        }
        Ok(ready[0])
    }

    fn reload_tokens(&self, reload: BorrowedFd<'_>) {
        // Several signals are one reload; nothing to read means that it was read before.
        let _ = rustix::io::read(reload, &mut [0; 64]);
        let Some(tokens) = &self.shared.service.tokens else { return };
        match tokens.load() {
            Ok(loaded) => loaded.log(),
            Err(error) => log::error!("cannot use the token file {}: {error}; the previous tokens stay", tokens.file().display()),
        }
    }

    /// Accepts connections that a listener has, some at a time. True if there may be more.
    fn accept_from(&mut self, index: usize) -> bool {
        let listener = &self.listeners[index];
        for _ in 0..ACCEPTS_IN_A_ROW {
            if self.shared.is_full() {
                return false;
            }
            match listener.accept() {
                Ok((socket, peer)) => {
                    let inbox = self.inboxes.iter().min_by_key(|inbox| inbox.load()).expect("there is a worker");
                    inbox.add(socket, peer, listener.endpoint.is_loopback(), &self.shared);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                // the client has gone before it was accepted
                Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted) => {}
                Err(error) => {
                    self.pause(&error);
                    return false;
                }
            }
        }
        true
    }

    /// Has nothing accepted for [`PAUSE`], since the system lacks something.
    fn pause(&mut self, error: &io::Error) {
        logging::client_warning(format_args!("cannot accept connections for the moment: {error}"));
        self.pauses = true;
    }

    /// Finishes what is under way, for [`STOP_TIME`] at most.
    fn stop(mut self) {
        let begun = Instant::now();
        self.service_manager.stopping();
        self.listeners.iter_mut().for_each(Listener::unlink);
        self.shared.service.is_stopping.store(true, Relaxed);
        self.inboxes.iter().for_each(|inbox| inbox.wake());
        // those whose connection the kernel has accepted already are clients like the others
        while self.accept_pending(begun + LAST_ACCEPTS) && begun.elapsed() < LAST_ACCEPTS {
            std::thread::sleep(PAUSE);
        }
        self.listeners.clear();
        self.shared.set_limit_reached(false);
        while self.shared.connections() > 0 && begun.elapsed() < STOP_TIME {
            std::thread::sleep(PAUSE);
        }
        let connections = self.shared.connections();
        if connections > 0 {
            log::warn!("cut off {connections} connections that were not done {} s after the signal", STOP_TIME.as_secs());
        }
    }

    /// Accepts what the kernel holds. True if more is left than there is room or time for.
    fn accept_pending(&mut self, deadline: Instant) -> bool {
        for index in 0..self.listeners.len() {
            while Instant::now() < deadline && self.accept_from(index) {}
        }
        self.listeners.iter().any(has_pending)
    }
}

/// Whether the kernel holds a connection of this listener that is not accepted yet.
fn has_pending(listener: &Listener) -> bool {
    let mut polled = [PollFd::new(&listener.socket, PollFlags::IN)];
    rustix::event::poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// The number of connections for which the process may have descriptors beside those of its listeners and workers, at most
/// [`CONNECTIONS_MAX`]; raises the limit as far as it goes.
pub(crate) fn connections_max(listeners: usize, workers: usize) -> usize {
    let limit = getrlimit(Resource::Nofile);
    // A process that may not raise its limit makes do with what it has.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let descriptors = getrlimit(Resource::Nofile).current.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
    // each worker has an epoll instance and an inbox
    descriptors.saturating_sub(DESCRIPTORS_RESERVED + listeners + 2 * workers).clamp(1, CONNECTIONS_MAX)
}
