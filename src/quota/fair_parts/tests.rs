//! Tests of fair parts.

use proptest::prelude::*;

use super::*;
use crate::quota::{SHARE_MAX, SHARES};

/// Percent of the quota.
const fn percent(part: u64) -> u64 {
    SHARES / 100 * part
}

/// The parts of a whole quota of which nothing is held.
fn divide(wants: &[u64]) -> Vec<u64> {
    let claims: Vec<PartClaim> =
        wants.iter().map(|want| PartClaim { held: 0, want: *want }).collect();
    fair_parts(SHARES, &claims)
}

/// The same in another way: each want, from the smallest on, takes at most an equal part of what is left.
fn one_by_one(wants: &[u64]) -> Vec<u64> {
    let mut by_want: Vec<(u64, usize)> = wants.iter().copied().zip(0..).collect();
    by_want.sort_unstable();
    let (mut parts, mut rest) = (vec![0; wants.len()], SHARES);
    for is_extra in [false, true] {
        for ((want, index), left) in by_want.iter().zip((1..=wants.len() as u64).rev()) {
            let equal = rest / left;
            let part = if is_extra { equal } else { equal.min(*want) };
            parts[*index] += part;
            rest -= part;
        }
    }
    parts
}

/// Wants around the fair part, small ones, and any others.
fn wants(most: usize) -> impl Strategy<Value = Vec<u64>> {
    let want = prop_oneof![
        1 => Just(0),
        2 => 0..20_u64,
        4 => 0..=2 * SHARES,
        4 => (0..=200_u64).prop_map(|part| SHARES / 1_000 * part),
        1 => 0..SHARE_MAX,
        1 => any::<u64>(),
    ];
    proptest::collection::vec(want, 0..most)
}

/// Claims of which some hold much.
fn claims(most: usize) -> impl Strategy<Value = Vec<PartClaim>> {
    let held = prop_oneof![3 => Just(0), 1 => 0..5_u64, 2 => 0..SHARES / 4, 1 => 0..=SHARES];
    wants(most).prop_flat_map(move |wants| {
        let held = proptest::collection::vec(held.clone(), wants.len());
        held.prop_map(move |held| {
            let claim = |(held, want): (u64, &u64)| PartClaim { held, want: *want };
            held.into_iter().zip(&wants).map(claim).collect()
        })
    })
}

#[test]
fn a_quota_is_divided_fairly() {
    let of = percent;
    let cases: &[(&[u64], &[u64])] = &[
        (&[], &[]),
        (&[0], &[of(100)]),
        (&[of(500)], &[of(100)]),
        // Nothing wanted: spread evenly.
        (&[0, 0], &[of(50), of(50)]),
        // Enough for all: the rest of 40 % is spread evenly.
        (&[of(10), of(50)], &[of(30), of(70)]),
        // Not enough: the small one is served, the large ones are equal.
        (&[of(90), of(20), of(60)], &[of(40), of(20), of(40)]),
        (&[of(90), of(90), of(900)], &[333_333_333, 333_333_333, 333_333_334]),
        // The demands 400, 100 and 50 on a quota of 300 per second, each with its head room.
        (&[1_466_666_666, 366_666_666, 183_333_332], &[450_000_002, 366_666_666, 183_333_332]),
        // The rounding rest goes to the largest, and among equals to the last ones.
        (&[of(33), of(33), of(33)], &[333_333_333, 333_333_333, 333_333_334]),
        (&[2, 1, 0], &[333_333_335, 333_333_333, 333_333_332]),
    ];
    for (wants, parts) in cases {
        assert_eq!(divide(wants), *parts, "{wants:?}");
        assert_eq!(one_by_one(wants), *parts, "{wants:?}");
    }
}

/// What each claim holds and wants, and the parts, in percent of the total.
type Parts = (&'static [(u64, u64)], &'static [u64]);

#[test]
fn what_is_held_is_a_part() {
    let claim = |(held, want)| PartClaim { held: percent(held), want: percent(want) };
    let cases: &[Parts] = &[
        // The first one holds less than its part.
        (&[(30, 100), (0, 100)], &[50, 50]),
        // It holds more, and gets nothing more.
        (&[(70, 100), (0, 100)], &[70, 30]),
        (&[(70, 100), (0, 100), (0, 10)], &[70, 20, 10]),
        (&[(60, 0), (20, 100), (0, 100)], &[60, 20, 20]),
        // The level is above what it holds, because another one wants little.
        (&[(40, 100), (0, 100), (0, 10)], &[45, 45, 10]),
        // What exceeds all wants is spread evenly.
        (&[(30, 40), (0, 40)], &[50, 50]),
        (&[(60, 60), (0, 20)], &[70, 30]),
        // Nothing is left.
        (&[(60, 100), (40, 100), (0, 100)], &[60, 40, 0]),
        (&[(80, 100), (70, 100), (0, 100)], &[80, 70, 0]),
    ];
    for (claims, parts) in cases {
        let claims: Vec<PartClaim> = claims.iter().copied().map(claim).collect();
        let parts: Vec<u64> = parts.iter().copied().map(percent).collect();
        assert_eq!(fair_parts(SHARES, &claims), parts, "{claims:?}");
    }
}

/// As many holders as a ledger may have.
#[test]
fn ten_thousand_holders_are_served() {
    let equal = vec![SHARES; 10_000];
    assert_eq!(divide(&equal), vec![SHARES / 10_000; 10_000]);
    let wants: Vec<u64> = (0..10_000).map(|n| n * 37 % 10_000 * 1_000).collect();
    let shares = divide(&wants);
    assert_eq!(shares.iter().sum::<u64>(), SHARES);
    assert!(shares.iter().zip(&wants).all(|(share, want)| *share > 0 || *want == 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_sum_is_the_quota(wants in wants(300)) {
        let sum = if wants.is_empty() { 0 } else { SHARES };
        prop_assert_eq!(divide(&wants).iter().sum::<u64>(), sum);
    }

    #[test]
    fn two_ways_have_one_result(wants in wants(60)) {
        prop_assert_eq!(divide(&wants), one_by_one(&wants));
    }

    /// The sum is the quota, or what is held. Among parts above what is held, one that is below its want has
    /// the largest part, up to the rounding rest.
    #[test]
    fn parts_above_what_is_held_are_fair(claims in claims(40)) {
        let parts = fair_parts(SHARES, &claims);
        let held: u64 = claims.iter().map(|claim| claim.held).sum();
        let sum = if claims.is_empty() { 0 } else { held.max(SHARES) };
        prop_assert_eq!(parts.iter().sum::<u64>(), sum);
        let all = || claims.iter().zip(&parts);
        prop_assert!(all().all(|(claim, part)| *part >= claim.held));
        let unserved = all().filter(|(claim, part)| **part < claim.want);
        if let Some(least) = unserved.map(|(_, part)| *part).min() {
            for (claim, part) in all() {
                prop_assert!(*part <= claim.want.max(claim.held), "an extra beside a small part");
                prop_assert!(*part == claim.held || *part <= least + 1, "{part} beside {least}");
            }
        }
    }

    /// Either a want is unserved, then no holder has more than its part and the rounding rest; or all
    /// are served, then all have the same extra, up to the rounding rest. Only one division is so.
    #[test]
    fn the_division_is_max_min_fair(wants in wants(60)) {
        let shares = divide(&wants);
        let unserved = shares.iter().zip(&wants).filter(|(share, want)| share < want);
        let least_unserved = unserved.map(|(share, _)| *share).min();
        let extras = shares.iter().zip(&wants).map(|(share, want)| share.saturating_sub(*want));
        if let Some(part) = least_unserved {
            prop_assert!(extras.clone().all(|extra| extra == 0), "an extra beside a small share");
            prop_assert!(shares.iter().all(|share| *share <= part + 1));
        } else if let (Some(least), Some(most)) = (extras.clone().min(), extras.max()) {
            prop_assert!(most - least <= 1, "extras of {least} and {most}");
        }
    }

    /// A larger want has no smaller share, and a positive want has a share.
    #[test]
    fn a_larger_want_gets_no_less(wants in wants(60)) {
        let shares = divide(&wants);
        for (want, share) in wants.iter().zip(&shares) {
            prop_assert!(*want == 0 || *share > 0);
            for (other_want, other_share) in wants.iter().zip(&shares) {
                prop_assert!(want >= other_want || share <= other_share);
            }
        }
    }

    /// A holder that wants more gets no less, and takes from no other holder more than it gains.
    #[test]
    fn a_raised_want_lowers_no_own_share(
        wants in wants(40).prop_filter("no holder", |wants| !wants.is_empty()),
        at in any::<prop::sample::Index>(),
        more in prop_oneof![0..5_u64, 0..SHARES],
    ) {
        let before = divide(&wants);
        let at = at.index(wants.len());
        let mut raised = wants.clone();
        raised[at] = wants[at].saturating_add(more);
        let after = divide(&raised);
        prop_assert!(after[at] >= before[at], "{} after {}", after[at], before[at]);
        for (index, (after, before)) in after.iter().zip(&before).enumerate() {
            prop_assert!(index == at || *after <= before + 1, "{after} after {before}");
        }
    }

    /// Another order of the holders changes their shares by the rounding rest at most: the shares that
    /// are given for equal wants are the same ones.
    #[test]
    fn the_order_of_holders_has_no_effect(
        (wants, shuffled) in wants(40).prop_flat_map(|wants| {
            let indices: Vec<usize> = (0..wants.len()).collect();
            (Just(wants), Just(indices).prop_shuffle())
        }),
    ) {
        let shares = divide(&wants);
        let moved: Vec<u64> = shuffled.iter().map(|index| wants[*index]).collect();
        let moved_shares = divide(&moved);
        for (place, index) in shuffled.iter().enumerate() {
            prop_assert!(moved_shares[place].abs_diff(shares[*index]) <= 1);
        }
        let sorted = |wants: &[u64], shares: &[u64]| {
            let mut pairs: Vec<(u64, u64)> =
                wants.iter().copied().zip(shares.iter().copied()).collect();
            pairs.sort_unstable();
            pairs
        };
        prop_assert_eq!(sorted(&wants, &shares), sorted(&moved, &moved_shares));
    }
}
