//! A rule ceases to be divided, and is divided again.

use super::*;

/// What callers owe is left: the same hits at once are not allowed by each division.
#[test]
fn a_debt_outlives_a_division() {
    let process = Process::new(config());
    process.reload("  - {key: tenant, rate_limit: {unit: minute, requests_per_unit: 6000}}");
    process.settle();
    let allows = |hits| match process.check("b", hits) {
        LocalCheck::Decided(decision) => decision.allowed,
        other => panic!("{other:?}"),
    };
    for round in 0..3 {
        let mut stream = process.open(None);
        stream.report(&report("d", &[("tenant=a", 1)])).expect("valid");
        process.settle();
        // The whole limit at once, which a full bucket allows. Its debt takes 48 s.
        assert_eq!(allows(6_000), round == 0, "{round}");
        assert!(!allows(1));
        drop(stream);
        process.pass(20_000);
        assert_eq!(process.check("b", 1), LocalCheck::NotDivided);
        assert_eq!(process.engine.metrics().local_holders.get(), 0, "it has no share");
    }
    process.pass(10_000);
    assert_eq!(process.engine.metrics().quotas.get(), 0);
    let mut stream = process.open(None);
    stream.report(&report("d", &[("tenant=a", 1)])).expect("valid");
    process.settle();
    assert!(allows(6_000));
}
