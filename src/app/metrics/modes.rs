//! Metrics of the layers between decisions and a store that instances share.

use std::sync::atomic::Ordering;

use super::{Exposition, Service};
use crate::modes::{LeasedCounts, SyncedCounts};

impl Service {
    pub(super) fn layer_metrics(&self, page: &mut Exposition) {
        let Some(layers) = self.limiter.layers().between() else { return };
        let help = "Steps denied from memory, because their counter is known to be full.";
        page.counter("weir_over_limit_cache_denied_total", help).single(layers.full().denied());
        let help = "Counters that the over-limit cache keeps.";
        page.gauge("weir_over_limit_cache_counters", help).single(layers.full().kept());
        lease_metrics(layers.leased().counts(), page);
        let help = "Counters with a local token pool.";
        page.gauge("weir_leased_counters", help).single(layers.leased().held() as u64);
        let synced = layers.synced();
        synced_metrics(synced.counts(), synced.replicas(), page);
    }
}

fn lease_metrics(counts: &LeasedCounts, page: &mut Exposition) {
    let help =
        "Token refills of leased rules, by result; direct: requests sent to Redis one by one.";
    let refills = page.counter("weir_leased_refills_total", help);
    for (result, count) in [
        ("granted", &counts.refills),
        ("denied", &counts.refills_denied),
        ("failed", &counts.refills_failed),
        ("direct", &counts.direct),
    ] {
        refills.sample(&[("result", result)], count.load(Ordering::Relaxed));
    }
    let help = "Tokens (hits taken from Redis ahead) of leased rules, by what happened to them.";
    let tokens = page.counter("weir_leased_tokens_total", help);
    for (fate, count) in [
        ("drawn", &counts.drawn),
        ("spent", &counts.spent),
        ("returned", &counts.returned),
        ("expired", &counts.expired),
    ] {
        tokens.sample(&[("fate", fate)], count.load(Ordering::Relaxed));
    }
    let help = "Requests of leased rules that waited for a refill, or were denied after one.";
    let requests = page.counter("weir_leased_requests_total", help);
    for (how, count) in [("waited", &counts.waits), ("denied", &counts.denied)] {
        requests.sample(&[("how", how)], count.load(Ordering::Relaxed));
    }
}

fn synced_metrics(counts: &SyncedCounts, copies: u64, page: &mut Exposition) {
    let help = "Counters that a copy is kept of, for rules with mode: synced.";
    page.gauge("weir_synced_counters", help).single(copies);
    let help = "Exchanges of counts with the store that were completed.";
    page.counter("weir_synced_exchanges_total", help).single(counts.exchanges());
    let help = "Steps sent to the store in exchanges.";
    page.counter("weir_synced_calls_total", help).single(counts.calls());
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
