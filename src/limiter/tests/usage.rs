//! Tests of which counters get a name.

use super::*;
use crate::usage::UsageNames;

const LISTED: &str = "
  - {key: user, rate_limit: {unit: hour, requests_per_unit: 2, usage: true}}
  - {key: plain, rate_limit: {unit: hour, requests_per_unit: 2}}
  - {key: blocked, rate_limit: {algorithm: sliding_window, requests: 0, window: 1h, usage: true}}
  - {key: bucket, rate_limit: {algorithm: token_bucket, requests: 2, window: 1h, usage: true}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1, usage: true}}
  - {key: slots, rate_limit: {algorithm: concurrency, max: 2, hold: 1h, usage: true}}
  - {key: tokens, rate_limit: {unit: hour, requests_per_unit: 9, usage: true, reserve: {hold: 1h}}}
  - {key: old, rate_limit: {name: old, unit: hour, requests_per_unit: 2, usage: true}}
  - key: new
    rate_limit: {unit: hour, requests_per_unit: 2, usage: true, replaces: [{name: old}]}
";

/// One descriptor: its entries, and its signed hits.
type SentHits<'a> = (&'a [(&'a str, &'a str)], i64);

struct Listed {
    bench: Bench,
    names: Arc<UsageNames>,
}

impl Listed {
    fn new(names: Arc<UsageNames>, config: ResponseSettings) -> Listed {
        let Bench { rules, limiter } = Bench::new(LISTED, config);
        let bench = Bench { rules, limiter: limiter.with_usage(names.clone()) };
        Listed { bench, names }
    }

    fn request(&self, sent: &[SentHits<'_>]) -> Verdict {
        let entries: Vec<Vec<Entry<'_>>> = sent
            .iter()
            .map(|(pairs, _)| pairs.iter().map(|&(key, value)| Entry { key, value }).collect())
            .collect();
        let descriptors: Vec<Descriptor<'_>> = sent
            .iter()
            .zip(&entries)
            .map(|((_, hits), entries)| Descriptor {
                entries,
                limit: None,
                hits_addend: Some(hits.unsigned_abs()),
                is_negative_hits: *hits < 0,
            })
            .collect();
        self.bench.check(&with(&descriptors))
    }

    /// The recorded texts of all rules, as `key=text`, sorted.
    fn recorded(&self) -> Vec<String> {
        let mut all = Vec::new();
        for rule in self.bench.rules.rules() {
            let parts = (0..).map_while(|number| self.names.keys_of(rule.id, number));
            for key in parts.flatten() {
                let texts = self.names.texts(&key).expect("they are in memory").texts;
                all.push(format!("{}={}", rule.selector(), texts.join(",")));
            }
        }
        all.sort();
        all
    }
}

fn in_memory() -> Listed {
    Listed::new(UsageNames::in_memory(1_000), ResponseSettings::default())
}

/// Every row has a request, and the names that it leaves.
#[test]
fn counters_with_hits_get_names() {
    let table: &[(&[SentHits<'_>], &[&str])] = &[
        (&[(&[("user", "ann")], 1)], &["user=ann"]),
        (&[(&[("user", "ann")], 1), (&[("user", "bob")], 2)], &["user=ann", "user=bob"]),
        (&[(&[("user", "")], 1)], &["user="]),
        (&[(&[("user", "ann")], 0)], &[]),
        (&[(&[("user", "ann")], -1)], &[]),
        (&[(&[("plain", "ann")], 1)], &[]),
        (&[(&[("none", "ann")], 1)], &[]),
        // A fixed window counts denied hits.
        (&[(&[("user", "ann")], 3)], &["user=ann"]),
        (&[(&[("shadow", "ann")], 3)], &["shadow=ann"]),
        (&[(&[("bucket", "ann")], 3)], &[]),
        (&[(&[("bucket", "ann")], 2)], &["bucket=ann"]),
        (&[(&[("blocked", "ann")], 1)], &[]),
        (&[(&[("slots", "ann")], 1)], &["slots=ann"]),
        (&[(&[("slots", "ann"), ("lease", "0123456789abcdef")], -1)], &[]),
        (&[(&[("tokens", "ann"), ("lease", "0123456789abcdef")], 4)], &[]),
        (&[(&[("tokens", "ann")], 4)], &["tokens=ann"]),
        (&[(&[("old", "ann")], 1), (&[("new", "ann")], 1)], &["new=ann"]),
    ];
    for (sent, expected) in table {
        let listed = in_memory();
        listed.request(sent);
        assert_eq!(listed.recorded(), *expected, "{sent:?}");
    }
}

/// The names ride along: the same requests have the same statuses with and without them.
#[test]
fn names_change_no_status() {
    let listed = in_memory();
    let plain = Bench::new(LISTED, ResponseSettings::default());
    let plain = Listed { bench: plain, names: UsageNames::in_memory(1) };
    for (key, hits) in [("user", 1), ("user", 2), ("bucket", 2), ("shadow", 5), ("user", 0)] {
        let sent: [SentHits<'_>; 1] = [(&[(key, "ann")], hits)];
        let (one, other) = (listed.request(&sent), plain.request(&sent));
        assert_eq!((one.code, one.statuses), (other.code, other.statuses), "{key}");
    }
    assert!(plain.recorded().is_empty() && !listed.recorded().is_empty());
}

/// Without an outcome of the store, nothing is known about the counter in it.
#[tokio::test]
async fn a_fallback_records_no_name() {
    let Bench { rules, .. } = Bench::new(LISTED, ResponseSettings::default());
    let store = FakeStore::new();
    store.push_result(FakeResult::Rejected(StoreError::Unreachable));
    let backend = Backend::Redis(Modes::new(store));
    let names = UsageNames::shared(1_000);
    let limiter = Limiter::new(backend, KeySeed::fixed([1, 2]), ResponseSettings::default());
    let limiter = limiter.with_usage(names.clone());
    let entries = [Entry { key: "user", value: "ann" }];
    let descriptor =
        Descriptor { entries: &entries, limit: None, hits_addend: None, is_negative_hits: false };
    let descriptors = [descriptor];
    let verdict = limiter.check(&rules, &with(&descriptors), NOW).await;
    assert!(matches!(verdict.statuses[0].reason, DecisionReason::Fallback { .. }));
    assert_eq!(names.snapshot().writes.expect("they go to the store").queued, 0);
    let verdict = limiter.check(&rules, &with(&descriptors), NOW).await;
    assert!(matches!(verdict.statuses[0].reason, DecisionReason::Counted { .. }));
    assert_eq!(names.snapshot().writes.expect("they go to the store").queued, 1);
}
