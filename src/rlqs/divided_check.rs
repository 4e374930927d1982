//! Decides calls of ShouldRateLimit whose limit is divided, by the share of this process.

use super::engine::{QuotaEngine, QuotaPlace};
use super::local_holder::{LocalCheck, LocalState};
use super::refused_reason::RefusedReason;
use crate::key::CounterKey;
use crate::limit::Limit;
use crate::quota::Quota;
use crate::rules::Rule;
use crate::store_error::StoreError;
use crate::time::Micros;

impl QuotaEngine {
    /// Decides `hits` on the counter `key` of `rule` at `now` by the local clock, without waiting.
    /// Positive hits are taken, 0 peeks, and negative hits are given back. Only a
    /// [divisible](Rule::is_divisible) rule is divided. The counter also decides if there are too many
    /// local holders.
    pub fn check(
        &self,
        rule: &Rule,
        limit: &Limit,
        key: &CounterKey,
        hits: i64,
        now: Micros,
    ) -> LocalCheck {
        if !self.divides(rule) {
            return LocalCheck::NotDivided;
        }
        if let LocalState::Checked(check) = self.local.check(limit, key, hits, now) {
            return self.without_waiting(check);
        }
        let Some(quota) = Quota::of(limit, self.config.burst_percent) else {
            return LocalCheck::NotDivided;
        };
        if !self.local.add(key, rule.id, now) {
            // The counter keeps the limit among its callers. `on_error` would allow, or deny, all of them,
            // and clients that choose values could make every further value do so.
            self.metrics.refuse(RefusedReason::LocalHolders, &rule.domain, now);
            return LocalCheck::NotDivided;
        }
        let rule = self.quota_rules.of(rule, self.config.on_error);
        self.join_local(QuotaPlace { key: *key, rule, quota }, now);
        match self.local.check(limit, key, hits, now) {
            LocalState::Checked(check) => self.without_waiting(check),
            // The driver removed it, because the rule is not divided any longer.
            LocalState::Unknown => LocalCheck::NotDivided,
        }
    }

    /// Whether the limit of `rule` is divided now.
    pub fn divides(&self, rule: &Rule) -> bool {
        self.divided.contains(rule.id) && rule.is_divisible()
    }

    /// With a memory store a holder waits only while shares are learnt again after a start. The counter
    /// decides meanwhile.
    fn without_waiting(&self, check: LocalCheck) -> LocalCheck {
        match check {
            LocalCheck::Joining if self.ledger.is_none() => LocalCheck::NotDivided,
            other => other,
        }
    }

    /// Waits until [`check`](QuotaEngine::check) of `key` does not answer [`LocalCheck::Joining`] any
    /// longer. Cancel-safe. The caller bounds the time.
    ///
    /// # Errors
    ///
    /// Why the ledger did not answer.
    pub async fn joined(&self, key: &CounterKey) -> Result<(), StoreError> {
        self.local.joined(key).await
    }
}
