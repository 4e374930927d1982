//! Metrics of rule reloads: their number by result, and whether the last one failed.

use std::sync::atomic::{AtomicU64, Ordering};

use super::exposition::Exposition;
use crate::time::Micros;

/// Reloads by result. The first load is not counted.
#[derive(Debug, Default)]
pub struct RuleReloads {
    ok: AtomicU64,
    failed: AtomicU64,
}

impl RuleReloads {
    /// Counts a reload that activated its rules.
    pub fn succeeded(&self) {
        self.ok.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a reload that failed and changed nothing.
    pub fn failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Successful and failed reloads.
    pub fn counts(&self) -> (u64, u64) {
        (self.ok.load(Ordering::Relaxed), self.failed.load(Ordering::Relaxed))
    }

    /// Writes the metrics onto the page. `rules` is the number of active rules, and `since` is when
    /// they were loaded. `failing` is true if the last reload failed.
    pub fn expose(&self, rules: usize, since: Micros, failing: bool, page: &mut Exposition) {
        let (ok, failed) = self.counts();
        page.counter("weir_rules_reloads_total", "Reloads of the rules by result.")
            .sample(&[("result", "ok")], ok)
            .sample(&[("result", "failed")], failed);
        let help = "1 while the rule files are invalid and older rules decide.";
        page.gauge("weir_rules_failing", help).single(u64::from(failing));
        let help = "When the active rules were loaded, in seconds since the epoch.";
        page.gauge("weir_rules_loaded_timestamp_seconds", help).single(since.0 as f64 / 1e6);
        page.gauge("weir_rules", "Active rules.").single(rules as u64);
    }
}
