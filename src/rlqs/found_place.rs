//! The place of a bucket: the rule that its id matches, and what follows for its Envoy.

use std::sync::Arc;

use super::bucket_id::order_as_descriptor;
use super::engine::{QuotaEngine, QuotaPlace};
use super::quota_rule::QuotaRule;
use super::usage_report::IdPairs;
use crate::quota::Quota;
use crate::rules::{Found, RuleLimit};
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
            let quota = match &rule.limit {
                RuleLimit::Unlimited => {
                    place = FoundPlace::AllowAll(Some(known));
                    return;
                }
                RuleLimit::Limit(limit) => Quota::of(limit, self.config.burst_percent),
            };
            place = match quota {
                Some(quota) if rule.is_divisible() => {
                    let key = rule.key(&self.seed, &entries);
                    FoundPlace::Divided(QuotaPlace { key, rule: known, quota })
                }
                _ => {
                    self.metrics.warn_undivided(rule, now);
                    match rule.shadow_mode {
                        true => FoundPlace::AllowAll(Some(known)),
                        false => FoundPlace::Unassigned(known),
                    }
                }
            };
        });
        place
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
