//! The outbox of a stream: the newest action of each bucket, in the order in which they became due.
//!
//! A bucket has at most one action in it, so a client that never reads costs a bounded amount.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::bucket_id::BucketKey;
use super::quota_action::QuotaAction;
use crate::time::Micros;

/// Longest wait of an action that needs no shorter time to live.
const ON_TIME_MAX: Micros = Micros::from_millis(200);

/// Actions that wait for the reader of one stream.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    waiting: Mutex<WaitingActions>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct WaitingActions {
    /// The keys of `actions`, each once.
    order: VecDeque<BucketKey>,
    actions: HashMap<BucketKey, DueAction>,
}

/// An action, and when it became due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DueAction {
    /// The action.
    pub(super) action: QuotaAction,
    /// When it became due, by the local clock.
    pub(super) at: Micros,
    /// Whole seconds that the assignment is valid from `at`.
    pub(super) ttl_seconds: u64,
}

impl DueAction {
    /// The time to live of an assignment that is sent at `now`, in seconds; `None` if it is too late.
    /// One that is due with 0 seconds ends the bucket's last assignment, and is never too late.
    ///
    /// Envoy counts from the arrival, and must stop before the ledger's holding expires. What was sent
    /// within [`ON_TIME_MAX`] arrives within the reserve that every time to live has.
    pub(super) fn ttl_at(&self, now: Micros) -> Option<u64> {
        if self.ttl_seconds == 0 {
            return Some(0);
        }
        let late = now.saturating_sub(self.at).saturating_sub(ON_TIME_MAX);
        let left = self.ttl_seconds.saturating_sub(late.ceil_secs());
        (left > 0).then_some(left)
    }
}

impl Outbox {
    /// Replaces the action of `bucket`.
    pub(super) fn put(&self, bucket: BucketKey, due: DueAction) {
        let mut waiting = self.lock();
        if waiting.actions.insert(bucket, due).is_none() {
            waiting.order.push_back(bucket);
        }
        drop(waiting);
        self.arrived.notify_one();
    }

    /// Removes the action that waits for the longest time.
    pub(super) fn take(&self) -> Option<(BucketKey, DueAction)> {
        let mut waiting = self.lock();
        let bucket = waiting.order.pop_front()?;
        let due = waiting.actions.remove(&bucket)?;
        if waiting.order.is_empty() {
            // A burst of new buckets needs room once.
            *waiting = WaitingActions::default();
        }
        Some((bucket, due))
    }

    /// Completes when an action has arrived since the last call. Cancel-safe.
    pub(super) async fn arrived(&self) {
        self.arrived.notified().await;
    }

    /// A panic elsewhere leaves the outbox valid: every change of it is complete.
    fn lock(&self) -> MutexGuard<'_, WaitingActions> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptor::Entry;
    use crate::key::KeySeed;

    fn bucket(value: &str) -> BucketKey {
        BucketKey::of(&KeySeed::fixed([1, 2]), &[Entry { key: "k", value }])
    }

    fn due(at: u64) -> DueAction {
        DueAction { action: QuotaAction::ALLOW_ALL, at: Micros(at), ttl_seconds: 12 }
    }

    #[test]
    fn a_late_assignment_ends_when_a_punctual_one_does() {
        let due = due(1_000_000);
        let table = [(0, Some(12)), (200, Some(12)), (201, Some(11)), (1_200, Some(11))];
        for (late, ttl) in table.into_iter().chain([(11_200, Some(1)), (11_201, None)]) {
            assert_eq!(due.ttl_at(Micros(1_000_000 + late * 1_000)), ttl, "{late} ms");
        }
        assert_eq!(due.ttl_at(Micros(0)), Some(12), "a clock that steps back");
        assert_eq!(due.ttl_at(Micros(u64::MAX)), None);
        let end = DueAction { ttl_seconds: 0, ..due };
        assert_eq!(end.ttl_at(Micros(u64::MAX)), Some(0));
    }

    /// A bucket keeps its place and has only its newest action.
    #[test]
    fn a_bucket_has_one_action() {
        let outbox = Outbox::default();
        assert_eq!(outbox.take(), None);
        for round in 0..1_000 {
            outbox.put(bucket("a"), due(round));
            outbox.put(bucket("b"), due(round));
        }
        assert_eq!(outbox.take(), Some((bucket("a"), due(999))));
        outbox.put(bucket("a"), due(7));
        assert_eq!(outbox.take(), Some((bucket("b"), due(999))));
        assert_eq!(outbox.take(), Some((bucket("a"), due(7))));
        assert_eq!(outbox.take(), None);
    }

    /// An action that arrives before the reader waits is not lost.
    #[tokio::test]
    async fn a_reader_is_woken() {
        let outbox = Outbox::default();
        outbox.put(bucket("a"), due(1));
        outbox.arrived().await;
        assert!(outbox.take().is_some());
        let (_, ()) = tokio::join!(outbox.arrived(), async { outbox.put(bucket("b"), due(2)) });
        assert!(outbox.take().is_some());
    }
}
