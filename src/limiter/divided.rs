//! Divided rules: the quota service (RLQS) divides their limits among Envoys and instances of weir.
//!
//! This instance has one share of such a limit, for the callers of `ShouldRateLimit`. The share decides
//! their hits from memory, in place of the counter and of the rule's mode. Only
//! [divisible](Rule::is_divisible) rules are divided. Hits under a temporarily changed limit are decided by
//! the counter.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::resolved::CounterQuery;
use crate::decision::Decision;
use crate::key::CounterKey;
use crate::limit::Limit;
use crate::rules::Rule;
use crate::time::Micros;

/// Decides by the shares of this instance.
pub trait DividedRules: Send + Sync + 'static {
    /// Decides hits by the share of their counter, if their rule is divided. Never waits.
    fn check(&self, check: &DividedCheck<'_>) -> DividedResult;

    /// Whether the limit of `rule` is divided now. Takes nothing, and makes this instance no holder.
    fn divides(&self, rule: &Rule) -> bool;

    /// The counter allowed the hits of a check that returned [`DividedResult::ByCounter`]. They are charged to
    /// the share of this instance.
    fn charge(&self, check: &DividedCheck<'_>);
}

/// Hits of one descriptor on a counter whose rule may be divided.
#[derive(Clone, Copy, Debug)]
pub struct DividedCheck<'a> {
    /// The rule that matched. It is [divisible](Rule::is_divisible).
    pub rule: &'a Rule,
    /// The limit of the rule.
    pub limit: &'a Limit,
    /// The counter.
    pub key: &'a CounterKey,
    /// Hits to take (positive), to give back (negative), or 0 to peek.
    pub hits: i64,
    /// The instant of the request, by the local clock.
    pub now: Micros,
}

/// The result of [`DividedRules::check`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DividedResult {
    /// The rule is not divided: its counter decides.
    NotDivided,
    /// The share decided.
    Decided(Decision),
    /// This instance has no share yet: the counter decides, and [`DividedRules::charge`] gets what it allows.
    ByCounter,
}

/// The divided rules of a limiter.
pub(super) struct Divider {
    /// True while any rule is divided.
    any: Arc<AtomicBool>,
    rules: Arc<dyn DividedRules>,
}

impl Divider {
    pub(super) fn new(any: Arc<AtomicBool>, rules: Arc<dyn DividedRules>) -> Divider {
        Divider { any, rules }
    }

    /// The divided rules; `None` while no rule is divided.
    #[inline]
    pub(super) fn active(&self) -> Option<&dyn DividedRules> {
        self.any.load(Ordering::Relaxed).then_some(&*self.rules)
    }
}

impl CounterQuery<'_> {
    /// The check of this query; `None` if its limit cannot be divided. The shares are those of the rule's
    /// own limit, so the counter decides under a changed one.
    pub(super) fn divided_check(&self, now: Micros) -> Option<DividedCheck<'_>> {
        let CounterQuery { rule, limit, key, hits, is_changed, .. } = self;
        let rule = rule.filter(|rule| rule.is_divisible() && !is_changed)?;
        Some(DividedCheck { rule, limit, key, hits: *hits, now })
    }

    /// Gives the hits of this query back to the share to which they were charged.
    pub(super) fn refund_charge(&self, rules: &dyn DividedRules, now: Micros) {
        if let Some(check) = self.divided_check(now) {
            rules.charge(&DividedCheck { hits: -check.hits, ..check });
        }
    }

    /// Gives the hits of this query back to the share that allowed them.
    pub(super) fn refund_share(&self, rules: &dyn DividedRules, now: Micros) {
        if let Some(check) = self.divided_check(now) {
            // A rule that is no longer divided has no share to which hits could go back.
            rules.check(&DividedCheck { hits: -check.hits, ..check });
        }
    }
}
