//! Tests of fixed windows by the calendar: random calls, held against a count per window, and steps
//! whose clock is behind.

use std::collections::BTreeMap;

use crate::algorithm::{fixed_window_end, plan, report};
use crate::decision::Decision;
use crate::limit::{Algorithm, Calendar, Limit, Period, Tier, WindowStart, Zone};
use crate::step::{State, Step, StepParams};
use crate::testing::{MARCH, Rng, calendar_edges};
use crate::time::Micros;

const HOUR: u64 = 3_600_000_000;
const DAY: u64 = 24 * HOUR;

/// Zones whose clocks change by an hour, by half an hour, at midnight, by a day, and never.
const ZONES: [&str; 5] =
    ["Europe/Zurich", "Australia/Lord_Howe", "America/Sao_Paulo", "Pacific/Apia", "UTC"];

fn limit(tiers: Vec<Tier>, count_denied: bool) -> Limit {
    let limit = Limit { algorithm: Algorithm::FixedWindow, tiers: tiers.into(), count_denied };
    assert_eq!(limit.check(), Ok(()));
    limit
}

fn tier(rng: &mut Rng) -> Tier {
    let starts = WindowStart {
        month: 1 + rng.below(12) as u8,
        day: 1 + rng.below(31) as u8,
        weekday: 1 + rng.below(7) as u8,
        hour: rng.below(24) as u8,
    };
    let zone = Zone::named(rng.pick(&ZONES)).expect("a zone");
    let calendar = Calendar { period: rng.pick(&Period::ALL), zone, starts };
    Tier::by_calendar(rng.below(12), calendar)
}

fn window(tier: &Tier, now: u64) -> (Micros, Micros) {
    tier.calendar.expect("a calendar").window_at(Micros(now))
}

fn decide(limit: &Limit, state: &mut Option<State>, hits: i64, now: u64) -> (Step, Decision) {
    let step = plan(limit, hits, Micros(now));
    let outcome = step.apply(state);
    let decision = report(limit, &step, &outcome);
    (step, decision)
}

/// The next instant: the same, a little later, or around the end of a window.
fn later(tier: &Tier, now: u64, rng: &mut Rng) -> u64 {
    let end = window(tier, now).1.0;
    match rng.below(7) {
        0 => now,
        1 => now + rng.below(HOUR),
        2 => now + rng.below(2 * DAY),
        3 => now + rng.below(40 * DAY),
        4 => end - 1,
        5 => end,
        _ => end + rng.below(DAY),
    }
}

#[test]
fn decisions_count_the_hits_of_each_window() {
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let tiers: Vec<Tier> = (0..=rng.below(2)).map(|_| tier(&mut rng)).collect();
        let limit = limit(tiers.clone(), rng.chance(50));
        let mut counts: Vec<BTreeMap<Micros, u64>> = vec![BTreeMap::new(); tiers.len()];
        let (mut state, mut now) = (None, rng.below(100 * 365 * DAY));
        for _ in 0..60 {
            now = later(&rng.pick(&tiers), now, &mut rng);
            let hits = rng.below(18) as i64 - 4;
            let units = hits.unsigned_abs();
            let mut current: Vec<&mut u64> = tiers
                .iter()
                .zip(&mut counts)
                .map(|(tier, counts)| counts.entry(window(tier, now).0).or_default())
                .collect();
            let fits = |(count, tier): (&&mut u64, &Tier)| **count + units <= tier.requests;
            let allowed = hits < 0 || current.iter().zip(&tiers).all(fits);
            for count in &mut current {
                if hits < 0 {
                    **count = count.saturating_sub(units);
                } else if allowed || limit.count_denied {
                    **count += units;
                }
            }
            let (step, decision) = decide(&limit, &mut state, hits, now);
            let what = format!("seed {seed}: {hits} hits at {now} of {limit:?}: {decision:?}");
            assert_eq!(decision.allowed, allowed, "{what}");
            let [tier, used] = [tiers[decision.tier].requests, *current[decision.tier]];
            assert_eq!((decision.used, decision.remaining), (used, tier.saturating_sub(used)));
            if let [only] = &tiers[..] {
                let rest = window(only, now).1.saturating_sub(Micros(now));
                assert_eq!(decision.reset_after, rest, "{what}");
            }
            if let (Some(state), true) = (&state, current.iter().any(|count| **count > 0)) {
                let counted = tiers.iter().zip(&current).filter(|(_, count)| ***count > 0);
                let last = counted.map(|(tier, _)| window(tier, now).1).max();
                assert!(Some(step.expires_at(state)) >= last, "{what}");
            }
        }
    }
}

/// The counter is in the next window already, because another instance's clock is ahead. Hits count
/// there, the reset is the end of that window, and it is kept as long.
#[test]
fn a_clock_behind_reads_the_later_window() {
    for edge in calendar_edges() {
        let limit = limit(vec![Tier::by_calendar(5, edge.calendar)], true);
        let (start, end, what) = (edge.start.0, edge.end.0, format!("{edge:?}"));
        assert_eq!(edge.calendar.window_at(edge.start), (edge.start, edge.end), "{what}");
        let mut state = None;
        decide(&limit, &mut state, 4, start - 2_000_000);
        let (_, first) = decide(&limit, &mut state, 1, start);
        assert_eq!((first.used, first.reset_after), (1, Micros(end - start)), "{what}");
        let behind = start - 1_500_000;
        let (step, decision) = decide(&limit, &mut state, 2, behind);
        assert_eq!((decision.used, decision.reset_after), (3, Micros(end - behind)), "{what}");
        let kept = step.expires_at(state.as_ref().expect("a state"));
        assert!(kept >= Micros(end), "{what}: kept until {kept:?}");
        // A refund of hits of the earlier window finds none.
        let (_, refund) = decide(&limit, &mut state, -2, behind);
        assert_eq!(refund.used, 3, "{what}");
        let (_, denied) = decide(&limit, &mut state, 3, behind);
        assert!(!denied.allowed, "{what}");
        assert_eq!(denied.reset_after, Micros(end - behind), "{what}");
    }
}

#[test]
fn the_end_of_any_window_is_that_of_its_state() {
    let tier = Tier::by_calendar(1, MARCH.calendar);
    let limit = limit(vec![tier], true);
    let step = plan(&limit, 1, Micros(MARCH.start.0 - 1));
    let StepParams::FixedWindow(planned) = &step.params else { panic!("{step:?}") };
    let end = |start| fixed_window_end(&tier, &planned[0], start);
    assert_eq!(end(planned[0].start), MARCH.start);
    assert_eq!(end(planned[0].end), MARCH.end);
    let ordinary = Tier { calendar: None, ..tier };
    let next = fixed_window_end(&ordinary, &planned[0], planned[0].end);
    assert_eq!(next.saturating_sub(planned[0].end), Micros(28 * DAY));
    // A state that no instance wrote.
    assert!(end(Micros(u64::MAX)) > Micros::ZERO);
}
