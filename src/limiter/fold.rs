//! The fold: turns the decisions of all descriptors into one verdict.

use serde_json::{Map, Value, json};

use super::decided::DecidedDescriptor;
use super::resolved::ResolvedDescriptor;
use crate::decision::{Code, CurrentLimit, Decision, DecisionReason, Status};
use crate::lease_rollback::{LeaseRollback, RollbackAction};
use crate::limit::{Algorithm, Limit, Tier, Unit};
use crate::rules::Rule;
use crate::time::Micros;

/// The remaining hits of an unlimited rule: the largest number that the protocol can carry.
const REMAINING_UNLIMITED: u64 = u32::MAX as u64;

/// Moves what a request took under its lease into a rollback. Adds the lease's id to `metadata`.
pub(super) fn take_rollback(
    decided: &mut [DecidedDescriptor<'_>],
    metadata: &mut Option<Map<String, Value>>,
) -> Option<LeaseRollback> {
    if decided.iter().all(|one| one.rollback.is_none()) {
        return None;
    }
    let mut first = None;
    let mut actions: Vec<RollbackAction> = Vec::new();
    for one in decided {
        let Some(guard) = one.rollback.take() else { continue };
        if let (
            DecisionReason::Counted { hits, .. } | DecisionReason::Fallback { hits, .. },
            Some(id),
        ) = (one.reason, guard.id())
        {
            first.get_or_insert((id, hits));
        }
        actions.extend(guard.into_action());
    }
    let rollback = LeaseRollback::new(actions);
    let (id, hits) = first?;
    let metadata = metadata.get_or_insert_default();
    metadata.insert("lease".into(), json!({ "id": id.to_string(), "n": hits }));
    Some(rollback)
}

/// The overall code. It is over the limit if any ordinary descriptor is over its limit, or if there
/// are quota descriptors and all of them are over theirs.
///
/// Global quota mode makes every descriptor a quota descriptor. This includes descriptors without a
/// limit, which pass, but not those of unlimited rules, or with a temporary block or bypass.
pub(super) fn overall(
    global_quota: bool,
    decided: &[DecidedDescriptor<'_>],
    statuses: &[Status],
) -> Code {
    let mut quota = 0_usize;
    let mut quota_over = 0_usize;
    for (one, status) in decided.iter().zip(statuses) {
        let over = status.code == Code::OverLimit;
        if one.is_quota(global_quota) {
            quota += 1;
            quota_over += usize::from(over);
        } else if over {
            return Code::OverLimit;
        }
    }
    if quota > 0 && quota == quota_over { Code::OverLimit } else { Code::Ok }
}

impl DecidedDescriptor<'_> {
    /// Whether this is a quota descriptor, which denies only if all other quota descriptors do. A block
    /// always denies, and a bypass has no part in this.
    pub(super) fn is_quota(&self, global_quota: bool) -> bool {
        let is_exempt = matches!(
            self.reason,
            DecisionReason::Unlimited(_)
                | DecisionReason::Blocked { .. }
                | DecisionReason::Bypassed { .. }
        );
        if global_quota {
            return !is_exempt;
        }
        let exempt = is_exempt || matches!(self.reason, DecisionReason::Replaced(_));
        !exempt && self.resolved.rule().is_some_and(|rule| rule.quota_mode)
    }

    /// The status of this descriptor.
    pub(super) fn status(&self) -> Status {
        let status = |code, limit, remaining, reset_after| Status {
            code,
            limit,
            remaining,
            reset_after,
            reason: self.reason,
        };
        match self.reason {
            DecisionReason::UnknownDomain
            | DecisionReason::NoRule
            | DecisionReason::Replaced(_) => status(Code::Ok, None, 0, None),
            DecisionReason::Unlimited(_) | DecisionReason::Bypassed { .. } => {
                status(Code::Ok, None, REMAINING_UNLIMITED, None)
            }
            DecisionReason::Blocked { .. } => {
                let ResolvedDescriptor::Blocked { reset_after, .. } = self.resolved else {
                    return status(Code::OverLimit, None, 0, None);
                };
                status(Code::OverLimit, None, 0, Some(*reset_after))
            }
            DecisionReason::Counted { decision, shadow, .. } => {
                let over = !decision.allowed && !shadow;
                let code = if over { Code::OverLimit } else { Code::Ok };
                let limit = self.current_limit(decision.tier);
                status(code, limit, decision.remaining, Some(self.reset_after(&decision)))
            }
            DecisionReason::Fallback { allowed, decision, .. } => {
                let shadow = self.resolved.rule().is_some_and(|rule| rule.shadow_mode);
                let code = if allowed || shadow { Code::Ok } else { Code::OverLimit };
                // Envoy shows a limit of a status to clients, with its remaining hits. Nothing was
                // counted without a decision, so there is none to show.
                let Some(decision) = decision else { return status(code, None, 0, None) };
                let limit = self.current_limit(decision.tier);
                status(code, limit, decision.remaining, Some(self.reset_after(&decision)))
            }
        }
    }

    /// The reset of the status. It is exact, except for fixed windows of whole seconds. Those are
    /// rounded up, because envoyproxy/ratelimit counts seconds and Envoy shows the floor.
    fn reset_after(&self, decision: &Decision) -> Micros {
        let exact = decision.reset_after;
        let Some(limit) = self.resolved.limit() else { return exact };
        let whole = |tier: &Tier| tier.window.0.is_multiple_of(Micros::SECOND.0);
        if limit.algorithm == Algorithm::FixedWindow && limit.tiers.iter().all(whole) {
            return Micros::from_secs(exact.ceil_secs());
        }
        exact
    }

    fn current_limit(&self, tier: usize) -> Option<CurrentLimit> {
        let limit: &Limit = self.resolved.limit()?;
        let tier = limit.tiers.get(tier)?;
        let unit = match limit.algorithm {
            // Slots have no unit of time: their window is the longest time that one is held.
            Algorithm::Concurrency => None,
            Algorithm::FixedWindow
            | Algorithm::SlidingWindow
            | Algorithm::SlidingWindowLog
            | Algorithm::TokenBucket
            | Algorithm::LeakyBucket => Unit::of_window(tier.window),
        };
        Some(CurrentLimit {
            name: self.resolved.rule().and_then(|rule: &Rule| rule.name.clone()),
            requests: tier.requests,
            unit,
        })
    }
}
