//! A deterministic simulation: several instances with the real decision code, over a network with
//! latency, reordering and loss, and one to three Redis nodes with their own clock, which fail
//! separately. Instances estimate that clock from round trips, as in production.
//!
//! A seed determines a schedule, and a schedule determines its run: one thread, virtual time, no
//! randomness outside the seed. After each run, laws taken from `docs/guides/modes.md` judge the history.
//! A failing schedule is shrunk and printed.
//!
//! The simulators of `src/modes/leased/tests` and `src/modes/synced/tests` cover what this one does
//! not: any limits, threads that stop after they have read the clock, and exact states of buckets.
//!
//! `WEIR_SIMULATION_SEED=N` repeats one seed, `WEIR_SIMULATION_SEEDS=N` sets the number of seeds,
//! and `WEIR_SIMULATION_FROM=N` the first one. `WEIR_SIMULATION_ALL=1` reports every broken law
//! once instead of stopping at the first.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::testing::lock;

mod history;
mod instance;
mod laws;
mod recording_store;
mod regressions;
mod rules;
mod run;
mod schedule;
mod shrink;
mod wrong_histories;

use laws::{Counts, LAWS, Violation};
use schedule::Schedule;

/// Seeds of an ordinary test run. `make simulation` runs far more.
const SEEDS: u64 = 2_000;

/// Every law applies to at least one counter in this number of schedules, on average.
const SCHEDULES_PER_LAW: u64 = 100;

/// The first law that a schedule breaks.
fn broken(schedule: &Schedule) -> Option<Violation> {
    laws::judge(schedule, &run::run(schedule)).0
}

/// The shrunk history of a failing schedule, and the command that repeats it.
fn report(seed: u64, schedule: Schedule, violation: &Violation) -> String {
    let schedule = shrink::shrunk(schedule, violation.law);
    let history = run::run(&schedule);
    let (shown, _) = laws::judge(&schedule, &history);
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

/// The results of many schedules.
#[derive(Default)]
struct Summary {
    schedules: u64,
    /// Recorded events.
    events: usize,
    counts: Counts,
    broken: Broken,
}

impl Summary {
    /// Runs the schedule of `seed`, and adds its result to `summary`.
    fn run(summary: &Mutex<Summary>, seed: u64) {
        let schedule = Schedule::random(seed);
        let history = run::run(&schedule);
        let (violation, counts) = laws::judge(&schedule, &history);
        let mut summary = lock(summary);
        summary.schedules += 1;
        summary.events += history.len();
        for (sum, count) in summary.counts.iter_mut().zip(counts) {
            *sum += count;
        }
        if let Some(violation) = violation {
            let kind = format!("{} {}", violation.law, schedule.theme());
            let (first, times) = summary.broken.entry(kind).or_insert((seed, 0));
            (*first, *times) = (seed.min(*first), *times + 1);
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} schedules, {} events; counters per law:", self.schedules, self.events)?;
        let mut separator = "";
        for (law, count) in LAWS.iter().zip(self.counts) {
            write!(f, "{separator} {} {count}", law.name)?;
            separator = ",";
        }
        Ok(())
    }
}

/// Runs the schedules of `seeds`, on all cores. Unless `all` is set, stops soon after the first
/// broken law.
fn run_all(seeds: &Range<u64>, all: bool) -> Summary {
    let next = AtomicU64::new(seeds.start);
    let summary = Mutex::new(Summary::default());
    let run_some = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if !seeds.contains(&seed) || (!all && !lock(&summary).broken.is_empty()) {
                return;
            }
            Summary::run(&summary, seed);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get());
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(run_some))));
    std::mem::take(&mut *lock(&summary))
}

/// Every guarantee of `docs/guides/modes.md` holds on every schedule, and enough schedules test it.
#[test]
fn guarantees_hold_on_random_schedules() {
    let first = number("WEIR_SIMULATION_FROM").unwrap_or(0);
    let seeds = match number("WEIR_SIMULATION_SEED") {
        Some(seed) => seed..seed + 1,
        None => first..first + number("WEIR_SIMULATION_SEEDS").unwrap_or(SEEDS),
    };
    let all = number("WEIR_SIMULATION_ALL").is_some();
    let summary = run_all(&seeds, all);
    for &(seed, _) in summary.broken.values() {
        let schedule = Schedule::random(seed);
        if let Some(violation) = broken(&schedule) {
            println!("{}\n", report(seed, schedule, &violation));
        }
    }
    println!("{summary}");
    let broken = &summary.broken;
    assert!(broken.is_empty(), "(law and mode): (first seed, schedules)\n{broken:#?}");
    for (law, count) in LAWS.iter().zip(summary.counts) {
        // One seed, or a few, need not test every law.
        let enough = count >= summary.schedules / SCHEDULES_PER_LAW;
        assert!(enough, "`{}` applied to {count} counters only: {summary}", law.name);
    }
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
