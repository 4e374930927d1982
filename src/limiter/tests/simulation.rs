//! A deterministic simulation: several instances with the real decision code, over a network with
//! latency, reordering and loss, and one to three Redis nodes with their own clock, which fail
//! separately. Instances estimate that clock from round trips, as in production.
//!
//! A seed determines a schedule, and a schedule determines its run: one thread, virtual time, no
//! randomness outside the seed. After each run, laws taken from `docs/modes.md` judge the history.
//! A failing schedule is shrunk and printed.
//!
//! `WEIR_SIMULATION_SEED=N` repeats one seed, `WEIR_SIMULATION_SEEDS=N` sets the number of seeds,
//! and `WEIR_SIMULATION_FROM=N` the first one. `WEIR_SIMULATION_ALL=1` reports every broken law
//! once instead of stopping at the first.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::testing::lock;

mod history;
mod instance;
mod laws;
mod regressions;
mod rules;
mod run;
mod schedule;
mod shrink;
mod witness;

use laws::Violation;
use schedule::Schedule;

/// Seeds of an ordinary test run. `make simulation` runs far more.
const SEEDS: u64 = 2_000;

/// Runs a schedule. Returns the first broken law, and the number of recorded events.
fn judge(schedule: &Schedule) -> (Option<Violation>, usize) {
    let history = run::run(schedule);
    (laws::broken(schedule, &history), history.len())
}

/// The shrunk history of a failing schedule, and the command that repeats it.
fn report(seed: u64, schedule: Schedule, violation: &Violation) -> String {
    let schedule = shrink::shrunk(schedule, violation.law);
    let history = run::run(&schedule);
    let shown = laws::broken(&schedule, &history);
    let what = shown.map_or_else(|| violation.what.clone(), |shown| shown.what);
    format!(
        "law `{}`: {what}\n{}\nrepeat: WEIR_SIMULATION_SEED={seed} cargo test --workspace --lib -- \
         simulation::guarantees",
        violation.law,
        history::text(&schedule, &history),
    )
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// The laws that schedules break: law and theme, the first seed, and the number of schedules.
type Broken = BTreeMap<String, (u64, u64)>;

/// Runs the schedules of `seeds`, on all cores. Unless `all` is set, stops soon after the first
/// broken law. Also returns the number of recorded events.
fn judge_all(seeds: &Range<u64>, all: bool) -> (Broken, usize) {
    let (next, events) = (AtomicU64::new(seeds.start), AtomicUsize::new(0));
    let broken = Mutex::new(Broken::new());
    let judge_some = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if !seeds.contains(&seed) || (!all && !lock(&broken).is_empty()) {
                return;
            }
            let schedule = Schedule::random(seed);
            let (violation, recorded) = judge(&schedule);
            events.fetch_add(recorded, Ordering::Relaxed);
            if let Some(violation) = violation {
                let kind = format!("{} {}", violation.law, schedule.theme());
                let mut broken = lock(&broken);
                let (first, times) = broken.entry(kind).or_insert((seed, 0));
                (*first, *times) = (seed.min(*first), *times + 1);
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get());
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(judge_some))));
    (std::mem::take(&mut *lock(&broken)), events.into_inner())
}

/// Every guarantee of `docs/modes.md` holds on every schedule.
#[test]
fn guarantees_hold_on_random_schedules() {
    let first = number("WEIR_SIMULATION_FROM").unwrap_or(0);
    let seeds = match number("WEIR_SIMULATION_SEED") {
        Some(seed) => seed..seed + 1,
        None => first..first + number("WEIR_SIMULATION_SEEDS").unwrap_or(SEEDS),
    };
    let all = number("WEIR_SIMULATION_ALL").is_some();
    let (broken, events) = judge_all(&seeds, all);
    for &(seed, _) in broken.values() {
        let schedule = Schedule::random(seed);
        if let (Some(violation), _) = judge(&schedule) {
            println!("{}\n", report(seed, schedule, &violation));
        }
    }
    println!("{} schedules, {events} events", seeds.end - seeds.start);
    assert!(broken.is_empty(), "(law and mode): (first seed, schedules)\n{broken:#?}");
}

/// A seed has one history, whatever ran before it.
#[test]
fn a_seed_has_one_history() {
    for seed in 0..40 {
        let text = || {
            let schedule = Schedule::random(seed);
            history::text(&schedule, &run::run(&schedule))
        };
        assert_eq!(text(), text(), "seed {seed}");
    }
}
