//! A connection that a fuzz target serves step by step, as a worker would.

use std::mem::replace;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;
use rustix::net::{RecvFlags, recv, sockopt};
use threadpool::ThreadPool;

use super::Shared;
use super::connection::{Connection, Event, LoopContext, Next};
use super::inbox::{Inbox, Mail};
use super::limits::Quota;
use crate::options::{AccessLog, Options};
use crate::server_state::{Phase, ServerState};
use crate::service::{BasePath, Service, Tokens};
use crate::store::{Store, json};

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Everybody, and pages of http://a, may do all.
    Open,
    /// On a loopback address, below the path /a, and with tokens of which nobody has one.
    Strict,
}

pub struct SteppedConnection {
    connection: Connection,
    inbox: Arc<Inbox>,
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
        let store = Store::in_memory(colors, MEMORY_MAX);
        let service = Service::new(store, options.into(), tokens, ServerState::new(1, 10));
        let shared = Arc::new(Shared::new(service, MEMORY_MAX));
        let quota = Quota::new(Arc::clone(&shared), 0);
        let checks_host = access == Access::Strict;
        let connection = Connection::new(socket.into(), None, checks_host, quota, Instant::now());
        let inbox = Inbox::new(0, shared, ThreadPool::new(1));
        let inbox = Arc::new(inbox.expect("the process has descriptors"));
        Self { connection, inbox, event: Event::Ready }
    }

    pub fn step(&mut self) -> Step {
        let inbox = &self.inbox;
        let mut context = LoopContext {
            inbox,
            id: 1,
            phase: Phase::Serving,
            now: Instant::now(),
            date: "",
            scratch: &mut [0; 8192],
            answered: 0,
        };
        let event = replace(&mut self.event, Event::Ready);
        match self.connection.advance(event, &mut context) {
            Next::Close => return Step::Closed,
            Next::Queue => self.event = Event::Resume,
            Next::Wait(EventFlags::OUT) => return Step::Room,
            Next::Wait(EventFlags::IN) if self.is_readable() => {}
            // Nobody changes the list meanwhile, so the wait ends by its time.
            Next::Wait(EventFlags::IN)
                if inbox.shared.server.workers[0].waiting.load(Relaxed) > 0 =>
            {
                self.event = Event::Overdue;
            }
            Next::Wait(EventFlags::IN) => return Step::Bytes,
            Next::Wait(_) => {
                inbox.pool.join();
                // There is no mail when the connection has dropped all that it takes after the last
                // response.
                let Some(Mail::Event(_, event)) = inbox.take().pop() else { return Step::Closed };
                self.event = event;
            }
        }
        Step::Further
    }

    fn is_readable(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        recv(&self.connection.socket, &mut [0; 1], flags).is_ok()
    }
}
