//! Metrics of the layers between decisions and a store that instances share.

use super::{Decider, Exposition};

impl Decider {
    pub(super) fn layer_metrics(&self, page: &mut Exposition) {
        let Some(layers) = self.limiter.layers().between() else { return };
        let help = "Steps denied from memory, because their counter is known to be full.";
        page.counter("weir_over_limit_cache_denied_total", help).single(layers.full().denied());
        let help = "Counters that the over-limit cache keeps.";
        page.gauge("weir_over_limit_cache_counters", help).single(layers.full().kept());
        let counts = layers.synced().counts();
        let help = "Counters that a copy is kept of, for rules with mode: synced.";
        page.gauge("weir_synced_counters", help).single(layers.synced().replicas());
        let help = "Exchanges of counts with the store that were completed.";
        page.counter("weir_synced_exchanges_total", help).single(counts.exchanges());
        let help = "Steps that the store was asked for in exchanges.";
        page.counter("weir_synced_visits_total", help).single(counts.visits());
        let help = "Hits by which counters were newly seen to be over their limit in an exchange.";
        page.counter("weir_synced_overrun_hits_total", help).single(counts.overrun());
        let help = "Exchanges that the store left without an outcome, by class.";
        let family = page.counter("weir_synced_errors_total", help);
        for (error, count) in counts.failures() {
            if count > 0 {
                family.sample(&[("class", error.word())], count);
            }
        }
    }
}
