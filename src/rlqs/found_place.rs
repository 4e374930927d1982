//! The place of a bucket: the rule that its id matches, and what follows for its Envoy.

use std::sync::Arc;

use super::bucket_id::order_as_descriptor;
use super::engine::{QuotaEngine, QuotaPlace};
use super::quota_rule::QuotaRule;
use super::rule_place::RulePlace;
use super::usage_report::IdPairs;
use crate::quota::Quota;
use crate::rules::{Found, Rule};
use crate::time::Micros;

/// What the rules say about a bucket.
pub(super) enum FoundPlace {
    /// No rule limits it, or only in shadow mode and by a limit that cannot be divided. The rule, if there
    /// is one.
    AllowAll(Option<Arc<QuotaRule>>),
    /// It has no assignment, because its limit cannot be divided.
    Unassigned(Arc<QuotaRule>),
    /// It is a holder of this quota.
    Divided(QuotaPlace),
}

impl QuotaEngine {
    /// Looks up the rule of a bucket.
    pub(super) fn find_place(&self, domain: &str, pairs: &IdPairs<'_>, now: Micros) -> FoundPlace {
        let mut entries = pairs.clone();
        order_as_descriptor(&mut entries, &self.config.key_order);
        let mut place = FoundPlace::AllowAll(None);
        self.rules.read(&mut |set| {
            let Found::Rule(rule) = set.find(domain, &entries) else { return };
            let known = self.quota_rules.of(rule, self.config.on_error);
            place = match self.place_of(rule) {
                RulePlace::Unlimited => FoundPlace::AllowAll(Some(known)),
                RulePlace::UndividedShadow(_) => {
                    self.metrics.warn_undivided(rule, now);
                    FoundPlace::AllowAll(Some(known))
                }
                RulePlace::Unassigned(_) => {
                    self.metrics.warn_undivided(rule, now);
                    FoundPlace::Unassigned(known)
                }
                RulePlace::Divided(quota) => {
                    let key = rule.key(&self.seed, &entries);
                    FoundPlace::Divided(QuotaPlace { key, rule: known, quota })
                }
            };
        });
        place
    }

    /// What the buckets of a rule get.
    pub(super) fn place_of(&self, rule: &Rule) -> RulePlace {
        RulePlace::of(rule, self.config.burst_percent)
    }

    /// How long a bucket of this quota stays without requests: until its tokens are surely full again,
    /// because a new bucket starts full.
    pub(super) fn idle_time(&self, quota: &Quota) -> Micros {
        let refill = u128::from(quota.burst) * u128::from(quota.window.0);
        let refill = refill / u128::from(quota.requests.max(1));
        let refill = Micros(u64::try_from(refill).unwrap_or(u64::MAX));
        self.config.idle_timeout.max(refill)
    }
}
