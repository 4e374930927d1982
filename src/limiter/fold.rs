//! The fold: turns the decisions of all descriptors into one verdict.

use serde_json::{Map, Value, json};

use super::decided::DecidedDescriptor;
use super::resolved::ResolvedDescriptor;
use crate::algorithm;
use crate::decision::{Code, CurrentLimit, Decision, DecisionReason, Status};
use crate::lease_rollback::{LeaseRollback, RollbackAction};
use crate::limit::{Algorithm, Limit, Tier, Unit};
use crate::rules::Rule;
use crate::settings::ResponseSettings;
use crate::step::Step;
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

/// The code of the response to descriptors with these codes, and whether the request is over its limit
/// and passes in global shadow mode.
///
/// A request is over its limit if any ordinary descriptor is over its limit, or if there are quota
/// descriptors and all of them are over theirs. Global quota mode makes every descriptor a quota
/// descriptor. This includes descriptors without a limit, which pass, but not those of unlimited rules, or
/// with a temporary block or bypass.
#[inline]
pub(super) fn response_code<'d, 'r: 'd>(
    config: &ResponseSettings,
    descriptors: impl Iterator<Item = (&'d ResolvedDescriptor<'r>, Code)>,
) -> (Code, bool) {
    let mut ordinary_over = false;
    let mut quota = 0_usize;
    let mut quota_over = 0_usize;
    for (resolved, code) in descriptors {
        let over = code == Code::OverLimit;
        if resolved.is_quota(config.quota_mode) {
            quota += 1;
            quota_over += usize::from(over);
        } else {
            ordinary_over |= over;
        }
    }
    let over = ordinary_over || (quota > 0 && quota == quota_over);
    let shadowed = config.shadow_mode && over;
    (if over && !shadowed { Code::OverLimit } else { Code::Ok }, shadowed)
}

/// The code of a descriptor whose hits were `allowed` or not. In shadow mode, denied hits pass.
#[inline]
pub(super) fn descriptor_code(allowed: bool, shadow: bool) -> Code {
    if allowed || shadow { Code::Ok } else { Code::OverLimit }
}

/// The step that gives the `hits` of a descriptor back, whose counter has allowed them or not. `None` if
/// the counter has not counted all of them.
///
/// A shadow rule passes hits that its counter denied. Windows count all of them. A log and a bucket count
/// only a part, so refunding all would free hits of others.
pub(super) fn refund(limit: &Limit, hits: i64, allowed: bool, now: Micros) -> Option<Step> {
    let counts_denied = match limit.algorithm {
        Algorithm::FixedWindow | Algorithm::SlidingWindow => limit.count_denied,
        Algorithm::SlidingWindowLog
        | Algorithm::TokenBucket
        | Algorithm::LeakyBucket
        | Algorithm::Concurrency => false,
    };
    (allowed || counts_denied).then(|| algorithm::plan(limit, -hits, now))
}

impl DecidedDescriptor<'_> {
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
                let code = descriptor_code(decision.allowed, shadow);
                let limit = self.current_limit(decision.tier);
                status(code, limit, decision.remaining, Some(self.reset_after(&decision)))
            }
            DecisionReason::Fallback { allowed, decision, .. } => {
                let shadow = self.resolved.rule().is_some_and(|rule| rule.shadow_mode);
                let code = descriptor_code(allowed, shadow);
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
