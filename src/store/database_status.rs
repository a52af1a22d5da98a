//! Whether changes can be saved or, of a follower, whether the list can be read: for `/health`,
//! `/metrics`, the log and the service manager.

use std::mem::replace;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use super::DatabaseError;
use crate::metrics::DatabaseMetrics;
use crate::service_manager;

/// A save or a read that takes longer counts as failed. The time of a save does not include its
/// wait for the write lock, since that time starts again with each try to get the lock. A read that
/// waits this long for another program fails.
const HANG_TIME: Duration = Duration::from_secs(5);

pub(crate) struct DatabaseStatus {
    /// Message for the log when a save or a read fails; the cause follows.
    on_failure: &'static str,
    /// Message for the log when a save or a read succeeds again.
    on_recovery: &'static str,
    current: Mutex<Progress>,
    pub(crate) metrics: DatabaseMetrics,
}

/// How saves and reads have gone so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    /// Why the last save or read failed; `None` if it succeeded.
    pub(super) failure: Option<DatabaseError>,
    /// When the save or the read that is under way began, or last began to wait for the write lock.
    begun: Option<Instant>,
    /// When changes were last saved; `None` before the first since the start.
    pub(crate) saved: Option<SystemTime>,
    /// When a follower last read the file.
    pub(crate) read: Option<SystemTime>,
    /// When a follower last read a list that differs from the one before, or its first list.
    pub(crate) changed: Option<SystemTime>,
}

impl DatabaseStatus {
    pub(super) fn new(on_failure: &'static str, on_recovery: &'static str) -> Self {
        Self {
            on_failure,
            on_recovery,
            current: Mutex::default(),
            metrics: DatabaseMetrics::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn now(&self) -> Progress {
        self.lock().clone()
    }

    /// Why changes are not saved, or the list is not read; `None` if they are.
    pub(crate) fn fault(&self) -> Option<String> {
        let now = self.now();
        if let Some(failure) = now.failure {
            return Some(format!("{}: {failure}", self.on_failure));
        }
        now.begun
            .is_some_and(|begun| begun.elapsed() > HANG_TIME)
            .then(|| format!("the database has not answered for {} s", HANG_TIME.as_secs()))
    }

    /// How long the save or the read that is under way has taken so far.
    pub(crate) fn elapsed(&self) -> Duration {
        self.lock().begun.map_or(Duration::ZERO, |begun| begun.elapsed())
    }

    /// Starts the time of the save again, since the save waits for another program.
    pub(super) fn restart_clock(&self) {
        self.lock().begun = Some(Instant::now());
    }

    /// Runs a save or a read, and notes when it began and whether it has failed. A panic counts as
    /// a failure. Reports to the log and the service manager each failure that differs from the one
    /// before, and the first success after a failure.
    pub(super) fn supervise<T>(
        &self,
        run: impl FnOnce() -> Result<T, DatabaseError>,
    ) -> Result<T, DatabaseError> {
        self.restart_clock();
        let result = catch_unwind(AssertUnwindSafe(run)).unwrap_or(Err(DatabaseError::Panicked));
        let failure = result.as_ref().err();
        let before = {
            let mut progress = self.lock();
            progress.begun = None;
            replace(&mut progress.failure, failure.cloned())
        };
        if let Some(failure) = failure {
            self.metrics.failures.inc();
            if before.as_ref() != Some(failure) {
                let message = format!("{}: {failure}", self.on_failure);
                log::error!("{message}");
                service_manager::status(&message);
            }
        } else if before.is_some() {
            log::info!("{}", self.on_recovery);
            service_manager::status("ok");
        }
        result
    }

    pub(super) fn note_saved(&self) {
        self.lock().saved = Some(SystemTime::now());
    }

    pub(super) fn note_read(&self, is_changed: bool) {
        let now = Some(SystemTime::now());
        let mut progress = self.lock();
        progress.read = now;
        if is_changed || progress.changed.is_none() {
            progress.changed = now;
        }
    }
}
