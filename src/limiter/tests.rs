//! Tests of whole decisions on the memory store, at a fixed instant.

use std::sync::Arc;

use super::*;
use crate::decision::Code;
use crate::descriptor::{Descriptor, Entry};
use crate::rules::{Options, SourceFile};
use crate::settings::LimitHeaders;
use crate::store_error::StoreError;
use crate::testing::{FakeResult, FakeStore};

mod changes;
mod codes;
mod costs;
mod divided;
mod large_limits;
mod leases;
mod planned;
mod simulation;
mod try_request;
mod usage;
mod waiting;
mod what_if;

/// An instant 20 s after the start of a minute.
const NOW: Micros = Micros::from_secs(1_000_000_000 / 60 * 60 + 20);

struct Bench {
    rules: RuleSet,
    limiter: Limiter,
}

/// A request to domain `d` that may wait for ever.
fn with<'r>(descriptors: &'r [Descriptor<'r>]) -> Request<'r> {
    Request {
        domain: "d",
        descriptors,
        hits_addend: 0,
        timeout: None,
        trace: Default::default(),
        must_decide: None,
    }
}

impl Bench {
    fn new(descriptors: &str, config: ResponseSettings) -> Bench {
        Bench::with(descriptors, config, &Options::default())
    }

    fn with(descriptors: &str, config: ResponseSettings, options: &Options) -> Bench {
        let text = format!("domain: d\ndescriptors:\n{descriptors}");
        let file = SourceFile { name: Arc::from("test.yaml"), text };
        let (rules, _) = crate::rules::compile(&[file], options)
            .unwrap_or_else(|problems| panic!("{problems:?}"));
        let backend = Backend::Memory(MemoryStore::new(1_000));
        let limiter = Limiter::new(backend, KeySeed::fixed([1, 2]), config);
        Bench { rules, limiter }
    }

    /// Checks descriptors of one entry each, with one hit.
    fn hit(&self, entries: &[(&str, &str)]) -> Verdict {
        let entries: Vec<[Entry<'_>; 1]> =
            entries.iter().map(|&(key, value)| [Entry { key, value }]).collect();
        let descriptors: Vec<Descriptor<'_>> = entries
            .iter()
            .map(|entries| Descriptor {
                entries,
                limit: None,
                hits_addend: None,
                is_negative_hits: false,
            })
            .collect();
        let request = with(&descriptors);
        self.check(&request)
    }

    fn check(&self, request: &Request<'_>) -> Verdict {
        let verdict = self.limiter.check(&self.rules, request, NOW);
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(verdict)
    }
}

fn header<'v>(verdict: &'v Verdict, name: &str) -> Option<&'v str> {
    let mut found = verdict.headers.iter().filter(|(key, _)| key == name);
    let value = found.next().map(|(_, value)| value.as_str());
    assert!(found.next().is_none(), "{name} is sent once");
    value
}

/// Two quota rules, one ordinary rule and one unlimited rule. Every limit is one hit per minute.
const MIXED: &str = "
  - {key: q1, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: q2, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: r, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: s, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: u, rate_limit: {unlimited: true}}
";

#[test]
fn overall_code_is_any_ordinary_or_all_quota_denials() {
    // (full counters, checked, code, code in global quota mode)
    let (ok, over) = (Code::Ok, Code::OverLimit);
    let table: &[(&[&str], &[&str], Code, Code)] = &[
        (&[], &["r"], ok, ok),
        (&["r"], &["r"], over, over),
        (&["r"], &["r", "q1"], over, ok),
        (&["q1"], &["q1", "q2"], ok, ok),
        (&["q1", "q2"], &["q1", "q2"], over, over),
        (&["q1", "q2"], &["q1", "q2", "r"], over, ok),
        (&["q1", "r"], &["q1", "q2", "r"], over, ok),
        (&["q1", "q2"], &["q1", "q2", "unmatched"], over, ok),
        (&["q1", "q2"], &["q1", "q2", "u"], over, over),
        (&["s"], &["s"], ok, ok),
        (&["s", "q1"], &["s", "q1"], over, ok),
        (&["r"], &["unmatched", "u"], ok, ok),
    ];
    for (full, keys, ordinary, global_quota) in table {
        for (quota_mode, code) in [(false, ordinary), (true, global_quota)] {
            let bench =
                Bench::new(MIXED, ResponseSettings { quota_mode, ..ResponseSettings::default() });
            for key in *full {
                bench.hit(&[(key, "")]);
            }
            let keys: Vec<_> = keys.iter().map(|key| (*key, "")).collect();
            let verdict = bench.hit(&keys);
            assert_eq!(verdict.code, *code, "{full:?} full, {keys:?}, global {quota_mode}");
        }
    }
}

#[test]
fn global_shadow_mode_passes_and_keeps_statuses() {
    let bench =
        Bench::new(MIXED, ResponseSettings { shadow_mode: true, ..ResponseSettings::default() });
    assert!(!bench.hit(&[("r", "")]).shadowed);
    let verdict = bench.hit(&[("r", "")]);
    assert_eq!((verdict.code, verdict.shadowed), (Code::Ok, true));
    assert_eq!(verdict.statuses[0].code, Code::OverLimit);
}

const NAMED: &str = "
  - {key: wide, rate_limit: {name: wide, unit: hour, requests_per_unit: 10}}
  - {key: tight, rate_limit: {unit: minute, requests_per_unit: 2}}
";

#[test]
fn headers_report_the_most_restrictive_first() {
    let bench = Bench::new(
        NAMED,
        ResponseSettings { headers: LimitHeaders::Both, ..ResponseSettings::default() },
    );
    let keys = [("wide", ""), ("tight", "")];
    let verdict = bench.hit(&keys);
    assert_eq!(header(&verdict, "x-ratelimit-limit"), Some("2, 10;w=3600;name=\"wide\", 2;w=60"));
    assert_eq!(header(&verdict, "x-ratelimit-remaining"), Some("1"));
    assert_eq!(header(&verdict, "x-ratelimit-reset"), Some("40"));
    assert_eq!(
        header(&verdict, "ratelimit-policy"),
        Some("\"wide\";q=10;w=3600, \"tight\";q=2;w=60")
    );
    let limits = header(&verdict, "ratelimit").unwrap();
    assert!(limits.starts_with("\"tight\";r=1;t=40, \"wide\";r=9;t="), "{limits}");
    assert_eq!(header(&verdict, "retry-after"), None);
    bench.hit(&keys);
    let denied = bench.hit(&keys);
    assert_eq!(denied.code, Code::OverLimit);
    assert_eq!(header(&denied, "x-ratelimit-remaining"), Some("0"));
    assert_eq!(header(&denied, "retry-after"), Some("40"));
    assert!(bench.hit(&[("unmatched", "")]).headers.is_empty(), "no limit, no headers");
}

#[test]
fn envoy_ratelimit_headers_choose_as_it_does() {
    let config = ResponseSettings { envoy_ratelimit_headers: true, ..ResponseSettings::default() };
    let bench = Bench::new(NAMED, config);
    let verdict = bench.hit(&[("wide", ""), ("tight", "")]);
    let sent: Vec<_> = verdict.headers.iter().map(|(n, v)| (n.as_ref(), v.as_str())).collect();
    let tight = [("RateLimit-Limit", "2"), ("RateLimit-Remaining", "1"), ("RateLimit-Reset", "40")];
    assert_eq!(sent, tight, "the smallest remaining");
    bench.hit(&[("tight", "a"), ("tight", "a")]);
    let verdict = bench.hit(&[("tight", "a"), ("wide", "")]);
    assert_eq!(header(&verdict, "RateLimit-Limit"), Some("2"), "the one over its limit");
    assert_eq!(header(&verdict, "retry-after"), None, "envoyproxy/ratelimit sends none");
}

#[test]
fn a_full_store_falls_back() {
    for (on_error, code) in [(OnError::Allow, Code::Ok), (OnError::Deny, Code::OverLimit)] {
        let config = ResponseSettings { decision_header: true, ..ResponseSettings::default() };
        let mut bench = Bench::new(MIXED, config);
        bench.limiter.on_error = on_error;
        let full = MemoryStore::new(1);
        bench.limiter.backend = Arc::new(Backend::Memory(full));
        // Fills every shard with clients at their limit, which are never evicted.
        let verdict = (0..10_000)
            .map(|client| client.to_string())
            .map(|client| {
                bench.hit(&[("r", &client)]);
                bench.hit(&[("r", &client)])
            })
            .find(|verdict| matches!(verdict.statuses[0].reason, DecisionReason::Fallback { .. }))
            .expect("a store of one counter is full after thousands");
        assert_eq!(verdict.code, code);
        let how = header(&verdict, "x-weir-decision").unwrap();
        let word = if code == Code::Ok { "allow" } else { "deny" };
        assert_eq!(how, format!("rule=r;mode=exact;fallback={word};cause=memory_full"));
    }
}

/// Envoy shows a limit of a status to clients, with its remaining hits and reset.
#[test]
fn a_fallback_that_counts_nothing_reports_no_limit() {
    for (on_error, code) in [(OnError::Allow, Code::Ok), (OnError::Deny, Code::OverLimit)] {
        let headers = LimitHeaders::Both;
        let envoy_ratelimit_headers = true;
        let config =
            ResponseSettings { headers, envoy_ratelimit_headers, ..ResponseSettings::default() };
        let limiter = unreachable_limiter(config).with_on_error(on_error);
        let verdict = decide(&limiter, &Bench::new(MIXED, ResponseSettings::default()).rules);
        let status = &verdict.statuses[0];
        assert_eq!(status.code, code);
        assert_eq!((&status.limit, status.remaining, status.reset_after), (&None, 0, None));
        let names: Vec<&str> = verdict.headers.iter().map(|(name, _)| &**name).collect();
        let wait: &[&str] = if code == Code::OverLimit { &["retry-after"] } else { &[] };
        assert_eq!(names, wait, "{on_error:?}");
        let metadata = verdict.metadata.expect("the fallback is reported");
        assert_eq!(metadata["fallback"], serde_json::json!([on_error.name(), "none"]));
        assert_eq!(metadata.len(), 1);
    }
    let local = LocalCounters::new(MemoryStore::new(100), 1);
    let limiter = unreachable_limiter(ResponseSettings::default()).with_on_error(OnError::Local);
    let limiter = limiter.with_local(local);
    let verdict = decide(&limiter, &Bench::new(MIXED, ResponseSettings::default()).rules);
    let status = &verdict.statuses[0];
    assert_eq!(status.limit.as_ref().map(|limit| limit.requests), Some(1), "it counted");
    assert_eq!(status.reset_after, Some(Micros::from_secs(40)));
    assert_eq!(verdict.metadata.expect("as above")["fallback"][0], "local");
}

/// A limiter over a Redis that is not reachable.
fn unreachable_limiter(config: ResponseSettings) -> Limiter<FakeStore> {
    let store = FakeStore::new().with_result(FakeResult::Rejected(StoreError::Unreachable));
    let backend = Backend::Redis(Modes::new(store));
    Limiter::new(backend, KeySeed::fixed([1, 2]), config)
}

/// Decides one hit of rule `r`, and a descriptor without a rule.
fn decide(limiter: &Limiter<FakeStore>, rules: &RuleSet) -> Verdict {
    let entries = ["r", "nothing"].map(|key| [Entry { key, value: "" }]);
    let descriptors = [0, 1].map(|index: usize| Descriptor {
        entries: &entries[index],
        limit: None,
        hits_addend: None,
        is_negative_hits: false,
    });
    let request = with(&descriptors);
    let verdict = limiter.check(rules, &request, NOW);
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(verdict)
}

/// The order of descriptors is total, also with limits of 0, and a bucket's share is that of its
/// size. There are more descriptors than a sort handles by simple insertion.
#[test]
fn any_mix_of_descriptors_has_an_order() {
    let rules = "
  - {key: z, rate_limit: {unit: minute, requests_per_unit: 0}}
  - {key: n, rate_limit: {unit: minute, requests_per_unit: 1000}}
  - {key: b, rate_limit: {algorithm: token_bucket, unit: hour, requests_per_unit: 1, burst: 1000}}
";
    let bench = Bench::new(
        rules,
        ResponseSettings { headers: LimitHeaders::Both, ..ResponseSettings::default() },
    );
    let clients: Vec<String> = (0..100).map(|client| client.to_string()).collect();
    let key = |index| if index % 2 == 0 { "z" } else { "n" };
    let entry = |(index, value)| [Entry { key: key(index), value }];
    let entries: Vec<[Entry<'_>; 1]> =
        clients.iter().map(String::as_str).enumerate().map(entry).collect();
    let descriptors: Vec<Descriptor<'_>> = entries
        .iter()
        .enumerate()
        .map(|(i, entries)| Descriptor {
            entries,
            limit: None,
            hits_addend: Some(if i % 2 == 0 { 0 } else { (i as u64 * 7919) % 1000 }),
            is_negative_hits: false,
        })
        .collect();
    let request = with(&descriptors);
    let verdict = bench.check(&request);
    assert_eq!(header(&verdict, "x-ratelimit-remaining"), Some("0"));

    let spend = |key, hits| {
        let entries = [Entry { key, value: "x" }];
        let descriptors = [Descriptor {
            entries: &entries,
            limit: None,
            hits_addend: Some(hits),
            is_negative_hits: false,
        }];
        bench.check(&with(&descriptors));
    };
    spend("b", 700);
    spend("n", 499);
    let verdict = bench.hit(&[("n", "x"), ("b", "x")]);
    assert_eq!(header(&verdict, "x-ratelimit-remaining"), Some("299"), "30 % are less than 50 %");
}
