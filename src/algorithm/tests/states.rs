//! Tests of states: their size, states of other rules, leases and reservations.

use crate::algorithm::{plan, report};
use crate::decision::Decision;
use crate::limit::{Algorithm, Limit, Tier};
use crate::step::{Lease, LeaseId, RESERVATIONS_MAX, State};
use crate::time::Micros;

fn limit(algorithm: Algorithm, requests: u64, seconds: u64) -> Limit {
    let tier =
        Tier { requests, window: Micros::from_secs(seconds), burst: requests, calendar: None };
    Limit { algorithm, tiers: Box::new([tier]), count_denied: false }
}

/// Every algorithm except concurrency.
const COUNTING: [Algorithm; 5] = [
    Algorithm::FixedWindow,
    Algorithm::SlidingWindow,
    Algorithm::SlidingWindowLog,
    Algorithm::TokenBucket,
    Algorithm::LeakyBucket,
];

fn decide(limit: &Limit, state: &mut Option<State>, hits: i64, second: u64) -> Decision {
    decide_with(limit, state, hits, second, None)
}

fn decide_with(
    limit: &Limit,
    state: &mut Option<State>,
    hits: i64,
    second: u64,
    lease: Option<Lease>,
) -> Decision {
    let mut step = plan(limit, hits, Micros::from_secs(second));
    step.lease = lease;
    let outcome = step.apply(state);
    report(limit, &step, &outcome)
}

fn open(id: u64, until: u64) -> Option<Lease> {
    Some(Lease::Open { id: LeaseId::from_bits(id), until: Micros::from_secs(until) })
}

fn close(id: u64) -> Option<Lease> {
    Some(Lease::Close(LeaseId::from_bits(id)))
}

#[test]
fn a_state_of_one_tier_has_no_heap_memory() {
    assert!(size_of::<State>() <= 32, "{}", size_of::<State>());
    assert!(size_of::<Option<State>>() <= 32, "{}", size_of::<Option<State>>());
    for algorithm in COUNTING {
        let mut state = None;
        decide(&limit(algorithm, 10, 60), &mut state, 1, 100);
        let heap = state.expect("a hit was counted").heap_bytes();
        assert_eq!(heap > 0, algorithm == Algorithm::SlidingWindowLog, "{algorithm:?}");
    }
}

#[test]
fn a_state_of_another_kind_counts_as_empty() {
    let all = [&COUNTING[..], &[Algorithm::Concurrency]].concat();
    for from in &all {
        for (to, tiers) in all.iter().flat_map(|to| [(to, 1), (to, 2)]) {
            let mut limit = limit(*from, 10, 60);
            let mut state = None;
            decide(&limit, &mut state, 10, 100);
            limit.algorithm = *to;
            limit.tiers = vec![limit.tiers[0]; tiers].into();
            let step = plan(&limit, 3, Micros::from_secs(100));
            let buckets = [Algorithm::TokenBucket, Algorithm::LeakyBucket];
            let holds = [Algorithm::SlidingWindowLog, Algorithm::Concurrency];
            let same = from == to || (buckets.contains(from) && buckets.contains(to));
            // Tiers of a log or of slots share their entries, whatever their number.
            if same && (tiers == 1 || holds.contains(from)) {
                continue;
            }
            let old = state.clone();
            decide(&limit, &mut state, -1, 100);
            decide(&limit, &mut state, 11, 100);
            assert_eq!(state, old, "{from:?} as {to:?}");
            let mut fresh = None;
            assert_eq!(step.apply(&mut state), step.apply(&mut fresh), "{from:?} as {to:?}");
            assert_eq!(state, fresh);
        }
    }
}

#[test]
fn a_lower_rate_reads_the_bucket_of_a_higher_one() {
    let mut state = None;
    decide(&limit(Algorithm::TokenBucket, 999_983, 1), &mut state, 7, 100);
    let slow = limit(Algorithm::TokenBucket, 2, 1);
    assert_eq!(decide(&slow, &mut state, 1, 100).remaining, 0);
    assert_eq!(decide(&slow, &mut state, 0, 101).remaining, 2);
}

#[test]
fn denied_hits_grow_a_log_to_its_limit_only() {
    let mut limit = limit(Algorithm::SlidingWindowLog, 100, 60);
    limit.count_denied = true;
    let mut state = None;
    for second in 0..50 {
        decide(&limit, &mut state, 1_000_000, second);
    }
    assert!(state.expect("denied hits were counted").heap_bytes() < 4_096);
}

#[test]
fn a_log_frees_the_memory_of_a_burst() {
    let limit = limit(Algorithm::SlidingWindowLog, 100_000, 60);
    let mut state = None;
    decide(&limit, &mut state, 100_000, 0);
    assert!(state.as_ref().expect("counted").heap_bytes() >= 800_000);
    decide(&limit, &mut state, 1, 60);
    assert!(state.as_ref().expect("counted").heap_bytes() < 1_000);
}

#[test]
fn a_slot_is_released_once_by_its_own_lease() {
    let limit = limit(Algorithm::Concurrency, 4, 30);
    let mut state = None;
    for id in 1..=3 {
        assert!(decide_with(&limit, &mut state, 1, id, open(id, 0)).allowed);
    }
    decide_with(&limit, &mut state, 1, 3, open(2, 0)); // the same lease twice: two slots
    assert_eq!(decide_with(&limit, &mut state, -9, 4, close(2)).remaining, 2);
    let after = state.clone();
    for id in [2, 9] {
        assert!(decide_with(&limit, &mut state, -1, 4, close(id)).allowed);
        assert_eq!(state, after, "a second or unknown release changes nothing");
    }
    assert_eq!(decide(&limit, &mut state, -1, 5).remaining, 3, "without an id: the newest");
    assert_eq!(decide_with(&limit, &mut state, -1, 5, close(3)).remaining, 3, "which was 3");
    assert_eq!(decide(&limit, &mut state, 0, 31).remaining, 4, "and 1 has expired");
}

#[test]
fn a_slot_survives_a_lowered_limit() {
    let mut state = None;
    for id in 1..=20 {
        decide_with(&limit(Algorithm::Concurrency, 20, 30), &mut state, 1, 1, open(id, 0));
    }
    let lowered = limit(Algorithm::Concurrency, 5, 30);
    assert_eq!(decide_with(&lowered, &mut state, -1, 2, close(1)).used, 19);
    assert!(!decide_with(&lowered, &mut state, 1, 2, open(21, 0)).allowed);
}

#[test]
fn settling_equals_charging_the_actual_hits() {
    for algorithm in COUNTING {
        for (reserved, used) in [(8, 0), (8, 3), (8, 8), (3, 8)] {
            let limit = limit(algorithm, 20, 60);
            let (mut state, mut straight) = (None, None);
            decide(&limit, &mut state, 5, 60);
            decide(&limit, &mut straight, 5, 60);
            decide_with(&limit, &mut state, reserved, 60, open(1, 600));
            decide(&limit, &mut straight, used, 60);
            decide_with(&limit, &mut state, 2, 60, open(2, 600));
            decide(&limit, &mut straight, 2, 60);
            let settled = decide_with(&limit, &mut state, used, 60, close(1));
            let same = decide(&limit, &mut straight, 0, 60);
            assert_eq!(settled, same, "{algorithm:?} {reserved} {used}");
            assert!(matches!(state, Some(State::Reserved(_))), "2 is still open");
            assert_eq!(decide_with(&limit, &mut state, 9, 60, close(1)), same, "once");
            decide_with(&limit, &mut state, 2, 60, close(2));
            assert_eq!(state, straight, "{algorithm:?}: no reservation remains");
        }
    }
}

#[test]
fn a_reservation_is_dropped_with_its_counter() {
    for from in COUNTING {
        for to in [&COUNTING[..], &[Algorithm::Concurrency]].concat() {
            let (mut limit, mut state) = (limit(from, 10, 60), None);
            decide_with(&limit, &mut state, 8, 60, open(1, 600));
            limit.algorithm = to;
            if !matches!(to, Algorithm::Concurrency | Algorithm::SlidingWindowLog) {
                limit.tiers = vec![limit.tiers[0]; 2].into();
            }
            let before = state.clone();
            let settled = decide_with(&limit, &mut state, 9, 60, close(1));
            if from == Algorithm::SlidingWindowLog && to == from {
                continue; // its tiers share the entries, so nothing is dropped
            }
            assert_eq!((settled.used, &state), (0, &before), "{from:?} to {to:?}");
            decide(&limit, &mut state, 1, 60);
            assert!(!matches!(state, Some(State::Reserved(_))), "{from:?} to {to:?}");
        }
    }
}

#[test]
fn only_reserved_hits_can_be_settled() {
    for algorithm in COUNTING {
        let limit = limit(algorithm, 10, 60);
        let mut state = None;
        assert!(decide_with(&limit, &mut state, 4, 60, close(1)).allowed);
        assert_eq!(state, None);
        assert!(!decide_with(&limit, &mut state, 11, 60, open(1, 600)).allowed);
        assert_eq!(state, None, "a denied reservation charges nothing");
        decide_with(&limit, &mut state, 0, 60, open(1, 600));
        decide_with(&limit, &mut state, -3, 60, open(1, 600));
        assert_eq!(state, None, "a peek or a refund charges nothing");
    }
}

#[test]
fn an_open_reservation_outlives_its_window() {
    for algorithm in COUNTING {
        let limit = limit(algorithm, 10, 60);
        let mut state = None;
        decide_with(&limit, &mut state, 4, 60, open(1, 600));
        let step = plan(&limit, 0, Micros::from_secs(60));
        let kept = state.as_ref().expect("reserved");
        assert_eq!(step.expires_at(kept), Micros::from_secs(600), "{algorithm:?}");
        let decision = decide_with(&limit, &mut state, 9, 599, close(1));
        assert_eq!(decision.used, 5, "{algorithm:?}: what was not charged yet");
        decide_with(&limit, &mut state, 1, 599, open(2, 600));
        let before = state.clone();
        decide_with(&limit, &mut state, 9, 600, close(2));
        assert_eq!(state, before, "{algorithm:?}: too late");
    }
}

#[test]
fn settling_works_after_a_clock_set_back() {
    for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow, Algorithm::SlidingWindowLog]
    {
        let limit = limit(algorithm, 10, 60);
        let mut state = None;
        decide(&limit, &mut state, 1, 121);
        decide_with(&limit, &mut state, 4, 119, open(1, 600));
        assert_eq!(decide_with(&limit, &mut state, 0, 122, close(1)).used, 1, "{algorithm:?}");
    }
}

#[test]
fn the_number_of_reservations_is_bounded() {
    let limit = limit(Algorithm::FixedWindow, 1_000_000, 60);
    let mut state = None;
    for id in 1..=RESERVATIONS_MAX as u64 + 1 {
        decide_with(&limit, &mut state, 2, 60, open(id, 600));
    }
    let used = |state: &mut Option<State>, id| decide_with(&limit, state, 0, 60, close(id)).used;
    let all = 2 * (RESERVATIONS_MAX as u64 + 1);
    assert_eq!(used(&mut state, 1), all, "the oldest is dropped, its charge stays");
    assert_eq!(used(&mut state, 2), all - 2);
}

#[test]
fn fullness_is_the_share_of_the_fullest_tier() {
    let tier = |requests, seconds| Tier {
        requests,
        window: Micros::from_secs(seconds),
        burst: requests,
        calendar: None,
    };
    for algorithm in [&COUNTING[..], &[Algorithm::Concurrency]].concat() {
        let limit = Limit {
            algorithm,
            tiers: Box::new([tier(1_000, 60), tier(4, 60)]),
            count_denied: false,
        };
        let mut state = None;
        for (hits, share) in [(1, 16_383), (1, 32_767), (2, u16::MAX)] {
            decide(&limit, &mut state, hits, 60);
            let step = plan(&limit, 0, Micros::from_secs(60));
            let fullness = step.fullness(state.as_ref().expect("counted"));
            assert_eq!(fullness, share, "{algorithm:?}");
        }
    }
}
