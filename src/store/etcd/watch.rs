//! Watches the log in etcd, and wakes the writer when something was put there. Only saves time: a
//! poll each second would find the same. What was put is read by the writer, in a transaction that
//! compares whose list it is: the watch may ask another cluster.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::format::Keys;
use super::gateway::Gateway;

/// How long one request watches. A member that was cut off sends nothing, so after this time
/// another request is made, perhaps of another member.
const WATCH_TIME: Duration = Duration::from_secs(10);

/// The pause after a watch that has ended early.
const PAUSE: Duration = Duration::from_millis(200);

/// Watches on a thread of its own.
pub(crate) struct LogWatch {
    gateway: Gateway,
    keys: Keys,
    /// The revision of etcd when it was last told of something.
    pub(super) watched: Arc<AtomicI64>,
}

impl LogWatch {
    pub(super) fn new(gateway: &Gateway, keys: Keys) -> Self {
        let gateway = Gateway::new(&gateway.members, gateway.user.clone(), WATCH_TIME);
        Self { gateway, keys, watched: Arc::default() }
    }

    /// Watches until the process ends. Calls `poll` when something was put.
    pub(crate) fn run(mut self, poll: impl Fn()) {
        let (from, to) = (self.keys.entry(0), self.keys.log_end());
        loop {
            let begun = Instant::now();
            let watch = || {
                self.gateway.watch(&from, &to, WATCH_TIME, |revision| {
                    self.watched.store(revision, Relaxed);
                    poll();
                });
            };
            // A panic was logged, and ends one request.
            let _ = catch_unwind(AssertUnwindSafe(watch));
            if begun.elapsed() < WATCH_TIME {
                sleep(PAUSE);
            }
        }
    }
}
