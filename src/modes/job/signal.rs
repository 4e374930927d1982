//! The signal of the modes' background job: when it runs next, and that it must run earlier.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

use crate::time::Micros;

/// No run is planned.
const NEVER: u64 = u64::MAX;

/// The instant up to which work needs no other run than the planned one, and a way to wake the job.
#[derive(Debug)]
pub(in crate::modes) struct JobSignal {
    planned: AtomicU64,
    wake: Notify,
}

/// No run is planned.
impl Default for JobSignal {
    fn default() -> JobSignal {
        JobSignal { planned: AtomicU64::new(NEVER), wake: Notify::new() }
    }
}

impl JobSignal {
    /// The job looks for work after this call. Work that appears later wakes it.
    pub(super) fn look(&self) {
        self.planned.store(NEVER, Ordering::SeqCst);
    }

    /// The job runs soon enough for work that is due at `at` or later.
    pub(super) fn run_at(&self, at: Micros) {
        self.planned.store(at.0, Ordering::SeqCst);
    }

    /// Wakes the job if it would run too late for work that is due at `at`. The work must be where the job looks.
    pub(in crate::modes) fn work_at(&self, at: Micros) {
        if at.0 < self.planned.load(Ordering::SeqCst) {
            self.wake.notify_one();
        }
    }

    /// Wakes the job if no run is planned. The work must be where the job looks.
    pub(in crate::modes) fn work(&self) {
        if self.planned.load(Ordering::SeqCst) == NEVER {
            self.wake.notify_one();
        }
    }

    /// Ends when the job is woken, also before this call.
    pub(super) async fn woken(&self) {
        self.wake.notified().await;
    }
}
