//! Watches the log in etcd, and tells the writer what other services put there. Nothing depends on
//! it but time: without it, a look each second finds the same.

use std::io::BufRead as _;
use std::mem::take;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::format::Keys;
use super::gateway::{Gateway, KeyValue};
use crate::store::Store;

/// How long one request watches. A member that was cut off sends nothing, so after this time
/// another request is made, perhaps of another member.
const WATCH_TIME: Duration = Duration::from_secs(10);

/// The pause after a watch that has ended early.
const PAUSE: Duration = Duration::from_millis(200);

/// Most bytes of entries that wait for the writer, which may be waiting for etcd. Instead of more,
/// it looks.
const BYTES_MAX: usize = 4 * 1024 * 1024;

/// What the watch has seen, and the writer has not taken.
#[derive(Clone, Default)]
pub(super) struct News(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    entries: Vec<KeyValue>,
    /// Of their values.
    bytes: usize,
    /// Something may have been missed: the writer has to look.
    is_look_due: bool,
}

impl News {
    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what was seen, and whether a look is due.
    pub(super) fn take(&self) -> (Vec<KeyValue>, bool) {
        let Seen { entries, is_look_due, .. } = take(&mut *self.lock());
        (entries, is_look_due)
    }
}

/// Watches on a thread of its own.
pub(crate) struct LogWatch {
    gateway: Gateway,
    keys: Keys,
    news: News,
}

/// A line of the answer.
#[derive(Deserialize)]
struct Message {
    result: WatchResult,
}

#[derive(Deserialize)]
struct WatchResult {
    #[serde(default)]
    created: bool,
    #[serde(default)]
    events: Vec<WatchEvent>,
}

#[derive(Deserialize)]
struct WatchEvent {
    kv: KeyValue,
}

impl LogWatch {
    pub(super) fn new(gateway: Gateway, keys: Keys, news: News) -> Self {
        Self { gateway, keys, news }
    }

    /// Watches until the process ends.
    pub(crate) fn run(&self, store: &Store) {
        loop {
            let begun = Instant::now();
            let (from, to) = (self.keys.entry(0), self.keys.log_end());
            if let Some(answer) = self.gateway.watch(&from, &to, WATCH_TIME) {
                // Ends with the time, or when the connection breaks.
                for line in answer.lines().map_while(Result::ok) {
                    let Ok(Message { result }) = serde_json::from_str(&line) else { break };
                    self.note(result);
                    store.look();
                }
            }
            if begun.elapsed() < WATCH_TIME {
                sleep(PAUSE);
            }
        }
    }

    fn note(&self, result: WatchResult) {
        let mut seen = self.news.lock();
        // What was put before the watch was created is found by a look.
        seen.is_look_due |= result.created;
        seen.bytes += result.events.iter().map(|event| event.kv.value.len()).sum::<usize>();
        seen.entries.extend(result.events.into_iter().map(|event| event.kv));
        if seen.bytes > BYTES_MAX {
            *seen = Seen { is_look_due: true, ..Seen::default() };
        }
    }
}
