//! Tests of temporary changes: they decide in place of the counter, or with its counter.

use futures_util::future::FutureExt;

use super::leases::{deliver, lease};
use super::*;
use crate::changes::{ChangeRegistry, ChangeRequest, CurrentChanges, RulesNow};
use crate::descriptor::RequestBounds;
use crate::limit::{Override, Unit};

const RULES: &str = "
  - {key: r, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: q1, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: q2, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: s, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: u, rate_limit: {unlimited: true}}
  - {key: new, rate_limit: {name: new, replaces: [{name: old}], unit: day, requests_per_unit: 9}}
  - {key: old, rate_limit: {name: old, unit: day, requests_per_unit: 9}}
  - {key: slots, rate_limit: {algorithm: concurrency, max: 1, hold: 30s}}
  - {key: log, rate_limit: {algorithm: sliding_window_log, unit: minute, requests_per_unit: 9}}
";

const BOUNDS: RequestBounds =
    RequestBounds { max_descriptors: 8, max_entries: 4, max_text_bytes: 100 };

const OK: Code = Code::Ok;
const OVER: Code = Code::OverLimit;

fn unchanged() -> Bench {
    let config = ResponseSettings {
        decision_header: true,
        headers: LimitHeaders::XRateLimit,
        ..ResponseSettings::default()
    };
    Bench::new(RULES, config)
}

/// `bench` and its counters, with changes for 30 s: each a target and an action, as in a body of JSON.
pub(super) fn with_changes(bench: Bench, changes: &[(&str, &str)]) -> Bench {
    let Bench { rules, limiter } = bench;
    let current = Arc::<CurrentChanges>::default();
    let mut registry = ChangeRegistry::new(current.clone(), None);
    for (target, action) in changes {
        let kind = if target.contains('=') { "descriptor" } else { "rule" };
        let body = format!(r#"{{"domain":"d","{kind}":"{target}",{action},"for":"30s"}}"#);
        let request = ChangeRequest::from_json(body.as_bytes()).expect("a request");
        let now = RulesNow { version: 0, rules: &rules };
        let made = registry.make(request, "ann", &BOUNDS, NOW, now).now_or_never();
        made.expect("memory does not wait").expect("a change");
    }
    Bench { rules, limiter: limiter.with_changes(current) }
}

fn changed(changes: &[(&str, &str)]) -> Bench {
    with_changes(unchanged(), changes)
}

const BLOCK: &str = r#""block":true"#;
const BYPASS: &str = r#""bypass":true"#;

impl Bench {
    /// Checks `hits` on descriptors of one entry each, `seconds` after [`NOW`].
    fn hits_at(&self, seconds: u64, hits: &[(&str, i64)]) -> Verdict {
        let entries: Vec<[Entry<'_>; 1]> =
            hits.iter().map(|&(key, _)| [Entry { key, value: "x" }]).collect();
        let descriptors = entries.iter().zip(hits).map(|(entries, (_, hits))| Descriptor {
            entries,
            limit: None,
            hits_addend: Some(hits.unsigned_abs()),
            is_negative_hits: *hits < 0,
        });
        let descriptors: Vec<Descriptor<'_>> = descriptors.collect();
        let at = NOW.saturating_add(Micros::from_secs(seconds));
        let request = with(&descriptors);
        let verdict = self.limiter.check(&self.rules, &request, at).now_or_never();
        verdict.expect("memory does not wait")
    }

    /// The used hits of the counter of `key`.
    fn used(&self, key: &str) -> u64 {
        let entries = [Entry { key, value: "x" }];
        let counter = self.limiter.counter(&self.rules, "d", &entries).expect("a counter");
        let tiers = self.limiter.inspect(&counter, NOW).now_or_never();
        tiers.expect("memory does not wait").expect("no error")[0].used
    }
}

#[test]
fn a_block_denies_until_its_end_without_a_count() {
    for target in ["r", "r=x"] {
        let bench = changed(&[(target, BLOCK)]);
        for hits in [1, 3, 0] {
            let denied = bench.hits_at(10, &[("r", hits)]);
            let status = &denied.statuses[0];
            assert_eq!((denied.code, status.code), (OVER, OVER), "{hits}");
            assert_eq!((&status.limit, status.remaining), (&None, 0), "no counter decided");
            assert_eq!(status.reset_after, Some(Micros::from_secs(20)));
            assert_eq!(status.reason, DecisionReason::Blocked { rule: Some(0), hits });
            assert_eq!(header(&denied, "retry-after"), Some("20"));
            assert_eq!(header(&denied, "x-ratelimit-limit"), None);
            let how = header(&denied, "x-weir-decision");
            assert_eq!(how, Some("rule=r;mode=exact;fallback=none;change=block"));
        }
        assert_eq!(bench.used("r"), 0);
        let passed = bench.hits_at(30, &[("r", 1)]);
        assert_eq!(passed.code, OK, "it is over");
        let how = header(&passed, "x-weir-decision");
        assert_eq!(how, Some("rule=r;mode=exact;fallback=none"));
    }
}

#[test]
fn a_bypass_lets_hits_pass_without_a_count() {
    let bench = changed(&[("r", BYPASS)]);
    for _ in 0..5 {
        let passed = bench.hits_at(0, &[("r", 7)]);
        assert_eq!(passed.code, OK);
        assert_eq!(passed.statuses[0].reason, DecisionReason::Bypassed { rule: Some(0) });
        assert!(
            header(&passed, "x-weir-decision").is_some_and(|how| how.ends_with("change=bypass"))
        );
    }
    bench.hits_at(0, &[("r", -1)]);
    assert_eq!(bench.used("r"), 0);
    bench.hits_at(0, &[("log", 9)]);
    assert_eq!(bench.hits_at(0, &[("r", 1), ("log", 1)]).code, OVER, "the other one denies");
    assert_eq!(
        [bench.hits_at(30, &[("r", 1)]).code, bench.hits_at(30, &[("r", 1)]).code],
        [OK, OVER]
    );
}

#[test]
fn a_changed_limit_keeps_the_count() {
    let bench = changed(&[("r", r#""limit":3"#)]);
    let hit = |seconds| bench.hits_at(seconds, &[("r", 1)]);
    assert_eq!([hit(0).code, hit(0).code], [OK, OK]);
    let third = hit(0);
    assert_eq!(header(&third, "x-ratelimit-limit"), Some("3, 3;w=60"));
    assert_eq!(header(&third, "x-ratelimit-remaining"), Some("0"));
    let how = header(&third, "x-weir-decision");
    assert_eq!(how, Some("rule=r;mode=exact;fallback=none;change=limit"));
    assert_eq!((third.code, hit(0).code), (OK, OVER));
    let after = hit(30);
    assert_eq!(after.code, OVER, "the window has four hits, more than the rule allows");
    assert_eq!(header(&after, "x-ratelimit-limit"), Some("1, 1;w=60"));
    assert_eq!(hit(40).code, OK, "the next window");
    let lowered = changed(&[("log=x", r#""limit":0"#)]);
    assert_eq!(lowered.hits_at(0, &[("log", 1)]).code, OVER);
    assert_eq!(lowered.hits_at(30, &[("log", 9)]).code, OK);
}

#[test]
fn a_block_needs_no_rule() {
    let bench = changed(&[("none=x", BLOCK), ("u=x", BLOCK)]);
    let denied = bench.hits_at(0, &[("none", 1)]);
    assert_eq!(denied.statuses[0].reason, DecisionReason::Blocked { rule: None, hits: 1 });
    assert_eq!(denied.code, OVER);
    assert_eq!(bench.hits_at(0, &[("u", 1)]).code, OVER, "an unlimited rule");
    assert_eq!(bench.hit(&[("none", "y")]).code, OK);
}

/// A limit of the request replaces that of the rule, changed or not. A block wins.
#[test]
fn a_limit_of_the_request_is_not_changed() {
    let entries = [Entry { key: "r", value: "x" }];
    let sent = Override { requests_per_unit: 1, unit: Unit::Minute };
    let (hits_addend, is_negative_hits) = (None, false);
    let descriptor =
        Descriptor { entries: &entries, limit: Some(sent), hits_addend, is_negative_hits };
    let raised = changed(&[("r", r#""limit":3"#)]);
    let codes = [(); 2].map(|()| raised.check(&with(&[descriptor])).code);
    assert_eq!(codes, [OK, OVER]);
    let blocked = changed(&[("r", BLOCK)]);
    assert_eq!(blocked.check(&with(&[descriptor])).code, OVER);
}

#[test]
fn changes_hold_in_shadow_and_quota_mode() {
    let bench = changed(&[("s", BLOCK), ("q1", BLOCK)]);
    assert_eq!(bench.hits_at(0, &[("s", 1)]).code, OVER, "an operator means it");
    assert_eq!(bench.hits_at(0, &[("q1", 1), ("q2", 1)]).code, OVER, "q2 has room");
    let bench = changed(&[("q1", BYPASS)]);
    assert_eq!(bench.hits_at(0, &[("q1", 1), ("q2", 1)]).code, OK);
    let full = bench.hits_at(0, &[("q1", 1), ("q2", 1)]);
    assert_eq!(full.code, OVER, "the bypassed rule has no part in it");
}

#[test]
fn a_block_holds_for_a_replaced_rule() {
    let bench = changed(&[("old", BLOCK)]);
    assert_eq!(bench.hits_at(0, &[("new", 1), ("old", 1)]).code, OVER);
    let bench = changed(&[("new", BLOCK)]);
    let denied = bench.hits_at(0, &[("new", 1), ("old", 1)]);
    assert_eq!(denied.statuses[1].reason, DecisionReason::Replaced(6), "a block replaces too");
}

#[test]
fn a_bypassed_rule_replaces_none() {
    for target in ["new", "new=x"] {
        let bench = changed(&[(target, BYPASS)]);
        let codes = [9, 1].map(|hits| bench.hits_at(0, &[("new", hits), ("old", hits)]).code);
        assert_eq!(codes, [OK, OVER], "{target}: the other rule limits");
        assert_eq!(bench.used("new"), 0);
        let after = bench.hits_at(30, &[("new", 1), ("old", 1)]);
        assert_eq!(after.statuses[1].reason, DecisionReason::Replaced(6), "{target}");
    }
}

#[test]
fn hits_are_given_back_during_a_change() {
    for (target, action, code) in
        [("log=x", BLOCK, OVER), ("log=x", BYPASS, OK), ("log", BYPASS, OK)]
    {
        let bench = unchanged();
        bench.hits_at(0, &[("log", 5)]);
        let bench = with_changes(bench, &[(target, action)]);
        assert_eq!(bench.hits_at(0, &[("log", 1)]).code, code);
        assert_eq!(bench.hits_at(0, &[("log", -2)]).code, OK);
        assert_eq!(bench.used("log"), 3, "{target} {action}");
    }
}

/// A release of a slot must never be lost.
#[test]
fn a_lease_is_closed_during_a_block() {
    let bench = unchanged();
    let opened = bench.hits_at(0, &[("slots", 1)]);
    let metadata = opened.metadata.as_ref().expect("a lease");
    let id = metadata["lease"]["id"].as_str().expect("its id").to_owned();
    opened.rollback.expect("a lease").commit();
    assert_eq!(bench.used("slots"), 1);
    let bench = with_changes(bench, &[("slots", BLOCK)]);
    let entries = [Entry { key: "slots", value: "x" }, Entry { key: "lease", value: &id }];
    let (limit, hits_addend) = (None, Some(1));
    let close = Descriptor { entries: &entries, limit, hits_addend, is_negative_hits: true };
    assert_eq!(bench.check(&with(&[close])).code, OK);
    assert_eq!(bench.used("slots"), 0);
    assert_eq!(bench.hits_at(0, &[("slots", 1)]).code, OVER, "no new one is opened");
}

/// Both descriptors have one counter and one lease, and only the second one has reserved.
#[test]
fn a_bypassed_descriptor_settles_nothing() {
    const RULES: &str = "
  - key: user
    descriptors:
      - key: model
        value: \"*\"
        share_threshold: true
        rate_limit: {requests: 1000, window: 1h, reserve: {hold: 10m}}
";
    const SLOTS: &str = "
  - {key: slots, rate_limit: {algorithm: concurrency, max: 1, hold: 30s}}
";
    let bench = Bench::new(RULES, ResponseSettings::default());
    let bench = with_changes(bench, &[("user=a,model=house", BYPASS)]);
    for swapped in [false, true] {
        let model = |model, hits| ([("user", "a"), ("model", model)], hits);
        let opened = [model("house", 50), model("other", 200)];
        let opened = opened.each_ref().map(|(entries, hits)| (&entries[..], *hits));
        let reserved = deliver(bench.send(&opened));
        let (id, n) = lease(&reserved).expect("a reservation");
        assert_eq!(n, 200);
        let closed =
            ["house", "other"].map(|model| [("user", "a"), ("model", model), ("lease", &*id)]);
        let mut settlement = [(&closed[0][..], 0), (&closed[1][..], 70)];
        if swapped {
            settlement.reverse();
        }
        let settled = bench.send(&settlement);
        assert_eq!(settled.code, OK);
        let passed = &settled.statuses[usize::from(swapped)].reason;
        assert!(matches!(passed, DecisionReason::Bypassed { rule: Some(_) }), "{passed:?}");
        let peek = bench.send(&[(&[("user", "a"), ("model", "other")], 0)]);
        assert_eq!(peek.statuses[0].remaining, if swapped { 860 } else { 930 });
    }
    let bench = Bench::new(SLOTS, ResponseSettings::default());
    let opened = deliver(bench.send(&[(&[("slots", "")], 1)]));
    let (id, _) = lease(&opened).expect("a slot");
    let bench = with_changes(bench, &[("slots", BYPASS)]);
    assert_eq!(bench.send(&[(&[("slots", ""), ("lease", &id)], -1)]).code, OK);
    let Bench { rules, limiter } = bench;
    let bench = Bench { rules, limiter: limiter.with_changes(Arc::default()) };
    assert_eq!(bench.left("slots"), 1, "a slot is always released");
}
