//! Tests of the division of a quota.

use proptest::prelude::*;

use super::*;

/// Percent of the quota.
const fn percent(part: u64) -> u64 {
    SHARES / 100 * part
}

fn share(part: u64) -> Want {
    Want::Share(percent(part))
}

/// The wants as shares.
fn resolved(wants: &[Want]) -> Vec<u64> {
    let fair = SHARES / (wants.len() as u64).max(1);
    let number = |want: &Want| match want {
        Want::Fair => fair,
        Want::Recent(share) | Want::Share(share) => *share,
    };
    wants.iter().map(number).collect()
}

/// Wants around the fair part, small ones, and any others.
fn wants(most: usize) -> impl Strategy<Value = Vec<Want>> {
    let want = prop_oneof![
        1 => Just(Want::Fair),
        1 => Just(Want::Share(0)),
        2 => (0..20_u64).prop_map(Want::Share),
        4 => (0..=2 * SHARES).prop_map(Want::Share),
        4 => (0..=200_u64).prop_map(|part| Want::Share(SHARES / 1_000 * part)),
        1 => (0..SHARE_MAX).prop_map(Want::Share),
        1 => any::<u64>().prop_map(Want::Share),
    ];
    proptest::collection::vec(want, 0..most)
}

#[test]
fn a_quota_is_divided_fairly() {
    let cases: &[(&[Want], &[u64])] = &[
        (&[], &[]),
        (&[Want::Fair], &[percent(100)]),
        (&[share(0)], &[percent(100)]),
        (&[share(500)], &[percent(100)]),
        (&[Want::Fair, Want::Fair], &[percent(50), percent(50)]),
        // Nothing wanted: spread evenly.
        (&[share(0), share(0)], &[percent(50), percent(50)]),
        // Enough for all: the rest of 40 % is spread evenly.
        (&[share(10), share(50)], &[percent(30), percent(70)]),
        // Not enough: the small one is served, the large ones are equal.
        (&[share(90), share(20), share(60)], &[percent(40), percent(20), percent(40)]),
        (&[share(90), share(90), share(900)], &[333_333_333, 333_333_333, 333_333_334]),
        // An unknown demand counts as the quota divided by the number of holders.
        (&[share(10), Want::Fair], &[percent(30), percent(70)]),
        (&[share(100), Want::Fair], &[percent(50), percent(50)]),
        (
            &[share(10), share(10), share(10), Want::Fair],
            &[
                percent(10) + percent(45) / 4,
                percent(10) + percent(45) / 4,
                percent(10) + percent(45) / 4,
                percent(25) + percent(45) / 4,
            ],
        ),
        // The demands 400, 100 and 50 on a quota of 300 per second, each with its head room.
        (
            &[want_of(1_333_333_333), want_of(333_333_333), want_of(166_666_666)],
            &[450_000_002, 366_666_666, 183_333_332],
        ),
        // The rounding rest goes to the largest, and among equals to the last ones.
        (&[Want::Fair, Want::Fair, Want::Fair], &[333_333_333, 333_333_333, 333_333_334]),
        (&[share(2), share(1), share(0)], &[343_333_334, 333_333_333, 323_333_333]),
    ];
    for (wants, shares) in cases {
        assert_eq!(divide(wants), *shares, "{wants:?}");
    }
}

#[test]
fn a_want_is_a_demand_with_head_room() {
    let cases = [
        (0, WANT_MIN),
        (percent(1), percent(1) / 100 * 110),
        (percent(10), percent(11)),
        (SHARES, percent(110)),
        (SHARE_MAX, SHARE_MAX - 1),
        (u64::MAX, SHARE_MAX - 1),
    ];
    for (demand, want) in cases {
        assert_eq!(want_of(demand), Want::Share(want), "{demand}");
    }
}

#[test]
fn a_want_has_a_number() {
    for (want, number) in [
        (Want::Fair, SHARE_MAX),
        (Want::Share(0), 0),
        (Want::Share(SHARES), SHARES),
        (Want::Share(SHARE_MAX - 1), SHARE_MAX - 1),
        (Want::Recent(1), SHARE_MAX + 1),
        (Want::Recent(SHARE_MAX - 1), (1 << 53) - 1),
    ] {
        assert_eq!(want.number(), number);
        assert_eq!(Want::from_number(number), want);
    }
    assert_eq!(Want::Share(u64::MAX).number(), SHARE_MAX - 1);
    assert_eq!(Want::Recent(0).number(), SHARE_MAX + 1);
    assert_eq!(Want::Recent(u64::MAX).number(), 2 * SHARE_MAX - 1);
    assert_eq!(Want::from_number(2 * SHARE_MAX), Want::Fair);
    assert_eq!(Want::from_number(u64::MAX), Want::Fair);
}

/// As many holders as a ledger may have.
#[test]
fn ten_thousand_holders_are_served() {
    let equal = vec![Want::Fair; 10_000];
    assert_eq!(divide(&equal), vec![SHARES / 10_000; 10_000]);
    let wants: Vec<Want> = (0..10_000).map(|n| Want::Share(n * 37 % 10_000 * 1_000)).collect();
    let shares = divide(&wants);
    assert_eq!(shares.iter().sum::<u64>(), SHARES);
    assert!(shares.iter().zip(&wants).all(|(share, want)| *share > 0 || *want == Want::Share(0)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_sum_is_the_quota(wants in wants(300)) {
        let sum = if wants.is_empty() { 0 } else { SHARES };
        prop_assert_eq!(divide(&wants).iter().sum::<u64>(), sum);
    }

    /// Either a want is unserved, then no holder has more than its part and the rounding rest; or all
    /// are served, then all have the same extra, up to the rounding rest. Only one division is so.
    #[test]
    fn the_division_is_max_min_fair(wants in wants(60)) {
        let (shares, wants) = (divide(&wants), resolved(&wants));
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
        let (shares, wants) = (divide(&wants), resolved(&wants));
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
        raised[at] = Want::Share(resolved(&wants)[at].saturating_add(more));
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
        let moved: Vec<Want> = shuffled.iter().map(|index| wants[*index]).collect();
        let moved_shares = divide(&moved);
        for (place, index) in shuffled.iter().enumerate() {
            prop_assert!(moved_shares[place].abs_diff(shares[*index]) <= 1);
        }
        let sorted = |wants: &[Want], shares: &[u64]| {
            let mut pairs: Vec<(u64, u64)> =
                resolved(wants).into_iter().zip(shares.iter().copied()).collect();
            pairs.sort_unstable();
            pairs
        };
        prop_assert_eq!(sorted(&wants, &shares), sorted(&moved, &moved_shares));
    }
}
