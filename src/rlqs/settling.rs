//! Settles the quotas that are due: in memory at once, or by calls to the shared ledger.

use super::counter_quota::SettlementCall;
use super::engine::{QuotaEngine, SHARDS, lock};
use super::quota_shard::QuotaShard;
use crate::key::CounterKey;
use crate::quota::LedgerSnapshot;
use crate::store_error::StoreError;
use crate::time::Micros;

/// Most quotas that are settled under one lock. Streams wait for it meanwhile.
const QUOTAS_PER_LOCK: usize = 8;

/// Members of the quotas after which the lock is released. Each settlement reads all of them, so one quota of
/// a thousand Envoys takes a few milliseconds.
const MEMBERS_PER_LOCK: usize = 100;

/// A settlement to send to the shared ledger.
#[derive(Debug)]
pub(super) struct LedgerCall {
    pub(super) key: CounterKey,
    pub(super) call: SettlementCall,
    /// The holders of all instances, as far as they are known.
    pub(super) holders: usize,
}

impl QuotaEngine {
    /// Settles at most [`QUOTAS_PER_LOCK`] due quotas of a shard, and fewer large ones. `calls` gets the
    /// settlements for the shared ledger. Returns whether more quotas may be due.
    pub(super) fn settle_due(
        &self,
        number: usize,
        now: Micros,
        calls: &mut Vec<LedgerCall>,
    ) -> bool {
        let mut shard = lock(&self.shards[number % SHARDS]);
        let mut members = 0;
        for _ in 0..QUOTAS_PER_LOCK {
            if members >= MEMBERS_PER_LOCK {
                return true;
            }
            let Some(key) = shard.take_due(now) else { return false };
            let Some(quota) = shard.get_mut(&key) else { continue };
            members += quota.members().len();
            let mut local = None;
            if self.ledger.is_some() {
                let at = quota.group_time(now, self.offset(&key, now));
                let call = quota.next_call(now, at, &self.metrics, &mut local);
                let holders = quota.holders();
                calls.extend(call.map(|call| LedgerCall { key, call, holders }));
            } else {
                quota.settle_in_memory(now, &self.metrics, &mut local);
            }
            self.assign_local(&key, local, now);
            self.keep_or_remove(&mut shard, key, now);
        }
        true
    }

    /// The result of a settlement that the shared ledger got.
    pub(super) fn finish_call(
        &self,
        key: &CounterKey,
        sent_at: Micros,
        result: Result<LedgerSnapshot, StoreError>,
        now: Micros,
    ) {
        let mut shard = lock(self.shard(key));
        let Some(quota) = shard.get_mut(key) else { return };
        let mut local = None;
        quota.finish_call(result.as_ref().ok(), sent_at, now, &self.metrics, &mut local);
        self.assign_local(key, local, now);
        // A new holder needs a second settlement at once.
        let is_ok = result.is_ok();
        if is_ok {
            shard.mark_due_for_all(*key);
        }
        self.keep_or_remove(&mut shard, *key, now);
    }

    /// Fails the settlements that are on their way: the driver that waited for them ended.
    pub(super) fn fail_calls(&self, now: Micros) {
        let mut lost = Vec::new();
        self.for_each(|key, quota| lost.extend(quota.is_in_flight().then_some(*key)));
        for key in lost {
            self.finish_call(&key, now, Err(StoreError::ConnectionLost), now);
        }
    }

    fn keep_or_remove(&self, shard: &mut QuotaShard, key: CounterKey, now: Micros) {
        let Some(quota) = shard.get_mut(&key) else { return };
        if quota.is_empty() && !quota.is_in_flight() {
            shard.remove(&key);
            self.metrics.quotas.subtract();
            return;
        }
        // Without another plan it is looked at when the last assignment has expired.
        let next = quota.next(now).unwrap_or_else(|| self.unused_from(now));
        // Later than now: this round must end.
        shard.plan(key, next.max(now.saturating_add(Micros::from_millis(1))));
    }
}
