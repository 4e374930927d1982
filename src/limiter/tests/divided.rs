//! Tests of rules that the quota service divides: the share of this instance decides their hits.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::FutureExt;
use tokio::sync::Notify;

use super::changes::with_changes;
use super::*;
use crate::decision::Decision;
use crate::key::CounterKey;
use crate::limit::{Override, Unit};
use crate::rules::Rule;
use crate::testing::lock;

/// The hits that a share has saved up, for each counter.
const SAVED: i64 = 3;

/// Shares of the rules with the names `rules`, which never refill.
struct FakeShares {
    rules: &'static [&'static str],
    any: Arc<AtomicBool>,
    left: Mutex<HashMap<CounterKey, i64>>,
    /// The result in place of a decision.
    instead: Mutex<Option<DividedResult>>,
    /// Ends a wait for the first share.
    joined: Notify,
    /// The hits of each check that was asked for.
    asked: Mutex<Vec<i64>>,
    waits: AtomicUsize,
}

impl FakeShares {
    fn of(rules: &'static [&'static str]) -> Arc<FakeShares> {
        Arc::new(FakeShares {
            rules,
            any: Arc::new(AtomicBool::new(true)),
            left: Mutex::default(),
            instead: Mutex::default(),
            joined: Notify::new(),
            asked: Mutex::default(),
            waits: AtomicUsize::new(0),
        })
    }

    fn set_instead(&self, instead: Option<DividedResult>) {
        *lock(&self.instead) = instead;
    }

    /// The hits of the checks since the last time that this was called.
    fn take_asked(&self) -> Vec<i64> {
        std::mem::take(&mut *lock(&self.asked))
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

    fn joined<'a>(&'a self, _: &'a CounterKey) -> BoxFuture<'a, Result<(), StoreError>> {
        self.waits.fetch_add(1, Ordering::Relaxed);
        async {
            self.joined.notified().await;
            Ok(())
        }
        .boxed()
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

#[test]
fn a_failed_share_leaves_the_decision_to_on_error() {
    let shares = FakeShares::of(ALL);
    let config = ResponseSettings { decision_header: true, ..Default::default() };
    let bench = bench(&shares, config);
    shares.set_instead(Some(DividedResult::Failed(StoreError::Unreachable)));
    let verdict = check_hits(&bench, &[("a", 1), ("deny", 1), ("deny", 0)]);
    assert_eq!(codes(&verdict), [OK, OVER, OK]);
    let how = header(&verdict, "x-weir-decision").expect("switched on");
    let cause = "cause=unreachable";
    assert!(how.starts_with(&format!("rule=a;mode=divided;fallback=allow;{cause}, ")), "{how}");
    assert!(how.ends_with(&format!("rule=deny;mode=divided;fallback=deny;{cause}")), "{how}");
}

/// A limiter over a Redis that must not be called.
fn over_redis(shares: &Arc<FakeShares>, timeout: Option<Duration>) -> Limiter<FakeStore> {
    let store = FakeStore::new().taking(Duration::ZERO, timeout);
    let limiter =
        Limiter::new(Backend::Redis(Modes::new(store)), KeySeed::fixed([1, 2]), Default::default());
    limiter.with_divided(shares.any.clone(), shares.clone())
}

#[tokio::test(start_paused = true)]
async fn the_first_share_is_awaited() {
    let shares = FakeShares::of(ALL);
    let (rules, limiter) = (bench(&shares, Default::default()).rules, over_redis(&shares, None));
    let entries = ["a", "deny"].map(|key| [Entry { key, value: "" }]);
    let descriptors = entries.each_ref().map(|entries| descriptor(entries, 1));
    for count in 1..=2 {
        let request = with(&descriptors[..count]);
        shares.set_instead(Some(DividedResult::Joining));
        let mut check = Box::pin(limiter.check(&rules, &request, NOW));
        assert!(check.as_mut().now_or_never().is_none(), "there is no share");
        shares.set_instead(None);
        shares.joined.notify_waiters();
        let verdict = check.now_or_never().expect("there is one");
        assert_eq!(codes(&verdict), vec![OK; count]);
        assert_eq!(remaining(&verdict)[0], 3 - count as u64);
    }
    let verdict = limiter.check(&rules, &with(&descriptors), NOW).now_or_never();
    assert_eq!(codes(&verdict.expect("no wait")), [OK, OK]);
    assert_eq!(shares.waits.load(Ordering::Relaxed), 3);
    let store = limiter.backend().shared_store().expect("Redis");
    assert_eq!(store.take_calls(), 0, "a share needs no call");
}

/// The shorter of the timeouts of the store and of the request ends the wait.
#[tokio::test(start_paused = true)]
async fn a_wait_for_a_share_ends_in_the_fallback() {
    let millis = |millis| Some(Duration::from_millis(millis));
    for (of_store, of_request, wait) in
        [(millis(10), None, 10), (millis(10), millis(4), 4), (None, millis(7), 7)]
    {
        let shares = FakeShares::of(ALL);
        let rules = bench(&shares, Default::default()).rules;
        let limiter = over_redis(&shares, of_store);
        shares.set_instead(Some(DividedResult::Joining));
        let entries = ["a", "deny"].map(|key| [Entry { key, value: "" }]);
        let descriptors = entries.each_ref().map(|entries| descriptor(entries, 1));
        let request = Request { timeout: of_request, ..with(&descriptors) };
        let start = tokio::time::Instant::now();
        let verdict = limiter.check(&rules, &request, NOW).await;
        assert_eq!(start.elapsed(), Duration::from_millis(wait));
        assert_eq!(codes(&verdict), [OK, OVER]);
        let DecisionReason::Fallback { error, .. } = verdict.statuses[0].reason else {
            panic!("{:?}", verdict.statuses)
        };
        assert_eq!(error, StoreError::Timeout);
    }
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
