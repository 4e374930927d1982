//! Callers of ShouldRateLimit of a divided rule, with a memory store.

use super::*;

/// Callers and an Envoy use one quota.
#[test]
fn callers_are_one_more_holder() {
    // A burst that is larger than the hits of one step of this test.
    let process = Process::new(RlqsConfig { burst_percent: 50, ..config() });
    assert_eq!(process.check("a", 1), LocalCheck::NotDivided);
    let mut stream = process.open(None);
    stream.report(&report("d", &[("tenant=a", 1)])).expect("valid");
    assert!(process.engine.any_divided().load(Ordering::Relaxed));
    process.settle();
    assert_eq!(newest(&mut stream)["tenant=a"], Got::Rate(100.0, 50));
    // Another value of the rule has its own quota, of which the callers get the whole at once.
    assert_eq!(process.passed("b", 80), 50);
    // The Envoy has to give room for the callers of its value. Their burst does not wait for that.
    assert_eq!(process.passed("a", 80), 25);
    let mut passed = 0;
    let mut rate = 0.0;
    for step in 0..240 {
        process.pass(250);
        if let LocalCheck::Decided(_) = process.check("a", 0) {
            passed += if step >= 120 { process.passed("a", 100) } else { process.passed("a", 25) };
        }
        if step % 20 == 0 {
            stream.report(&report("d", &[("tenant=a", 1_000)])).expect("valid");
        }
        if let Some(Got::Rate(new, _)) = newest(&mut stream).get("tenant=a") {
            rate = *new;
        }
        if step == 119 {
            passed = 0;
        }
    }
    // Both ask for more than the quota, so each has half of it: 50 per second for 30 s.
    assert!((rate - 50.0).abs() < 5.0, "{rate}");
    assert!((1_350..=1_650).contains(&passed), "{passed}");
    assert_eq!(process.engine.metrics().violations.get(), 0);
    // Without Envoys the counter decides again.
    drop(stream);
    process.pass(20_000);
    assert_eq!(process.check("a", 1), LocalCheck::NotDivided);
    assert_eq!(process.engine.metrics().quotas.get(), 0);
    assert_eq!(process.engine.metrics().local_holders.get(), 0);
}

/// A value without room for a share is decided by its counter, and not by `on_error`.
#[test]
fn local_holders_are_bounded() {
    let process = Process::new(config());
    let mut stream = process.open(None);
    stream.report(&report("d", &[("tenant=a", 1)])).expect("valid");
    let checks: Vec<LocalCheck> =
        (0..20).map(|number| process.check(&number.to_string(), 1)).collect();
    assert!(checks[..10].iter().all(|check| matches!(check, LocalCheck::Decided(_))));
    assert_eq!(checks[10..], [LocalCheck::NotDivided; 10]);
    assert_eq!(process.engine.metrics().refused(RefusedReason::LocalHolders), 10);
}

/// A call that began with the rules before a reload does not bring their limit back for long.
#[test]
fn a_late_call_does_not_restore_an_old_limit() {
    let process = Process::new(config());
    let mut stream = process.open(None);
    stream.report(&report("d", &[("tenant=a", 1)])).expect("valid");
    process.settle();
    let old = process.rules.rules.lock().expect("no panic").clone();
    process.reload("  - {key: tenant, rate_limit: {unit: second, requests_per_unit: 200}}");
    process.settle();
    let requests = || process.engine.shown(1).quotas[0].requests;
    assert_eq!(requests(), 200);
    let entries = [Entry { key: "tenant", value: "a" }];
    let Found::Rule(rule) = old.find("d", &entries) else { panic!("no rule") };
    let RuleLimit::Limit(limit) = &rule.limit else { panic!("no limit") };
    let key = process.counter("a");
    process.engine.check(rule, limit, &key, 1, process.clock.now());
    assert_eq!(requests(), 100, "the call had the old rules");
    process.settle();
    assert_eq!(requests(), 200);
}
