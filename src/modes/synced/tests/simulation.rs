//! Simulations of several instances with random traffic, checked against all hits that passed.
//!
//! `src/limiter/tests/simulation` covers what this one does not: latency, reloads, outages, the end
//! of instances, clocks that differ, and refunds.

use super::*;
use crate::testing::{CalendarEdge, calendar_edges};

/// A request to one instance.
#[derive(Clone, Copy, Debug)]
struct Event {
    instance: usize,
    later: u64,
    hits: i64,
    result: Option<FakeResult>,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let later = prop_oneof![4 => Just(0), 6 => 1..100_000_u64, 2 => 1..2_000_000_u64];
    let hits = prop_oneof![8 => Just(1), 3 => 0..6_i64];
    let results = select(vec![ERROR_REPLY, LOST_AFTER]);
    let result = proptest::option::weighted(0.02, results);
    let event = (0..3_usize, later, hits, result)
        .prop_map(|(instance, later, hits, result)| Event { instance, later, hits, result });
    vec(event, 1..200)
}

fn limits() -> impl Strategy<Value = Limit> {
    let one = |window: u64| {
        (1..30_u64, 1..30_u64).prop_map(move |(requests, burst)| tier(requests, window, burst))
    };
    let tiers = prop_oneof![
        2 => one(1_000_000).prop_map(|tier| vec![tier]),
        1 => one(60_000_000).prop_map(|tier| vec![tier]),
        2 => (one(1_000_000), one(7_000_000)).prop_map(|(a, b)| vec![a, b]),
    ];
    (select(&ALGORITHMS[..]), tiers).prop_map(|(algorithm, tiers)| Limit {
        algorithm,
        tiers: tiers.into(),
        count_denied: false,
    })
}

/// A limit by the calendar, with or without a second window, and an edge of its windows.
fn calendar_limits() -> impl Strategy<Value = (Limit, CalendarEdge)> {
    let edge = select(calendar_edges().to_vec());
    (edge, 1..30_u64, proptest::option::of(1..30_u64)).prop_map(|(edge, requests, more)| {
        let mut tiers = vec![Tier::by_calendar(requests, edge.calendar)];
        tiers.extend(more.map(|more| tier(more, 7_000_000, more)));
        let limit =
            Limit { algorithm: Algorithm::FixedWindow, tiers: tiers.into(), count_denied: false };
        (limit, edge)
    })
}

/// Counts hits without a limit: the state has all hits that passed.
fn account(limit: &Limit, state: &mut Option<State>, hits: i64, now: u64) {
    let mut step = algorithm::plan(limit, hits, Micros(now));
    step.count_denied = true;
    if let crate::step::StepParams::Gcra(tiers) = &mut step.params {
        for tier in tiers {
            tier.latest_denied = crate::step::GcraTime::LAST;
        }
    }
    step.apply(state);
}

fn would_pass(limit: &Limit, state: &Option<State>, hits: i64, now: u64) -> bool {
    algorithm::plan(limit, hits, Micros(now)).apply(&mut state.clone()).allowed
}

/// Checks that no denial is early, and that all replicas have the same counts in the end. A denial is
/// early if the hits would have fitted in addition to all hits that passed.
fn check_counts(limit: &Limit, start: u64, events: &[Event]) -> Result<(), TestCaseError> {
    let shared = shared();
    let instances = [0, 1, 2].map(|_| SyncedMode::new(shared.clone(), Arc::default()));
    let (mut passed, mut now) = (None, start);
    for event in events {
        now += event.later;
        if let Some(result) = event.result {
            // A failing first request would fall back, which is not tested here.
            if instances[event.instance].replicas() > 0 {
                shared.push_result(result);
            }
        }
        for instance in &instances {
            run_due(instance, now);
        }
        shared.clear_results();
        let decision = hit(&instances[event.instance], limit, event.hits, now).unwrap();
        if decision.allowed {
            account(limit, &mut passed, event.hits, now);
        } else {
            let early = would_pass(limit, &passed, event.hits, now);
            prop_assert!(!early, "{:?} denied early at {}: {:?}", event, now - start, decision);
        }
    }
    // Two exchanges of each without traffic: one sends all counts, one receives them.
    now += 1;
    for _ in 0..2 {
        for instance in &instances {
            let keys = instance.all_keys();
            for key in keys {
                instance.exchange(key, Micros(now), false).now_or_never().expect("at once");
            }
        }
    }
    for instance in &instances {
        if instance.replicas() > 0 {
            let seen = hit(instance, limit, 0, now).unwrap();
            prop_assert_eq!(seen, stored(&shared, limit, now));
        }
    }
    // Windows have counted exactly the hits that passed.
    if matches!(limit.algorithm, Algorithm::FixedWindow | Algorithm::SlidingWindow) {
        let step = algorithm::plan(limit, 0, Micros(now));
        let outcome = step.apply(&mut passed);
        let reported = algorithm::report(limit, &step, &outcome);
        prop_assert_eq!(stored(&shared, limit, now), reported);
    }
    Ok(())
}

/// The interval of the periodic work, in microseconds.
const PERIOD: u64 = 10_000;

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_early_denials_and_all_replicas_converge(
        limit in limits(), events in events(),
    ) {
        check_counts(&limit, START, &events)?;
    }

    /// The same around an edge between calendar windows of unequal length.
    #[test]
    fn replicas_converge_around_calendar_edges(
        (limit, edge) in calendar_limits(), before in 0..6_000_000_u64, events in events(),
    ) {
        check_counts(&limit, edge.start.0 - before, &events)?;
    }

    /// The hits over the limit are at most those that the other instances allowed in one interval.
    #[test]
    fn overrun_is_at_most_one_interval_of_the_others(
        requests in 1..60_u64, events in events(),
    ) {
        let limit = Limit {
            algorithm: Algorithm::FixedWindow,
            tiers: Box::new([tier(requests, 1 << 40, requests)]),
            count_denied: false,
        };
        let shared = shared();
        let instances = [0, 1, 2].map(|_| SyncedMode::new(shared.clone(), Arc::default()));
        let (mut all, mut now) = (0_u64, START);
        let mut passed: Vec<(usize, u64, u64)> = Vec::new();
        for event in events {
            for _ in 0..event.later.min(INTERVAL.0 / 4).div_ceil(PERIOD) {
                now += PERIOD;
                for instance in &instances {
                    run_due(instance, now);
                }
            }
            let decision = hit(&instances[event.instance], &limit, event.hits, now).unwrap();
            if !decision.allowed || event.hits == 0 {
                continue;
            }
            let hits = event.hits.unsigned_abs();
            all += hits;
            passed.push((event.instance, now, hits));
            // Each of the two exchanges of an interval may be late by one period.
            let since = now.saturating_sub(INTERVAL.0 + 2 * PERIOD);
            let unknown = passed.iter().filter(|(by, at, _)| *by != event.instance && *at >= since);
            let unknown: u64 = unknown.map(|(_, _, hits)| hits).sum();
            prop_assert!(all <= requests + unknown, "{all} of {requests}, {unknown} unknown");
        }
    }
}
