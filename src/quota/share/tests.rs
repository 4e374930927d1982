//! Tests of shares and of the quota of a limit.

use proptest::prelude::*;

use super::*;
use crate::limit::{
    Algorithm, Calendar, HITS_END, Indivisible, Period, WINDOW_MAX, WindowStart, Zone,
};

const HOUR: Micros = Micros::from_secs(3_600);

/// Requests, window and burst.
type Numbers = (u64, Micros, u64);

/// A limit of tiers of these numbers.
fn limit(algorithm: Algorithm, tiers: &[Numbers]) -> Limit {
    let tier = |&(requests, window, burst)| Tier { requests, window, burst, calendar: None };
    Limit { algorithm, tiers: tiers.iter().map(tier).collect(), count_denied: false }
}

#[test]
fn the_quota_of_a_limit_is_its_tightest_tier() {
    use Algorithm::*;
    let second = Micros::SECOND;
    let cases: &[(Algorithm, &[Numbers], u64, Numbers)] = &[
        // Windows: a part of the requests, rounded down.
        (FixedWindow, &[(300, second, 300)], 20, (300, second, 60)),
        (SlidingWindow, &[(9, second, 9)], 20, (9, second, 1)),
        (SlidingWindowLog, &[(9, second, 9)], 100, (9, second, 9)),
        (FixedWindow, &[(300, second, 300)], 0, (300, second, 1)),
        (FixedWindow, &[(HITS_END - 1, second, 0)], 100, (HITS_END - 1, second, HITS_END - 1)),
        (FixedWindow, &[(u64::MAX, second, 0)], u64::MAX, (u64::MAX, second, u64::MAX)),
        // Buckets: their burst, whatever the percentage.
        (TokenBucket, &[(300, second, 7)], 20, (300, second, 7)),
        (LeakyBucket, &[(300, second, 9_000)], 20, (300, second, 9_000)),
        // The lowest rate and the smallest burst may be of two tiers.
        (FixedWindow, &[(10, second, 0), (1_000, HOUR, 0)], 20, (1_000, HOUR, 2)),
        (FixedWindow, &[(1_000, HOUR, 0), (10, second, 0)], 20, (1_000, HOUR, 2)),
        (TokenBucket, &[(1, second, 50), (7_200, HOUR, 40)], 20, (1, second, 40)),
        // Equal rates: the first tier.
        (TokenBucket, &[(3_600, HOUR, 5), (1, second, 5)], 0, (3_600, HOUR, 5)),
        // A tier that denies all.
        (FixedWindow, &[(10, second, 0), (0, HOUR, 0)], 20, (0, HOUR, 1)),
        (TokenBucket, &[(0, second, 0)], 20, (0, second, 0)),
    ];
    for &(algorithm, tiers, percent, (requests, window, burst)) in cases {
        let quota = Quota::of(&limit(algorithm, tiers), percent);
        assert_eq!(quota, Ok(Quota { requests, window, burst }), "{algorithm:?} {tiers:?}");
    }
}

#[test]
fn slots_and_calendar_windows_have_no_quota() {
    let mut monthly = limit(Algorithm::FixedWindow, &[(10, HOUR, 0), (100, HOUR, 0)]);
    assert!(Quota::of(&monthly, 20).is_ok());
    let calendar = Calendar { period: Period::Month, zone: Zone::UTC, starts: WindowStart::FIRST };
    monthly.tiers[1] = Tier::by_calendar(100, calendar);
    assert_eq!(Quota::of(&monthly, 20), Err(Indivisible::Calendar));
    let slots = limit(Algorithm::Concurrency, &[(10, HOUR, 0)]);
    assert_eq!(Quota::of(&slots, 20), Err(Indivisible::Slots));
    let nothing = limit(Algorithm::FixedWindow, &[]);
    assert_eq!(Quota::of(&nothing, 20), Err(Indivisible::NoRate));
}

#[test]
fn a_demand_is_a_share_of_the_quota() {
    let quota = Quota { requests: 300, window: Micros::SECOND, burst: 60 };
    let seconds = Micros::from_secs;
    let cases = [
        (0, seconds(5), 0),
        (0, Micros::ZERO, 0),
        (1_500, seconds(5), SHARES),
        (750, seconds(5), SHARES / 2),
        (3_000, seconds(5), 2 * SHARES),
        // 1 of 300 is 3 333 333.3 billionths.
        (1, seconds(1), 3_333_334),
        (1, Micros::ZERO, SHARE_MAX),
        (u64::MAX, Micros(1), SHARE_MAX),
        (u64::MAX, Micros(u64::MAX), 3_333_333_333_334),
    ];
    for (hits, elapsed, share) in cases {
        assert_eq!(quota.share_of(hits, elapsed), share, "{hits} in {elapsed:?}");
    }
    let none = Quota { requests: 0, ..quota };
    assert_eq!(none.share_of(0, seconds(1)), 0);
    assert_eq!(none.share_of(1, seconds(1)), SHARE_MAX);
}

#[test]
fn a_rate_is_in_hits_per_second() {
    let quota = Quota { requests: 600, window: Micros::from_secs(60), burst: 1 };
    assert_eq!(quota.rate_of(SHARES), 10.0);
    assert_eq!(quota.rate_of(SHARES / 4), 2.5);
    assert_eq!(quota.rate_of(0), 0.0);
    assert_eq!(Quota { window: Micros::ZERO, ..quota }.rate_of(SHARES), 0.0);
}

proptest! {
    /// One share off at most, wherever the exact quotient has less than 2^50 shares.
    #[test]
    fn demands_are_exact_to_one_share(
        requests in 1..1_u64 << 40,
        window in 1..=WINDOW_MAX.0,
        elapsed in 1_u64..1 << 40,
        hits in 0_u64..1 << 40,
    ) {
        let quota = Quota { requests, window: Micros(window), burst: 1 };
        let hit_shares = u128::from(hits) * u128::from(SHARES) * u128::from(window);
        let exact = hit_shares.div_ceil(u128::from(requests) * u128::from(elapsed));
        let share = u128::from(quota.share_of(hits, Micros(elapsed)));
        if exact < 1 << 50 {
            prop_assert!(share.abs_diff(exact) <= 1, "{share}, exactly {exact}");
        } else {
            prop_assert!(share >= (1 << 50) - 1);
        }
    }

    #[test]
    fn any_numbers_have_a_share(
        (requests, window, burst) in any::<(u64, u64, u64)>(),
        (hits, elapsed) in any::<(u64, u64)>(),
    ) {
        let quota = Quota { requests, window: Micros(window), burst };
        prop_assert!(quota.share_of(hits, Micros(elapsed)) <= SHARE_MAX);
        prop_assert!(quota.rate_of(hits).is_finite());
    }
}
