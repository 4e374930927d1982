//! Metrics of the layers between decisions and a store that instances share.

use super::{Decider, Exposition};

impl Decider {
    pub(super) fn layer_metrics(&self, page: &mut Exposition) {
        let Some(layers) = self.limiter.layers().between() else { return };
        page.single(
            "weir_over_limit_cache_denied_total",
            "counter",
            "Steps that were denied from memory, because their counter is known to be full.",
            layers.full().denied(),
        );
        page.single(
            "weir_over_limit_cache_counters",
            "gauge",
            "Counters that the over-limit cache keeps.",
            layers.full().kept(),
        );
        let counts = layers.synced().counts();
        let mut single = |name: &str, kind: &str, help: &str, number: u64| {
            page.single(name, kind, help, number);
        };
        let help = "Counters that a copy is kept of, for rules with mode: synced.";
        single("weir_synced_counters", "gauge", help, layers.synced().replicas());
        let help = "Exchanges of counts with the store that were completed.";
        single("weir_synced_exchanges_total", "counter", help, counts.exchanges());
        let help = "Steps that the store was asked for in exchanges.";
        single("weir_synced_visits_total", "counter", help, counts.visits());
        let help = "Hits by which counters were newly seen to be over their limit in an exchange.";
        single("weir_synced_overrun_hits_total", "counter", help, counts.overrun());
        const FAILURES: &str = "weir_synced_failures_total";
        page.family(FAILURES, "counter", "Exchanges that failed, by why.");
        for (error, count) in counts.failures() {
            page.sample(FAILURES, &[("cause", error.word())], count);
        }
    }
}
