//! A simulation of holders that use what they were granted, and a check that fails for wrong grants.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// A grant: from when, how much, until when.
#[derive(Clone, Copy, Debug)]
struct Grant {
    from: Micros,
    share: u64,
    expires: Micros,
}

/// What holders may really use: a holder may get a grant late, by the grace at most. It then uses the
/// one before.
#[derive(Default)]
struct Holders(BTreeMap<HolderId, Vec<Grant>>);

impl Holders {
    /// Takes what `snapshot` grants to the holders of the changes.
    fn take(&mut self, settlement: &Settlement, snapshot: &LedgerSnapshot) {
        for Change { holder, expires, .. } in &settlement.changes {
            let Some(Holding { share, .. }) = snapshot.get(*holder) else { continue };
            let grant = Grant { from: settlement.now, share: *share, expires: *expires };
            self.0.entry(*holder).or_default().push(grant);
        }
    }

    /// The largest share that all of them together may use at `now`.
    fn used(&self, now: Micros) -> u64 {
        let most = |grants: &Vec<Grant>| {
            let ends = grants.iter().skip(1).map(|next| next.from.saturating_add(GRACE));
            let ends = ends.chain([Micros(u64::MAX)]);
            let usable =
                grants.iter().zip(ends).filter(|(grant, end)| grant.expires > now && *end > now);
            usable.map(|(grant, _)| grant.share).max().unwrap_or(0)
        };
        self.0.values().map(most).sum()
    }
}

/// One step: after a pause, some holders report demands, and the quota is divided by all of them.
#[derive(Clone, Debug)]
struct Step {
    pause: Micros,
    /// Demands in percent of the quota, or none.
    demands: Vec<Option<u64>>,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let pause = prop_oneof![Just(0), 1..600_u64, Just(500), 0..13_000_u64].prop_map(at);
    let demands = proptest::collection::vec(proptest::option::of(0..150_u64), 1..6);
    let step = (pause, demands).prop_map(|(pause, demands)| Step { pause, demands });
    proptest::collection::vec(step, 1..40)
}

/// The largest share that the holders may use at any time, if `settle` grants the shares.
fn largest_use(steps: &[Step], mut settle: impl FnMut(&Settlement) -> LedgerSnapshot) -> u64 {
    let (mut holders, mut now, mut largest) = (Holders::default(), Micros::ZERO, 0);
    for step in steps {
        now = now.saturating_add(step.pause);
        let reports =
            step.demands.iter().zip(0..).filter_map(|(demand, id)| Some((id, (*demand)?)));
        let reports: Vec<(u64, u64)> = reports.collect();
        let wants: Vec<u64> = reports.iter().map(|(_, demand)| SHARES / 100 * demand).collect();
        let changes = reports
            .iter()
            .zip(divided(&wants))
            .map(|((number, _), share)| Change { share, ..change(*number, 0, now) });
        let settlement = settlement(now, changes.collect());
        let snapshot = settle(&settlement);
        holders.take(&settlement, &snapshot);
        // Only a grant makes the use larger.
        largest = largest.max(holders.used(now));
    }
    largest
}

/// Grants all that the changes ask for.
fn grant_all(settlement: &Settlement) -> LedgerSnapshot {
    let holding = |change: &Change| Holding {
        share: change.share,
        old_share: 0,
        old_until: Micros::ZERO,
        expires: change.expires,
        want: change.want,
    };
    let holdings: BTreeMap<HolderId, Holding> =
        settlement.changes.iter().map(|change| (change.holder, holding(change))).collect();
    LedgerSnapshot { holdings: holdings.into_iter().collect() }
}

/// Two holders whose demands swap, and a third one that is lost.
fn swap() -> Vec<Step> {
    let step =
        |millis, demands: &[Option<u64>]| Step { pause: at(millis), demands: demands.to_vec() };
    vec![
        step(0, &[Some(100), Some(10), Some(10)]),
        step(5_000, &[Some(100), Some(10)]),
        step(5_000, &[Some(10), Some(100)]),
    ]
}

/// The check fails for a server that grants everything, and for each rule of the ledger left out.
#[test]
fn the_check_finds_wrong_grants() {
    let everything = |settlement: &Settlement| {
        let mut whole = settlement.clone();
        whole.changes.iter_mut().for_each(|change| change.share = SHARES);
        grant_all(&whole)
    };
    assert_eq!(largest_use(&swap(), everything), 3 * SHARES);
    assert!(largest_use(&swap(), grant_all) > SHARES);
    let mut ledger = Ledger::default();
    let without_grace = |settlement: &Settlement| {
        ledger.settle(&Settlement { grace: Micros::ZERO, ..settlement.clone() })
    };
    assert!(largest_use(&swap(), without_grace) > SHARES);
    // The share of the lost holder is given away before it expires.
    let mut ledger = Ledger::default();
    let expires_early = |settlement: &Settlement| {
        let mut early = settlement.clone();
        let expires = settlement.now.saturating_add(Micros::SECOND);
        early.changes.iter_mut().for_each(|change| change.expires = expires);
        ledger.settle(&early)
    };
    assert!(largest_use(&swap(), expires_early) > SHARES);
    let mut ledger = Ledger::default();
    let at_most = largest_use(&swap(), |settlement| ledger.settle(settlement));
    assert!((SHARES / 100 * 99..=SHARES).contains(&at_most), "{at_most}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// The grants of a ledger never sum up to more than the quota, by the holders' own record.
    #[test]
    fn holders_never_use_more_than_the_quota(steps in steps()) {
        let mut ledger = Ledger::default();
        prop_assert!(largest_use(&steps, |settlement| ledger.settle(settlement)) <= SHARES);
    }
}
