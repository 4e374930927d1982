//! Tests of the ledger.

use proptest::prelude::*;

use super::*;
use crate::quota::{PartClaim, fair_parts};

mod conversion;
mod simulation;

const GRACE: Micros = Micros::from_millis(500);
const TTL: Micros = Micros::from_secs(12);

/// An instant in milliseconds.
const fn at(millis: u64) -> Micros {
    Micros::from_millis(millis)
}

const fn holder(number: u64) -> HolderId {
    HolderId([number, 0])
}

/// A share of `percent`, for a holder that uses nothing yet.
fn change(number: u64, percent: u64, now: Micros) -> Change {
    let expires = now.saturating_add(TTL);
    let share = SHARES / 100 * percent;
    Change { holder: holder(number), share, held: 0, want: share, expires }
}

/// Changes of a quota of 300 per second.
fn settlement(now: Micros, changes: Vec<Change>) -> Settlement {
    Settlement { now, requests: 300, window: Micros::SECOND, grace: GRACE, changes }
}

/// Sets the holders, in order, to percentages.
fn set(ledger: &mut Ledger, now: Micros, percentages: &[(u64, u64)]) -> LedgerSnapshot {
    let changes = percentages.iter().map(|&(number, percent)| change(number, percent, now));
    ledger.settle(&settlement(now, changes.collect()))
}

/// A client may have as many holders as are left. Its expired ones do not count.
#[test]
fn one_client_leaves_holders_to_others() {
    let of = |client: u64, now: Micros| {
        let id = move |number| HolderId([client, number]);
        (0..HOLDERS_MAX as u64)
            .map(move |number| Change { holder: id(number), ..change(0, 0, now) })
    };
    let numbers = |snapshot: &LedgerSnapshot| {
        [1, 2, 3].map(|client| {
            snapshot.holdings.iter().filter(|(holder, _)| holder.client() == client).count()
        })
    };
    let mut ledger = Ledger::default();
    let mut both: Vec<Change> = of(1, at(0)).collect();
    both.extend(of(2, at(0)));
    assert_eq!(numbers(&ledger.settle(&settlement(at(0), both))), [5_000, 2_500, 0]);
    let snapshot = ledger.settle(&settlement(at(1), of(3, at(1)).collect()));
    assert_eq!(numbers(&snapshot), [5_000, 2_500, 1_250]);
    let snapshot = ledger.settle(&settlement(at(2), of(1, at(2)).collect()));
    assert_eq!(numbers(&snapshot), [5_000, 2_500, 1_250], "renewals need no room");
    // Those of the two others expire.
    let snapshot = ledger.settle(&settlement(at(12_001), of(2, at(12_001)).collect()));
    assert_eq!(numbers(&snapshot), [5_000, 2_500, 0]);
}

/// The division of the quota by wants.
fn divided(wants: &[u64]) -> Vec<u64> {
    let claims: Vec<PartClaim> =
        wants.iter().map(|want| PartClaim { held: 0, want: *want }).collect();
    fair_parts(SHARES, &claims)
}

/// The shares in percent.
fn shares(snapshot: &LedgerSnapshot) -> Vec<u64> {
    snapshot.holdings.iter().map(|(_, holding)| holding.share / (SHARES / 100)).collect()
}

/// The sum of all that is stored, whatever the time.
fn stored_sum(snapshot: &LedgerSnapshot) -> u64 {
    snapshot.holdings.iter().map(|(_, holding)| holding.share.max(holding.old_share)).sum()
}

#[test]
fn a_raise_waits_for_the_grace_of_others() {
    let mut ledger = Ledger::default();
    assert!(ledger.is_empty());
    assert_eq!(shares(&set(&mut ledger, at(0), &[(1, 80), (2, 40)])), [80, 20]);
    assert!(!ledger.is_empty());
    // Nothing is free until 500 ms after the lowering.
    assert_eq!(shares(&set(&mut ledger, at(1_000), &[(1, 30), (2, 70)])), [30, 20]);
    assert_eq!(shares(&set(&mut ledger, at(1_499), &[(2, 70)])), [30, 20]);
    assert_eq!(shares(&set(&mut ledger, at(1_500), &[(2, 70)])), [30, 70]);
}

#[test]
fn a_snapshot_has_what_is_free() {
    let mut ledger = Ledger::default();
    set(&mut ledger, at(0), &[(1, 60), (2, 20)]);
    let snapshot = set(&mut ledger, at(1_000), &[(1, 30)]);
    let free = |now| snapshot.free(now) / (SHARES / 100);
    assert_eq!([free(at(1_000)), free(at(1_499)), free(at(1_500))], [20, 20, 50]);
    // Holder 2 expires at 12 s, holder 1 at 13 s.
    assert_eq!([free(at(11_999)), free(at(12_000)), free(at(13_000))], [50, 70, 100]);
    assert_eq!(snapshot.used(at(12_000)), SHARES / 100 * 30);
    assert_eq!(snapshot.get(holder(2)).map(|holding| holding.expires), Some(at(12_000)));
    assert_eq!(snapshot.get(holder(3)), None);
}

/// Numbers as no ledger stores them, from a store that returns anything.
#[test]
fn the_sum_of_any_snapshot_saturates() {
    let holding = Holding {
        share: u64::MAX,
        old_share: 0,
        old_until: Micros::ZERO,
        expires: Micros(u64::MAX),
        want: u64::MAX,
    };
    let snapshot = LedgerSnapshot { holdings: vec![(holder(1), holding), (holder(2), holding)] };
    assert_eq!(snapshot.used(at(0)), u64::MAX);
    assert_eq!(snapshot.free(at(0)), 0);
}

#[test]
fn a_share_is_free_again_when_it_expires() {
    let mut ledger = Ledger::default();
    set(&mut ledger, at(0), &[(1, 100)]);
    assert_eq!(shares(&set(&mut ledger, at(11_999), &[(2, 50)])), [100, 0]);
    let snapshot = set(&mut ledger, at(12_000), &[(2, 50)]);
    assert_eq!(snapshot.get(holder(1)), None);
    assert_eq!(shares(&snapshot), [50]);
    // A settlement without changes only reads.
    assert_eq!(set(&mut ledger, at(20_000), &[]), snapshot);
    assert_eq!(set(&mut ledger, at(24_000), &[]), LedgerSnapshot::default());
    assert!(ledger.is_empty());
}

/// A settlement that a slow store applies after a newer one of the same holder.
#[test]
fn a_late_change_is_skipped() {
    let mut ledger = Ledger::default();
    let newer = set(&mut ledger, at(1_000), &[(1, 50)]);
    assert_eq!(set(&mut ledger, at(0), &[(1, 90)]), newer);
    assert_eq!(set(&mut ledger, at(0), &[(1, 10)]), newer);
    // The other changes of that settlement count.
    assert_eq!(shares(&set(&mut ledger, at(0), &[(1, 10), (2, 20)])), [50, 20]);
}

#[test]
fn a_clock_that_goes_back_shortens_no_grace() {
    let mut ledger = Ledger::default();
    set(&mut ledger, at(1_000), &[(1, 50)]);
    set(&mut ledger, at(2_000), &[(1, 30)]);
    let earlier = Change { expires: at(20_000), ..change(1, 20, at(100)) };
    let snapshot = ledger.settle(&settlement(at(100), vec![earlier]));
    let holding = snapshot.holdings[0].1;
    assert_eq!((holding.share, holding.old_share), (SHARES / 100 * 20, SHARES / 100 * 50));
    assert_eq!(holding.old_until, at(2_500));
}

#[test]
fn lowering_again_keeps_the_largest_share() {
    let mut ledger = Ledger::default();
    set(&mut ledger, at(0), &[(1, 90)]);
    set(&mut ledger, at(1_000), &[(1, 50)]);
    let snapshot = set(&mut ledger, at(1_300), &[(1, 10)]);
    let holding = snapshot.holdings[0].1;
    assert_eq!((holding.old_share, holding.old_until), (SHARES / 100 * 90, at(1_800)));
    // A holder may return to its old share at once, because that is still reserved for it.
    let snapshot = set(&mut ledger, at(1_400), &[(2, 100), (1, 90)]);
    assert_eq!(shares(&snapshot), [90, 10]);
    // An equal share changes only the expiry and the want.
    let snapshot = set(&mut ledger, at(1_500), &[(1, 90)]);
    assert_eq!(snapshot.holdings[0].1.old_until, at(1_800));
    assert_eq!(snapshot.holdings[0].1.expires, at(13_500));
}

#[test]
fn no_grace_frees_a_share_at_once() {
    let mut ledger = Ledger::default();
    set(&mut ledger, at(0), &[(1, 100)]);
    let changes = vec![change(1, 0, at(1)), change(2, 100, at(1))];
    let snapshot = ledger.settle(&Settlement { grace: Micros::ZERO, ..settlement(at(1), changes) });
    assert_eq!(shares(&snapshot), [0, 100]);
    assert_eq!(snapshot.used(Micros::ZERO), SHARES);
}

/// A ledger that lost its holders, such as one in a Redis that was cleared.
#[test]
fn unknown_holders_keep_what_they_hold() {
    let held = |number, held, percent| Change {
        held: SHARES / 100 * held,
        ..change(number, percent, Micros::ZERO)
    };
    let mut ledger = Ledger::default();
    // Renewed, lowered, raised: the first is truly in use.
    let changes = vec![held(1, 30, 30), held(2, 40, 10), held(3, 10, 90)];
    let snapshot = ledger.settle(&settlement(at(0), changes));
    assert_eq!(shares(&snapshot), [30, 10, 30]);
    assert_eq!(snapshot.holdings[1].1.old_share, SHARES / 100 * 40);
    // What a later change holds is no room for an earlier one.
    let mut lost = Ledger::default();
    let snapshot = lost.settle(&settlement(at(0), vec![change(3, 90, at(0)), held(4, 60, 60)]));
    assert_eq!(shares(&snapshot), [40, 60]);
    // The ledger's own number counts for a known holder, and no holder has more than the quota.
    let changes = vec![held(1, 90, 30), Change { held: u64::MAX, ..change(4, 0, at(600)) }];
    let snapshot = ledger.settle(&settlement(at(600), changes));
    assert_eq!(shares(&snapshot), [30, 10, 30, 0]);
    assert_eq!(snapshot.holdings[3].1.old_share, SHARES);
    // Now 170 % are in use, and nothing is raised until that ends.
    assert_eq!(shares(&set(&mut ledger, at(700), &[(1, 31), (2, 11)])), [30, 10, 30, 0]);
    assert_eq!(shares(&set(&mut ledger, at(1_100), &[(1, 31), (2, 11)])), [31, 11, 30, 0]);
    // An expired holder is not stored.
    let expired = Change { expires: at(1_100), ..change(5, 0, at(0)) };
    let snapshot = ledger.settle(&settlement(at(1_100), vec![expired]));
    assert_eq!(snapshot.get(holder(5)), None);
}

#[test]
fn a_further_holder_is_not_stored() {
    let mut ledger = Ledger::default();
    let all = (0..=HOLDERS_MAX as u64).map(|number| change(number, 1, at(0))).collect();
    let snapshot = ledger.settle(&settlement(at(0), all));
    assert_eq!(snapshot.holdings.len(), HOLDERS_MAX);
    assert_eq!(snapshot.get(holder(HOLDERS_MAX as u64)), None);
    assert_eq!(snapshot.used(at(0)), SHARES);
    // Those that are stored change, and an expired one makes room.
    let expires = at(99_000);
    let renewed = |number| Change { expires, ..change(number, 0, at(1_000)) };
    let snapshot =
        ledger.settle(&settlement(at(1_000), (1..HOLDERS_MAX as u64).map(renewed).collect()));
    assert_eq!(snapshot.get(holder(1)).map(|holding| holding.expires), Some(expires));
    let snapshot = set(&mut ledger, at(12_000), &[(HOLDERS_MAX as u64, 1)]);
    assert_eq!(snapshot.holdings.len(), HOLDERS_MAX);
    assert_eq!(snapshot.get(holder(0)), None);
    assert_eq!(shares(&snapshot).iter().sum::<u64>(), 1);
}

/// Lowered first, then raised after the grace: two settlements reach every division.
#[test]
fn two_settlements_reach_a_division() {
    let mut ledger = Ledger::default();
    let tables: [&[u64]; 4] =
        [&[SHARES / 3; 3], &[SHARES / 2, SHARES, 0], &[0, SHARES, SHARES / 3], &[SHARES / 7; 7]];
    let mut now = Micros::ZERO;
    for wants in tables {
        let divided = divided(wants);
        for _ in 0..2 {
            let expires = now.saturating_add(TTL);
            let set = divided.iter().zip(0..).map(|(&share, number)| Change {
                holder: holder(number),
                share,
                held: 0,
                want: share,
                expires,
            });
            ledger.settle(&settlement(now, set.collect()));
            now = now.saturating_add(GRACE);
        }
        let snapshot = ledger.settle(&settlement(now, vec![]));
        let reached: Vec<u64> = snapshot.holdings.iter().map(|(_, held)| held.share).collect();
        assert_eq!(reached, divided);
    }
}

/// Rates of 0 as well.
fn rates() -> impl Strategy<Value = (u64, Micros)> {
    let requests = prop_oneof![0..3_u64, Just(100), Just(60), any::<u64>()];
    let window = prop_oneof![Just(1_000_000), Just(60_000_000), 0..10_u64, any::<u64>()];
    (requests, window.prop_map(Micros))
}

/// Instants within some seconds, and any others.
fn instants() -> impl Strategy<Value = Micros> {
    prop_oneof![9 => (0..20_000_u64).prop_map(at), 1 => any::<u64>().prop_map(Micros)]
}

fn any_share() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 0..10_u64, 0..=SHARES, Just(SHARES), 0..=HELD_MAX, any::<u64>()]
}

fn any_change() -> impl Strategy<Value = Change> {
    (0..8_u64, any_share(), prop_oneof![3 => Just(0), 1 => any_share()], any::<u64>(), instants())
        .prop_map(|(number, share, held, want, expires)| Change {
            holder: holder(number),
            share,
            held,
            want,
            expires,
        })
}

fn any_settlement() -> impl Strategy<Value = Settlement> {
    let grace = prop_oneof![Just(Micros::ZERO), Just(GRACE), any::<u64>().prop_map(Micros)];
    let rate = prop_oneof![4 => Just((300, Micros::SECOND)), 1 => rates()];
    (instants(), rate, grace, proptest::collection::vec(any_change(), 0..6)).prop_map(
        |(now, (requests, window), grace, changes)| Settlement {
            now,
            requests,
            window,
            grace,
            changes,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Whatever the clocks, the rates and the changes: only the `held` of unknown holders and a
    /// conversion make the sum larger than the quota.
    #[test]
    fn the_sum_stays_within_the_quota(
        settlements in proptest::collection::vec(any_settlement(), 1..30),
    ) {
        let mut ledger = Ledger::default();
        for settlement in &settlements {
            // What is due at that time without any change.
            let before = ledger.settle(&Settlement { changes: vec![], ..settlement.clone() });
            let unknown = settlement.changes.iter().filter(|c| before.get(c.holder).is_none());
            let held: u64 = unknown.map(|change| change.held.min(SHARES)).sum();
            let after = ledger.settle(settlement);
            // A sum within the quota stays there; a larger one does not grow.
            let bound = SHARES.max(stored_sum(&before) + held);
            prop_assert!(stored_sum(&after) <= bound, "{} of {bound}", stored_sum(&after));
            // What is stored is what counts, now and at any other time.
            prop_assert_eq!(after.used(settlement.now), stored_sum(&after));
            for other in &settlements {
                prop_assert!(after.used(other.now) <= stored_sum(&after));
            }
        }
    }

    /// One change of one holder: what it gets, and that the others keep theirs.
    #[test]
    fn a_change_grants_what_fits(
        settlements in proptest::collection::vec(any_settlement(), 0..12),
        change in any_change(),
        now in instants(),
        rate in rates(),
    ) {
        let mut ledger = Ledger::default();
        for settlement in &settlements {
            ledger.settle(settlement);
        }
        let (requests, window) = rate;
        let read = Settlement { now, requests, window, grace: GRACE, changes: vec![] };
        let before = ledger.settle(&read);
        let after = ledger.settle(&Settlement { changes: vec![change], ..read });
        let others = |snapshot: &LedgerSnapshot| -> Vec<(HolderId, Holding)> {
            let mut holdings = snapshot.holdings.clone();
            holdings.retain(|(id, _)| *id != change.holder);
            holdings
        };
        prop_assert_eq!(others(&after), others(&before));
        let known = before.get(change.holder);
        if known.is_some_and(|known| change.expires < known.expires) {
            prop_assert_eq!(after, before);
            return Ok(());
        }
        let Some(holding) = after.get(change.holder) else {
            prop_assert!(known.is_none() && change.expires <= now);
            return Ok(());
        };
        let had = known.map_or(change.held.min(SHARES), |known| known.share);
        let had_used = known.map_or(had, |known| known.share.max(known.old_share));
        let room = SHARES.saturating_sub(stored_sum(&before) - known.map_or(0, |_| had_used));
        if change.share <= had {
            prop_assert_eq!(holding.share, change.share);
        } else {
            prop_assert!(holding.share >= had);
            prop_assert_eq!(holding.share, change.share.min(room.max(had)));
        }
        if change.share < had && now < Micros(u64::MAX) {
            prop_assert_eq!(holding.old_share, had_used);
            prop_assert!(holding.old_until >= now.saturating_add(GRACE));
        }
        prop_assert_eq!(holding.want, change.want);
        prop_assert_eq!(holding.expires, change.expires);
    }
}
