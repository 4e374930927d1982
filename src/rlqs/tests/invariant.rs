//! The check of the invariant: what counts as a violation, and what does not.

use super::shared::processes;
use super::*;
use crate::quota::{Change, HolderId, SHARES, Settlement};

/// Another rule for the tenant `a`, with a limit per second.
fn moved(limit: u32) -> String {
    format!(
        "
  - {{key: tenant, rate_limit: {{unit: second, requests_per_unit: 100}}}}
  - {{key: tenant, value: a, rate_limit: {{unit: second, requests_per_unit: {limit}}}}}
"
    )
}

/// Two holders of other instances have 0.7 of the limit of `tenant=a` each.
fn use_too_much(process: &Process) {
    let now = process.clock.now();
    let expires = now.saturating_add(Micros::from_secs(13));
    let share = SHARES / 10 * 7;
    let changes = [1, 2].map(|number| Change {
        holder: HolderId([number, 0]),
        share,
        held: share,
        want: share,
        expires,
    });
    let (requests, window, grace) = (100, Micros::SECOND, Micros::from_millis(500));
    let settlement = Settlement { now, requests, window, grace, changes: changes.to_vec() };
    let ledger = process.engine.ledger.clone().expect("a shared ledger");
    let counter = process.counter("a");
    let reply = ledger.settle(&counter, &settlement).now_or_never();
    assert!(reply.expect("a fake store answers at once").is_ok());
}

/// One call of the quota of `tenant=a` to the ledger.
fn settle_once(process: &Process) {
    let (engine, now) = (&process.engine, process.clock.now());
    let mut calls = Vec::new();
    for shard in 0..64 {
        while engine.settle_due(shard, now, &mut calls) {}
    }
    let counter = process.counter("a");
    calls.retain(|LedgerCall { key, .. }| *key == counter);
    assert_eq!(calls.len(), 1);
    for LedgerCall { key, call, .. } in calls {
        let ledger = engine.ledger.clone().expect("a shared ledger");
        let reply = ledger.settle(&key, &call.settlement).now_or_never();
        engine.finish_call(&key, call.sent_at, reply.expect("an answer"), now);
    }
}

/// Applies new rules to the quotas, which are not settled.
fn apply_rules(process: &Process) {
    let new = process.engine.read_new_rules().expect("new rules");
    for shard in 0..64 {
        process.engine.apply_rules(shard, &process.engine.keys_of(shard), &new);
    }
    process.engine.announce_rules(&new);
}

/// The violations so far, and the largest part of a limit in use.
fn counted(process: &Process) -> (u64, f64) {
    let metrics = process.engine.metrics();
    (metrics.violations.get(), metrics.share_in_use_max())
}

#[test]
fn a_sum_over_the_limit_is_a_violation() {
    let (all, _) = processes(1);
    use_too_much(&all[0]);
    let mut stream = all[0].open(None);
    stream.report(&report("d", &[("tenant=a", 1)])).expect("valid");
    settle_once(&all[0]);
    assert_eq!(counted(&all[0]), (1, 1.4));
}

/// A bucket moves to a counter whose limit is not lower. A sum over that limit is a violation, also in the
/// first answer. If the limit is lower, the sum is expected.
#[test]
fn a_moved_bucket_excuses_a_lower_limit_only() {
    for (limit, violations) in [(100, 1), (200, 1), (50, 0)] {
        let (all, _) = processes(1);
        let mut stream = all[0].open(None);
        stream.report(&report("d", &[("tenant=a", 1)])).expect("valid");
        all[0].settle();
        assert_eq!(counted(&all[0]), (0, 1.0));
        all[0].reload(&moved(limit));
        apply_rules(&all[0]);
        use_too_much(&all[0]);
        // The bucket is placed again by that.
        newest(&mut stream);
        settle_once(&all[0]);
        assert_eq!(counted(&all[0]).0, violations, "{limit}");
    }
}

/// Two values with a counter each get one counter for both. What the two allowed is expected.
#[test]
fn counters_that_become_one_are_no_violation() {
    let (all, _) = processes(1);
    let mut stream = all[0].open(None);
    stream.report(&report("d", &[("tenant=a", 1), ("tenant=ab", 1)])).expect("valid");
    all[0].settle();
    assert_eq!(counted(&all[0]), (0, 1.0));
    all[0].reload(
        "
  - key: tenant
    value: a*
    share_threshold: true
    rate_limit: {unit: second, requests_per_unit: 100}
",
    );
    apply_rules(&all[0]);
    newest(&mut stream);
    settle_once(&all[0]);
    assert_eq!(counted(&all[0]), (0, 1.0));
    // Both are lowered, and an answer after the grace shows that. From then on an excess counts.
    all[0].pass(5_000);
    use_too_much(&all[0]);
    all[0].pass(3_000);
    assert!(counted(&all[0]).0 > 0);
}
