//! What attacks are made of, and the check that follows every one: the service lives, answers, has
//! its list unchanged, and keeps neither connections nor threads nor memory.

use std::net::{SocketAddr, TcpStream};

use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::common::client::assert_same_list;
use crate::common::harness::{SEED, Server, figures, wait_until};

/// A whole request that changes nothing.
pub(crate) const REQUEST: &str = "GET /colors/red HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// The start of a request whose last field line goes on and on.
pub(crate) const FIELDS: &str = "GET /colors/red HTTP/1.1\r\nHost: localhost\r\nX-Slow: ";

/// The start of a request with content.
pub(crate) const CONTENT: &str =
    "POST /colors HTTP/1.1\r\nHost: localhost\r\nContent-Length: 24\r\n\r\n{";

/// Threads that may be there after an attack and were not before it.
const MORE_THREADS_MAX: usize = 2;

/// Most resident memory, in KiB, at rest and while an attack goes on that is not about the number of
/// connections: the service starts with 6 MiB, and the C library's allocator keeps some of what
/// thousands of connections had for the next ones.
pub(crate) const RESIDENT_MAX: usize = 64 * 1024;

/// A service under attack.
pub(crate) struct Target {
    pub(crate) server: Server,
    /// The list before the attack.
    list: String,
    /// How many threads there were before the attack.
    threads: usize,
}

impl Target {
    /// A service with its own seed, ready to be attacked.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::of(Server::durable(SEED, arguments))
    }

    /// The same, of this service.
    pub(crate) fn of(server: Server) -> Self {
        let list = server.list();
        let threads = server.proc_status("Threads");
        Self { server, list, threads }
    }

    /// Waits until the service has closed all connections, while the attackers still hold theirs.
    #[track_caller]
    pub(crate) fn wait_until_all_are_closed(&self) {
        wait_until("all connections are closed", || self.server.connections() == 0);
    }

    /// Waits until there are about as many threads as before the attack.
    #[track_caller]
    pub(crate) fn wait_for_few_threads(&self) {
        let has_few = || self.server.proc_status("Threads") <= self.threads + MORE_THREADS_MAX;
        wait_until("threads end", has_few);
    }

    /// Checks that the service is as it was before; the attack's connections must have been closed,
    /// or be about to be.
    #[track_caller]
    pub(crate) fn check_recovery(self) {
        figures(&format!("peak {} KiB", self.server.proc_status("VmHWM")));
        assert_same_list(&self.server.list(), &self.list);
        self.wait_until_all_are_closed();
        self.wait_for_few_threads();
        wait_until("memory is freed", || self.server.proc_status("VmRSS") <= RESIDENT_MAX);
        let log = self.server.log();
        assert!(!log.contains("ERROR") && !log.contains("panicked"), "{log}");
    }

    /// Sends requests, each on a connection of its own, and checks that every one is answered.
    #[track_caller]
    pub(crate) fn check_others_are_served(&self) {
        let expected = r##"{"name":"red","value":"#ff0000"}"##;
        for _ in 0..50 {
            self.server.ask("GET", "/colors/red", "").expect_content(expected);
        }
    }

    /// Connections, as many as asked for if there are descriptors for them.
    pub(crate) fn connections(&self, count: usize) -> Vec<TcpStream> {
        (0..affordable(count))
            .map(|_| TcpStream::connect(self.server.address).expect("the service listens"))
            .collect()
    }
}

/// A new connection with small buffers, so that the service soon waits for this side to read.
pub(crate) fn narrow(address: SocketAddr) -> TcpStream {
    // not for the services that other tests start meanwhile
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
    set_socket_recv_buffer_size(&socket, 4096).unwrap();
    set_socket_send_buffer_size(&socket, 4096).unwrap();
    rustix::net::connect(&socket, &address).expect("the service listens");
    socket.into()
}

/// So many connections, or fewer if this process may not have the descriptors; raises its limit as
/// far as it goes.
fn affordable(count: usize) -> usize {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    // two attacks take many; half of them are for all other tests that run beside
    count.min(usize::try_from(descriptors / 4).unwrap_or(usize::MAX))
}
