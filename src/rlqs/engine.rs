//! The engine: all quotas of this process, which its streams, the driver and the limiter share.

use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};

use super::bucket_id::BucketKey;
use super::client_budget::{BudgetFull, ClientBudget};
use super::counter_quota::{CounterQuota, LocalShare, ReportedUse};
use super::divided_rule_ids::DividedRuleIds;
use super::instance_names::InstanceNames;
use super::local_holder::LocalHolders;
use super::member::Recipient;
use super::metrics::RlqsMetrics;
use super::quota_rule::{QuotaRule, QuotaRules};
use super::quota_shard::QuotaShard;
use super::refused_reason::RefusedReason;
use super::shared_ledger::SharedLedger;
use super::{ActiveRuleSet, GRACE, MARGIN, RlqsConfig};
use crate::client_address::ClientAddress;
use crate::key::{CounterKey, KeyBuilder, KeySeed, RuleId};
use crate::quota::{
    Assignment, GroupConfig, HolderId, HolderTakenOver, OutstandingShares, Quota, SHARES,
};
use crate::time::{Clock, ClockOffset, Micros};

/// Shards of the quotas, each with a lock.
pub(super) const SHARDS: usize = 64;

/// Divides the limits of rules among the Envoys with buckets and the callers of this process.
///
/// **Invariant:** a thread that holds the lock of a shard takes at most the locks of an outbox, of a
/// shard of local holders, or of the divided rules, and none of them takes another one.
pub struct QuotaEngine {
    pub(super) config: RlqsConfig,
    /// Of counter keys, the same as the limiter's.
    pub(super) seed: KeySeed,
    /// Of tables whose keys come from clients.
    pub(super) table_seed: KeySeed,
    pub(super) clock: Arc<dyn Clock>,
    /// `None` with a memory store.
    pub(super) ledger: Option<Arc<dyn SharedLedger>>,
    pub(super) rules: Arc<dyn ActiveRuleSet>,
    pub(super) shards: [Mutex<QuotaShard>; SHARDS],
    pub(super) quota_rules: QuotaRules,
    pub(super) divided: DividedRuleIds,
    pub(super) local: LocalHolders,
    pub(super) metrics: RlqsMetrics,
    /// Wakes the driver before its next tick.
    pub(super) wake_driver: Notify,
    group_config: GroupConfig,
    /// The holder of this process in each quota.
    pub(super) local_id: HolderId,
    /// The version of the rules that the quotas have. Streams wait for the next one.
    pub(super) applied_rules: watch::Sender<u64>,
    /// Whether the rules apply to the quotas once more in the next tick.
    pub(super) applies_again: AtomicBool,
    streams: ClientBudget,
    buckets: ClientBudget,
    pub(super) names: InstanceNames,
}

/// A quota that a bucket or a local holder joins.
pub(super) struct QuotaPlace {
    pub(super) key: CounterKey,
    pub(super) rule: Arc<QuotaRule>,
    pub(super) quota: Quota,
}

impl fmt::Debug for QuotaEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuotaEngine").finish_non_exhaustive()
    }
}

/// Locks. A panic in a report leaves a quota that later reports correct.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl QuotaEngine {
    /// An engine without quotas. Counter keys are hashed with `seed`, which must be that of the
    /// limiter. `ledger` is the store that instances share; `None` keeps the ledgers in memory.
    pub fn new(
        config: RlqsConfig,
        seed: KeySeed,
        clock: Arc<dyn Clock>,
        ledger: Option<Arc<dyn SharedLedger>>,
        rules: Arc<dyn ActiveRuleSet>,
    ) -> Arc<QuotaEngine> {
        let (is_shared, ttl) = (ledger.is_some(), config.assignment_ttl);
        // Envoys may still use assignments of the process before this one.
        let relearn_until = if config.relearn && !is_shared {
            clock.now().saturating_add(ttl).saturating_add(MARGIN)
        } else {
            Micros::ZERO
        };
        let group_config =
            GroupConfig { grace: GRACE, ttl, margin: MARGIN, shared: is_shared, relearn_until };
        let local = LocalHolders::new(config.max_local_holders);
        let streams = ClientBudget::new(config.max_streams);
        let buckets = ClientBudget::new(config.max_buckets);
        let (applied_rules, _) = watch::channel(rules.version());
        Arc::new(QuotaEngine {
            config,
            seed,
            table_seed: KeySeed::random(),
            clock,
            ledger,
            rules,
            shards: std::array::from_fn(|_| Mutex::default()),
            quota_rules: QuotaRules::default(),
            divided: DividedRuleIds::default(),
            local,
            metrics: RlqsMetrics::default(),
            wake_driver: Notify::new(),
            group_config,
            local_id: HolderId(random()),
            applied_rules,
            applies_again: AtomicBool::default(),
            streams,
            buckets,
            names: InstanceNames::new(),
        })
    }

    /// The metrics.
    pub fn metrics(&self) -> &RlqsMetrics {
        &self.metrics
    }

    /// Whether any limit is divided. Shared, so that the limiter reads it without a call.
    pub fn any_divided(&self) -> &Arc<AtomicBool> {
        self.divided.any()
    }

    /// From when on the last assignment of a bucket that ends at `now` is not in use.
    pub(super) fn unused_from(&self, now: Micros) -> Micros {
        now.saturating_add(self.config.assignment_ttl).saturating_add(MARGIN)
    }

    /// What the holders of the counter `old` may still use, when `bucket` moves from there to `new`. `None` if
    /// `new` has it already, with what the others use.
    pub(super) fn outstanding(
        &self,
        old: &CounterKey,
        new: &CounterKey,
        holder: HolderId,
        bucket: BucketKey,
        now: Micros,
    ) -> Option<OutstandingShares> {
        if lock(self.shard(new)).get_mut(new).is_some_and(|quota| quota.knows(holder, now)) {
            return None;
        }
        let mut shard = lock(self.shard(old));
        Some(shard.get_mut(old)?.outstanding(holder, bucket, now))
    }

    /// Adds a bucket to a quota. `used` is what a report says about it; `None` without a report. `moved` is what
    /// is outstanding at the counter from which it comes.
    ///
    /// # Errors
    ///
    /// Another instance has this holder.
    pub(super) fn join(
        &self,
        place: QuotaPlace,
        holder: HolderId,
        to: Recipient,
        used: Option<ReportedUse>,
        moved: Option<OutstandingShares>,
        now: Micros,
    ) -> Result<(), HolderTakenOver> {
        self.divided.add(place.rule.id);
        let key = place.key;
        let result = self.with_quota(place, now, |quota, at| {
            if let Some(moved) = &moved {
                quota.reserve(moved, at);
            }
            quota.join(holder, to, now, at);
            used.map_or(Ok(()), |used| quota.report(holder, used, now, at))
        });
        lock(self.shard(&key)).mark_due(key, holder);
        self.wake_driver.notify_one();
        result
    }

    /// Adds the local holder to a quota. With a memory store it gets its share at once.
    pub(super) fn join_local(&self, place: QuotaPlace, now: Micros) {
        let key = place.key;
        let local = self.with_quota(place, now, |quota, at| {
            if !quota.has(self.local_id) {
                quota.join(self.local_id, Recipient::Local, now, at);
            }
            let mut local = None;
            if self.ledger.is_none() {
                quota.settle_in_memory(now, &self.metrics, &mut local);
            }
            local
        });
        self.assign_local(&key, local, now);
        lock(self.shard(&key)).mark_due(key, self.local_id);
        self.wake_driver.notify_one();
    }

    /// Calls `join` with the quota of `place`, which is added if it is new.
    fn with_quota<T>(
        &self,
        place: QuotaPlace,
        now: Micros,
        join: impl FnOnce(&mut CounterQuota, Micros) -> T,
    ) -> T {
        let QuotaPlace { key, rule, quota } = place;
        let mut shard = lock(self.shard(&key));
        let new = || CounterQuota::new(rule, quota, self.group_config);
        let (known, is_new) = shard.get_or_insert(key, new);
        if is_new {
            self.metrics.quotas.add();
        } else {
            known.set_quota(quota);
        }
        let at = known.group_time(now, self.offset(&key, now));
        join(known, at)
    }

    /// Reports the use of a holder.
    ///
    /// # Errors
    ///
    /// Another instance has this holder.
    pub(super) fn report(
        &self,
        key: &CounterKey,
        holder: HolderId,
        used: ReportedUse,
        now: Micros,
    ) -> Result<(), HolderTakenOver> {
        let mut shard = lock(self.shard(key));
        let Some(quota) = shard.get_mut(key) else { return Ok(()) };
        let at = quota.group_time(now, self.offset(key, now));
        let result = quota.report(holder, used, now, at);
        shard.mark_due(*key, holder);
        result
    }

    /// Removes a bucket from its quota. Its share is free when its last assignment has expired.
    pub(super) fn leave(&self, key: &CounterKey, holder: HolderId, rule: RuleId, now: Micros) {
        let _ = self.leave_quota(key, holder, now);
        self.divided.remove(rule, self.unused_from(now));
    }

    /// Removes a holder from its quota. Returns the quota.
    fn leave_quota(&self, key: &CounterKey, holder: HolderId, now: Micros) -> Option<Quota> {
        let mut shard = lock(self.shard(key));
        let known = shard.get_mut(key)?;
        known.leave(holder);
        let quota = *known.quota();
        shard.mark_due(*key, holder);
        shard.plan(*key, self.unused_from(now));
        Some(quota)
    }

    pub(super) fn assign_local(&self, key: &CounterKey, local: Option<LocalShare>, now: Micros) {
        if let Some(share) = local {
            self.local.assign(key, share, now);
        }
    }

    /// Reports the use of a part of the local holders, removes those that are idle, and parks those whose
    /// rule is not divided any longer.
    pub(super) fn report_local_uses(&self, number: usize, now: Micros) {
        for used in self.local.take_uses(number, now) {
            let is_idle = used.is_idle && used.hits == 0;
            if is_idle && self.local.remove(&used.key, now, self.unused_from(now)) {
                self.leave_quota(&used.key, self.local_id, now);
            }
            if is_idle || used.is_parked {
                continue;
            }
            if !self.divided.contains(used.rule) {
                let quota = self.leave_quota(&used.key, self.local_id, now);
                let whole = quota.map(|quota| Assignment::of(&quota, SHARES));
                // A limit of 0 has no bucket that becomes full.
                match whole.filter(|whole| *whole != Assignment::DenyAll) {
                    Some(whole) => self.local.park(&used.key, whole, now),
                    None => self.local.end(&used.key, self.unused_from(now)),
                }
                continue;
            }
            let elapsed = Micros::ZERO;
            let report = ReportedUse { allowed: used.hits, denied: 0, elapsed };
            // The id of this process is random, so no other instance has it.
            let _ = self.report(&used.key, self.local_id, report, now);
        }
        self.metrics.local_holders.set(self.local.len());
    }

    /// Frees what has expired by `now`.
    pub(super) fn expire(&self, now: Micros) {
        self.divided.expire(now);
        self.buckets.expire(now);
        self.local.expire(now);
    }

    /// Whether there is a stream, a quota or a local holder.
    pub(super) fn has_work(&self) -> bool {
        let RlqsMetrics { streams, quotas, .. } = &self.metrics;
        streams.get() > 0 || quotas.get() > 0 || self.local.len() > 0
    }

    /// Counts one more stream of `client`.
    ///
    /// # Errors
    ///
    /// Why `rlqs.max_streams` does not permit it.
    pub(super) fn reserve_stream(&self, client: ClientAddress) -> Result<(), RefusedReason> {
        self.streams.reserve(client).map_err(|full| match full {
            BudgetFull::ForAll => RefusedReason::Streams,
            BudgetFull::ForAddress => RefusedReason::StreamsOfAddress,
        })?;
        self.metrics.streams.add();
        // It is to get new rules within a tick.
        self.wake_driver.notify_one();
        Ok(())
    }

    /// A stream ended.
    pub(super) fn release_stream(&self, client: ClientAddress) {
        self.metrics.streams.subtract();
        self.streams.release(client);
    }

    /// Counts one more bucket of `client`.
    ///
    /// # Errors
    ///
    /// Why `rlqs.max_buckets` does not permit it.
    pub(super) fn reserve_bucket(&self, client: ClientAddress) -> Result<(), RefusedReason> {
        self.buckets.reserve(client).map_err(|full| match full {
            BudgetFull::ForAll => RefusedReason::Buckets,
            BudgetFull::ForAddress => RefusedReason::BucketsOfAddress,
        })?;
        self.metrics.buckets.add();
        Ok(())
    }

    /// A bucket ended. `was_divided`: its holding stays in the ledger for a while, and counts as long.
    pub(super) fn release_bucket(&self, client: ClientAddress, was_divided: bool, now: Micros) {
        self.metrics.buckets.subtract();
        if was_divided {
            self.buckets.release_at(client, self.unused_from(now));
        } else {
            self.buckets.release(client);
        }
    }

    /// Calls `read` with each quota.
    pub(super) fn for_each(&self, mut read: impl FnMut(&CounterKey, &CounterQuota)) {
        for shard in &self.shards {
            lock(shard).iter().for_each(|(key, quota)| read(key, quota));
        }
    }

    /// The shared ledger's clock minus the local clock; `None` if there is none, or while it is unknown.
    pub(super) fn offset(&self, key: &CounterKey, now: Micros) -> Option<ClockOffset> {
        self.ledger.as_ref()?.offset(key, now)
    }

    pub(super) fn shard(&self, key: &CounterKey) -> &Mutex<QuotaShard> {
        &self.shards[key.0[0] as usize % SHARDS]
    }
}

/// Random numbers of the operating system.
pub(super) fn random() -> [u64; 2] {
    let builder = KeyBuilder::start(&KeySeed::random());
    builder.finish().0
}
