//! A simulation of instances as in production: the limiter, the engine of RLQS with its driver, streams of
//! Envoys, and callers of `ShouldRateLimit`, over a shared Redis in virtual time.
//!
//! `src/quota/tests/simulation` has more Envoys, faults and clocks, but the groups of quotas alone. This one has
//! what is around them: rules that begin and cease to be divided, values that get another rule, first shares of
//! callers, and instances without RLQS. A theme and a seed determine what happens, apart from the random ids of
//! holders. The laws judge what passes, for each value:
//!
//! 1. The rates that Envoys have together are at most the limit.
//! 2. In 1, 5 and 30 s, and in the whole time, at most the limit of that time passes, what Envoys have saved
//!    up or get with a larger bucket, and the burst once.
//! 3. Callers have their first share in 3.5 s.
//! 4. What an instance without RLQS passes is within the limit too, for itself.
//! 5. At the end, at least 80 % of the limit is used.
//!
//! `Exception` has what may pass besides, and `docs/guides/rlqs.md` lists it. Seeds are set as for the other
//! simulation.

use super::{TestRuleSet, address, config, rule_set};
use crate::time::Micros;

mod controls;
mod envoy;
mod instance;
mod judge;
mod redis;
mod themes;
mod world;

use judge::Figures;
use themes::Theme;

/// An instant of the virtual time.
type SimInstant = tokio::time::Instant;

/// Seeds of an ordinary run, for each theme.
const SEEDS: u64 = 2;

/// What a control does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Every Envoy gets the whole limit.
    FullShares,
    /// No Envoy gets an assignment.
    NoShares,
    /// All calls pass, or none.
    AllCallsPass,
    NoCallPasses,
}

/// Runs one world.
fn run(seed: u64, theme: Theme, fault: Option<Fault>, strict: bool) -> Figures {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O");
    let world = runtime.block_on(themes::run(seed, theme, fault, strict));
    std::mem::take(&mut crate::testing::lock(&world.state).figures)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn add(sum: &mut Figures, theme: Theme, seed: u64, figures: Figures) {
    for (law, (times, what)) in figures.violations {
        let entry = sum.violations.entry(law).or_insert((0, format!("{theme:?} {seed}: {what}")));
        entry.0 += times;
    }
    sum.windows += figures.windows;
    sum.excused += figures.excused;
    sum.most = sum.most.max(figures.most);
    sum.largest = sum.largest.max(figures.largest);
    sum.waits.extend(figures.waits);
    sum.used.extend(figures.used);
}

fn show(name: &str, figures: &mut Figures) {
    figures.waits.sort_unstable();
    let seconds = |time: Option<&Micros>| time.map_or(0.0, |time| time.0 as f64 / 1e6);
    println!(
        "{name}: {} violations, {} of {} windows excused, at most {:.2} of the limit in a second, \
         Envoys had at most {:.2}, first shares after {:.2} s (median), {:.2} s (max), used {:.2}",
        figures.violations.values().map(|(times, _)| times).sum::<u64>(),
        figures.excused,
        figures.windows,
        figures.most,
        figures.largest,
        seconds(figures.waits.get(figures.waits.len() / 2)),
        seconds(figures.waits.last()),
        figures.used.iter().copied().fold(f64::INFINITY, f64::min),
    );
    for (law, (times, what)) in &figures.violations {
        println!("  {law}: {times}, first: {what}");
    }
}

/// The laws hold in all themes.
#[test]
fn laws_hold_in_all_themes() {
    let seeds = match number("WEIR_QUOTA_SIMULATION_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("WEIR_QUOTA_SIMULATION_SEEDS").map_or(SEEDS, |seeds| seeds.div_ceil(10)),
    };
    let mut all = Vec::new();
    for theme in Theme::ALL {
        let mut sum = Figures::default();
        for seed in seeds.clone() {
            add(&mut sum, theme, seed, run(seed, theme, None, false));
        }
        show(&format!("{theme:?}"), &mut sum);
        all.extend(sum.violations.into_iter().map(|(law, what)| (theme, law, what)));
    }
    assert!(all.is_empty(), "{all:#?}");
}
