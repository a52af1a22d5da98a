//! `--health`: asks a service whether all is well, as the health check of a container does. Asks by
//! hand: `ureq` speaks to no unix socket, and one plain request serves both.

use std::io::{self, Read as _, Write as _};
use std::net::ToSocketAddrs as _;
use std::time::Duration;

use socket2::{Domain, SockAddr, Socket, Type};

use crate::failure::Failure;
use crate::logging::excerpt;
use crate::options::{Endpoint, Options, ServiceAddress};

/// Longest time to connect, and to wait for a byte. The service answers at once, always.
const TIME: Duration = Duration::from_secs(5);

/// Longest answer that is read, in bytes. That of a service has some hundred.
const ANSWER_BYTES_MAX: u64 = 16 * 1024;

/// Prints the content of `/health`, which is one line. Fails if the status is not 200. `address`:
/// `None` for the service with these options.
pub(crate) fn check(options: &Options, address: Option<&ServiceAddress>) -> Result<(), Failure> {
    let address = address.cloned().unwrap_or_else(|| own_address(options));
    let unhealthy = |reason| Failure::Unhealthy(address.to_string(), reason);
    match ask(&address, options.base_path.as_str()) {
        Ok((200, line)) => writeln!(io::stdout(), "{line}").map_err(Failure::Output),
        Ok((status, line)) => Err(unhealthy(format!("{status} {}", excerpt(&line)))),
        Err(error) => Err(unhealthy(error.to_string())),
    }
}

/// Where a service with these options is reached from this host.
fn own_address(options: &Options) -> ServiceAddress {
    let authority = match &options.listen[0] {
        Endpoint::Unix(path) => return ServiceAddress::Unix(path.clone()),
        Endpoint::Tcp(address) if !address.ip().is_unspecified() => address.to_string(),
        Endpoint::Tcp(address) => format!("localhost:{}", address.port()),
        Endpoint::Localhost(port) => format!("localhost:{port}"),
    };
    ServiceAddress::Http(authority, options.base_path.as_str().to_owned())
}

/// Gives status and content. `base`: the base path of a service on a unix socket.
fn ask(address: &ServiceAddress, base: &str) -> io::Result<(u16, String)> {
    let (mut socket, host, base) = match address {
        ServiceAddress::Unix(path) => {
            (connect(Domain::UNIX, &SockAddr::unix(path)?)?, "localhost", base)
        }
        ServiceAddress::Http(authority, base) => {
            (connect_tcp(authority)?, authority.as_str(), base.as_str())
        }
    };
    socket.set_read_timeout(Some(TIME))?;
    socket.set_write_timeout(Some(TIME))?;
    let request = format!("GET {base}/health HTTP/1.0\r\nHost: {host}\r\n\r\n");
    socket.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    socket.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut response = httparse::Response::new(&mut headers);
    match (response.parse(&answer), response.code) {
        (Ok(httparse::Status::Complete(head)), Some(status)) => {
            Ok((status, String::from_utf8_lossy(&answer[head..]).trim_end().to_owned()))
        }
        _ => Err(io::Error::other("the answer is not HTTP")),
    }
}

/// Connects to the first address of `host:port` that accepts.
fn connect_tcp(authority: &str) -> io::Result<Socket> {
    let mut refused = io::Error::other("the host has no address");
    for address in authority.to_socket_addrs()? {
        match connect(Domain::for_address(address), &address.into()) {
            Ok(socket) => return Ok(socket),
            Err(error) => refused = error,
        }
    }
    Err(refused)
}

fn connect(domain: Domain, address: &SockAddr) -> io::Result<Socket> {
    let socket = Socket::new(domain, Type::STREAM, None)?;
    socket.connect_timeout(address, TIME)?;
    Ok(socket)
}
