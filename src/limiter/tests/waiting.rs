//! A store that is waited for is asked another way than one that answers at once.

use futures_util::future::FutureExt;

use super::*;
use crate::key::Key;
use crate::step::{Outcome, Step};
use crate::store::StoreError;

/// Counters in memory that do not say that they are, and answer when they are asked again.
struct Waited(MemoryStore);

impl Store for Waited {
    async fn apply(&self, key: &Key, step: &Step) -> Result<Outcome, StoreError> {
        tokio::task::yield_now().await;
        self.0.apply_now(key, step)
    }

    fn apply_detached(&self, key: &Key, step: Step) {
        self.0.apply_detached(key, step);
    }

    async fn forget(&self, key: &Key) -> Result<bool, StoreError> {
        self.0.forget(key).await
    }
}

#[tokio::test]
async fn a_store_that_is_waited_for_decides_as_one_that_answers_at_once() {
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
    let answer = ResponseConfig {
        headers: Headers::Both,
        decision_header: true,
        ..ResponseConfig::default()
    };
    let bench = Bench::new(&rules, answer.clone());
    let (store, clock) = (Waited(MemoryStore::new(1_000)), ManualClock::at(NOW));
    let waiting = Limiter::new(store, clock, KeySeed::fixed([1, 2]), answer);
    let keys = ["r", "q1", "q2", "s", "u", "log", "slots", "new", "old", "none"];
    for round in 0..200_usize {
        // Up to three descriptors, of one hit, a peek or a refund.
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
        let request = Request {
            domain: "d",
            descriptors: &descriptors,
            hits_addend: 0,
            timeout: None,
            caller: Default::default(),
        };
        let now = NOW.saturating_add(Micros::from_millis(500 * round as u64));
        let at_once = bench.limiter.check(&bench.rules, &request, now).now_or_never();
        let at_once = at_once.expect("nothing to wait for");
        let waited = waiting.check(&bench.rules, &request, now).await;
        assert_eq!(at_once.code, waited.code, "{round}: {request:?}");
        assert_eq!(at_once.statuses, waited.statuses, "{round}: {request:?}");
        assert_eq!(at_once.headers, waited.headers, "{round}: {request:?}");
        assert_eq!(at_once.grant.is_some(), waited.grant.is_some(), "{round}: {request:?}");
    }
}
