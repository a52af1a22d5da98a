//! Whether changes can be saved or, of a follower, whether the list can be read: for `/health`,
//! `/metrics`, the log and the service manager.

use std::mem::replace;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use super::DatabaseError;
use crate::metrics::SaveMetrics;
use crate::service_manager;

/// A save or a read that takes longer counts as failed. It does not wait for a lock of another
/// program, since such a wait has ended by then.
const HANG_TIME: Duration = Duration::from_secs(5);

pub(crate) struct DatabaseStatus {
    /// What the log says before the cause when a save or a read fails.
    complaint: &'static str,
    /// What the log says when one succeeds again.
    relief: &'static str,
    current: Mutex<Status>,
    pub(crate) metrics: SaveMetrics,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Status {
    /// Why the last save or read failed; `None` if it did not.
    pub(super) failure: Option<DatabaseError>,
    /// When the save or the read that is under way began.
    begun: Option<Instant>,
    /// When changes were last saved; `None` before the first since the start.
    pub(crate) saved: Option<SystemTime>,
    /// When a follower last read the file.
    pub(crate) read: Option<SystemTime>,
    /// When a follower last read a list that differs from the one before, or its first list.
    pub(crate) changed: Option<SystemTime>,
}

impl DatabaseStatus {
    pub(super) fn new(complaint: &'static str, relief: &'static str) -> Self {
        Self { complaint, relief, current: Mutex::default(), metrics: SaveMetrics::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Status> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn now(&self) -> Status {
        self.lock().clone()
    }

    /// Why changes are not saved, or the list is not read; `None` if they are.
    pub(crate) fn fault(&self) -> Option<String> {
        if let Some(failure) = self.now().failure {
            return Some(format!("{}: {failure}", self.complaint));
        }
        (self.elapsed() > HANG_TIME)
            .then(|| format!("the database has not answered for {} s", HANG_TIME.as_secs()))
    }

    /// How long the save or the read that is under way has taken so far.
    pub(crate) fn elapsed(&self) -> Duration {
        self.lock().begun.map_or(Duration::ZERO, |begun| begun.elapsed())
    }

    /// Runs a save or a read, and notes when it began and whether it has failed. A panic counts as
    /// a failure. Reports to the log and the service manager each failure that differs from the one
    /// before, and the first success after a failure.
    pub(super) fn supervise<T>(
        &self,
        run: impl FnOnce() -> Result<T, DatabaseError>,
    ) -> Result<T, DatabaseError> {
        self.lock().begun = Some(Instant::now());
        let result = catch_unwind(AssertUnwindSafe(run)).unwrap_or(Err(DatabaseError::Panicked));
        let failure = result.as_ref().err();
        let before = {
            let mut status = self.lock();
            status.begun = None;
            replace(&mut status.failure, failure.cloned())
        };
        if let Some(failure) = failure {
            self.metrics.failures.add(1);
            if before.as_ref() != Some(failure) {
                let complaint = format!("{}: {failure}", self.complaint);
                log::error!("{complaint}");
                service_manager::status(&complaint);
            }
        } else if before.is_some() {
            log::info!("{}", self.relief);
            service_manager::status("ok");
        }
        result
    }

    pub(super) fn note_saved(&self) {
        self.lock().saved = Some(SystemTime::now());
    }

    pub(super) fn note_read(&self, is_changed: bool) {
        let now = Some(SystemTime::now());
        let mut status = self.lock();
        status.read = now;
        if is_changed || status.changed.is_none() {
            status.changed = now;
        }
    }
}
