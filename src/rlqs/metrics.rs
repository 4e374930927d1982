//! The metrics of RLQS: counts, and bounds on the warnings about refused buckets.

use std::sync::atomic::{AtomicU64, Ordering};

use super::quota_action::QuotaAction;
use super::refused_reason::RefusedReason;
use crate::atomic_count::AtomicCount;
use crate::quota::{Assignment, SHARES, Settlement};
use crate::rules::{Rule, ShownRule};
use crate::time::Micros;

/// Shortest time between two warnings of one kind.
const WARNING_PAUSE: Micros = Micros::from_secs(60);

/// Counts of all streams and quotas since the start. The server reads them for its metrics page.
#[derive(Debug, Default)]
pub struct RlqsMetrics {
    /// Open streams.
    pub streams: AtomicCount,
    /// Buckets of open streams.
    pub buckets: AtomicCount,
    /// Quotas of counters in memory.
    pub quotas: AtomicCount,
    /// Holders of this process for callers of ShouldRateLimit.
    pub local_holders: AtomicCount,
    /// Usages of buckets that were reported.
    pub reports: AtomicCount,
    /// Actions that were sent: any request passes.
    pub allow: AtomicCount,
    /// Actions that were sent: no request passes.
    pub deny: AtomicCount,
    /// Actions that were sent: a token bucket.
    pub bucket: AtomicCount,
    /// Actions that were sent: the Envoy deletes the bucket.
    pub abandon: AtomicCount,
    /// Shares that were asked to grow.
    pub raises: AtomicCount,
    /// Shares that were lowered.
    pub lowers: AtomicCount,
    /// Settlements that the ledger answered.
    pub settlements_ok: AtomicCount,
    /// Settlements that failed.
    pub settlements_error: AtomicCount,
    /// Settlements after which more than a whole quota was in use, apart from lowered limits.
    pub violations: AtomicCount,
    /// Buckets of rules whose limits cannot be divided.
    undivided: Warning,
    refused: [RefusedCount; RefusedReason::ALL.len()],
    share_in_use_max: AtomicU64,
}

#[derive(Debug, Default)]
struct RefusedCount {
    count: AtomicCount,
    warning: Warning,
}

/// Bounds a warning to one per minute.
#[derive(Debug, Default)]
struct Warning(AtomicU64);

impl Warning {
    /// Whether to write the warning at `now`.
    fn is_due(&self, now: Micros) -> bool {
        let next = self.0.load(Ordering::Relaxed);
        let after = now.saturating_add(WARNING_PAUSE).0;
        // Another thread that sees the same minute loses, and writes none.
        let swap = || self.0.compare_exchange(next, after, Ordering::Relaxed, Ordering::Relaxed);
        now.0 >= next && swap().is_ok()
    }
}

impl RlqsMetrics {
    /// What was refused for this reason.
    pub fn refused(&self, reason: RefusedReason) -> u64 {
        self.refused[reason as usize].count.get()
    }

    /// Counts a refusal, and writes a warning at most once per minute and reason. `domain` comes from
    /// a client, and is escaped.
    pub(super) fn refuse(&self, reason: RefusedReason, domain: &str, now: Micros) {
        let refused = &self.refused[reason as usize];
        refused.count.add();
        if refused.warning.is_due(now) {
            let (cause, advice) = (reason.name(), reason.advice());
            let domain = crate::escape::excerpt(domain, 100);
            tracing::warn!(cause, domain, "RLQS refused a part of a client: {advice}");
        }
    }

    /// Warns that buckets of a rule have no assignment. At most once per minute.
    pub(super) fn warn_undivided(&self, rule: &Rule, now: Micros) {
        if self.undivided.is_due(now) {
            let ShownRule { name, selector } = ShownRule::of(rule);
            tracing::warn!(
                domain = %rule.domain,
                rule = %name,
                selector,
                "RLQS cannot divide a limit with slots, reservations, calendars, cost or plans: \
                 use another limit for its buckets"
            );
        }
    }

    /// Counts an action that is sent.
    pub(super) fn sent(&self, action: QuotaAction) {
        match action {
            QuotaAction::Abandon => self.abandon.add(),
            QuotaAction::Assign { assignment: Assignment::AllowAll, .. } => self.allow.add(),
            QuotaAction::Assign { assignment: Assignment::DenyAll, .. } => self.deny.add(),
            QuotaAction::Assign { assignment: Assignment::Bucket { .. }, .. } => self.bucket.add(),
        }
    }

    /// Counts the moves of a settlement.
    pub(super) fn count_moves(&self, settlement: &Settlement) {
        let changes = settlement.changes.iter();
        let raises = changes.clone().filter(|change| change.share > change.held).count();
        let lowers = changes.filter(|change| change.share < change.held).count();
        self.raises.add_many(raises as u64);
        self.lowers.add_many(lowers as u64);
    }

    /// Records the sum of the shares of a quota that are in use.
    pub(super) fn record_in_use(&self, shares: u64) {
        self.share_in_use_max.fetch_max(shares, Ordering::Relaxed);
    }

    /// The largest sum of the shares of one quota in use since the start. 1 is the whole quota.
    pub fn share_in_use_max(&self) -> f64 {
        self.share_in_use_max.load(Ordering::Relaxed) as f64 / SHARES as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_has_its_count_and_one_warning_a_minute() {
        let metrics = RlqsMetrics::default();
        for (index, reason) in RefusedReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, index);
            for _ in 0..=index {
                metrics.refuse(reason, "d", Micros::from_secs(1));
            }
        }
        for (count, reason) in (1..).zip(RefusedReason::ALL) {
            assert_eq!(metrics.refused(reason), count);
        }
        let warning = Warning::default();
        let due = [0, 0, 59, 60, 119, 120].map(|at| warning.is_due(Micros::from_secs(at)));
        assert_eq!(due, [true, false, false, true, false, true]);
    }
}
