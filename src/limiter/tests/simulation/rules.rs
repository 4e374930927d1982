//! The rules of the simulation: every algorithm, mode and kind of tier, in several variants with
//! other limits. A reload replaces one variant by another.

use std::sync::{Arc, LazyLock};

use crate::limit::{Algorithm, Mode};
use crate::rules::{Options, RuleSet, SourceFile};
use crate::testing::Rng;

/// Variants of each mode. They have other limits, but the same counters.
const LIMITS: usize = 24;

/// The themes of variants. The first three have one mode each, in this order. The rules of the last
/// one have different modes.
const THEMES: [&str; 4] = ["exact", "leased", "synced", "mixed"];

/// The number of modes.
const MODES: usize = 3;

/// The `sync_interval`s of synced variants, in milliseconds.
const INTERVALS: [u64; 4] = [10, 20, 100, 1_000];

/// The windows of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Windows {
    /// One window of a day, which no schedule outlasts.
    Day,
    /// One window of some seconds.
    Seconds,
    /// A window of some seconds and one of a day.
    Two,
}

/// A counter of the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counter {
    pub(super) algorithm: Algorithm,
    pub(super) windows: Windows,
    /// Whether hits are reserved, and settled later.
    pub(super) reserves: bool,
    /// Whether the domain gives back the hits of denied requests.
    pub(super) free: bool,
}

impl Counter {
    /// The domain of the counter's rule.
    pub(super) fn domain(&self) -> &'static str {
        if self.free { "free" } else { "count" }
    }

    /// The key of the counter's descriptor.
    pub(super) fn name(&self) -> String {
        let reserves = if self.reserves { "_reserved" } else { "" };
        format!("{}_{:?}{reserves}", self.algorithm.name(), self.windows).to_lowercase()
    }

    /// The mode of the counter's rule in a variant: 0 exact, 1 leased, 2 synced.
    pub(super) fn mode(&self, variant: usize) -> usize {
        let lists = [Algorithm::SlidingWindowLog, Algorithm::Concurrency];
        if self.reserves || lists.contains(&self.algorithm) {
            return 0;
        }
        match variant / LIMITS {
            mode @ ..MODES => mode,
            _ => (self.algorithm as usize + self.windows as usize + variant) % MODES,
        }
    }
}

/// The number of the variant with this theme and these limits.
pub(super) fn variant(theme: usize, limits: usize) -> usize {
    theme * LIMITS + limits % LIMITS
}

/// The theme of a variant.
pub(super) fn theme(variant: usize) -> &'static str {
    THEMES[variant / LIMITS]
}

/// The rules of a variant.
pub(super) fn rules(variant: usize) -> Arc<RuleSet> {
    static ALL: LazyLock<Vec<Arc<RuleSet>>> = LazyLock::new(|| {
        (0..THEMES.len() * LIMITS).map(|variant| Arc::new(compiled(variant))).collect()
    });
    ALL[variant].clone()
}

fn compiled(variant: usize) -> RuleSet {
    let files: Vec<SourceFile> = [false, true]
        .map(|free| SourceFile {
            name: Arc::from(if free { "free.yaml" } else { "count.yaml" }),
            text: text(variant, free),
        })
        .into();
    let (rules, _) = crate::rules::compile(&files, &Options::default())
        .unwrap_or_else(|problems| panic!("{problems:?}"));
    rules
}

fn text(variant: usize, free: bool) -> String {
    let mut rng = Rng::new(1_000 + (variant % LIMITS) as u64);
    let mut text = format!(
        "domain: {}\ndenied_requests: {}\ndescriptors:\n",
        if free { "free" } else { "count" },
        if free { "free" } else { "count" },
    );
    for algorithm in Algorithm::ALL {
        for windows in [Windows::Day, Windows::Seconds, Windows::Two] {
            for reserves in [false, true] {
                let counter = Counter { algorithm, windows, reserves, free };
                text += &rule(&counter, variant, &mut rng);
            }
        }
    }
    text
}

/// The line of one rule. It draws the same numbers in every mode.
fn rule(counter: &Counter, variant: usize, rng: &mut Rng) -> String {
    let Counter { algorithm, windows, reserves, .. } = *counter;
    let requests = rng.pick(&[1, 2, 3, 5, 8, 9, 10, 13, 20, 60, 200]);
    let (burst, more) = (rng.pick(&[1, 2, 5, 8, 12, 40, 100]), 1 + rng.below(3));
    let counts_denied = rng.chance(30);
    let interval = INTERVALS[variant % LIMITS % INTERVALS.len()];
    if algorithm == Algorithm::Concurrency {
        if reserves {
            return String::new();
        }
        let name = counter.name();
        let max = requests.min(20);
        return format!(
            "  - {{key: {name}, rate_limit: {{algorithm: concurrency, max: {max}, hold: 1d}}}}\n"
        );
    }
    let bucket = matches!(algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket);
    let tier = |requests: u64, window: &str| {
        let burst = if bucket { format!(", burst: {burst}") } else { String::new() };
        format!("requests: {requests}, window: {window}{burst}")
    };
    let seconds = ["1s", "2s"][usize::from(bucket)];
    let limit = match windows {
        Windows::Day => tier(requests, "1d"),
        Windows::Seconds => tier(requests, seconds),
        Windows::Two => {
            format!("tiers: [{{{}}}, {{{}}}]", tier(requests, "2s"), tier(requests * more, "1d"))
        }
    };
    let mode = match counter.mode(variant) {
        0 => String::new(),
        1 => ", mode: leased".to_owned(),
        _ => format!(", mode: synced, sync_interval: {interval}ms"),
    };
    let denied = match (algorithm, mode.is_empty()) {
        (Algorithm::FixedWindow, true) if counts_denied => ", count_denied: true",
        (_, true) => ", count_denied: false",
        _ => "",
    };
    let reserve = if reserves { ", reserve: {hold: 1h}" } else { "" };
    format!(
        "  - {{key: {}, rate_limit: {{algorithm: {}, {limit}{mode}{denied}{reserve}}}}}\n",
        counter.name(),
        algorithm.name(),
    )
}

/// The interval of a synced rule in microseconds; 0 in other modes.
pub(super) fn interval(mode: Mode) -> u64 {
    match mode {
        Mode::Synced { interval } => interval.0,
        Mode::Exact | Mode::Leased => 0,
    }
}
