//! Listening sockets, opened here or inherited, the files of unix sockets, and the options that
//! accepted connections inherit.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use listenfd::ListenFd;
use rustix::fs::{Access, FlockOperation, Mode};
use rustix::io::Errno;
use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};

use crate::file_id::FileId;
use crate::options::{Endpoint, Options};

/// Length of the kernel's queue of connections that are not accepted yet. The kernel caps it at
/// `net.core.somaxconn`, 4,096 by default.
const BACKLOG: i32 = 4096;

/// Bytes of unsent and unacknowledged responses that the kernel keeps for a TCP connection. The
/// kernel doubles the number to have room for its own data (socket(7)). By default it keeps up to 4
/// MiB, which many clients that read nothing would fill.
const SEND_BUFFER_BYTES: usize = 128 * 1024;

/// A listening socket. It is closed, but not shut down: another process may listen on it as well.
pub(crate) struct Listener {
    /// The socket file, if this process created one. As the first field, it is dropped first, and
    /// so removed while the socket is open: until then no other start replaces the file.
    file: Option<SocketFile>,
    /// Nonblocking.
    socket: tiny_http::Listener,
    /// Where the socket listens, with the port that the kernel picked in place of 0.
    pub(crate) endpoint: Endpoint,
}

impl Listener {
    /// Whether requests for foreign host names are refused: where DNS rebinding may reach the
    /// service. That is on loopback addresses, and, with --allow-host, on open ones, which a
    /// container may publish on such an address.
    pub(crate) fn checks_host(&self, options: &Options) -> bool {
        self.endpoint.is_loopback() || (self.endpoint.is_open() && !options.allow_host.is_empty())
    }

    /// Removes the socket file, if this process created one. Connections in the kernel's queue can
    /// still be accepted.
    pub(crate) fn unlink(&mut self) {
        self.file = None;
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            tiny_http::Listener::Tcp(socket) => socket.as_fd(),
            tiny_http::Listener::Unix(socket) => socket.as_fd(),
        }
    }
}

/// Opens the listening sockets of an endpoint. `mode`: the permissions of a unix socket's file.
/// `user_timeout`: how long the kernel waits for a TCP client to acknowledge data before it gives
/// up the connection.
pub(crate) fn listen(
    endpoint: &Endpoint,
    mode: u32,
    user_timeout: Duration,
) -> io::Result<Vec<Listener>> {
    match endpoint {
        Endpoint::Localhost(port) => listen_on_localhost(*port, user_timeout),
        Endpoint::Tcp(address) => match listen_on(*address, user_timeout) {
            // All addresses of a host without IPv6 are those of IPv4.
            Err(error) if address.ip() == Ipv6Addr::UNSPECIFIED && is_without_ipv6(&error) => {
                let address = (Ipv4Addr::UNSPECIFIED, address.port()).into();
                Ok(vec![listen_on(address, user_timeout)?])
            }
            listener => Ok(vec![listener?]),
        },
        Endpoint::Unix(path) => {
            let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
            let file = SocketFile::bind(&socket, path, mode)?;
            socket.listen(BACKLOG)?;
            let listener = configure(socket, user_timeout)?;
            Ok(vec![Listener { file: Some(file), ..listener }])
        }
    }
}

/// Listens on 127.0.0.1 and, where there is IPv6, on the same port of `::1`.
fn listen_on_localhost(port: u16, user_timeout: Duration) -> io::Result<Vec<Listener>> {
    let first = listen_on((Ipv4Addr::LOCALHOST, port).into(), user_timeout)?;
    let port = SockRef::from(&first).local_addr()?.as_socket().map_or(port, |own| own.port());
    match listen_on((Ipv6Addr::LOCALHOST, port).into(), user_timeout) {
        Err(error) if is_without_ipv6(&error) => Ok(vec![first]),
        second => Ok(vec![first, second?]),
    }
}

fn listen_on(address: SocketAddr, user_timeout: Duration) -> io::Result<Listener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // Without this option, a restart fails while connections of the previous process are in
    // TIME-WAIT.
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    configure(socket, user_timeout)
}

/// Whether socket(2) or bind(2) failed because the kernel, or this host, has no IPv6.
fn is_without_ipv6(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL))
}

/// Fails if no unix socket can be made at this path, because of the directory or of a file that is
/// there. Does not look whether the address is in use: the service may be running. Changes nothing.
pub(crate) fn check_endpoint(endpoint: &Endpoint) -> io::Result<()> {
    let Endpoint::Unix(path) = endpoint else { return Ok(()) };
    rustix::fs::access(directory(path), Access::WRITE_OK | Access::EXEC_OK)?;
    is_socket(path).map(drop)
}

/// The listening sockets from the service manager (sd_listen_fds(3)). Call it before there are
/// threads, because it changes the environment.
pub(crate) fn inherited(user_timeout: Duration) -> io::Result<Vec<Listener>> {
    // A parent may pass the variables on to a child that they are not meant for. The listenfd crate
    // would accept them without LISTEN_PID.
    let is_ours =
        std::env::var("LISTEN_PID").is_ok_and(|pid| pid.parse() == Ok(std::process::id()));
    let mut sockets = if is_ours { ListenFd::from_env() } else { ListenFd::empty() };
    (0..sockets.len()).map(|index| inherit(&mut sockets, index, user_timeout)).collect()
}

fn inherit(sockets: &mut ListenFd, index: usize, user_timeout: Duration) -> io::Result<Listener> {
    // Taking a socket as the wrong kind fails, and leaves it in `sockets`.
    let tcp = sockets.take_tcp_listener(index).ok().flatten().map(OwnedFd::from);
    let unix = || sockets.take_unix_listener(index).ok().flatten().map(OwnedFd::from);
    match tcp.or_else(unix).map(Socket::from) {
        Some(socket) if socket.is_listener()? => configure(socket, user_timeout),
        _ => Err(io::Error::other(format!(
            "number {} is not a TCP or unix stream socket that listens",
            index + 1
        ))),
    }
}

/// Sets the options of a listening socket. On Linux, accepted connections inherit those that are
/// set for TCP sockets alone.
fn configure(socket: Socket, user_timeout: Duration) -> io::Result<Listener> {
    socket.set_nonblocking(true)?;
    let address = socket.local_addr()?;
    if let Some(address) = address.as_socket() {
        // Otherwise the second segment of a response may wait 40 ms for an acknowledgement.
        socket.set_tcp_nodelay(true)?;
        socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
        // By default, the kernel waits for many minutes.
        socket.set_tcp_user_timeout(Some(user_timeout))?;
        let socket = TcpListener::from(socket).into();
        return Ok(Listener { file: None, socket, endpoint: Endpoint::Tcp(address) });
    }
    // An inherited socket may have an abstract name in place of a path. Both ss(8) and systemd
    // write it with an @.
    let name = address.as_abstract_namespace().map(|name| format!("@{}", name.escape_ascii()));
    let path = address.as_pathname().map(Path::to_owned).or(name.map(PathBuf::from));
    let socket = UnixListener::from(socket).into();
    Ok(Listener { file: None, socket, endpoint: Endpoint::Unix(path.unwrap_or_default()) })
}

/// A socket file that this process created; dropping this removes it.
struct SocketFile {
    path: PathBuf,
    /// Another process may have replaced the file meanwhile.
    identity: FileId,
}

impl SocketFile {
    /// Binds `socket` to a new file with this mode. Replaces the file of a process that ended
    /// without removing it; fails with `AddrInUse` when a process has a socket there.
    fn bind(socket: &Socket, path: &Path, mode: u32) -> io::Result<Self> {
        let address = SockAddr::unix(path)?;
        // The new file has the mode of the socket less the umask (unix_bind_bsd in the kernel's
        // net/unix/af_unix.c). To change its mode by its path could follow a link.
        rustix::fs::fchmod(socket, Mode::from_raw_mode(mode))?;
        // bind(2) fails if there is a file. The lock keeps another start from taking the new file
        // for the stale one.
        let _lock = remove_stale(path, &address)?;
        // The umask is that of the whole process, but no other thread makes files yet.
        let umask = rustix::process::umask(Mode::empty());
        let bound = socket.bind(&address);
        rustix::process::umask(umask);
        bound?;
        Ok(Self { path: path.to_owned(), identity: identity(path)? })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|identity| identity == self.identity) {
            // A file that cannot be removed is replaced at the next start.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Removes a socket file to which no socket is bound any more. Fails if a socket is bound to it, if
/// another start is about to replace it, or if there is a file of another kind. Returns the lock on
/// its directory (flock(2)), which no other start has until this is dropped.
fn remove_stale(path: &Path, address: &SockAddr) -> io::Result<Option<File>> {
    if !is_socket(path)? {
        return Ok(None);
    }
    let directory = File::open(directory(path))?;
    match rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => return Err(ErrorKind::AddrInUse.into()),
        locked => locked?,
    }
    // If a stream socket is bound to the file, a datagram socket gets EPROTOTYPE (connect(2)),
    // whether the stream socket listens already or not yet.
    match Socket::new(Domain::UNIX, Type::DGRAM, None)?.connect(address) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            fs::remove_file(path)?;
            Ok(Some(directory))
        }
        Err(error) if Errno::from_io_error(&error) != Some(Errno::PROTOTYPE) => Err(error),
        _ => Err(ErrorKind::AddrInUse.into()),
    }
}

/// Whether there is a socket file. Fails if there is a file of another kind.
fn is_socket(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(file) if file.file_type().is_socket() => Ok(true),
        Ok(_) => Err(io::Error::other("there is a file that is no socket")),
        Err(_) => Ok(false),
    }
}

/// The directory of a file. The parent of a bare name is "", which becomes ".".
fn directory(path: &Path) -> PathBuf {
    path.parent().unwrap_or(path).join(".")
}

fn identity(path: &Path) -> io::Result<FileId> {
    fs::symlink_metadata(path).map(|file| FileId::of(&file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_0_becomes_the_one_picked_and_connections_inherit_the_options_of_tcp() {
        let listeners =
            listen(&"127.0.0.1:0".parse().unwrap(), 0o600, Duration::from_secs(1)).unwrap();
        assert!(matches!(listeners[0].endpoint, Endpoint::Tcp(address) if address.port() != 0));
        let socket = SockRef::from(&listeners[0]);
        assert!(socket.tcp_nodelay().unwrap());
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(Duration::from_secs(1)));
    }
}
