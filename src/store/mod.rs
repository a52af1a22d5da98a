//! The list and how it is kept: one mutex around its current version, which all workers share, and
//! one writer for the database. Once the service runs, only the writer waits for the disk. No HTTP
//! but its representations and conditions.

mod change;
mod color;
mod colors;
pub(crate) mod data_file;
pub(crate) mod database;
mod database_error;
mod files;
#[cfg(fuzzing)]
#[path = "../../fuzz/inside/store.rs"]
pub(crate) mod fuzzing;
pub(crate) mod json;
mod list;
mod reservation;
mod retired;
mod saves;
mod writer;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

pub(crate) use change::{Action, Change, Outcome};
#[cfg(test)]
pub(crate) use color::Color;
pub(crate) use colors::Colors;
pub(crate) use database::Database;
pub(crate) use database_error::DatabaseError;
pub(crate) use json::JsonError;
use list::SharedList;
use reservation::{Reservation, Reservations};
pub(crate) use saves::{SaveStatus, Saves};
pub(crate) use writer::Writer;
use writer::{Reply, WriterMessage};

/// Milliseconds in which what another program has written may go unnoticed by readers.
const LOOK_INTERVAL: u64 = 1000;

/// The list, and the way to its writer.
#[derive(Debug)]
pub(crate) struct Store {
    /// What is read.
    pub(crate) list: Arc<SharedList>,
    pub(crate) saves: Arc<Saves>,
    reservations: Reservations,
    changes: Changes,
}

/// How changes are made.
#[derive(Debug)]
enum Changes {
    /// One at a time, by who holds this, in a list that lives in memory alone.
    InMemory(Mutex<()>),
    /// By the writer.
    Saved(Queue),
}

/// Where changes wait for the writer.
#[derive(Debug)]
struct Queue {
    messages: Sender<WriterMessage>,
    started: Instant,
    /// When [`Store::note_requests`] last had the writer look at the database, in milliseconds
    /// since `started`; [`LOOKING`] while it does.
    looked: Arc<AtomicU64>,
}

/// Later than all times.
const LOOKING: u64 = u64::MAX - LOOK_INTERVAL;

impl Store {
    /// A list that lives in memory alone. `memory_max`: bytes for lists on their way in; old
    /// representations may take twice as many, since most of them are the list itself.
    pub(crate) fn in_memory(colors: Colors, memory_max: usize) -> Self {
        let list = Arc::new(SharedList::new(colors, 2 * memory_max));
        Self {
            list,
            saves: Arc::default(),
            reservations: Reservations::new(memory_max),
            changes: Changes::InMemory(Mutex::default()),
        }
    }

    /// A list that is kept in a database, which has these colors, and the writer, which has to run
    /// for changes to be made.
    pub(crate) fn in_database(
        database: Database,
        colors: Colors,
        memory_max: usize,
    ) -> (Self, Writer) {
        let (sender, messages) = mpsc::channel();
        let queue = Queue { messages: sender, started: Instant::now(), looked: Arc::default() };
        let store = Self { changes: Changes::Saved(queue), ..Self::in_memory(colors, memory_max) };
        let (list, saves) = (Arc::clone(&store.list), Arc::clone(&store.saves));
        (store, Writer::new(list, saves, messages, database))
    }

    /// Whether changes are saved.
    pub(crate) fn is_durable(&self) -> bool {
        self.queue().is_some()
    }

    fn queue(&self) -> Option<&Queue> {
        match &self.changes {
            Changes::InMemory(_) => None,
            Changes::Saved(queue) => Some(queue),
        }
    }

    /// Reserves memory for a list with so many bytes of JSON; `None` if too many others are being
    /// read or saved.
    pub(crate) fn reserve_list(&self, json: usize) -> Option<Reservation> {
        self.reservations.reserve(json)
    }

    /// Makes a change in memory, or finds that it cannot be made. `None` if it has to be saved:
    /// then [`Store::submit`] it.
    pub(crate) fn change(&self, change: &Change) -> Option<Outcome> {
        let Changes::InMemory(changing) = &self.changes else { return None };
        // a change that panics while it is decided leaves the list as it was
        let _changing = changing.lock().unwrap_or_else(PoisonError::into_inner);
        Some(self.list.change(change))
    }

    /// Queues a change for the writer. It calls `reply` when the change is on the disk and readers
    /// see it, or when it was not made.
    pub(crate) fn submit(
        &self,
        change: Change,
        reply: impl FnOnce(Result<Outcome, DatabaseError>) + Send + 'static,
    ) {
        self.send(WriterMessage::Change(change, Reply::new(reply)));
    }

    /// Has the writer look at the database if that is a second ago, so that readers see what other
    /// programs write. Call it when requests were answered: when nobody asks, nobody looks.
    pub(crate) fn note_requests(&self, now: Instant) {
        let Some(queue) = self.queue() else { return };
        let (now, last) =
            (now.duration_since(queue.started).as_millis() as u64, queue.looked.load(Relaxed));
        if now >= last + LOOK_INTERVAL
            && queue.looked.compare_exchange(last, LOOKING, Relaxed, Relaxed).is_ok()
        {
            let looked = Arc::clone(&queue.looked);
            self.submit(Change::look(), move |_| looked.store(now, Relaxed));
        }
    }

    /// Tells the writer to save what is queued and to close the database. False if that is not done
    /// at the deadline.
    pub(crate) fn close(&self, deadline: Instant) -> bool {
        let (closed, is_closed) = mpsc::channel();
        self.send(WriterMessage::Close(closed));
        !self.is_durable()
            || is_closed.recv_timeout(deadline.saturating_duration_since(Instant::now())).is_ok()
    }

    fn send(&self, message: WriterMessage) {
        if let Some(queue) = self.queue() {
            // Without a writer the message is dropped, and with it what would tell its outcome.
            let _ = queue.messages.send(message);
        }
    }
}
