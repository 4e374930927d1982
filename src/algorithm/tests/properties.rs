//! Property tests of the algorithms: what holds for every limit and every sequence of calls.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::model::Model;
use crate::algorithm::{LAST_INSTANT, plan, report};
use crate::decision::Decision;
use crate::limit::{Algorithm, Limit, SLIDING_REQUESTS_END, Tier, WINDOW_MAX};
use crate::step::{INTEGER_END, State, Step};
use crate::time::Micros;

/// One call: microseconds since the previous one, and its hits.
type Call = (u64, i64);

fn tier() -> impl Strategy<Value = Tier> {
    let window = prop_oneof![1..60u64, Just(1_000_000), Just(7), Just(86_400_000_000)];
    let requests = prop_oneof![8 => 1..12u64, 1 => Just(0)];
    (requests, window, 1..12u64).prop_map(|(requests, window, burst)| Tier {
        requests,
        window: Micros(window),
        burst,
        calendar: None,
    })
}

fn limit(tiers: impl Strategy<Value = Vec<Tier>>) -> impl Strategy<Value = Limit> {
    (select(&Algorithm::ALL[..]), tiers, any::<bool>()).prop_map(
        |(algorithm, tiers, count_denied)| Limit { algorithm, tiers: tiers.into(), count_denied },
    )
}

/// Calls, many of them at edges of the limit's windows.
fn calls(limit: &Limit, hits: std::ops::Range<i64>) -> impl Strategy<Value = Vec<Call>> + use<> {
    let window = limit.tiers[0].window.0;
    let gaps = vec![0, 1, window / 3, window / 2, window.saturating_sub(1), window, window + 1];
    let gap = prop_oneof![4 => select(gaps), 2 => 0..window, 1 => 0..3 * window];
    vec((gap, hits), 1..60)
}

/// A limit, a first instant, and calls.
type Scenario = (Limit, u64, Vec<Call>);

fn scenario_of(
    limit: impl Strategy<Value = Limit>,
    hits: std::ops::Range<i64>,
) -> impl Strategy<Value = Scenario> {
    let start = prop_oneof![0..100u64, Just(1_785_000_000_000_000)];
    (limit, start).prop_flat_map(move |(limit, start)| {
        let calls = calls(&limit, hits.clone());
        (Just(limit), Just(start), calls)
    })
}

/// A scenario with one to three tiers, which may block everything.
fn scenario(hits: std::ops::Range<i64>) -> impl Strategy<Value = Scenario> {
    scenario_of(limit(prop_oneof![2 => vec(tier(), 1), 1 => vec(tier(), 2..4)]), hits)
}

/// A scenario with one tier of at least one request.
fn one_tier_scenario(hits: std::ops::Range<i64>) -> impl Strategy<Value = Scenario> {
    let tier = tier().prop_map(|tier| Tier { requests: tier.requests.max(1), ..tier });
    scenario_of(limit(vec(tier, 1)), hits)
}

fn decide(limit: &Limit, state: &mut Option<State>, hits: i64, now: u64) -> (Step, Decision) {
    let step = plan(limit, hits, Micros(now));
    let outcome = step.apply(state);
    for tier in &outcome.tiers {
        assert!(tier.numbers.iter().all(|&number| number < INTEGER_END), "{tier:?}");
    }
    let decision = report(limit, &step, &outcome);
    (step, decision)
}

/// Remaining minus used hits: twice the distance to the limit, plus a constant.
fn room(limit: &Limit, state: &Option<State>, now: u64) -> i128 {
    let mut state = state.clone();
    let decision = decide(limit, &mut state, 0, now).1;
    i128::from(decision.remaining) - i128::from(decision.used)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 1_000,
        failure_persistence: None, // the failure is printed small enough to become a table
        ..ProptestConfig::default()
    })]

    #[test]
    fn decisions_equal_those_of_the_naive_model((limit, start, calls) in scenario(-4..14)) {
        let mut model = Model::new(&limit);
        let (mut state, mut now) = (None, start);
        for (gap, hits) in calls {
            now += gap;
            // A log drops denied hits that affect no decision, so a refund finds fewer of them.
            let log = limit.algorithm == Algorithm::SlidingWindowLog;
            let hits = if log && limit.count_denied { hits.max(0) } else { hits };
            let allowed = model.decide(hits, now);
            let (_, decision) = decide(&limit, &mut state, hits, now);
            prop_assert_eq!(decision.allowed, allowed, "{} hits at {}", hits, now);
            prop_assert_eq!(decision.remaining, model.remaining(decision.tier, now));
        }
    }

    #[test]
    fn no_span_admits_more_than_the_limit((limit, start, calls) in scenario(0..14)) {
        let (mut state, mut now, mut admitted) = (None, start, Vec::new());
        for (gap, hits) in calls {
            now += gap;
            if decide(&limit, &mut state, hits, now).1.allowed {
                admitted.push((now, hits as u128));
            }
        }
        for tier in &limit.tiers {
            for (first, &(from, _)) in admitted.iter().enumerate() {
                let mut sum = 0;
                for &(to, hits) in &admitted[first..] {
                    sum += hits;
                    let (n, w) = (u128::from(tier.requests), u128::from(tier.window.0));
                    let length = u128::from(to - from);
                    let edges = u128::from(to) / w - u128::from(from) / w;
                    let bound = match limit.algorithm {
                        Algorithm::FixedWindow => n * w * (edges + 1),
                        Algorithm::SlidingWindow if edges == 0 => n * w,
                        Algorithm::SlidingWindow => n * (w + length),
                        Algorithm::SlidingWindowLog | Algorithm::Concurrency => {
                            n * w * (length / w + 1)
                        }
                        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                            n * length + u128::from(tier.burst) * w
                        }
                    };
                    prop_assert!(sum * w <= bound, "{sum} hits from {from} to {to}");
                }
            }
        }
    }

    #[test]
    fn a_refund_never_admits_more_than_was_taken(
        (limit, start, calls) in one_tier_scenario(-6..14),
    ) {
        let (mut state, mut now) = (None, start);
        for (gap, hits) in calls {
            now += gap;
            let before = room(&limit, &state, now);
            if hits < 0 {
                decide(&limit, &mut state, hits, now);
                let gained = room(&limit, &state, now) - before;
                prop_assert!((0..=-2 * i128::from(hits)).contains(&gained), "{gained}");
            } else if decide(&limit, &mut state, hits, now).1.allowed {
                let mut back = state.clone();
                decide(&limit, &mut back, -hits, now);
                prop_assert_eq!(room(&limit, &back, now), before);
            }
        }
    }

    #[test]
    fn the_order_of_tiers_changes_nothing(
        (limit, start, calls) in scenario(-4..14),
        (by, reverse) in (0..16usize, any::<bool>()),
    ) {
        let mut rotated = limit.clone();
        let by = by % rotated.tiers.len();
        rotated.tiers.rotate_left(by);
        if reverse {
            rotated.tiers.reverse();
        }
        let (mut state, mut other, mut now) = (None, None, start);
        for (gap, hits) in calls {
            now += gap;
            let (_, a) = decide(&limit, &mut state, hits, now);
            let (_, b) = decide(&rotated, &mut other, hits, now);
            prop_assert_eq!(a.allowed, b.allowed);
            if !a.allowed {
                prop_assert_eq!(a.reset_after, b.reset_after);
            }
            // The same tier has the same state in both counters.
            let left = |limit: &Limit, state: &Option<State>, tier: Tier| {
                let position = limit.tiers.iter().position(|&other| other == tier);
                let step = plan(limit, 0, Micros(now));
                let seen = step.apply(&mut state.clone()).tiers;
                position.and_then(|position| seen.get(position).copied())
            };
            for &tier in &limit.tiers {
                prop_assert_eq!(left(&limit, &state, tier), left(&rotated, &other, tier));
            }
        }
    }

    #[test]
    fn denials_and_peeks_write_nothing(
        (limit, start, calls) in scenario(-4..14), back in 0..200u64,
    ) {
        let (mut state, mut now) = (None, start);
        for (gap, hits) in calls {
            now += gap;
            let before = state.clone();
            let (step, decision) = decide(&limit, &mut state, hits, now);
            if hits == 0 || !(decision.allowed || step.count_denied) {
                prop_assert_eq!(&state, &before);
            }
            if hits <= 0 && before.is_none() {
                prop_assert_eq!(&state, &None);
            }
            let before = state.clone();
            decide(&limit, &mut state, 0, now.saturating_sub(back));
            prop_assert_eq!(&state, &before);
        }
    }

    #[test]
    fn an_expired_state_equals_none(
        (limit, start, calls) in scenario(-4..14), later in 0..3u64, probe in -4..14i64,
    ) {
        let (mut state, mut now) = (None, start);
        for (gap, hits) in calls {
            now += gap;
            let step = decide(&limit, &mut state, hits, now).0;
            let Some(kept) = &state else { continue };
            let at = step.expires_at(kept).0.max(now) + later;
            let (mut old, mut none) = (state.clone(), None);
            let (step, with) = decide(&limit, &mut old, probe, at);
            let (_, without) = decide(&limit, &mut none, probe, at);
            prop_assert_eq!(with, without);
            prop_assert!(step.expires_at(kept).0 <= at);
            prop_assert_eq!(step.fullness(kept), 0);
            if none.is_none() {
                prop_assert_eq!(&old, &state);
            } else {
                prop_assert_eq!(&old, &none);
            }
        }
    }

    #[test]
    fn a_state_matters_until_it_expires((limit, start, calls) in one_tier_scenario(1..4)) {
        let (mut state, mut now) = (None, start);
        for (gap, hits) in calls {
            now += gap;
            let step = decide(&limit, &mut state, hits, now).0;
            let Some(kept) = &state else { continue };
            let last = step.expires_at(kept).0 - 1;
            if last >= now {
                prop_assert!(decide(&limit, &mut state.clone(), 0, last).1.used > 0);
            }
        }
    }

    #[test]
    fn a_clock_set_back_loses_no_count(
        (limit, start, calls) in one_tier_scenario(0..14), back in 0..200u64,
    ) {
        let (mut state, mut now) = (None, start + 200);
        for (gap, hits) in calls {
            now += gap;
            let recorded = decide(&limit, &mut state, hits, now).1.allowed && hits > 0;
            let Some(kept) = state.clone() else { continue };
            let before = room(&limit, &state, now);
            prop_assert!(room(&limit, &state, now - back) <= before);
            let mut set_back = state.clone();
            let (step, decision) = decide(&limit, &mut set_back, hits, now - back);
            let after = room(&limit, &set_back, now);
            prop_assert!(after <= before);
            if recorded && decision.allowed {
                prop_assert_eq!(after, before - 2 * i128::from(hits));
                let written = set_back.expect("hits were counted");
                prop_assert!(step.expires_at(&written) >= step.expires_at(&kept));
            }
        }
    }

    #[test]
    fn the_reset_of_a_denial_is_exact((limit, start, calls) in scenario(-2..14)) {
        let (mut state, mut now) = (None, start);
        for (gap, hits) in calls {
            now += gap;
            let (_, decision) = decide(&limit, &mut state, hits, now);
            if decision.allowed {
                continue;
            }
            let bucket = matches!(limit.algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket);
            let most = |tier: &Tier| match (bucket, tier.requests) {
                (true, 1..) => tier.burst,
                _ => tier.requests,
            };
            if limit.tiers.iter().any(|tier| hits as u64 > most(tier)) {
                continue;
            }
            let passes = now + decision.reset_after.0;
            prop_assert!(passes > now);
            let early = decide(&limit, &mut state.clone(), hits, passes - 1).1;
            prop_assert!(!early.allowed, "{hits} hits pass before, at {}", passes - 1);
            prop_assert!(decide(&limit, &mut state.clone(), hits, passes).1.allowed, "at {passes}");
        }
    }

    #[test]
    fn the_reset_of_a_pass_is_when_more_remains(
        (limit, start, calls) in one_tier_scenario(-4..14),
    ) {
        let (mut state, mut now) = (None, start);
        for (gap, hits) in calls {
            now += gap;
            let (_, decision) = decide(&limit, &mut state, hits, now);
            if !decision.allowed {
                continue;
            }
            let at = now + decision.reset_after.0;
            let later = |at| decide(&limit, &mut state.clone(), 0, at).1.remaining;
            if limit.algorithm == Algorithm::FixedWindow {
                prop_assert_eq!(at % limit.tiers[0].window.0, 0);
            } else if decision.used == 0 {
                prop_assert_eq!(at, now);
            } else {
                prop_assert!(at > now && later(at) > decision.remaining);
                prop_assert_eq!(later(at - 1), decision.remaining);
            }
        }
    }

    #[test]
    fn at_full_fullness_the_next_hit_is_denied((limit, start, calls) in scenario(-2..14)) {
        let (mut state, mut now) = (None, start);
        for (gap, hits) in calls {
            now += gap;
            let (step, _) = decide(&limit, &mut state, hits, now);
            let Some(kept) = &state else { continue };
            let one = decide(&limit, &mut state.clone(), 1, now).1;
            let blocked = limit.tiers.iter().any(|tier| tier.requests == 0);
            if !blocked {
                prop_assert_eq!(step.fullness(kept) == u16::MAX, !one.allowed);
            }
        }
    }

    #[test]
    fn large_numbers_are_decided_exactly(
        algorithm in select(&[
            Algorithm::FixedWindow,
            Algorithm::SlidingWindow,
            Algorithm::TokenBucket,
            Algorithm::LeakyBucket,
        ][..]),
        requests in 1..SLIDING_REQUESTS_END,
        window in 1..=WINDOW_MAX.0,
        shift in (0..52u32, 0..48u32),
        calls in vec((0..=200u64, 0..=120i64), 1..30),
    ) {
        let (requests, window) = ((requests >> shift.0).max(1), (window >> shift.1).max(1));
        let tier = Tier { requests, window: Micros(window), burst: requests, calendar: None };
        let limit = Limit { algorithm, tiers: Box::new([tier]), count_denied: false };
        prop_assert_eq!(limit.check(), Ok(()));
        let (mut model, mut state) = (Model::new(&limit), None);
        let mut now = 1_785_000_000_000_000;
        for (gap, percent) in calls {
            now += window * gap / 100;
            if now + 2 * window >= LAST_INSTANT.0 {
                break;
            }
            let hits = (requests as i128 * i128::from(percent) / 100) as i64;
            let allowed = model.decide(hits, now);
            let (_, decision) = decide(&limit, &mut state, hits, now);
            prop_assert_eq!(decision.allowed, allowed, "{} hits at {}", hits, now);
            prop_assert_eq!(decision.remaining, model.remaining(0, now));
            if !allowed && hits as u64 <= requests {
                let passes = now + decision.reset_after.0;
                prop_assert!(!decide(&limit, &mut state.clone(), hits, passes - 1).1.allowed);
                prop_assert!(decide(&limit, &mut state.clone(), hits, passes).1.allowed);
            }
        }
    }

    #[test]
    fn no_number_panics(
        algorithm in select(&Algorithm::ALL[..]),
        numbers in vec((any::<u64>(), any::<u64>(), any::<u64>(), 0..64u32), 0..3),
        count_denied in any::<bool>(),
        calls in vec((any::<u64>(), any::<i64>(), 0..64u32), 1..12),
    ) {
        let tiers = numbers.iter().map(|&(requests, window, burst, shift)| Tier {
            requests: requests >> shift,
            window: Micros(window >> shift),
            burst: burst >> shift, calendar: None,
});
        let limit = Limit { algorithm, tiers: tiers.collect(), count_denied };
        let mut state = None;
        for (now, hits, shift) in calls {
            let (step, _) = decide(&limit, &mut state, hits >> shift, now >> shift);
            if let Some(kept) = &state {
                prop_assert!(step.expires_at(kept).0 < INTEGER_END);
                step.fullness(kept);
            }
        }
    }
}
