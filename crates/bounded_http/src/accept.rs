//! Accepts connections, and hands each to a worker.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use socket2::SockRef;

use super::policy::{Policy, tell};
use super::shared::{Phase, Shared};

/// How long after the begin of a stop connections are still accepted from the queues of the kernel.
const LAST_ACCEPTS: Duration = Duration::from_secs(2);

/// How long to wait before the next look while there are too many connections, the system refuses
/// to accept one, or the stop waits for connections to end.
const RETRY_TIME: Duration = Duration::from_millis(20);

/// Most connections accepted from one listener in a row.
const ACCEPTS_IN_A_ROW: usize = 64;

/// Accepts connections of listening sockets, `L`, and passes each to the worker that has the
/// fewest. One thread calls [`Acceptor::accept`] again and again, and then [`Acceptor::stop`].
pub struct Acceptor<L> {
    shared: Arc<Shared>,
    policy: Arc<dyn Policy>,
    listeners: Vec<L>,
}

impl<L: AsFd> Acceptor<L> {
    pub(super) fn new(shared: Arc<Shared>, policy: Arc<dyn Policy>, listeners: Vec<L>) -> Self {
        Self { shared, policy, listeners }
    }

    /// Waits until there are connections, until one of these other descriptors is readable, or for
    /// this time at most, and accepts the connections. It may return earlier. Returns for each of
    /// the others whether it is readable: if any is, no connection was accepted.
    ///
    /// Others may be those that end the program, such as a pipe to which a signal handler writes.
    ///
    /// # Errors
    ///
    /// If poll(2) fails. If a connection cannot be accepted, that goes to [`Policy::warn`].
    pub fn accept(
        &self,
        others: &[BorrowedFd<'_>],
        time: Option<Duration>,
    ) -> io::Result<Vec<bool>> {
        let is_above_limit = self.shared.excess() > 0;
        self.shared.note_excess(is_above_limit);
        let time = time.into_iter().chain(is_above_limit.then_some(RETRY_TIME)).min();
        let time = time.and_then(|time| Timespec::try_from(time).ok());
        let poll_for = |socket| PollFd::from_borrowed_fd(socket, PollFlags::IN);
        let mut polled: Vec<_> = others.iter().map(|other| poll_for(*other)).collect();
        if !self.shared.accepts_none() {
            polled.extend(self.listeners.iter().map(|listener| poll_for(listener.as_fd())));
        }
        match rustix::event::poll(&mut polled, time.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let is_ready = |polled: &PollFd<'_>| !polled.revents().is_empty();
        let mut ready: Vec<_> = polled.iter().map(is_ready).collect();
        let listeners = ready.split_off(others.len());
        // What the caller does about these comes before connections that are made meanwhile.
        if !ready.contains(&true) {
            let listeners = listeners.iter().enumerate().filter(|(_, is_ready)| **is_ready);
            listeners.for_each(|(listener, _)| self.accept_from(listener));
        }
        Ok(ready)
    }

    /// Accepts up to [`ACCEPTS_IN_A_ROW`] connections from the listener with this number.
    fn accept_from(&self, listener: usize) {
        for _ in 0..ACCEPTS_IN_A_ROW {
            if self.shared.accepts_none() {
                return;
            }
            match SockRef::from(&self.listeners[listener]).accept() {
                Ok((socket, peer)) => {
                    self.shared.pass_on(socket.into(), peer.as_socket(), listener);
                }
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return,
                    // The client closed the connection before it was accepted.
                    ErrorKind::ConnectionAborted | ErrorKind::Interrupted => {}
                    _ => {
                        let what = "cannot accept connections for the moment";
                        tell(|| self.policy.warn(format_args!("{what}: {error}")));
                        // Most likely for lack of a descriptor or memory.
                        return sleep(RETRY_TIME);
                    }
                },
            }
        }
    }

    /// The listening sockets, by their numbers.
    pub fn listeners_mut(&mut self) -> &mut [L] {
        &mut self.listeners
    }

    /// Stops the server: closes the listeners, has each response close its connection, and waits
    /// until the last connection is closed, but no longer than until the deadline. Requests that
    /// have begun to arrive are answered. Connections in the kernel's queue are accepted for 2 s at
    /// most.
    ///
    /// Returns how many connections are still open. Their workers close them now, but for those of
    /// which the application has a request. A worker goes on until these are answered, and then its
    /// [`Worker::recv`] returns `None`.
    ///
    /// [`Worker::recv`]: super::Worker::recv
    pub fn stop(self, deadline: Instant) -> usize {
        self.shared.set_phase(Phase::Stopping);
        let last_accept = deadline.min(Instant::now() + LAST_ACCEPTS);
        // Clients take connections in the kernel's queue for established, so accept these as well.
        while self.listeners.iter().any(has_pending) && Instant::now() < last_accept {
            if self.shared.accepts_none() {
                sleep(RETRY_TIME);
            }
            (0..self.listeners.len()).for_each(|listener| self.accept_from(listener));
        }
        drop(self.listeners);
        while self.shared.connections() > 0 && Instant::now() < deadline {
            sleep(RETRY_TIME);
        }
        // Before the workers close them.
        let open = self.shared.connections();
        self.shared.is_over.store(true, Relaxed);
        self.shared.wake_all();
        open
    }
}

/// Whether a connection waits in the kernel's queue.
fn has_pending(listener: &impl AsFd) -> bool {
    let mut polled = [PollFd::new(listener, PollFlags::IN)];
    rustix::event::poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc;
    use std::thread;

    use super::*;
    use crate::limits::Limits;
    use crate::shared::Handle;
    use crate::test_application::{Notes, describe, get, respond};
    use crate::worker::Worker;

    fn acceptor() -> (Acceptor<TcpListener>, Vec<Worker>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let limits = Limits { connections_max: 2, ..Limits::default() };
        let server = Handle::new(1, limits).unwrap();
        server.start(Arc::new(()), vec![listener]).unwrap()
    }

    #[test]
    fn connections_come_after_what_else_is_readable() {
        let (acceptor, _workers) = acceptor();
        let (mut signals, mut signalled) = UnixStream::pair().unwrap();
        let _client = TcpStream::connect(acceptor.listeners[0].local_addr().unwrap()).unwrap();
        signalled.write_all(b"1").unwrap();
        let (_quiet, other) = UnixStream::pair().unwrap();
        let accept =
            |signals: &UnixStream| acceptor.accept(&[other.as_fd(), signals.as_fd()], None);
        assert_eq!(accept(&signals).unwrap(), [false, true]);
        assert_eq!(acceptor.shared.connections(), 0);
        signals.read_exact(&mut [0]).unwrap();
        assert_eq!(accept(&signals).unwrap(), [false, false]);
        assert_eq!(acceptor.shared.connections(), 1);
    }

    /// A socket that does not listen seems to have a connection, which is never accepted.
    #[test]
    fn what_cannot_be_accepted_ends_no_acceptor_and_delays_no_stop() {
        let (mut client, socket) = UnixStream::pair().unwrap();
        client.write_all(b"1").unwrap();
        let server = Handle::new(1, Limits::default()).unwrap();
        let notes = Arc::new(Notes::default());
        notes.panics.store(true, Relaxed);
        let (acceptor, _workers) = server.start(Arc::clone(&notes) as _, vec![socket]).unwrap();
        acceptor.accept(&[], None).unwrap();
        assert_eq!(notes.warnings.load(Relaxed), 1);
        assert_eq!(acceptor.stop(Instant::now()), 0);
        assert_eq!(notes.warnings.load(Relaxed), 1);
    }

    #[test]
    fn one_more_than_the_limit_is_accepted_and_told_from_the_limit() {
        let (acceptor, _workers) = acceptor();
        let address = acceptor.listeners[0].local_addr().unwrap();
        let _clients = [(); 4].map(|()| TcpStream::connect(address).unwrap());
        (0..2).for_each(|_| acceptor.shared.pass_on(UnixStream::pair().unwrap().0.into(), None, 0));
        let mut phases = Vec::new();
        for _ in 0..2 {
            acceptor.accept(&[], Some(Duration::ZERO)).unwrap();
            phases.push((acceptor.shared.phase(), acceptor.shared.connections()));
        }
        assert_eq!(phases, [(Phase::Serving, 3), (Phase::AboveLimit, 3)]);
        // without a limit of time, it looks again whether there is room
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || sender.send(acceptor.accept(&[], None).is_ok()));
        assert_eq!(receiver.recv_timeout(Duration::from_secs(60)), Ok(true));
    }

    #[test]
    fn a_stop_accepts_what_waits_in_the_queue_of_the_kernel() {
        let (acceptor, mut workers) = acceptor();
        let mut client = TcpStream::connect(acceptor.listeners[0].local_addr().unwrap()).unwrap();
        client.write_all(get("/a").as_bytes()).unwrap();
        let serving = thread::spawn(move || workers[0].recv().map(respond).unwrap());
        // it is not over before the client has its response, and has closed
        let stopping =
            thread::spawn(move || acceptor.stop(Instant::now() + Duration::from_secs(60)));
        let mut received = Vec::new();
        client.read_to_end(&mut received).unwrap();
        assert_eq!(describe(&received), ["200 /a close"]);
        drop(client);
        serving.join().unwrap().unwrap();
        assert_eq!(stopping.join().unwrap(), 0);
    }
}
