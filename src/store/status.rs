//! How the database goes, for everybody to read: whether changes are saved, or of a follower
//! whether the list is read.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use super::database_error::DatabaseError;
use crate::metrics::SaveMetrics;
use crate::service_manager;

/// A save or a read that takes longer is a fault: as long as one waits for a lock of another
/// program.
const TIME_MAX: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct DatabaseStatus {
    /// What is wrong when the last save, or of a follower the last read, has failed.
    complaint: &'static str,
    /// What is right after that again.
    relief: &'static str,
    current: Mutex<Status>,
    pub(crate) metrics: SaveMetrics,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Status {
    /// Why the last save or read failed, if it did.
    pub(super) failure: Option<DatabaseError>,
    /// When the one began that is under way.
    begun: Option<Instant>,
    /// When changes were last saved; `None` before the first since the start.
    pub(crate) saved: Option<SystemTime>,
    /// When a follower last read the list anew, and when that last was another one.
    pub(crate) read: Option<SystemTime>,
    pub(crate) changed: Option<SystemTime>,
}

impl DatabaseStatus {
    pub(super) fn of_writer() -> Self {
        Self::new("changes cannot be saved", "changes are saved again")
    }

    /// Of a list that was read now.
    pub(super) fn of_follower() -> Self {
        let status = Self::new("the list cannot be read", "the list is read again");
        status.note_read(true);
        status
    }

    fn new(complaint: &'static str, relief: &'static str) -> Self {
        Self { complaint, relief, current: Mutex::default(), metrics: SaveMetrics::default() }
    }

    pub(crate) fn current(&self) -> Status {
        self.lock().clone()
    }

    /// What is wrong now, if anything is.
    pub(crate) fn fault(&self) -> Option<String> {
        let Status { failure, begun, .. } = self.current();
        if let Some(failure) = failure {
            return Some(format!("{}: {failure}", self.complaint));
        }
        let is_slow = begun.is_some_and(|begun| begun.elapsed() > TIME_MAX);
        is_slow.then(|| format!("the database has not answered for {} s", TIME_MAX.as_secs()))
    }

    /// How long the save or read that is under way takes so far.
    pub(crate) fn elapsed(&self) -> Duration {
        self.lock().begun.map_or(Duration::ZERO, |begun| begun.elapsed())
    }

    /// Nothing that can panic is done under this lock.
    fn lock(&self) -> MutexGuard<'_, Status> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a save or a read begins.
    pub(super) fn begin(&self) {
        self.lock().begun = Some(Instant::now());
    }

    pub(super) fn end(&self) {
        self.lock().begun = None;
    }

    pub(super) fn note_saved(&self) {
        self.lock().saved = Some(SystemTime::now());
    }

    pub(super) fn note_read(&self, is_changed: bool) {
        let now = Some(SystemTime::now());
        let mut status = self.lock();
        status.read = now;
        if is_changed {
            status.changed = now;
        }
    }

    /// Notes that changes can be saved, or the list can be read.
    pub(super) fn note_success(&self) {
        let failure = self.lock().failure.take();
        if failure.is_some() {
            log::info!("{}", self.relief);
            service_manager::status("ok");
        }
    }

    /// Tells of the failure only if the one before had another reason.
    pub(super) fn note_failure(&self, error: DatabaseError) {
        self.metrics.failures.add(1);
        let before = self.lock().failure.replace(error.clone());
        if before.as_ref() != Some(&error) {
            log::error!("{}: {error}", self.complaint);
            service_manager::status(&format!("{}: {error}", self.complaint));
        }
    }
}
