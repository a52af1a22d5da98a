//! The floor: a bare epoll server. One `recv` and one `send` per request, always the same response;
//! it parses nothing.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Mutex;
use std::{env, fs, thread};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

struct EventLoop {
    epoll: OwnedFd,
    /// By descriptor: the socket, and what it has received of its next requests.
    connections: Mutex<HashMap<u64, (TcpStream, Vec<u8>)>>,
}

impl EventLoop {
    fn run(&self, response: &[u8], closes: bool) -> io::Result<()> {
        let mut events = Vec::with_capacity(1024);
        loop {
            epoll::wait(&self.epoll, spare_capacity(&mut events), None)?;
            let mut connections = self.connections.lock().expect("unpoisoned");
            for event in events.drain(..) {
                let key = event.data.u64();
                let (socket, received) =
                    connections.get_mut(&key).expect("a closed socket has no events");
                if !serve(socket, received, response, closes).unwrap_or(false) {
                    connections.remove(&key);
                }
            }
        }
    }
}

/// Receives once and answers once whole requests have arrived; returns whether the connection
/// stays. The socket is blocking, but readable.
fn serve(
    socket: &mut TcpStream,
    received: &mut Vec<u8>,
    response: &[u8],
    closes: bool,
) -> io::Result<bool> {
    let mut chunk = [0; 4096];
    let length = socket.read(&mut chunk)?;
    received.extend_from_slice(&chunk[..length]);
    if length == 0 || !received.ends_with(b"\r\n\r\n") {
        return Ok(length > 0);
    }
    for _ in received.windows(4).filter(|bytes| bytes == b"\r\n\r\n") {
        socket.write_all(response)?;
    }
    received.clear();
    Ok(!closes)
}

fn main() -> io::Result<()> {
    let [_, port, file] = env::args()
        .collect::<Vec<_>>()
        .try_into()
        .map_err(|_| io::Error::other("usage: PORT RESPONSE"))?;
    let response = fs::read(file)?;
    let closes =
        String::from_utf8_lossy(&response).to_ascii_lowercase().contains("connection: close");
    let listener =
        TcpListener::bind((Ipv4Addr::LOCALHOST, port.parse().map_err(io::Error::other)?))?;
    rustix::net::listen(&listener, 1024)?; // std's own limit of pending connections is 128
    let event_loop = |_| {
        Ok(EventLoop { epoll: epoll::create(CreateFlags::CLOEXEC)?, connections: Mutex::default() })
    };
    let loops = (0..thread::available_parallelism()?.get())
        .map(event_loop)
        .collect::<io::Result<Vec<_>>>()?;
    thread::scope(|scope| {
        for event_loop in &loops {
            scope.spawn(|| event_loop.run(&response, closes).expect("epoll_wait does not fail"));
        }
        for (socket, EventLoop { epoll, connections }) in
            listener.incoming().zip(loops.iter().cycle())
        {
            let socket = socket?;
            let key = socket.as_raw_fd() as u64;
            let mut connections = connections.lock().expect("unpoisoned");
            epoll::add(epoll, &socket, EventData::new_u64(key), EventFlags::IN)?;
            connections.insert(key, (socket, Vec::new()));
        }
        Ok(())
    })
}
