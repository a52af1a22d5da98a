//! The accept loop, on the main thread: accepts connections, hands each to a worker, and acts on
//! signals.

use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use threadpool::ThreadPool;

use super::inbox::{Mail, NewConnection};
use super::limits::Quota;
use super::listen::Listener;
use super::worker::Worker;
use super::{Shared, WorkerHandle};
use crate::pool;
use crate::service::Phase;
use crate::service_manager::{self, Watchdog};
use crate::signals::Signals;
use crate::store::StorageStatus;

/// How long after the signal connections are still accepted from the queues of the kernel.
const LAST_ACCEPTS: Duration = Duration::from_secs(2);

/// How long to wait before the next look while there are too many connections, the system refuses
/// to accept one, or the stop waits for connections to end.
const RETRY_TIME: Duration = Duration::from_millis(20);

/// Most connections accepted from one listener in a row.
const ACCEPTS_IN_A_ROW: usize = 64;

pub(crate) struct AcceptLoop {
    shared: Arc<Shared>,
    workers: Vec<WorkerHandle>,
    listeners: Vec<Listener>,
    watchdog: Watchdog,
}

impl AcceptLoop {
    /// Starts one worker for each handle, on the threads of the pool.
    pub(crate) fn new(
        shared: Arc<Shared>,
        workers: Vec<WorkerHandle>,
        listeners: Vec<Listener>,
        pool: &ThreadPool,
    ) -> io::Result<Self> {
        for handle in &workers {
            let name = format!("worker-{}", handle.number);
            let worker = Worker::new(Arc::clone(&shared), handle.clone(), pool.clone())?;
            pool::run_named(pool, &name, || worker.run());
        }
        let watchdog = Watchdog::from_env(Instant::now());
        Ok(Self { shared, workers, listeners, watchdog })
    }

    /// Accepts connections until a signal to stop. At a signal to reload, reads the tokens again.
    pub(crate) fn run(&mut self, signals: &Signals) -> io::Result<()> {
        service_manager::ready();
        while !self.accept_ready(signals)? {
            let status = self.shared.service.store.status();
            let save_time = status.map(StorageStatus::elapsed).unwrap_or_default();
            self.watchdog.tick(Instant::now(), save_time, |ping| {
                self.workers
                    .iter()
                    .for_each(|worker| worker.inbox.post(Mail::Ping(Arc::clone(ping))));
            });
        }
        Ok(())
    }

    /// Waits for connections and signals, and handles both. True if the service has to stop.
    fn accept_ready(&mut self, signals: &Signals) -> io::Result<bool> {
        let is_above_limit = self.shared.excess() > 0;
        let phase = if is_above_limit { Phase::AboveLimit } else { Phase::Serving };
        if phase != self.shared.service.state.phase() {
            self.set_phase(phase);
        }
        let time = if is_above_limit {
            Some(RETRY_TIME)
        } else {
            self.watchdog.poll_timeout(Instant::now())
        };
        let time = time.and_then(|time| Timespec::try_from(time).ok());
        let poll_for = |socket| PollFd::from_borrowed_fd(socket, PollFlags::IN);
        let accepts_none = self.shared.accepts_none();
        let listeners = self.listeners.iter().filter(|_| !accepts_none);
        let mut polled = vec![poll_for(signals.stop.as_fd())];
        polled.extend(signals.reload.iter().map(|reload| poll_for(reload.as_fd())));
        polled.extend(listeners.map(|listener| poll_for(listener.as_fd())));
        match rustix::event::poll(&mut polled, time.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut ready = polled.iter().map(|polled| !polled.revents().is_empty());
        let must_stop = ready.next() == Some(true);
        if let Some(reload) = &signals.reload
            && ready.next() == Some(true)
        {
            self.reload_tokens(reload);
        }
        for (listener, _) in self.listeners.iter().zip(ready).filter(|(_, is_ready)| *is_ready) {
            self.accept_from(listener);
        }
        Ok(must_stop)
    }

    /// Sets the phase, and wakes the workers: the deadlines depend on the phase.
    fn set_phase(&self, phase: Phase) {
        self.shared.service.state.set_phase(phase);
        self.workers.iter().for_each(|worker| worker.inbox.wake());
    }

    fn reload_tokens(&self, reload: &UnixStream) {
        // One reload is enough for several signals. The read fails if there is nothing to read.
        let _ = rustix::io::read(reload, &mut [0; 64]);
        let Some(tokens) = &self.shared.service.tokens else { return };
        match tokens.load() {
            Ok(loaded) => {
                loaded.log();
                self.workers.iter().for_each(|worker| worker.inbox.post(Mail::TokensChanged));
            }
            Err(error) => log::error!(
                "cannot use the token file {}: {error}; the previous tokens stay",
                tokens.file().display()
            ),
        }
    }

    /// Accepts up to [`ACCEPTS_IN_A_ROW`] connections from a listener.
    fn accept_from(&self, listener: &Listener) {
        // Host is checked where DNS rebinding may reach the service: on loopback addresses, and,
        // with --allow-host, on open ones, which a container may publish on such an address.
        let checks_host = listener.endpoint.is_loopback()
            || (listener.endpoint.is_open() && !self.shared.service.options.allow_host.is_empty());
        for _ in 0..ACCEPTS_IN_A_ROW {
            if self.shared.accepts_none() {
                return;
            }
            match listener.accept() {
                Ok((socket, peer)) => {
                    let worker = self.shared.next_worker();
                    let quota = Quota::new(Arc::clone(&self.shared), worker);
                    let accepted = NewConnection { socket, peer, checks_host, quota };
                    self.workers[worker].inbox.post(Mail::NewConnection(accepted));
                }
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return,
                    // The client closed the connection before it was accepted.
                    ErrorKind::ConnectionAborted | ErrorKind::Interrupted => {}
                    _ => {
                        self.shared.policy.trouble(format_args!(
                            "cannot accept connections for the moment: {error}"
                        ));
                        // Most likely for lack of a descriptor or memory.
                        return sleep(RETRY_TIME);
                    }
                },
            }
        }
    }

    /// Ends the connections, after the requests that have begun are answered. Waits for that no
    /// longer than until the deadline: what is still open then ends with the process.
    pub(crate) fn stop(mut self, deadline: Instant) {
        let begun = Instant::now();
        service_manager::stopping();
        self.listeners.iter_mut().for_each(Listener::unlink);
        self.set_phase(Phase::Stopping);
        // Clients take connections in the kernel's queue for established, so accept these as well.
        while self.listeners.iter().any(has_pending) && begun.elapsed() < LAST_ACCEPTS {
            if self.shared.accepts_none() {
                sleep(RETRY_TIME);
            }
            self.listeners.iter().for_each(|listener| self.accept_from(listener));
        }
        self.listeners.clear();
        while self.shared.service.state.connections() > 0 && Instant::now() < deadline {
            sleep(RETRY_TIME);
        }
        let connections = self.shared.service.state.connections();
        if connections > 0 {
            let seconds = begun.elapsed().as_secs_f32();
            log::warn!(
                "connections closed because they were still open {seconds:.0} s after the signal: \
                 {connections}"
            );
        }
    }
}

/// Whether a connection waits in the kernel's queue.
fn has_pending(listener: &Listener) -> bool {
    let mut polled = [PollFd::new(&listener, PollFlags::IN)];
    rustix::event::poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}
