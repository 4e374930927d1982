//! States: what steps do to them. Their size, foreign ones, leases and reservations.

use super::{plan, report};
use crate::decision::Decision;
use crate::limit::{Algorithm, Limit, Tier};
use crate::step::{Lease, LeaseId, RESERVATIONS_MAX, State};
use crate::time::Micros;

fn limit(algorithm: Algorithm, requests: u64, seconds: u64) -> Limit {
    let tier = Tier { requests, window: Micros::from_secs(seconds), burst: requests };
    Limit { algorithm, tiers: Box::new([tier]), count_denied: false }
}

/// Every algorithm that counts, rather than holds.
const COUNTING: [Algorithm; 5] = [
    Algorithm::FixedWindow,
    Algorithm::SlidingWindow,
    Algorithm::SlidingWindowLog,
    Algorithm::TokenBucket,
    Algorithm::LeakyBucket,
];

fn ask(limit: &Limit, state: &mut Option<State>, hits: i64, second: u64) -> Decision {
    ask_under(limit, state, hits, second, None)
}

fn ask_under(
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
fn a_state_of_one_tier_is_four_words_and_owns_no_memory() {
    assert!(size_of::<State>() <= 32, "{}", size_of::<State>());
    assert!(size_of::<Option<State>>() <= 32, "{}", size_of::<Option<State>>());
    for algorithm in COUNTING {
        let mut state = None;
        ask(&limit(algorithm, 10, 60), &mut state, 1, 100);
        let heap = state.expect("a hit was counted").heap_bytes();
        assert_eq!(heap > 0, algorithm == Algorithm::SlidingWindowLog, "{algorithm:?}");
    }
}

#[test]
fn a_state_of_another_machine_or_number_of_tiers_is_as_good_as_none() {
    let all = [&COUNTING[..], &[Algorithm::Concurrency]].concat();
    for from in &all {
        for (to, tiers) in all.iter().flat_map(|to| [(to, 1), (to, 2)]) {
            let mut limit = limit(*from, 10, 60);
            let mut state = None;
            ask(&limit, &mut state, 10, 100);
            limit.algorithm = *to;
            limit.tiers = vec![limit.tiers[0]; tiers].into();
            let step = plan(&limit, 3, Micros::from_secs(100));
            let buckets = [Algorithm::TokenBucket, Algorithm::LeakyBucket];
            let holds = [Algorithm::SlidingWindowLog, Algorithm::Concurrency];
            let same = from == to || (buckets.contains(from) && buckets.contains(to));
            // Tiers that hold share their entries, whatever their number.
            if same && (tiers == 1 || holds.contains(from)) {
                continue;
            }
            let old = state.clone();
            ask(&limit, &mut state, -1, 100);
            ask(&limit, &mut state, 11, 100);
            assert_eq!(state, old, "{from:?} as {to:?}");
            let mut fresh = None;
            assert_eq!(step.apply(&mut state), step.apply(&mut fresh), "{from:?} as {to:?}");
            assert_eq!(state, fresh);
        }
    }
}

#[test]
fn a_lower_rate_reads_a_bucket_of_a_higher_one_without_a_panic() {
    let mut state = None;
    ask(&limit(Algorithm::TokenBucket, 999_983, 1), &mut state, 7, 100);
    let slow = limit(Algorithm::TokenBucket, 2, 1);
    assert_eq!(ask(&slow, &mut state, 1, 100).remaining, 0);
    assert_eq!(ask(&slow, &mut state, 0, 101).remaining, 2);
}

#[test]
fn a_flood_of_denied_hits_grows_a_log_no_further_than_its_limit() {
    let mut limit = limit(Algorithm::SlidingWindowLog, 100, 60);
    limit.count_denied = true;
    let mut state = None;
    for second in 0..50 {
        ask(&limit, &mut state, 1_000_000, second);
    }
    assert!(state.expect("denied hits were counted").heap_bytes() < 4_096);
}

#[test]
fn a_log_gives_back_the_memory_of_a_burst() {
    let limit = limit(Algorithm::SlidingWindowLog, 100_000, 60);
    let mut state = None;
    ask(&limit, &mut state, 100_000, 0);
    assert!(state.as_ref().expect("counted").heap_bytes() >= 800_000);
    ask(&limit, &mut state, 1, 60);
    assert!(state.as_ref().expect("counted").heap_bytes() < 1_000);
}

#[test]
fn a_slot_is_freed_once_and_by_its_own_lease_only() {
    let limit = limit(Algorithm::Concurrency, 4, 30);
    let mut state = None;
    for id in 1..=3 {
        assert!(ask_under(&limit, &mut state, 1, id, open(id, 0)).allowed);
    }
    ask_under(&limit, &mut state, 1, 3, open(2, 0)); // the same lease twice: two slots
    assert_eq!(ask_under(&limit, &mut state, -9, 4, close(2)).remaining, 2);
    let after = state.clone();
    for id in [2, 9] {
        assert!(ask_under(&limit, &mut state, -1, 4, close(id)).allowed);
        assert_eq!(state, after, "a second or unknown release changes nothing");
    }
    assert_eq!(ask(&limit, &mut state, -1, 5).remaining, 3, "without an id: the newest");
    assert_eq!(ask_under(&limit, &mut state, -1, 5, close(3)).remaining, 3, "which was 3");
    assert_eq!(ask(&limit, &mut state, 0, 31).remaining, 4, "and 1 has expired");
}

#[test]
fn a_held_slot_survives_a_limit_that_was_lowered() {
    let mut state = None;
    for id in 1..=20 {
        ask_under(&limit(Algorithm::Concurrency, 20, 30), &mut state, 1, 1, open(id, 0));
    }
    let lowered = limit(Algorithm::Concurrency, 5, 30);
    assert_eq!(ask_under(&lowered, &mut state, -1, 2, close(1)).used, 19);
    assert!(!ask_under(&lowered, &mut state, 1, 2, open(21, 0)).allowed);
}

#[test]
fn a_settled_reservation_leaves_the_counter_as_if_it_had_been_charged_so() {
    for algorithm in COUNTING {
        for (reserved, used) in [(8, 0), (8, 3), (8, 8), (3, 8)] {
            let limit = limit(algorithm, 20, 60);
            let (mut state, mut straight) = (None, None);
            ask(&limit, &mut state, 5, 60);
            ask(&limit, &mut straight, 5, 60);
            ask_under(&limit, &mut state, reserved, 60, open(1, 600));
            ask(&limit, &mut straight, used, 60);
            ask_under(&limit, &mut state, 2, 60, open(2, 600));
            ask(&limit, &mut straight, 2, 60);
            let settled = ask_under(&limit, &mut state, used, 60, close(1));
            let same = ask(&limit, &mut straight, 0, 60);
            assert_eq!(settled, same, "{algorithm:?} {reserved} {used}");
            assert!(matches!(state, Some(State::Reserved(_))), "2 is still open");
            assert_eq!(ask_under(&limit, &mut state, 9, 60, close(1)), same, "once");
            ask_under(&limit, &mut state, 2, 60, close(2));
            assert_eq!(state, straight, "{algorithm:?}: nothing is left of the reservations");
        }
    }
}

#[test]
fn a_reservation_is_forgotten_with_the_counter_it_was_charged_in() {
    for from in COUNTING {
        for to in [&COUNTING[..], &[Algorithm::Concurrency]].concat() {
            let (mut limit, mut state) = (limit(from, 10, 60), None);
            ask_under(&limit, &mut state, 8, 60, open(1, 600));
            limit.algorithm = to;
            if !matches!(to, Algorithm::Concurrency | Algorithm::SlidingWindowLog) {
                limit.tiers = vec![limit.tiers[0]; 2].into();
            }
            let before = state.clone();
            let settled = ask_under(&limit, &mut state, 9, 60, close(1));
            if from == Algorithm::SlidingWindowLog && to == from {
                continue; // its tiers share the entries: nothing is forgotten
            }
            assert_eq!((settled.used, &state), (0, &before), "{from:?} to {to:?}");
            ask(&limit, &mut state, 1, 60);
            assert!(!matches!(state, Some(State::Reserved(_))), "{from:?} to {to:?}");
        }
    }
}

#[test]
fn what_was_never_reserved_cannot_be_settled() {
    for algorithm in COUNTING {
        let limit = limit(algorithm, 10, 60);
        let mut state = None;
        assert!(ask_under(&limit, &mut state, 4, 60, close(1)).allowed);
        assert_eq!(state, None);
        assert!(!ask_under(&limit, &mut state, 11, 60, open(1, 600)).allowed);
        assert_eq!(state, None, "a denied reservation holds nothing");
        ask_under(&limit, &mut state, 0, 60, open(1, 600));
        ask_under(&limit, &mut state, -3, 60, open(1, 600));
        assert_eq!(state, None, "nor does a peek or a refund");
    }
}

#[test]
fn an_open_reservation_outlives_the_window_it_was_charged_in() {
    for algorithm in COUNTING {
        let limit = limit(algorithm, 10, 60);
        let mut state = None;
        ask_under(&limit, &mut state, 4, 60, open(1, 600));
        let step = plan(&limit, 0, Micros::from_secs(60));
        let kept = state.as_ref().expect("reserved");
        assert_eq!(step.expires_at(kept), Micros::from_secs(600), "{algorithm:?}");
        let decision = ask_under(&limit, &mut state, 9, 599, close(1));
        assert_eq!(decision.used, 5, "{algorithm:?}: what was not charged yet");
        ask_under(&limit, &mut state, 1, 599, open(2, 600));
        let before = state.clone();
        ask_under(&limit, &mut state, 9, 600, close(2));
        assert_eq!(state, before, "{algorithm:?}: too late");
    }
}

#[test]
fn a_reservation_is_settled_in_its_window_when_the_clock_was_set_back() {
    for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow, Algorithm::SlidingWindowLog]
    {
        let limit = limit(algorithm, 10, 60);
        let mut state = None;
        ask(&limit, &mut state, 1, 121);
        ask_under(&limit, &mut state, 4, 119, open(1, 600));
        assert_eq!(ask_under(&limit, &mut state, 0, 122, close(1)).used, 1, "{algorithm:?}");
    }
}

#[test]
fn a_counter_remembers_a_bounded_number_of_reservations() {
    let limit = limit(Algorithm::FixedWindow, 1_000_000, 60);
    let mut state = None;
    for id in 1..=RESERVATIONS_MAX as u64 + 1 {
        ask_under(&limit, &mut state, 2, 60, open(id, 600));
    }
    let used = |state: &mut Option<State>, id| ask_under(&limit, state, 0, 60, close(id)).used;
    let all = 2 * (RESERVATIONS_MAX as u64 + 1);
    assert_eq!(used(&mut state, 1), all, "the oldest was forgotten, its charge stays");
    assert_eq!(used(&mut state, 2), all - 2);
}

#[test]
fn fullness_is_the_share_of_the_fullest_tier() {
    let tier =
        |requests, seconds| Tier { requests, window: Micros::from_secs(seconds), burst: requests };
    for algorithm in [&COUNTING[..], &[Algorithm::Concurrency]].concat() {
        let limit = Limit {
            algorithm,
            tiers: Box::new([tier(1_000, 60), tier(4, 60)]),
            count_denied: false,
        };
        let mut state = None;
        for (hits, share) in [(1, 16_383), (1, 32_767), (2, u16::MAX)] {
            ask(&limit, &mut state, hits, 60);
            let step = plan(&limit, 0, Micros::from_secs(60));
            let fullness = step.fullness(state.as_ref().expect("counted"));
            assert_eq!(fullness, share, "{algorithm:?}");
        }
    }
}
