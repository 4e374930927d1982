//! A shard of the quotas: one lock, its quotas by counter, and which of them are due.

use std::cmp::Reverse;
use std::collections::hash_map::Entry as MapEntry;
use std::collections::{BinaryHeap, HashMap};

use super::counter_quota::CounterQuota;
use super::due_quotas::{ClientQueues, DueQuotas};
use crate::key::CounterKey;
use crate::quota::HolderId;
use crate::time::Micros;

/// The quotas whose counters have the same bits.
#[derive(Debug, Default)]
pub(super) struct QuotaShard {
    quotas: HashMap<CounterKey, CounterQuota>,
    /// Quotas to look at in the next round.
    due: DueQuotas,
    /// Quotas to look at later. One that was planned again has an earlier entry, and the others have
    /// no effect.
    planned: BinaryHeap<Reverse<(Micros, CounterKey)>>,
}

impl QuotaShard {
    /// The quota of `key`, from `new` if there is none. Returns whether it is new.
    pub(super) fn get_or_insert(
        &mut self,
        key: CounterKey,
        new: impl FnOnce() -> CounterQuota,
    ) -> (&mut CounterQuota, bool) {
        match self.quotas.entry(key) {
            MapEntry::Occupied(known) => (known.into_mut(), false),
            MapEntry::Vacant(place) => (place.insert(new()), true),
        }
    }

    /// The quota of `key`.
    pub(super) fn get_mut(&mut self, key: &CounterKey) -> Option<&mut CounterQuota> {
        self.quotas.get_mut(key)
    }

    /// All quotas.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&CounterKey, &CounterQuota)> {
        self.quotas.iter()
    }

    /// The counters of all quotas.
    pub(super) fn keys(&self) -> Vec<CounterKey> {
        self.quotas.keys().copied().collect()
    }

    /// Deletes a quota.
    pub(super) fn remove(&mut self, key: &CounterKey) {
        self.quotas.remove(key);
        if self.quotas.len() < self.quotas.capacity() / 4 {
            self.quotas.shrink_to(2 * self.quotas.len());
        }
    }

    /// The quota is looked at in the next round, because of `holder`.
    pub(super) fn mark_due(&mut self, key: CounterKey, holder: HolderId) {
        if let Some(quota) = self.quotas.get_mut(&key) {
            self.due.push(key, ClientQueues::of([holder]), &mut quota.due);
        }
    }

    /// The quota is looked at in the next round, because of all its holders.
    pub(super) fn mark_due_for_all(&mut self, key: CounterKey) {
        if let Some(quota) = self.quotas.get_mut(&key) {
            let queues = ClientQueues::of(quota.members().keys().copied());
            self.due.push(key, queues, &mut quota.due);
        }
    }

    /// The quota is looked at from `at` on, unless it is planned earlier.
    pub(super) fn plan(&mut self, key: CounterKey, at: Micros) {
        if let Some(quota) = self.quotas.get_mut(&key)
            && quota.wakes_at.is_none_or(|planned| at < planned)
        {
            quota.wakes_at = Some(at);
            self.planned.push(Reverse((at, key)));
        }
    }

    /// Removes the next due counter from the lists.
    pub(super) fn take_due(&mut self, now: Micros) -> Option<CounterKey> {
        while let Some(Reverse((at, key))) = self.planned.peek().copied()
            && at <= now
        {
            self.planned.pop();
            if let Some(quota) = self.quotas.get_mut(&key)
                && quota.wakes_at == Some(at)
            {
                quota.wakes_at = None;
                self.mark_due_for_all(key);
            }
        }
        let QuotaShard { quotas, due, .. } = self;
        due.take(|key, queue| quotas.get_mut(key).is_some_and(|quota| quota.due.take(queue)))
    }
}
