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
    }
}
