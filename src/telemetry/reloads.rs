//! Metrics of rule reloads: their number by result, and whether the last one succeeded.

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
    /// they were loaded. `is_ok` is true if the last load succeeded, the first one included.
    pub fn expose(&self, rules: usize, since: Micros, is_ok: bool, page: &mut Exposition) {
        let (ok, failed) = self.counts();
        page.counter("weir_rules_reloads_total", "Reloads of the rules, by result.")
            .sample(&[("result", "ok")], ok)
            .sample(&[("result", "failed")], failed);
        let help = "1 if the last load of the rule files succeeded. 0 if files are invalid or \
                    missing, also after a start without rules.";
        page.gauge("weir_rules_last_reload_successful", help).single(u64::from(is_ok));
        let help = "When the active rules were loaded, in seconds since the epoch.";
        page.gauge("weir_rules_loaded_timestamp_seconds", help).single(since.0 as f64 / 1e6);
        page.gauge("weir_rules", "Active rules.").single(rules as u64);
    }
}
