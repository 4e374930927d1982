//! Tests of wants, and of the division among clients.

use proptest::prelude::*;

use super::*;
use crate::quota::SHARES;

/// Percent of the quota.
const fn percent(part: u64) -> u64 {
    SHARES / 100 * part
}

/// Clients, each with its silent shares and the wants of its holders.
type Wants = Vec<(u64, Vec<u64>)>;

/// The shares of all holders, by client.
fn divided(clients: &Wants) -> Vec<Vec<u64>> {
    let of =
        |(silent, wants): &(u64, Vec<u64>)| ClientHolders { silent: *silent, holders: wants.len() };
    let holders: Vec<ClientHolders> = clients.iter().map(of).collect();
    let wants: Vec<u64> = clients.iter().flat_map(|(_, wants)| wants.iter().copied()).collect();
    let mut shares = divide(SHARES, &holders, &wants).into_iter();
    clients.iter().map(|(_, wants)| shares.by_ref().take(wants.len()).collect()).collect()
}

fn want() -> impl Strategy<Value = u64> {
    prop_oneof![
        1 => 0..20_u64,
        4 => 0..=2 * SHARES,
        4 => (0..=200_u64).prop_map(|part| SHARES / 1_000 * part),
        1 => 0..SHARE_MAX,
    ]
}

fn clients() -> impl Strategy<Value = Wants> {
    let silent = prop_oneof![2 => Just(0), 1 => 0..SHARES / 8];
    let client = (silent, proptest::collection::vec(want(), 1..12));
    proptest::collection::vec(client, 1..8)
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

#[test]
fn clients_have_equal_parts() {
    let all = percent(100);
    let cases: [(&str, Wants, Vec<Vec<u64>>); 6] = [
        (
            "four streams of one client have its part",
            vec![(0, vec![all; 4]), (0, vec![all])],
            vec![vec![percent(50) / 4; 4], vec![percent(50)]],
        ),
        (
            "a client that wants little leaves the rest to another",
            vec![(0, vec![all; 2]), (0, vec![percent(20)])],
            vec![vec![percent(40); 2], vec![percent(20)]],
        ),
        (
            "within a client the small want is served first",
            vec![(0, vec![percent(10), all, all]), (0, vec![all])],
            vec![vec![percent(10), percent(20), percent(20)], vec![percent(50)]],
        ),
        (
            "what ended streams still use is a part of their client's",
            vec![(percent(30), vec![all, all]), (0, vec![all])],
            vec![vec![percent(10); 2], vec![percent(50)]],
        ),
        (
            "a client whose ended streams use more than its part gets nothing",
            vec![(percent(60), vec![all]), (0, vec![all])],
            vec![vec![0], vec![percent(40)]],
        ),
        (
            "what exceeds all wants is spread among clients, and then among their holders",
            vec![(0, vec![0, 0]), (0, vec![percent(20)])],
            vec![vec![percent(20); 2], vec![percent(60)]],
        ),
    ];
    for (what, clients, shares) in cases {
        assert_eq!(divided(&clients), shares, "{what}");
    }
}

#[test]
fn equal_parts_count_what_is_silent() {
    let client = |silent| ClientHolders { silent: percent(silent), holders: 1 };
    let part = |silent: &[u64]| {
        let clients: Vec<ClientHolders> = silent.iter().copied().map(client).collect();
        equal_part(SHARES, &clients)
    };
    assert_eq!(part(&[]), 0);
    assert_eq!(part(&[0, 0, 0]), SHARES / 3);
    assert_eq!(part(&[30, 0]), percent(50));
    assert_eq!(part(&[60, 0]), percent(40));
    assert_eq!(part(&[60, 40]), 0);
    assert_eq!(part(&[60, 60, 0]), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_sum_is_what_silent_holders_leave(clients in clients()) {
        let silent: u64 = clients.iter().map(|(silent, _)| silent).sum();
        let sum: u64 = divided(&clients).iter().flatten().sum();
        prop_assert_eq!(sum, SHARES.saturating_sub(silent));
    }

    /// One client, or one holder for each, are divided as holders without clients.
    #[test]
    fn one_level_is_divided_as_before(wants in proptest::collection::vec(want(), 1..40)) {
        let claim = |want: &u64| PartClaim { held: 0, want: *want };
        let claims: Vec<PartClaim> = wants.iter().map(claim).collect();
        let expected = fair_parts(SHARES, &claims);
        let one: Wants = vec![(0, wants.clone())];
        prop_assert_eq!(&divided(&one)[0], &expected);
        let each: Wants = wants.iter().map(|want| (0, vec![*want])).collect();
        prop_assert_eq!(divided(&each).concat(), expected);
    }

    /// However many holders a client has, what they want and what its ended streams use: another client has
    /// at least what it has beside a single holder that wants everything, unless the ended streams alone use
    /// more than that holder would get.
    #[test]
    fn many_holders_cost_others_an_equal_part(
        clients in clients(),
        at in any::<prop::sample::Index>(),
        liars in proptest::collection::vec(want(), 1..60),
        silent in 0..SHARES / 20,
    ) {
        let at = at.index(clients.len());
        let mut with_one = clients.clone();
        with_one[at] = (0, vec![SHARE_MAX]);
        let before = divided(&with_one);
        prop_assume!(silent <= before[at][0]);
        let mut with_many = clients.clone();
        with_many[at] = (silent, liars);
        let after = divided(&with_many);
        for (client, (before, after)) in before.iter().zip(&after).enumerate() {
            if client == at {
                let sum: u64 = after.iter().sum();
                prop_assert!(sum + silent <= before[0] + 1, "{sum} and {silent} after {before:?}");
                continue;
            }
            for (before, after) in before.iter().zip(after) {
                prop_assert!(after + 2 >= *before, "{after} after {before}");
            }
        }
    }

    /// A holder that wants more gets no less, up to the rounding rests.
    #[test]
    fn a_raised_want_lowers_no_own_share(
        clients in clients(),
        client in any::<prop::sample::Index>(),
        holder in any::<prop::sample::Index>(),
        more in prop_oneof![0..5_u64, 0..SHARES],
    ) {
        let client = client.index(clients.len());
        let holder = holder.index(clients[client].1.len());
        let before = divided(&clients)[client][holder];
        let mut raised = clients.clone();
        raised[client].1[holder] += more;
        let after = divided(&raised)[client][holder];
        prop_assert!(after + 1 >= before, "{after} after {before}");
    }

    /// Another order of clients and holders changes a share by the rounding rests at most.
    #[test]
    fn the_order_has_no_effect(clients in clients()) {
        let before = divided(&clients);
        let mut turned = clients.clone();
        turned.reverse();
        turned.iter_mut().for_each(|(_, wants)| wants.reverse());
        let mut after = divided(&turned);
        after.reverse();
        after.iter_mut().for_each(|shares| shares.reverse());
        for (before, after) in before.concat().iter().zip(after.concat()) {
            prop_assert!(before.abs_diff(after) <= 2, "{after} after {before}");
        }
    }
}
