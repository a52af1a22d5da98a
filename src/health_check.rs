//! `--health`: asks a service whether all is well, as the health check of a container does. Asks by
//! hand: `ureq` speaks to no unix socket, and one plain request serves both.

use std::io::{self, Read as _, Write as _};
use std::net::ToSocketAddrs as _;
use std::time::Duration;

use socket2::{Domain, SockAddr, Socket, Type};

use crate::failure::Failure;
use crate::logging::excerpt;
use crate::options::{Asked, Endpoint, Options};

/// Longest time to connect, and to wait for a byte. The service answers at once, always.
const TIME: Duration = Duration::from_secs(5);

/// Longest answer that is read, in bytes. That of a service has some hundred.
const ANSWER_BYTES_MAX: u64 = 16 * 1024;

/// Prints the content of `/health`, which is one line. Fails if the status is not 200.
pub(crate) fn check(options: &Options, asked: &Asked) -> Result<(), Failure> {
    let place = match asked {
        Asked::There(place) => place.clone(),
        Asked::Own => own_place(options),
    };
    let unhealthy = |reason| Failure::Unhealthy(place.clone(), reason);
    match ask(&place, options.base_path.as_str()) {
        Ok((200, line)) => writeln!(io::stdout(), "{line}").map_err(Failure::Output),
        Ok((status, line)) => Err(unhealthy(format!("{status} {}", excerpt(&line)))),
        Err(error) => Err(unhealthy(error.to_string())),
    }
}

/// Where a service with these options is reached from this host.
fn own_place(options: &Options) -> String {
    let base = options.base_path.as_str();
    match &options.listen[0] {
        Endpoint::Tcp(address) if address.ip().is_unspecified() => {
            format!("http://localhost:{}{base}", address.port())
        }
        Endpoint::Unix(_) => options.listen[0].to_string(),
        endpoint => format!("{endpoint}{base}"),
    }
}

/// Gives status and content. `place`: as `--health` takes it. `base`: the base path of a service on
/// a unix socket.
fn ask(place: &str, base: &str) -> io::Result<(u16, String)> {
    let (mut socket, host, base) = match place.strip_prefix("unix:") {
        Some(path) => (connect(Domain::UNIX, &SockAddr::unix(path)?)?, "localhost", base),
        None => {
            let rest = place.strip_prefix("http://").unwrap_or(place);
            let (authority, base) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            (connect_tcp(authority)?, authority, base)
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

/// Connects to the first address of `host[:port]` that accepts.
fn connect_tcp(authority: &str) -> io::Result<Socket> {
    let has_port = authority.rsplit(':').next().is_some_and(|port| port.parse::<u16>().is_ok());
    let authority = if has_port { authority.to_owned() } else { format!("{authority}:80") };
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
