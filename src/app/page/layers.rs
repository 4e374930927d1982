//! Metrics of the layers between decisions and a store that instances share.

use super::{Decider, Exposition};

impl Decider {
    pub(super) fn layer_metrics(&self, page: &mut Exposition) {
        let Some(layers) = self.limiter.layers().between() else { return };
        let help = "Steps denied from memory, because their counter is known to be full.";
        page.counter("weir_over_limit_cache_denied_total", help).single(layers.full().denied());
        let help = "Counters that the over-limit cache keeps.";
        page.gauge("weir_over_limit_cache_counters", help).single(layers.full().kept());
    }
}
