//! Tests that counters in memory and awaited counters lead to the same decisions, and of decisions
//! that may not wait any longer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::FutureExt;

use super::*;
use crate::testing::FakeStore;

#[tokio::test(start_paused = true)]
async fn an_awaited_store_decides_as_an_inline_one() {
    let rules = format!(
        "{MIXED}
  - key: log
    rate_limit: {{algorithm: sliding_window_log, unit: minute, requests_per_unit: 2}}
  - {{key: slots, rate_limit: {{algorithm: concurrency, max: 2, hold: 30s}}}}
  - key: new
    rate_limit: {{name: x, replaces: [{{name: old}}], unit: day, requests_per_unit: 3}}
  - {{key: old, rate_limit: {{name: old, unit: day, requests_per_unit: 1}}}}
"
    );
    let config = ResponseSettings {
        headers: LimitHeaders::Both,
        decision_header: true,
        ..ResponseSettings::default()
    };
    let bench = Bench::new(&rules, config.clone());
    let store = FakeStore::new().taking(Duration::from_millis(1), None);
    let modes = Modes::without_over_limit_cache(store);
    let awaiting = Limiter::new(Backend::Redis(modes), KeySeed::fixed([1, 2]), config);
    let keys = ["r", "q1", "q2", "s", "u", "log", "slots", "new", "old", "none"];
    for round in 0..200_usize {
        // Up to three descriptors, each with one hit, a peek or a refund.
        let entries: Vec<[Entry<'_>; 1]> = (0..=round % 3)
            .map(|place| [Entry { key: keys[(round * 7 + place * 3) % keys.len()], value: "" }])
            .collect();
        let descriptor = |entries| Descriptor {
            entries,
            limit: None,
            hits_addend: (round % 5 == 4).then_some(0),
            is_negative_hits: round % 7 == 6,
        };
        let descriptors: Vec<_> = entries.iter().map(|one| descriptor(&one[..])).collect();
        let request = with(&descriptors);
        let now = NOW.saturating_add(Micros::from_millis(500 * round as u64));
        let inline = bench.limiter.check(&bench.rules, &request, now).now_or_never();
        let inline = inline.expect("nothing to await");
        let awaited = awaiting.check(&bench.rules, &request, now).await;
        assert_eq!(inline.code, awaited.code, "{round}: {request:?}");
        assert_eq!(inline.statuses, awaited.statuses, "{round}: {request:?}");
        assert_eq!(inline.headers, awaited.headers, "{round}: {request:?}");
        assert_eq!(inline.rollback.is_some(), awaited.rollback.is_some(), "{round}: {request:?}");
    }
}

/// The store has decided neither descriptor, and each gets the fallback of its rule.
#[test]
fn a_request_that_must_decide_gets_the_fallback() {
    let rules = "
  - {key: allow, rate_limit: {unit: minute, requests_per_unit: 1, on_error: allow}}
  - {key: deny, rate_limit: {unit: minute, requests_per_unit: 1, on_error: deny}}
";
    let bench = Bench::new(rules, ResponseSettings::default());
    let modes = Modes::without_over_limit_cache(FakeStore::new().holding());
    let seed = KeySeed::fixed([1, 2]);
    let limiter = Limiter::new(Backend::Redis(modes), seed, ResponseSettings::default());
    for (keys, codes) in [
        (vec!["allow"], vec![Code::Ok]),
        (vec!["deny"], vec![Code::OverLimit]),
        (vec!["deny", "allow"], vec![Code::OverLimit, Code::Ok]),
    ] {
        let entries: Vec<_> = keys.iter().map(|&key| [Entry { key, value: "" }]).collect();
        let descriptor = |entries| Descriptor {
            entries,
            limit: None,
            hits_addend: None,
            is_negative_hits: false,
        };
        let descriptors: Vec<_> = entries.iter().map(|one| descriptor(&one[..])).collect();
        let must_decide = AtomicBool::new(false);
        let request = Request { must_decide: Some(&must_decide), ..with(&descriptors) };
        let mut check = Box::pin(limiter.check(&bench.rules, &request, NOW));
        assert!(check.as_mut().now_or_never().is_none(), "the store has not answered");
        must_decide.store(true, Ordering::Relaxed);
        let verdict = check.now_or_never().expect("no wait");
        for (status, code) in verdict.statuses.iter().zip(codes) {
            assert_eq!(status.code, code, "{keys:?}");
            let DecisionReason::Fallback { error, .. } = status.reason else { panic!("{keys:?}") };
            assert_eq!(error, StoreError::ClientMemoryFull);
        }
    }
}
