//! Tests of the counts by outcome.

use super::*;
use crate::time::Micros;

/// Counts one decision of limit 10; shows its outcome and [total, within, near, over, shadow].
fn counted(hits: i64, used: u64, allowed: bool, shadow: bool) -> (DecisionOutcome, [u64; 5]) {
    let outcomes = OutcomeMetrics::default();
    let remaining = 10_u64.saturating_sub(used);
    let decision =
        Decision { allowed, tier: 0, limit: 10, remaining, used, reset_after: Micros::ZERO };
    let outcome = outcomes.counted(hits, &decision, shadow);
    let mut snapshot = OutcomeSnapshot::default();
    outcomes.add_to(&mut snapshot);
    assert_eq!(snapshot.decisions(outcome), 1);
    assert_eq!(snapshot.decisions.iter().sum::<u64>(), 1, "one outcome per decision");
    assert_eq!(snapshot.hits.iter().sum::<u64>(), hits.unsigned_abs());
    let shown = snapshot.envoy_ratelimit;
    let numbers = [
        shown.total_hits,
        shown.within_limit,
        shown.near_limit,
        shown.over_limit,
        shown.shadow_mode,
    ];
    (outcome, numbers)
}

#[test]
fn hits_are_split_at_the_near_and_at_the_full_limit() {
    use DecisionOutcome::*;
    let table = [
        (counted(1, 1, true, false), Within, [1, 1, 0, 0, 0], "far from it"),
        (counted(1, 8, true, false), Within, [1, 1, 0, 0, 0], "8 of 10 is not near"),
        (counted(1, 9, true, false), Near, [1, 1, 1, 0, 0], "9 of 10 is"),
        (counted(5, 10, true, false), Near, [5, 5, 2, 0, 0], "of 5 hits 2 were over 8"),
        (counted(5, 13, false, false), Over, [5, 0, 2, 3, 0], "2 filled it, 3 were over"),
        (counted(5, 20, false, false), Over, [5, 0, 0, 5, 0], "it was over before"),
        (counted(5, 13, false, true), Shadow, [5, 0, 2, 3, 3], "the same, but it passed"),
        (counted(5, 8, false, false), Over, [5, 0, 0, 5, 0], "refused without being counted"),
        (counted(0, 5, true, false), Within, [0; 5], "a peek has no hits"),
        (counted(-4, 6, true, false), Refund, [0; 5], "a refund is no hit"),
    ];
    for ((outcome, numbers), expected, split, why) in table {
        assert_eq!((outcome, numbers), (expected, split), "{why}");
    }
}

/// 2048 requests of 2^53 - 1 hits are 2048 hits less than 2^64.
#[test]
fn sums_of_hits_start_again_after_2_to_the_64() {
    const HITS: i64 = (1 << 53) - 1;
    let outcomes = OutcomeMetrics::default();
    let limit = HITS.unsigned_abs();
    let decision = Decision {
        allowed: false,
        tier: 0,
        limit,
        remaining: 0,
        used: limit,
        reset_after: Micros::ZERO,
    };
    let snapshot = |times: usize| {
        let mut snapshot = OutcomeSnapshot::default();
        (0..times).for_each(|_| outcomes.add_to(&mut snapshot));
        snapshot
    };
    for _ in 0..2_048 {
        outcomes.counted(HITS, &decision, false);
    }
    let over = |snapshot: &OutcomeSnapshot| snapshot.hits[DecisionOutcome::Over as usize];
    assert_eq!(over(&snapshot(1)), u64::MAX - 2_047);
    assert_eq!(snapshot(1).envoy_ratelimit.total_hits, u64::MAX - 2_047);
    let twice = snapshot(2);
    assert_eq!((over(&twice), twice.decisions(DecisionOutcome::Over)), (u64::MAX - 4_095, 4_096));
    assert_eq!(twice.envoy_ratelimit.total_hits, u64::MAX - 4_095);
    assert_eq!(twice.envoy_ratelimit.over_limit, u64::MAX - 4_095);
    outcomes.counted(2_049, &decision, false);
    assert_eq!(over(&snapshot(1)), 1);
}

/// envoyproxy/ratelimit has no block: its dashboards show denied hits.
#[test]
fn a_block_counts_hits_over_the_limit() {
    let outcomes = OutcomeMetrics::default();
    let code = crate::decision::Code::OverLimit;
    let status = |reason| Status { code, limit: None, remaining: 0, reset_after: None, reason };
    let blocked = status(DecisionReason::Blocked { rule: Some(0), hits: 3 });
    assert_eq!(outcomes.record(&blocked), Some(DecisionOutcome::Blocked));
    let bypassed = status(DecisionReason::Bypassed { rule: Some(0) });
    assert_eq!(outcomes.record(&bypassed), Some(DecisionOutcome::Bypassed));
    assert_eq!(outcomes.record(&status(DecisionReason::NoRule)), None);
    let mut snapshot = OutcomeSnapshot::default();
    outcomes.add_to(&mut snapshot);
    assert_eq!(snapshot.decisions, [0, 0, 0, 0, 0, 0, 1, 1]);
    assert_eq!(snapshot.hits, [0, 0, 0, 0, 0, 0, 3, 0]);
    let shown = snapshot.envoy_ratelimit;
    assert_eq!((shown.total_hits, shown.within_limit, shown.over_limit), (3, 0, 3));
}

#[test]
fn a_fallback_is_counted_by_its_cause() {
    let outcomes = OutcomeMetrics::default();
    let reason = DecisionReason::Fallback {
        rule: Some(0),
        hits: 3,
        allowed: true,
        on_error: crate::limit::OnError::Allow,
        decision: None,
        error: StoreError::BreakerOpen,
    };
    let code = crate::decision::Code::Ok;
    let status = Status { code, limit: None, remaining: 0, reset_after: None, reason };
    assert_eq!(outcomes.record(&status), Some(DecisionOutcome::Fallback));
    let mut snapshot = OutcomeSnapshot::default();
    outcomes.add_to(&mut snapshot);
    assert_eq!(snapshot.causes, [0, 0, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(snapshot.envoy_ratelimit.total_hits, 3);
}

/// `over` has the blocked decisions too, and a refund is no hit.
#[test]
fn totals_have_every_decision() {
    let outcomes = OutcomeMetrics::default();
    for (number, outcome) in (1..).zip(DecisionOutcome::ALL) {
        (0..number).for_each(|_| outcomes.count(outcome, 10));
    }
    let mut totals = OutcomeTotals::default();
    outcomes.add_totals_to(&mut totals);
    outcomes.add_totals_to(&mut totals);
    let expected = OutcomeTotals {
        hits: 2 * 10 * (36 - 6),
        within: 2,
        near: 2 * 2,
        over: 2 * (3 + 7),
        shadow: 2 * 4,
        fallback: 2 * 5,
        decisions: 2 * 36,
    };
    assert_eq!(totals, expected);
}
