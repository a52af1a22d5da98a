//! Whom a request is from, for the log. Nothing is decided by it: an address is no proof of anything.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// Where a request came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Client {
    /// The other end of a TCP connection, whatever its requests say.
    Tcp(SocketAddr),
    /// The client of a proxy that uses a unix socket, as told by the proxy.
    Forwarded(IpAddr),
    /// A program that uses a unix socket.
    Unix,
}

impl Client {
    /// `peer` is the other end of a TCP connection; `None` is a unix socket. Only who may open the unix socket, which its permissions tell,
    /// is believed about `forwarded_for`.
    pub(super) fn of(peer: Option<SocketAddr>, forwarded_for: Option<IpAddr>) -> Self {
        match (peer, forwarded_for) {
            (Some(address), _) => Self::Tcp(address),
            (None, Some(address)) => Self::Forwarded(address),
            (None, None) => Self::Unix,
        }
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Forwarded(address) => address.fmt(f),
            Self::Unix => f.write_str("unix"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_unix_socket_is_believed() {
        let forwarded_for: IpAddr = "203.0.113.9".parse().unwrap();
        let peer = "198.51.100.7:50000".parse().unwrap();
        assert_eq!(Client::of(Some(peer), Some(forwarded_for)).to_string(), "198.51.100.7:50000");
        assert_eq!(Client::of(None, Some(forwarded_for)).to_string(), "203.0.113.9");
        assert_eq!(Client::of(None, None).to_string(), "unix");
    }
}
