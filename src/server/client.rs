//! Whom a connection's requests are from, for the log. Nothing is decided by it: an address is no proof of anything.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

use rustix::net::AddressFamily;

/// Where a request came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Client {
    /// The other end of a TCP connection, whatever its requests say.
    Tcp(SocketAddr),
    /// The client of a proxy that uses a unix socket, as told by the proxy.
    Forwarded(IpAddr),
    /// A program that uses a unix socket.
    Unix,
    /// A client of a TCP connection that has ended already.
    Gone,
}

impl Client {
    /// The client of a request on this connection that says it was forwarded for an address. Only who may open the unix socket, which its
    /// permissions tell, is believed.
    pub(super) fn of(connection: impl AsFd, forwarded_for: Option<IpAddr>) -> Self {
        if let Some(Ok(address)) = rustix::net::getpeername(&connection).ok().flatten().map(SocketAddr::try_from) {
            return Self::Tcp(address);
        }
        // this end always has its name, so that nobody over TCP passes for a proxy by going away
        match rustix::net::getsockname(connection).map(|own| own.address_family()) {
            Ok(AddressFamily::UNIX) => forwarded_for.map_or(Self::Unix, Self::Forwarded),
            _ => Self::Gone,
        }
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Forwarded(address) => address.fmt(f),
            Self::Unix => f.write_str("unix"),
            Self::Gone => f.write_str("gone"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn only_a_unix_socket_is_believed() {
        let address: IpAddr = "203.0.113.9".parse().unwrap();
        let (unix, _other_end) = UnixStream::pair().unwrap();
        assert_eq!(Client::of(&unix, Some(address)).to_string(), "203.0.113.9");
        assert_eq!(Client::of(&unix, None).to_string(), "unix");

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let own = client.local_addr().unwrap();
        let (accepted, _) = listener.accept().unwrap();
        assert_eq!(Client::of(&accepted, Some(address)), Client::Tcp(own));
        // a reset: the connection has no other end any more
        socket2::SockRef::from(&client).set_linger(Some(std::time::Duration::ZERO)).unwrap();
        drop(client);
        std::io::Read::read(&mut &accepted, &mut [0]).unwrap_err();
        assert_eq!(Client::of(&accepted, Some(address)), Client::Gone);
    }
}
