//! Tests of reservations of buckets: a settlement gives back only what has not drained.

use proptest::prelude::*;

use crate::algorithm::plan;
use crate::limit::{Algorithm, Limit, Tier};
use crate::step::{Lease, LeaseId, Outcome, State};
use crate::time::Micros;

/// The time in which one token drains.
const TOKEN: u64 = 10;

/// No reservation ends during a test.
const UNTIL: Micros = Micros::from_secs(1_000);

/// A bucket of 1000 tokens.
fn bucket() -> Limit {
    let tier = Tier { requests: 1, window: Micros(TOKEN), burst: 1_000, calendar: None };
    Limit { algorithm: Algorithm::TokenBucket, tiers: Box::new([tier]), count_denied: false }
}

fn apply(state: &mut Option<State>, hits: u64, now: u64, lease: Option<Lease>) -> Outcome {
    let mut step = plan(&bucket(), hits as i64, Micros(now));
    step.lease = lease;
    step.apply(state)
}

/// The instant at which the bucket has drained, by a peek at `now`.
fn drained(state: &Option<State>, now: u64) -> u64 {
    apply(&mut state.clone(), 0, now, None).tiers[0].arrival_time().micros
}

fn open(id: u64) -> Option<Lease> {
    Some(Lease::Open { id: LeaseId::from_bits(id), until: UNTIL })
}

fn close(id: u64) -> Option<Lease> {
    Some(Lease::Close(LeaseId::from_bits(id)))
}

/// The second reservation drains earlier once the first one is settled. At 110 it has drained, so
/// its tokens are not given back although it was not used.
#[test]
fn an_earlier_settlement_lets_later_hits_drain() {
    let mut state = None;
    apply(&mut state, 10, 0, open(1));
    apply(&mut state, 10, 0, open(2));
    assert_eq!(drained(&state, 0), 200);
    apply(&mut state, 0, 10, close(1));
    assert_eq!(drained(&state, 10), 110, "one token of the first has drained, nine are back");
    apply(&mut state, 10, 110, None);
    apply(&mut state, 0, 110, close(2));
    assert_eq!(drained(&state, 110), 210, "the ten hits of this instant stay charged");
}

/// The order of settlements does not matter while nothing has drained.
#[test]
fn a_later_settlement_moves_no_earlier_hits() {
    let mut state = None;
    (1..=3).for_each(|id| drop(apply(&mut state, 10, 0, open(id))));
    apply(&mut state, 0, 0, close(3));
    apply(&mut state, 4, 0, close(1));
    apply(&mut state, 0, 50, close(2));
    assert_eq!(drained(&state, 50), 50, "40 of the first and 10 of the second have drained");
}

#[derive(Clone, Debug)]
enum Event {
    Take(u64),
    Reserve(u64),
    Settle { index: usize, hits: u64 },
}

/// Events, each with the microseconds since the previous one.
fn events(gap_max: u64) -> impl Strategy<Value = Vec<(u64, Event)>> {
    let event = prop_oneof![
        (1..20_u64).prop_map(Event::Take),
        (1..20_u64).prop_map(Event::Reserve),
        (0..20_usize, 0..25_u64).prop_map(|(index, hits)| Event::Settle { index, hits }),
    ];
    prop::collection::vec((0..=gap_max, event), 1..60)
}

/// Applies the events. After each one, returns when the bucket has drained, and when it would have
/// drained if every reservation had been a charge of its actual hits.
fn run(events: &[(u64, Event)]) -> Vec<(u64, u64)> {
    let (mut state, mut now) = (None, 1_000);
    let mut charges: Vec<(u64, u64)> = Vec::new();
    let mut reserved: Vec<(u64, usize)> = Vec::new();
    let mut seen = Vec::new();
    for (id, (gap, event)) in (1..).zip(events) {
        now += gap;
        match event {
            Event::Take(hits) => {
                if apply(&mut state, *hits, now, None).allowed {
                    charges.push((now, *hits));
                }
            }
            Event::Reserve(hits) => {
                if apply(&mut state, *hits, now, open(id)).allowed {
                    reserved.push((id, charges.len()));
                    charges.push((now, *hits));
                }
            }
            Event::Settle { .. } if reserved.is_empty() => {}
            Event::Settle { index, hits } => {
                let (id, charge) = reserved.remove(index % reserved.len());
                apply(&mut state, *hits, now, close(id));
                charges[charge].1 = *hits;
            }
        }
        let charged = charges.iter().fold(0, |end: u64, (at, hits)| end.max(*at) + hits * TOKEN);
        seen.push((drained(&state, now), charged.max(now)));
    }
    seen
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn settlements_free_no_more_than_they_may(events in events(300)) {
        for (drained, charged) in run(&events) {
            prop_assert!(drained >= charged, "drained at {drained}, charged until {charged}");
        }
    }

    #[test]
    fn settlements_at_once_equal_actual_charges(events in events(0)) {
        for (drained, charged) in run(&events) {
            prop_assert_eq!(drained, charged);
        }
    }
}
