//! Metrics of the consistency modes: over-limit cache, leased credits, synced replicas.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::modes::{LeasedMetrics, Modes, SyncedMetrics};
use crate::store::{GuardedStore, RedisStore};
use crate::telemetry::Exposition;
use crate::time::SystemClock;

pub(super) fn expose(modes: &Modes<GuardedStore<RedisStore, SystemClock>>, page: &mut Exposition) {
    let help = "Steps denied by the over-limit cache, without a call to Redis.";
    page.counter("weir_over_limit_cache_denied_total", help).single(modes.over_limit().denied());
    let help = "Counters in the over-limit cache.";
    page.gauge("weir_over_limit_cache_counters", help).single(modes.over_limit().counters());
    expose_leased(modes.leased().metrics(), page);
    let help = "Counters of leased rules with a local credit pool.";
    page.gauge("weir_leased_counters", help).single(modes.leased().pools() as u64);
    let synced = modes.synced();
    expose_synced(synced.metrics(), synced.replicas(), page);
}

fn expose_leased(metrics: &LeasedMetrics, page: &mut Exposition) {
    let help = "Credit refills of leased rules, by result.";
    let refills = page.counter("weir_leased_refills_total", help);
    for (result, count) in [
        ("granted", &metrics.refills),
        ("denied", &metrics.refills_denied),
        ("failed", &metrics.refills_failed),
    ] {
        refills.sample(&[("result", result)], count.load(Ordering::Relaxed));
    }
    let mut single = |name: &'static str, help: &'static str, count: &AtomicU64| {
        page.counter(name, help).single(count.load(Ordering::Relaxed));
    };
    let help = "Requests of leased rules that went to Redis: on a counter without a credit pool, \
                peeks at an empty pool, and refunds of more than the pool can take.";
    single("weir_leased_direct_requests_total", help, &metrics.direct);
    let help = "Requests of leased rules that waited for a refill.";
    single("weir_leased_waits_total", help, &metrics.waits);
    let help = "Requests of leased rules that were denied after a refill.";
    single("weir_leased_denials_after_refill_total", help, &metrics.denied);
    let help = "Credits (hits taken from Redis ahead) of leased rules, by what happened to them.";
    let credits = page.counter("weir_leased_credits_total", help);
    for (state, count) in [
        ("drawn", &metrics.drawn),
        ("spent", &metrics.spent),
        ("returned", &metrics.returned),
        ("expired", &metrics.expired),
    ] {
        credits.sample(&[("state", state)], count.load(Ordering::Relaxed));
    }
}

fn expose_synced(metrics: &SyncedMetrics, replicas: u64, page: &mut Exposition) {
    let help = "Counters with a local replica, for rules with mode: synced.";
    page.gauge("weir_synced_counters", help).single(replicas);
    let help = "Completed exchanges of counts of synced rules with Redis.";
    page.counter("weir_synced_exchanges_total", help).single(metrics.exchanges());
    let help = "Steps of exchanges of synced rules, sent to Redis or rejected by the breaker.";
    page.counter("weir_synced_steps_total", help).single(metrics.steps());
    let help = "Hits over the limit of a synced rule, as found by exchanges.";
    page.counter("weir_synced_overrun_hits_total", help).single(metrics.overrun());
    let help = "Failed exchanges of synced rules, by cause.";
    let family = page.counter("weir_synced_errors_total", help);
    for (error, count) in metrics.failures() {
        if count > 0 {
            family.sample(&[("cause", error.name())], count);
        }
    }
}
