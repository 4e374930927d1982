//! Decides calls of ShouldRateLimit whose limit is divided, by the share of this process.

use super::engine::{QuotaEngine, QuotaPlace};
use super::local_holder::{LocalCheck, LocalState};
use super::refused_reason::RefusedReason;
use crate::key::CounterKey;
use crate::limit::Limit;
use crate::quota::Quota;
use crate::rules::Rule;
use crate::time::Micros;

impl QuotaEngine {
    /// Decides `hits` on the counter `key` of `rule` at `now` by the local clock, without waiting.
    /// Positive hits are taken, 0 peeks, and negative hits are given back. Only a
    /// [divisible](Rule::is_divisible) rule is divided. The counter also decides if there are too many
    /// local holders, and until the ledger has answered about the first share.
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
            return self.with_store(check);
        }
        let Ok(quota) = Quota::of(limit, self.config.burst_percent) else {
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
            LocalState::Checked(check) => self.with_store(check),
            // The driver removed it, because the rule is not divided any longer.
            LocalState::Unknown => LocalCheck::NotDivided,
        }
    }

    /// Whether the limit of `rule` is divided now.
    pub fn divides(&self, rule: &Rule) -> bool {
        self.divided.contains(rule.id) && rule.is_divisible()
    }

    /// Charges `hits` that the counter `key` allowed after [`LocalCheck::ByCounter`] to the share of this
    /// process, or to its first one. Negative hits are given back.
    pub fn charge(&self, limit: &Limit, key: &CounterKey, hits: i64, now: Micros) {
        self.local.charge(limit, key, hits, now);
    }

    /// With a memory store a holder has no share only while shares are learnt again after a start. A debt of
    /// these 13 s would deny all calls after it.
    fn with_store(&self, check: LocalCheck) -> LocalCheck {
        match check {
            LocalCheck::ByCounter if self.ledger.is_none() => LocalCheck::NotDivided,
            other => other,
        }
    }
}
