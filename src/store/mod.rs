//! The list and how it is kept: one mutex around the colors, which all workers share, and one writer for the database. Nothing here but the
//! writer waits for the disk. No HTTP but its entity tags.

mod change;
pub(crate) mod color;
mod colors;
pub(crate) mod data_file;
pub(crate) mod database;
pub(crate) mod envelope;
#[cfg(fuzzing)]
#[path = "../../fuzz/inside/store.rs"]
pub(crate) mod fuzzing;
mod list;
mod retired;
mod writer;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(crate) use change::{Action, Change, Outcome};
pub(crate) use color::{Color, JsonError};
use colors::Colors;
pub(crate) use database::{Database, OpenError, Rows, SaveError};
use list::SharedList;
use writer::WriterMessage;
pub(crate) use writer::{Saves, Writer};

use crate::http::Representation;
use crate::metrics::SaveMetrics;

/// The shared list.
#[derive(Debug)]
pub(crate) struct Store {
    list: Arc<SharedList>,
    saves: Arc<Mutex<Saves>>,
    save_metrics: Arc<SaveMetrics>,
    /// The writer has answered since it was last asked.
    has_answered: Arc<AtomicBool>,
    /// Where changes wait for the writer; `None` when the list lives in memory alone.
    queue: Option<Sender<WriterMessage>>,
}

impl Store {
    /// A list that lives in memory alone.
    pub(crate) fn in_memory(colors: Vec<Color>) -> Self {
        Self {
            list: Arc::new(SharedList::new(Colors::new(colors))),
            saves: Arc::default(),
            save_metrics: Arc::default(),
            has_answered: Arc::new(AtomicBool::new(true)),
            queue: None,
        }
    }

    /// A list that is kept in a database, whose rows these are, and the writer that has to run for changes to be made.
    pub(crate) fn in_database(database: Database, rows: Rows) -> (Self, Writer) {
        let (queue, messages) = mpsc::channel();
        let store = Self { queue: Some(queue), ..Self::in_memory(rows.colors.clone()) };
        let writer =
            Writer::new(Arc::clone(&store.list), Arc::clone(&store.saves), Arc::clone(&store.save_metrics), messages, database, rows);
        (store, writer)
    }

    /// Whether changes go by [`Store::commit`].
    pub(crate) fn is_durable(&self) -> bool {
        self.queue.is_some()
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// How many colors there are, and how many bytes [`Store::envelope`] has, without making it.
    pub(crate) fn size(&self) -> (usize, usize) {
        self.list.size()
    }

    pub(crate) fn first(&self, name: &str) -> Option<Arc<Representation>> {
        self.list.first(name)
    }

    /// The collection envelope of the specification.
    pub(crate) fn envelope(&self) -> Arc<Representation> {
        self.list.envelope()
    }

    /// How many representations were withdrawn so far, see [`Representation::withdraw`].
    pub(crate) fn withdrawn(&self) -> usize {
        self.list.withdrawn()
    }

    /// How saving goes; `None` for a list that lives in memory alone.
    pub(crate) fn saves(&self) -> Option<Saves> {
        self.is_durable().then(|| writer::lock(&self.saves).clone())
    }

    pub(crate) fn save_metrics(&self) -> &SaveMetrics {
        &self.save_metrics
    }

    /// Makes a change in memory, or finds that it cannot be made. Not for a durable list.
    pub(crate) fn apply(&self, change: &Change) -> Outcome {
        debug_assert!(!self.is_durable(), "a durable list is changed by its writer alone");
        self.list.apply(change)
    }

    /// Queues a change for the writer, which calls `reply` once it is on the disk and everybody can see it, or was not made.
    pub(crate) fn commit(&self, change: Change, reply: impl FnOnce(Result<Outcome, SaveError>) + Send + 'static) {
        if let Some(WriterMessage::Change(_, reply)) = self.send(WriterMessage::Change(change, Box::new(reply))) {
            reply(Err(SaveError::new("the service is stopping")));
        }
    }

    /// Whether the writer has taken what it was sent since [`Store::ask`]; true without one.
    pub(crate) fn has_answered(&self) -> bool {
        !self.is_durable() || self.has_answered.load(Relaxed)
    }

    /// Asks the writer to show that it goes on.
    pub(crate) fn ask(&self) {
        self.has_answered.store(false, Relaxed);
        // Without a writer nobody has to answer.
        let _ = self.send(WriterMessage::Ask(Arc::clone(&self.has_answered)));
    }

    /// Tells the writer to save what is queued and to close the database. False if that takes longer than `time`.
    pub(crate) fn close(&self, time: Duration) -> bool {
        let (closed, is_closed) = mpsc::channel();
        let has_writer = self.send(WriterMessage::Close(closed)).is_none();
        !has_writer || is_closed.recv_timeout(time).is_ok()
    }

    /// Gives the message back if there is no writer.
    fn send(&self, message: WriterMessage) -> Option<WriterMessage> {
        match &self.queue {
            Some(queue) => queue.send(message).err().map(|refused| refused.0),
            None => Some(message),
        }
    }
}
