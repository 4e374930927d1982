//! Tests of the token bucket.

use proptest::prelude::*;

use super::*;

fn bucket(max_tokens: u32, tokens_per_fill: u32, fill_seconds: u32) -> Assignment {
    Assignment::Bucket { max_tokens, tokens_per_fill, fill_seconds }
}

fn ms(millis: u64) -> Micros {
    Micros::from_millis(1_000_000 + millis)
}

#[test]
fn tokens_are_taken_and_refilled() {
    let mut tokens = Tokens::full(bucket(3, 10, 1), ms(0));
    let mut take = |hits, at| {
        let Taken { allowed, remaining, max, reset_after } = tokens.take(hits, 0, ms(at));
        assert_eq!(max, 3);
        (allowed, remaining, reset_after.0)
    };
    assert_eq!(take(0, 0), (true, 3, 0), "full");
    assert_eq!(take(2, 0), (true, 1, 100_000));
    assert_eq!(take(2, 50), (false, 1, 50_000));
    assert_eq!(take(2, 100), (true, 0, 100_000));
    assert_eq!(take(4, 100), (false, 0, 300_000), "never fits: until it is full");
    assert_eq!(take(1, 90), (false, 0, 110_000), "a clock that steps back");
    assert_eq!(take(0, 10_000), (true, 3, 0));
}

/// A request with more hits than the bucket holds passes when it is full, and is paid back.
#[test]
fn a_large_request_passes_in_a_full_bucket() {
    let mut tokens = Tokens::full(bucket(3, 10, 1), ms(0));
    assert!(!tokens.take(51, 50, ms(0)).allowed, "more than the limit");
    assert!(tokens.take(50, 50, ms(0)).allowed);
    let denied = tokens.take(1, 50, ms(0));
    assert_eq!((denied.allowed, denied.reset_after), (false, Micros::from_millis(4_800)));
    assert!(!tokens.take(1, 50, ms(4_799)).allowed);
    assert!(tokens.take(1, 50, ms(4_800)).allowed);
    assert!(!tokens.take(50, 50, ms(4_900)).allowed, "not full");
}

#[test]
fn denied_assignments_have_no_tokens() {
    let mut tokens = Tokens::full(Assignment::DenyAll, ms(0));
    assert!(!tokens.take(1, 9, ms(9_000)).allowed);
    assert!(tokens.take(0, 9, ms(9_000)).allowed, "a peek");
    tokens.assign(bucket(5, 1, 1), ms(10_000));
    assert!(!tokens.take(1, 9, ms(10_000)).allowed, "it starts empty");
    assert!(tokens.take(1, 9, ms(11_000)).allowed);
    assert_eq!(tokens.take_evenly(9, ms(13_000)), 7);
    assert_eq!(tokens.take_evenly(9, ms(23_000)), 0, "more than the size over time");
    assert_eq!(tokens.take_evenly(9, ms(23_000)), 8);
    assert_eq!(tokens.give_back(9, ms(23_000)).remaining, 5);
    tokens.assign(bucket(2, 1, 1), ms(23_000));
    assert_eq!(tokens.take(0, 0, ms(23_000)).remaining, 2, "up to the new size");
    assert!(tokens.is_full(ms(23_000)));
}

proptest! {
    /// No sequence of calls passes more than the size and the refill, and the stated wait suffices.
    #[test]
    fn passed_hits_are_within_the_rate(
        (max, per, seconds) in (1_u32..1_000, 1_u32..1_000, 1_u32..1_000),
        calls in prop::collection::vec((0_u64..3_000_000, 0_u64..20), 1..200),
    ) {
        let mut tokens = Tokens::full(bucket(max, per, seconds), Micros(0));
        let (mut now, mut passed) = (0_u64, 0_u128);
        for (pause, hits) in calls {
            now += pause;
            let taken = tokens.take(hits, 0, Micros(now));
            if taken.allowed {
                passed += u128::from(hits);
            }
            let window = u128::from(seconds) * 1_000_000;
            let refilled = u128::from(per) * u128::from(now);
            prop_assert!((passed - u128::from(max).min(passed)) * window <= refilled);
            if !taken.allowed && hits <= u64::from(max) {
                let mut waited = tokens;
                let at = Micros(now).saturating_add(taken.reset_after);
                prop_assert!(waited.take(hits, 0, at).allowed);
                let mut early = tokens;
                let before = Micros(at.0 - 1);
                prop_assert!(before < Micros(now) || !early.take(hits, 0, before).allowed);
            }
        }
    }

    /// A slow bucket that is asked often is as full as one that is asked once: it loses less than a
    /// microsecond per call.
    #[test]
    fn frequent_calls_lose_less_than_a_hundredth(
        seconds in 1_u32..100_000,
        step in 100_u64..9_999,
    ) {
        let empty = || {
            let mut tokens = Tokens::full(bucket(1_000, 1, seconds), Micros(0));
            assert!(tokens.take(1_000, 0, Micros(0)).allowed);
            tokens
        };
        let (mut often, mut once) = (empty(), empty());
        let calls = 1_000;
        for call in 1..=calls {
            often.refill(Micros(call * step));
        }
        once.refill(Micros(calls * step));
        prop_assert!(often.level <= once.level);
        prop_assert!(once.level - often.level <= once.level / 100 + 1);
    }
}
