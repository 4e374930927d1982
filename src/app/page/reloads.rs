//! Metrics of the rules: whether what is on disk is what decides.

use super::{Decider, Exposition, read};

impl Decider {
    pub(super) fn reload_metrics(&self, page: &mut Exposition) {
        let reloads = &self.reloads;
        const NAME: &str = "weir_rules_reloads_total";
        page.family(NAME, "counter", "Reloads of the rules, by how they went.");
        for (result, count) in [("ok", &reloads.ok), ("failed", &reloads.failed)] {
            page.sample(NAME, &[("result", result)], read(count));
        }
        page.single(
            "weir_rules_failing",
            "gauge",
            "1 while the rule files are bad, and older rules decide.",
            u64::from(reloads.last_error.load().is_some()),
        );
        let now = self.in_force.load();
        page.single(
            "weir_rules_loaded_timestamp_seconds",
            "gauge",
            "When the rules in force were loaded, in seconds since the epoch.",
            now.loaded_at.0 / 1_000_000,
        );
        page.single("weir_rules", "gauge", "Rules in force.", now.rules.rules().len() as u64);
    }
}
