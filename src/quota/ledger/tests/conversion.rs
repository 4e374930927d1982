//! Tests of a quota whose limit changes.

use proptest::prelude::*;

use super::*;

fn settle_at(ledger: &mut Ledger, rate: (u64, Micros), changes: Vec<Change>) -> LedgerSnapshot {
    let (requests, window) = rate;
    ledger.settle(&Settlement { now: at(0), requests, window, grace: GRACE, changes })
}

/// A ledger in which holder 1 has `share`, and `old` until the grace of its lowering ends.
fn ledger_with(rate: (u64, Micros), share: u64, old: u64) -> Ledger {
    let mut ledger = Ledger::default();
    let lowered = Change { share, held: old, ..change(1, 0, at(0)) };
    settle_at(&mut ledger, rate, vec![lowered]);
    ledger
}

fn per_second(requests: u64) -> (u64, Micros) {
    (requests, Micros::SECOND)
}

#[test]
fn a_changed_limit_converts_the_shares() {
    let percent = SHARES / 100;
    let minute = |requests| (requests, Micros::from_secs(60));
    // The rates, the share before, the share after.
    let cases = [
        (per_second(100), per_second(100), 30 * percent, 30 * percent),
        // Equal rates of other numbers.
        (per_second(100), minute(6_000), 30 * percent, 30 * percent),
        (per_second(100), (100_000_000, Micros::from_secs(1_000_000)), 7, 7),
        // Twice the limit: half the share, and one for what doubles may lose.
        (per_second(100), per_second(200), 30 * percent, 15 * percent + 1),
        (per_second(100), minute(12_000), 30 * percent, 15 * percent + 1),
        // Half the limit.
        (per_second(100), per_second(50), 30 * percent, 60 * percent + 1),
        (per_second(100), per_second(50), 80 * percent, 160 * percent + 1),
        // Hardly any change.
        (per_second(1_000_000_000), per_second(1_000_000_001), 30 * percent, 30 * percent),
        (per_second(1_000_000_000), per_second(1_000_000_001), 1, 1),
        (per_second(100), per_second(200), 0, 0),
        (per_second(100), per_second(50), 0, 0),
        (per_second(1_000_000), per_second(1), SHARES, HELD_MAX),
        // A limit of 0 has no parts.
        (per_second(100), per_second(0), 30 * percent, 30 * percent),
    ];
    for (from, to, before, after) in cases {
        let mut ledger = ledger_with(from, before, before);
        let snapshot = settle_at(&mut ledger, to, vec![]);
        assert_eq!(snapshot.holdings[0].1.share, after, "{before} from {from:?} to {to:?}");
    }
}

/// Neither the old share nor an instance with the old rules is forgotten.
#[test]
fn old_shares_are_converted_too() {
    let percent = SHARES / 100;
    let mut ledger = ledger_with(per_second(100), 10 * percent, 40 * percent);
    let snapshot = settle_at(&mut ledger, per_second(50), vec![]);
    let holding = snapshot.holdings[0].1;
    assert_eq!((holding.share, holding.old_share), (20 * percent + 1, 80 * percent + 1));
    // 80 % are in use, so another holder gets the rest.
    let snapshot = settle_at(&mut ledger, per_second(50), vec![change(2, 50, at(0))]);
    assert_eq!(snapshot.holdings[1].1.share, 20 * percent - 1);
}

/// A limit of 0 in between does not make the shares of before smaller.
#[test]
fn a_limit_of_zero_forgets_nothing() {
    let mut ledger = ledger_with(per_second(100), SHARES / 2, SHARES / 2);
    settle_at(&mut ledger, per_second(0), vec![]);
    settle_at(&mut ledger, (100, Micros::ZERO), vec![]);
    let snapshot = settle_at(&mut ledger, per_second(50), vec![]);
    assert_eq!(snapshot.holdings[0].1.share, SHARES + 1);
    // The first limit of a ledger may be 0.
    let mut ledger = ledger_with(per_second(0), SHARES / 2, SHARES / 2);
    let snapshot = settle_at(&mut ledger, per_second(50), vec![]);
    assert_eq!(snapshot.holdings[0].1.share, SHARES / 2);
}

/// A limit that was lowered by more than the range: the share may stand for a larger one.
#[test]
fn the_largest_share_remains_until_lowered() {
    let mut ledger = ledger_with(per_second(1_000_000), SHARES, SHARES);
    settle_at(&mut ledger, per_second(1), vec![]);
    let snapshot = settle_at(&mut ledger, per_second(1_000_000), vec![]);
    assert_eq!(snapshot.holdings[0].1.share, HELD_MAX);
    let snapshot = settle_at(&mut ledger, per_second(1_000_000), vec![change(1, 40, at(0))]);
    let holding = snapshot.holdings[0].1;
    assert_eq!((holding.share, holding.old_share), (SHARES / 100 * 40, HELD_MAX));
}

/// The exception of the invariant: above the quota, holders are only lowered.
#[test]
fn a_lowered_limit_raises_no_share() {
    let mut ledger = Ledger::default();
    set(&mut ledger, at(0), &[(1, 60), (2, 40)]);
    // Half the limit: 120 % and 80 %.
    let half = |now, changes| Settlement { requests: 150, ..settlement(now, changes) };
    let snapshot = ledger.settle(&half(at(1_000), vec![change(2, 90, at(1_000))]));
    assert_eq!(shares(&snapshot), [120, 80]);
    let lowered = vec![change(1, 50, at(2_000)), change(2, 30, at(2_000))];
    let snapshot = ledger.settle(&half(at(2_000), lowered));
    assert_eq!(shares(&snapshot), [50, 30]);
    assert_eq!(snapshot.used(at(2_000)) / (SHARES / 100), 200);
    // Not even to its old share, which would keep the sum above the quota.
    let snapshot = ledger.settle(&half(at(2_100), vec![change(2, 80, at(2_100))]));
    assert_eq!(shares(&snapshot), [50, 30]);
    let snapshot = ledger.settle(&half(at(2_500), vec![change(2, 80, at(2_500))]));
    assert_eq!(shares(&snapshot), [50, 50]);
    assert_eq!(snapshot.used(at(2_500)), SHARES);
}

/// Rates of which an exact comparison fits into 128 bits.
fn rates() -> impl Strategy<Value = (u64, Micros)> {
    let requests = prop_oneof![1..100_u64, 1..10_000_000_u64, 1..1_u64 << 40];
    let window = prop_oneof![
        Just(Micros::SECOND),
        (1..90_000_u64).prop_map(Micros::from_secs),
        (1..1_u64 << 40).prop_map(Micros),
    ];
    (requests, window)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    /// Compared exactly: never below the true share, less than three above it, and not above the
    /// share before if the limit rises.
    #[test]
    fn conversions_round_up(from in rates(), to in rates(), share in 0..=SHARES) {
        let mut ledger = ledger_with(from, share, share);
        let converted = settle_at(&mut ledger, to, vec![]).holdings[0].1.share;
        let wide = |a: u64, b: u64, c: u64| u128::from(a) * u128::from(b) * u128::from(c);
        let before = wide(share, from.0, to.1.0);
        let one = wide(1, to.0, from.1.0);
        if converted < HELD_MAX {
            // Products that doubles cannot tell apart are equal rates: that is below one share.
            let slack = if converted == share { before >> 51 } else { 0 };
            prop_assert!(u128::from(converted) * one + slack >= before);
            prop_assert!(u128::from(converted) * one <= before + 3 * one);
        } else {
            prop_assert!(before >= u128::from(HELD_MAX - 3) * one);
        }
        if wide(1, to.0, from.1.0) >= wide(1, from.0, to.1.0) {
            prop_assert!(converted <= share);
        }
    }

    /// Instances with the old and with the new rules settle in turns: no share becomes smaller by
    /// that, and the loss of room is at most a few shares per turn.
    #[test]
    fn a_rolling_reload_loses_no_share(
        old in (1..100_000_u64).prop_map(per_second),
        new in (1..100_000_u64).prop_map(per_second),
        share in 0..=SHARES,
        turns in 1..20_u64,
    ) {
        let mut ledger = ledger_with(old, share, share);
        for _ in 0..turns {
            settle_at(&mut ledger, new, vec![]);
            settle_at(&mut ledger, old, vec![]);
        }
        let converted = settle_at(&mut ledger, old, vec![]).holdings[0].1.share;
        prop_assert!(converted >= share);
        if converted < HELD_MAX {
            let per_turn = 4 + 4 * new.0 / old.0;
            prop_assert!(converted <= share + turns * per_turn, "{converted} of {share}");
        }
    }
}
