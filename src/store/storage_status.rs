//! Whether changes can be saved: for `/health`, `/metrics` and the log.

use std::mem::replace;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use super::StorageError;
use super::engine::{Certainty, Scope};
use crate::metrics::StorageMetrics;

/// A save or a poll that takes longer than this counts as a fault until it ends. While a save waits
/// for another program, the time begins anew with each try.
const HANG_TIME: Duration = Duration::from_secs(5);

/// What `/health` and the log say when a save or a poll fails. The cause follows.
const FAILED: &str = "changes cannot be saved";

#[derive(Default)]
pub(crate) struct StorageStatus {
    current: Mutex<Progress>,
    pub(crate) metrics: StorageMetrics,
}

/// The last save or poll, and what is known of those before. A poll is [`Engine::poll`].
///
/// [`Engine::poll`]: super::engine::Engine::poll
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    /// Why the last save or poll failed; `None` if it succeeded.
    pub(crate) failure: Option<StorageError>,
    /// When the save or poll that is under way began, or when it last tried to get the lock for
    /// which it waits; `None` if none is under way.
    begun: Option<Instant>,
    /// Why changes are refused, and not tried: see [`Scope::UntilAnswer`].
    refusal: Option<StorageError>,
    /// When changes were last saved; `None` before the first since the start.
    pub(crate) saved: Option<SystemTime>,
    /// What [`Engine::warning`] has returned last.
    ///
    /// [`Engine::warning`]: super::engine::Engine::warning
    pub(crate) warning: Option<String>,
}

impl StorageStatus {
    /// Does not log the warning: a start logs it once it cannot fail any more.
    pub(crate) fn new(warning: Option<String>) -> Self {
        let current = Mutex::new(Progress { warning, ..Progress::default() });
        Self { current, metrics: StorageMetrics::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn now(&self) -> Progress {
        self.lock().clone()
    }

    /// Why the last save or poll failed, or that the one under way hangs; `None` if all is well.
    pub(crate) fn fault(&self) -> Option<String> {
        let now = self.now();
        if let Some(failure) = now.failure {
            return Some(format!("{FAILED}: {failure}"));
        }
        let hangs = now.begun.is_some_and(|begun| begun.elapsed() > HANG_TIME);
        hangs.then(|| format!("the storage has not answered for {} s", HANG_TIME.as_secs()))
    }

    /// How long the save or poll that is under way has taken; zero if none is.
    pub(crate) fn elapsed(&self) -> Duration {
        self.lock().begun.map_or(Duration::ZERO, |begun| begun.elapsed())
    }

    /// Begins the time of a save or poll anew.
    pub(crate) fn restart_clock(&self) {
        self.lock().begun = Some(Instant::now());
    }

    /// Runs a save or a poll. Notes when it began and whether it failed, and logs a failure and the
    /// first success after it. A panic is a failure.
    pub(crate) fn supervise<T>(
        &self,
        run: impl FnOnce() -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        self.restart_clock();
        let result =
            catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Err(StorageError::panicked()));
        let failure = result.as_ref().err();
        let is_answered = failure.is_none_or(|failure| failure.scope != Scope::UntilAnswer);
        let before = {
            let mut progress = self.lock();
            progress.begun = None;
            if is_answered {
                progress.refusal = None;
            }
            replace(&mut progress.failure, failure.cloned())
        };
        if failure.is_some() {
            self.metrics.failures.inc();
        }
        match failure {
            Some(failure) if before.as_ref() != Some(failure) => log::error!("{FAILED}: {failure}"),
            None if before.is_some() => log::info!("changes are saved again"),
            _ => {}
        }
        result
    }

    /// Why a change is to be refused without a try; `None` if it is to be tried.
    pub(super) fn refusal(&self) -> Option<StorageError> {
        self.lock().refusal.clone()
    }

    /// Notes that a save of changes has failed: see [`Scope::UntilAnswer`]. A poll that fails does
    /// not count, so a change that comes while etcd elects a leader has time of its own.
    pub(super) fn note_failed(&self, error: &StorageError) {
        if error.scope == Scope::UntilAnswer {
            let refusal = StorageError { certainty: Certainty::NotAsked, ..error.clone() };
            self.lock().refusal = Some(refusal);
        }
    }

    /// Notes a warning, and logs one that is new.
    pub(crate) fn note_warning(&self, warning: Option<String>) {
        let before = replace(&mut self.lock().warning, warning.clone());
        match warning {
            Some(warning) if before.as_ref() != Some(&warning) => log::warn!("{warning}"),
            _ => {}
        }
    }

    pub(crate) fn note_saved(&self) {
        self.lock().saved = Some(SystemTime::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_refused_without_a_try_until_the_storage_answers_whatever_that_is() {
        let error = |scope| StorageError { scope, ..StorageError::panicked() };
        let away = error(Scope::UntilAnswer);
        for (found, refuses) in
            [(Err(away.clone()), true), (Err(error(Scope::Save)), false), (Ok(()), false)]
        {
            let status = StorageStatus::new(None);
            status.note_failed(&away);
            assert!(status.refusal().is_some());
            assert_eq!(status.supervise(|| found.clone()), found);
            assert_eq!(status.refusal().is_some(), refuses, "{found:?}");
        }
    }
}
