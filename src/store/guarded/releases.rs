//! Releases of slots that failed: they are sent again until the store has applied them, or until
//! [`ERROR_REPLIES_MAX`] replies were errors or invalid.
//!
//! A release is sent after an acquire whose outcome is unknown, so it must not be lost with the same
//! connection. It may be applied any number of times, because it frees all slots of its lease, and
//! closing an unknown or closed lease changes nothing. After the lease's `hold` it is dropped: its
//! slots have expired.
//!
//! Only releases of slots are repeated. A settlement of hits that arrives late could give back hits
//! that have left the window since.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::task::JoinHandle;

use super::breaker::CallPermit;
use super::{GuardedStore, Shared, call_result};
use crate::key::CounterKey;
use crate::step::{Lease, Step, StepParams};
use crate::store::{NodeAware, NodeId, StoreError, detach, with_timeout};
use crate::time::{Clock, Micros};

/// Pause between two attempts to send the waiting releases.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// The most releases that wait, of all nodes. A node has at most 2048 acquires in flight when it
/// fails. The slots of further releases expire.
const RELEASES_MAX: usize = 4096;

/// Error replies and invalid replies after which a release is dropped. At one attempt in 200 ms,
/// they cover a failover and the start of a node.
const ERROR_REPLIES_MAX: u8 = 50;

/// A release that is sent again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Release {
    key: CounterKey,
    step: Step,
    /// The instant from which its slots have expired, by the local clock.
    until: Micros,
    error_replies: u8,
}

/// The releases that wait, and the task that sends them.
#[derive(Debug, Default)]
pub(super) struct ReleaseQueue {
    state: Mutex<QueueState>,
}

#[derive(Debug, Default)]
struct QueueState {
    waiting: VecDeque<Release>,
    /// `None` if no task is needed. A task ends early with its runtime.
    task: Option<JoinHandle<()>>,
}

impl Release {
    /// The release that `step` on the counter `key` is, sent first at `now` by the local clock.
    /// `None` for every other step.
    pub(super) fn of(key: &CounterKey, step: &Step, now: Micros) -> Option<Release> {
        let (StepParams::Slots(tiers), Some(Lease::Close(_))) = (&step.params, step.lease) else {
            return None;
        };
        let hold = tiers.iter().map(|tier| tier.window).max()?;
        let until = now.saturating_add(hold);
        Some(Release { key: *key, step: step.clone(), until, error_replies: 0 })
    }

    /// Counts an error reply. Returns the release if it may be sent again.
    fn after_error_reply(mut self) -> Option<Release> {
        self.error_replies += 1;
        (self.error_replies < ERROR_REPLIES_MAX).then_some(self)
    }
}

impl<S: NodeAware, C: Clock> GuardedStore<S, C> {
    /// Sends a release, and sends it again if it fails.
    pub(super) fn release(&self, release: Release) {
        let store = self.clone();
        // Slots that are not released expire.
        detach(async move {
            if store.send_release(&release).await.is_err() {
                let retrying = store.clone();
                let retry = || tokio::spawn(async move { retrying.retry_releases().await });
                store.shared.releases.push(release, retry);
            }
        });
    }

    /// Sends a release once, if the breaker of its node lets it pass. It is not in the metrics of
    /// steps, which are about callers that wait.
    async fn send_release(&self, release: &Release) -> Result<(), StoreError> {
        let Shared { store, clock, timeout, .. } = &*self.shared;
        let node = self.guarded_node(store.node(&release.key));
        let permit = node.admit(clock.now());
        if permit == CallPermit::Reject {
            return Err(StoreError::BreakerOpen);
        }
        let sent = with_timeout(*timeout, store.apply(&release.key, &release.step)).await;
        node.report(permit, call_result(sent.as_ref().err()), clock.now());
        sent.map(drop)
    }

    /// Sends the waiting releases again until none is left.
    async fn retry_releases(&self) {
        let Shared { store, clock, releases, .. } = &*self.shared;
        loop {
            tokio::time::sleep(RETRY_INTERVAL).await;
            let Some(waiting) = releases.take(clock.now()) else { return };
            let mut failed: SmallVec<[NodeId; 4]> = SmallVec::new();
            for release in waiting {
                let node = store.node(&release.key);
                if failed.contains(&node) {
                    releases.put_back(release);
                    continue;
                }
                match self.send_release(&release).await {
                    Ok(()) => {}
                    // The node is alive. Possibly it is a replica, or has no memory.
                    Err(StoreError::ErrorReply | StoreError::InvalidReply) => {
                        if let Some(release) = release.after_error_reply() {
                            releases.put_back(release);
                        }
                    }
                    Err(_) => {
                        failed.push(node);
                        releases.put_back(release);
                    }
                }
            }
        }
    }
}

impl ReleaseQueue {
    /// Adds a release, if there is room. Calls `start` if no task sends the releases.
    fn push(&self, release: Release, start: impl FnOnce() -> JoinHandle<()>) {
        let mut state = self.state();
        if state.waiting.len() < RELEASES_MAX {
            state.waiting.push_back(release);
        }
        if state.task.as_ref().is_none_or(JoinHandle::is_finished) {
            state.task = Some(start());
        }
    }

    /// Adds a release that its task could not send.
    fn put_back(&self, release: Release) {
        let mut state = self.state();
        if state.waiting.len() < RELEASES_MAX {
            state.waiting.push_back(release);
        }
    }

    /// Takes the releases that are due at `now`. `None` if there are none; the task must then end.
    fn take(&self, now: Micros) -> Option<VecDeque<Release>> {
        let mut state = self.state();
        state.waiting.retain(|release| now < release.until);
        if state.waiting.is_empty() {
            state.task = None;
            return None;
        }
        Some(std::mem::take(&mut state.waiting))
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm;
    use crate::limit::{Algorithm, Limit, Tier};
    use crate::step::LeaseId;

    fn release(number: u64) -> Release {
        let tier = Tier { requests: 9, window: Micros::from_secs(30), burst: 9, calendar: None };
        let tiers = Box::new([tier]);
        let limit = Limit { algorithm: Algorithm::Concurrency, tiers, count_denied: false };
        let step = algorithm::plan(&limit, -1, Micros::from_secs(100));
        let lease = Lease::Close(LeaseId::from_bits(1));
        let key = CounterKey([number, number]);
        assert_eq!(Release::of(&key, &step, Micros::SECOND), None, "it has no lease");
        Release::of(&key, &step.with_lease(lease), Micros::from_secs(100)).expect("a release")
    }

    #[test]
    fn only_releases_of_slots_are_repeated() {
        assert_eq!(release(1).until, Micros::from_secs(130));
        let lease = Lease::Close(LeaseId::from_bits(1));
        let limit = Limit::fixed_window(10, Micros::SECOND);
        let settlement = algorithm::plan(&limit, 0, Micros::SECOND).with_lease(lease);
        assert_eq!(Release::of(&CounterKey([1, 1]), &settlement, Micros::SECOND), None);
    }

    #[test]
    fn a_release_with_error_replies_is_dropped() {
        let mut kept = Some(release(1));
        let mut error_replies = 0;
        while let Some(release) = kept {
            kept = release.after_error_reply();
            error_replies += 1;
        }
        assert_eq!(error_replies, u32::from(ERROR_REPLIES_MAX));
    }

    #[tokio::test]
    async fn releases_wait_until_their_slots_expire() {
        let queue = ReleaseQueue::default();
        let (first, last) = (Micros::from_secs(129), Micros::from_secs(130));
        let mut starts = 0;
        for number in 0..=RELEASES_MAX as u64 {
            queue.push(release(number), || {
                starts += 1;
                tokio::spawn(std::future::pending())
            });
        }
        assert_eq!(starts, 1, "one task sends all");
        let taken = queue.take(first).expect("releases");
        assert_eq!(taken.len(), RELEASES_MAX);
        queue.put_back(release(1));
        assert_eq!(queue.take(last), None, "the slots have expired");
        queue.push(release(1), || {
            starts += 1;
            tokio::spawn(std::future::pending())
        });
        assert_eq!(starts, 2, "the first task has ended");
    }
}
