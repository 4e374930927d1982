//! Reloads of the rules: how many went well, and whether the last one did.

use std::sync::atomic::{AtomicU64, Ordering};

use super::exposition::Exposition;
use crate::time::Micros;

/// Every time that rules were read again.
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

    /// Counts a reload that changed nothing because of an error.
    pub fn failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// How many were good, and how many bad.
    pub fn counts(&self) -> (u64, u64) {
        (self.ok.load(Ordering::Relaxed), self.failed.load(Ordering::Relaxed))
    }

    /// Writes everything onto the page. `rules` are in force since `since`; `failing`: the files
    /// as they are now cannot be used.
    pub fn expose(&self, rules: usize, since: Micros, failing: bool, page: &mut Exposition) {
        let (ok, failed) = self.counts();
        page.counter("weir_rules_reloads_total", "Reloads of the rules, by how they went.")
            .sample(&[("result", "ok")], ok)
            .sample(&[("result", "failed")], failed);
        let help = "1 while the rule files cannot be used as they are, and older rules decide.";
        page.gauge("weir_rules_failing", help).single(u64::from(failing));
        let help = "When the rules in force were loaded, in seconds since the epoch.";
        page.gauge("weir_rules_loaded_timestamp_seconds", help).single(since.0 as f64 / 1e6);
        page.gauge("weir_rules", "Rules in force.").single(rules as u64);
    }
}
