//! Listening sockets: where to listen, and the options that every accepted connection inherits. Accepts nothing itself.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

/// How many connections the kernel holds until they are accepted; it caps this at `net.core.somaxconn`, 4,096 by default.
const BACKLOG: i32 = 4096;

/// How long a worker stays with a connection whose client sends nothing, before it turns to another; it never stays for one to take more.
///
/// Longer than the pause between two requests of a busy client, short enough to be nobody's waiting time.
pub(crate) const PATIENCE: Duration = Duration::from_millis(50);

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// An IP address and a TCP port; port 0 has the kernel pick one.
    Tcp(SocketAddr),
}

impl Endpoint {
    /// Whether only this host can reach it, and so only by names that mean this host.
    pub(crate) fn is_loopback(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().to_canonical().is_loopback(),
        }
    }
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mend = "give an IP address and a port, as in 127.0.0.1:8080, 0.0.0.0:80 or [::1]:8080";
        text.parse().map(Self::Tcp).map_err(|_| mend.to_owned())
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "http://{address}"),
        }
    }
}

/// A socket that listens.
pub(crate) struct Listening {
    /// What connections are accepted from; does not block.
    pub(crate) listener: tiny_http::Listener,
    /// Where that really is: port 0 replaced by the one picked.
    pub(crate) endpoint: Endpoint,
}

/// Opens a listening socket, for clients that may take `request_timeout` to take a response.
///
/// # Errors
/// When the address is in use, is not one of this host, or may not be used by this user.
pub(crate) fn listen(endpoint: &Endpoint, request_timeout: Duration) -> io::Result<Listening> {
    match endpoint {
        Endpoint::Tcp(address) => {
            let socket = Socket::new(Domain::for_address(*address), Type::STREAM, Some(Protocol::TCP))?;
            // a restart need not wait for the last connections of the process before to time out in the kernel
            socket.set_reuse_address(true)?;
            if address.is_ipv6() {
                socket.set_only_v6(false)?;
            }
            socket.bind(&(*address).into())?;
            socket.listen(BACKLOG)?;
            prepare(&socket)?;
            // the kernel would go on for many minutes to offer a client the rest of a response after its connection is closed here
            socket.set_tcp_user_timeout(Some(request_timeout))?;
            let listener = std::net::TcpListener::from(socket);
            let endpoint = Endpoint::Tcp(listener.local_addr()?);
            Ok(Listening { listener: tiny_http::Listener::Tcp(listener), endpoint })
        }
    }
}

/// Sets the options that accepted connections inherit on Linux.
fn prepare(socket: &Socket) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    // without it a response of two segments waits 40 ms for the client's delayed acknowledgement
    socket.set_tcp_nodelay(true)?;
    socket.set_read_timeout(Some(PATIENCE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_an_address_with_a_port() {
        for text in ["127.0.0.1:8080", "[::1]:0", "0.0.0.0:80"] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), format!("http://{text}"));
        }
        for text in ["localhost:8080", ":8080", "8080", "127.0.0.1", "127.0.0.1:99999", ""] {
            assert!(text.parse::<Endpoint>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn port_0_becomes_the_one_picked() {
        let Endpoint::Tcp(address) = listen(&"127.0.0.1:0".parse().unwrap(), Duration::from_secs(30)).unwrap().endpoint;
        assert_ne!(address.port(), 0);
    }
}
