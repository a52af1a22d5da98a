//! Watches the log in etcd, and tells the writer what other services put there. Only saves time: a
//! poll each second would find the same.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::format::Keys;
use super::gateway::{Gateway, WatchResponse};
use crate::store::Store;

/// How long one request watches. A member that was cut off sends nothing, so after this time
/// another request is made, perhaps of another member.
const WATCH_TIME: Duration = Duration::from_secs(10);

/// The pause after a watch that has ended early.
const PAUSE: Duration = Duration::from_millis(200);

/// Most messages that wait for the writer, which may be waiting for etcd. Further ones are dropped:
/// the writer notices the gap in the numbers of the entries, or polls a second later.
const MESSAGES_MAX: usize = 8;

/// Watches on a thread of its own.
pub(crate) struct LogWatch {
    gateway: Gateway,
    keys: Keys,
    messages: SyncSender<WatchResponse>,
}

impl LogWatch {
    /// Returns also what receives the messages.
    pub(super) fn new(gateway: &Gateway, keys: Keys) -> (Self, Receiver<WatchResponse>) {
        let (messages, received) = sync_channel(MESSAGES_MAX);
        let gateway = Gateway::new(&gateway.members, gateway.user.clone(), WATCH_TIME);
        (Self { gateway, keys, messages }, received)
    }

    /// Watches until the process ends.
    pub(crate) fn run(mut self, store: &Store) {
        let (from, to) = (self.keys.entry(0), self.keys.log_end());
        loop {
            let begun = Instant::now();
            self.gateway.watch(&from, &to, WATCH_TIME, |message| {
                // Fails if there are too many.
                let _ = self.messages.try_send(message);
                store.poll();
            });
            if begun.elapsed() < WATCH_TIME {
                sleep(PAUSE);
            }
        }
    }
}
