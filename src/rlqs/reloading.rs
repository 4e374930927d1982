//! Applies a new version of the rules to the quotas, and lets the streams place their buckets again.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use super::engine::{QuotaEngine, lock};
use super::rule_place::RulePlace;
use crate::key::{CounterKey, RuleId};
use crate::quota::Quota;

/// Most quotas that get new rules under one lock. Streams wait for it meanwhile.
pub(super) const QUOTAS_PER_LOCK: usize = 64;

/// What new rules give the quotas.
pub(super) struct NewRules {
    version: u64,
    quotas: HashMap<RuleId, Quota>,
}

impl QuotaEngine {
    /// Reads new rules, if there are any, and once more with the next call. Apply them to all quotas with
    /// [`apply_rules`](QuotaEngine::apply_rules), and call [`announce_rules`] then.
    ///
    /// [`announce_rules`]: QuotaEngine::announce_rules
    pub(super) fn read_new_rules(&self) -> Option<NewRules> {
        let version = self.rules.version();
        let is_new = *self.applied_rules.borrow() != version;
        // A report or a call that began with the rules before may have brought their limits back.
        if !self.applies_again.swap(is_new, Ordering::Relaxed) && !is_new {
            return None;
        }
        let mut quotas = HashMap::new();
        self.rules.read(&mut |set| {
            self.quota_rules.reload(set, self.config.on_error, |rule| {
                if let RulePlace::Divided(quota) = self.place_of(rule) {
                    quotas.insert(rule.id, quota);
                }
            });
        });
        Some(NewRules { version, quotas })
    }

    /// The counters of the quotas of a shard.
    pub(super) fn keys_of(&self, shard: usize) -> Vec<CounterKey> {
        lock(&self.shards[shard]).keys()
    }

    /// Applies new rules to these quotas of a shard, at most [`QUOTAS_PER_LOCK`].
    pub(super) fn apply_rules(&self, shard: usize, keys: &[CounterKey], new: &NewRules) {
        let now = self.clock.now();
        let mut shard = lock(&self.shards[shard]);
        for key in keys {
            let Some(known) = shard.get_mut(key) else { continue };
            let mut is_changed = known.apply_shadow_mode(now);
            if let Some(quota) = new.quotas.get(&known.rule.id) {
                is_changed |= known.set_quota(*quota);
            }
            if is_changed {
                shard.mark_due_for_all(*key);
            }
        }
    }

    /// Lets the streams place their buckets again, because a bucket may have another rule now.
    pub(super) fn announce_rules(&self, new: &NewRules) {
        self.applied_rules
            .send_if_modified(|applied| std::mem::replace(applied, new.version) != new.version);
    }
}
