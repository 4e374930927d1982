//! What follows from a rule for its buckets. The engine and `weir explain` both decide by it.

use crate::limit::Indivisible;
use crate::quota::Quota;
use crate::rules::{Rule, RuleLimit};

/// What the buckets of a rule get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RulePlace {
    /// Every request passes: the rule is unlimited.
    Unlimited,
    /// Every request passes: the rule is in shadow mode, and its limit cannot be divided.
    UndividedShadow(Indivisible),
    /// No assignment, because the limit cannot be divided.
    Unassigned(Indivisible),
    /// A share of this quota. In shadow mode every request passes, and the share only counts.
    Divided(Quota),
}

impl RulePlace {
    /// Of the buckets of `rule`. The burst of a window is `burst_percent` of its requests.
    pub(super) fn of(rule: &Rule, burst_percent: u64) -> RulePlace {
        let RuleLimit::Limit(limit) = &rule.limit else { return RulePlace::Unlimited };
        // The limit of a rule with a cost is one of costs, so its quota is not asked for.
        match rule.divisible().and_then(|()| Quota::of(limit, burst_percent)) {
            Ok(quota) => RulePlace::Divided(quota),
            Err(why) if rule.shadow_mode => RulePlace::UndividedShadow(why),
            Err(why) => RulePlace::Unassigned(why),
        }
    }
}
