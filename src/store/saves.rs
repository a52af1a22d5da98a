//! How saving goes, for everybody to read.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use super::database_error::DatabaseError;
use crate::metrics::SaveMetrics;
use crate::service_manager;

/// How saving goes, for everybody to read.
#[derive(Debug, Default)]
pub(crate) struct Saves {
    status: Mutex<SaveStatus>,
    pub(crate) metrics: SaveMetrics,
}

/// How the last saves went.
#[derive(Clone, Debug, Default)]
pub(crate) struct SaveStatus {
    /// Why the last one failed, if it did.
    pub(crate) failure: Option<DatabaseError>,
    /// When the last one succeeded; `None` before the first since the start.
    pub(crate) last_success: Option<SystemTime>,
    /// When the one began that is under way.
    begun: Option<Instant>,
}

impl SaveStatus {
    /// How long the save that is under way takes so far.
    pub(crate) fn elapsed(&self) -> Duration {
        self.begun.map_or(Duration::ZERO, |begun| begun.elapsed())
    }
}

impl Saves {
    pub(crate) fn status(&self) -> SaveStatus {
        self.lock().clone()
    }

    pub(super) fn have_failed(&self) -> bool {
        self.lock().failure.is_some()
    }

    /// Nothing that can panic is done under this lock.
    fn lock(&self) -> MutexGuard<'_, SaveStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn begin(&self) {
        self.lock().begun = Some(Instant::now());
    }

    pub(super) fn end(&self) {
        self.lock().begun = None;
    }

    /// Notes that changes were saved.
    pub(super) fn note_saved(&self) {
        self.lock().last_success = Some(SystemTime::now());
        self.note_recovered();
    }

    /// Notes that changes can be saved.
    pub(super) fn note_recovered(&self) {
        let failure = self.lock().failure.take();
        if failure.is_some() {
            log::info!("changes are saved again");
            service_manager::status("ok");
        }
    }

    /// Tells of the failure only if the one before had another reason.
    pub(super) fn note_failure(&self, error: DatabaseError) {
        let before = self.lock().failure.replace(error.clone());
        if before.as_ref() != Some(&error) {
            log::error!("changes cannot be saved: {error}");
            service_manager::status(&format!("changes cannot be saved: {error}"));
        }
    }
}
