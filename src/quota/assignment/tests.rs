//! Tests of assignments.

use proptest::prelude::*;

use super::*;
use crate::limit::{HITS_END, WINDOW_MAX};
use crate::quota::{PartClaim, fair_parts};
use crate::time::Micros;

const YEARS_8: u64 = 8 * 365 * 86_400;

fn quota(requests: u64, seconds: u64, burst: u64) -> Quota {
    Quota { requests, window: Micros::from_secs(seconds), burst }
}

#[test]
fn a_share_becomes_a_bucket() {
    // Requests and seconds of the quota, its burst, the share; then the bucket.
    let cases = [
        // Fast: tokens per second.
        ((3_000, 1, 600, SHARES), (600, 3_000, 1)),
        ((3_000, 1, 600, SHARES / 2), (300, 1_500, 1)),
        ((1_000, 1, 200, SHARES), (200, 1_000, 1)),
        ((u64::from(u32::MAX), 1, HITS_END - 1, SHARES), (u32::MAX, u32::MAX, 1)),
        ((HITS_END - 1, 1, 1, SHARES), (1, u32::MAX, 1)),
        // The shortest interval with 1000 tokens.
        ((999, 1, 200, SHARES), (200, 1_998, 2)),
        ((300, 1, 60, SHARES), (60, 1_200, 4)),
        ((300, 1, 60, SHARES / 3), (19, 1_099, 11)),
        ((1, 1, 1, SHARES), (1, 1_000, 1_000)),
        ((7, 60, 1, SHARES), (1, 1_000, 8_572)),
        ((1, 999, 1, SHARES), (1, 1_000, 999_000)),
        // Slow: the period of one token, rounded up.
        ((1, 1_000, 1, SHARES), (1, 1, 1_000)),
        ((1, 3_600, 1, SHARES), (1, 1, 3_600)),
        ((1, 86_400, 1, SHARES), (1, 1, 86_400)),
        ((1, 86_400, 1, SHARES / 3), (1, 1, 259_201)),
        ((7, 86_400, 1, SHARES), (1, 1, 12_343)),
        ((1, 3_600, 1, SHARES / 3), (1, 1, 10_801)),
        ((1, YEARS_8, 1, SHARES), (1, 1, 252_288_000)),
        // The whole quota at most.
        ((3_000, 1, 600, u64::MAX), (600, 3_000, 1)),
        // A part of the burst below 1 counts as 1.
        ((3_000, 1, 600, SHARES / 1_000), (1, 1_002, 334)),
        ((3_000, 1, 0, SHARES), (1, 3_000, 1)),
    ];
    for ((requests, seconds, burst, share), (max_tokens, tokens_per_fill, fill_seconds)) in cases {
        let expected = Assignment::Bucket { max_tokens, tokens_per_fill, fill_seconds };
        let quota = quota(requests, seconds, burst);
        assert_eq!(Assignment::of(&quota, share), expected, "{quota:?} {share}");
    }
}

#[test]
fn nothing_to_share_denies_all() {
    for (quota, share) in [
        (quota(3_000, 1, 600), 0),
        (quota(0, 1, 600), SHARES),
        (quota(3_000, 0, 600), SHARES),
        // One hit in 252 288 000 s, shared by 18 holders: less than one in 136 years each.
        (quota(1, YEARS_8, 1), SHARES / 18),
    ] {
        assert_eq!(Assignment::of(&quota, share), Assignment::DenyAll, "{quota:?} {share}");
    }
}

/// Quotas from 1 hit in 8 years to 2^53 per microsecond.
fn quotas() -> impl Strategy<Value = Quota> {
    let requests = prop_oneof![0..10_u64, 0..100_000_u64, 0..1_u64 << 33, 0..HITS_END];
    let seconds = (1..=YEARS_8).prop_map(Micros::from_secs);
    let window = prop_oneof![
        Just(Micros::SECOND),
        (1..100_u64).prop_map(Micros::from_secs),
        seconds,
        (1..=WINDOW_MAX.0).prop_map(Micros),
    ];
    let burst = prop_oneof![0..100_u64, 0..HITS_END];
    (requests, window, burst).prop_map(|(requests, window, burst)| Quota {
        requests,
        window,
        burst,
    })
}

fn shares() -> impl Strategy<Value = u64> {
    prop_oneof![0..100_u64, 0..=SHARES, Just(SHARES), any::<u64>()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    /// Never above the share; less than 0.1 % below it wherever `u32` has the rate; and no rate is
    /// denied that `u32` has.
    #[test]
    fn the_rate_is_just_below_the_share(quota in quotas(), share in shares()) {
        let share = u128::from(share.min(SHARES));
        // Hits per second, as a fraction.
        let hits = u128::from(quota.requests) * share * 1_000_000;
        let seconds = u128::from(SHARES) * u128::from(quota.window.0);
        match Assignment::of(&quota, share as u64) {
            Assignment::Bucket { tokens_per_fill, fill_seconds, .. } => {
                prop_assert!(tokens_per_fill > 0 && fill_seconds > 0);
                let (tokens, period) = (u128::from(tokens_per_fill), u128::from(fill_seconds));
                // tokens / period <= hits / seconds
                prop_assert!(tokens * seconds <= hits * period);
                // tokens / period > 0.999 hits / seconds
                let close = tokens * seconds * 1_000 > hits * period * 999;
                let too_fast = tokens_per_fill == u32::MAX && fill_seconds == 1;
                prop_assert!(close || too_fast, "{tokens}/{period} of {hits}/{seconds}");
            }
            Assignment::DenyAll => {
                prop_assert!(hits == 0 || seconds.div_ceil(hits) > u128::from(u32::MAX));
            }
            Assignment::AllowAll => prop_assert!(false, "a quota allows all"),
        }
    }

    /// The buckets of all holders start with at most the burst, and one token for each holder whose
    /// part of the burst is below 1.
    #[test]
    fn all_buckets_together_keep_the_burst(
        quota in quotas(),
        wants in proptest::collection::vec(0..=SHARES, 1..50),
    ) {
        let claim = |want| PartClaim { held: 0, want };
        let claims: Vec<PartClaim> = wants.into_iter().map(claim).collect();
        let (mut tokens, mut single) = (0, 0);
        for share in fair_parts(SHARES, &claims) {
            if let Assignment::Bucket { max_tokens, .. } = Assignment::of(&quota, share) {
                prop_assert!(max_tokens > 0);
                tokens += u128::from(max_tokens);
                let part = u128::from(quota.burst) * u128::from(share);
                single += u128::from(part < u128::from(SHARES));
            }
        }
        prop_assert!(tokens <= u128::from(quota.burst) + single, "{tokens} of {quota:?}");
    }

    #[test]
    fn any_numbers_become_an_assignment(numbers in any::<(u64, u64, u64)>(), share in shares()) {
        let (requests, window, burst) = numbers;
        let quota = Quota { requests, window: Micros(window), burst };
        prop_assert!(Assignment::of(&quota, share) != Assignment::AllowAll);
    }
}
