//! The signal of the modes' background job: when it runs next, and that it must run earlier.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

use crate::time::Micros;

/// No work is known.
const NEVER: u64 = u64::MAX;

/// The instant of the job's next run, and a way to wake the job.
#[derive(Debug)]
pub(super) struct JobSignal {
    next: AtomicU64,
    wake: Notify,
}

/// The job knows no work.
impl Default for JobSignal {
    fn default() -> JobSignal {
        JobSignal { next: AtomicU64::new(NEVER), wake: Notify::new() }
    }
}

impl JobSignal {
    /// Work is looked for from now on. What appears meanwhile wakes the job, so it looks again.
    pub(super) fn look(&self) {
        self.next.store(NEVER, Ordering::SeqCst);
    }

    /// The job runs at `at`, unless it is woken.
    pub(super) fn run_at(&self, at: Micros) {
        self.next.store(at.0, Ordering::SeqCst);
    }

    /// Wakes the job if it would run later than `at`. The work must be visible to the job before.
    pub(super) fn work_at(&self, at: Micros) {
        if at.0 < self.next.load(Ordering::SeqCst) {
            self.wake.notify_one();
        }
    }

    /// Wakes the job if it knows no work. The work must be visible to the job before.
    pub(super) fn work(&self) {
        if self.next.load(Ordering::SeqCst) == NEVER {
            self.wake.notify_one();
        }
    }

    /// Ends when the job is woken, also before this call.
    pub(super) async fn woken(&self) {
        self.wake.notified().await;
    }
}
