//! The threads that serve one connection each, since they may wait for the disk: few at first, more while connections wait for one, few
//! again when most have had nothing to do.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use threadpool::ThreadPool;

/// Threads to start with, and to return to.
const START: usize = 4;

/// What tools that list threads call them.
const NAME: &str = "saver";

/// How long most threads have nothing to do before they are let go.
const SHRINK_AFTER: Duration = Duration::from_secs(2);

/// How long the system is not asked for threads again after it had none.
const GROW_AGAIN: Duration = Duration::from_secs(1);

/// A pool of threads that grows and shrinks.
pub(crate) struct Savers {
    /// The threads.
    pool: ThreadPool,
    /// Most threads there may be.
    max: usize,
    /// Most threads at work at once since `counted_since`.
    peak: usize,
    /// Beginning of the time that `peak` is about.
    counted_since: Instant,
    /// When to ask the system for threads again, after it had none.
    grow_after: Instant,
}

impl Savers {
    /// A pool of a few threads, to become `max` at most, which is at least 1.
    ///
    /// # Errors
    /// When the system does not give that many threads.
    pub(crate) fn new(max: usize) -> io::Result<Self> {
        let now = Instant::now();
        Ok(Self { pool: pool_of(START.min(max), NAME)?, max, peak: 0, counted_since: now, grow_after: now })
    }

    /// Has a thread do `job`: a new one if all are at work, and the next one that is free if there may be no more.
    pub(crate) fn execute(&mut self, job: impl FnOnce() + Send + 'static) {
        let wanted = self.wanted();
        if wanted >= self.pool.max_count() {
            self.grow();
        }
        self.peak = self.peak.max(wanted + 1);
        self.pool.execute(job);
    }

    /// Whether there are threads to let go once there is nothing to do.
    pub(crate) fn are_many(&self) -> bool {
        self.pool.max_count() >= 2 * START.min(self.max)
    }

    /// Lets threads go when most had nothing to do for a while. The pool cannot shrink, so a smaller one takes its place: the threads of the
    /// old one end when they have done what they are at. Says whether that was so.
    pub(crate) fn shrink(&mut self, now: Instant) -> bool {
        // a worker may be busy with one connection for longer than this counts
        self.peak = self.peak.max(self.wanted());
        if now.duration_since(self.counted_since) < SHRINK_AFTER {
            return false;
        }
        let enough = (2 * self.peak).clamp(START.min(self.max), self.max);
        (self.peak, self.counted_since) = (0, now);
        if self.pool.queued_count() > 0 || 2 * enough > self.pool.max_count() {
            return false;
        }
        // the few new threads come before the many old ones go: where the system gives none, the old ones stay for now
        pool_of(enough, NAME).map(|pool| self.pool = pool).is_ok()
    }

    /// Jobs being done or waiting.
    fn wanted(&self) -> usize {
        self.pool.active_count() + self.pool.queued_count()
    }

    /// Doubles the number of threads, as far as allowed and as far as the system gives them.
    fn grow(&mut self) {
        let goal = (2 * self.pool.max_count()).min(self.max);
        if goal == self.pool.max_count() || Instant::now() < self.grow_after {
            return;
        }
        while self.pool.max_count() < goal {
            let count = self.pool.max_count();
            if may_panic(|| self.pool.set_num_threads(count + 1)).is_err() {
                // the pool counts the thread that it did not get
                self.pool.set_num_threads(count);
                self.grow_after = Instant::now() + GROW_AGAIN;
                log::warn!("no more than {count} threads that save for the moment: the system gives no more");
                return;
            }
        }
    }
}

/// A pool of so many threads of this name.
///
/// # Errors
/// When the system does not give that many.
pub(crate) fn pool_of(threads: usize, name: &str) -> io::Result<ThreadPool> {
    crate::threads::pool(threads, name)
}

/// Has the pool do something that makes it panic when the system has no thread left.
fn may_panic<T>(act: impl FnOnce() -> T) -> io::Result<T> {
    catch_unwind(AssertUnwindSafe(act)).map_err(|_| io::Error::other("the system gives no more threads"))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// Sets `count` jobs going that each end when the returned sender is dropped; they report their start.
    fn occupy(savers: &mut Savers, count: usize) -> (Receiver<()>, Vec<Sender<()>>) {
        let (started, starts) = channel();
        let mut holds = Vec::new();
        for _ in 0..count {
            let (hold, held) = channel::<()>();
            holds.push(hold);
            let started = started.clone();
            savers.execute(move || {
                let _ = started.send(());
                let _ = held.recv();
            });
        }
        (starts, holds)
    }

    #[test]
    fn every_job_has_a_thread_up_to_the_limit() {
        let mut savers = Savers::new(20).unwrap();
        let (starts, mut holds) = occupy(&mut savers, 20);
        assert_eq!(starts.iter().take(20).count(), 20);
        let (others, more) = occupy(&mut savers, 1);
        assert_eq!((savers.pool.max_count(), savers.pool.queued_count()), (20, 1));
        holds.pop();
        others.recv().unwrap();
        drop((holds, more));
        savers.pool.join();
    }

    #[test]
    fn threads_at_work_are_kept_however_long_they_are() {
        let mut savers = Savers::new(64).unwrap();
        let (starts, holds) = occupy(&mut savers, 64);
        assert_eq!(starts.iter().take(64).count(), 64);
        let mut now = Instant::now();
        for _ in 0..3 {
            now += SHRINK_AFTER;
            savers.shrink(now);
        }
        assert_eq!(savers.pool.max_count(), 64);
        drop(holds);
    }

    #[test]
    fn threads_without_work_are_let_go() {
        let mut savers = Savers::new(64).unwrap();
        let (starts, holds) = occupy(&mut savers, 64);
        assert_eq!(starts.iter().take(64).count(), 64);
        drop(holds);
        savers.pool.join();
        let mut now = Instant::now();
        for _ in 0..2 {
            now += SHRINK_AFTER;
            savers.shrink(now);
        }
        assert_eq!(savers.pool.max_count(), START);
    }
}
