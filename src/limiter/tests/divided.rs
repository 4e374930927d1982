//! Tests of rules that the quota service divides: the share of this instance decides their hits.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use super::changes::with_changes;
use super::*;
use crate::decision::Decision;
use crate::key::CounterKey;
use crate::limit::{Override, Unit};
use crate::rules::Rule;
use crate::testing::lock;
use futures_util::future::FutureExt;

/// The hits that a share has saved up, for each counter.
const SAVED: i64 = 3;

/// Shares of the rules with the names `rules`, which never refill.
struct FakeShares {
    rules: &'static [&'static str],
    any: Arc<AtomicBool>,
    left: Mutex<HashMap<CounterKey, i64>>,
    /// The result in place of a decision.
    instead: Mutex<Option<DividedResult>>,
    /// The hits of each check that was asked for.
    asked: Mutex<Vec<i64>>,
    /// The hits of each charge.
    charged: Mutex<Vec<i64>>,
}

impl FakeShares {
    fn of(rules: &'static [&'static str]) -> Arc<FakeShares> {
        Arc::new(FakeShares {
            rules,
            any: Arc::new(AtomicBool::new(true)),
            left: Mutex::default(),
            instead: Mutex::default(),
            asked: Mutex::default(),
            charged: Mutex::default(),
        })
    }

    fn set_instead(&self, instead: Option<DividedResult>) {
        *lock(&self.instead) = instead;
    }

    /// The hits of the checks since the last time that this was called.
    fn take_asked(&self) -> Vec<i64> {
        std::mem::take(&mut *lock(&self.asked))
    }

    /// The hits of the charges since the last time that this was called.
    fn take_charged(&self) -> Vec<i64> {
        std::mem::take(&mut *lock(&self.charged))
    }
}

impl DividedRules for FakeShares {
    fn check(&self, check: &DividedCheck<'_>) -> DividedResult {
        lock(&self.asked).push(check.hits);
        assert_eq!(check.now, NOW);
        if !self.rules.contains(&&*check.rule.display_name) {
            return DividedResult::NotDivided;
        }
        if let Some(instead) = *lock(&self.instead) {
            return instead;
        }
        let mut counters = lock(&self.left);
        let left = counters.entry(*check.key).or_insert(SAVED);
        let allowed = check.hits <= *left;
        if allowed {
            *left = (*left - check.hits).min(SAVED);
        }
        DividedResult::Decided(Decision {
            allowed,
            tier: 0,
            limit: check.limit.tiers[0].requests,
            remaining: left.unsigned_abs(),
            used: (SAVED - *left).unsigned_abs(),
            reset_after: Micros::from_secs(2),
        })
    }

    fn divides(&self, rule: &Rule) -> bool {
        self.rules.contains(&&*rule.display_name)
    }

    fn charge(&self, check: &DividedCheck<'_>) {
        assert_eq!(check.now, NOW);
        lock(&self.charged).push(check.hits);
    }
}

/// Rules `a` to `c` of 100 hits per minute, and rules of every other kind.
const RULES: &str = "
  - {key: a, rate_limit: {unit: minute, requests_per_unit: 100}}
  - {key: b, rate_limit: {unit: minute, requests_per_unit: 100}}
  - {key: s, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 100}}
  - {key: q1, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 100}}
  - {key: q2, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 100}}
  - {key: one, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: slots, rate_limit: {algorithm: concurrency, max: 100, hold: 30s}}
  - {key: new, rate_limit: {name: new, replaces: [{name: old}], unit: day, requests_per_unit: 100}}
  - {key: old, rate_limit: {name: old, unit: day, requests_per_unit: 100}}
  - {key: deny, rate_limit: {unit: minute, requests_per_unit: 100, on_error: deny}}
  - {key: cost, rate_limit: {unit: minute, requests_per_unit: 100, cost: 2}}
  - {key: w, rate_limit: {unit: minute, requests_per_unit: 100, shadow: {requests: 1}}}
";

const ALL: &[&str] = &["a", "b", "s", "q1", "q2", "one", "slots", "new", "old", "deny", "cost"];

/// A bench over memory with these shares.
fn bench(shares: &Arc<FakeShares>, config: ResponseSettings) -> Bench {
    let Bench { rules, limiter } = Bench::new(RULES, config);
    Bench { rules, limiter: limiter.with_divided(shares.any.clone(), shares.clone()) }
}

/// A descriptor with `hits`; negative hits are given back.
fn descriptor<'a>(entries: &'a [Entry<'a>], hits: i64) -> Descriptor<'a> {
    let is_negative_hits = hits < 0;
    Descriptor { entries, limit: None, hits_addend: Some(hits.unsigned_abs()), is_negative_hits }
}

/// Checks `hits` on each key.
fn check_hits(bench: &Bench, hits: &[(&str, i64)]) -> Verdict {
    let entries: Vec<[Entry<'_>; 1]> =
        hits.iter().map(|&(key, _)| [Entry { key, value: "" }]).collect();
    let descriptors: Vec<Descriptor<'_>> =
        entries.iter().zip(hits).map(|(entries, (_, hits))| descriptor(entries, *hits)).collect();
    bench.check(&with(&descriptors))
}

fn codes(verdict: &Verdict) -> Vec<Code> {
    verdict.statuses.iter().map(|status| status.code).collect()
}

fn remaining(verdict: &Verdict) -> Vec<u64> {
    verdict.statuses.iter().map(|status| status.remaining).collect()
}

const OK: Code = Code::Ok;
const OVER: Code = Code::OverLimit;

#[test]
fn nothing_is_asked_while_no_rule_is_divided() {
    let shares = FakeShares::of(ALL);
    shares.any.store(false, Ordering::Relaxed);
    let bench = bench(&shares, ResponseSettings::default());
    assert_eq!(remaining(&check_hits(&bench, &[("a", 1)])), [99]);
    assert!(shares.take_asked().is_empty());
    shares.any.store(true, Ordering::Relaxed);
    assert_eq!(remaining(&check_hits(&bench, &[("a", 1)])), [2], "from the next request on");
    shares.any.store(false, Ordering::Relaxed);
    assert_eq!(remaining(&check_hits(&bench, &[("a", 0)])), [99], "the share counted that hit");
}

#[test]
fn a_share_decides_hits_peeks_and_refunds() {
    let shares = FakeShares::of(&["a"]);
    let bench = bench(&shares, ResponseSettings::default());
    // (hits, code, remaining)
    let table =
        [(2, OK, 1), (2, OVER, 1), (0, OK, 1), (-1, OK, 2), (2, OK, 0), (0, OK, 0), (1, OVER, 0)];
    for (hits, code, left) in table {
        let verdict = check_hits(&bench, &[("a", hits)]);
        assert_eq!((verdict.code, remaining(&verdict)), (code, vec![left]), "{hits}");
        assert_eq!(shares.take_asked(), [hits]);
        let DecisionReason::Counted { hits: counted, .. } = verdict.statuses[0].reason else {
            panic!("{:?}", verdict.statuses)
        };
        assert_eq!(counted, hits);
    }
}

#[test]
fn each_descriptor_has_a_share_or_its_counter() {
    let shares = FakeShares::of(&["a"]);
    let bench = bench(&shares, ResponseSettings::default());
    let verdict = check_hits(&bench, &[("a", 3), ("b", 5), ("none", 1), ("a", 1)]);
    assert_eq!(codes(&verdict), [OK, OK, OK, OVER]);
    assert_eq!(remaining(&verdict), [0, 95, 0, 0]);
    assert_eq!(shares.take_asked(), [3, 5, 1], "a descriptor without a rule has no share");
}

/// The share decides in place of the limit, and the what-if limit has its counter.
#[test]
fn a_what_if_limit_is_not_divided() {
    let shares = FakeShares::of(&["w"]);
    let bench = bench(&shares, ResponseSettings::default());
    for denied in [false, true] {
        let verdict = check_hits(&bench, &[("w", 1)]);
        assert_eq!((verdict.code, verdict.what_if[0].denied), (OK, denied));
        assert_eq!(shares.take_asked(), [1], "for the limit only");
    }
}

#[test]
fn only_divisible_rules_are_asked() {
    let shares = FakeShares::of(ALL);
    let bench = bench(&shares, ResponseSettings::default());
    let verdict = check_hits(&bench, &[("slots", 1), ("cost", 1)]);
    assert_eq!(remaining(&verdict), [99, 98], "their counters decide");
    assert!(shares.take_asked().is_empty());
    check_hits(&bench, &[("new", 1), ("old", 1)]);
    assert_eq!(shares.take_asked(), [1], "a replaced rule counts nothing");
    let entries = [Entry { key: "a", value: "" }];
    let sent = Override { requests_per_unit: 7, unit: Unit::Minute };
    let sent = Descriptor { limit: Some(sent), ..descriptor(&entries, 1) };
    assert_eq!(remaining(&bench.check(&with(&[sent]))), [6], "a limit of the request");
    assert!(shares.take_asked().is_empty());
}

/// Shares are parts of the rule's own limit.
#[test]
fn the_counter_decides_under_a_changed_limit() {
    let shares = FakeShares::of(ALL);
    let divided = bench(&shares, ResponseSettings::default());
    let changed = with_changes(divided, &[("a", r#""limit":200"#)]);
    assert_eq!(remaining(&check_hits(&changed, &[("a", 1), ("b", 1)])), [199, 2]);
    assert_eq!(shares.take_asked(), [1]);
}

#[test]
fn shadow_and_quota_mode_hold_for_shares() {
    let shares = FakeShares::of(ALL);
    let bench = bench(&shares, ResponseSettings::default());
    let verdict = check_hits(&bench, &[("s", 4)]);
    assert_eq!((verdict.code, codes(&verdict)), (OK, vec![OK]));
    let DecisionReason::Counted { decision, shadow: true, .. } = verdict.statuses[0].reason else {
        panic!("{:?}", verdict.statuses)
    };
    assert!(!decision.allowed);
    let verdict = check_hits(&bench, &[("q1", 4), ("q2", 1)]);
    assert_eq!((verdict.code, codes(&verdict)), (OK, vec![OVER, OK]));
    assert_eq!(check_hits(&bench, &[("q1", 4), ("q2", 4)]).code, OVER);
}

/// The order of limits compares the hits that a share has saved up with the most that it can save.
#[test]
fn headers_report_the_share() {
    let headers = LimitHeaders::Both;
    let config = ResponseSettings { headers, decision_header: true, ..Default::default() };
    let bench = bench(&FakeShares::of(&["a"]), config);
    let verdict = check_hits(&bench, &[("a", 1), ("b", 50)]);
    assert_eq!(header(&verdict, "x-ratelimit-limit"), Some("100, 100;w=60, 100;w=60"));
    assert_eq!(header(&verdict, "x-ratelimit-remaining"), Some("50"), "2 of 3 are more than 50 %");
    assert_eq!(header(&verdict, "ratelimit"), Some("\"b\";r=50;t=40, \"a\";r=2;t=2"));
    let how = "rule=a;mode=divided;fallback=none, rule=b;mode=exact;fallback=none";
    assert_eq!(header(&verdict, "x-weir-decision"), Some(how));
    let denied = check_hits(&bench, &[("a", 3)]);
    assert_eq!(header(&denied, "retry-after"), Some("2"));
}

#[test]
fn a_denied_request_gives_hits_back_to_the_share() {
    let shares = FakeShares::of(&["a", "s"]);
    let options = Options { denied_requests: DeniedRequests::Free, ..Options::default() };
    let Bench { rules, limiter } = Bench::with(RULES, ResponseSettings::default(), &options);
    let bench = Bench { rules, limiter: limiter.with_divided(shares.any.clone(), shares.clone()) };
    check_hits(&bench, &[("one", 1)]);
    shares.take_asked();
    let verdict = check_hits(&bench, &[("a", 2), ("one", 1), ("s", 4)]);
    assert_eq!(codes(&verdict), [OK, OVER, OK]);
    // The shadow rule passed hits that its share did not take.
    assert_eq!(shares.take_asked(), [2, 1, 4, -2]);
    assert_eq!(remaining(&check_hits(&bench, &[("a", 0), ("s", 0)])), [3, 3]);
}

/// The counter decides until this instance has a share, and what it allows is charged to the share.
#[test]
fn the_counter_decides_before_the_first_share() {
    let shares = FakeShares::of(ALL);
    let bench = bench(&shares, ResponseSettings { decision_header: true, ..Default::default() });
    shares.set_instead(Some(DividedResult::ByCounter));
    let verdict = check_hits(&bench, &[("one", 1), ("a", 5), ("none", 1)]);
    assert_eq!((codes(&verdict), remaining(&verdict)), (vec![OK; 3], vec![0, 95, 0]));
    assert_eq!(shares.take_charged(), [1, 5]);
    let how = header(&verdict, "x-weir-decision").expect("switched on");
    assert!(how.starts_with("rule=one;mode=exact;fallback=none"), "{how}");
    assert_eq!(codes(&check_hits(&bench, &[("one", 1), ("a", -2)])), [OVER, OK]);
    assert_eq!(shares.take_charged(), [-2], "a denied hit is no debt");
    shares.set_instead(None);
    assert_eq!(remaining(&check_hits(&bench, &[("a", 1)])), [2]);
    assert!(shares.take_charged().is_empty());
}

/// What the counter gives back is no debt of the share.
#[test]
fn a_denied_request_gives_a_charge_back() {
    let shares = FakeShares::of(&["a"]);
    let options = Options { denied_requests: DeniedRequests::Free, ..Options::default() };
    let Bench { rules, limiter } = Bench::with(RULES, ResponseSettings::default(), &options);
    let bench = Bench { rules, limiter: limiter.with_divided(shares.any.clone(), shares.clone()) };
    shares.set_instead(Some(DividedResult::ByCounter));
    check_hits(&bench, &[("one", 1)]);
    let verdict = check_hits(&bench, &[("a", 2), ("one", 1)]);
    assert_eq!(codes(&verdict), [OK, OVER]);
    assert_eq!(shares.take_charged(), [2, -2]);
    assert_eq!(remaining(&check_hits(&bench, &[("a", 0)])), [100]);
}

/// With counters in Redis as well, also while Redis fails: then `on_error` decides, and nothing is charged.
#[test]
fn a_call_before_the_first_share_does_not_wait() {
    let shares = FakeShares::of(ALL);
    let rules = bench(&shares, Default::default()).rules;
    let limiter = Limiter::new(
        Backend::Redis(Modes::new(FakeStore::new())),
        KeySeed::fixed([1, 2]),
        Default::default(),
    );
    let limiter = limiter.with_divided(shares.any.clone(), shares.clone());
    let entries = ["a", "deny"].map(|key| [Entry { key, value: "" }]);
    let descriptors = entries.each_ref().map(|entries| descriptor(entries, 1));
    let check = || {
        let verdict = limiter.check(&rules, &with(&descriptors), NOW).now_or_never();
        verdict.expect("a fake store answers at once")
    };
    shares.set_instead(Some(DividedResult::ByCounter));
    assert_eq!(remaining(&check()), [99, 99]);
    assert_eq!(shares.take_charged(), [1, 1]);
    let store = limiter.backend().shared_store().expect("Redis");
    store.set_reachable(false);
    assert_eq!(codes(&check()), [OK, OVER]);
    assert!(shares.take_charged().is_empty());
    store.set_reachable(true);
    shares.set_instead(None);
    store.take_calls();
    assert_eq!(remaining(&check()), [2, 2]);
    assert_eq!(store.take_calls(), 0, "a share needs no call");
}

/// A trial reads the counter. It takes nothing from a share.
#[test]
fn a_trial_says_that_a_share_decides() {
    let shares = FakeShares::of(&["a", "slots"]);
    let is_divided = |bench: &Bench, key: &str| {
        let entries = [Entry { key, value: "x" }];
        let descriptors = [descriptor(&entries, 1)];
        let request = with(&descriptors);
        let tried = bench.limiter.try_request(&bench.rules, &request, None, NOW);
        tried.now_or_never().expect("memory does not wait").descriptors[0].is_divided
    };
    let unchanged = bench(&shares, ResponseSettings::default());
    for (key, expected) in [("a", true), ("b", false), ("slots", false), ("none", false)] {
        assert_eq!(is_divided(&unchanged, key), expected, "{key}");
    }
    let changed = with_changes(unchanged, &[("a", r#""limit":9"#)]);
    assert!(!is_divided(&changed, "a"), "the counter decides under a changed limit");
    let unchanged = bench(&shares, ResponseSettings::default());
    shares.any.store(false, Ordering::Relaxed);
    assert!(!is_divided(&unchanged, "a"));
    assert!(shares.take_asked().is_empty());
}
