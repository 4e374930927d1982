//! Tests that codes without responses are those of checks.

use futures_util::future::FutureExt;

use super::*;
use crate::testing::Rng;

/// Every algorithm without leases, and what else changes codes.
const RULES: &str = "
  - {key: window, rate_limit: {unit: second, requests_per_unit: 3}}
  - {key: sliding, rate_limit: {algorithm: sliding_window, requests: 5, window: 2s}}
  - {key: log, rate_limit: {algorithm: sliding_window_log, requests: 4, window: 1s}}
  - {key: token, rate_limit: {algorithm: token_bucket, requests: 2, window: 1s, burst: 4}}
  - key: tiers
    rate_limit:
      algorithm: sliding_window
      tiers: [{requests: 2, window: 1s}, {requests: 9, window: 10s}]
  - {key: day, rate_limit: {requests: 9, window: {calendar: day, zone: Europe/Zurich}}}
  - {key: paid, rate_limit: {unit: second, requests_per_unit: 9, cost: 2.5}}
  - {key: counted, rate_limit: {unit: second, requests_per_unit: 2, count_denied: true}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: second, requests_per_unit: 1}}
  - {key: quota, quota_mode: true, rate_limit: {unit: second, requests_per_unit: 1}}
  - {key: open, rate_limit: {unlimited: true}}
  - {key: slots, rate_limit: {algorithm: concurrency, max: 2, hold: 5s}}
  - {key: named, rate_limit: {name: named, unit: second, requests_per_unit: 1}}
  - {key: better, rate_limit: {unit: second, requests_per_unit: 9, replaces: [{name: named}]}}
";

const KEYS: [&str; 14] = [
    "window", "sliding", "log", "token", "tiers", "day", "paid", "counted", "shadow", "quota",
    "open", "slots", "named", "unknown",
];

/// A bench whose domain gives hits of denied requests back, or not.
fn bench(free: bool, config: &ResponseSettings) -> Bench {
    let denied = if free { "denied_requests: free\n" } else { "" };
    let text = format!("domain: d\n{denied}descriptors:\n{RULES}");
    let file = SourceFile { name: Arc::from("test.yaml"), text };
    let compiled = crate::rules::compile(&[file], &Options::default());
    let (rules, _) = compiled.unwrap_or_else(|problems| panic!("{problems:?}"));
    let backend = Backend::Memory(MemoryStore::new(1_000));
    Bench { rules, limiter: Limiter::new(backend, KeySeed::fixed([1, 2]), config.clone()) }
}

/// The code of a request, and for each descriptor the code, its rule, and whether a counter decided.
type Codes = (Code, Vec<(Code, Option<usize>, bool)>);

fn codes_of(verdict: &Verdict) -> Codes {
    let counted = |status: &Status| {
        let is_counted = matches!(
            status.reason,
            DecisionReason::Counted { .. } | DecisionReason::Fallback { .. }
        );
        (status.code, status.reason.rule(), is_counted)
    };
    (verdict.code, verdict.statuses.iter().map(counted).collect())
}

/// Decides all queued requests.
fn decide(limiter: &mut Limiter, queue: &mut CodeQueue<'_>, found: &mut Vec<Codes>) {
    limiter.decide_codes(queue, |code, descriptors| {
        let descriptors = descriptors.iter().map(|one| (one.code, one.rule, one.is_counted));
        found.push((code, descriptors.collect()));
    });
    assert_eq!(queue.descriptor_count(), 0);
}

/// Random requests are decided as by a check, in every mode of responses, also if a check decides some of
/// them in between.
#[test]
fn codes_are_those_of_a_check() {
    for seed in 0..40 {
        let config = ResponseSettings {
            quota_mode: seed % 4 == 1,
            shadow_mode: seed % 4 == 2,
            ..ResponseSettings::default()
        };
        let mut rng = Rng::new(seed);
        let checked = bench(seed % 2 == 0, &config);
        let Bench { rules, mut limiter } = bench(seed % 2 == 0, &config);
        let mut queue = CodeQueue::default();
        let (mut expected, mut found, mut queued) = (Vec::new(), Vec::new(), 0);
        let mut now = NOW;
        for _ in 0..300 {
            now = now.saturating_add(Micros(rng.below(20_000)));
            let values: Vec<String> = (0..3).map(|_| rng.below(3).to_string()).collect();
            let entries: Vec<[Entry<'_>; 1]> =
                values.iter().map(|value| [Entry { key: rng.pick(&KEYS), value }]).collect();
            let count = 1 + rng.below(3) as usize;
            let descriptors: Vec<Descriptor<'_>> = entries[..count]
                .iter()
                .map(|entries| Descriptor {
                    entries,
                    limit: None,
                    hits_addend: rng.chance(50).then(|| rng.below(4)),
                    is_negative_hits: rng.chance(10),
                })
                .collect();
            let request = with(&descriptors);
            expected.push(codes_of(&check_at(&checked.limiter, &checked.rules, &request, now)));
            if limiter.queue_code(&mut queue, &rules, &request, now) {
                queued += 1;
            } else {
                decide(&mut limiter, &mut queue, &mut found);
                found.push(codes_of(&check_at(&limiter, &rules, &request, now)));
            }
            if rng.chance(5) {
                decide(&mut limiter, &mut queue, &mut found);
            }
        }
        decide(&mut limiter, &mut queue, &mut found);
        assert_eq!(found, expected, "seed {seed}");
        assert!((150..300).contains(&queued), "seed {seed}: {queued} were queued");
        let denied = expected.iter().flat_map(|(_, all)| all);
        let denied = denied.filter(|one| one.0 == Code::OverLimit).count();
        assert!(denied > 20, "seed {seed}: {denied} are denied");
    }
}

/// A check whose lease is committed, as that of a delivered response.
fn check_at(limiter: &Limiter, rules: &RuleSet, request: &Request<'_>, now: Micros) -> Verdict {
    let verdict = limiter.check(rules, request, now).now_or_never();
    let mut verdict = verdict.expect("memory answers at once");
    if let Some(rollback) = verdict.rollback.take() {
        rollback.commit();
    }
    verdict
}

/// Only a check decides a request with one descriptor of such a rule. Nothing of it is queued.
#[test]
fn leases_and_replacements_are_left_to_checks() {
    let Bench { rules, limiter } = bench(false, &ResponseSettings::default());
    for (key, is_queued) in
        [("window", true), ("unknown", true), ("named", true), ("slots", false), ("better", false)]
    {
        let entries = [[Entry { key: "log", value: "" }], [Entry { key, value: "" }]];
        let descriptors = entries.each_ref().map(|entries| Descriptor {
            entries,
            limit: None,
            hits_addend: None,
            is_negative_hits: false,
        });
        let mut queue = CodeQueue::default();
        let request = with(&descriptors);
        assert_eq!(limiter.queue_code(&mut queue, &rules, &request, NOW), is_queued, "{key}");
        assert_eq!(queue.descriptor_count(), if is_queued { 2 } else { 0 }, "{key}");
    }
}

/// A rollback that is not dropped refers to the store. Requests are decided meanwhile.
#[test]
fn codes_are_decided_beside_an_open_rollback() {
    let Bench { rules, mut limiter } = bench(false, &ResponseSettings::default());
    let entries = [Entry { key: "slots", value: "" }];
    let plain =
        Descriptor { entries: &entries, limit: None, hits_addend: None, is_negative_hits: false };
    let open = limiter.check(&rules, &with(&[plain]), NOW).now_or_never();
    let open = open.expect("memory answers at once");
    assert!(open.rollback.is_some());
    let entries = [Entry { key: "quota", value: "" }];
    let plain = Descriptor { entries: &entries, ..plain };
    let (mut queue, mut found) = (CodeQueue::default(), Vec::new());
    for _ in 0..2 {
        assert!(limiter.queue_code(&mut queue, &rules, &with(&[plain]), NOW));
    }
    decide(&mut limiter, &mut queue, &mut found);
    let codes: Vec<Code> = found.iter().map(|(code, _)| *code).collect();
    assert_eq!(codes, [Code::Ok, Code::OverLimit]);
    drop(open);
}

/// The fallback decides for counters that have no room.
#[test]
fn a_full_store_falls_back_for_codes() {
    for (on_error, code) in [(OnError::Allow, Code::Ok), (OnError::Deny, Code::OverLimit)] {
        let Bench { rules, limiter } = bench(false, &ResponseSettings::default());
        let mut limiter = limiter.with_on_error(on_error);
        limiter.backend = Arc::new(Backend::Memory(MemoryStore::new(1)));
        let mut fallbacks = Vec::new();
        // Fills the store with a client at its limit, which is never evicted.
        for client in 0..10 {
            let client = client.to_string();
            let entries = [Entry { key: "window", value: &client }];
            let descriptors = [Descriptor {
                entries: &entries,
                limit: None,
                hits_addend: Some(3),
                is_negative_hits: false,
            }];
            let mut queue = CodeQueue::default();
            assert!(limiter.queue_code(&mut queue, &rules, &with(&descriptors), NOW));
            limiter.decide_codes(&mut queue, |code, descriptors| {
                fallbacks.extend(descriptors.iter().filter(|one| one.by_fallback).map(|_| code));
            });
        }
        assert_eq!(fallbacks, vec![code; 9]);
    }
}
