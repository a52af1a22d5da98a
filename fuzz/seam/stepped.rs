//! A connection that a fuzz target serves step by step, as a worker would.

use std::mem::replace;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;
use rustix::net::{RecvFlags, recv, sockopt};
use threadpool::ThreadPool;

use super::connection::{Connection, Event, Next};
use super::inbox::{Mail, NewConnection};
use super::limits::Quota;
use super::loop_context::LoopContext;
use super::{Handle, Shared};
use crate::options::{AccessLog, BasePath, Options};
use crate::service::{Service, Tokens, limits};
use crate::store::{Store, json};

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Everybody, and pages of http://a, may do all.
    Open,
    /// On a loopback address, below the path /a, and with tokens of which nobody has one.
    Strict,
}

/// Makes the answers that take long.
static POOL: LazyLock<ThreadPool> = LazyLock::new(|| ThreadPool::new(1));

pub struct SteppedConnection {
    connection: Connection,
    shared: Arc<Shared>,
    /// The event that comes next.
    event: Event,
}

/// What follows a step.
pub enum Step {
    /// The next one.
    Further,
    /// The client has to take some of the output.
    Room,
    /// The client has to send more.
    Bytes,
    /// The end: the connection is to be dropped.
    Closed,
}

impl SteppedConnection {
    /// Serves this list, which is JSON and lives in memory.
    pub fn new(socket: UnixStream, list: &[u8], content_max: usize, access: Access) -> Self {
        const MEMORY_MAX: usize = 32 << 20;
        const TIME: Duration = Duration::from_secs(60);
        // It is small, so that it fills up.
        sockopt::set_socket_send_buffer_size(&socket, 1).expect("it is a socket");
        let mut options = Options {
            request_timeout: TIME,
            keep_alive: TIME,
            max_body: content_max,
            access_log: AccessLog::All,
            ..Options::default()
        };
        let mut tokens = None;
        match access {
            Access::Open => options.allow_origin.push("http://a".to_owned()),
            Access::Strict => {
                options.base_path = BasePath::parse("/a").expect("it is one");
                options.private = true;
                tokens = Some(Tokens::new(Path::new("/dev/null")));
            }
        }
        let colors = json::from_list(list).expect("these are colors");
        let store = Store::in_memory(colors, Box::new(|_| ()));
        let limits = limits(&options, 10, MEMORY_MAX);
        let server = Handle::new(1, limits).expect("the system has an eventfd");
        let checks_host = vec![access == Access::Strict];
        let (handle, watches) = (server.clone(), vec![Arc::default()]);
        let service =
            Service::new(options.into(), store, tokens, None, handle, watches, checks_host);
        let shared = server.with(service);
        let quota = Quota::new(Arc::clone(&shared), 0);
        let accepted = NewConnection { socket: socket.into(), peer: None, listener: 0, quota };
        let connection = Connection::new(accepted, Instant::now());
        Self { connection, shared, event: Event::Socket }
    }

    pub fn step(&mut self) -> Step {
        let mut scratch = [0; 8192];
        let now = Instant::now();
        let context = &mut LoopContext::new(&self.shared, 0, &POOL, now, "", &mut scratch);
        context.id = 1;
        let mut next =
            self.connection.handle_event(replace(&mut self.event, Event::Socket), context);
        loop {
            POOL.join();
            let Some(Mail::FromPool(_, decision)) = self.shared.workers[0].inbox.take().pop()
            else {
                break;
            };
            next = self.connection.handle_decision(decision, context);
        }
        match next {
            Next::Close => return Step::Closed,
            Next::Queue => self.event = Event::Turn,
            Next::Epoll(EventFlags::OUT) => return Step::Room,
            Next::Epoll(EventFlags::IN) if self.is_readable() => {}
            // Nobody changes the list meanwhile, so the wait ends by its time.
            Next::Epoll(EventFlags::IN) if self.shared.service().watches[0].count() > 0 => {
                self.event = Event::Overdue;
            }
            Next::Epoll(EventFlags::IN) => return Step::Bytes,
            // The connection has dropped all that it takes after the last response.
            Next::Epoll(_) => return Step::Closed,
        }
        Step::Further
    }

    fn is_readable(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        recv(&self.connection.socket, &mut [0; 1], flags).is_ok()
    }
}
