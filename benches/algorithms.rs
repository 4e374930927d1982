//! Cost of one decision by each algorithm: plan, step and report, on one counter, without a store.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use weir::algorithm;
use weir::limit::{Algorithm, Calendar, Limit, Period, Tier, WindowStart, Zone};
use weir::step::{Lease, LeaseId, State};
use weir::time::Micros;

/// Time between two requests: a hundredth of the window, so that a quarter is denied.
const PAUSE: u64 = 600_000;

fn limit(algorithm: Algorithm, tiers: usize) -> Limit {
    let tier = |number: usize| Tier {
        requests: 75 * (number as u64 + 1),
        window: Micros::from_secs(60 * (number as u64 + 1)),
        burst: 75,
        calendar: None,
    };
    Limit { algorithm, tiers: (0..tiers).map(tier).collect(), count_denied: false }
}

fn decisions(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("algorithm");
    group.throughput(Throughput::Elements(1));
    for algorithm in Algorithm::ALL {
        for tiers in [1, 3] {
            let limit = limit(algorithm, tiers);
            let mut state: Option<State> = None;
            let mut now = Micros::from_secs(1_700_000_000);
            let mut id = 0_u64;
            group.bench_function(format!("{}/tiers_{tiers}", algorithm.name()), |bencher| {
                bencher.iter(|| {
                    now = now.saturating_add(Micros(PAUSE));
                    let mut step = algorithm::plan(black_box(&limit), 1, now);
                    if algorithm == Algorithm::Concurrency {
                        id += 1;
                        let until = now.saturating_add(Micros::from_secs(60));
                        step.lease = Some(Lease::Open { id: LeaseId::from_bits(id), until });
                    }
                    let outcome = step.apply(&mut state);
                    algorithm::report(&limit, &step, &outcome)
                });
            });
        }
    }
    group.finish();
}

/// A fixed window by the calendar: with the window of the decision before, and with another window at
/// each decision, which is read from the zone.
fn calendar_decisions(criterion: &mut Criterion) {
    let zone = Zone::named("Europe/Zurich").expect("a zone");
    let calendar = Calendar { period: Period::Month, zone, starts: WindowStart::FIRST };
    let tiers = Box::new([Tier::by_calendar(75, calendar)]);
    let limit = Limit { algorithm: Algorithm::FixedWindow, tiers, count_denied: false };
    let month = calendar.nominal().0;
    let mut group = criterion.benchmark_group("calendar");
    group.throughput(Throughput::Elements(1));
    for (name, pause, months) in [("same_window", PAUSE, 1), ("other_window", month, 1_000)] {
        let mut state: Option<State> = None;
        let (begin, mut passed) = (Micros::from_secs(1_700_000_000), 0);
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                passed = (passed + pause) % (months * month);
                if passed < pause {
                    state = None;
                }
                let step = algorithm::plan(black_box(&limit), 1, Micros(begin.0 + passed));
                let outcome = step.apply(&mut state);
                algorithm::report(&limit, &step, &outcome)
            });
        });
    }
    group.finish();
}

criterion_group!(benches, decisions, calendar_decisions);
criterion_main!(benches);
