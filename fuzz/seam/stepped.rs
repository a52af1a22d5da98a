//! A connection that a fuzz target serves pass by pass, as a worker would.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bounded_http::{Handle, Worker};
use threadpool::ThreadPool;

use super::{Handler, serve_pass};
use crate::options::{AccessLog, BasePath, Options};
use crate::service::{Service, Tokens, Waits, limits};
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
    worker: Worker,
    handler: Arc<Handler>,
}

impl SteppedConnection {
    /// Serves this list, which is JSON and lives in memory.
    pub fn new(socket: UnixStream, list: &[u8], content_max: usize, access: Access) -> Self {
        const MEMORY_MAX: usize = 32 << 20;
        const TIME: Duration = Duration::from_secs(60);
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
        let server = Handle::new(1, limits).expect("the system has descriptors");
        let waits = Waits::new(server.clone(), 1);
        let service = Arc::new(Service {
            checks_host: vec![access == Access::Strict],
            ..Service::in_memory(Arc::clone(&store.list), options, tokens, waits, server.clone())
        });
        let handler = Handler::new(Arc::clone(&service), store, &POOL);
        let started = server.start(service, Vec::<UnixStream>::new());
        let (_, mut workers) = started.expect("the system has descriptors");
        server.adopt(socket.into());
        Self { worker: workers.remove(0), handler }
    }

    /// One pass, and what other threads have to do for it. Whether the connection is still open.
    pub fn pass(&mut self) -> bool {
        POOL.join();
        let server = &self.handler.service.server;
        // There may be nothing to do.
        server.notify(0);
        self.worker.wait();
        serve_pass(&mut self.worker, &self.handler);
        server.connections() > 0
    }
}
